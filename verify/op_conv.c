/*
 * Convolutions of one to three dimensions: their arguments and geometry, and which kernel computes
 * them. One- and two-dimensional ones are three-dimensional ones whose leading axes have size 1.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "verify/conv.h"

static void conv_fini(struct ckpt_conv *v) {
    ckpt_array_fini(&v->x);
    ckpt_array_fini(&v->bias);
    ckpt_array_fini(&v->hold);
}
CKPT_DEFINE_AUTO(conv, struct ckpt_conv, conv_fini)

/* ---- for the kernels ---- */

struct ckpt_conv_span ckpt_conv_span(const struct ckpt_conv *v, int64_t k) {
    const int64_t stride = v->stride[2];
    struct ckpt_conv_span s = {.start = k * v->dilation[2] - v->pad[2]};
    const int64_t room = v->axes.in[2] - s.start; /* o * stride < room */
    s.first = s.start < 0 ? (-s.start + stride - 1) / stride : 0;
    s.end = room > 0 ? (room + stride - 1) / stride : 0;
    s.end = s.end < v->out[2] ? s.end : v->out[2];
    return s;
}

int64_t ckpt_conv_row(const struct ckpt_conv *v, const int64_t *k, int64_t row) {
    const int64_t outer = v->out[0] == 1 ? 0 : row / v->out[1]; /* a division costs a copied row */
    const int64_t o[2] = {outer, row - outer * v->out[1]};
    int64_t at = 0;
    for (int d = 0; d < 2; d++) {
        const int64_t i = o[d] * v->stride[d] - v->pad[d] + k[d] * v->dilation[d];
        if (i < 0 || i >= v->axes.in[d])
            return -1;
        at = at * v->axes.in[d] + i;
    }
    return at;
}

void ckpt_conv_unravel(int64_t at, const int64_t *size, int64_t *index) {
    for (int d = 3; d-- > 0;) {
        index[d] = at % size[d];
        at /= size[d];
    }
}

/* ---- geometry ---- */

static bool padding_is(const struct ckpt_call *c, const char *word) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, "padding");
    return a && a->kind == CKPT_ARG_STRING && strcmp(a->string, word) == 0;
}

/* "same" pads so much that a stride of 1 keeps the size; the odd one goes behind. */
static void pad_same(struct ckpt_conv *v, int64_t *extra) {
    for (int d = 0; d < 3; d++) {
        extra[d] = v->dilation[d] * (v->kernel[d] - 1);
        v->pad[d] = extra[d] / 2;
    }
}

/* *extra: output padding, or all the padding of "same". */
static int read_geometry(const struct ckpt_call *c, struct ckpt_conv *v, int64_t *extra,
                         struct ckpt_err *err) {
    static const int64_t zeros[3], ones[3] = {1, 1, 1};
    const uint32_t n = v->axes.spatial;
    const bool same = padding_is(c, "same"), valid = padding_is(c, "valid");
    int rc = ckpt_axes_read(c, n, "stride", ones, 1, 1, v->stride, err);
    if (rc == 0)
        rc = ckpt_axes_read(c, n, "dilation", ones, 1, 1, v->dilation, err);
    if (rc == 0 && !same && !valid)
        rc = ckpt_axes_read(c, n, "padding", zeros, 0, 0, v->pad, err);
    if (rc == 0 && v->transposed)
        rc = ckpt_axes_read(c, n, "output_padding", zeros, 0, 0, extra, err);
    if (rc == 0 && same)
        pad_same(v, extra);
    return rc;
}

/* The output's size along an axis. */
static int64_t out_size(const struct ckpt_conv *v, int d, int64_t extra, bool same) {
    const int64_t in = v->axes.in[d], reach = v->dilation[d] * (v->kernel[d] - 1) + 1;
    if (v->transposed)
        return (in - 1) * v->stride[d] - 2 * v->pad[d] + reach + extra;
    const int64_t padded = in + (same ? extra : 2 * v->pad[d]);
    return padded < reach ? 0 : (padded - reach) / v->stride[d] + 1;
}

