/*
 * Gathers the facts of each module: of those that have tensors (whose keys differ in their last
 * name only), and of the modules that hold them, some levels up.
 *
 *     key                                 facts of
 *     layers.0.self_attn.in_proj_weight   layers.0.self_attn, layers.0, layers, ""
 *     layers.0.linear1.weight             layers.0.linear1 (and layers.0: already there)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/rule.h"

static const char *const leaf_names[CKPT_LEAF_COUNT] = {
    [CKPT_LEAF_WEIGHT] = "weight",
    [CKPT_LEAF_BIAS] = "bias",
    [CKPT_LEAF_RUNNING_MEAN] = "running_mean",
    [CKPT_LEAF_IN_PROJ_WEIGHT] = "in_proj_weight",
    [CKPT_LEAF_Q_PROJ_WEIGHT] = "q_proj_weight",
    [CKPT_LEAF_K_PROJ_WEIGHT] = "k_proj_weight",
    [CKPT_LEAF_V_PROJ_WEIGHT] = "v_proj_weight",
    [CKPT_LEAF_WEIGHT_HH] = "weight_hh_l0",
    [CKPT_LEAF_WEIGHT_IH] = "weight_ih_l0",
    [CKPT_LEAF_WEIGHT_HR] = "weight_hr_l0",
    [CKPT_LEAF_BIAS_K] = "bias_k",
    [CKPT_LEAF_GAMMA] = "gamma",
    [CKPT_LEAF_BETA] = "beta",
    [CKPT_LEAF_ALPHA] = "alpha",
    [CKPT_LEAF_KERNEL] = "kernel",
    [CKPT_LEAF_SCALE] = "scale",
    [CKPT_LEAF_EMBEDDING] = "embedding",
    [CKPT_LEAF_MEAN] = "mean",
    [CKPT_LEAF_VAR] = "var",
    [CKPT_LEAF_NEGATIVE_SLOPE] = "negative_slope",
    [CKPT_LEAF_LORA_A] = "lora_a",
};

struct gather {
    struct ckpt_build *b;
    struct ckpt_strmap by_path;
    struct ckpt_facts *facts;
    size_t n, cap;
};

static void gather_fini(struct gather *g) {
    ckpt_strmap_fini(&g->by_path);
    free(g->facts);
}
#define ckpt_auto_gather gather_fini

static struct ckpt_text holder_path(struct ckpt_text path) {
    const char *dot = memrchr(path.s, '.', path.n);
    return (struct ckpt_text){path.s, dot ? (size_t)(dot - path.s) : 0};
}

/* The index of the module at the path, made if it is new. */
static int add_module(struct gather *g, struct ckpt_text path, size_t *at) {
    if (g->n > CKPT_LIMIT_FOLDERS) /* each is a folder, and one is the root */
        return ckpt_fail(g->b->err, -E2BIG,
                         "the tensors' keys make more than %u folders (limit of folders)",
                         CKPT_LIMIT_FOLDERS);
    if (g->n == g->cap) {
        const size_t cap = g->cap ? 2 * g->cap : 64;
        struct ckpt_facts *bigger = realloc(g->facts, cap * sizeof *bigger);
        if (!bigger)
            return ckpt_fail_memory(g->b->err, "looking at the modules");
        g->facts = bigger;
        g->cap = cap;
    }
    *at = g->n;
    const int rc = ckpt_strmap_add(&g->by_path, path, g->n, at);
    if (rc == -ENOMEM)
        return ckpt_fail_memory(g->b->err, "looking at the modules");
    if (rc == 0)
        g->facts[g->n++] = (struct ckpt_facts){.path = path, .within = CKPT_MODULE_NONE};
    return 0;
}

/* The modules that hold this one, as far up as they are not there yet. */
static int add_holders(struct gather *g, size_t at) {
    const struct ckpt_checkpoint *c = g->b->checkpoint;
    for (uint32_t level = 0; level < CKPT_MODULE_LEVELS; level++) {
        const struct ckpt_text path = g->facts[at].path;
        if (path.n == 0 || g->facts[at].within != CKPT_MODULE_NONE)
            break;
        size_t above;
        const int rc = add_module(g, holder_path(path), &above);
        if (rc)
            return rc;
        g->facts[at].within = above;
        const struct ckpt_module *record = g->facts[at].record;
        if (record && record->parent >= 0 && !g->facts[above].record)
            g->facts[above].record = &c->modules[record->parent];
        at = above;
    }
    return 0;
}

/* The item as a tensor: what the dialect made of one has another shape. NULL: out of memory. */
static const struct ckpt_tensor *as_tensor(struct ckpt_arena *a, const struct ckpt_item *item) {
    if (!item->made)
        return item->tensor;
    struct ckpt_tensor *const t = ckpt_arena_alloc(a, sizeof *t);
    if (t)
        *t = (struct ckpt_tensor){.dtype = item->tensor->dtype,
                                  .ndim = item->made->ndim,
                                  .shape = item->made->shape,
                                  .module = -1};
    return t;
}

static int note_leaf(struct gather *g, struct ckpt_facts *f, const struct ckpt_item *item) {
    const struct ckpt_text key = item->torch_key;
    const size_t skip = f->path.n ? f->path.n + 1 : (key.n > 0 && key.s[0] == '.');
    const struct ckpt_text name = {key.s + skip, key.n - skip};
    f->owns = true;
    for (size_t l = 0; l < CKPT_LEAF_COUNT; l++)
        if (ckpt_text_is(name, leaf_names[l]))
            if (!(f->leaf[l] = as_tensor(&g->b->scratch, item)))
                return ckpt_fail_memory(g->b->err, "looking at the modules");
    return 0;
}

