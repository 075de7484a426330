/*
 * The elements several times, turned round, or some of them zero. Repetitions are one assignment to
 * a view of the result that has a dimension more for each of them:
 *
 *     repeat [3] of [2]:  result [6] seen as [3, 2], the source as [3, 2] with steps (0, 1)
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "verify/op.h"

/* Result and source, of one shape. Borrowed: no references. */
struct both {
    struct ckpt_array to, from;
};

static int add_dim(struct both *b, int64_t n, int64_t to_step, int64_t from_step,
                   struct ckpt_err *err) {
    const uint32_t d = b->to.ndim;
    if (n == 1)
        return 0;
    if (d == CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "of this many dimensions");
    b->to.shape[d] = b->from.shape[d] = n;
    b->to.stride[d] = to_step;
    b->from.stride[d] = from_step;
    b->to.ndim = b->from.ndim = d + 1;
    return 0;
}

static int times(int64_t size, int64_t n, int64_t *out, struct ckpt_err *err) {
    if (n < 0 || !ckpt_mul_i64(size, n, out))
        return ckpt_fail(err, -EINVAL, "%lld repetitions of a dimension of %lld", (long long)n,
                         (long long)size);
    return 0;
}

/* Each dimension n[d] times over. */
static int repeat_all(struct ckpt_call *c, const struct ckpt_array *a, const int64_t *n,
                      struct ckpt_err *err) {
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    int rc = 0;
    for (uint32_t d = 0; rc == 0 && d < a->ndim; d++)
        rc = times(a->shape[d], n[d], &shape[d], err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, a->dtype, shape, a->ndim, err);
    if (rc < 0 || ckpt_array_count(c->out) == 0)
        return rc;
    struct both b = {*c->out, *a};
    b.to.ndim = b.from.ndim = 0;
    for (uint32_t d = 0; rc == 0 && d < a->ndim; d++) {
        rc = add_dim(&b, n[d], a->shape[d] * c->out->stride[d], 0, err);
        if (rc == 0)
            rc = add_dim(&b, a->shape[d], c->out->stride[d], a->stride[d], err);
    }
    return rc < 0 ? rc : ckpt_array_assign(&b.to, &b.from, err);
}

/* a seen with dimensions of size 1 in front, ndim together. */
static int in_front(struct ckpt_array *a, uint32_t ndim, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = *a;
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    const uint32_t more = ndim > a->ndim ? ndim - a->ndim : 0;
    for (uint32_t d = 0; d < ndim; d++)
        shape[d] = d < more ? 1 : given.shape[d - more];
    return ckpt_array_expand(&given, shape, ndim, a, err);
}

/* "repeat": at least as many numbers as dimensions. */
static int repeat(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    int64_t n[CKPT_ARRAY_NDIM_MAX];
    uint32_t count = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_list(c, "repeats", n, &count, err);
    if (rc == 0 && count < a.ndim)
        return ckpt_fail(err, -EINVAL, "%u repetitions for %u dimensions", count, a.ndim);
    if (rc == 0)
        rc = in_front(&a, count, err);
    return rc < 0 ? rc : repeat_all(c, &a, n, err);
}

/* "tile": dimensions without a number are repeated once. */
static int tile(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    int64_t given[CKPT_ARRAY_NDIM_MAX], n[CKPT_ARRAY_NDIM_MAX];
    uint32_t count = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_list(c, "dims", given, &count, err);
    if (rc == 0 && count > a.ndim)
        rc = in_front(&a, count, err);
    for (uint32_t d = 0; rc == 0 && d < a.ndim; d++)
        n[d] = d < a.ndim - count ? 1 : given[d - (a.ndim - count)];
    return rc < 0 ? rc : repeat_all(c, &a, n, err);
}

/* ---- each element several times ---- */

/* self, as a vector if no dimension is named. */
static int begin_interleave(struct ckpt_call *c, struct ckpt_array *a, uint32_t *dim,
                            struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = {0};
    int rc = ckpt_call_tensor(c, "self", &given, err);
    if (rc < 0)
        return rc;
    if (given.ndim > 0 && ckpt_call_arg(c, "dim")) {
        *a = ckpt_array_ref(&given);
        return ckpt_call_dim(c, "dim", 0, a->ndim, dim, err);
    }
    const int64_t count = ckpt_array_count(&given);
    return ckpt_array_reshape(&given, &count, 1, &c->exec->memory, a, err);
}

