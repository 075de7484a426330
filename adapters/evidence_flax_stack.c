/*
 * Stacks of layers: nn.scan keeps the layers of a stack in one array each, along its first axis.
 *
 *     layers.fc.kernel   [3, 8, 8]     layers.0.fc.kernel   [8, 8]     layers.1.fc.kernel  ...
 *     layers.norm.scale  [3, 8]        layers.0.norm.scale  [8]
 *
 * All arrays below a stack begin with the same length; and one of them proves it, since modules
 * have none of that rank: a norm's scale of two dimensions, a table of three.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/dialect.h"
#include "adapters/evidence_flax.h"

static const struct ckpt_tensor *leaf(const struct ckpt_modules *m, size_t i, enum ckpt_leaf l) {
    return m->facts[i].leaf[l];
}

/* The first dimension of all arrays below a module. */
struct lead {
    int64_t length; /* 0: none seen; -1: they differ */
    bool proved;    /* one has a dimension more than its module's arrays have */
};

static bool is_layered(const struct ckpt_modules *m, size_t i) {
    const struct ckpt_tensor *const k = leaf(m, i, CKPT_LEAF_KERNEL);
    const struct ckpt_tensor *const b = leaf(m, i, CKPT_LEAF_BIAS);
    const struct ckpt_tensor *const scale = leaf(m, i, CKPT_LEAF_SCALE);
    const struct ckpt_tensor *const table = leaf(m, i, CKPT_LEAF_EMBEDDING);
    if ((scale && scale->ndim == 2) || (table && table->ndim == 3))
        return true;
    /* [layers, in, out] with [layers, out], which is not the bias of a DenseGeneral */
    return k && b && k->ndim > 2 && b->ndim == 2 && b->shape[0] == k->shape[0] &&
           b->shape[1] == k->shape[k->ndim - 1] && b->shape[0] != k->shape[k->ndim - 2];
}

static void note_lead(const struct ckpt_modules *m, size_t i, const struct ckpt_tensor *t,
                      bool layered, struct lead *lead) {
    const int64_t length = t->ndim ? t->shape[0] : -1;
    for (; i != CKPT_MODULE_NONE; i = m->facts[i].within) {
        lead[i].length = lead[i].length == 0 || lead[i].length == length ? length : -1;
        lead[i].proved |= layered;
    }
}

/* The outermost module all of whose arrays begin with the layers' dimension; it has modules inside,
 * and if one has a name that says so, it is that one. */
static size_t find_stack(const struct ckpt_modules *m, size_t i, const struct lead *lead) {
    size_t found = CKPT_MODULE_NONE;
    bool named = false;
    for (; i != CKPT_MODULE_NONE; i = m->facts[i].within) {
        if (m->facts[i].path.n == 0 || m->facts[i].owns || !lead[i].proved || lead[i].length < 1)
            continue;
        const bool told = ckpt_module_is_called(m->facts[i].path, "layers") ||
                          ckpt_module_is_called(m->facts[i].path, "blocks") ||
                          ckpt_module_is_called(m->facts[i].path, "scan");
        if (named && !told)
            continue;
        named |= told;
        found = i;
    }
    return found;
}

static bool is_stack(const struct ckpt_modules *m, size_t i) {
    return m->decision[i].kind != NULL;
}

static void decide(struct ckpt_decision *d) {
    d->kind = d->rule_kind = "stack";
    d->decided_by = "structure";
}

/* By the option or by shapes. */
static int decide_stacks(struct ckpt_build *b, struct ckpt_modules *m, struct lead *lead) {
    for (size_t i = 0; i < b->nitems; i++)
        if (b->item[i].in_model)
            note_lead(m, m->of_item[i], b->item[i].tensor, is_layered(m, m->of_item[i]), lead);
    for (size_t i = 0; i < m->n; i++) {
        const size_t stack = m->facts[i].owns ? find_stack(m, i, lead) : CKPT_MODULE_NONE;
        if (stack != CKPT_MODULE_NONE && !is_stack(m, stack))
            decide(&m->decision[stack]);
        if (is_stack(m, i) && lead[i].length < 1)
            return ckpt_fail(b->err, -EINVAL,
                             "'%.*s' is no stack: the first dimensions of its arrays differ",
                             CKPT_TEXT_ARGS(m->facts[i].path));
    }
    return 0;
}

/* A stack in a stack is part of its layers. How many are left. */
static size_t keep_outermost(struct ckpt_modules *m) {
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        if (!is_stack(m, i))
            continue;
        size_t above = m->facts[i].within;
        while (above != CKPT_MODULE_NONE && !is_stack(m, above))
            above = m->facts[above].within;
        if (above == CKPT_MODULE_NONE)
            n++;
        else
            m->decision[i].rule_kind = NULL;
    }
    return n;
}

/* Takes the stacks apart: each layer's arrays are then items of their own. */
int ckpt_flax_unstack(struct ckpt_build *b) {
    CKPT_AUTO(modules) struct ckpt_modules m = {0};
    int rc = ckpt_gather_modules(b, &m);
    if (rc == 0)
        rc = ckpt_decide_by_options(b, &m, true);
    if (rc)
        return rc;
    CKPT_AUTO(free) struct lead *lead = calloc(m.n + 1, sizeof *lead);
    if (!lead)
        return ckpt_fail_memory(b->err, "looking for stacks");
    ckpt_link_decisions(&m);
    rc = decide_stacks(b, &m, lead);
    if (rc || keep_outermost(&m) == 0)
        return rc;
    ckpt_hand_over_decisions(b, &m);
    return ckpt_dialect_apply_rules(b, "flax-stack");
}