static int add_item(struct gather *g, const struct ckpt_item *item, size_t *at) {
    const struct ckpt_checkpoint *c = g->b->checkpoint;
    const int32_t module = item->tensor->module;
    int rc = add_module(g, holder_path(item->torch_key), at);
    if (rc)
        return rc;
    struct ckpt_facts *f = &g->facts[*at];
    if (module >= 0 && (size_t)module < c->nmodules && !f->record)
        f->record = &c->modules[module];
    rc = note_leaf(g, f, item);
    return rc ? rc : add_holders(g, *at);
}

/* Hands over what was gathered. */
static int keep(struct gather *g, struct ckpt_modules *m) {
    m->decision = ckpt_arena_array(&g->b->scratch, g->n, sizeof *m->decision);
    if (!m->decision)
        return ckpt_fail_memory(g->b->err, "looking at the modules");
    m->facts = CKPT_STEAL(g->facts);
    m->n = g->n;
    ckpt_note_children(m);
    return 0;
}

/* What is told of a module when its facts are gone. */
static void name_decisions(struct ckpt_modules *m) {
    for (size_t i = 0; i < m->n; i++) {
        m->decision[i].path = m->facts[i].path;
        m->decision[i].record = m->facts[i].record;
        m->decision[i].graph_class = m->facts[i].graph_class;
        m->decision[i].graph_kind = m->facts[i].use.kind;
    }
}

void ckpt_modules_fini(struct ckpt_modules *m) {
    for (size_t i = 0; i < m->n; i++)
        m->decision[i].facts = NULL;
    free(m->facts);
    *m = (struct ckpt_modules){0};
}

int ckpt_gather_modules(struct ckpt_build *b, struct ckpt_modules *m) {
    CKPT_AUTO(gather) struct gather g = {.b = b};
    m->of_item = ckpt_arena_array(&b->scratch, b->nitems, sizeof *m->of_item);
    if (!m->of_item)
        return ckpt_fail_memory(b->err, "looking at the modules");
    for (size_t i = 0; i < b->nitems; i++) {
        const int rc = b->item[i].in_model ? add_item(&g, &b->item[i], &m->of_item[i]) : 0;
        if (rc)
            return rc;
    }
    const struct ckpt_graph *graph = b->options->graph ? b->options->graph : b->checkpoint->graph;
    int rc = keep(&g, m);
    if (rc == 0 && graph)
        rc = ckpt_survey_graph(b, graph, m->facts, &g.by_path);
    if (rc == 0)
        name_decisions(m);
    return rc;
}

void ckpt_link_decisions(struct ckpt_modules *m) {
    for (size_t i = 0; i < m->n; i++) {
        const size_t within = m->facts[i].within;
        m->decision[i].facts = &m->facts[i];
        m->decision[i].within = within == CKPT_MODULE_NONE ? NULL : &m->decision[within];
    }
}

void ckpt_hand_over_decisions(struct ckpt_build *b, const struct ckpt_modules *m) {
    for (size_t i = 0; i < b->nitems; i++)
        if (b->item[i].in_model)
            ckpt_take_decision(m, i, &b->item[i].decision);
}

int ckpt_index_modules(struct ckpt_build *b, const struct ckpt_modules *m,
                       struct ckpt_strmap *by_path) {
    for (size_t i = 0; i < m->n; i++)
        if (ckpt_strmap_add(by_path, m->facts[i].path, i, NULL) == -ENOMEM)
            return ckpt_fail_memory(b->err, "looking at the modules");
    return 0;
}

size_t ckpt_module_child(const struct ckpt_modules *m, const struct ckpt_strmap *by_path, size_t i,
                         const char *name) {
    CKPT_AUTO(str) struct ckpt_str path = {0};
    const struct ckpt_text holder = m->facts[i].path;
    ckpt_str_add(&path, holder.s, holder.n);
    ckpt_str_puts(&path, holder.n ? "." : "");
    ckpt_str_puts(&path, name);
    return path.failed ? CKPT_MODULE_NONE : ckpt_strmap_get(by_path, ckpt_str_text(&path));
}

const struct ckpt_value *ckpt_facts_attribute(const struct ckpt_facts *f, const char *name) {
    const struct ckpt_value *attributes = f->record ? f->record->attributes : NULL;
    return attributes ? ckpt_value_get(attributes, name) : NULL;
}

bool ckpt_facts_allow(const struct ckpt_facts *f, const char *kind) {
    if (strcmp(kind, "other") == 0)
        return true;
    if (strcmp(kind, "stack") == 0)
        return !f->owns && f->path.n > 0;
    if (f->made_of && strncmp(kind, f->made_of, strlen(f->made_of)) == 0)
        return true;
    if (ckpt_is_layer(kind))
        return f->children & CKPT_CHILD_NORM1;
    if (strcmp(kind, "mha") == 0)
        return f->leaf[CKPT_LEAF_IN_PROJ_WEIGHT] || f->leaf[CKPT_LEAF_Q_PROJ_WEIGHT];
    if (strcmp(kind, "lstm") == 0 || strcmp(kind, "gru") == 0 || strcmp(kind, "rnn") == 0)
        return f->leaf[CKPT_LEAF_WEIGHT_HH];
    return f->owns;
}