static int set_output(const struct ckpt_call *c, struct ckpt_conv *v, const int64_t *extra,
                      struct ckpt_err *err) {
    const bool same = padding_is(c, "same");
    v->positions_in = v->positions_out = v->kernel_size = 1;
    for (int d = 0; d < 3; d++) {
        v->out[d] = out_size(v, d, extra[d], same);
        if (v->out[d] < 1 || v->axes.in[d] < 1)
            return ckpt_fail(err, -EINVAL, "the input is too small for the kernel of %.*s",
                             CKPT_TEXT_ARGS(v->weight.name));
        if (!ckpt_mul_i64(v->positions_in, v->axes.in[d], &v->positions_in) ||
            !ckpt_mul_i64(v->positions_out, v->out[d], &v->positions_out) ||
            !ckpt_mul_i64(v->kernel_size, v->kernel[d], &v->kernel_size))
            return ckpt_fail(err, -EOVERFLOW, "dimensions too large");
    }
    return 0;
}

/* ---- arguments ---- */

static int check_weight(const struct ckpt_call *c, struct ckpt_conv *v, uint32_t spatial,
                        struct ckpt_err *err) {
    const struct ckpt_param *const w = &v->weight;
    if (w->ndim != spatial + 2)
        return ckpt_fail(err, -EINVAL, "weight %.*s has %u dimensions, expected %u",
                         CKPT_TEXT_ARGS(w->name), w->ndim, spatial + 2);
    v->groups = ckpt_call_int(c, "groups", 1);
    if (v->groups < 1 || w->shape[0] % v->groups != 0 || ckpt_param_count(w) == 0)
        return ckpt_fail(err, -EINVAL, "weight %.*s of %lld rows cannot be %lld groups",
                         CKPT_TEXT_ARGS(w->name), (long long)w->shape[0], (long long)v->groups);
    if (!ckpt_mul_i64(w->shape[1], v->groups, v->transposed ? &v->cout : &v->cin))
        return ckpt_fail(err, -EOVERFLOW, "too many groups");
    *(v->transposed ? &v->cin : &v->cout) = w->shape[0];
    for (uint32_t d = 0; d < 3; d++)
        v->kernel[d] = d < 3 - spatial ? 1 : w->shape[2 + d - (3 - spatial)];
    return 0;
}

static int check_input(struct ckpt_conv *v, uint32_t spatial, struct ckpt_err *err) {
    const int rc = ckpt_axes_init(&v->axes, &v->x, spatial, err);
    if (rc < 0)
        return rc;
    const int64_t channels = v->x.shape[v->axes.unbatched ? 0 : 1];
    v->batch = v->axes.unbatched ? 1 : v->x.shape[0];
    if (channels != v->cin)
        return ckpt_fail(err, -EINVAL, "the input has %lld channels, weight %.*s expects %lld",
                         (long long)channels, CKPT_TEXT_ARGS(v->weight.name), (long long)v->cin);
    return 0;
}

static bool depthwise(const struct ckpt_conv *v) {
    return v->weight.shape[1] == 1 && v->groups > 1;
}

static int make_result(struct ckpt_call *c, const struct ckpt_conv *v, struct ckpt_err *err) {
    int64_t shape[5];
    uint32_t n = 0;
    if (!v->axes.unbatched)
        shape[n++] = v->batch;
    shape[n++] = v->cout;
    for (uint32_t d = 3 - v->axes.spatial; d < 3; d++)
        shape[n++] = v->out[d];
    /* matrix products write all of it; what adds to it needs zeros */
    if (!v->transposed && !depthwise(v))
        return ckpt_array_new_unset(c->out, &c->exec->memory, CKPT_DT_F32, shape, n, err);
    return ckpt_call_result(c, shape, n, err);
}

