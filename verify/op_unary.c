/* Functions of one element that are no activations, and bounds. */
#include <float.h>
#include <math.h>

#include "verify/elementwise.h"

/* A function of floats, x being the element. */
#define FLOATS(name, expression)                                                                   \
    static double name(const double *v, const struct ckpt_scalar *p) {                             \
        const double x = v[0];                                                                     \
        (void)p;                                                                                   \
        return (expression);                                                                       \
    }
#define INTEGERS(name, expression)                                                                 \
    static int64_t name(const int64_t *v, const struct ckpt_scalar *p) {                           \
        const int64_t x = v[0];                                                                    \
        (void)p;                                                                                   \
        return (expression);                                                                       \
    }

FLOATS(magnitude, fabs(x))
FLOATS(negative, -x)
FLOATS(exponential, exp(x))
FLOATS(exponential2, exp2(x))
FLOATS(exponential_m1, expm1(x))
FLOATS(logarithm, log(x))
FLOATS(logarithm1p, log1p(x))
FLOATS(logarithm2, log2(x))
FLOATS(logarithm10, log10(x))
FLOATS(root, sqrt(x))
FLOATS(one_by_root, 1 / sqrt(x))
FLOATS(one_by, 1 / x)
FLOATS(sine, sin(x))
FLOATS(cosine, cos(x))
FLOATS(tangent, tan(x))
FLOATS(arc_sine, asin(x))
FLOATS(arc_cosine, acos(x))
FLOATS(arc_tangent, atan(x))
FLOATS(sine_h, sinh(x))
FLOATS(cosine_h, cosh(x))
FLOATS(area_sine, asinh(x))
FLOATS(area_cosine, acosh(x))
FLOATS(area_tangent, atanh(x))
FLOATS(error_function, erf(x))
FLOATS(error_complement, erfc(x))
FLOATS(down, floor(x))
FLOATS(up, ceil(x))
FLOATS(to_zero, trunc(x))
FLOATS(fraction, x - trunc(x))
FLOATS(sign, (x > 0) - (x < 0))
FLOATS(squared, x *x)
FLOATS(to_radians, x *(M_PI / 180))
/* Halves to even; p: after which decimal digit. */
FLOATS(nearest, p[0].f == 0 ? rint(x) : rint(x * pow(10, p[0].f)) / pow(10, p[0].f))
/* p: the bound on both sides, if there is one. */
FLOATS(log_odds, p[0].dtype == CKPT_DT_NONE ? log(x / (1 - x))
                 : x < p[0].f               ? log(p[0].f / (1 - p[0].f))
                 : x > 1 - p[0].f           ? log((1 - p[0].f) / p[0].f)
                                            : log(x / (1 - x)))

/* p: what stands for NaN, infinity and minus infinity; the latter two are else the dtype's largest.
 */
static double to_finite(double x, const struct ckpt_scalar *p, double largest) {
    if (isnan(x))
        return p[0].f;
    if (!isinf(x))
        return x;
    const struct ckpt_scalar *const s = &p[x > 0 ? 1 : 2];
    return s->dtype != CKPT_DT_NONE ? s->f : x > 0 ? largest : -largest;
}
FLOATS(made_finite, to_finite(x, p, DBL_MAX))
CKPT_ROWS_F32_1(made_finite_rows, (float)to_finite((double)x, p, (double)FLT_MAX))

INTEGERS(magnitude_int, x < 0 ? (int64_t)(0 - (uint64_t)x) : x)
INTEGERS(negative_int, (int64_t)(0 - (uint64_t)x))
INTEGERS(squared_int, (int64_t)((uint64_t)x *(uint64_t)x))
INTEGERS(sign_int, (x > 0) - (x < 0))
INTEGERS(itself, x)

CKPT_ROWS_F32_1(negative_rows, -x)
CKPT_ROWS_F32_1(squared_rows, x *x)
CKPT_ROWS_F32_1(exponential_rows, expf(x))

#define PROMOTES(name, f)                                                                          \
    {                                                                                              \
        name, f, NULL, NULL, CKPT_INTS_TO_F32, {NULL}, {                                           \
            0                                                                                      \
        }                                                                                          \
    }
