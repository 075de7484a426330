/* Softmax along one dimension, its sums in double. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

/* A row of n elements, `step` apart; of float32 or float64. */
#define SOFTMAX_ROW(name, type)                                                                    \
    static void name(const void *from, void *to, int64_t n, int64_t step, bool logarithm) {        \
        const type *const x = from;                                                                \
        type *const y = to;                                                                        \
        double most = -(double)INFINITY, sum = 0;                                                  \
        for (int64_t i = 0; i < n; i++)                                                            \
            most = fmax(most, (double)x[i * step]);                                                \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const double shifted = (double)x[i * step] - most, e = exp(shifted);                   \
            sum += e;                                                                              \
            y[i * step] = (type)(logarithm ? shifted : e);                                         \
        }                                                                                          \
        const double log_sum = log(sum), scale = 1 / sum;                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const double v = (double)y[i * step];                                                  \
            y[i * step] = (type)(logarithm ? v - log_sum : v * scale);                             \
        }                                                                                          \
    }
SOFTMAX_ROW(row_f32, float)
SOFTMAX_ROW(row_f64, double)

static int run_rows(const struct ckpt_call *c, const struct ckpt_array *x, uint32_t dim,
                    bool logarithm, struct ckpt_err *err) {
    const int64_t n = x->ndim ? x->shape[dim] : 1, step = x->ndim ? x->stride[dim] : 1;
    const int64_t count = ckpt_array_count(x), size = ckpt_dtype_info(x->dtype)->unit_bytes;
    int rc = 0;
    for (int64_t outer = 0; n > 0 && rc == 0 && outer < count; outer += n * step) {
        for (int64_t inner = 0; inner < step; inner++) {
            const int64_t at = (outer + inner) * size;
            (x->dtype == CKPT_DT_F64 ? row_f64 : row_f32)(
                (const char *)x->data + at, (char *)c->out->data + at, n, step, logarithm);
        }
        rc = ckpt_exec_check(c->exec, err);
    }
    return rc;
}

static int softmax(struct ckpt_call *c, bool logarithm, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = {0}, cast = {0}, x = {0};
    uint32_t dim = 0;
    int rc = ckpt_call_tensor(c, "self", &given, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dim", -1, given.ndim, &dim, err);
    if (rc < 0)
        return rc;
    const enum ckpt_dtype dtype = ckpt_call_dtype(c, "dtype", given.dtype);
    if (dtype != CKPT_DT_F32 && dtype != CKPT_DT_F64)
        return ckpt_fail(err, -EINVAL, "is not defined for integers; give it a dtype");
    rc = ckpt_array_cast(&given, dtype, &c->exec->memory, &cast, err);
    if (rc == 0)
        rc = ckpt_array_contiguous(&cast, &c->exec->memory, &x, err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, dtype, x.shape, x.ndim, err);
    return rc < 0 ? rc : run_rows(c, &x, dim, logarithm, err);
}

static int op_softmax(struct ckpt_call *c, struct ckpt_err *err) {
    return softmax(c, false, err);
}

static int op_log_softmax(struct ckpt_call *c, struct ckpt_err *err) {
    return softmax(c, true, err);
}

static const struct ckpt_op ops[] = {
    {"softmax", "softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", op_softmax},
    {"log_softmax", "log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
     op_log_softmax},
    {"_softmax", "_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", op_softmax},
    {"_log_softmax", "_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor",
     op_log_softmax},
};

const struct ckpt_op_family ckpt_family_softmax = CKPT_OP_FAMILY(ops);
