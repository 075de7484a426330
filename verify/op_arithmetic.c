/* Arithmetic of two or three operands. Integers wrap as PyTorch's do. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "verify/elementwise.h"

/* ---- of floats ---- */

static double add(const double *v, const struct ckpt_scalar *p) {
    return v[0] + p[0].f * v[1];
}

static double sub(const double *v, const struct ckpt_scalar *p) {
    return v[0] - p[0].f * v[1];
}

static double rsub(const double *v, const struct ckpt_scalar *p) {
    return v[1] - p[0].f * v[0];
}

static double mul(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] * v[1];
}

static double divide(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] / v[1];
}

static double divide_trunc(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return trunc(v[0] / v[1]);
}

/* The sign of the divisor, as in Python. */
static double python_remainder(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    const double r = fmod(v[0], v[1]);
    return r != 0 && (v[1] < 0) != (r < 0) ? r + v[1] : r;
}

/* As Python's //: the quotient of what the remainder leaves, so that both fit together. */
static double divide_floor(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    if (v[1] == 0)
        return v[0] / v[1];
    const double r = fmod(v[0], v[1]);
    double q = (v[0] - r) / v[1];
    if (r != 0 && (v[1] < 0) != (r < 0))
        q -= 1;
    if (q == 0)
        return copysign(0, v[0] / v[1]);
    return q - floor(q) > 0.5 ? floor(q) + 1 : floor(q);
}

static double c_remainder(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return fmod(v[0], v[1]);
}

static double power(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[1] == 2 ? v[0] * v[0] : pow(v[0], v[1]);
}

static double maximum(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] > v[1] || isnan(v[0]) ? v[0] : v[1];
}

static double minimum(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] < v[1] || isnan(v[0]) ? v[0] : v[1];
}

static double angle(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return atan2(v[0], v[1]);
}

static double hypotenuse(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return hypot(v[0], v[1]);
}

static double with_sign(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return copysign(v[0], v[1]);
}

static double x_log_y(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return isnan(v[1]) ? v[1] : v[0] == 0 ? 0 : v[0] * log(v[1]);
}

static double add_product(const double *v, const struct ckpt_scalar *p) {
    return v[0] + p[0].f * v[1] * v[2];
}

static double add_quotient(const double *v, const struct ckpt_scalar *p) {
    return v[0] + p[0].f * v[1] / v[2];
}

/* From the nearer end, as PyTorch does it. */
static double interpolate(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    const double d = v[1] - v[0];
    return fabs(v[2]) < 0.5 ? v[0] + v[2] * d : v[1] - d * (1 - v[2]);
}

CKPT_ROWS_F32_2(add_rows, a + (float)p[0].f * b)
CKPT_ROWS_F32_2(sub_rows, a - (float)p[0].f * b)
CKPT_ROWS_F32_2(rsub_rows, b - (float)p[0].f * a)
CKPT_ROWS_F32_2(mul_rows, a *b)
CKPT_ROWS_F32_2(divide_rows, a / b)
CKPT_ROWS_F32_2(maximum_rows, a > b || a != a ? a : b)
CKPT_ROWS_F32_2(minimum_rows, a < b || a != a ? a : b)

/* ---- of integers: unsigned, where they may overflow ---- */

