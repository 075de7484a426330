/*
 * The metrics. Every entry falls in one of three classes:
 *
 *     finite     both finite                      error |r - o|
 *     same_inf   both infinite, the same sign     error 0
 *     invalid    everything else (NaN too)        error infinite, never close
 */
#include "verify/diff.h"

#include <math.h>
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

static double pair_error(double r, double o) {
    if (isfinite(r) && isfinite(o))
        return fabs(r - o);
    return isinf(r) && r == o ? 0 : (double)INFINITY;
}

/* Powers of ten, the errors below 1e-12 and zero in the first two. */
static uint32_t decade_of(double error) {
    if (!(error > 0))
        return 0;
    const double power = floor(log10(error)) + 14;
    return power < 1 ? 1 : power < CKPT_DIFF_DECADES - 1 ? (uint32_t)power : CKPT_DIFF_DECADES - 1;
}

/* The absolute error of one pair; updates everything but the mean and the percentiles. */
static double count_pair(struct ckpt_diff *d, int64_t index, double r, double o) {
    const double error = pair_error(r, o);
    double rel = error;
    if (isfinite(r) && isfinite(o)) {
        rel = error / (fabs(r) + REL_EPSILON);
        if (!(error <= d->atol + d->rtol * fabs(o)))
            d->allclose = false;
    } else if (error > 0) {
        d->ninvalid++;
        d->allclose = false;
    }
    d->max_abs = fmax(d->max_abs, error);
    d->max_rel = fmax(d->max_rel, rel);
    d->decade[decade_of(error)]++;
    keep_top(d, index, error);
    return error;
}

/* ---- percentiles ---- */

/* What is compared: dense, of so many pairs. Errors are made again where they are needed, since all
 * of them would take twice the outputs' memory. */
struct pairs {
    const struct ckpt_array *ref, *out;
    int64_t n;
};

static double error_at(const struct pairs *p, int64_t i) {
    return pair_error(ckpt_array_get(p->ref, i), ckpt_array_get(p->out, i));
}

/* Order is that of the numbers, which are not negative. */
static uint64_t bits_of(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

#define DIGIT_BITS 11

/* The error of this rank, digit by digit of its bits from the highest on: how many errors begin
 * with the digits found so far, by their next digit? */
static double select_error(const struct pairs *p, int64_t rank) {
    uint64_t found = 0;
    for (int shift = 64 - DIGIT_BITS; shift > -DIGIT_BITS; shift -= DIGIT_BITS) {
        const int at = shift > 0 ? shift : 0, width = shift > 0 ? DIGIT_BITS : DIGIT_BITS + shift;
        const uint64_t mask = ((uint64_t)1 << width) - 1;
        int64_t count[1 << DIGIT_BITS] = {0};
        uint64_t digit = 0;
        for (int64_t i = 0; i < p->n; i++) {
            const uint64_t bits = bits_of(error_at(p, i));
            if (at + width == 64 || (bits ^ found) >> (at + width) == 0)
                count[bits >> at & mask]++;
        }
        for (; rank >= count[digit]; digit++)
            rank -= count[digit];
        found |= digit << at;
    }
    double v;
    memcpy(&v, &found, sizeof(v));
    return v;
}

/* numpy's "linear" percentile. */
static double percentile(const struct pairs *p, double q) {
    const double at = (double)(p->n - 1) * q;
    const int64_t rank = (int64_t)floor(at);
    const double lo = select_error(p, rank);
    const double hi = rank + 1 < p->n ? select_error(p, rank + 1) : lo;
    return lo + (hi - lo) * (at - (double)rank);
}

static void compare(const struct pairs *p, struct ckpt_diff *d) {
    double sum = 0;
    for (int64_t i = 0; i < p->n; i++)
        sum += count_pair(d, i, ckpt_array_get(p->ref, i), ckpt_array_get(p->out, i));
    d->mean_abs = sum / (double)p->n;
    d->p50 = d->ninvalid ? (double)INFINITY : percentile(p, 0.50);
    d->p95 = d->ninvalid ? (double)INFINITY : percentile(p, 0.95);
    d->p99 = d->ninvalid ? (double)INFINITY : percentile(p, 0.99);
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
    if (rc == 0)
        compare(&(const struct pairs){&r, &o, diff->size}, diff);
    return rc;
}
