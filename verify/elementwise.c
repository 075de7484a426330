/* Promotion of dtypes, operands, and the loops that serve whatever function has none of its own. */
#include "verify/elementwise.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"

/* ---- promotion ---- */

/* Numbers of the same kind are ordered by width, kinds by what they can express. */
static int kind_of(enum ckpt_dtype t) {
    switch (t) {
    case CKPT_DT_BOOL:
        return 1;
    case CKPT_DT_I64:
        return 2;
    case CKPT_DT_F32:
    case CKPT_DT_F64:
        return 3;
    default:
        return 0;
    }
}

static enum ckpt_dtype wider(enum ckpt_dtype a, enum ckpt_dtype b) {
    if (kind_of(a) == kind_of(b))
        return a == CKPT_DT_F64 ? a : b;
    return kind_of(a) > kind_of(b) ? a : b;
}

/* Arrays of at least one dimension decide before 0-d ones, and these before numbers. */
struct promotion {
    enum ckpt_dtype by[3];
};

static enum ckpt_dtype promoted(const struct promotion *p) {
    enum ckpt_dtype t = p->by[0];
    for (int k = 1; k < 3; k++)
        t = kind_of(p->by[k]) > kind_of(t) ? p->by[k] : t;
    return t;
}

/* ---- operands ---- */

void ckpt_operands_fini(struct ckpt_operands *o) {
    for (uint32_t k = 0; k < o->n; k++)
        ckpt_array_fini(&o->at[k]);
    o->n = 0;
}

/* A number as a 0-d array. */
static int number_array(struct ckpt_exec *exec, struct ckpt_scalar s, struct ckpt_array *out,
                        struct ckpt_err *err) {
    const int rc = ckpt_array_new(out, &exec->memory, s.dtype, NULL, 0, err);
    if (rc < 0)
        return rc;
    if (s.dtype == CKPT_DT_F64)
        *ckpt_array_f64(out) = s.f;
    else if (s.dtype == CKPT_DT_I64)
        *ckpt_array_i64(out) = s.i;
    else
        *ckpt_array_bool(out) = s.i != 0;
    return 0;
}

static int take_operand(const struct ckpt_call *c, const char *name, struct ckpt_array *out,
                        struct promotion *p, struct ckpt_err *err) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    const bool number =
        a && (a->kind == CKPT_ARG_INT || a->kind == CKPT_ARG_FLOAT || a->kind == CKPT_ARG_BOOL);
    int rc;
    if (number) {
        rc = number_array(c->exec, ckpt_call_scalar(c, name), out, err);
        const enum ckpt_dtype t = out->dtype == CKPT_DT_F64 ? CKPT_DT_F32 : out->dtype;
        p->by[2] = wider(p->by[2], t);
        return rc;
    }
    rc = ckpt_call_tensor(c, name, out, err);
    if (rc == 0)
        p->by[out->ndim == 0] = wider(p->by[out->ndim == 0], out->dtype);
    return rc;
}

int ckpt_operands_init(const struct ckpt_call *c, const char *const *name, uint32_t n,
                       struct ckpt_operands *o, struct ckpt_err *err) {
    struct promotion p = {{CKPT_DT_NONE, CKPT_DT_NONE, CKPT_DT_NONE}};
    const struct ckpt_array *all[CKPT_OPERANDS_MAX];
    memset(o, 0, sizeof(*o));
    for (; o->n < n; o->n++) {
        const int rc = take_operand(c, name[o->n], &o->at[o->n], &p, err);
        if (rc < 0)
            return rc;
        all[o->n] = &o->at[o->n];
    }
    o->dtype = promoted(&p);
    return ckpt_array_broadcast(all, n, o->shape, &o->ndim, err);
}

