/*
 * Convolutions of one to three dimensions. One- and two-dimensional ones are three-dimensional ones
 * whose leading axes have size 1.
 *
 *     forward      columns[C/g * K, P] = im2col(x)       y[band of O/g, P] = Wband columns
 *     depthwise    C/g = 1: a direct loop, a matrix product would be one row high
 *     transposed   columns[O/g * K, P] = Wband^T x       y = col2im(columns), overlaps added
 *
 * K positions of the kernel, P positions of the output (of the input when transposed). Weights are
 * read in bands of rows, columns are made for a band of positions.
 */
#include <cblas.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "verify/op.h"

struct conv {
    int64_t batch, cin, cout, groups;
    int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
    int64_t positions_in, positions_out, kernel_size;
    uint32_t spatial; /* 1, 2 or 3 */
    bool transposed, unbatched;
    struct ckpt_param weight;
    struct ckpt_array x, bias, hold;
};

static void conv_fini(struct conv *v) {
    ckpt_array_fini(&v->x);
    ckpt_array_fini(&v->bias);
    ckpt_array_fini(&v->hold);
}
CKPT_DEFINE_AUTO(conv, struct conv, conv_fini)

/* ---- geometry ---- */

static bool padding_is(const struct ckpt_call *c, const char *word) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, "padding");
    return a && a->kind == CKPT_ARG_STRING && strcmp(a->string, word) == 0;
}

/* Reads a per-axis argument into the last `spatial` of three. */
static int axes(const struct ckpt_call *c, const struct conv *v, const char *name,
                int64_t otherwise, int64_t least, int64_t *out, struct ckpt_err *err) {
    const uint32_t skip = 3 - v->spatial;
    for (uint32_t d = 0; d < skip; d++)
        out[d] = otherwise;
    const int rc = ckpt_call_ints(c, name, v->spatial, otherwise, out + skip, err);
    for (uint32_t d = skip; rc == 0 && d < 3; d++)
        if (out[d] < least || out[d] > INT32_MAX)
            return ckpt_fail(err, -EINVAL, "%s is %lld, expected at least %lld", name,
                             (long long)out[d], (long long)least);
    return rc;
}

static int read_geometry(const struct ckpt_call *c, struct conv *v, int64_t *extra,
                         struct ckpt_err *err) {
    const bool same = padding_is(c, "same"), valid = padding_is(c, "valid");
    int rc = axes(c, v, "stride", 1, 1, v->stride, err);
    if (rc == 0)
        rc = axes(c, v, "dilation", 1, 1, v->dilation, err);
    if (rc == 0 && !same && !valid)
        rc = axes(c, v, "padding", 0, 0, v->pad, err);
    if (rc == 0)
        rc = axes(c, v, "output_padding", 0, 0, extra, err);
    for (int d = 0; rc == 0 && same && d < 3; d++) {
        extra[d] = v->dilation[d] * (v->kernel[d] - 1); /* the padding of both sides together */
        v->pad[d] = extra[d] / 2;
    }
    return rc;
}

/* The output's size along an axis. `extra`: output padding, or all padding of "same". */
static int64_t out_size(const struct conv *v, int d, int64_t extra, bool same) {
    const int64_t reach = v->dilation[d] * (v->kernel[d] - 1) + 1;
    if (v->transposed)
        return (v->in[d] - 1) * v->stride[d] - 2 * v->pad[d] + reach + extra;
    const int64_t padded = v->in[d] + (same ? extra : 2 * v->pad[d]);
    return padded < reach ? 0 : (padded - reach) / v->stride[d] + 1;
}

static int set_output(const struct ckpt_call *c, struct conv *v, const int64_t *extra,
                      struct ckpt_err *err) {
    const bool same = padding_is(c, "same");
    v->positions_in = v->positions_out = v->kernel_size = 1;
    for (int d = 0; d < 3; d++) {
        v->out[d] = out_size(v, d, extra[d], same);
        if (v->out[d] < 1)
            return ckpt_fail(err, -EINVAL, "the input is too small for the kernel of %.*s",
                             CKPT_TEXT_ARGS(v->weight.name));
        if (!ckpt_mul_i64(v->positions_in, v->in[d], &v->positions_in) ||
            !ckpt_mul_i64(v->positions_out, v->out[d], &v->positions_out) ||
            !ckpt_mul_i64(v->kernel_size, v->kernel[d], &v->kernel_size))
            return ckpt_fail(err, -EOVERFLOW, "dimensions too large");
    }
    return 0;
}

