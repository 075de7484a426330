/*
 * The metrics. Every entry falls in one of three classes:
 *
 *     finite     both finite                      error |r - o|
 *     same_inf   both infinite, the same sign     error 0
 *     invalid    everything else (NaN too)        error infinite, never close
 */
#include "verify/diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* Keeps a relative error defined where the reference is zero. */
#define REL_EPSILON 1e-9

static void set_shapes(struct ckpt_diff *d, const struct ckpt_array *ref,
                       const struct ckpt_array *out) {
    d->ref_ndim = ref->ndim;
    d->out_ndim = out->ndim;
    memcpy(d->ref_shape, ref->shape, sizeof(d->ref_shape));
    memcpy(d->out_shape, out->shape, sizeof(d->out_shape));
    d->ref_size = ckpt_array_count(ref);
    d->out_size = ckpt_array_count(out);
    d->size = d->ref_size < d->out_size ? d->ref_size : d->out_size;
    d->size_match = d->ref_size == d->out_size;
    d->shape_match = ckpt_array_same_shape(ref, out);
    d->allclose = d->size_match && d->shape_match;
}

static void set_all(struct ckpt_diff *d, double v) {
    d->max_abs = d->mean_abs = d->max_rel = d->p50 = d->p95 = d->p99 = v;
}

static void keep_top(struct ckpt_diff *d, int64_t index, double error) {
    uint32_t at = d->ntop;
    while (at > 0 && error > d->top[at - 1].error)
        at--;
    if (at == CKPT_DIFF_TOP)
        return;
    if (d->ntop < CKPT_DIFF_TOP)
        d->ntop++;
    memmove(&d->top[at + 1], &d->top[at], (d->ntop - at - 1) * sizeof(d->top[0]));
    d->top[at].index = index;
    d->top[at].error = error;
}

/* The absolute error of one pair; updates everything but the mean and the percentiles. */
static double count_pair(struct ckpt_diff *d, int64_t index, double r, double o) {
    double error = 0, rel = 0;
    if (isfinite(r) && isfinite(o)) {
        error = fabs(r - o);
        rel = error / (fabs(r) + REL_EPSILON);
        if (!(error <= d->atol + d->rtol * fabs(o)))
            d->allclose = false;
    } else if (!(isinf(r) && r == o)) {
        error = rel = INFINITY;
        d->ninvalid++;
        d->allclose = false;
    }
    d->max_abs = fmax(d->max_abs, error);
    d->max_rel = fmax(d->max_rel, rel);
    keep_top(d, index, error);
    return error;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* numpy's "linear" percentile of n sorted values. */
static double percentile(const double *sorted, int64_t n, double q) {
    const double at = (double)(n - 1) * q;
    const int64_t lo = (int64_t)floor(at);
    const int64_t hi = lo + 1 < n ? lo + 1 : n - 1;
    return sorted[lo] + (sorted[hi] - sorted[lo]) * (at - (double)lo);
}

static int compare(const struct ckpt_array *ref, const struct ckpt_array *out, struct ckpt_diff *d,
                   struct ckpt_err *err) {
    double *const errors = malloc((size_t)d->size * sizeof(*errors));
    if (!errors)
        return ckpt_fail_memory(err, "comparing outputs");
    double sum = 0;
    for (int64_t i = 0; i < d->size; i++) {
        errors[i] = count_pair(d, i, ckpt_array_get(ref, i), ckpt_array_get(out, i));
        sum += errors[i];
    }
    d->mean_abs = sum / (double)d->size;
    if (d->ninvalid) {
        d->p50 = d->p95 = d->p99 = INFINITY;
    } else {
        qsort(errors, (size_t)d->size, sizeof(*errors), by_value);
        d->p50 = percentile(errors, d->size, 0.50);
        d->p95 = percentile(errors, d->size, 0.95);
        d->p99 = percentile(errors, d->size, 0.99);
    }
    free(errors);
    return 0;
}

int ckpt_diff(const struct ckpt_array *ref, const struct ckpt_array *out, double atol, double rtol,
              struct ckpt_diff *diff, struct ckpt_err *err) {
    memset(diff, 0, sizeof(*diff));
    diff->atol = atol;
    diff->rtol = rtol;
    set_shapes(diff, ref, out);
    if (diff->size == 0) {
        set_all(diff, diff->size_match ? 0 : INFINITY);
        return 0;
    }
    CKPT_AUTO(array) struct ckpt_array r = {0}, o = {0};
    int rc = ckpt_array_contiguous(ref, NULL, &r, err);
    if (rc == 0)
        rc = ckpt_array_contiguous(out, NULL, &o, err);
    return rc < 0 ? rc : compare(&r, &o, diff, err);
}
