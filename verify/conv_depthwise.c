/*
 * Depthwise convolution: one input channel a group. A matrix product would be one row high, so each
 * element of the kernel adds its multiple of an input row to an output row:
 *
 *     y[row] += w[k] * x[row that k meets]
 */
#include "base/cleanup.h"
#include "base/cpu.h"
#include "verify/conv.h"

/* y += w * x, x's elements `stride` apart. */
static inline __attribute__((always_inline)) void add_multiple(const float *x, int64_t stride,
                                                               float w, int64_t n, float *y) {
    if (stride == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] += w * x[i];
    else if (stride == 2)
        for (int64_t i = 0; i < n; i++)
            y[i] += w * x[2 * i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] += w * x[stride * i];
}

/* What the kernel's element k adds to a plane. */
static inline __attribute__((always_inline)) void
add_element(const struct ckpt_conv *v, const float *x, const int64_t *k, float w, float *y) {
    const struct ckpt_conv_span s = ckpt_conv_span(v, k[2]);
    const int64_t rows = v->out[0] * v->out[1], width = v->out[2], n = s.end - s.first;
    for (int64_t row = 0; n > 0 && row < rows; row++) {
        const int64_t from = ckpt_conv_row(v, k, row);
        if (from >= 0)
            add_multiple(x + from * v->axes.in[2] + s.first * v->stride[2] + s.start, v->stride[2],
                         w, n, y + row * width + s.first);
    }
}

/* One plane, all of y zero before. */
static inline __attribute__((always_inline)) void stencil(const struct ckpt_conv *v, const float *x,
                                                          const float *kernel, float *y) {
    for (int64_t element = 0; element < v->kernel_size; element++) {
        int64_t k[3];
        ckpt_conv_unravel(element, v->kernel, k);
        add_element(v, x, k, kernel[element], y);
    }
}

typedef void stencil_fn(const struct ckpt_conv *v, const float *x, const float *kernel, float *y);

static void stencil_plain(const struct ckpt_conv *v, const float *x, const float *kernel,
                          float *y) {
    stencil(v, x, kernel, y);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void stencil_avx2(const struct ckpt_conv *v, const float *x,
                                                         const float *kernel, float *y) {
    stencil(v, x, kernel, y);
}
#else
#define stencil_avx2 stencil_plain
#endif

int ckpt_conv_depthwise(struct ckpt_call *c, const struct ckpt_conv *v, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array w = {0};
    stencil_fn *const run = ckpt_cpu()->avx2 ? stencil_avx2 : stencil_plain;
    int rc = ckpt_param_load(&v->weight, &c->exec->memory, &w, err);
    const int64_t multiplier = v->cout / v->groups;
    for (int64_t row = 0; rc == 0 && row < v->batch * v->cout; row++) {
        const int64_t sample = row / v->cout, channel = row % v->cout;
        const int64_t plane = sample * v->cin + channel / multiplier;
        run(v, ckpt_array_f32(&v->x) + plane * v->positions_in,
            ckpt_array_f32(&w) + channel * v->kernel_size,
            ckpt_array_f32(c->out) + row * v->positions_out);
        rc = ckpt_exec_check(c->exec, err);
    }
    return rc;
}
