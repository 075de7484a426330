/*
 * Reductions that give a number a row. Sums, products and norms of floats are kept in double, those
 * of integers wrap in int64.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/reduce.h"

/* ---- rows of floats ---- */

struct row {
    const void *at;
    int64_t n;
    bool wide; /* float64 */
};

static inline double item(const struct row *r, int64_t i) {
    return r->wide ? ((const double *)r->at)[i] : (double)((const float *)r->at)[i];
}

static double sum(const struct row *r, double p) {
    double s = 0;
    (void)p;
    for (int64_t i = 0; i < r->n; i++)
        s += item(r, i);
    return s;
}

static double mean(const struct row *r, double p) {
    return sum(r, p) / (double)r->n;
}

static double product(const struct row *r, double p) {
    double s = 1;
    (void)p;
    for (int64_t i = 0; i < r->n; i++)
        s *= item(r, i);
    return s;
}

static double maximum(const struct row *r, double p) {
    double s = -(double)INFINITY;
    (void)p;
    for (int64_t i = 0; i < r->n && !isnan(s); i++)
        s = item(r, i) > s || isnan(item(r, i)) ? item(r, i) : s;
    return s;
}

static double minimum(const struct row *r, double p) {
    double s = (double)INFINITY;
    (void)p;
    for (int64_t i = 0; i < r->n && !isnan(s); i++)
        s = item(r, i) < s || isnan(item(r, i)) ? item(r, i) : s;
    return s;
}

static double any(const struct row *r, double p) {
    bool s = false;
    (void)p;
    for (int64_t i = 0; i < r->n && !s; i++)
        s = item(r, i) != 0;
    return s;
}

static double all(const struct row *r, double p) {
    bool s = true;
    (void)p;
    for (int64_t i = 0; i < r->n && s; i++)
        s = item(r, i) != 0;
    return s;
}

static double nonzeros(const struct row *r, double p) {
    int64_t s = 0;
    (void)p;
    for (int64_t i = 0; i < r->n; i++)
        s += item(r, i) != 0;
    return (double)s;
}

/* p: what is taken from the number of elements. */
static double variance(const struct row *r, double p) {
    const double centre = mean(r, 0), n = (double)r->n - p;
    double s = 0;
    for (int64_t i = 0; i < r->n; i++)
        s += (item(r, i) - centre) * (item(r, i) - centre);
    return s / (n > 0 ? n : 0);
}

static double deviation(const struct row *r, double p) {
    return sqrt(variance(r, p));
}

static double log_sum_exp(const struct row *r, double p) {
    const double most = maximum(r, p), shift = isinf(most) ? 0 : most;
    double s = 0;
    for (int64_t i = 0; i < r->n; i++)
        s += exp(item(r, i) - shift);
    return log(s) + shift;
}

/* The largest magnitude, or with sign -1 the smallest. */
static double extreme_magnitude(const struct row *r, double sign) {
    double s = sign > 0 ? 0 : (double)INFINITY;
    for (int64_t i = 0; i < r->n && !isnan(s); i++) {
        const double x = fabs(item(r, i));
        s = (sign > 0 ? x > s : x < s) || isnan(x) ? x : s;
    }
    return s;
}

static double norm(const struct row *r, double p) {
    double s = 0;
    if (isinf(p))
        return extreme_magnitude(r, p);
    if (p == 0)
        return nonzeros(r, p);
    for (int64_t i = 0; i < r->n; i++) {
        const double x = fabs(item(r, i));
        s += p == 1 ? x : p == 2 ? x * x : pow(x, p);
    }
    return p == 1 ? s : p == 2 ? sqrt(s) : pow(s, 1 / p);
}

/* ---- rows of integers ---- */

static int64_t sum_int(const int64_t *v, int64_t n) {
    uint64_t s = 0;
    for (int64_t i = 0; i < n; i++)
        s += (uint64_t)v[i];
    return (int64_t)s;
}

static int64_t product_int(const int64_t *v, int64_t n) {
    uint64_t s = 1;
    for (int64_t i = 0; i < n; i++)
        s *= (uint64_t)v[i];
    return (int64_t)s;
}

static int64_t maximum_int(const int64_t *v, int64_t n) {
    int64_t s = INT64_MIN;
    for (int64_t i = 0; i < n; i++)
        s = v[i] > s ? v[i] : s;
    return s;
}

static int64_t minimum_int(const int64_t *v, int64_t n) {
    int64_t s = INT64_MAX;
    for (int64_t i = 0; i < n; i++)
        s = v[i] < s ? v[i] : s;
    return s;
}

static int64_t nonzeros_int(const int64_t *v, int64_t n) {
    int64_t s = 0;
    for (int64_t i = 0; i < n; i++)
        s += v[i] != 0;
    return s;
}

static int64_t any_int(const int64_t *v, int64_t n) {
    return nonzeros_int(v, n) > 0;
}

static int64_t all_int(const int64_t *v, int64_t n) {
    return nonzeros_int(v, n) == n;
}

/* ---- one reduction ---- */

