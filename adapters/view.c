/*
 * Views: making one from a tensor, and the operations that change its label or the order of its
 * pairs. Slices and flips are in view_slice.c, the arithmetic under both in view_cut.c. Each
 * operation first finds out whether it can be done and only then changes the view.
 */
#include "adapters/view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "adapters/view_cut.h"
#include "base/size.h"

int64_t ckpt_view_count(const struct ckpt_view *v) {
    for (uint32_t d = 0; d < v->ndim; d++) {
        if (v->shape[d] == 0)
            return 0; /* first: the other dimensions of an empty tensor may multiply to anything */
    }
    int64_t n = 1;
    for (uint32_t d = 0; d < v->ndim; d++)
        n *= v->shape[d];
    return n;
}

/* Sub-byte types (which ckpt_tensor_check lets through only in C order): whole units in all. */
static int check_packed(const struct ckpt_tensor *t, const struct ckpt_view *v,
                        struct ckpt_err *err) {
    if (ckpt_view_count(v) % v->unit_elements == 0)
        return 0;
    return ckpt_fail(err, -EINVAL,
                     "%s elements are packed by %u: their number must be a multiple of it",
                     ckpt_dtype_info(t->dtype)->name, v->unit_elements);
}

static void pairs_of_tensor(struct ckpt_view *v, const struct ckpt_tensor *t) {
    struct ckpt_dim pair[CKPT_NDIM_MAX] = {{ckpt_view_count(v) / v->unit_elements, v->esize}};
    uint32_t n = 1;
    if (t->stride && v->unit_elements == 1) {
        n = 0;
        for (uint32_t d = 0; d < t->ndim; d++) {
            if (t->shape[d] != 1) /* else its stride is garbage in real files */
                pair[n++] = (struct ckpt_dim){t->shape[d], t->stride[d] * v->esize};
        }
    }
    ckpt_view_set_pairs(v, pair, n);
}

int ckpt_view_init(struct ckpt_view *v, const struct ckpt_tensor *t, struct ckpt_err *err) {
    int rc = ckpt_tensor_check(t, err);
    if (rc < 0)
        return rc;
    const struct ckpt_dtype_info *const info = ckpt_dtype_info(t->dtype);
    memset(v, 0, sizeof *v);
    v->esize = info->unit_bytes;
    v->unit_elements = info->unit_elements;
    v->ndim = t->ndim;
    if (t->ndim > 0)
        memcpy(v->shape, t->shape, t->ndim * sizeof *v->shape);
    if (ckpt_view_count(v) == 0)
        return 0;
    rc = v->unit_elements > 1 ? check_packed(t, v, err) : 0;
    if (rc < 0)
        return rc;
    v->offset = (int64_t)t->offset;
    pairs_of_tensor(v, t);
    return 0;
}

/* --- reshape, squeeze, unsqueeze: the label alone --- */

static int fail_reshape(const struct ckpt_view *v, const int64_t *shape, uint32_t ndim,
                        const char *why, struct ckpt_err *err) {
    char from[CKPT_SHAPE_TEXT], to[CKPT_SHAPE_TEXT];
    return ckpt_fail(err, -EINVAL, "reshape from %s to %s: %s",
                     ckpt_shape_text(from, v->shape, v->ndim),
                     ckpt_shape_text(to, shape, ndim > CKPT_NDIM_MAX ? CKPT_NDIM_MAX : ndim), why);
}

/* The product of the dimensions that are given, and which one is to be inferred (ndim: none). NULL
 * or what is wrong. */
static const char *known_product(const int64_t *shape, uint32_t ndim, int64_t *product,
                                 uint32_t *inferred) {
    *product = 1;
    *inferred = ndim;
    bool zero = false;
    for (uint32_t d = 0; d < ndim; d++) {
        if (shape[d] == -1 && *inferred == ndim)
            *inferred = d;
        else if (shape[d] < 0)
            return "only one dimension may be -1";
        else if (shape[d] == 0)
            zero = true;
        else if (!ckpt_mul_i64(*product, shape[d], product))
            return "the shape is too large";
    }
    if (zero)
        *product = 0;
    return NULL;
}