static int check_weight(const struct ckpt_call *c, struct conv *v, struct ckpt_err *err) {
    const struct ckpt_param *const w = &v->weight;
    if (w->ndim != v->spatial + 2)
        return ckpt_fail(err, -EINVAL, "weight %.*s has %u dimensions, expected %u",
                         CKPT_TEXT_ARGS(w->name), w->ndim, v->spatial + 2);
    v->groups = ckpt_call_int(c, "groups", 1);
    if (v->groups < 1 || w->shape[0] % v->groups != 0 || ckpt_param_count(w) == 0)
        return ckpt_fail(err, -EINVAL, "weight %.*s of %lld rows cannot be %lld groups",
                         CKPT_TEXT_ARGS(w->name), (long long)w->shape[0], (long long)v->groups);
    if (!ckpt_mul_i64(w->shape[1], v->groups, v->transposed ? &v->cout : &v->cin))
        return ckpt_fail(err, -EOVERFLOW, "too many groups");
    *(v->transposed ? &v->cin : &v->cout) = w->shape[0];
    for (uint32_t d = 0; d < 3; d++)
        v->kernel[d] = d < 3 - v->spatial ? 1 : w->shape[2 + d - (3 - v->spatial)];
    return 0;
}

static int check_input(struct conv *v, struct ckpt_err *err) {
    const struct ckpt_array *const x = &v->x;
    char text[64];
    v->unbatched = x->ndim == v->spatial + 1;
    if (!v->unbatched && x->ndim != v->spatial + 2)
        return ckpt_fail(err, -EINVAL, "the input %s has %u dimensions, expected %u",
                         ckpt_array_shape_text(x, text, sizeof(text)), x->ndim, v->spatial + 2);
    const int64_t *const shape = x->shape + (v->unbatched ? 0 : 1);
    v->batch = v->unbatched ? 1 : x->shape[0];
    if (shape[0] != v->cin)
        return ckpt_fail(err, -EINVAL, "the input has %lld channels, weight %.*s expects %lld",
                         (long long)shape[0], CKPT_TEXT_ARGS(v->weight.name), (long long)v->cin);
    for (uint32_t d = 0; d < 3; d++)
        v->in[d] = d < 3 - v->spatial ? 1 : shape[1 + d - (3 - v->spatial)];
    return 0;
}

static int make_result(struct ckpt_call *c, const struct conv *v, struct ckpt_err *err) {
    int64_t shape[5];
    uint32_t n = 0;
    if (!v->unbatched)
        shape[n++] = v->batch;
    shape[n++] = v->cout;
    for (uint32_t d = 3 - v->spatial; d < 3; d++)
        shape[n++] = v->out[d];
    return ckpt_call_result(c, shape, n, err);
}

static int conv_init(struct ckpt_call *c, struct conv *v, struct ckpt_err *err) {
    int64_t extra[3] = {0};
    int rc = ckpt_call_input(c, "input", &v->x, err);
    if (rc == 0)
        rc = ckpt_call_param(c, "weight", &v->hold, &v->weight, err);
    if (rc == 0)
        rc = check_weight(c, v, err);
    if (rc == 0)
        rc = check_input(v, err);
    if (rc == 0)
        rc = read_geometry(c, v, extra, err);
    if (rc == 0)
        rc = set_output(c, v, extra, err);
    if (rc == 0)
        rc = ckpt_call_vector(c, "bias", v->cout, &v->bias, err);
    if (rc == 0 && !ckpt_blas_fits(v->positions_in, v->positions_out, ckpt_param_count(&v->weight)))
        rc = ckpt_fail(err, -EOVERFLOW, "weight %.*s or the input has more than 2^31 elements",
                       CKPT_TEXT_ARGS(v->weight.name));
    return rc < 0 ? rc : make_result(c, v, err);
}

static void add_bias(const struct ckpt_call *c, const struct conv *v) {
    if (!v->bias.store)
        return;
    for (int64_t row = 0; row < v->batch * v->cout; row++) {
        float *const y = ckpt_array_f32(c->out) + row * v->positions_out;
        for (int64_t p = 0; p < v->positions_out; p++)
            y[p] += ckpt_array_f32(&v->bias)[row % v->cout];
    }
}

/* ---- columns ---- */

/* The input position that kernel element k meets at output position p, or -1 in the padding. */
static int64_t source_position(const struct conv *v, const int64_t *p, const int64_t *k) {
    int64_t at = 0;
    for (int d = 0; d < 3; d++) {
        const int64_t i = p[d] * v->stride[d] - v->pad[d] + k[d] * v->dilation[d];
        if (i < 0 || i >= v->in[d])
            return -1;
        at = at * v->in[d] + i;
    }
    return at;
}