/* spatial 0: as many axes as the weight has. */
static int conv_init(struct ckpt_call *c, struct ckpt_conv *v, uint32_t spatial,
                     struct ckpt_err *err) {
    int64_t extra[3] = {0};
    int rc = ckpt_call_input(c, "input", &v->x, err);
    if (rc == 0)
        rc = ckpt_call_param(c, "weight", &v->hold, &v->weight, err);
    if (rc == 0 && spatial == 0) {
        spatial = v->weight.ndim - 2;
        if (v->weight.ndim < 3 || v->weight.ndim > 5)
            rc = ckpt_fail(err, -EINVAL, "weight %.*s has %u dimensions, expected 3 to 5",
                           CKPT_TEXT_ARGS(v->weight.name), v->weight.ndim);
    }
    if (rc == 0)
        rc = check_weight(c, v, spatial, err);
    if (rc == 0)
        rc = check_input(v, spatial, err);
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

static void add_bias(const struct ckpt_call *c, const struct ckpt_conv *v) {
    if (!v->bias.store)
        return;
    for (int64_t row = 0; row < v->batch * v->cout; row++) {
        float *const y = ckpt_array_f32(c->out) + row * v->positions_out;
        const float bias = ckpt_array_f32(&v->bias)[row % v->cout];
        for (int64_t p = 0; p < v->positions_out; p++)
            y[p] += bias;
    }
}

static int conv(struct ckpt_call *c, uint32_t spatial, bool transposed, struct ckpt_err *err) {
    CKPT_AUTO(conv) struct ckpt_conv v = {.transposed = transposed};
    int rc = conv_init(c, &v, spatial, err);
    if (rc == 0)
        rc = transposed      ? ckpt_conv_transposed(c, &v, err)
             : depthwise(&v) ? ckpt_conv_depthwise(c, &v, err)
                             : ckpt_conv_forward(c, &v, err);
    if (rc == 0)
        add_bias(c, &v);
    return rc;
}

/* "conv2d", "conv_transpose2d" */
static uint32_t axes_of(const struct ckpt_call *c) {
    return (uint32_t)(c->op->name[strlen(c->op->name) - 2] - '0');
}

static int conv_n(struct ckpt_call *c, struct ckpt_err *err) {
    return conv(c, axes_of(c), false, err);
}

static int conv_transpose_n(struct ckpt_call *c, struct ckpt_err *err) {
    return conv(c, axes_of(c), true, err);
}

static int convolution(struct ckpt_call *c, struct ckpt_err *err) {
    return conv(c, 0, ckpt_call_bool(c, "transposed", false), err);
}

#define CONV(n)                                                                                    \
    {"conv" #n "d",                                                                                \
     "conv" #n "d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[" #n "] stride=1, "       \
     "SymInt[" #n "] padding=0, SymInt[" #n "] dilation=1, SymInt groups=1) -> Tensor",            \
     conv_n},                                                                                      \
    {                                                                                              \
        "conv" #n "d",                                                                             \
            "conv" #n "d.padding(Tensor input, Tensor weight, Tensor? bias=None, "                 \
            "SymInt[" #n "] stride=1, str padding=\"valid\", SymInt[" #n "] dilation=1, "          \
            "SymInt groups=1) -> Tensor",                                                          \
            conv_n                                                                                 \
    }
#define CONV_TRANSPOSE(n, overload)                                                                \
    {                                                                                              \
        "conv_transpose" #n "d",                                                                   \
            "conv_transpose" #n "d" overload "(Tensor input, Tensor weight, Tensor? bias=None, "   \
            "SymInt[" #n "] stride=1, SymInt[" #n "] padding=0, "                                  \
            "SymInt[" #n "] output_padding=0, SymInt groups=1, SymInt[" #n "] dilation=1) "        \
            "-> Tensor",                                                                           \
            conv_transpose_n                                                                       \
    }

static const struct ckpt_op ops[] = {
    CONV(1),
    CONV(2),
    CONV(3),
    CONV_TRANSPOSE(1, ""),
    CONV_TRANSPOSE(2, ".input"),
    CONV_TRANSPOSE(3, ".input"),
    {"convolution",
     "convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, "
     "SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
     convolution},
    {"_convolution",
     "_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, "
     "SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool benchmark, "
     "bool deterministic, bool cudnn_enabled, bool allow_tf32) -> Tensor",
     convolution},
    {"_convolution",
     "_convolution.deprecated(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, "
     "SymInt[] padding, SymInt[] dilation, bool transposed, int[] output_padding, SymInt groups, "
     "bool benchmark, bool deterministic, bool cudnn_enabled) -> Tensor",
     convolution},
    {"_convolution_mode",
     "_convolution_mode(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, str padding, "
     "SymInt[] dilation, SymInt groups) -> Tensor",
     convolution},
};

const struct ckpt_op_family ckpt_family_conv = CKPT_OP_FAMILY(ops);