struct reducer {
    double (*f)(const struct row *r, double p);
    int64_t (*i)(const int64_t *v, int64_t n);                 /* NULL: floats only */
    enum { OF_SUMS, OF_ELEMENTS, OF_TRUTH, OF_COUNTS } result; /* sums of truth values are I64 */
    bool needs_elements;
};

static const struct reducer sums = {sum, sum_int, OF_SUMS, false},
                            means = {mean, NULL, OF_SUMS, false},
                            products = {product, product_int, OF_SUMS, false},
                            maxima = {maximum, maximum_int, OF_ELEMENTS, true},
                            minima = {minimum, minimum_int, OF_ELEMENTS, true},
                            anys = {any, any_int, OF_TRUTH, false},
                            alls = {all, all_int, OF_TRUTH, false},
                            counts = {nonzeros, nonzeros_int, OF_COUNTS, false},
                            variances = {variance, NULL, OF_SUMS, false},
                            deviations = {deviation, NULL, OF_SUMS, false},
                            exponentials = {log_sum_exp, NULL, OF_SUMS, false},
                            norms = {norm, NULL, OF_SUMS, false};

static bool is_float(enum ckpt_dtype t) {
    return t == CKPT_DT_F32 || t == CKPT_DT_F64;
}

static void reduce_row(const struct reducer *k, const struct ckpt_reduction *r, int64_t i, double p,
                       const struct ckpt_array *out) {
    if (!is_float(r->rows.dtype)) {
        ckpt_array_i64(out)[i] = k->i(ckpt_reduction_row(r, i), r->width);
        return;
    }
    const struct row row = {ckpt_reduction_row(r, i), r->width, r->rows.dtype == CKPT_DT_F64};
    const double got = k->f(&row, p);
    if (out->dtype == CKPT_DT_F64)
        ckpt_array_f64(out)[i] = got;
    else if (out->dtype == CKPT_DT_F32)
        ckpt_array_f32(out)[i] = (float)got;
    else
        ckpt_array_i64(out)[i] = (int64_t)got;
}

static int run_rows(struct ckpt_call *c, uint32_t which, const struct reducer *k,
                    const struct ckpt_reduction *r, double p, enum ckpt_dtype result,
                    struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array out = {0};
    if (k->needs_elements && r->width == 0 && r->count > 0)
        return ckpt_fail(err, -EINVAL, "has no elements to choose from");
    const enum ckpt_dtype computed = is_float(result) ? result : CKPT_DT_I64;
    int rc = ckpt_array_new(&out, &c->exec->memory, computed, r->shape, r->ndim, err);
    for (int64_t i = 0; rc == 0 && i < r->count; i++) {
        reduce_row(k, r, i, p, &out);
        if (i % 1024 == 0)
            rc = ckpt_exec_check(c->exec, err);
    }
    return rc < 0 ? rc : ckpt_array_cast(&out, result, &c->exec->memory, &c->out[which], err);
}

/* What it is computed in, and what the result is. */
static int choose_dtypes(const struct reducer *k, enum ckpt_dtype given, enum ckpt_dtype *computed,
                         enum ckpt_dtype *result, struct ckpt_err *err) {
    *computed = given == CKPT_DT_BOOL ? CKPT_DT_I64 : given;
    if (!is_float(given) && !k->i)
        return ckpt_fail(err, -EINVAL, "is not defined for %s", ckpt_dtype_info(given)->name);
    *result = k->result == OF_TRUTH      ? CKPT_DT_BOOL
              : k->result == OF_COUNTS   ? CKPT_DT_I64
              : k->result == OF_ELEMENTS ? given
                                         : *computed;
    return 0;
}

static int reduce(struct ckpt_call *c, const struct reducer *k, double p, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0};
    CKPT_AUTO(reduction) struct ckpt_reduction r = {0};
    enum ckpt_dtype computed = CKPT_DT_NONE, result = CKPT_DT_NONE, given;
    int rc = ckpt_call_tensor(c, "self", &x, err);
    if (rc < 0)
        return rc;
    given = ckpt_call_dtype(c, "dtype", x.dtype);
    rc = choose_dtypes(k, given, &computed, &result, err);
    if (rc == 0)
        rc = ckpt_reduction_init(c, &x, computed, k->result == OF_TRUTH, &r, err);
    if (rc == 0)
        rc = run_rows(c, 0, k, &r, p, result, err);
    const bool spread = k == &variances || k == &deviations;
    if (rc == 0 && c->nout == 2 && spread) /* var_mean, std_mean */
        rc = run_rows(c, 1, &means, &r, 0, result, err);
    return rc;
}

/* ---- operations ---- */

static int op_sum(struct ckpt_call *c, struct ckpt_err *err) {
    return reduce(c, &sums, 0, err);
}

static int op_mean(struct ckpt_call *c, struct ckpt_err *err) {
    return reduce(c, &means, 0, err);
}

static int op_prod(struct ckpt_call *c, struct ckpt_err *err) {
    return reduce(c, &products, 0, err);
}

static int op_max(struct ckpt_call *c, struct ckpt_err *err) {
    return reduce(c, &maxima, 0, err);
}

