/* Comparisons and logic, which give truth values, and bits of integers. */
#include <math.h>

#include "verify/elementwise.h"

/* Both of a function: of floats and of integers; p is not used. */
#define RELATION(name, expression)                                                                 \
    static double name(const double *v, const struct ckpt_scalar *p) {                             \
        (void)p;                                                                                   \
        return (expression);                                                                       \
    }                                                                                              \
    static int64_t name##_int(const int64_t *v, const struct ckpt_scalar *p) {                     \
        (void)p;                                                                                   \
        return (expression);                                                                       \
    }

RELATION(equal, v[0] == v[1])
RELATION(not_equal, v[0] != v[1])
RELATION(less, v[0] < v[1])
RELATION(less_equal, v[0] <= v[1])
RELATION(greater, v[0] > v[1])
RELATION(greater_equal, v[0] >= v[1])
RELATION(both, v[0] != 0 && v[1] != 0)
RELATION(either, v[0] != 0 || v[1] != 0)
RELATION(one_of, (v[0] != 0) != (v[1] != 0))
RELATION(not, v[0] == 0)

static double is_nan(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return isnan(v[0]);
}

static double is_infinite(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return isinf(v[0]) != 0;
}

static double is_finite(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return isfinite(v[0]);
}

static double is_plus_infinity(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] > 0 && isinf(v[0]);
}

static double is_minus_infinity(const double *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] < 0 && isinf(v[0]);
}

static int64_t and_bits(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] & v[1];
}

static int64_t or_bits(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] | v[1];
}

static int64_t xor_bits(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] ^ v[1];
}

static int64_t not_bits(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return ~v[0];
}

static int64_t shift_left(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[1] < 0 || v[1] > 63 ? 0 : (int64_t)((uint64_t)v[0] << v[1]);
}

static int64_t shift_right(const int64_t *v, const struct ckpt_scalar *p) {
    (void)p;
    return v[0] >> (v[1] < 0 || v[1] > 63 ? 63 : v[1]);
}

#define ROW(name, f, kind)                                                                         \
    {                                                                                              \
        name, f, f##_int, NULL, kind, {NULL}, {                                                    \
            0                                                                                      \
        }                                                                                          \
    }
#define FLOAT_ROW(name, f)                                                                         \
    {                                                                                              \
        name, f, NULL, NULL, CKPT_TRUTH, {NULL}, {                                                 \
            0                                                                                      \
        }                                                                                          \
    }
#define BITS_ROW(name, i)                                                                          \
    {                                                                                              \
        name, NULL, i, NULL, CKPT_INTS_ONLY, {NULL}, {                                             \
            0                                                                                      \
        }                                                                                          \
    }

static const struct ckpt_function functions[] = {
    ROW("eq", equal, CKPT_TRUTH),
    ROW("ne", not_equal, CKPT_TRUTH),
    ROW("lt", less, CKPT_TRUTH),
    ROW("le", less_equal, CKPT_TRUTH),
    ROW("gt", greater, CKPT_TRUTH),
    ROW("ge", greater_equal, CKPT_TRUTH),
    ROW("not_equal", not_equal, CKPT_TRUTH),
    ROW("less", less, CKPT_TRUTH),
    ROW("less_equal", less_equal, CKPT_TRUTH),
    ROW("greater", greater, CKPT_TRUTH),
    ROW("greater_equal", greater_equal, CKPT_TRUTH),
    ROW("logical_and", both, CKPT_TRUTH),
    ROW("logical_or", either, CKPT_TRUTH),
    ROW("logical_xor", one_of, CKPT_TRUTH),
    ROW("logical_not", not, CKPT_TRUTH),
    FLOAT_ROW("isnan", is_nan),
    FLOAT_ROW("isinf", is_infinite),
    FLOAT_ROW("isfinite", is_finite),
    FLOAT_ROW("isposinf", is_plus_infinity),
    FLOAT_ROW("isneginf", is_minus_infinity),
    BITS_ROW("bitwise_and", and_bits),
    BITS_ROW("bitwise_or", or_bits),
    BITS_ROW("bitwise_xor", xor_bits),
    BITS_ROW("__and__", and_bits),
    BITS_ROW("__or__", or_bits),
    BITS_ROW("__xor__", xor_bits),
    BITS_ROW("bitwise_not", not_bits),
    BITS_ROW("bitwise_left_shift", shift_left),
    BITS_ROW("bitwise_right_shift", shift_right),
    BITS_ROW("__lshift__", shift_left),
    BITS_ROW("__rshift__", shift_right),
};

