/*
 * Activations. Those that networks for images are full of have a loop in float32 beside the
 * function in double.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/elementwise.h"

/* A function of x and of the numbers p. */
#define FUNCTION(name, expression)                                                                 \
    static double name(const double *v, const struct ckpt_scalar *p) {                             \
        const double x = v[0];                                                                     \
        (void)p;                                                                                   \
        return (expression);                                                                       \
    }

static double logistic(double x) {
    return 1 / (1 + exp(-x));
}

static double smooth_relu(double x, double beta, double threshold) {
    return x * beta > threshold ? x : log1p(exp(x * beta)) / beta;
}

static double bounded(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

FUNCTION(relu, x > 0 || isnan(x) ? x : 0)
FUNCTION(gelu, 0.5 * x * (1 + erf(x * M_SQRT1_2)))
FUNCTION(gelu_tanh, 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))))
FUNCTION(sigmoid, logistic(x))
FUNCTION(silu, x *logistic(x))
FUNCTION(hyperbolic_tangent, tanh(x))
FUNCTION(leaky_relu, x > 0 ? x : x * p[0].f)
FUNCTION(elu, x > 0 ? x * p[1].f : p[0].f * p[1].f * expm1(x * p[2].f))
FUNCTION(celu, x > 0 ? x : p[0].f * expm1(x / p[0].f))
FUNCTION(hardtanh, bounded(x, p[0].f, p[1].f))
FUNCTION(relu6, bounded(x, 0, 6))
FUNCTION(hardsigmoid, bounded(x + 3, 0, 6) / 6)
FUNCTION(hardswish, x *bounded(x + 3, 0, 6) / 6)
FUNCTION(softplus, smooth_relu(x, p[0].f, p[1].f))
FUNCTION(mish, x *tanh(smooth_relu(x, 1, 20)))
FUNCTION(selu, 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * expm1(x)))
FUNCTION(softsign, x / (1 + fabs(x)))
FUNCTION(log_sigmoid, x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)))
FUNCTION(threshold, x <= p[0].f ? p[1].f : x)
FUNCTION(hardshrink, x >= -p[0].f && x <= p[0].f ? 0 : x)
FUNCTION(softshrink, x > p[0].f ? x - p[0].f : x < -p[0].f ? x + p[0].f : x * 0)
FUNCTION(tanhshrink, x - tanh(x))
FUNCTION(rrelu, x > 0 ? x : x * (p[0].f + p[1].f) / 2)

static int64_t relu_int(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] > 0 ? v[0] : 0;
}

static inline float bounded_f32(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}

/* For float32, from one exponential: libm's take several times as long, and are as exact as double
 * is. The complement of the error function is a Chebyshev fit, its relative error below 1.2e-7. */
static inline double quick_tanh(double x) {
    const double e = exp(2 * x);
    return fabs(x) < 1e-4 ? x - x * x * x / 3 : x > 20 ? 1 : (e - 1) / (e + 1);
}

static inline double quick_erfc(double x) {
    const double z = fabs(x), t = 1 / (1 + 0.5 * z), t2 = t * t, t4 = t2 * t2;
    const double low = (-1.26551223 + 1.00002368 * t) + (0.37409196 + 0.09678418 * t) * t2;
    const double middle = (-0.18628806 + 0.27886807 * t) + (-1.13520398 + 1.48851587 * t) * t2;
    const double high = -0.82215223 + 0.17087277 * t;
    const double y = t * exp(-z * z + low + (middle + high * t4) * t4);
    return x >= 0 ? y : 2 - y;
}

