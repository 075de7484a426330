/*
 * The same elements in another shape or order: views, which share the memory. What PyTorch calls a
 * view copies nevertheless where the dimensions lie in memory otherwise than PyTorch's do, as those
 * of attention's result: the numbers are the same.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "verify/op.h"

/* The view of self whose dimensions are self's in this order. */
static int reorder(struct ckpt_call *c, const struct ckpt_array *a, const uint32_t *order,
                   struct ckpt_err *err) {
    return ckpt_call_view(c, 0, ckpt_array_permute(a, order), err);
}

static int swap(struct ckpt_call *c, const struct ckpt_array *a, uint32_t first, uint32_t second,
                struct ckpt_err *err) {
    uint32_t order[CKPT_ARRAY_NDIM_MAX];
    for (uint32_t d = 0; d < CKPT_ARRAY_NDIM_MAX; d++)
        order[d] = d == first ? second : d == second ? first : d;
    return reorder(c, a, order, err);
}

static int swap_named(struct ckpt_call *c, const char *first, const char *second,
                      struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t d[2];
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, first, 0, a.ndim, &d[0], err);
    if (rc == 0)
        rc = ckpt_call_dim(c, second, 0, a.ndim, &d[1], err);
    return rc < 0 ? rc : swap(c, &a, d[0], d[1], err);
}

static int transpose(struct ckpt_call *c, struct ckpt_err *err) {
    return swap_named(c, "dim0", "dim1", err);
}

static int swapaxes(struct ckpt_call *c, struct ckpt_err *err) {
    return swap_named(c, "axis0", "axis1", err);
}

/* A matrix turned; a vector or a number as it is. */
static int t(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    const int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc < 0)
        return rc;
    if (a.ndim > 2)
        return ckpt_fail(err, -EINVAL, "a tensor of %u dimensions, expected at most 2", a.ndim);
    return swap(c, &a, 0, a.ndim == 2 ? 1 : 0, err);
}

static int last_two(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    const int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc < 0)
        return rc;
    if (a.ndim < 2)
        return ckpt_fail(err, -EINVAL, "a tensor of %u dimensions, expected at least 2", a.ndim);
    return swap(c, &a, a.ndim - 1, a.ndim - 2, err);
}

static int reverse(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t order[CKPT_ARRAY_NDIM_MAX];
    const int rc = ckpt_call_tensor(c, "self", &a, err);
    for (uint32_t d = 0; d < a.ndim; d++)
        order[d] = a.ndim - 1 - d;
    return rc < 0 ? rc : reorder(c, &a, order, err);
}

static int permute(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t order[CKPT_ARRAY_NDIM_MAX], n = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_dims(c, "dims", a.ndim, order, &n, err);
    if (rc == 0 && n != a.ndim)
        return ckpt_fail(err, -EINVAL, "%u dimensions named of %u", n, a.ndim);
    return rc < 0 ? rc : reorder(c, &a, order, err);
}

/* Those named go where they are sent; the others fill the gaps in their order. */
static int movedim(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t from[CKPT_ARRAY_NDIM_MAX], to[CKPT_ARRAY_NDIM_MAX], order[CKPT_ARRAY_NDIM_MAX];
    uint32_t n = 0, ends = 0, moved = 0, placed = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_dims(c, "source", a.ndim, from, &n, err);
    if (rc == 0)
        rc = ckpt_call_dims(c, "destination", a.ndim, to, &ends, err);
    if (rc == 0 && n != ends)
        return ckpt_fail(err, -EINVAL, "%u dimensions to move, and %u places", n, ends);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        order[to[i]] = from[i];
        moved |= 1u << from[i];
        placed |= 1u << to[i];
    }
    for (uint32_t d = 0, next = 0; rc == 0 && d < a.ndim; d++) {
        if (placed & 1u << d)
            continue;
        while (moved & 1u << next)
            next++;
        order[d] = next++;
    }
    return rc < 0 ? rc : reorder(c, &a, order, err);
}

/* ---- another shape ---- */

static int to_shape(struct ckpt_call *c, const struct ckpt_array *a, const int64_t *shape,
                    uint32_t ndim, struct ckpt_err *err) {
    return ckpt_array_reshape(a, shape, ndim, &c->exec->memory, c->out, err);
}

static int shaped(struct ckpt_call *c, const char *name, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_list(c, name, shape, &ndim, err);
    return rc < 0 ? rc : to_shape(c, &a, shape, ndim, err);
}

static int view(struct ckpt_call *c, struct ckpt_err *err) {
    return shaped(c, "size", err);
}

static int reshape(struct ckpt_call *c, struct ckpt_err *err) {
    return shaped(c, "shape", err);
}

