/* Counts: how often each integer occurs, histograms; and the middle element. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/rank.h"
#include "verify/reduce.h"

/* ---- histc ---- */

/* From smallest to largest, unless bounds are given; one unit wider on both sides if they are one.
 */
static int find_bounds(const struct ckpt_call *c, const struct ckpt_array *x, double *low,
                       double *high, struct ckpt_err *err) {
    const struct ckpt_scalar from = ckpt_call_scalar(c, "min"), to = ckpt_call_scalar(c, "max");
    const int64_t count = ckpt_array_count(x);
    *low = from.f;
    *high = to.f;
    if (*low == *high && count > 0) {
        *low = *high = ckpt_array_get(x, 0);
        for (int64_t i = 1; i < count; i++) {
            *low = fmin(*low, ckpt_array_get(x, i));
            *high = fmax(*high, ckpt_array_get(x, i));
        }
    }
    if (*low == *high) {
        *low -= 1;
        *high += 1;
    }
    if (!isfinite(*low) || !isfinite(*high) || *low > *high)
        return ckpt_fail(err, -EINVAL, "has no finite bounds in order");
    return 0;
}

static void count_bins(const struct ckpt_array *x, double low, double high, int64_t bins,
                       const struct ckpt_array *out) {
    const int64_t count = ckpt_array_count(x);
    for (int64_t i = 0; i < count; i++) {
        const double v = ckpt_array_get(x, i);
        if (!(v >= low && v <= high))
            continue;
        const int64_t bin = (int64_t)((v - low) / (high - low) * (double)bins);
        const int64_t at = bin < bins ? bin : bins - 1; /* the last one includes its end */
        if (out->dtype == CKPT_DT_F64)
            ckpt_array_f64(out)[at] += 1;
        else if (out->dtype == CKPT_DT_F32)
            ckpt_array_f32(out)[at] += 1;
        else
            ckpt_array_i64(out)[at] += 1;
    }
}

static int op_histc(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = {0}, x = {0};
    const int64_t bins = ckpt_call_int(c, "bins", 100);
    double low = 0, high = 0;
    int rc = ckpt_call_tensor(c, "self", &given, err);
    if (rc == 0)
        rc = ckpt_array_contiguous(&given, &c->exec->memory, &x, err);
    if (rc == 0 && (bins <= 0 || x.dtype == CKPT_DT_BOOL))
        rc = ckpt_fail(err, -EINVAL, "needs numbers, and at least one bin");
    if (rc == 0)
        rc = find_bounds(c, &x, &low, &high, err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, x.dtype, &bins, 1, err);
    if (rc == 0)
        count_bins(&x, low, high, bins, c->out);
    return rc;
}

/* ---- bincount ---- */

static int check_counted(const struct ckpt_array *x, const struct ckpt_array *weights,
                         int64_t minlength, int64_t *length, struct ckpt_err *err) {
    if (x->ndim != 1 || (x->dtype != CKPT_DT_I64 && x->dtype != CKPT_DT_BOOL) || minlength < 0)
        return ckpt_fail(err, -EINVAL, "counts a vector of integers");
    if (weights->store && !ckpt_array_same_shape(x, weights))
        return ckpt_fail(err, -EINVAL, "the weights are not as many as what they weigh");
    *length = minlength;
    for (int64_t i = 0; i < x->shape[0]; i++) {
        const int64_t v = (int64_t)ckpt_array_get(x, i);
        if (v < 0 || v >= INT64_MAX / 16)
            return ckpt_fail(err, -EINVAL, "element %lld cannot be counted", (long long)v);
        *length = v >= *length ? v + 1 : *length;
    }
    return 0;
}

