/*
 * Element-wise activations (one table), softmax (sums in double), and what leaves elements as they
 * are: dropout outside training, identity.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

/* Up to two numbers that a function takes beside x. */
struct extras {
    double a, b;
};

static double relu(double x, struct extras e) {
    (void)e;
    return x > 0 || isnan(x) ? x : 0;
}

static double gelu(double x, struct extras e) {
    (void)e;
    return 0.5 * x * (1 + erf(x * M_SQRT1_2));
}

static double gelu_tanh(double x, struct extras e) {
    (void)e;
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double sigmoid(double x, struct extras e) {
    (void)e;
    return 1 / (1 + exp(-x));
}

static double silu(double x, struct extras e) {
    return x * sigmoid(x, e);
}

static double hyperbolic_tangent(double x, struct extras e) {
    (void)e;
    return tanh(x);
}

static double leaky_relu(double x, struct extras e) {
    return x > 0 ? x : x * e.a;
}

static double elu(double x, struct extras e) {
    return x > 0 ? x : e.a * expm1(x);
}

static double hardtanh(double x, struct extras e) {
    return x < e.a ? e.a : x > e.b ? e.b : x;
}

static double hardsigmoid(double x, struct extras e) {
    (void)e;
    return hardtanh(x + 3, (struct extras){0, 6}) / 6;
}

static double hardswish(double x, struct extras e) {
    return x * hardsigmoid(x, e);
}

static double softplus(double x, struct extras e) {
    return x * e.a > e.b ? x : log1p(exp(x * e.a)) / e.a;
}

static double mish(double x, struct extras e) {
    (void)e;
    return x * tanh(softplus(x, (struct extras){1, 20}));
}

static double selu(double x, struct extras e) {
    (void)e;
    const double scale = 1.0507009873554805, alpha = 1.6732632423543772;
    return scale * (x > 0 ? x : alpha * expm1(x));
}

static double softsign(double x, struct extras e) {
    (void)e;
    return x / (1 + fabs(x));
}

static double logsigmoid(double x, struct extras e) {
    (void)e;
    return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

static const struct {
    const char *name;
    double (*f)(double, struct extras);
    const char *extra[2]; /* argument names */
    double otherwise[2];
} functions[] = {
    {"relu", relu, {NULL, NULL}, {0, 0}},
    {"gelu", gelu, {NULL, NULL}, {0, 0}},
    {"silu", silu, {NULL, NULL}, {0, 0}},
    {"tanh", hyperbolic_tangent, {NULL, NULL}, {0, 0}},
    {"sigmoid", sigmoid, {NULL, NULL}, {0, 0}},
    {"leaky_relu", leaky_relu, {"negative_slope", NULL}, {0.01, 0}},
    {"elu", elu, {"alpha", NULL}, {1, 0}},
    {"hardtanh", hardtanh, {"min_val", "max_val"}, {-1, 1}},
    {"relu6", hardtanh, {NULL, NULL}, {0, 6}},
    {"hardsigmoid", hardsigmoid, {NULL, NULL}, {0, 0}},
    {"hardswish", hardswish, {NULL, NULL}, {0, 0}},
    {"softplus", softplus, {"beta", "threshold"}, {1, 20}},
    {"mish", mish, {NULL, NULL}, {0, 0}},
    {"selu", selu, {NULL, NULL}, {0, 0}},
    {"softsign", softsign, {NULL, NULL}, {0, 0}},
    {"log_sigmoid", logsigmoid, {NULL, NULL}, {0, 0}},
};

static double extra(const struct ckpt_call *c, size_t function, int which) {
    const char *const name = functions[function].extra[which];
    const double otherwise = functions[function].otherwise[which];
    return name ? ckpt_call_float(c, name, otherwise) : otherwise;
}

static bool wants_tanh(const struct ckpt_call *c) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, "approximate");
    return a && a->kind == CKPT_ARG_STRING && strcmp(a->string, "tanh") == 0;
}

int ckpt_op_elementwise(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0};
    size_t k = 0;
    while (strcmp(functions[k].name, c->op->name) != 0)
        k++;
    int rc = ckpt_call_input(c, "self", &x, err);
    if (rc == 0)
        rc = ckpt_call_result(c, x.shape, x.ndim, err);
    if (rc < 0)
        return rc;
    const struct extras e = {extra(c, k, 0), extra(c, k, 1)};
    double (*const f)(double, struct extras) = wants_tanh(c) ? gelu_tanh : functions[k].f;
    const int64_t count = ckpt_array_count(&x);
    for (int64_t i = 0; i < count; i++)
        ckpt_array_f32(c->out)[i] = (float)f((double)ckpt_array_f32(&x)[i], e);
    return 0;
}

/* One row of n elements `step` apart. */
static void softmax_row(const float *x, float *y, int64_t n, int64_t step, bool logarithm) {
    double most = -(double)INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, (double)x[i * step]);
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i * step] - most);
    const double log_sum = log(sum);
    for (int64_t i = 0; i < n; i++) {
        const double shifted = (double)x[i * step] - most;
        y[i * step] = (float)(logarithm ? shifted - log_sum : exp(shifted) / sum);
    }
}

static int softmax(struct ckpt_call *c, bool logarithm, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0};
    int rc = ckpt_call_input(c, "self", &x, err);
    if (rc == 0)
        rc = ckpt_call_result(c, x.shape, x.ndim, err);
    if (rc < 0)
        return rc;
    int64_t dim = ckpt_call_int(c, "dim", -1);
    dim += dim < 0 ? (int64_t)x.ndim : 0;
    if (dim < 0 || dim >= (int64_t)x.ndim)
        return ckpt_fail(err, -EINVAL, "no dimension %lld in an input of %u", (long long)dim,
                         x.ndim);
    const int64_t n = x.shape[dim], step = x.stride[dim], count = ckpt_array_count(&x);
    for (int64_t outer = 0; n > 0 && outer < count; outer += n * step)
        for (int64_t inner = 0; inner < step; inner++)
            softmax_row(ckpt_array_f32(&x) + outer + inner, ckpt_array_f32(c->out) + outer + inner,
                        n, step, logarithm);
    return 0;
}

int ckpt_op_softmax(struct ckpt_call *c, struct ckpt_err *err) {
    return softmax(c, false, err);
}

int ckpt_op_log_softmax(struct ckpt_call *c, struct ckpt_err *err) {
    return softmax(c, true, err);
}

int ckpt_op_identity(struct ckpt_call *c, struct ckpt_err *err) {
    if (ckpt_call_bool(c, "train", false))
        return ckpt_fail(err, -EOPNOTSUPP, "runs in training mode; save the model after eval()");
    return ckpt_call_input(c, ckpt_call_arg(c, "self") ? "self" : "input", c->out, err);
}