#define OF_BOTH(name, f, i)                                                                        \
    {                                                                                              \
        name, f, i, NULL, CKPT_NO_BOOL, {NULL}, {                                                  \
            0                                                                                      \
        }                                                                                          \
    }

static const struct ckpt_function functions[] = {
    OF_BOTH("abs", magnitude, magnitude_int),
    {"neg", negative, negative_int, negative_rows, CKPT_NO_BOOL, {NULL}, {0}},
    {"exp", exponential, NULL, exponential_rows, CKPT_INTS_TO_F32, {NULL}, {0}},
    PROMOTES("exp2", exponential2),
    PROMOTES("expm1", exponential_m1),
    PROMOTES("log", logarithm),
    PROMOTES("log1p", logarithm1p),
    PROMOTES("log2", logarithm2),
    PROMOTES("log10", logarithm10),
    PROMOTES("sqrt", root),
    PROMOTES("rsqrt", one_by_root),
    PROMOTES("reciprocal", one_by),
    PROMOTES("sin", sine),
    PROMOTES("cos", cosine),
    PROMOTES("tan", tangent),
    PROMOTES("asin", arc_sine),
    PROMOTES("acos", arc_cosine),
    PROMOTES("atan", arc_tangent),
    PROMOTES("sinh", sine_h),
    PROMOTES("cosh", cosine_h),
    PROMOTES("asinh", area_sine),
    PROMOTES("acosh", area_cosine),
    PROMOTES("atanh", area_tangent),
    PROMOTES("erf", error_function),
    PROMOTES("erfc", error_complement),
    PROMOTES("deg2rad", to_radians),
    OF_BOTH("floor", down, itself),
    OF_BOTH("ceil", up, itself),
    OF_BOTH("trunc", to_zero, itself),
    OF_BOTH("fix", to_zero, itself),
    {"round", nearest, itself, NULL, CKPT_NO_BOOL, {"decimals"}, {0}},
    {"frac", fraction, NULL, NULL, CKPT_FLOATS_ONLY, {NULL}, {0}},
    {"sign", sign, sign_int, NULL, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"sgn", sign, sign_int, NULL, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"square", squared, squared_int, squared_rows, CKPT_NO_BOOL, {NULL}, {0}},
    {"logit", log_odds, NULL, NULL, CKPT_INTS_TO_F32, {"eps"}, {0}},
    {"nan_to_num",
     made_finite,
     itself,
     made_finite_rows,
     CKPT_INTS_TO_F32,
     {"nan", "posinf", "neginf"},
     {0}},
};

static int unary(struct ckpt_call *c, struct ckpt_err *err) {
    static const char *const names[] = {"self"};
    return ckpt_elementwise(c, ckpt_function_find(functions, c->op->name), names, 1, err);
}

#define ROW(name)                                                                                  \
    { name, name "(Tensor self) -> Tensor", unary }

static const struct ckpt_op ops[] = {
    ROW("abs"),
    ROW("neg"),
    ROW("exp"),
    ROW("exp2"),
    ROW("expm1"),
    ROW("log"),
    ROW("log1p"),
    ROW("log2"),
    ROW("log10"),
    ROW("sqrt"),
    ROW("rsqrt"),
    ROW("reciprocal"),
    ROW("sin"),
    ROW("cos"),
    ROW("tan"),
    ROW("asin"),
    ROW("acos"),
    ROW("atan"),
    ROW("sinh"),
    ROW("cosh"),
    ROW("asinh"),
    ROW("acosh"),
    ROW("atanh"),
    ROW("erf"),
    ROW("erfc"),
    ROW("deg2rad"),
    ROW("floor"),
    ROW("ceil"),
    ROW("trunc"),
    ROW("fix"),
    ROW("frac"),
    ROW("sign"),
    ROW("sgn"),
    ROW("square"),
    ROW("round"),
    {"round", "round.decimals(Tensor self, *, int decimals) -> Tensor", unary},
    {"logit", "logit(Tensor self, float? eps=None) -> Tensor", unary},
    {"nan_to_num",
     "nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
     unary},
};

const struct ckpt_op_family ckpt_family_unary = CKPT_OP_FAMILY(ops);