static int reshape_as(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    struct ckpt_array form;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_form(c, "other", &form, err);
    return rc < 0 ? rc : to_shape(c, &a, form.shape, form.ndim, err);
}

int ckpt_op_flatten(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX] = {1};
    uint32_t first = 0, last = 0, ndim = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "start_dim", 0, a.ndim, &first, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "end_dim", -1, a.ndim, &last, err);
    if (rc == 0 && first > last)
        return ckpt_fail(err, -EINVAL, "dimensions %u to %u, which end before they start", first,
                         last);
    for (uint32_t d = 0; rc == 0 && d < a.ndim; d++) {
        if (d > first && d <= last)
            shape[ndim - 1] *= a.shape[d];
        else
            shape[ndim++] = a.shape[d];
    }
    return rc < 0 ? rc : to_shape(c, &a, shape, a.ndim ? ndim : 1, err);
}

static int ravel(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    const int rc = ckpt_call_tensor(c, "self", &a, err);
    const int64_t count = ckpt_array_count(&a);
    return rc < 0 ? rc : to_shape(c, &a, &count, 1, err);
}

/* One -1 among the sizes is what the others leave of the dimension. */
static int infer_size(int64_t *size, uint32_t n, int64_t whole, struct ckpt_err *err) {
    int64_t known = 1, *open = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (size[i] == -1 && !open)
            open = &size[i];
        else if (size[i] < 0 || !ckpt_mul_i64(known, size[i], &known))
            return ckpt_fail(err, -EINVAL, "an impossible size %lld", (long long)size[i]);
    }
    if (open && known > 0 && whole % known == 0)
        *open = whole / known;
    else if (open || known != whole)
        return ckpt_fail(err, -EINVAL, "a dimension of %lld as sizes that hold %lld",
                         (long long)whole, (long long)known);
    return 0;
}

static int unflatten(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    int64_t size[CKPT_ARRAY_NDIM_MAX], shape[2 * CKPT_ARRAY_NDIM_MAX];
    uint32_t dim = 0, n = 0, ndim = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dim", 0, a.ndim, &dim, err);
    if (rc == 0)
        rc = ckpt_call_list(c, "sizes", size, &n, err);
    if (rc == 0 && (n == 0 || a.ndim == 0))
        return ckpt_fail(err, -EINVAL, "no %s", n ? "dimension to divide" : "sizes");
    if (rc == 0)
        rc = infer_size(size, n, a.shape[dim], err);
    for (uint32_t d = 0; rc == 0 && d < a.ndim; d++) {
        const bool divided = d == dim;
        memcpy(shape + ndim, divided ? size : &a.shape[d], (divided ? n : 1) * sizeof(*shape));
        ndim += divided ? n : 1;
    }
    return rc < 0 ? rc : to_shape(c, &a, shape, ndim, err);
}

/* ---- dimensions of size 1 ---- */

/* Drops those of the dimensions in `mask` whose size is 1. */
static int drop_dims(struct ckpt_call *c, const struct ckpt_array *a, uint32_t mask,
                     struct ckpt_err *err) {
    struct ckpt_array out = ckpt_array_ref(a);
    out.ndim = 0;
    for (uint32_t d = 0; d < a->ndim; d++) {
        if ((mask & 1u << d) && a->shape[d] == 1)
            continue;
        out.shape[out.ndim] = a->shape[d];
        out.stride[out.ndim++] = a->stride[d];
    }
    return ckpt_call_view(c, 0, out, err);
}

static int squeeze(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t dim[CKPT_ARRAY_NDIM_MAX], n = 0, mask = 0;
    const bool all = !ckpt_call_arg(c, "dim");
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_dims(c, "dim", a.ndim, dim, &n, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        mask |= 1u << dim[i];
    return rc < 0 ? rc : drop_dims(c, &a, all ? UINT32_MAX : mask, err);
}

/* Puts n dimensions of size 1 in front of dimension d. */
static int add_dims(struct ckpt_call *c, const struct ckpt_array *a, uint32_t d, uint32_t n,
                    struct ckpt_err *err) {
    if (a->ndim + n > CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "an array of %u dimensions; the checker handles %d",
                         a->ndim + n, CKPT_ARRAY_NDIM_MAX);
    struct ckpt_array out = ckpt_array_ref(a);
    const int64_t step = d < a->ndim ? a->shape[d] * a->stride[d] : 1;
    memmove(out.shape + d + n, a->shape + d, (a->ndim - d) * sizeof(*a->shape));
    memmove(out.stride + d + n, a->stride + d, (a->ndim - d) * sizeof(*a->stride));
    for (uint32_t i = d; i < d + n; i++) {
        out.shape[i] = 1;
        out.stride[i] = step;
    }
    out.ndim += n;
    return ckpt_call_view(c, 0, out, err);
}

static int unsqueeze(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t dim = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dim", 0, a.ndim + 1, &dim, err);
    return rc < 0 ? rc : add_dims(c, &a, dim, 1, err);
}

/* "atleast_2d": a vector becomes a row; "atleast_3d": a matrix gets a dimension behind it. */
static int atleast(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    const uint32_t wanted = (uint32_t)(c->op->name[8] - '0');
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc < 0 || a.ndim >= wanted)
        return rc < 0 ? rc : ckpt_call_view(c, 0, ckpt_array_ref(&a), err);
    if (wanted < 3 || a.ndim != 1)
        return add_dims(c, &a, wanted == 3 ? a.ndim : 0, wanted - a.ndim, err);
    return to_shape(c, &a, (int64_t[]){1, a.shape[0], 1}, 3, err);
}

