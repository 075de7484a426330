#include "formats/tensor.h"

#include <errno.h>
#include <inttypes.h>

#include "base/size.h"
#include "formats/limits.h"

uint64_t ckpt_tensor_count(const struct ckpt_tensor *t) {
    uint64_t count = 0;
    return ckpt_shape_count(t->shape, t->ndim, &count) ? count : 0;
}

uint64_t ckpt_tensor_bytes(const struct ckpt_tensor *t) {
    uint64_t bytes = 0;
    return ckpt_dtype_bytes(t->dtype, ckpt_tensor_count(t), &bytes) ? bytes : 0;
}

#define IN_TENSOR "tensor \"%.*s\": "

static int check_shape(const struct ckpt_tensor *t, uint64_t *count, struct ckpt_err *err) {
    if (t->ndim > CKPT_NDIM_MAX)
        return ckpt_fail(err, -EINVAL, IN_TENSOR "%u dimensions, at most %d are supported",
                         CKPT_TEXT_ARGS(t->key), t->ndim, CKPT_NDIM_MAX);
    for (uint32_t i = 0; i < t->ndim; i++)
        if (t->shape[i] < 0)
            return ckpt_fail(err, -EINVAL, IN_TENSOR "dimension %u is negative (%" PRId64 ")",
                             CKPT_TEXT_ARGS(t->key), i, t->shape[i]);
    if (!ckpt_shape_count(t->shape, t->ndim, count))
        return ckpt_fail(err, -EINVAL, IN_TENSOR "the product of its dimensions overflows 63 bits",
                         CKPT_TEXT_ARGS(t->key));
    return 0;
}

static int check_size(const struct ckpt_tensor *t, uint64_t count, uint64_t *bytes,
                      struct ckpt_err *err) {
    const struct ckpt_dtype_info *d = ckpt_dtype_info(t->dtype);
    if (t->dtype == CKPT_DT_NONE)
        return ckpt_fail(err, -EINVAL, IN_TENSOR "has no element type", CKPT_TEXT_ARGS(t->key));
    if (!ckpt_dtype_bytes(t->dtype, count, bytes))
        return ckpt_fail(err, -EINVAL,
                         IN_TENSOR "%" PRIu64 " elements of %u bits do not make whole bytes below "
                                   "2^64",
                         CKPT_TEXT_ARGS(t->key), count, d->bits);
    if (*bytes > CKPT_LIMIT_TENSOR_BYTES)
        return ckpt_fail(err, -E2BIG,
                         IN_TENSOR "%" PRIu64 " bytes, the limit for one tensor is %" PRIu64,
                         CKPT_TEXT_ARGS(t->key), *bytes, CKPT_LIMIT_TENSOR_BYTES);
    return 0;
}

/* Elements below and above element 0 that the strides reach. Dimensions of size 1 are never
 * stepped along and may carry any stride. */
static bool strided_reach(const struct ckpt_tensor *t, int64_t *below, int64_t *above) {
    *below = *above = 0;
    for (uint32_t i = 0; i < t->ndim; i++) {
        int64_t step, *side = t->stride[i] < 0 ? below : above;
        if (t->shape[i] <= 1)
            continue;
        if (!ckpt_mul_i64(t->shape[i] - 1, t->stride[i], &step) || !ckpt_add_i64(*side, step, side))
            return false;
    }
    return true;
}

static bool is_contiguous(const struct ckpt_tensor *t) {
    int64_t expected = 1;
    for (uint32_t i = t->ndim; i-- > 0;) {
        if (t->shape[i] != 1 && t->stride[i] != expected)
            return false;
        expected *= t->shape[i]; /* cannot overflow: the count was checked */
    }
    return true;
}

static int fail_reach(const struct ckpt_tensor *t, struct ckpt_err *err) {
    return ckpt_fail(err, -EINVAL,
                     IN_TENSOR "its strides and its offset (byte %" PRIu64 ") reach outside its "
                               "storage of %" PRIu64 " bytes by more than 2^63",
                     CKPT_TEXT_ARGS(t->key), t->offset, t->blob->size);
}

static int check_end(const struct ckpt_tensor *t, uint64_t beyond_offset, struct ckpt_err *err) {
    uint64_t end;
    if (!ckpt_add_u64(t->offset, beyond_offset, &end))
        return fail_reach(t, err);
    if (end > t->blob->size)
        return ckpt_fail(err, -EINVAL,
                         IN_TENSOR "needs bytes up to %" PRIu64 " of its storage, which has "
                                   "%" PRIu64,
                         CKPT_TEXT_ARGS(t->key), end, t->blob->size);
    return 0;
}

static int check_strided(const struct ckpt_tensor *t, struct ckpt_err *err) {
    const unsigned unit = ckpt_dtype_info(t->dtype)->unit_bytes;
    int64_t below, above;
    uint64_t before, behind;
    if (!strided_reach(t, &below, &above) || !ckpt_mul_u64(0 - (uint64_t)below, unit, &before) ||
        !ckpt_add_u64((uint64_t)above, 1, &behind) || !ckpt_mul_u64(behind, unit, &behind))
        return fail_reach(t, err);
    if (before > t->offset)
        return ckpt_fail(err, -EINVAL,
                         IN_TENSOR "its strides reach %" PRIu64 " bytes before its offset %" PRIu64,
                         CKPT_TEXT_ARGS(t->key), before, t->offset);
    return check_end(t, behind, err);
}

int ckpt_tensor_check(const struct ckpt_tensor *t, struct ckpt_err *err) {
    uint64_t count = 0, bytes = 0;
    int rc = check_shape(t, &count, err);
    if (!rc)
        rc = check_size(t, count, &bytes, err);
    if (rc || count == 0) /* no element, no byte: its offset does not matter */
        return rc;
    if (!t->stride)
        return check_end(t, bytes, err);
    if (ckpt_dtype_info(t->dtype)->unit_elements == 1)
        return check_strided(t, err);
    if (!is_contiguous(t))
        return ckpt_fail(err, -EINVAL, IN_TENSOR "a strided view of %u-bit elements",
                         CKPT_TEXT_ARGS(t->key), ckpt_dtype_info(t->dtype)->bits);
    return check_end(t, bytes, err);
}