int ckpt_view_reshape(struct ckpt_view *v, const int64_t *shape, uint32_t ndim,
                      struct ckpt_err *err) {
    if (ndim > CKPT_NDIM_MAX)
        return fail_reshape(v, shape, ndim, "too many dimensions", err);
    const int64_t count = ckpt_view_count(v);
    int64_t product, to[CKPT_NDIM_MAX] = {0};
    uint32_t inferred;
    const char *const wrong = known_product(shape, ndim, &product, &inferred);
    if (wrong)
        return fail_reshape(v, shape, ndim, wrong, err);
    for (uint32_t d = 0; d < ndim; d++)
        to[d] = shape[d];
    if (inferred < ndim) {
        if (product == 0 || count % product != 0)
            return fail_reshape(v, shape, ndim, "the -1 cannot be inferred", err);
        to[inferred] = count / product;
    } else if (product != count) {
        return fail_reshape(v, shape, ndim, "the element counts differ", err);
    }
    if (v->unit_elements > 1 && count > 0 && (ndim == 0 || to[ndim - 1] % v->unit_elements != 0))
        return ckpt_view_refuse_packed(v, "reshape to another last dimension", err);
    v->reshape.done = true;
    v->reshape.from_ndim = v->ndim;
    v->reshape.to_ndim = ndim;
    memcpy(v->reshape.from, v->shape, sizeof v->shape);
    memcpy(v->reshape.to, to, sizeof to);
    memcpy(v->shape, to, sizeof to);
    v->ndim = ndim;
    return 0;
}

int ckpt_view_squeeze(struct ckpt_view *v, uint32_t dim, struct ckpt_err *err) {
    const int rc = ckpt_view_check_dim(v, "squeeze", dim, err);
    if (rc < 0)
        return rc;
    if (v->shape[dim] != 1) {
        char shape[CKPT_SHAPE_TEXT];
        return ckpt_fail(err, -EINVAL, "squeeze: dimension %u of shape %s is not 1", dim,
                         ckpt_shape_text(shape, v->shape, v->ndim));
    }
    v->ndim--;
    memmove(v->shape + dim, v->shape + dim + 1, (v->ndim - dim) * sizeof *v->shape);
    return 0;
}

int ckpt_view_unsqueeze(struct ckpt_view *v, uint32_t dim, struct ckpt_err *err) {
    if (dim > v->ndim || v->ndim == CKPT_NDIM_MAX)
        return ckpt_fail(err, -EINVAL, "unsqueeze: no dimension %u can be put into one of rank %u",
                         dim, v->ndim);
    if (v->unit_elements > 1 && dim == v->ndim && ckpt_view_count(v) > 0)
        return ckpt_view_refuse_packed(v, "unsqueeze at the end", err);
    memmove(v->shape + dim + 1, v->shape + dim, (v->ndim - dim) * sizeof *v->shape);
    v->shape[dim] = 1;
    v->ndim++;
    return 0;
}

/* --- expand --- */

static int insert_broadcast(struct ckpt_view *v, uint32_t dim, int64_t size, struct ckpt_err *err) {
    int64_t bytes;
    struct ckpt_cut cut;
    if (!ckpt_mul_i64(ckpt_view_units_between(v, 0, v->ndim), size, &bytes) ||
        !ckpt_mul_i64(bytes, (int64_t)v->esize * v->unit_elements, &bytes))
        return ckpt_fail(err, -EINVAL, "expand: %lld elements along dimension %u are too many",
                         (long long)size, dim);
    if (!ckpt_view_cut_around(v, dim, &cut))
        return ckpt_view_refuse(v, "expand", err);
    struct ckpt_dim pair[CKPT_WALK_MAX];
    const uint32_t outer = cut.first[1], all = cut.first[3];
    memcpy(pair, cut.pair, outer * sizeof *pair);
    pair[outer] = (struct ckpt_dim){size, 0};
    memcpy(pair + outer + 1, cut.pair + outer, (all - outer) * sizeof *pair);
    ckpt_view_set_pairs(v, pair, all + 1);
    return 0;
}

int ckpt_view_expand(struct ckpt_view *v, uint32_t dim, int64_t size, struct ckpt_err *err) {
    int rc = ckpt_view_check_dim(v, "expand", dim, err);
    if (rc < 0)
        return rc;
    if (size == v->shape[dim])
        return 0;
    if (v->shape[dim] != 1 || size < 0) {
        char shape[CKPT_SHAPE_TEXT];
        return ckpt_fail(err, -EINVAL, "expand: dimension %u of shape %s cannot become %lld", dim,
                         ckpt_shape_text(shape, v->shape, v->ndim), (long long)size);
    }
    if (size == 0)
        ckpt_view_set_empty(v);
    else if (ckpt_view_count(v) > 0)
        rc = insert_broadcast(v, dim, size, err);
    if (rc == 0)
        v->shape[dim] = size;
    return rc;
}