static int op_bincount(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = {0}, x = {0}, weights = {0}, dense = {0};
    int64_t length = 0;
    int rc = ckpt_call_tensor(c, "self", &given, err);
    if (rc == 0)
        rc = ckpt_array_contiguous(&given, &c->exec->memory, &x, err);
    if (rc == 0)
        rc = ckpt_call_optional(c, "weights", &weights, err);
    if (rc == 0)
        rc = check_counted(&x, &weights, ckpt_call_int(c, "minlength", 0), &length, err);
    if (rc == 0 && weights.store)
        rc = ckpt_array_contiguous(&weights, &c->exec->memory, &dense, err);
    if (rc < 0)
        return rc;
    const bool narrow = weights.dtype == CKPT_DT_F32;
    rc = ckpt_call_new(c, 0,
                       !weights.store ? CKPT_DT_I64
                       : narrow       ? CKPT_DT_F32
                                      : CKPT_DT_F64,
                       &length, 1, err);
    for (int64_t i = 0; rc == 0 && i < x.shape[0]; i++) {
        const int64_t at = (int64_t)ckpt_array_get(&x, i);
        if (!weights.store)
            ckpt_array_i64(c->out)[at]++;
        else if (narrow)
            ckpt_array_f32(c->out)[at] += ckpt_array_f32(&dense)[i];
        else
            ckpt_array_f64(c->out)[at] += ckpt_array_get(&dense, i);
    }
    return rc;
}

/* ---- median: of an even number the lower one; NaN if there is one ---- */

static int64_t middle(const struct ckpt_reduction *r, int64_t row, struct ckpt_ranked *v) {
    const struct ckpt_rank_order order = {.whole = r->rows.dtype == CKPT_DT_I64};
    for (int64_t k = 0; k < r->width; k++) {
        const int64_t at = row * r->width + k;
        v[k] = (struct ckpt_ranked){.f = ckpt_array_get(&r->rows, at), .index = k};
        if (order.whole)
            v[k].i = ckpt_array_i64(&r->rows)[at];
        else if (isnan(v[k].f))
            return k;
    }
    ckpt_rank_sort(order, v, v + r->width, r->width);
    return v[(r->width - 1) / 2].index;
}

static int find_middles(struct ckpt_call *c, const struct ckpt_reduction *r, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array scratch = {0};
    const int64_t words = (int64_t)(2 * sizeof(struct ckpt_ranked) / sizeof(int64_t));
    const int64_t size = ckpt_dtype_info(r->rows.dtype)->unit_bytes;
    int rc = ckpt_array_new(&scratch, &c->exec->memory, CKPT_DT_I64,
                            (const int64_t[]){r->width, words}, 2, err);
    for (int64_t i = 0; rc == 0 && i < r->count; i++) {
        const int64_t at = middle(r, i, scratch.data);
        memcpy((char *)c->out[0].data + i * size,
               (const char *)ckpt_reduction_row(r, i) + at * size, (size_t)size);
        if (c->nout > 1)
            ckpt_array_i64(&c->out[1])[i] = at;
        rc = i % 64 == 0 ? ckpt_exec_check(c->exec, err) : 0;
    }
    return rc;
}

static int op_median(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0};
    CKPT_AUTO(reduction) struct ckpt_reduction r = {0};
    int rc = ckpt_call_tensor(c, "self", &x, err);
    if (rc == 0)
        rc = ckpt_reduction_init(c, &x, x.dtype, false, &r, err);
    if (rc == 0 && ((r.width == 0 && r.count > 0) || x.dtype == CKPT_DT_BOOL))
        rc = ckpt_fail(err, -EINVAL, "needs numbers, and at least one of them");
    if (rc == 0)
        rc = ckpt_call_new(c, 0, x.dtype, r.shape, r.ndim, err);
    if (rc == 0 && c->nout > 1)
        rc = ckpt_call_new(c, 1, CKPT_DT_I64, r.shape, r.ndim, err);
    return rc < 0 ? rc : find_middles(c, &r, err);
}

static const struct ckpt_op ops[] = {
    {"histc", "histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor", op_histc},
    {"bincount", "bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor",
     op_bincount},
    {"median", "median(Tensor self) -> Tensor", op_median},
    {"median",
     "median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
     op_median},
};

const struct ckpt_op_family ckpt_family_count = CKPT_OP_FAMILY(ops);