/* ---- repeated ---- */

static int expand(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, out = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_list(c, "size", shape, &ndim, err);
    for (uint32_t d = 0; rc == 0 && d < ndim; d++) {
        const uint32_t more = ndim > a.ndim ? ndim - a.ndim : 0;
        shape[d] = shape[d] == -1 && d >= more && d - more < a.ndim ? a.shape[d - more] : shape[d];
        if (shape[d] < 0)
            return ckpt_fail(err, -EINVAL, "an impossible size %lld", (long long)shape[d]);
    }
    if (rc == 0)
        rc = ckpt_array_expand(&a, shape, ndim, &out, err);
    return rc < 0 ? rc : ckpt_call_view(c, 0, ckpt_array_ref(&out), err);
}

static int expand_as(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, out = {0};
    struct ckpt_array form;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_form(c, "other", &form, err);
    if (rc == 0)
        rc = ckpt_array_expand(&a, form.shape, form.ndim, &out, err);
    return rc < 0 ? rc : ckpt_call_view(c, 0, ckpt_array_ref(&out), err);
}

static const struct ckpt_op ops[] = {
    {"transpose", "transpose.int(Tensor self, int dim0, int dim1) -> Tensor", transpose},
    {"swapaxes", "swapaxes(Tensor self, int axis0, int axis1) -> Tensor", swapaxes},
    {"swapdims", "swapdims(Tensor self, int dim0, int dim1) -> Tensor", transpose},
    {"t", "t(Tensor self) -> Tensor", t},
    {"numpy_T", "numpy_T(Tensor self) -> Tensor", reverse},
    {"mT", "mT(Tensor self) -> Tensor", last_two},
    {"permute", "permute(Tensor self, int[] dims) -> Tensor", permute},
    {"movedim", "movedim.int(Tensor self, int source, int destination) -> Tensor", movedim},
    {"movedim", "movedim.intlist(Tensor self, int[] source, int[] destination) -> Tensor", movedim},
    {"moveaxis", "moveaxis.int(Tensor self, int source, int destination) -> Tensor", movedim},
    {"moveaxis", "moveaxis.intlist(Tensor self, int[] source, int[] destination) -> Tensor",
     movedim},
    {"view", "view(Tensor self, SymInt[] size) -> Tensor", view},
    {"_unsafe_view", "_unsafe_view(Tensor self, SymInt[] size) -> Tensor", view},
    {"reshape", "reshape(Tensor self, SymInt[] shape) -> Tensor", reshape},
    {"view_as", "view_as(Tensor self, Tensor other) -> Tensor", reshape_as},
    {"reshape_as", "reshape_as(Tensor self, Tensor other) -> Tensor", reshape_as},
    {"flatten", "flatten.using_ints(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor",
     ckpt_op_flatten},
    {"ravel", "ravel(Tensor self) -> Tensor", ravel},
    {"unflatten", "unflatten.int(Tensor self, int dim, SymInt[] sizes) -> Tensor", unflatten},
    {"squeeze", "squeeze(Tensor self) -> Tensor", squeeze},
    {"squeeze", "squeeze.dim(Tensor self, int dim) -> Tensor", squeeze},
    {"squeeze", "squeeze.dims(Tensor self, int[] dim) -> Tensor", squeeze},
    {"unsqueeze", "unsqueeze(Tensor self, int dim) -> Tensor", unsqueeze},
    {"atleast_1d", "atleast_1d(Tensor self) -> Tensor", atleast},
    {"atleast_2d", "atleast_2d(Tensor self) -> Tensor", atleast},
    {"atleast_3d", "atleast_3d(Tensor self) -> Tensor", atleast},
    {"expand", "expand(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor", expand},
    {"broadcast_to", "broadcast_to(Tensor self, SymInt[] size) -> Tensor", expand},
    {"expand_as", "expand_as(Tensor self, Tensor other) -> Tensor", expand_as},
};

const struct ckpt_op_family ckpt_family_view = CKPT_OP_FAMILY(ops);