static int binary(struct ckpt_call *c, struct ckpt_err *err) {
    static const char *const names[] = {"self", "other"};
    return ckpt_elementwise(c, ckpt_function_find(functions, c->op->name), names, 2, err);
}

static int unary(struct ckpt_call *c, struct ckpt_err *err) {
    static const char *const names[] = {"self"};
    return ckpt_elementwise(c, ckpt_function_find(functions, c->op->name), names, 1, err);
}

/* Of truth values it is logical. */
static int op_bitwise_not(struct ckpt_call *c, struct ckpt_err *err) {
    static const char *const names[] = {"self"};
    struct ckpt_array form;
    const int rc = ckpt_call_form(c, "self", &form, err);
    const char *const name = form.dtype == CKPT_DT_BOOL ? "logical_not" : "bitwise_not";
    return rc < 0 ? rc : ckpt_elementwise(c, ckpt_function_find(functions, name), names, 1, err);
}

#define BINARY(name, tensor, scalar)                                                               \
    {name, name "." tensor "(Tensor self, Tensor other) -> Tensor", binary}, {                     \
        name, name "." scalar "(Tensor self, Scalar other) -> Tensor", binary                      \
    }
#define PLAIN(name)                                                                                \
    { name, name "(Tensor self, Tensor other) -> Tensor", binary }
#define SCALAR_FIRST(name)                                                                         \
    { name, name ".Scalar_Tensor(Scalar self, Tensor other) -> Tensor", binary }
#define UNARY(name)                                                                                \
    { name, name "(Tensor self) -> Tensor", unary }

static const struct ckpt_op ops[] = {
    BINARY("eq", "Tensor", "Scalar"),
    BINARY("ne", "Tensor", "Scalar"),
    BINARY("lt", "Tensor", "Scalar"),
    BINARY("le", "Tensor", "Scalar"),
    BINARY("gt", "Tensor", "Scalar"),
    BINARY("ge", "Tensor", "Scalar"),
    BINARY("not_equal", "Tensor", "Scalar"),
    BINARY("less", "Tensor", "Scalar"),
    BINARY("less_equal", "Tensor", "Scalar"),
    BINARY("greater", "Tensor", "Scalar"),
    BINARY("greater_equal", "Tensor", "Scalar"),
    PLAIN("logical_and"),
    PLAIN("logical_or"),
    PLAIN("logical_xor"),
    UNARY("logical_not"),
    UNARY("isnan"),
    UNARY("isinf"),
    UNARY("isfinite"),
    UNARY("isposinf"),
    UNARY("isneginf"),
    BINARY("bitwise_and", "Tensor", "Scalar"),
    SCALAR_FIRST("bitwise_and"),
    BINARY("bitwise_or", "Tensor", "Scalar"),
    SCALAR_FIRST("bitwise_or"),
    BINARY("bitwise_xor", "Tensor", "Scalar"),
    SCALAR_FIRST("bitwise_xor"),
    BINARY("__and__", "Tensor", "Scalar"),
    BINARY("__or__", "Tensor", "Scalar"),
    BINARY("__xor__", "Tensor", "Scalar"),
    {"bitwise_not", "bitwise_not(Tensor self) -> Tensor", op_bitwise_not},
    BINARY("bitwise_left_shift", "Tensor", "Tensor_Scalar"),
    BINARY("bitwise_right_shift", "Tensor", "Tensor_Scalar"),
    BINARY("__lshift__", "Tensor", "Scalar"),
    BINARY("__rshift__", "Tensor", "Scalar"),
};

const struct ckpt_op_family ckpt_family_compare = CKPT_OP_FAMILY(ops);
