/*
 * What burn's modules are, from their names and shapes: the way back to PyTorch. burn's names say
 * more than PyTorch's (gamma is a norm's), and its larger modules are known by their children:
 *
 *     layers.0                  encoder_layer:post   has mha and pwff
 *     layers.0.mha              mha                  has query, key, value, output
 *     layers.0.mha.query        linear, but "mha" to the rules, which join it with key and value
 *     rnn                       lstm                 a list of nothing but such layers, 0, 1, ...
 *     rnn.1                     -                    a layer of it
 *     rnn.1.forward             -                    has a reverse beside it
 *     rnn.1.forward.input_gate  -                    has input_transform and hidden_transform
 *
 * What the names do not say (norm_first; a list of layers, or one module of several) is what is
 * usual, and a warning.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/build.h"
#include "adapters/evidence.h"
#include "adapters/recorded_kinds.h"

/* --- modules and their children --------------------------------------------------------------- */

struct survey {
    struct ckpt_modules m;
    struct ckpt_strmap by_path;
    struct note {
        size_t nchildren, nlayers; /* of these, recurrent ones with a number */
        const char *leaf_kind;     /* what rules call its parts */
        bool bidirectional, several;
    } * note;
};

static void survey_fini(struct survey *s) {
    ckpt_strmap_fini(&s->by_path);
    free(s->note);
    ckpt_modules_fini(&s->m);
}
#define ckpt_auto_survey survey_fini

static struct ckpt_facts *facts(const struct survey *s, size_t i) {
    return &s->m.facts[i];
}

static size_t child(const struct survey *s, size_t i, const char *name) {
    return ckpt_module_child(&s->m, &s->by_path, i, name);
}

static struct ckpt_text last_name(const struct survey *s, size_t i) {
    return ckpt_module_last_name(facts(s, i)->path);
}

static bool is_number(struct ckpt_text name) {
    size_t digits = 0;
    while (digits < name.n && isdigit((unsigned char)name.s[digits]))
        digits++;
    return digits > 0 && digits == name.n;
}

static int begin(struct ckpt_build *b, struct survey *s) {
    int rc = ckpt_gather_modules(b, &s->m);
    if (rc == 0)
        rc = ckpt_index_modules(b, &s->m, &s->by_path);
    if (rc)
        return rc;
    s->note = calloc(s->m.n + 1, sizeof *s->note);
    if (!s->note)
        return ckpt_fail_memory(b->err, "looking at the modules");
    for (size_t i = 0; i < s->m.n; i++) {
        if (facts(s, i)->within != CKPT_MODULE_NONE)
            s->note[facts(s, i)->within].nchildren++;
    }
    return 0;
}

/* --- what children make of a module ----------------------------------------------------------- */

static const struct ckpt_tensor *weight(const struct survey *s, size_t i) {
    return i == CKPT_MODULE_NONE ? NULL : facts(s, i)->leaf[CKPT_LEAF_WEIGHT];
}

static const struct ckpt_tensor *bias(const struct survey *s, size_t i) {
    return facts(s, i)->leaf[CKPT_LEAF_BIAS];
}

/* A Linear of burn: weight [in, out], and bias [out] or none. */
static bool is_linear(const struct survey *s, size_t i) {
    const struct ckpt_tensor *w = weight(s, i);
    if (!w || w->ndim != 2 || ckpt_dtype_info(w->dtype)->cls <= CKPT_CLASS_INT)
        return false;
    return !bias(s, i) || (bias(s, i)->ndim == 1 && bias(s, i)->shape[0] == w->shape[1]);
}

/* Linear layers whose rows PyTorch keeps in one tensor: all of `out`, of one dtype, all with a bias
 * or none. */
static bool can_be_joined(const struct survey *s, size_t i, size_t first) {
    if (i == CKPT_MODULE_NONE || !is_linear(s, i))
        return false;
    const struct ckpt_tensor *w = weight(s, i), *of = weight(s, first);
    const struct ckpt_tensor *x = bias(s, i), *y = bias(s, first);
    return w->dtype == of->dtype && w->shape[1] == of->shape[1] && !x == !y &&
           (!x || x->dtype == y->dtype);
}

static bool same_input(const struct survey *s, size_t i, size_t first) {
    return weight(s, i)->shape[0] == weight(s, first)->shape[0];
}

