#ifndef CKPT_VERIFY_DIFF_H
#define CKPT_VERIFY_DIFF_H
/*
 * How far an output is from its reference, element by element, in double. The rules (what counts
 * as equal among NaN and infinities, whose magnitude scales rtol) stand in docs/verification.md.
 */
#include <stdbool.h>
#include <stdint.h>

#include "verify/array.h"

#define CKPT_DIFF_TOP 5
#define CKPT_DIFF_DECADES 16

struct ckpt_diff {
    int64_t size, ref_size, out_size; /* size: the smaller; only so many are compared */
    uint32_t ref_ndim, out_ndim;
    int64_t ref_shape[CKPT_ARRAY_NDIM_MAX], out_shape[CKPT_ARRAY_NDIM_MAX];
    bool size_match, shape_match, allclose;
    double atol, rtol;
    double max_abs, mean_abs, max_rel; /* over all compared entries; infinite if any is invalid */
    double p50, p95, p99;              /* of the absolute errors */
    int64_t ninvalid; /* NaN anywhere, infinite against finite, opposite infinities */
    struct {
        int64_t index;
        double error;
    } top[CKPT_DIFF_TOP]; /* largest errors first, the lower index first among equals */
    uint32_t ntop;
    /* how many errors are 0; below 1e-12; of [1e-12, 1e-11) ...; of 10 and more, infinite ones too
     */
    int64_t decade[CKPT_DIFF_DECADES];
};

/* Both arrays may be of any dtype and layout. */
int ckpt_diff(const struct ckpt_array *ref, const struct ckpt_array *out, double atol, double rtol,
              struct ckpt_diff *diff, struct ckpt_err *err) CKPT_CHECKED;

#endif
