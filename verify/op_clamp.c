/* Bounds: numbers or arrays, either of them, or both. A NaN on any side is a NaN. */
#include <errno.h>
#include <math.h>

#include "verify/elementwise.h"

static double at_least(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] > v[1] || isnan(v[0]) ? v[0] : v[1];
}

static double at_most(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] < v[1] || isnan(v[0]) ? v[0] : v[1];
}

static double between(const double *v, const struct ckpt_scalar *p) {
    const double low = at_least(v, p);
    return at_most((const double[]){low, v[2]}, p);
}

static int64_t at_least_int(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] > v[1] ? v[0] : v[1];
}

static int64_t at_most_int(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] < v[1] ? v[0] : v[1];
}

static int64_t between_int(const int64_t *v, const struct ckpt_scalar *p) {
    const int64_t low = at_least_int(v, p);
    return at_most_int((const int64_t[]){low, v[2]}, p);
}

CKPT_ROWS_F32_2(at_least_rows, a > b || a != a ? a : b)
CKPT_ROWS_F32_2(at_most_rows, a < b || a != a ? a : b)

static inline float bounded(float x, float low, float high) {
    const float y = x > low || x != x ? x : low;
    return y < high || y != y ? y : high;
}

static void between_rows(void *arg, char *const *at, const int64_t *step, int64_t n) {
    const int64_t size = sizeof(float);
    float *const restrict y = (float *)(void *)at[0];
    const float *const x = (const float *)(const void *)at[1];
    const float *const low = (const float *)(const void *)at[2];
    const float *const high = (const float *)(const void *)at[3];
    const float low0 = *low, high0 = *high;
    (void)arg;
    if (step[1] == size && step[2] == 0 && step[3] == 0)
        for (int64_t k = 0; k < n; k++)
            y[k] = bounded(x[k], low0, high0);
    else
        for (int64_t k = 0; k < n; k++)
            y[k] = bounded(x[k * (step[1] / size)], low[k * (step[2] / size)],
                           high[k * (step[3] / size)]);
}

static const struct ckpt_function least = {"clamp_min",  at_least, at_least_int, at_least_rows,
                                           CKPT_NO_BOOL, {NULL},   {0}};
static const struct ckpt_function most = {"clamp_max",  at_most, at_most_int, at_most_rows,
                                          CKPT_NO_BOOL, {NULL},  {0}};
static const struct ckpt_function range = {"clamp",      between, between_int, between_rows,
                                           CKPT_NO_BOOL, {NULL},  {0}};

static int op_clamp(struct ckpt_call *c, struct ckpt_err *err) {
    static const char *const names[] = {"self", "min", "max"};
    static const char *const upper[] = {"self", "max"};
    if (!ckpt_call_arg(c, "min") && !ckpt_call_arg(c, "max"))
        return ckpt_fail(err, -EINVAL, "has neither a minimum nor a maximum");
    if (!ckpt_call_arg(c, "max"))
        return ckpt_elementwise(c, &least, names, 2, err);
    if (!ckpt_call_arg(c, "min"))
        return ckpt_elementwise(c, &most, upper, 2, err);
    return ckpt_elementwise(c, &range, names, 3, err);
}

#define RANGE(name)                                                                                \
    {name, name "(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", op_clamp}, {        \
        name, name ".Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", op_clamp  \
    }

static const struct ckpt_op ops[] = {
    RANGE("clamp"),
    RANGE("clip"),
    {"clamp_min", "clamp_min(Tensor self, Scalar min) -> Tensor", op_clamp},
    {"clamp_min", "clamp_min.Tensor(Tensor self, Tensor min) -> Tensor", op_clamp},
    {"clamp_max", "clamp_max(Tensor self, Scalar max) -> Tensor", op_clamp},
    {"clamp_max", "clamp_max.Tensor(Tensor self, Tensor max) -> Tensor", op_clamp},
};

const struct ckpt_op_family ckpt_family_clamp = CKPT_OP_FAMILY(ops);