static inline double quick_gelu_tanh(double x) {
    return 0.5 * x * (1 + quick_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

CKPT_ROWS_F32_1(relu_rows, x > 0 || x != x ? x : 0)
CKPT_ROWS_F32_1(leaky_relu_rows, x > 0 ? x : x * (float)p[0].f)
CKPT_ROWS_F32_1(hardtanh_rows, bounded_f32(x, (float)p[0].f, (float)p[1].f))
CKPT_ROWS_F32_1(relu6_rows, bounded_f32(x, 0, 6))
CKPT_ROWS_F32_1(hardsigmoid_rows, bounded_f32(x + 3, 0, 6) / 6)
CKPT_ROWS_F32_1(hardswish_rows, x *bounded_f32(x + 3, 0, 6) / 6)
CKPT_ROWS_F32_1(sigmoid_rows, 1 / (1 + expf(-x)))
CKPT_ROWS_F32_1(silu_rows, x / (1 + expf(-x)))
CKPT_ROWS_F32_1(gelu_rows, (float)(0.5 * (double)x * quick_erfc((double)-x * M_SQRT1_2)))
CKPT_ROWS_F32_1(gelu_tanh_rows, (float)quick_gelu_tanh((double)x))
CKPT_ROWS_F32_1(tanh_rows, (float)quick_tanh((double)x))

#define FLOATS(name, f, rows)                                                                      \
    {                                                                                              \
        name, f, NULL, rows, CKPT_FLOATS_ONLY, {NULL}, {                                           \
            0                                                                                      \
        }                                                                                          \
    }

static const struct ckpt_function functions[] = {
    {"relu", relu, relu_int, relu_rows, CKPT_NO_BOOL, {NULL}, {0}},
    FLOATS("gelu", gelu, gelu_rows),
    FLOATS("gelu_tanh", gelu_tanh, gelu_tanh_rows),
    FLOATS("silu", silu, silu_rows),
    {"tanh", hyperbolic_tangent, NULL, tanh_rows, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"sigmoid", sigmoid, NULL, sigmoid_rows, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"leaky_relu", leaky_relu, NULL, leaky_relu_rows, CKPT_FLOATS_ONLY, {"negative_slope"}, {0.01}},
    {"elu", elu, NULL, NULL, CKPT_FLOATS_ONLY, {"alpha", "scale", "input_scale"}, {1, 1, 1}},
    {"celu", celu, NULL, NULL, CKPT_FLOATS_ONLY, {"alpha"}, {1}},
    {"hardtanh", hardtanh, NULL, hardtanh_rows, CKPT_FLOATS_ONLY, {"min_val", "max_val"}, {-1, 1}},
    FLOATS("relu6", relu6, relu6_rows),
    FLOATS("hardsigmoid", hardsigmoid, hardsigmoid_rows),
    FLOATS("hardswish", hardswish, hardswish_rows),
    {"softplus", softplus, NULL, NULL, CKPT_FLOATS_ONLY, {"beta", "threshold"}, {1, 20}},
    FLOATS("mish", mish, NULL),
    FLOATS("selu", selu, NULL),
    FLOATS("softsign", softsign, NULL),
    FLOATS("log_sigmoid", log_sigmoid, NULL),
    {"threshold", threshold, NULL, NULL, CKPT_FLOATS_ONLY, {"threshold", "value"}, {0, 0}},
    {"hardshrink", hardshrink, NULL, NULL, CKPT_FLOATS_ONLY, {"lambd"}, {0.5}},
    {"softshrink", softshrink, NULL, NULL, CKPT_FLOATS_ONLY, {"lambd"}, {0.5}},
    FLOATS("tanhshrink", tanhshrink, NULL),
    {"rrelu", rrelu, NULL, NULL, CKPT_FLOATS_ONLY, {"lower", "upper"}, {1.0 / 8, 1.0 / 3}},
};

static int of_name(struct ckpt_call *c, const char *name, struct ckpt_err *err) {
    static const char *const names[] = {"self"};
    return ckpt_elementwise(c, ckpt_function_find(functions, name), names, 1, err);
}

static int activation(struct ckpt_call *c, struct ckpt_err *err) {
    return of_name(c, c->op->name, err);
}

static int op_gelu(struct ckpt_call *c, struct ckpt_err *err) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, "approximate");
    const bool tanh_form = a && a->kind == CKPT_ARG_STRING && strcmp(a->string, "tanh") == 0;
    return of_name(c, tanh_form ? "gelu_tanh" : "gelu", err);
}

static int refuse_training(struct ckpt_err *err) {
    return ckpt_fail(err, -EOPNOTSUPP, "runs in training mode; save the model after eval()");
}

static int op_rrelu(struct ckpt_call *c, struct ckpt_err *err) {
    if (ckpt_call_bool(c, "training", false))
        return refuse_training(err);
    return of_name(c, "rrelu", err);
}

/* Of the two halves, the second decides how much of the first comes through. */
CKPT_ROWS_F32_2(gate_rows, a / (1 + expf(-b)))

