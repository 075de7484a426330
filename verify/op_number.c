/*
 * Python's operators on plain numbers, which graphs of symbolic sizes contain. Integers stay
 * integers; what Python would make larger than 64 bits is an error.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "verify/op.h"

static struct ckpt_scalar of_int(int64_t i) {
    return (struct ckpt_scalar){CKPT_DT_I64, i, (double)i};
}

static struct ckpt_scalar of_float(double f) {
    return (struct ckpt_scalar){CKPT_DT_F64, 0, f};
}

static struct ckpt_scalar of_bool(bool b) {
    return (struct ckpt_scalar){CKPT_DT_BOOL, b, b};
}

static bool is_float(struct ckpt_scalar s) {
    return s.dtype == CKPT_DT_F64;
}

static bool holds(struct ckpt_scalar s) {
    return is_float(s) ? s.f != 0 : s.i != 0;
}

static int take(const struct ckpt_call *c, const char *name, struct ckpt_scalar *s,
                struct ckpt_err *err) {
    *s = ckpt_call_scalar(c, name);
    return s->dtype == CKPT_DT_NONE ? ckpt_fail(err, -EINVAL, "%s is no number", name) : 0;
}

static int take_two(const struct ckpt_call *c, struct ckpt_scalar *a, struct ckpt_scalar *b,
                    struct ckpt_err *err) {
    const int rc = take(c, "a", a, err);
    return rc < 0 ? rc : take(c, "b", b, err);
}

/* ---- of two numbers ---- */

/* Rounded down, with a remainder of b's sign; b is not 0. */
static bool floor_divide(int64_t a, int64_t b, int64_t *out) {
    if (a == INT64_MIN && b == -1)
        return false;
    *out = a / b - (a % b != 0 && (a < 0) != (b < 0));
    return true;
}

static bool modulo(int64_t a, int64_t b, int64_t *out) {
    *out = b == -1 ? 0 : a % b;
    *out += *out != 0 && (*out < 0) != (b < 0) ? b : 0;
    return true;
}

static bool subtract(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_sub_overflow(a, b, out);
}

/* b is not negative. */
static bool power(int64_t a, int64_t b, int64_t *out) {
    *out = 1;
    if (a == 0 || a == 1 || a == -1)
        *out = b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a;
    else
        for (; b > 0; b--)
            if (!ckpt_mul_i64(*out, a, out))
                return false;
    return true;
}

static bool shift_left(int64_t a, int64_t b, int64_t *out) {
    return b >= 0 && b < 63 && ckpt_mul_i64(a, (int64_t)1 << b, out);
}

static bool shift_right(int64_t a, int64_t b, int64_t *out) {
    *out = b < 0 ? 0 : a >> (b < 63 ? b : 63);
    return b >= 0;
}

static double add_floats(double a, double b) {
    return a + b;
}

static double subtract_floats(double a, double b) {
    return a - b;
}

static double multiply_floats(double a, double b) {
    return a * b;
}

static double floor_divide_floats(double a, double b) {
    return floor(a / b);
}

static double modulo_floats(double a, double b) {
    const double r = fmod(a, b);
    return r != 0 && signbit(r) != signbit(b) ? r + b : r;
}

static double divide_floats(double a, double b) {
    return a / b;
}

static const struct {
    const char *name;
    bool (*i)(int64_t, int64_t, int64_t *); /* false: beyond 64 bits; NULL: gives a float */
    double (*f)(double, double);            /* NULL: of integers only */
    bool divides;
} arithmetic[] = {
    {"_operator.add", ckpt_add_i64, add_floats, false},
    {"_operator.sub", subtract, subtract_floats, false},
    {"_operator.mul", ckpt_mul_i64, multiply_floats, false},
    {"_operator.floordiv", floor_divide, floor_divide_floats, true},
    {"_operator.truediv", NULL, divide_floats, true},
    {"_operator.mod", modulo, modulo_floats, true},
    {"_operator.pow", power, pow, false},
    {"_operator.lshift", shift_left, NULL, false},
    {"_operator.rshift", shift_right, NULL, false},
};

static int two(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar a, b;
    size_t k = 0;
    int64_t out = 0;
    const int rc = take_two(c, &a, &b, err);
    if (rc < 0)
        return rc;
    while (strcmp(arithmetic[k].name, c->op->name) != 0)
        k++;
    const bool floats =
        is_float(a) || is_float(b) || !arithmetic[k].i || (arithmetic[k].i == power && b.i < 0);
    if (arithmetic[k].divides && !holds(b))
        return ckpt_fail(err, -EINVAL, "divides by zero");
    if (floats && !arithmetic[k].f)
        return ckpt_fail(err, -EINVAL, "of a number that is no integer");
    if (floats)
        return ckpt_call_give(c, of_float(arithmetic[k].f(a.f, b.f)), err);
    if (!arithmetic[k].i(a.i, b.i, &out))
        return ckpt_fail(err, -EOVERFLOW, "of %lld and %lld is no integer of 64 bits",
                         (long long)a.i, (long long)b.i);
    return ckpt_call_give(c, of_int(out), err);
}

/* ---- comparisons ---- */

enum { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };

static unsigned order_of(struct ckpt_scalar a, struct ckpt_scalar b) {
    if (!is_float(a) && !is_float(b))
        return a.i < b.i ? LESS : a.i > b.i ? GREATER : EQUAL;
    return a.f < b.f ? LESS : a.f > b.f ? GREATER : a.f == b.f ? EQUAL : UNORDERED;
}

static const struct {
    const char *name;
    unsigned orders; /* in which it holds */
} comparisons[] = {
    {"_operator.lt", LESS},    {"_operator.le", LESS | EQUAL},
    {"_operator.eq", EQUAL},   {"_operator.ne", LESS | GREATER | UNORDERED},
    {"_operator.gt", GREATER}, {"_operator.ge", GREATER | EQUAL},
};