/* MultiheadAttention projects queries from its own width, keys and values from kdim and vdim. */
static bool is_attention(struct survey *s, size_t i) {
    const size_t q = child(s, i, "query"), k = child(s, i, "key"), v = child(s, i, "value");
    const size_t out = child(s, i, "output");
    if (q == CKPT_MODULE_NONE || !can_be_joined(s, q, q) || !can_be_joined(s, k, q) ||
        !can_be_joined(s, v, q) || out == CKPT_MODULE_NONE || !is_linear(s, out) ||
        weight(s, q)->shape[0] != weight(s, q)->shape[1])
        return false;
    s->note[i].leaf_kind = same_input(s, k, q) && same_input(s, v, q) ? "mha" : "mha:kdim";
    return true;
}

static const struct gated_row {
    const char *kind, *gate[4];
} gated[] = {
    {"lstm", {"input_gate", "forget_gate", "cell_gate", "output_gate"}},
    {"gru", {"reset_gate", "update_gate", "new_gate"}},
    {"rnn", {"gate"}},
};

/* All gates take the same input and the same hidden state. */
static bool has_gates(const struct survey *s, size_t i, const struct gated_row *row) {
    size_t input = CKPT_MODULE_NONE, hidden = CKPT_MODULE_NONE;
    for (size_t g = 0; g < sizeof row->gate / sizeof row->gate[0] && row->gate[g]; g++) {
        const size_t gate = child(s, i, row->gate[g]);
        if (gate == CKPT_MODULE_NONE)
            return false;
        const size_t x = child(s, gate, "input_transform"), h = child(s, gate, "hidden_transform");
        if (g == 0) {
            input = x;
            hidden = h;
        }
        if (x == CKPT_MODULE_NONE || h == CKPT_MODULE_NONE || !can_be_joined(s, x, input) ||
            !can_be_joined(s, h, input) || !same_input(s, x, input) || !same_input(s, h, hidden) ||
            weight(s, h)->shape[0] != weight(s, h)->shape[1])
            return false;
    }
    return true;
}

static const struct gated_row *gates_of(const struct survey *s, size_t i) {
    for (size_t r = 0; i != CKPT_MODULE_NONE && r < sizeof gated / sizeof gated[0]; r++)
        if (has_gates(s, i, &gated[r]))
            return &gated[r];
    return NULL;
}

static size_t first_input(const struct survey *s, size_t i, const struct gated_row *row) {
    return child(s, child(s, i, row->gate[0]), "input_transform");
}

/* A layer of one or both directions. */
static const struct gated_row *recurrent_of(struct survey *s, size_t i) {
    const struct gated_row *const row = gates_of(s, i);
    if (row)
        return row;
    const size_t forward = child(s, i, "forward"), reverse = child(s, i, "reverse");
    const struct gated_row *const ahead = gates_of(s, forward);
    if (!ahead || gates_of(s, reverse) != ahead)
        return NULL;
    const size_t x = first_input(s, forward, ahead), y = first_input(s, reverse, ahead);
    s->note[i].bidirectional = can_be_joined(s, y, x) && same_input(s, y, x);
    return s->note[i].bidirectional ? ahead : NULL;
}

static size_t input_of_layer(const struct survey *s, size_t i, const struct gated_row *row) {
    return first_input(s, s->note[i].bidirectional ? child(s, i, "forward") : i, row);
}

static size_t numbered(const struct survey *s, size_t list, size_t number) {
    char name[24];
    snprintf(name, sizeof name, "%zu", number);
    return child(s, list, name);
}

/* Each layer takes what the one before it gives: then PyTorch may have them in one module. */
static bool is_stack(const struct survey *s, size_t list) {
    const size_t n = s->note[list].nlayers, first = numbered(s, list, 0);
    if (n < 2 || n != s->note[list].nchildren || facts(s, list)->owns || first == CKPT_MODULE_NONE)
        return false;
    const char *const kind = facts(s, first)->made_of;
    const struct gated_row *row = gated;
    while (kind && row < gated + sizeof gated / sizeof gated[0] && strcmp(row->kind, kind) != 0)
        row++;
    const size_t x = kind ? input_of_layer(s, first, row) : 0;
    for (size_t k = 1; kind && k < n; k++) {
        const size_t layer = numbered(s, list, k);
        if (layer == CKPT_MODULE_NONE || facts(s, layer)->made_of != kind ||
            s->note[layer].bidirectional != s->note[first].bidirectional)
            return false;
        const size_t input = input_of_layer(s, layer, row);
        const int64_t directions = s->note[first].bidirectional ? 2 : 1;
        if (!can_be_joined(s, input, x) ||
            weight(s, input)->shape[0] != directions * weight(s, x)->shape[1])
            return false;
    }
    return kind != NULL;
}

