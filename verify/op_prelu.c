/* prelu: a slope of its own for each channel, or one for all. */
#include <errno.h>

#include "base/cleanup.h"
#include "verify/op.h"

/* Channels lie along dimension 1; `inner` neighbours belong to one. */
static void apply(const struct ckpt_array *x, const struct ckpt_array *slope, int64_t inner,
                  float *y) {
    const int64_t count = ckpt_array_count(x), channels = slope->shape[0];
    for (int64_t i = 0; i < count; i++) {
        const float v = ckpt_array_f32(x)[i];
        y[i] = v > 0 ? v : v * ckpt_array_f32(slope)[i / inner % channels];
    }
}

int ckpt_op_prelu(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0}, slope = {0};
    int rc = ckpt_call_input(c, "self", &x, err);
    if (rc == 0)
        rc = ckpt_call_input(c, "weight", &slope, err);
    if (rc < 0)
        return rc;
    const int64_t channels = x.ndim > 1 ? x.shape[1] : 1;
    const int64_t slopes = ckpt_array_count(&slope);
    if (slope.ndim > 1 || (slopes != 1 && slopes != channels))
        return ckpt_fail(err, -EINVAL, "weight has %lld elements, expected 1 or %lld channels",
                         (long long)slopes, (long long)channels);
    int64_t inner = 1;
    for (uint32_t d = 2; d < x.ndim; d++)
        inner *= x.shape[d];
    slope.shape[0] = slopes;
    rc = ckpt_call_result(c, x.shape, x.ndim, err);
    if (rc == 0)
        apply(&x, &slope, inner, ckpt_array_f32(c->out));
    return rc;
}

/* The kernel alone: one slope for each element, broadcast. */
int ckpt_op_prelu_kernel(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0}, given = {0}, seen = {0}, slope = {0};
    int rc = ckpt_call_input(c, "self", &x, err);
    if (rc == 0)
        rc = ckpt_call_input(c, "weight", &given, err);
    if (rc == 0)
        rc = ckpt_array_expand(&given, x.shape, x.ndim, &seen, err);
    if (rc == 0)
        rc = ckpt_array_contiguous(&seen, &c->exec->memory, &slope, err);
    if (rc == 0)
        rc = ckpt_call_result(c, x.shape, x.ndim, err);
    for (int64_t i = 0; rc == 0 && i < ckpt_array_count(&x); i++) {
        const float v = ckpt_array_f32(&x)[i];
        ckpt_array_f32(c->out)[i] = v > 0 ? v : v * ckpt_array_f32(&slope)[i];
    }
    return rc;
}