static int interleave_int(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    const int64_t n = ckpt_call_int(c, "repeats", 1);
    uint32_t dim = 0;
    int rc = begin_interleave(c, &a, &dim, err);
    if (rc < 0)
        return rc;
    memcpy(shape, a.shape, sizeof(shape));
    rc = times(a.shape[dim], n, &shape[dim], err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, a.dtype, shape, a.ndim, err);
    if (rc < 0 || ckpt_array_count(c->out) == 0)
        return rc; /* n may be anything then */
    struct both b = {*c->out, a};
    b.to.ndim = b.from.ndim = 0;
    for (uint32_t d = 0; rc == 0 && d < a.ndim; d++) {
        const int64_t step = c->out->stride[d];
        rc = add_dim(&b, a.shape[d], d == dim ? step * n : step, a.stride[d], err);
        if (rc == 0 && d == dim)
            rc = add_dim(&b, n, step, 0, err);
    }
    return rc < 0 ? rc : ckpt_array_assign(&b.to, &b.from, err);
}

/* The numbers of repetitions, dense, and their sum. */
static int take_repeats(struct ckpt_call *c, struct ckpt_array *n, int64_t *sum,
                        struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = {0};
    int rc = ckpt_call_tensor(c, "repeats", &given, err);
    if (rc == 0 && (given.dtype != CKPT_DT_I64 || given.ndim > 1))
        return ckpt_fail(err, -EINVAL, "repeats are not a vector of integers");
    if (rc == 0)
        rc = ckpt_array_contiguous(&given, &c->exec->memory, n, err);
    *sum = 0;
    for (int64_t i = 0; rc == 0 && i < ckpt_array_count(n); i++) {
        const int64_t k = ckpt_array_i64(n)[i];
        if (k < 0 || !ckpt_add_i64(*sum, k, sum))
            return ckpt_fail(err, -EINVAL, "%lld repetitions", (long long)k);
    }
    return rc;
}

/* 0 repeats[0] times, 1 repeats[1] times... */
static int interleave_indices(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array n = {0};
    int64_t sum = 0;
    int rc = take_repeats(c, &n, &sum, err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, CKPT_DT_I64, &sum, 1, err);
    for (int64_t i = 0, at = 0; rc == 0 && at < sum; i++)
        for (int64_t k = 0; k < ckpt_array_i64(&n)[i]; k++)
            ckpt_array_i64(c->out)[at++] = i;
    return rc;
}

static int interleave_tensor(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, n = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX], sum = 0, at = 0;
    uint32_t dim = 0;
    int rc = begin_interleave(c, &a, &dim, err);
    if (rc == 0)
        rc = take_repeats(c, &n, &sum, err);
    if (rc < 0)
        return rc;
    const int64_t count = ckpt_array_count(&n), size = a.shape[dim];
    if (count != 1 && count != size)
        return ckpt_fail(err, -EINVAL, "%lld numbers of repetitions for a dimension of %lld",
                         (long long)count, (long long)size);
    memcpy(shape, a.shape, sizeof(shape));
    shape[dim] = sum;
    if (count == 1)
        rc = times(sum, size, &shape[dim], err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, a.dtype, shape, a.ndim, err);
    const bool empty = rc < 0 || ckpt_array_count(c->out) == 0;
    for (int64_t i = 0; rc == 0 && !empty && i < size; i++) {
        const int64_t times_i = ckpt_array_i64(&n)[count == 1 ? 0 : i];
        CKPT_AUTO(array) struct ckpt_array to = ckpt_array_slice(c->out, dim, at, times_i);
        CKPT_AUTO(array) struct ckpt_array from = ckpt_array_slice(&a, dim, i, 1);
        rc = ckpt_array_assign(&to, &from, err);
        at += times_i;
    }
    return rc;
}

/* ---- turned round ---- */

/* *out is a, whose elements along dim move on by `shift`, the last ones to the front. */
static int roll_one(struct ckpt_call *c, const struct ckpt_array *a, uint32_t dim, int64_t shift,
                    struct ckpt_array *out, struct ckpt_err *err) {
    const int64_t n = a->shape[dim], on = n ? (shift % n + n) % n : 0;
    int rc = ckpt_array_new(out, &c->exec->memory, a->dtype, a->shape, a->ndim, err);
    for (int part = 0; rc == 0 && part < 2; part++) {
        const int64_t len = part ? on : n - on;
        CKPT_AUTO(array) struct ckpt_array to = ckpt_array_slice(out, dim, part ? 0 : on, len);
        CKPT_AUTO(array)
        struct ckpt_array from = ckpt_array_slice(a, dim, part ? n - on : 0, len);
        rc = ckpt_array_assign(&to, &from, err);
    }
    return rc;
}