/* --- what it is made of ----------------------------------------------------------------------- */

static bool has(const struct survey *s, size_t i, const char *name) {
    return child(s, i, name) != CKPT_MODULE_NONE;
}

static bool is_packed_attention(const struct survey *s, size_t i, const char *name) {
    const size_t at = child(s, i, name);
    return at != CKPT_MODULE_NONE && s->note[at].leaf_kind &&
           strcmp(s->note[at].leaf_kind, "mha") == 0;
}

/* After the attentions are known. */
static const char *layer_of(const struct survey *s, size_t i) {
    const size_t pwff = child(s, i, "pwff");
    if (pwff == CKPT_MODULE_NONE || !has(s, pwff, "linear_inner") || !has(s, pwff, "linear_outer"))
        return NULL;
    if (is_packed_attention(s, i, "mha"))
        return "encoder_layer";
    return is_packed_attention(s, i, "self_attn") && is_packed_attention(s, i, "cross_attn")
               ? "decoder_layer"
               : NULL;
}

static void look_at_children(struct survey *s) {
    for (size_t i = 0; i < s->m.n; i++) {
        if (s->note[i].nchildren == 0)
            continue;
        const struct gated_row *row = recurrent_of(s, i);
        facts(s, i)->made_of = row ? row->kind : is_attention(s, i) ? "mha" : NULL;
        if (row && is_number(last_name(s, i)) && facts(s, i)->within != CKPT_MODULE_NONE)
            s->note[facts(s, i)->within].nlayers++;
    }
    for (size_t i = 0; i < s->m.n; i++) {
        if (facts(s, i)->made_of || s->note[i].nchildren == 0)
            continue;
        facts(s, i)->made_of = layer_of(s, i);
        if (is_stack(s, i)) {
            facts(s, i)->made_of = facts(s, numbered(s, i, 0))->made_of;
            s->note[i].several = true;
        }
    }
}

/* --- decisions -------------------------------------------------------------------------------- */

static void decide(struct ckpt_decision *d, const char *kind, const char *by) {
    if (d->kind)
        return; /* it was said */
    d->kind = d->rule_kind = kind;
    d->decided_by = by;
}

/* By the user, or by whoever saved the file. */
static bool is_said(const struct ckpt_decision *d) {
    return d->decided_by &&
           (strcmp(d->decided_by, "option") == 0 || strcmp(d->decided_by, "record") == 0);
}

static void decide_composite(struct survey *s, size_t i) {
    struct ckpt_decision *const d = &s->m.decision[i];
    const char *const kind = facts(s, i)->made_of;
    if (strcmp(kind, "encoder_layer") == 0)
        decide(d, "encoder_layer:post", "default");
    else if (strcmp(kind, "decoder_layer") == 0)
        decide(d, "decoder_layer:post", "default");
    else
        decide(d, kind, s->note[i].several ? "default" : "structure");
}

static bool is_recurrent(const char *kind) {
    for (size_t r = 0; kind && r < sizeof gated / sizeof gated[0]; r++)
        if (strcmp(kind, gated[r].kind) == 0)
            return true;
    return false;
}

/* One of the layers was said to be a module of its own: then so are all. */
static bool layers_are_modules(const struct survey *s, size_t list) {
    for (size_t k = 0; k < s->note[list].nlayers; k++)
        if (is_said(&s->m.decision[numbered(s, list, k)]))
            return true;
    return false;
}

static void forget(struct ckpt_decision *d) {
    d->kind = d->rule_kind = d->decided_by = NULL;
}

/* Outer modules first: what is a part of one is nothing by itself. */
static void forget_parts(struct survey *s) {
    for (size_t i = 0; i < s->m.n; i++)
        if (s->note[i].several && !is_said(&s->m.decision[i]) && layers_are_modules(s, i))
            forget(&s->m.decision[i]);
    for (size_t i = 0; i < s->m.n; i++) {
        if (!s->note[i].several || !is_recurrent(s->m.decision[i].kind))
            continue;
        for (size_t k = 0; k < s->note[i].nlayers; k++)
            forget(&s->m.decision[numbered(s, i, k)]);
    }
    for (size_t i = 0; i < s->m.n; i++) {
        if (!s->note[i].bidirectional)
            continue;
        const bool dissolved = s->m.decision[i].kind && strcmp(s->m.decision[i].kind, "other") == 0;
        if (dissolved)
            continue;
        forget(&s->m.decision[child(s, i, "forward")]);
        forget(&s->m.decision[child(s, i, "reverse")]);
    }
}

