/*
 * Arrays: allocation under a budget, views over shared memory, copies into C order.
 */
#include "verify/array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

struct ckpt_array_store {
    uint64_t refs, bytes;
    struct ckpt_memory *memory;
    _Alignas(64) unsigned char data[]; /* BLAS likes whole cache lines */
};

/* A view without elements may be of any shape. */
static void set_dense_strides(struct ckpt_array *a) {
    int64_t step = 1;
    for (uint32_t d = a->ndim; d-- > 0;) {
        a->stride[d] = step;
        if (a->shape[d] > 0 && !ckpt_mul_i64(step, a->shape[d], &step))
            step = 1;
    }
}

/* Whether all strides, in bytes, are numbers. PyTorch asks it of arrays without elements, too. */
static bool has_strides(enum ckpt_dtype dtype, const int64_t *shape, uint32_t ndim) {
    int64_t step = ckpt_dtype_info(dtype)->unit_bytes;
    for (uint32_t d = 0; d < ndim; d++)
        if (shape[d] > 0 && !ckpt_mul_i64(step, shape[d], &step))
            return false;
    return true;
}

/* Bytes of such an array, or a refusal that names the budget. */
static int array_bytes(const struct ckpt_memory *memory, enum ckpt_dtype dtype,
                       const int64_t *shape, uint32_t ndim, uint64_t *bytes, struct ckpt_err *err) {
    uint64_t count = 0;
    if (dtype == CKPT_DT_NONE || ckpt_array_dtype(dtype) != dtype)
        return ckpt_fail(err, -EOPNOTSUPP, "numbers of a dtype that the checker does not compute");
    if (ndim > CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "an array of %u dimensions; the checker handles %d",
                         ndim, CKPT_ARRAY_NDIM_MAX);
    if (!ckpt_shape_count(shape, ndim, &count) || !ckpt_dtype_bytes(dtype, count, bytes) ||
        !has_strides(dtype, shape, ndim))
        return ckpt_fail(err, -EOVERFLOW, "an array too large for this machine");
    if (memory && (*bytes > memory->limit || memory->used > memory->limit - *bytes))
        return ckpt_fail(err, -ENOMEM,
                         "needs %llu more bytes, beyond verify_memory=%llu (%llu in use)",
                         (unsigned long long)*bytes, (unsigned long long)memory->limit,
                         (unsigned long long)memory->used);
    return 0;
}

int ckpt_array_new_unset(struct ckpt_array *out, struct ckpt_memory *memory, enum ckpt_dtype dtype,
                         const int64_t *shape, uint32_t ndim, struct ckpt_err *err) {
    uint64_t bytes = 0;
    memset(out, 0, sizeof(*out));
    const int rc = array_bytes(memory, dtype, shape, ndim, &bytes, err);
    if (rc < 0)
        return rc;
    const size_t line = _Alignof(struct ckpt_array_store);
    const size_t size = (sizeof(struct ckpt_array_store) + bytes + line - 1) / line * line;
    struct ckpt_array_store *const store = aligned_alloc(line, size);
    if (!store)
        return ckpt_fail_memory(err, "an array");
    memset(store, 0, sizeof(*store));
    store->refs = 1;
    store->bytes = bytes;
    store->memory = memory;
    if (memory)
        memory->used += bytes;
    out->dtype = dtype;
    out->ndim = ndim;
    if (ndim)
        memcpy(out->shape, shape, ndim * sizeof(*shape));
    set_dense_strides(out);
    out->store = store;
    out->data = store->data;
    return 0;
}

int ckpt_array_new(struct ckpt_array *out, struct ckpt_memory *memory, enum ckpt_dtype dtype,
                   const int64_t *shape, uint32_t ndim, struct ckpt_err *err) {
    const int rc = ckpt_array_new_unset(out, memory, dtype, shape, ndim, err);
    if (rc == 0)
        memset(out->data, 0, out->store->bytes);
    return rc;
}

void ckpt_array_fini(struct ckpt_array *a) {
    struct ckpt_array_store *const store = a->store;
    if (store && --store->refs == 0) {
        if (store->memory)
            store->memory->used -= store->bytes;
        free(store);
    }
    memset(a, 0, sizeof(*a));
}

