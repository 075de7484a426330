/*
 * Several tensors as one, or all in one shape. Dtypes are promoted: truth values to integers,
 * these to floats.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "verify/op.h"

struct items {
    uint32_t n;
    struct ckpt_array *at;
};

static void items_fini(struct items *t) {
    for (uint32_t i = 0; i < t->n; i++)
        ckpt_array_fini(&t->at[i]);
    free(t->at);
}
CKPT_DEFINE_AUTO(items, struct items, items_fini)

static int load_items(const struct ckpt_call *c, struct items *t, struct ckpt_err *err) {
    const struct ckpt_arg *const list = ckpt_call_arg(c, "tensors");
    int rc = 0;
    if (!list || list->kind != CKPT_ARG_LIST || list->list.n == 0)
        return ckpt_fail(err, -EINVAL, "no tensors");
    t->at = calloc(list->list.n, sizeof(*t->at));
    if (!t->at)
        return ckpt_fail_memory(err, "a list of tensors");
    while (rc == 0 && t->n < list->list.n) {
        rc = ckpt_call_item(c, "tensors", t->n, &t->at[t->n], err);
        t->n++;
    }
    return rc;
}

static int rank(enum ckpt_dtype dtype) {
    return dtype == CKPT_DT_BOOL ? 0 : dtype == CKPT_DT_I64 ? 1 : dtype == CKPT_DT_F32 ? 2 : 3;
}

static enum ckpt_dtype common_dtype(const struct items *t) {
    enum ckpt_dtype most = t->at[0].dtype;
    for (uint32_t i = 1; i < t->n; i++)
        most = rank(t->at[i].dtype) > rank(most) ? t->at[i].dtype : most;
    return most;
}

/* PyTorch lets vectors without elements join anything. */
static bool is_nothing(const struct ckpt_array *a) {
    return a->ndim == 1 && a->shape[0] == 0;
}

/* The shape of all, joined along dim; *first is an item that has that shape in the others. */
static int joined_shape(const struct items *t, uint32_t first, uint32_t dim, int64_t *shape,
                        struct ckpt_err *err) {
    const struct ckpt_array *const like = &t->at[first];
    char text[2][64];
    memcpy(shape, like->shape, sizeof(like->shape));
    shape[dim] = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct ckpt_array *const a = &t->at[i];
        bool fits = a->ndim == like->ndim;
        if (is_nothing(a))
            continue;
        for (uint32_t d = 0; fits && d < a->ndim; d++)
            fits = d == dim || a->shape[d] == like->shape[d];
        if (!fits || !ckpt_add_i64(shape[dim], a->shape[dim], &shape[dim]))
            return ckpt_fail(err, -EINVAL, "shapes %s and %s do not join along dimension %u",
                             ckpt_array_shape_text(like, text[0], sizeof(text[0])),
                             ckpt_array_shape_text(a, text[1], sizeof(text[1])), dim);
    }
    return 0;
}

static int join(struct ckpt_call *c, const struct items *t, uint32_t first, uint32_t dim,
                struct ckpt_err *err) {
    int64_t shape[CKPT_ARRAY_NDIM_MAX], at = 0;
    int rc = joined_shape(t, first, dim, shape, err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, common_dtype(t), shape, t->at[first].ndim, err);
    for (uint32_t i = 0; rc == 0 && i < t->n; i++) {
        if (is_nothing(&t->at[i]))
            continue;
        CKPT_AUTO(array)
        struct ckpt_array part = ckpt_array_slice(c->out, dim, at, t->at[i].shape[dim]);
        at += t->at[i].shape[dim];
        rc = ckpt_array_assign(&part, &t->at[i], err);
    }
    return rc;
}

static int cat(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(items) struct items t = {0};
    uint32_t first = 0, dim = 0;
    int rc = load_items(c, &t, err);
    while (rc == 0 && first + 1 < t.n && is_nothing(&t.at[first]))
        first++;
    if (rc == 0)
        rc = ckpt_call_real_dim(c, "dim", t.at[first].ndim, &dim, err);
    return rc < 0 ? rc : join(c, &t, first, dim, err);
}

static int add_dim(struct ckpt_array *a, uint32_t dim, struct ckpt_err *err) {
    const size_t after = (a->ndim - dim) * sizeof(*a->shape);
    if (a->ndim == CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "tensors of %u dimensions", a->ndim);
    memmove(a->shape + dim + 1, a->shape + dim, after);
    memmove(a->stride + dim + 1, a->stride + dim, after);
    a->shape[dim] = a->stride[dim] = 1;
    a->ndim++;
    return 0;
}