/* Without dims, the elements as one vector. */
static int roll(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, flat = {0}, rolled = {0};
    int64_t shift[CKPT_ARRAY_NDIM_MAX], dims[CKPT_ARRAY_NDIM_MAX];
    uint32_t nshift = 0, ndims = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_list(c, "shifts", shift, &nshift, err);
    if (rc == 0)
        rc = ckpt_call_list(c, "dims", dims, &ndims, err);
    if (rc == 0 && nshift != (ndims ? ndims : 1))
        return ckpt_fail(err, -EINVAL, "%u shifts for %u dimensions", nshift, ndims);
    const int64_t count = ckpt_array_count(&a), n = a.ndim;
    for (uint32_t i = 0; rc == 0 && i < ndims; i++) {
        if (dims[i] < -n || dims[i] >= n)
            return ckpt_fail(err, -EINVAL, "no dimension %lld in a tensor of %u",
                             (long long)dims[i], a.ndim);
        CKPT_AUTO(array) struct ckpt_array before = a;
        memset(&a, 0, sizeof(a));
        rc = roll_one(c, &before, (uint32_t)(dims[i] < 0 ? dims[i] + n : dims[i]), shift[i], &a,
                      err);
    }
    if (rc < 0 || ndims)
        return rc < 0 ? rc : ckpt_call_view(c, 0, ckpt_array_ref(&a), err);
    rc = ckpt_array_reshape(&a, &count, 1, &c->exec->memory, &flat, err);
    if (rc == 0)
        rc = roll_one(c, &flat, 0, shift[0], &rolled, err);
    return rc < 0 ? rc
                  : ckpt_array_reshape(&rolled, a.shape, a.ndim, &c->exec->memory, c->out, err);
}

static int flip(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t dim[CKPT_ARRAY_NDIM_MAX], n = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_dims(c, "dims", a.ndim, dim, &n, err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, a.dtype, a.shape, a.ndim, err);
    struct ckpt_array from = a; /* borrowed; backwards */
    const int64_t unit = ckpt_dtype_info(a.dtype)->unit_bytes;
    for (uint32_t i = 0; rc == 0 && i < n && a.ndim && ckpt_array_count(&a) > 0; i++) {
        from.data = (char *)from.data + (a.shape[dim[i]] - 1) * a.stride[dim[i]] * unit;
        from.stride[dim[i]] = -a.stride[dim[i]];
    }
    return rc < 0 ? rc : ckpt_array_assign(c->out, &from, err);
}

/* ---- triangles ---- */

static int triangle(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    const bool lower = strcmp(c->op->name, "tril") == 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0 && a.ndim < 2)
        return ckpt_fail(err, -EINVAL, "a tensor of %u dimensions, expected at least 2", a.ndim);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, a.dtype, a.shape, a.ndim, err);
    if (rc == 0)
        rc = ckpt_array_assign(c->out, &a, err);
    if (rc < 0)
        return rc;
    const int64_t rows = a.shape[a.ndim - 2], columns = a.shape[a.ndim - 1];
    const int64_t unit = ckpt_dtype_info(a.dtype)->unit_bytes,
                  given = ckpt_call_int(c, "diagonal", 0);
    const int64_t diagonal = given > columns ? columns : given < -rows ? -rows : given;
    char *row = c->out->data;
    const int64_t all = columns ? ckpt_array_count(&a) / columns : 0;
    for (int64_t i = 0; i < all; i++, row += columns * unit) {
        int64_t from = i % rows + diagonal + (lower ? 1 : 0); /* the column where it changes */
        from = from < 0 ? 0 : from > columns ? columns : from;
        memset(lower ? row + from * unit : row, 0,
               (size_t)((lower ? columns - from : from) * unit));
    }
    return 0;
}

static const struct ckpt_op ops[] = {
    {"repeat", "repeat(Tensor self, SymInt[] repeats) -> Tensor", repeat},
    {"tile", "tile(Tensor self, SymInt[] dims) -> Tensor", tile},
    {"repeat_interleave",
     "repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? "
     "output_size=None) -> Tensor",
     interleave_int},
    {"repeat_interleave",
     "repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? "
     "output_size=None) -> Tensor",
     interleave_tensor},
    {"repeat_interleave",
     "repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor",
     interleave_indices},
    {"roll", "roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor", roll},
    {"flip", "flip(Tensor self, int[] dims) -> Tensor", flip},
    {"tril", "tril(Tensor self, SymInt diagonal=0) -> Tensor", triangle},
    {"triu", "triu(Tensor self, SymInt diagonal=0) -> Tensor", triangle},
};

const struct ckpt_op_family ckpt_family_repeat = CKPT_OP_FAMILY(ops);