static int op_glu(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0}, first = {0}, second = {0};
    uint32_t dim = 0;
    int rc = ckpt_call_input(c, "self", &x, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dim", -1, x.ndim, &dim, err);
    if (rc < 0)
        return rc;
    if (x.ndim == 0 || x.shape[dim] % 2 != 0)
        return ckpt_fail(err, -EINVAL, "dimension %u cannot be halved", dim);
    const int64_t half = x.shape[dim] / 2;
    first = ckpt_array_slice(&x, dim, 0, half);
    second = ckpt_array_slice(&x, dim, half, half);
    rc = ckpt_call_result(c, first.shape, first.ndim, err);
    if (rc == 0)
        ckpt_array_rows((const struct ckpt_array *const[]){c->out, &first, &second}, 3, gate_rows,
                        NULL);
    return rc;
}

/* Dropout outside training, and what is called so. */
static int op_identity(struct ckpt_call *c, struct ckpt_err *err) {
    if (ckpt_call_bool(c, "train", false))
        return refuse_training(err);
    return ckpt_call_tensor(c, ckpt_call_arg(c, "self") ? "self" : "input", c->out, err);
}

/* ... with a mask that keeps everything. */
static int op_native_dropout(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0};
    if (ckpt_call_bool(c, "train", true))
        return refuse_training(err);
    int rc = ckpt_call_tensor(c, "input", &x, err);
    if (rc == 0 && c->nout > 1)
        rc = ckpt_call_new(c, 1, CKPT_DT_BOOL, x.shape, x.ndim, err);
    if (rc == 0 && c->nout > 1)
        memset(c->out[1].data, 1, (size_t)ckpt_array_count(&x));
    if (rc == 0)
        rc = ckpt_array_contiguous(&x, &c->exec->memory, c->out, err);
    return rc;
}

/* In place, PyTorch calls the operand otherwise. */
#define DROPOUT(name)                                                                              \
    {name, name "(Tensor input, float p, bool train) -> Tensor", op_identity}, {                   \
        name "_", name "_(Tensor self, float p, bool train) -> Tensor", op_identity                \
    }

static const struct ckpt_op ops[] = {
    {"relu", "relu(Tensor self) -> Tensor", activation},
    {"gelu", "gelu(Tensor self, *, str approximate='none') -> Tensor", op_gelu},
    {"silu", "silu(Tensor self) -> Tensor", activation},
    {"tanh", "tanh(Tensor self) -> Tensor", activation},
    {"sigmoid", "sigmoid(Tensor self) -> Tensor", activation},
    {"leaky_relu", "leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor", activation},
    {"elu", "elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
     activation},
    {"celu", "celu(Tensor self, Scalar alpha=1.0) -> Tensor", activation},
    {"hardtanh", "hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
     activation},
    {"relu6", "relu6(Tensor self) -> Tensor", activation},
    {"hardsigmoid", "hardsigmoid(Tensor self) -> Tensor", activation},
    {"hardswish", "hardswish(Tensor self) -> Tensor", activation},
    {"softplus", "softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor", activation},
    {"mish", "mish(Tensor self) -> Tensor", activation},
    {"selu", "selu(Tensor self) -> Tensor", activation},
    {"softsign", "softsign(Tensor self) -> Tensor", activation},
    {"log_sigmoid", "log_sigmoid(Tensor self) -> Tensor", activation},
    {"threshold", "threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor", activation},
    {"hardshrink", "hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor", activation},
    {"softshrink", "softshrink(Tensor self, Scalar lambd=0.5) -> Tensor", activation},
    {"tanhshrink", "tanhshrink(Tensor self) -> Tensor", activation},
    {"rrelu",
     "rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, "
     "bool training=False, Generator? generator=None) -> Tensor",
     op_rrelu},
    {"glu", "glu(Tensor self, int dim=-1) -> Tensor", op_glu},
    DROPOUT("dropout"),
    DROPOUT("feature_dropout"),
    DROPOUT("alpha_dropout"),
    DROPOUT("feature_alpha_dropout"),
    {"native_dropout", "native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
     op_native_dropout},
    {"identity", "identity(Tensor self) -> Tensor", op_identity},
};

const struct ckpt_op_family ckpt_family_activation = CKPT_OP_FAMILY(ops);
