/*
 * Convolution as matrix products, one a sample, group and band:
 *
 *     columns[C/g * K, P] = im2col(x)          y[band of O/g, P] = Wband columns
 *
 * K positions of the kernel, P positions of the output. Weights are read in bands of rows, columns
 * are made for a band of positions. A kernel of one element needs no columns: x is them already.
 */
#include <string.h>

#include "base/cleanup.h"
#include "verify/conv.h"
#include "verify/blas.h"

/* So many bytes of columns are still in a cache when they are multiplied; measured with resnet18.
 */
#define COLUMNS_BYTES ((int64_t)2 << 20)

struct product {
    struct ckpt_call *c;
    const struct ckpt_conv *v;
    int64_t depth;        /* C/g * K */
    int64_t rows, height; /* O/g; how many of them are read together */
    int64_t width;        /* positions whose columns are made together */
    bool direct;          /* x is the columns */
    struct ckpt_array band, columns;
};

static void product_fini(struct product *p) {
    ckpt_array_fini(&p->band);
    ckpt_array_fini(&p->columns);
}
CKPT_DEFINE_AUTO(product, struct product, product_fini)

/* ---- columns ---- */

/* Output positions [o, o + n) of one row; x is the input row, NULL in the padding. */
static void copy_row(const struct ckpt_conv *v, const float *x, struct ckpt_conv_span s, int64_t o,
                     int64_t n, float *to) {
    const int64_t stride = v->stride[2], first = s.first < o ? o : s.first;
    const int64_t end = s.end < o + n ? s.end : o + n;
    if (!x || first >= end) {
        memset(to, 0, (size_t)n * sizeof(*to));
        return;
    }
    for (int64_t i = o; i < first; i++)
        to[i - o] = 0;
    if (stride == 1)
        memcpy(to + first - o, x + first + s.start, (size_t)(end - first) * sizeof(*to));
    else
        for (int64_t i = first; i < end; i++)
            to[i - o] = x[i * stride + s.start];
    for (int64_t i = end; i < o + n; i++)
        to[i - o] = 0;
}

/* One row of columns: channel plane x and kernel element k at output positions [first, first + n).
 */
static void column_row(const struct ckpt_conv *v, const float *x, const int64_t *k, int64_t first,
                       int64_t n, float *to) {
    const struct ckpt_conv_span span = ckpt_conv_span(v, k[2]);
    const int64_t width = v->out[2];
    int64_t row = first / width, o = first % width;
    for (int64_t done = 0, len; done < n; done += len, row++, o = 0) {
        const int64_t from = ckpt_conv_row(v, k, row);
        len = width - o < n - done ? width - o : n - done;
        copy_row(v, from < 0 ? NULL : x + from * v->axes.in[2], span, o, len, to + done);
    }
}

static void im2col(const struct product *p, const float *x, int64_t first, int64_t n) {
    const struct ckpt_conv *const v = p->v;
    float *to = ckpt_array_f32(&p->columns);
    for (int64_t row = 0; row < p->depth; row++, to += n) {
        int64_t k[3];
        ckpt_conv_unravel(row % v->kernel_size, v->kernel, k);
        column_row(v, x + row / v->kernel_size * v->positions_in, k, first, n, to);
    }
}

/* ---- products ---- */

/* The weight's rows [first, first + n) of group g, by columns of positions [at, at + m). */
static void multiply(const struct product *p, const float *columns, int64_t stride, int64_t sample,
                     int64_t row, int64_t n, int64_t at, int64_t m) {
    const struct ckpt_conv *const v = p->v;
    float *const y = ckpt_array_f32(p->c->out) + (sample * v->cout + row) * v->positions_out + at;
    ckpt_blas_sgemm(CKPT_BLAS_ROWS, CKPT_BLAS_ROWS, (int)n, (int)m, (int)p->depth, 1,
                    ckpt_array_f32(&p->band), (int)p->depth, columns, (int)stride, 0, y,
                    (int)v->positions_out);
}

static int read_band(const struct product *p, int64_t row, int64_t n, struct ckpt_err *err) {
    const struct ckpt_param *const w = &p->v->weight;
    const int rc = ckpt_exec_check(p->c->exec, err);
    return rc < 0 ? rc : w->read(w, row * p->depth, n * p->depth, ckpt_array_f32(&p->band), err);
}

/* Rows [row, row + n), which are in the band, for all positions of all samples. */
static int multiply_band(const struct product *p, int64_t group, int64_t row, int64_t n,
                         struct ckpt_err *err) {
    const struct ckpt_conv *const v = p->v;
    int rc = 0;
    for (int64_t s = 0; rc == 0 && s < v->batch; s++) {
        const float *const x =
            ckpt_array_f32(&v->x) + (s * v->cin + group * v->weight.shape[1]) * v->positions_in;
        for (int64_t at = 0; rc == 0 && at < v->positions_out; at += p->width) {
            const int64_t left = v->positions_out - at, m = left < p->width ? left : p->width;
            if (p->direct) {
                multiply(p, x + at, v->positions_in, s, row, n, at, m);
                continue;
            }
            im2col(p, x, at, m);
            multiply(p, ckpt_array_f32(&p->columns), m, s, row, n, at, m);
            rc = ckpt_exec_check(p->c->exec, err);
        }
        if (rc == 0)
            rc = ckpt_exec_check(p->c->exec, err);
    }
    return rc;
}

/* ---- the whole ---- */

static bool one_to_one(const struct ckpt_conv *v) {
    bool is = v->kernel_size == 1;
    for (int d = 0; d < 3; d++)
        is = is && v->stride[d] == 1 && v->pad[d] == 0 && v->out[d] == v->axes.in[d];
    return is;
}

static int product_init(struct product *p, struct ckpt_err *err) {
    struct ckpt_memory *const memory = &p->c->exec->memory;
    const struct ckpt_conv *const v = p->v;
    p->depth = v->weight.shape[1] * v->kernel_size;
    p->rows = v->cout / v->groups;
    p->direct = one_to_one(v);
    const int64_t bytes = p->depth * (int64_t)sizeof(float);
    const int64_t cached = COLUMNS_BYTES / bytes > 64 ? COLUMNS_BYTES / bytes : 64;
    p->height = ckpt_call_band(p->c, p->rows, bytes);
    p->width = ckpt_call_band(p->c, v->positions_out, bytes);
    if (p->direct)
        p->width = v->positions_out;
    else if (p->width > cached && p->height == p->rows)
        p->width = cached;
    int rc =
        ckpt_array_new(&p->band, memory, CKPT_DT_F32, (int64_t[]){p->height, p->depth}, 2, err);
    if (rc == 0 && !p->direct)
        rc = ckpt_array_new_unset(&p->columns, memory, CKPT_DT_F32, (int64_t[]){p->depth, p->width},
                                  2, err);
    return rc;
}

int ckpt_conv_forward(struct ckpt_call *c, const struct ckpt_conv *v, struct ckpt_err *err) {
    CKPT_AUTO(product) struct product p = {.c = c, .v = v};
    int rc = product_init(&p, err);
    for (int64_t g = 0; rc == 0 && g < v->groups; g++)
        for (int64_t first = 0; rc == 0 && first < p.rows; first += p.height) {
            const int64_t left = p.rows - first, n = left < p.height ? left : p.height;
            const int64_t row = g * p.rows + first;
            rc = read_band(&p, row, n, err);
            if (rc == 0)
                rc = multiply_band(&p, g, row, n, err);
        }
    return rc;
}
