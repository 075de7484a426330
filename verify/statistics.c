/* Sums over the served bytes, block by block. They are taken about the first finite number, so that
 * a mean far from zero does not eat the digits of the deviation. */
#include "verify/statistics.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "verify/convert.h"

enum { BLOCK = 4096 };

struct sums {
    struct ckpt_statistics *s;
    uint64_t finite;
    double about, sum, squares;
};

static void add(struct sums *a, double v) {
    struct ckpt_statistics *const s = a->s;
    s->nans += isnan(v) != 0;
    s->infinities += isinf(v) != 0;
    if (!isfinite(v))
        return;
    if (a->finite++ == 0)
        a->about = s->min = s->max = v;
    s->min = fmin(s->min, v);
    s->max = fmax(s->max, v);
    a->sum += v - a->about;
    a->squares += (v - a->about) * (v - a->about);
}

static void finish(struct sums *a) {
    struct ckpt_statistics *const s = a->s;
    const double n = (double)a->finite;
    if (a->finite == 0) {
        s->min = s->max = s->mean = s->std = (double)NAN;
        return;
    }
    const double variance = a->squares / n - a->sum / n * (a->sum / n);
    s->mean = a->about + a->sum / n;
    s->std = variance > 0 ? sqrt(variance) : 0;
}

static void add_block(struct sums *a, enum ckpt_dtype dtype, const uint8_t *bytes, int64_t n) {
    union {
        float f32[BLOCK];
        double f64[BLOCK];
        int64_t i64[BLOCK];
    } number;
    if (dtype == CKPT_DT_F64)
        memcpy(number.f64, bytes, (size_t)n * sizeof(double));
    else if (ckpt_convert_is_float(dtype))
        ckpt_convert_f32(dtype, bytes, n, number.f32);
    else
        ckpt_convert_i64(dtype, bytes, n, number.i64);
    for (int64_t i = 0; i < n; i++)
        add(a, dtype == CKPT_DT_F64           ? number.f64[i]
               : ckpt_convert_is_float(dtype) ? (double)number.f32[i]
                                              : (double)number.i64[i]);
}

int ckpt_statistics_of(struct ckpt_reader *reader, const struct ckpt_adapted *t,
                       const struct ckpt_exec *exec, struct ckpt_statistics *s,
                       struct ckpt_err *err) {
    uint8_t bytes[BLOCK * 8];
    struct sums sums = {.s = s};
    memset(s, 0, sizeof(*s));
    if (ckpt_array_dtype(t->dtype) == CKPT_DT_NONE)
        return ckpt_fail(err, -EOPNOTSUPP, "%.*s is %s, which the checker can't use",
                         CKPT_TEXT_ARGS(t->key), ckpt_dtype_info(t->dtype)->name);
    const uint64_t unit = ckpt_dtype_info(t->dtype)->unit_bytes;
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < t->nbytes; done += BLOCK * unit) {
        const uint64_t n = t->nbytes - done < BLOCK * unit ? t->nbytes - done : BLOCK * unit;
        rc = ckpt_exec_check(exec, err);
        if (rc == 0)
            rc = ckpt_reader_read(reader, t, done, (size_t)n, bytes, err);
        if (rc == 0)
            add_block(&sums, t->dtype, bytes, (int64_t)(n / unit));
    }
    s->count = t->nbytes / unit;
    finish(&sums);
    return rc;
}
