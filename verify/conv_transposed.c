/*
 * Transposed convolution: the products of a forward one the other way round, and overlaps added.
 *
 *     columns[O/g * K, P] = W^T x          y = col2im(columns)
 *
 * P positions of the input.
 */

#include "base/cleanup.h"
#include "verify/conv.h"
#include "verify/blas.h"

static void advance(const int64_t *size, int64_t *index) {
    for (int d = 3; d-- > 0;) {
        if (++index[d] < size[d])
            return;
        index[d] = 0;
    }
}

/* Adds the columns of `channels` output channels to y. */
static void col2im(const struct ckpt_conv *v, const float *columns, int64_t channels, float *y) {
    for (int64_t row = 0; row < channels * v->kernel_size; row++) {
        const float *const from = columns + row * v->positions_in;
        float *const to = y + row / v->kernel_size * v->positions_out;
        int64_t k[3], p[3] = {0};
        ckpt_conv_unravel(row % v->kernel_size, v->kernel, k);
        for (int64_t i = 0; i < v->positions_in; i++, advance(v->axes.in, p)) {
            int64_t at = 0;
            bool inside = true;
            for (int d = 0; d < 3; d++) {
                const int64_t o = p[d] * v->stride[d] - v->pad[d] + k[d] * v->dilation[d];
                inside = inside && o >= 0 && o < v->out[d];
                at = at * v->out[d] + o;
            }
            if (inside)
                to[at] += from[i];
        }
    }
}

/* columns = W^T x of group g of sample s, over all bands of W. */
static int multiply(struct ckpt_call *c, const struct ckpt_conv *v, int64_t s, int64_t g,
                    struct ckpt_array *band, struct ckpt_array *columns, struct ckpt_err *err) {
    const int64_t rows = v->cin / v->groups, depth = columns->shape[0], height = band->shape[0];
    const float *const x = ckpt_array_f32(&v->x) + (s * v->cin + g * rows) * v->positions_in;
    for (int64_t first = 0; first < rows; first += height) {
        const int64_t n = rows - first < height ? rows - first : height;
        const int rc = v->weight.read(&v->weight, (g * rows + first) * depth, n * depth,
                                      ckpt_array_f32(band), err);
        if (rc < 0)
            return rc;
        ckpt_blas_sgemm(CKPT_BLAS_COLUMNS, CKPT_BLAS_ROWS, (int)depth, (int)v->positions_in, (int)n,
                        1, ckpt_array_f32(band), (int)depth, x + first * v->positions_in,
                        (int)v->positions_in, first > 0 ? 1 : 0, ckpt_array_f32(columns),
                        (int)v->positions_in);
    }
    return ckpt_exec_check(c->exec, err);
}

int ckpt_conv_transposed(struct ckpt_call *c, const struct ckpt_conv *v, struct ckpt_err *err) {
    const int64_t channels = v->weight.shape[1], depth = channels * v->kernel_size;
    const int64_t height = ckpt_call_band(c, v->cin / v->groups, depth * (int64_t)sizeof(float));
    CKPT_AUTO(array) struct ckpt_array band = {0}, columns = {0};
    struct ckpt_memory *const memory = &c->exec->memory;
    int rc = ckpt_array_new(&band, memory, CKPT_DT_F32, (int64_t[]){height, depth}, 2, err);
    if (rc == 0)
        rc = ckpt_array_new(&columns, memory, CKPT_DT_F32, (int64_t[]){depth, v->positions_in}, 2,
                            err);
    for (int64_t i = 0; rc == 0 && i < v->batch * v->groups; i++) {
        rc = multiply(c, v, i / v->groups, i % v->groups, &band, &columns, err);
        if (rc == 0)
            col2im(v, ckpt_array_f32(&columns), channels,
                   ckpt_array_f32(c->out) + i * channels * v->positions_out);
    }
    return rc;
}