static int stack(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(items) struct items t = {0};
    uint32_t dim = 0;
    int rc = load_items(c, &t, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dim", 0, t.at[0].ndim + 1, &dim, err);
    const uint32_t ndim = rc == 0 ? t.at[0].ndim : 0;
    for (uint32_t i = 0; rc == 0 && i < t.n; i++)
        rc = t.at[i].ndim == ndim
                 ? add_dim(&t.at[i], dim, err)
                 : ckpt_fail(err, -EINVAL, "tensor %u has %u dimensions, the first has %u", i,
                             t.at[i].ndim, ndim);
    return rc < 0 ? rc : join(c, &t, 0, dim, err);
}

/* hstack, vstack: along the second dimension (of vectors: the only one), along the first. */
static int stack_side(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(items) struct items t = {0};
    const uint32_t least = c->op->name[0] == 'v' ? 2 : 1;
    int rc = load_items(c, &t, err);
    for (uint32_t i = 0; rc == 0 && i < t.n; i++)
        while (rc == 0 && t.at[i].ndim < least)
            rc = add_dim(&t.at[i], 0, err);
    if (rc < 0)
        return rc;
    return join(c, &t, 0, least == 1 && t.at[0].ndim > 1 ? 1 : 0, err);
}

/* ---- in one shape: views ---- */

static int expand_all(struct ckpt_call *c, const struct items *t, const int64_t *shape,
                      uint32_t ndim, struct ckpt_err *err) {
    int rc = 0;
    if (t->n != c->nout)
        return ckpt_fail(err, -EINVAL, "gives %u results, not the %u that are wanted", t->n,
                         c->nout);
    for (uint32_t i = 0; rc == 0 && i < t->n; i++) {
        CKPT_AUTO(array) struct ckpt_array seen = {0};
        rc = ckpt_array_expand(&t->at[i], shape, ndim, &seen, err);
        if (rc == 0)
            rc = ckpt_call_view(c, i, ckpt_array_ref(&seen), err);
    }
    return rc;
}

static int broadcast_tensors(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(items) struct items t = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim = 0;
    int rc = load_items(c, &t, err);
    CKPT_AUTO(free) const struct ckpt_array **all = calloc(t.n, sizeof(*all));
    if (rc == 0 && !all)
        return ckpt_fail_memory(err, "a list of tensors");
    for (uint32_t i = 0; rc == 0 && i < t.n; i++)
        all[i] = &t.at[i];
    if (rc == 0)
        rc = ckpt_array_broadcast(all, t.n, shape, &ndim, err);
    return rc < 0 ? rc : expand_all(c, &t, shape, ndim, err);
}

/* Vector i varies along dimension i of all results; with "xy" the first two are exchanged. */
static int meshgrid(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(items) struct items t = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    const struct ckpt_arg *const indexing = ckpt_call_arg(c, "indexing");
    int rc = load_items(c, &t, err);
    if (rc == 0 && t.n > CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "of %u dimensions", t.n);
    const bool xy = indexing && indexing->kind == CKPT_ARG_STRING && t.n > 1 &&
                    strcmp(indexing->string, "xy") == 0;
    for (uint32_t i = 0; rc == 0 && i < t.n; i++) {
        const uint32_t dim = xy && i < 2 ? 1 - i : i;
        struct ckpt_array *const a = &t.at[i];
        if (a->ndim > 1)
            return ckpt_fail(err, -EINVAL, "tensor %u has %u dimensions, expected 1", i, a->ndim);
        shape[dim] = a->ndim ? a->shape[0] : 1;
        const int64_t step = a->ndim ? a->stride[0] : 1;
        a->ndim = t.n;
        for (uint32_t d = 0; d < t.n; d++) {
            a->shape[d] = d == dim ? shape[dim] : 1;
            a->stride[d] = d == dim ? step : 0;
        }
    }
    return rc < 0 ? rc : expand_all(c, &t, shape, t.n, err);
}

static const struct ckpt_op ops[] = {
    {"cat", "cat(Tensor[] tensors, int dim=0) -> Tensor", cat},
    {"concat", "concat(Tensor[] tensors, int dim=0) -> Tensor", cat},
    {"concatenate", "concatenate(Tensor[] tensors, int dim=0) -> Tensor", cat},
    {"stack", "stack(Tensor[] tensors, int dim=0) -> Tensor", stack},
    {"hstack", "hstack(Tensor[] tensors) -> Tensor", stack_side},
    {"vstack", "vstack(Tensor[] tensors) -> Tensor", stack_side},
    {"broadcast_tensors", "broadcast_tensors(Tensor[] tensors) -> Tensor[]", broadcast_tensors},
    {"meshgrid", "meshgrid(Tensor[] tensors) -> Tensor[]", meshgrid},
    {"meshgrid", "meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]", meshgrid},
};

const struct ckpt_op_family ckpt_family_join = CKPT_OP_FAMILY(ops);