static int64_t product(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

static int64_t difference(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static int64_t add_int(const int64_t *v, const struct ckpt_scalar *p) {
    return (int64_t)((uint64_t)v[0] + (uint64_t)product(p[0].i, v[1]));
}

static int64_t sub_int(const int64_t *v, const struct ckpt_scalar *p) {
    return difference(v[0], product(p[0].i, v[1]));
}

static int64_t rsub_int(const int64_t *v, const struct ckpt_scalar *p) {
    return difference(v[1], product(p[0].i, v[0]));
}

static int64_t mul_int(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return product(v[0], v[1]);
}

static int64_t divide_trunc_int(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[1] == -1 ? difference(0, v[0]) : v[0] / v[1];
}

static int64_t c_remainder_int(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[1] == -1 ? 0 : v[0] % v[1];
}

static int64_t remainder_int(const int64_t *v, const struct ckpt_scalar *p) {
    const int64_t r = c_remainder_int(v, p);
    return r != 0 && (v[1] < 0) != (r < 0) ? r + v[1] : r;
}

static int64_t divide_floor_int(const int64_t *v, const struct ckpt_scalar *p) {
    const bool down = c_remainder_int(v, p) != 0 && (v[0] < 0) != (v[1] < 0);
    return divide_trunc_int(v, p) - down;
}

static int64_t power_int(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    int64_t base = v[0], result = 1;
    if (v[1] < 0)
        return base == 1 ? 1 : base == -1 ? (v[1] % 2 ? -1 : 1) : 0;
    for (uint64_t e = (uint64_t)v[1]; e; e >>= 1) {
        if (e & 1)
            result = product(result, base);
        base = product(base, base);
    }
    return result;
}

static int64_t maximum_int(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] > v[1] ? v[0] : v[1];
}

static int64_t minimum_int(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] < v[1] ? v[0] : v[1];
}

static int64_t add_product_int(const int64_t *v, const struct ckpt_scalar *p) {
    return (int64_t)((uint64_t)v[0] + (uint64_t)product(p[0].i, product(v[1], v[2])));
}

/* ---- tables ---- */

static const struct ckpt_function functions[] = {
    {"add", add, add_int, add_rows, CKPT_INTS_TO_F32, {"alpha"}, {1}},
    {"sub", sub, sub_int, sub_rows, CKPT_NO_BOOL, {"alpha"}, {1}},
    {"subtract", sub, sub_int, sub_rows, CKPT_NO_BOOL, {"alpha"}, {1}},
    {"rsub", rsub, rsub_int, rsub_rows, CKPT_NO_BOOL, {"alpha"}, {1}},
    {"mul", mul, mul_int, mul_rows, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"multiply", mul, mul_int, mul_rows, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"true_divide", divide, NULL, divide_rows, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"floor_divide", divide_floor, divide_floor_int, NULL, CKPT_DIVIDES, {NULL}, {0}},
    {"trunc_divide", divide_trunc, divide_trunc_int, NULL, CKPT_DIVIDES, {NULL}, {0}},
    {"remainder", python_remainder, remainder_int, NULL, CKPT_DIVIDES, {NULL}, {0}},
    {"fmod", c_remainder, c_remainder_int, NULL, CKPT_DIVIDES, {NULL}, {0}},
    {"pow", power, power_int, NULL, CKPT_NO_BOOL, {NULL}, {0}},
    {"maximum", maximum, maximum_int, maximum_rows, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"minimum", minimum, minimum_int, minimum_rows, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"max", maximum, maximum_int, maximum_rows, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"min", minimum, minimum_int, minimum_rows, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"atan2", angle, NULL, NULL, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"arctan2", angle, NULL, NULL, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"hypot", hypotenuse, NULL, NULL, CKPT_FLOATS_ONLY, {NULL}, {0}},
    {"copysign", with_sign, NULL, NULL, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"xlogy", x_log_y, NULL, NULL, CKPT_INTS_TO_F32, {NULL}, {0}},
    {"addcmul", add_product, add_product_int, NULL, CKPT_NO_BOOL, {"value"}, {1}},
    {"addcdiv", add_quotient, NULL, NULL, CKPT_FLOATS_ONLY, {"value"}, {1}},
    {"lerp", interpolate, NULL, NULL, CKPT_FLOATS_ONLY, {NULL}, {0}},
};

static int of_two(struct ckpt_call *c, const char *name, struct ckpt_err *err) {
    static const char *const names[] = {"self", "other"};
    return ckpt_elementwise(c, ckpt_function_find(functions, name), names, 2, err);
}

static int binary(struct ckpt_call *c, struct ckpt_err *err) {
    return of_two(c, c->op->name, err);
}

static int op_pow(struct ckpt_call *c, struct ckpt_err *err) {
    static const char *const names[] = {"self", "exponent"};
    return ckpt_elementwise(c, ckpt_function_find(functions, "pow"), names, 2, err);
}