static int op_min(struct ckpt_call *c, struct ckpt_err *err) {
    return reduce(c, &minima, 0, err);
}

static int op_any(struct ckpt_call *c, struct ckpt_err *err) {
    return reduce(c, &anys, 0, err);
}

static int op_all(struct ckpt_call *c, struct ckpt_err *err) {
    return reduce(c, &alls, 0, err);
}

static int op_count_nonzero(struct ckpt_call *c, struct ckpt_err *err) {
    return reduce(c, &counts, 0, err);
}

/* "unbiased" and "correction" say the same in two ways. */
static double correction(const struct ckpt_call *c) {
    const struct ckpt_scalar s = ckpt_call_scalar(c, "correction");
    return s.dtype != CKPT_DT_NONE ? s.f : ckpt_call_bool(c, "unbiased", true);
}

static int op_var(struct ckpt_call *c, struct ckpt_err *err) {
    return reduce(c, &variances, correction(c), err);
}

static int op_std(struct ckpt_call *c, struct ckpt_err *err) {
    return reduce(c, &deviations, correction(c), err);
}

static int op_logsumexp(struct ckpt_call *c, struct ckpt_err *err) {
    return reduce(c, &exponentials, 0, err);
}

static int op_norm(struct ckpt_call *c, struct ckpt_err *err) {
    const char *const name = ckpt_call_arg(c, "ord") ? "ord" : "p";
    const struct ckpt_scalar p = ckpt_call_scalar(c, name);
    return reduce(c, &norms, p.dtype == CKPT_DT_NONE ? 2 : p.f, err);
}

/* Over one dimension, or without an order, it is the norm of a vector. */
static int op_linalg_norm(struct ckpt_call *c, struct ckpt_err *err) {
    const struct ckpt_arg *const dim = ckpt_call_arg(c, "dim");
    struct ckpt_array form;
    const int rc = ckpt_call_form(c, "self", &form, err);
    const bool one = dim ? dim->kind != CKPT_ARG_INTS || dim->ints.n == 1 : form.ndim <= 1;
    if (rc == 0 && ckpt_call_arg(c, "ord") && !one)
        return ckpt_fail(err, -EOPNOTSUPP, "norms of matrices are not implemented");
    return rc < 0 ? rc : op_norm(c, err);
}

#define ALL_OR_DIMS(name, dims, run)                                                               \
    {name, name "(Tensor self, *, ScalarType? dtype=None) -> Tensor", run}, {                      \
        name, name dims ", bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", run          \
    }
#define TRUTH(name, run)                                                                           \
    {name, name "(Tensor self) -> Tensor", run},                                                   \
        {name, name ".dim(Tensor self, int dim, bool keepdim=False) -> Tensor", run}, {            \
        name, name ".dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", run        \
    }
#define SPREAD(name, result, run)                                                                  \
    {name, name "(Tensor self, bool unbiased=True) -> " result, run},                              \
        {name,                                                                                     \
         name ".dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> " result, \
         run},                                                                                     \
    {                                                                                              \
        name,                                                                                      \
            name ".correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, "         \
                 "bool keepdim=False) -> " result,                                                 \
            run                                                                                    \
    }

static const struct ckpt_op ops[] = {
    ALL_OR_DIMS("sum", ".dim_IntList(Tensor self, int[1]? dim", op_sum),
    ALL_OR_DIMS("mean", ".dim(Tensor self, int[1]? dim", op_mean),
    ALL_OR_DIMS("prod", ".dim_int(Tensor self, int dim", op_prod),
    {"amax", "amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", op_max},
    {"amin", "amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", op_min},
    {"max", "max(Tensor self) -> Tensor", op_max},
    {"min", "min(Tensor self) -> Tensor", op_min},
    TRUTH("any", op_any),
    TRUTH("all", op_all),
    {"count_nonzero", "count_nonzero(Tensor self, int? dim=None) -> Tensor", op_count_nonzero},
    {"count_nonzero", "count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor",
     op_count_nonzero},
    SPREAD("var", "Tensor", op_var),
    SPREAD("std", "Tensor", op_std),
    SPREAD("var_mean", "(Tensor, Tensor)", op_var),
    SPREAD("std_mean", "(Tensor, Tensor)", op_std),
    {"logsumexp", "logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", op_logsumexp},
    {"norm", "norm.Scalar(Tensor self, Scalar p=2) -> Tensor", op_norm},
    {"norm", "norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor",
     op_norm},
    {"norm",
     "norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, "
     "ScalarType dtype) -> Tensor",
     op_norm},
    {"norm", "norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, ScalarType dtype) -> Tensor",
     op_norm},
    {"frobenius_norm", "frobenius_norm.dim(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
     op_norm},
    {"linalg_vector_norm",
     "linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, "
     "ScalarType? dtype=None) -> Tensor",
     op_norm},
    {"linalg_norm",
     "linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, "
     "ScalarType? dtype=None) -> Tensor",
     op_linalg_norm},
};

const struct ckpt_op_family ckpt_family_reduce = CKPT_OP_FAMILY(ops);