static void unravel(int64_t at, const int64_t *size, int64_t *index) {
    for (int d = 3; d-- > 0;) {
        index[d] = at % size[d];
        at /= size[d];
    }
}

static void advance(const int64_t *size, int64_t *index) {
    for (int d = 3; d-- > 0;) {
        if (++index[d] < size[d])
            return;
        index[d] = 0;
    }
}

/* Columns of `channels` channels of x for output positions [first, first + n). */
static void im2col(const struct conv *v, const float *x, int64_t channels, int64_t first, int64_t n,
                   float *columns) {
    for (int64_t element = 0; element < v->kernel_size; element++) {
        int64_t k[3], p[3];
        unravel(element, v->kernel, k);
        unravel(first, v->out, p);
        for (int64_t i = 0; i < n; i++, advance(v->out, p)) {
            const int64_t from = source_position(v, p, k);
            for (int64_t ch = 0; ch < channels; ch++)
                columns[(ch * v->kernel_size + element) * n + i] =
                    from < 0 ? 0 : x[ch * v->positions_in + from];
        }
    }
}

/* ---- forward ---- */

/* Weight rows [first, first + n) of group g, for all samples and positions. */
static int multiply_band(struct ckpt_call *c, const struct conv *v, const float *band, int64_t g,
                         int64_t first, int64_t n, struct ckpt_array *columns, int64_t width) {
    const int64_t depth = v->weight.shape[1] * v->kernel_size;
    const int64_t out_row = g * (v->cout / v->groups) + first;
    for (int64_t s = 0; s < v->batch; s++) {
        const int64_t in_row = s * v->cin + g * v->weight.shape[1];
        const float *const x = ckpt_array_f32(&v->x) + in_row * v->positions_in;
        float *const y = ckpt_array_f32(c->out) + (s * v->cout + out_row) * v->positions_out;
        for (int64_t p = 0; p < v->positions_out; p += width) {
            const int64_t m = v->positions_out - p < width ? v->positions_out - p : width;
            im2col(v, x, v->weight.shape[1], p, m, ckpt_array_f32(columns));
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)m, (int)depth, 1,
                        band, (int)depth, ckpt_array_f32(columns), (int)m, 0, y + p,
                        (int)v->positions_out);
        }
    }
    return 0;
}

static int forward(struct ckpt_call *c, const struct conv *v, struct ckpt_err *err) {
    const int64_t depth = v->weight.shape[1] * v->kernel_size, rows = v->cout / v->groups;
    const int64_t bytes = depth * (int64_t)sizeof(float);
    const int64_t height = ckpt_call_band(c, rows, bytes);
    const int64_t width = ckpt_call_band(c, v->positions_out, bytes);
    CKPT_AUTO(array) struct ckpt_array band = {0}, columns = {0};
    struct ckpt_memory *const memory = &c->exec->memory;
    int rc = ckpt_array_new(&band, memory, CKPT_DT_F32, (int64_t[]){height, depth}, 2, err);
    if (rc == 0)
        rc = ckpt_array_new(&columns, memory, CKPT_DT_F32, (int64_t[]){depth, width}, 2, err);
    for (int64_t g = 0; rc == 0 && g < v->groups; g++)
        for (int64_t first = 0; rc == 0 && first < rows; first += height) {
            const int64_t n = rows - first < height ? rows - first : height;
            rc = v->weight.read(&v->weight, (g * rows + first) * depth, n * depth,
                                ckpt_array_f32(&band), err);
            if (rc == 0)
                rc = multiply_band(c, v, ckpt_array_f32(&band), g, first, n, &columns, width);
            if (rc == 0)
                rc = ckpt_exec_check(c->exec, err);
        }
    return rc;
}

/* One input channel a group: each output channel is a small stencil. */
static void stencil(const struct conv *v, const float *x, const float *kernel, float *y) {
    int64_t p[3] = {0};
    for (int64_t i = 0; i < v->positions_out; i++, advance(v->out, p)) {
        int64_t k[3] = {0};
        float sum = 0;
        for (int64_t element = 0; element < v->kernel_size; element++, advance(v->kernel, k)) {
            const int64_t from = source_position(v, p, k);
            sum += from < 0 ? 0 : kernel[element] * x[from];
        }
        y[i] = sum;
    }
}