struct ckpt_array ckpt_array_ref(const struct ckpt_array *a) {
    if (a->store)
        a->store->refs++;
    return *a;
}

enum ckpt_dtype ckpt_array_dtype(enum ckpt_dtype dtype) {
    if (dtype == CKPT_DT_NONE)
        return dtype;
    switch (ckpt_dtype_info(dtype)->cls) {
    case CKPT_CLASS_FLOAT:
        return dtype == CKPT_DT_F64 ? CKPT_DT_F64 : CKPT_DT_F32;
    case CKPT_CLASS_BOOL:
        return CKPT_DT_BOOL;
    case CKPT_CLASS_INT:
    case CKPT_CLASS_UINT:
        return CKPT_DT_I64;
    default:
        return CKPT_DT_NONE;
    }
}

int64_t ckpt_array_count(const struct ckpt_array *a) {
    int64_t n = 1;
    for (uint32_t d = 0; d < a->ndim; d++)
        if (a->shape[d] == 0)
            return 0; /* however large the others are */
    for (uint32_t d = 0; d < a->ndim; d++)
        n *= a->shape[d];
    return n;
}

bool ckpt_array_dense(const struct ckpt_array *a) {
    int64_t step = 1;
    if (ckpt_array_count(a) == 0)
        return true;
    for (uint32_t d = a->ndim; d-- > 0;) {
        if (a->shape[d] > 1 && a->stride[d] != step)
            return false;
        step *= a->shape[d];
    }
    return true;
}

bool ckpt_array_same_shape(const struct ckpt_array *a, const struct ckpt_array *b) {
    return a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0);
}

const char *ckpt_array_shape_text(const struct ckpt_array *a, char *buf, size_t size) {
    size_t at = (size_t)snprintf(buf, size, "[");
    for (uint32_t d = 0; d < a->ndim && at < size; d++)
        at +=
            (size_t)snprintf(buf + at, size - at, "%s%lld", d ? ", " : "", (long long)a->shape[d]);
    if (at < size)
        snprintf(buf + at, size - at, "]");
    return buf;
}

struct ckpt_array ckpt_array_permute(const struct ckpt_array *a, const uint32_t *order) {
    struct ckpt_array out = ckpt_array_ref(a);
    for (uint32_t d = 0; d < a->ndim; d++) {
        out.shape[d] = a->shape[order[d]];
        out.stride[d] = a->stride[order[d]];
    }
    return out;
}

struct ckpt_array ckpt_array_slice(const struct ckpt_array *a, uint32_t dim, int64_t start,
                                   int64_t len) {
    struct ckpt_array out = ckpt_array_ref(a);
    const int64_t bytes = ckpt_dtype_info(a->dtype)->unit_bytes;
    out.shape[dim] = len;
    if (len > 0)
        out.data = (char *)a->data + start * a->stride[dim] * bytes;
    return out;
}

void ckpt_array_drop_dim(struct ckpt_array *a, uint32_t dim) {
    const size_t after = (a->ndim - dim - 1) * sizeof(*a->shape);
    memmove(a->shape + dim, a->shape + dim + 1, after);
    memmove(a->stride + dim, a->stride + dim + 1, after);
    a->ndim--;
}

int ckpt_array_copy(const struct ckpt_array *a, struct ckpt_memory *memory, struct ckpt_array *out,
                    struct ckpt_err *err) {
    const int rc = ckpt_array_new_unset(out, memory, a->dtype, a->shape, a->ndim, err);
    return rc < 0 ? rc : ckpt_array_assign(out, a, err);
}

int ckpt_array_contiguous(const struct ckpt_array *a, struct ckpt_memory *memory,
                          struct ckpt_array *out, struct ckpt_err *err) {
    if (ckpt_array_dense(a)) {
        *out = ckpt_array_ref(a);
        set_dense_strides(out);
        return 0;
    }
    return ckpt_array_copy(a, memory, out, err);
}