static int compare(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar a = {0}, b = {0};
    size_t k = 0;
    const int rc = take_two(c, &a, &b, err);
    while (strcmp(comparisons[k].name, c->op->name) != 0)
        k++;
    return rc < 0 ? rc : ckpt_call_give(c, of_bool(comparisons[k].orders & order_of(a, b)), err);
}

/* The larger or the smaller; of two equal ones the first. */
static int extreme(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar a, b;
    const int rc = take_two(c, &a, &b, err);
    const unsigned wanted = strcmp(c->op->name, "torch.sym_max") == 0 ? LESS : GREATER;
    if (rc < 0)
        return rc;
    const bool floats = is_float(a) || is_float(b);
    const struct ckpt_scalar s = order_of(a, b) == wanted ? b : a;
    return ckpt_call_give(c, floats ? of_float(s.f) : s, err);
}

static int bitwise(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar a, b;
    const int rc = take_two(c, &a, &b, err);
    if (rc < 0)
        return rc;
    if (is_float(a) || is_float(b))
        return ckpt_fail(err, -EINVAL, "of a number that is no integer");
    const int64_t out = strcmp(c->op->name, "_operator.and_") == 0 ? a.i & b.i : a.i | b.i;
    const bool truth = a.dtype == CKPT_DT_BOOL && b.dtype == CKPT_DT_BOOL;
    return ckpt_call_give(c, truth ? of_bool(out) : of_int(out), err);
}

/* ---- of one number ---- */

static int negate(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar a;
    const int rc = take(c, "a", &a, err);
    if (rc == 0 && !is_float(a) && a.i == INT64_MIN)
        return ckpt_fail(err, -EOVERFLOW, "of %lld is no integer of 64 bits", (long long)a.i);
    return rc < 0 ? rc : ckpt_call_give(c, is_float(a) ? of_float(-a.f) : of_int(-a.i), err);
}

static int same(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar a;
    const int rc = take(c, "a", &a, err);
    return rc < 0 ? rc : ckpt_call_give(c, is_float(a) ? a : of_int(a.i), err);
}

static int negation(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar a;
    const int rc = take(c, "a", &a, err);
    return rc < 0 ? rc : ckpt_call_give(c, of_bool(!holds(a)), err);
}

static int to_float(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar a;
    const int rc = take(c, "a", &a, err);
    return rc < 0 ? rc : ckpt_call_give(c, of_float(a.f), err);
}

static int root(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar a;
    const int rc = take(c, "a", &a, err);
    if (rc == 0 && a.f < 0)
        return ckpt_fail(err, -EINVAL, "of a negative number");
    return rc < 0 ? rc : ckpt_call_give(c, of_float(sqrt(a.f)), err);
}

/* To an integer, as the name says. */
static int whole(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar a;
    const char *const name = c->op->name;
    const int rc = take(c, ckpt_call_arg(c, "x") ? "x" : "a", &a, err);
    if (rc < 0 || !is_float(a))
        return rc < 0 ? rc : ckpt_call_give(c, of_int(a.i), err);
    const double f = strcmp(name, "math.ceil") == 0    ? ceil(a.f)
                     : strcmp(name, "math.floor") == 0 ? floor(a.f)
                                                       : trunc(a.f);
    if (!(f >= -0x1p63 && f < 0x1p63))
        return ckpt_fail(err, -EOVERFLOW, "of %g is no integer of 64 bits", a.f);
    return ckpt_call_give(c, of_int((int64_t)f), err);
}

static int choose(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar b, s;
    int rc = take(c, "b", &b, err);
    if (rc == 0)
        rc = take(c, holds(b) ? "t" : "f", &s, err);
    return rc < 0 ? rc : ckpt_call_give(c, s, err);
}

#define TWO(name, run)                                                                             \
    { name, name "(Scalar a, Scalar b) -> Scalar", run }
#define ONE(name, argument, run)                                                                   \
    { name, name "(Scalar " argument ") -> Scalar", run }

/* Not ATen's: named as the graph names Python's functions. */
static const struct ckpt_op ops[] = {
    TWO("_operator.add", two),
    TWO("_operator.sub", two),
    TWO("_operator.mul", two),
    TWO("_operator.floordiv", two),
    TWO("_operator.truediv", two),
    TWO("_operator.mod", two),
    TWO("_operator.pow", two),
    TWO("_operator.lshift", two),
    TWO("_operator.rshift", two),
    TWO("_operator.lt", compare),
    TWO("_operator.le", compare),
    TWO("_operator.eq", compare),
    TWO("_operator.ne", compare),
    TWO("_operator.gt", compare),
    TWO("_operator.ge", compare),
    TWO("_operator.and_", bitwise),
    TWO("_operator.or_", bitwise),
    TWO("torch.sym_max", extreme),
    TWO("torch.sym_min", extreme),
    ONE("_operator.neg", "a", negate),
    ONE("_operator.pos", "a", same),
    ONE("_operator.not_", "a", negation),
    ONE("torch.sym_not", "a", negation),
    ONE("torch.sym_int", "a", whole),
    ONE("torch.sym_float", "a", to_float),
    ONE("torch._sym_sqrt", "a", root),
    ONE("math.trunc", "x", whole),
    ONE("math.floor", "x", whole),
    ONE("math.ceil", "x", whole),
    {"torch.sym_ite", "torch.sym_ite(bool b, Scalar t, Scalar f) -> Scalar", choose},
};

const struct ckpt_op_family ckpt_family_number = CKPT_OP_FAMILY(ops);