static int op_div(struct ckpt_call *c, struct ckpt_err *err) {
    const struct ckpt_arg *const mode = ckpt_call_arg(c, "rounding_mode");
    if (!mode)
        return of_two(c, "true_divide", err);
    if (mode->kind == CKPT_ARG_STRING && strcmp(mode->string, "floor") == 0)
        return of_two(c, "floor_divide", err);
    if (mode->kind == CKPT_ARG_STRING && strcmp(mode->string, "trunc") == 0)
        return of_two(c, "trunc_divide", err);
    return ckpt_fail(err, -EINVAL, "rounding_mode is neither None, \"floor\" nor \"trunc\"");
}

static int ternary(struct ckpt_call *c, struct ckpt_err *err) {
    static const char *const names[] = {"self", "tensor1", "tensor2"};
    return ckpt_elementwise(c, ckpt_function_find(functions, c->op->name), names, 3, err);
}

static int op_lerp(struct ckpt_call *c, struct ckpt_err *err) {
    static const char *const names[] = {"self", "end", "weight"};
    return ckpt_elementwise(c, ckpt_function_find(functions, "lerp"), names, 3, err);
}

#define TENSOR_OR_SCALAR(name, more, run)                                                          \
    {name, name ".Tensor(Tensor self, Tensor other" more ") -> Tensor", run}, {                    \
        name, name ".Scalar(Tensor self, Scalar other" more ") -> Tensor", run                     \
    }
#define WITH_ALPHA(name)                                                                           \
    {name, name ".Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", binary}, {      \
        name, name ".Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", binary          \
    }
#define WITH_MODE(name)                                                                            \
    {name, name ".Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",        \
     op_div},                                                                                      \
    {                                                                                              \
        name, name ".Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",     \
            op_div                                                                                 \
    }

static const struct ckpt_op ops[] = {
    WITH_ALPHA("add"),
    WITH_ALPHA("sub"),
    WITH_ALPHA("subtract"),
    WITH_ALPHA("rsub"),
    TENSOR_OR_SCALAR("mul", "", binary),
    TENSOR_OR_SCALAR("multiply", "", binary),
    TENSOR_OR_SCALAR("div", "", op_div),
    WITH_MODE("div"),
    TENSOR_OR_SCALAR("divide", "", op_div),
    WITH_MODE("divide"),
    TENSOR_OR_SCALAR("true_divide", "", binary),
    {"floor_divide", "floor_divide(Tensor self, Tensor other) -> Tensor", binary},
    {"floor_divide", "floor_divide.Scalar(Tensor self, Scalar other) -> Tensor", binary},
    TENSOR_OR_SCALAR("remainder", "", binary),
    {"remainder", "remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor", binary},
    TENSOR_OR_SCALAR("fmod", "", binary),
    {"pow", "pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor", op_pow},
    {"pow", "pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", op_pow},
    {"pow", "pow.Scalar(Scalar self, Tensor exponent) -> Tensor", op_pow},
    {"maximum", "maximum(Tensor self, Tensor other) -> Tensor", binary},
    {"minimum", "minimum(Tensor self, Tensor other) -> Tensor", binary},
    {"max", "max.other(Tensor self, Tensor other) -> Tensor", binary},
    {"min", "min.other(Tensor self, Tensor other) -> Tensor", binary},
    {"atan2", "atan2(Tensor self, Tensor other) -> Tensor", binary},
    {"arctan2", "arctan2(Tensor self, Tensor other) -> Tensor", binary},
    {"hypot", "hypot(Tensor self, Tensor other) -> Tensor", binary},
    TENSOR_OR_SCALAR("copysign", "", binary),
    {"xlogy", "xlogy.Tensor(Tensor self, Tensor other) -> Tensor", binary},
    {"addcmul", "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
     ternary},
    {"addcdiv", "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
     ternary},
    {"lerp", "lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor", op_lerp},
    {"lerp", "lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor", op_lerp},
};

const struct ckpt_op_family ckpt_family_arithmetic = CKPT_OP_FAMILY(ops);
