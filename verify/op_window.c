/*
 * Views along several dimensions at once: diagonals, windows that overlap, strides as they are
 * given.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "verify/op.h"

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int diagonal(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t d[2] = {0};
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dim1", 0, a.ndim, &d[0], err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dim2", 1, a.ndim, &d[1], err);
    if (rc == 0 && d[0] == d[1])
        return ckpt_fail(err, -EINVAL, "a diagonal of one dimension");
    if (rc < 0)
        return rc;
    const int64_t offset = ckpt_call_int(c, "offset", 0), step = a.stride[d[0]] + a.stride[d[1]];
    const int64_t down = offset < 0 ? -least(-(offset + 1), a.shape[d[0]]) - 1 : 0;
    const int64_t skip[2] = {least(-down, a.shape[d[0]]),
                             least(offset < 0 ? 0 : offset, a.shape[d[1]])};
    const int64_t n = least(a.shape[d[0]] - skip[0], a.shape[d[1]] - skip[1]);
    CKPT_AUTO(array) struct ckpt_array rows = ckpt_array_slice(&a, d[0], skip[0], n);
    struct ckpt_array out = ckpt_array_slice(&rows, d[1], skip[1], n);
    ckpt_array_drop_dim(&out, d[0] > d[1] ? d[0] : d[1]);
    ckpt_array_drop_dim(&out, d[0] > d[1] ? d[1] : d[0]);
    out.shape[out.ndim] = n;
    out.stride[out.ndim++] = step;
    return ckpt_call_view(c, 0, out, err);
}

/* Windows of `size` along a dimension, `step` apart: [.., n, ..] becomes [.., windows, .., size].
 */
static int unfold(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t dim = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dimension", 0, a.ndim, &dim, err);
    if (rc < 0)
        return rc;
    const int64_t n = a.ndim ? a.shape[dim] : 1, by = a.ndim ? a.stride[dim] : 1;
    const int64_t size = ckpt_call_int(c, "size", 0), step = ckpt_call_int(c, "step", 1);
    if (size < 0 || size > n || step < 1)
        return ckpt_fail(err, -EINVAL, "windows of %lld, %lld apart, of a dimension of %lld",
                         (long long)size, (long long)step, (long long)n);
    if (a.ndim == CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "a tensor of %u dimensions", a.ndim);
    struct ckpt_array out = ckpt_array_ref(&a);
    if (a.ndim) {
        out.shape[dim] = (n - size) / step + 1;
        out.stride[dim] = out.shape[dim] > 1 ? by * step : by;
    }
    out.shape[out.ndim] = size;
    out.stride[out.ndim++] = by;
    return ckpt_call_view(c, 0, out, err);
}

/* The last element that such a view shows, or -1 if none; false: beyond all memory. */
static bool last_element(const struct ckpt_array *view, int64_t offset, int64_t *last) {
    *last = offset;
    for (uint32_t d = 0; d < view->ndim; d++) {
        int64_t reach;
        if (view->shape[d] == 0) {
            *last = -1;
            return true;
        }
        if (!ckpt_mul_i64(view->shape[d] - 1, view->stride[d], &reach) ||
            !ckpt_add_i64(*last, reach, last))
            return false;
    }
    return true;
}

/* Only of memory that lies as PyTorch's does: in C order. */
static int as_strided(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, whole = {0};
    uint32_t nsize = 0, nstride = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0 && !ckpt_array_dense(&a))
        return ckpt_fail(err, -EOPNOTSUPP, "strides over a tensor that is not in C order");
    if (rc < 0)
        return rc;
    whole = ckpt_array_whole(&a);
    struct ckpt_array view = whole;
    rc = ckpt_call_list(c, "size", view.shape, &nsize, err);
    if (rc == 0)
        rc = ckpt_call_list(c, "stride", view.stride, &nstride, err);
    if (rc == 0 && nsize != nstride)
        return ckpt_fail(err, -EINVAL, "%u sizes, but %u strides", nsize, nstride);
    for (uint32_t d = 0; rc == 0 && d < nsize; d++) {
        if (view.shape[d] < 0 || view.stride[d] < 0)
            return ckpt_fail(err, -EINVAL, "a negative size or stride");
        if (view.shape[d] <= 1)
            view.stride[d] = 0; /* nobody steps: it may be any number */
    }
    if (rc < 0)
        return rc;
    const int64_t unit = ckpt_dtype_info(a.dtype)->unit_bytes;
    const int64_t own = ((char *)a.data - (char *)whole.data) / unit;
    const int64_t offset = ckpt_call_int(c, "storage_offset", own);
    int64_t last = 0;
    view.ndim = nsize;
    if (offset < 0 || !last_element(&view, offset, &last) || last >= whole.shape[0])
        return ckpt_fail(err, -EINVAL, "strides that leave the %lld elements of the memory",
                         (long long)whole.shape[0]);
    view.data = (char *)whole.data + (last < 0 ? 0 : offset * unit);
    return ckpt_call_view(c, 0, ckpt_array_ref(&view), err);
}

static const struct ckpt_op ops[] = {
    {"diagonal", "diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor", diagonal},
    {"unfold", "unfold(Tensor self, int dimension, int size, int step) -> Tensor", unfold},
    {"as_strided",
     "as_strided(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> "
     "Tensor",
     as_strided},
};

const struct ckpt_op_family ckpt_family_window = CKPT_OP_FAMILY(ops);