int ckpt_operands_align(struct ckpt_operands *o, enum ckpt_dtype dtype, struct ckpt_exec *exec,
                        struct ckpt_err *err) {
    for (uint32_t k = 0; k < o->n; k++) {
        CKPT_AUTO(array) struct ckpt_array given = o->at[k], cast = {0};
        memset(&o->at[k], 0, sizeof(o->at[k]));
        int rc = ckpt_array_cast(&given, dtype, &exec->memory, &cast, err);
        if (rc == 0)
            rc = ckpt_array_expand(&cast, o->shape, o->ndim, &o->at[k], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- loops ---- */

struct run {
    const struct ckpt_function *function;
    const struct ckpt_scalar *p;
    uint32_t n; /* operands */
};

/* Rows of operands of one type, computed in `wide` by `member`, stored as `result`. */
#define ROWS(name, type, wide, member, result, value)                                              \
    static void name(void *arg, char *const *at, const int64_t *step, int64_t n) {                 \
        const struct run *const r = arg;                                                           \
        for (int64_t k = 0; k < n; k++) {                                                          \
            wide v[CKPT_OPERANDS_MAX];                                                             \
            for (uint32_t o = 0; o < r->n; o++)                                                    \
                v[o] = (wide) * (const type *)(const void *)(at[o + 1] + k * step[o + 1]);         \
            const wide got = r->function->member(v, r->p);                                         \
            *(result *)(void *)(at[0] + k * step[0]) = (value);                                    \
        }                                                                                          \
    }

ROWS(rows_f32, float, double, f, float, (float)got)
ROWS(rows_f64, double, double, f, double, got)
ROWS(rows_i64, int64_t, int64_t, i, int64_t, got)
ROWS(truth_f32, float, double, f, uint8_t, got != 0)
ROWS(truth_f64, double, double, f, uint8_t, got != 0)
ROWS(truth_i64, int64_t, int64_t, i, uint8_t, got != 0)

static ckpt_row_fn *rows_of(enum ckpt_dtype dtype, bool truth) {
    if (dtype == CKPT_DT_I64)
        return truth ? truth_i64 : rows_i64;
    if (dtype == CKPT_DT_F64)
        return truth ? truth_f64 : rows_f64;
    return truth ? truth_f32 : rows_f32;
}

static void run_rows(const struct ckpt_operands *o, const struct ckpt_function *f,
                     struct ckpt_scalar *p, const struct ckpt_array *out) {
    struct run r = {f, p, o->n};
    const struct ckpt_array *all[CKPT_OPERANDS_MAX + 1] = {out};
    const enum ckpt_dtype dtype = o->at[0].dtype;
    for (uint32_t k = 0; k < o->n; k++)
        all[k + 1] = &o->at[k];
    if (f->f32 && dtype == CKPT_DT_F32)
        ckpt_array_rows(all, o->n + 1, f->f32, p);
    else
        ckpt_array_rows(all, o->n + 1, rows_of(dtype, f->kind == CKPT_TRUTH), &r);
}

/* ---- running ---- */

const struct ckpt_function *ckpt_function_find(const struct ckpt_function *table,
                                               const char *name) {
    while (strcmp(table->name, name) != 0)
        table++;
    return table;
}

static int refuse_dtype(enum ckpt_dtype dtype, struct ckpt_err *err) {
    return ckpt_fail(err, -EINVAL, "is not defined for %s", ckpt_dtype_info(dtype)->name);
}

/* What to compute in: truth values are computed as integers. */
static int compute_dtype(const struct ckpt_function *f, enum ckpt_dtype given,
                         enum ckpt_dtype *dtype, struct ckpt_err *err) {
    const bool integer = kind_of(given) < 3;
    *dtype = given == CKPT_DT_BOOL ? CKPT_DT_I64 : given;
    if (given == CKPT_DT_BOOL && f->kind == CKPT_NO_BOOL)
        return refuse_dtype(given, err);
    if (!integer)
        return f->f ? 0 : refuse_dtype(given, err);
    if (!f->i && f->kind == CKPT_FLOATS_ONLY)
        return refuse_dtype(given, err);
    if (!f->i)
        *dtype = CKPT_DT_F32;
    return 0;
}

static void find_zero(void *arg, char *const *at, const int64_t *step, int64_t n) {
    for (int64_t k = 0; k < n; k++)
        *(bool *)arg |= *(const int64_t *)(const void *)(at[0] + k * step[0]) == 0;
}

static int check_divisor(const struct ckpt_function *f, const struct ckpt_operands *o,
                         struct ckpt_err *err) {
    bool zero = false;
    if (f->kind == CKPT_DIVIDES && o->at[1].dtype == CKPT_DT_I64)
        ckpt_array_rows((const struct ckpt_array *const[]){&o->at[1]}, 1, find_zero, &zero);
    return zero ? ckpt_fail(err, -EINVAL, "divides an integer by zero") : 0;
}

static void take_numbers(const struct ckpt_call *c, const struct ckpt_function *f,
                         struct ckpt_scalar *p) {
    for (int k = 0; k < CKPT_FUNCTION_NUMBERS; k++) {
        const double d = f->otherwise[k];
        p[k] = f->number[k] ? ckpt_call_scalar(c, f->number[k]) : (struct ckpt_scalar){0};
        if (p[k].dtype == CKPT_DT_NONE)
            p[k] = (struct ckpt_scalar){CKPT_DT_NONE, d > -1e9 && d < 1e9 ? (int64_t)d : 0, d};
    }
}

int ckpt_elementwise(struct ckpt_call *c, const struct ckpt_function *f, const char *const *name,
                     uint32_t n, struct ckpt_err *err) {
    CKPT_AUTO(operands) struct ckpt_operands o = {0};
    CKPT_AUTO(array) struct ckpt_array out = {0};
    struct ckpt_scalar p[CKPT_FUNCTION_NUMBERS];
    enum ckpt_dtype dtype = CKPT_DT_NONE;
    int rc = ckpt_operands_init(c, name, n, &o, err);
    if (rc == 0)
        rc = compute_dtype(f, o.dtype, &dtype, err);
    if (rc == 0)
        rc = ckpt_operands_align(&o, dtype, c->exec, err);
    if (rc == 0)
        rc = check_divisor(f, &o, err);
    if (rc == 0)
        rc = ckpt_array_new(&out, &c->exec->memory, f->kind == CKPT_TRUTH ? CKPT_DT_BOOL : dtype,
                            o.shape, o.ndim, err);
    if (rc < 0)
        return rc;
    take_numbers(c, f, p);
    run_rows(&o, f, p, &out);
    const bool back = o.dtype == CKPT_DT_BOOL && out.dtype == CKPT_DT_I64;
    return ckpt_array_cast(&out, back ? CKPT_DT_BOOL : out.dtype, &c->exec->memory, c->out, err);
}