/* Fills in the one -1. */
static int resolve_shape(const struct ckpt_array *a, const int64_t *shape, uint32_t ndim,
                         int64_t *resolved, struct ckpt_err *err) {
    int64_t known = 1, open = -1;
    for (uint32_t d = 0; d < ndim; d++) {
        resolved[d] = shape[d];
        if (shape[d] == -1 && open < 0)
            open = d;
        else if (shape[d] < 0 || !ckpt_mul_i64(known, shape[d], &known))
            return ckpt_fail(err, -EINVAL, "a reshape to an impossible dimension %lld",
                             (long long)shape[d]);
    }
    const int64_t count = ckpt_array_count(a);
    if (open >= 0 && known > 0)
        resolved[open] = count / known;
    if (open >= 0 ? known == 0 || count % known != 0 : count != known)
        return ckpt_fail(err, -EINVAL, "a reshape of %lld elements to a shape that holds %lld",
                         (long long)count, (long long)known);
    return 0;
}

/*
 * The strides of a view in another shape of as many elements; false if there are none. Dimensions
 * of a that lie in memory as one are a block, and each block must be whole dimensions of the shape:
 *
 *     [2, 3, 4] strides [12, 1, 3]    blocks [2], [3], [4]    [2, 12] no, [2, 1, 3, 2, 2] yes
 */
static bool view_strides(const struct ckpt_array *a, const int64_t *shape, uint32_t ndim,
                         int64_t *stride) {
    uint32_t to = ndim;
    int64_t block = 1, filled = 1, step = a->ndim ? a->stride[a->ndim - 1] : 1;
    for (uint32_t d = a->ndim; d-- > 0;) {
        block *= a->shape[d];
        if (d > 0 && (a->shape[d - 1] == 1 || a->stride[d - 1] == block * step))
            continue;
        for (; to > 0 && (filled < block || shape[to - 1] == 1); to--) {
            stride[to - 1] = filled * step;
            filled *= shape[to - 1];
        }
        if (filled != block)
            return false;
        block = filled = 1;
        step = d > 0 ? a->stride[d - 1] : 1;
    }
    for (; to > 0 && shape[to - 1] == 1; to--)
        stride[to - 1] = step;
    return to == 0;
}

int ckpt_array_reshape(const struct ckpt_array *a, const int64_t *shape, uint32_t ndim,
                       struct ckpt_memory *memory, struct ckpt_array *out, struct ckpt_err *err) {
    struct ckpt_array seen = {.dtype = a->dtype, .ndim = ndim, .data = a->data, .store = a->store};
    memset(out, 0, sizeof(*out));
    if (ndim > CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "a reshape to %u dimensions", ndim);
    int rc = resolve_shape(a, shape, ndim, seen.shape, err);
    if (rc < 0)
        return rc;
    set_dense_strides(&seen);
    if (ckpt_array_count(a) == 0 || view_strides(a, seen.shape, ndim, seen.stride)) {
        *out = ckpt_array_ref(&seen);
        return 0;
    }
    rc = ckpt_array_contiguous(a, memory, out, err);
    if (rc < 0)
        return rc;
    out->ndim = ndim;
    memcpy(out->shape, seen.shape, sizeof(out->shape));
    set_dense_strides(out);
    return 0;
}

struct ckpt_array ckpt_array_whole(const struct ckpt_array *a) {
    struct ckpt_array out = {.dtype = a->dtype, .ndim = 1, .store = a->store};
    out.shape[0] = (int64_t)(a->store->bytes / ckpt_dtype_info(a->dtype)->unit_bytes);
    out.stride[0] = 1;
    out.data = a->store->data;
    return ckpt_array_ref(&out);
}

double ckpt_array_get(const struct ckpt_array *a, int64_t i) {
    switch (a->dtype) {
    case CKPT_DT_F32:
        return (double)((const float *)a->data)[i];
    case CKPT_DT_F64:
        return ((const double *)a->data)[i];
    case CKPT_DT_BOOL:
        return ((const uint8_t *)a->data)[i];
    default:
        return (double)((const int64_t *)a->data)[i];
    }
}
