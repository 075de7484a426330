/*
 * The layers of torch.nn.TransformerEncoder and Decoder. They have no tensors of their own: their
 * children tell what they are, and they tell what their children are called in burn, which
 * numbers the norms by where they stand:
 *
 *                          norm_first=False (post)       norm_first=True (pre)
 *     runs                 attention, norm1, ...         norm1, attention, ...
 *     burn's names         norm1 -> norm_1               norm1 -> norm_2 (a decoder's: norm_3)
 *
 * A state dict does not say which it is, a graph does (which of the two ran first), and the class
 * of a whole module does (norm_first).
 */
#include <string.h>

#include "adapters/evidence.h"

static bool is_attention(const struct ckpt_facts *f) {
    return f->leaf[CKPT_LEAF_IN_PROJ_WEIGHT] || f->leaf[CKPT_LEAF_Q_PROJ_WEIGHT];
}

static bool has_weight(const struct ckpt_facts *f, uint32_t rank) {
    const struct ckpt_tensor *w = f->leaf[CKPT_LEAF_WEIGHT];
    return w && w->ndim == rank;
}

static bool is_matrix(const struct ckpt_facts *f) {
    return has_weight(f, 2);
}

static bool is_vector(const struct ckpt_facts *f) {
    return has_weight(f, 1);
}

static const struct child_row {
    const char *name;
    enum ckpt_child child;
    bool (*fits)(const struct ckpt_facts *f);
    const char *kind; /* of the child; NULL: it tells by itself */
} children[] = {
    {"self_attn", CKPT_CHILD_SELF_ATTN, is_attention, NULL},
    {"multihead_attn", CKPT_CHILD_MULTIHEAD_ATTN, is_attention, NULL},
    {"linear1", CKPT_CHILD_LINEAR1, is_matrix, "linear"},
    {"linear2", CKPT_CHILD_LINEAR2, is_matrix, "linear"},
    {"norm1", CKPT_CHILD_NORM1, is_vector, "norm"},
    {"norm2", CKPT_CHILD_NORM2, is_vector, "norm"},
    {"norm3", CKPT_CHILD_NORM3, is_vector, "norm"},
};

/* The row of a module as a child of a layer, or NULL. */
static const struct child_row *child_row(const struct ckpt_facts *f) {
    const struct ckpt_text name = ckpt_module_last_name(f->path);
    for (size_t i = 0; i < sizeof children / sizeof children[0]; i++)
        if (ckpt_text_is(name, children[i].name))
            return children[i].fits(f) ? &children[i] : NULL;
    return NULL;
}

void ckpt_note_children(struct ckpt_modules *m) {
    for (size_t i = 0; i < m->n; i++) {
        const struct ckpt_facts *f = &m->facts[i];
        const struct child_row *row = f->within == CKPT_MODULE_NONE ? NULL : child_row(f);
        if (row)
            m->facts[f->within].children |= (uint8_t)row->child;
    }
}

/* --- what a layer is -------------------------------------------------------------------------- */

static const struct layer_row {
    const char *kind, *pre, *post;
    uint8_t children;
} layers[] = {
    {"decoder_layer", "decoder_layer:pre", "decoder_layer:post",
     CKPT_CHILD_SELF_ATTN | CKPT_CHILD_MULTIHEAD_ATTN | CKPT_CHILD_LINEAR1 | CKPT_CHILD_LINEAR2 |
         CKPT_CHILD_NORM1 | CKPT_CHILD_NORM2 | CKPT_CHILD_NORM3},
    {"encoder_layer", "encoder_layer:pre", "encoder_layer:post",
     CKPT_CHILD_SELF_ATTN | CKPT_CHILD_LINEAR1 | CKPT_CHILD_LINEAR2 | CKPT_CHILD_NORM1 |
         CKPT_CHILD_NORM2},
};

static const struct layer_row *layer_row(const char *kind) {
    for (size_t i = 0; kind && i < sizeof layers / sizeof layers[0]; i++)
        if (strncmp(kind, layers[i].kind, strlen(layers[i].kind)) == 0)
            return &layers[i];
    return NULL;
}

bool ckpt_is_layer(const char *kind) {
    return layer_row(kind) != NULL;
}

const char *ckpt_layer_by_children(const struct ckpt_facts *f) {
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        if (f->children == layers[i].children)
            return layers[i].kind;
    return NULL;
}

/* norm_first of a class that we know to have it. */
static enum ckpt_norm_order order_of_class(const struct ckpt_facts *f) {
    struct ckpt_decision d;
    const struct ckpt_value *first = ckpt_facts_attribute(f, "norm_first");
    if (!first || first->kind != CKPT_VALUE_BOOL || !ckpt_kind_of_class(f->record->cls, &d))
        return CKPT_NORM_UNKNOWN;
    return first->b ? CKPT_NORM_PRE : CKPT_NORM_POST;
}

void ckpt_decide_norm_order(const struct ckpt_facts *f, struct ckpt_decision *d) {
    const struct layer_row *row = layer_row(d->kind);
    if (strcmp(d->kind, row->kind) != 0) /* the option said it */
        return;
    const bool graph = f->norm_order != CKPT_NORM_UNKNOWN;
    const enum ckpt_norm_order order = graph ? f->norm_order : order_of_class(f);
    if (order == CKPT_NORM_UNKNOWN)
        return;
    d->kind = d->rule_kind = order == CKPT_NORM_PRE ? row->pre : row->post;
    d->decided_by = graph ? "graph" : "class";
}

/* --- what follows of it ----------------------------------------------------------------------- */

static bool found(struct ckpt_decision *d, const char *kind) {
    d->kind = d->rule_kind = kind;
    d->decided_by = "structure";
    return true;
}

bool ckpt_evidence_holder(const struct ckpt_facts *f, struct ckpt_decision *d) {
    if (!d->within || !d->within->kind)
        return false;
    if (strcmp(d->within->kind, "mha") == 0)
        return is_matrix(f) && ckpt_text_is(ckpt_module_last_name(f->path), "out_proj") &&
               found(d, "linear");
    const struct child_row *row = ckpt_is_layer(d->within->kind) ? child_row(f) : NULL;
    return row && row->kind && found(d, row->kind);
}

void ckpt_note_stacks(struct ckpt_modules *m) {
    for (size_t i = 0; i < m->n; i++) {
        const size_t list = m->facts[i].within;
        if (!ckpt_is_layer(m->decision[i].kind) || list == CKPT_MODULE_NONE ||
            !ckpt_text_is(ckpt_module_last_name(m->facts[list].path), "layers"))
            continue;
        if (m->facts[list].within != CKPT_MODULE_NONE)
            m->facts[m->facts[list].within].stack = true;
    }
}