static int depthwise(struct ckpt_call *c, const struct conv *v, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array w = {0};
    const int rc = ckpt_param_load(&v->weight, &c->exec->memory, &w, err);
    if (rc < 0)
        return rc;
    const int64_t multiplier = v->cout / v->groups;
    for (int64_t row = 0; row < v->batch * v->cout; row++) {
        const int64_t sample = row / v->cout, channel = row % v->cout;
        stencil(v,
                ckpt_array_f32(&v->x) + (sample * v->cin + channel / multiplier) * v->positions_in,
                ckpt_array_f32(&w) + channel * v->kernel_size,
                ckpt_array_f32(c->out) + row * v->positions_out);
    }
    return 0;
}

/* ---- transposed ---- */

/* Adds the columns of `channels` output channels to y. Input positions are columns here. */
static void col2im(const struct conv *v, const float *columns, int64_t channels, float *y) {
    for (int64_t row = 0; row < channels * v->kernel_size; row++) {
        const float *const from = columns + row * v->positions_in;
        float *const to = y + row / v->kernel_size * v->positions_out;
        int64_t k[3], p[3] = {0};
        unravel(row % v->kernel_size, v->kernel, k);
        for (int64_t i = 0; i < v->positions_in; i++, advance(v->in, p)) {
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

/* columns += Wband^T x over all bands of group g of sample s. */
static int transposed_columns(struct ckpt_call *c, const struct conv *v, int64_t s, int64_t g,
                              struct ckpt_array *band, struct ckpt_array *columns,
                              struct ckpt_err *err) {
    const int64_t rows = v->cin / v->groups, depth = columns->shape[0], height = band->shape[0];
    const float *const x = ckpt_array_f32(&v->x) + (s * v->cin + g * rows) * v->positions_in;
    for (int64_t first = 0; first < rows; first += height) {
        const int64_t n = rows - first < height ? rows - first : height;
        const int rc = v->weight.read(&v->weight, (g * rows + first) * depth, n * depth,
                                      ckpt_array_f32(band), err);
        if (rc < 0)
            return rc;
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)depth, (int)v->positions_in,
                    (int)n, 1, ckpt_array_f32(band), (int)depth, x + first * v->positions_in,
                    (int)v->positions_in, first > 0 ? 1 : 0, ckpt_array_f32(columns),
                    (int)v->positions_in);
    }
    return ckpt_exec_check(c->exec, err);
}

static int transposed(struct ckpt_call *c, const struct conv *v, struct ckpt_err *err) {
    const int64_t channels = v->weight.shape[1], depth = channels * v->kernel_size;
    const int64_t height = ckpt_call_band(c, v->cin / v->groups, depth * (int64_t)sizeof(float));
    CKPT_AUTO(array) struct ckpt_array band = {0}, columns = {0};
    struct ckpt_memory *const memory = &c->exec->memory;
    int rc = ckpt_array_new(&band, memory, CKPT_DT_F32, (int64_t[]){height, depth}, 2, err);
    if (rc == 0)
        rc = ckpt_array_new(&columns, memory, CKPT_DT_F32, (int64_t[]){depth, v->positions_in}, 2,
                            err);
    for (int64_t i = 0; rc == 0 && i < v->batch * v->groups; i++) {
        rc = transposed_columns(c, v, i / v->groups, i % v->groups, &band, &columns, err);
        if (rc == 0)
            col2im(v, ckpt_array_f32(&columns), channels,
                   ckpt_array_f32(c->out) + i * channels * v->positions_out);
    }
    return rc;
}

static int conv(struct ckpt_call *c, uint32_t spatial, bool is_transposed, struct ckpt_err *err) {
    CKPT_AUTO(conv) struct conv v = {.spatial = spatial, .transposed = is_transposed};
    int rc = conv_init(c, &v, err);
    if (rc == 0)
        rc = is_transposed                            ? transposed(c, &v, err)
             : v.weight.shape[1] == 1 && v.groups > 1 ? depthwise(c, &v, err)
                                                      : forward(c, &v, err);
    if (rc == 0)
        add_bias(c, &v);
    return rc;
}

int ckpt_op_conv1d(struct ckpt_call *c, struct ckpt_err *err) {
    return conv(c, 1, false, err);
}

int ckpt_op_conv2d(struct ckpt_call *c, struct ckpt_err *err) {
    return conv(c, 2, false, err);
}

int ckpt_op_conv3d(struct ckpt_call *c, struct ckpt_err *err) {
    return conv(c, 3, false, err);
}

int ckpt_op_conv_transpose1d(struct ckpt_call *c, struct ckpt_err *err) {
    return conv(c, 1, true, err);
}

int ckpt_op_conv_transpose2d(struct ckpt_call *c, struct ckpt_err *err) {
    return conv(c, 2, true, err);
}

int ckpt_op_conv_transpose3d(struct ckpt_call *c, struct ckpt_err *err) {
    return conv(c, 3, true, err);
}