static bool is_kind(const struct ckpt_decision *d, const char *kind) {
    return d && d->kind && strcmp(d->kind, kind) == 0;
}

/* The recurrent module that a gate's Linear belongs to: gate, direction, number, module. */
static const struct ckpt_decision *recurrent_above(const struct ckpt_decision *gate) {
    const struct ckpt_decision *d = gate;
    for (int level = 0; d && level < 4; level++, d = d->within)
        if (is_recurrent(d->kind))
            return d;
    return NULL;
}

/* Linear layers inside what was decided above. In PyTorch those that are joined are no modules, but
 * tensors of the one above. */
static void decide_part(const struct survey *s, size_t i, struct ckpt_decision *d) {
    const struct ckpt_text name = last_name(s, i);
    const struct ckpt_decision *const above = d->within;
    if (!above || !is_linear(s, i))
        return;
    if (is_kind(above, "mha")) {
        if (ckpt_text_is(name, "output")) {
            decide(d, "linear", above->decided_by);
        } else if (ckpt_text_is(name, "query") || ckpt_text_is(name, "key") ||
                   ckpt_text_is(name, "value")) {
            decide(d, "mha", above->decided_by);
            d->rule_kind = s->note[facts(s, i)->within].leaf_kind;
        }
    } else if (ckpt_text_is(name, "input_transform") || ckpt_text_is(name, "hidden_transform")) {
        const struct ckpt_decision *const module = recurrent_above(above);
        if (module)
            decide(d, module->kind, module->decided_by);
    } else if (above->within && ckpt_is_layer(above->within->kind)) {
        decide(d, "linear", "structure"); /* of pwff */
    }
}

/* A module without children, by its tensors. */
static void decide_leaf(const struct survey *s, size_t i, struct ckpt_decision *d) {
    const struct ckpt_facts *const f = facts(s, i);
    const struct ckpt_tensor *const w = f->leaf[CKPT_LEAF_WEIGHT];
    if (f->leaf[CKPT_LEAF_GAMMA])
        decide(d, f->leaf[CKPT_LEAF_RUNNING_MEAN] ? "batch_norm" : "norm", "structure");
    else if (f->leaf[CKPT_LEAF_ALPHA] && !w)
        decide(d, "prelu", "structure");
    else if (w && w->ndim == 2 && (bias(s, i) || !is_linear(s, i)))
        decide(d, is_linear(s, i) ? "linear" : "other", "structure");
    else if (w && w->ndim == 2)
        ckpt_evidence_name(f, false, d);
    else
        ckpt_evidence_structure(f, d); /* convolutions, and what kept PyTorch's names */
}

static void decide_all(struct survey *s) {
    for (size_t i = 0; i < s->m.n; i++) {
        struct ckpt_decision *const d = &s->m.decision[i];
        const size_t within = facts(s, i)->within;
        d->facts = facts(s, i);
        d->within = within == CKPT_MODULE_NONE ? NULL : &s->m.decision[within];
        if (facts(s, i)->made_of)
            decide_composite(s, i);
    }
    forget_parts(s);
    for (size_t i = 0; i < s->m.n; i++) {
        struct ckpt_decision *const d = &s->m.decision[i];
        if (s->note[i].nchildren == 0 && facts(s, i)->owns && !d->kind) {
            decide_part(s, i, d);
            if (!d->kind)
                decide_leaf(s, i, d);
        }
    }
}

/* Lists of plain layers without gaps: PyTorch's may have had some. */
static void note_lists(struct survey *s) {
    for (size_t i = 0; i < s->m.n; i++) {
        const size_t n = s->note[i].nchildren;
        bool plain = n > 1 && !facts(s, i)->owns;
        for (size_t k = 0; plain && k < n; k++) {
            const size_t layer = numbered(s, i, k);
            plain = layer != CKPT_MODULE_NONE && s->note[layer].nchildren == 0;
        }
        facts(s, i)->list = plain;
    }
}

int ckpt_decide_burn_modules(struct ckpt_build *b) {
    CKPT_AUTO(survey) struct survey s = {0};
    int rc = begin(b, &s);
    if (rc)
        return rc;
    look_at_children(&s);
    rc = ckpt_decide_by_options(b, &s.m, false);
    if (rc == 0)
        rc = ckpt_decide_by_record(b, &s.m, &s.by_path);
    if (rc)
        return rc;
    decide_all(&s);
    note_lists(&s);
    ckpt_hand_over_decisions(b, &s.m);
    return ckpt_warn_modules(b, &s.m);
}