/* --- permute --- */

static int check_order(const struct ckpt_view *v, const uint32_t *order, uint32_t n,
                       struct ckpt_err *err) {
    uint64_t seen = 0;
    bool right = n == v->ndim;
    for (uint32_t i = 0; right && i < n; i++) {
        right = order[i] < n && !(seen >> order[i] & 1);
        seen |= right ? (uint64_t)1 << order[i] : 0;
    }
    if (right)
        return 0;
    char text[CKPT_SHAPE_TEXT], shape[CKPT_SHAPE_TEXT];
    int64_t wide[CKPT_NDIM_MAX];
    n = n > CKPT_NDIM_MAX ? CKPT_NDIM_MAX : n;
    for (uint32_t i = 0; i < n; i++)
        wide[i] = order[i];
    return ckpt_fail(err, -EINVAL, "permute %s is no order of the dimensions of shape %s",
                     ckpt_shape_text(text, wide, n), ckpt_shape_text(shape, v->shape, v->ndim));
}

/* Dimensions that stay neighbours are glued: only borders that the permutation tears apart need be
 * in the walk. Groups in the order wanted; `starts` marks the source dimensions that begin one. */
struct glue {
    uint32_t lead[CKPT_NDIM_MAX]; /* first source dimension of each group, in the order wanted */
    uint32_t n;
    uint32_t
        group_of[CKPT_NDIM_MAX]; /* by source dimension that leads: its group in source order */
    int64_t size[CKPT_NDIM_MAX]; /* units of each group, in source order */
    uint32_t nsource;
};

static void glue_dims(const struct ckpt_view *v, const uint32_t *order, struct glue *g) {
    uint32_t next[CKPT_NDIM_MAX]; /* the next dimension that is not 1 */
    bool leads[CKPT_NDIM_MAX] = {false};
    for (uint32_t d = v->ndim, after = UINT32_MAX; d-- > 0;) {
        next[d] = after;
        after = ckpt_view_units(v, d) == 1 ? after : d;
    }
    g->n = g->nsource = 0;
    for (uint32_t i = 0, expected = UINT32_MAX; i < v->ndim; i++) {
        if (ckpt_view_units(v, order[i]) == 1)
            continue;
        if (order[i] != expected) {
            g->lead[g->n++] = order[i];
            leads[order[i]] = true;
        }
        expected = next[order[i]];
    }
    for (uint32_t d = 0; d < v->ndim; d++) {
        if (leads[d]) {
            g->group_of[d] = g->nsource;
            g->size[g->nsource++] = ckpt_view_units(v, d);
        } else if (g->nsource > 0) {
            g->size[g->nsource - 1] *= ckpt_view_units(v, d);
        }
    }
}

static int permute_pairs(struct ckpt_view *v, const uint32_t *order, struct ckpt_err *err) {
    struct glue g;
    struct ckpt_cut cut;
    struct ckpt_dim pair[CKPT_WALK_MAX];
    uint32_t n = 0;
    glue_dims(v, order, &g);
    if (!ckpt_view_cut(v, g.size, g.nsource, &cut))
        return ckpt_view_refuse(v, "permute", err);
    for (uint32_t i = 0; i < g.n; i++) {
        const uint32_t group = g.group_of[g.lead[i]];
        for (uint32_t k = cut.first[group]; k < cut.first[group + 1]; k++)
            pair[n++] = cut.pair[k];
    }
    ckpt_view_set_pairs(v, pair, n);
    return 0;
}

int ckpt_view_permute(struct ckpt_view *v, const uint32_t *order, uint32_t n,
                      struct ckpt_err *err) {
    int rc = check_order(v, order, n, err);
    if (rc < 0)
        return rc;
    if (ckpt_view_count(v) > 0) {
        if (v->unit_elements > 1 && (order[n - 1] != n - 1 || ckpt_view_straddles(v)))
            return ckpt_view_refuse_packed(v, "permute of the last dimension", err);
        rc = permute_pairs(v, order, err);
    }
    if (rc < 0)
        return rc;
    int64_t shape[CKPT_NDIM_MAX];
    for (uint32_t i = 0; i < n; i++)
        shape[i] = v->shape[order[i]];
    memcpy(v->shape, shape, n * sizeof *shape);
    return 0;
}
