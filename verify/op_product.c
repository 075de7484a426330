/* Products that are not of two matrices alone: bilinear forms, and matrices for groups of rows. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"
#include "verify/product.h"

/* ---- y[n, o] = x1[n] W[o] x2[n] + b[o] ---- */

/* Column o of y: row by row, (x1 W[o]) times x2. */
static void form_column(const struct ckpt_array *half, const struct ckpt_array *x2, int64_t o,
                        const struct ckpt_array *bias, const struct ckpt_array *y) {
    const int64_t rows = half->shape[0], width = half->shape[1];
    const int64_t columns = y->shape[y->ndim - 1];
    for (int64_t n = 0; n < rows; n++) {
        double sum = bias->store ? (double)ckpt_array_f32(bias)[o] : 0;
        for (int64_t j = 0; j < width; j++)
            sum += (double)ckpt_array_f32(half)[n * width + j] *
                   (double)ckpt_array_f32(x2)[n * width + j];
        ckpt_array_f32(y)[n * columns + o] = (float)sum;
    }
}

static int form_all(struct ckpt_call *c, const struct ckpt_array *x1, const struct ckpt_array *x2,
                    const struct ckpt_array *weight, const struct ckpt_array *bias,
                    struct ckpt_err *err) {
    const int64_t *const size = weight->shape;
    CKPT_AUTO(array) struct ckpt_array flat = {0};
    const int64_t rows = ckpt_array_count(c->out) / (size[0] ? size[0] : 1);
    int rc = ckpt_array_reshape(x1, (const int64_t[]){rows, size[1]}, 2, NULL, &flat, err);
    for (int64_t o = 0; rc == 0 && o < size[0]; o++) {
        CKPT_AUTO(array) struct ckpt_array one = ckpt_array_slice(weight, 0, o, 1);
        CKPT_AUTO(array) struct ckpt_array half = {0}, matrix = {0};
        rc = ckpt_array_reshape(&one, &size[1], 2, NULL, &matrix, err);
        if (rc == 0)
            rc = ckpt_product(&flat, &matrix, c->exec, &half, err);
        if (rc == 0)
            form_column(&half, x2, o, bias, c->out);
    }
    return rc;
}

static int op_bilinear(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x1 = {0}, x2 = {0}, weight = {0}, bias = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    int rc = ckpt_call_input(c, "input1", &x1, err);
    if (rc == 0)
        rc = ckpt_call_input(c, "input2", &x2, err);
    if (rc == 0)
        rc = ckpt_call_input(c, "weight", &weight, err);
    if (rc < 0)
        return rc;
    const uint32_t last = x1.ndim ? x1.ndim - 1 : 0;
    if (x1.ndim == 0 || x2.ndim != x1.ndim || weight.ndim != 3 ||
        memcmp(x1.shape, x2.shape, last * sizeof(x1.shape[0])) != 0 ||
        x1.shape[last] != weight.shape[1] || x2.shape[last] != weight.shape[2])
        return ckpt_fail(err, -EINVAL, "the inputs and the weight do not fit each other");
    rc = ckpt_call_vector(c, "bias", weight.shape[0], &bias, err);
    memcpy(shape, x1.shape, sizeof(shape));
    shape[last] = weight.shape[0];
    if (rc == 0)
        rc = ckpt_call_result(c, shape, x1.ndim, err);
    return rc < 0 ? rc : form_all(c, &x1, &x2, &weight, &bias, err);
}

/* ---- rows of group g by matrix g; offs says where each group ends ---- */

static int multiply_group(struct ckpt_call *c, const struct ckpt_array *x,
                          const struct ckpt_array *w, int64_t g, int64_t first, int64_t end,
                          struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array rows = ckpt_array_slice(x, 0, first, end - first);
    CKPT_AUTO(array) struct ckpt_array to = ckpt_array_slice(c->out, 0, first, end - first);
    CKPT_AUTO(array) struct ckpt_array one = ckpt_array_slice(w, 0, g, 1), product = {0};
    memmove(one.shape, one.shape + 1, 2 * sizeof(one.shape[0]));
    memmove(one.stride, one.stride + 1, 2 * sizeof(one.stride[0]));
    one.ndim = 2;
    const int rc = ckpt_product(&rows, &one, c->exec, &product, err);
    return rc < 0 ? rc : ckpt_array_assign(&to, &product, err);
}

static int multiply_groups(struct ckpt_call *c, const struct ckpt_array *x,
                           const struct ckpt_array *w, const struct ckpt_array *offs,
                           struct ckpt_err *err) {
    int64_t first = 0;
    int rc = 0;
    for (int64_t g = 0; rc == 0 && g < w->shape[0]; g++) {
        const int64_t end = ckpt_array_i64(offs)[g * offs->stride[0]];
        if (end < first || end > x->shape[0])
            return ckpt_fail(err, -EINVAL, "group %lld ends at row %lld", (long long)g,
                             (long long)end);
        rc = multiply_group(c, x, w, g, first, end, err);
        first = end;
    }
    return rc;
}

static int op_grouped_mm(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0}, w = {0}, offs = {0};
    int rc = ckpt_call_tensor(c, "self", &x, err);
    if (rc == 0)
        rc = ckpt_call_tensor(c, "mat2", &w, err);
    if (rc == 0)
        rc = ckpt_call_optional(c, "offs", &offs, err);
    if (rc < 0)
        return rc;
    if (ckpt_call_arg(c, "bias"))
        return ckpt_fail(err, -EOPNOTSUPP, "a bias is not implemented");
    if (x.ndim == 3 && w.ndim == 3 && !offs.store)
        return ckpt_product(&x, &w, c->exec, c->out, err);
    if (x.ndim != 2 || w.ndim != 3)
        return ckpt_fail(err, -EOPNOTSUPP, "is implemented for rows by a batch of matrices only");
    if (offs.dtype != CKPT_DT_I64 || offs.ndim != 1 || offs.shape[0] != w.shape[0])
        return ckpt_fail(err, -EINVAL, "offs does not say where each of %lld groups ends",
                         (long long)w.shape[0]);
    rc = ckpt_call_new(c, 0, x.dtype, (const int64_t[]){x.shape[0], w.shape[2]}, 2, err);
    return rc < 0 ? rc : multiply_groups(c, &x, &w, &offs, err);
}

static const struct ckpt_op ops[] = {
    {"bilinear",
     "bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor",
     op_bilinear},
    {"_grouped_mm",
     "_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, "
     "ScalarType? out_dtype=None) -> Tensor",
     op_grouped_mm},
};

const struct ckpt_op_family ckpt_family_product = CKPT_OP_FAMILY(ops);
