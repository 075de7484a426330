/*
 * Pooling: each output element is the greatest or the mean of the input elements in its window.
 *
 *     fixed       windows of one size, `stride` apart, in the padded input
 *     adaptive    as many windows as output elements, which together cover the input
 *
 * Padding never wins a maximum; in a mean it counts as zeros or not at all. Positions that come
 * with maxima count within a plane.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/axes.h"

struct pool {
    struct ckpt_axes axes;
    struct ckpt_array x;
    struct ckpt_array last; /* windows along the last axis, as int64 */
    struct ckpt_array row;  /* an input row */
    int64_t kernel[3], stride[3], pad[3], dilation[3], out[3];
    bool adaptive;
    bool count_padding;
    int64_t divisor; /* of means; 0: how many elements are in the window */
};

static void pool_fini(struct pool *p) {
    ckpt_array_fini(&p->x);
    ckpt_array_fini(&p->last);
    ckpt_array_fini(&p->row);
}
CKPT_DEFINE_AUTO(pool, struct pool, pool_fini)

/* Along one axis: positions first, first + step, ... below end. */
struct window {
    int64_t first, end, step;
    int64_t padded; /* how many there are, padding included */
};

static int64_t at_least_0(int64_t v) {
    return v < 0 ? 0 : v;
}

static struct window adaptive_window(int64_t in, int64_t out, int64_t o) {
    const int64_t first = o * in / out, end = ((o + 1) * in + out - 1) / out;
    return (struct window){first, end, 1, end - first};
}

static struct window window_of(const struct pool *p, int d, int64_t o) {
    const int64_t in = p->axes.in[d], step = p->dilation[d];
    if (p->adaptive)
        return adaptive_window(in, p->out[d], o);
    const int64_t first = o * p->stride[d] - p->pad[d];
    const int64_t end = first + step * (p->kernel[d] - 1) + 1;
    const int64_t edge = in + p->pad[d];
    const int64_t skip = first < 0 ? (-first + step - 1) / step : 0;
    return (struct window){first + skip * step, end < in ? end : in, step,
                           (end < edge ? end : edge) - first};
}

/* ---- one window ---- */

struct found {
    double value;
    int64_t at;
};

static struct found greatest(const struct pool *p, const float *x, const struct window *w) {
    const int64_t *const in = p->axes.in;
    struct found best = {-(double)INFINITY, (w[0].first * in[1] + w[1].first) * in[2] + w[2].first};
    for (int64_t i = w[0].first; i < w[0].end; i += w[0].step)
        for (int64_t j = w[1].first; j < w[1].end; j += w[1].step)
            for (int64_t k = w[2].first; k < w[2].end; k += w[2].step) {
                const int64_t at = (i * in[1] + j) * in[2] + k;
                const double v = (double)x[at];
                if (v > best.value || isnan(v))
                    best = (struct found){v, at};
            }
    return best;
}

static struct found mean(const struct pool *p, const float *x, const struct window *w) {
    const int64_t *const in = p->axes.in;
    int64_t count = 1;
    double sum = 0;
    for (int d = 0; d < 3; d++)
        count *= p->count_padding ? w[d].padded : at_least_0(w[d].end - w[d].first);
    for (int64_t i = w[0].first; i < w[0].end; i++)
        for (int64_t j = w[1].first; j < w[1].end; j++)
            for (int64_t k = w[2].first; k < w[2].end; k++)
                sum += (double)x[(i * in[1] + j) * in[2] + k];
    const int64_t divisor = p->divisor ? p->divisor : count;
    return (struct found){count > 0 ? sum / (double)divisor : 0, 0};
}

typedef struct found window_fn(const struct pool *p, const float *x, const struct window *w);

static const struct window *last_windows(const struct pool *p) {
    return p->last.data;
}

/* One row of windows; at may be NULL. */
static void pool_row(const struct pool *p, window_fn *reduce, const float *x, struct window *w,
                     float *y, int64_t *at) {
    for (int64_t k = 0; k < p->out[2]; k++) {
        w[2] = last_windows(p)[k];
        const struct found f = reduce(p, x, w);
        y[k] = (float)f.value;
        if (at)
            at[k] = f.at;
    }
}

/* The greatest of a row's window, NaN if there is one. */
static float greatest_of(const float *x, const struct window *w) {
    float best = -INFINITY;
    for (int64_t i = w->first; i < w->end; i += w->step)
        best = x[i] > best || isnan(x[i]) ? x[i] : best;
    return best;
}

/* The same row of maxima, without positions: first over the outer axes, whole rows at a time. */
static void greatest_row(const struct pool *p, const float *x, const struct window *w, float *y) {
    float *const row = ckpt_array_f32(&p->row);
    const int64_t width = p->axes.in[2];
    for (int64_t k = 0; k < width; k++)
        row[k] = -INFINITY;
    for (int64_t i = w[0].first; i < w[0].end; i += w[0].step)
        for (int64_t j = w[1].first; j < w[1].end; j += w[1].step) {
            const float *const from = x + (i * p->axes.in[1] + j) * width;
            for (int64_t k = 0; k < width; k++)
                row[k] = from[k] > row[k] || isnan(from[k]) ? from[k] : row[k];
        }
    for (int64_t k = 0; k < p->out[2]; k++)
        y[k] = greatest_of(row, &last_windows(p)[k]);
}

/* One plane; at may be NULL. */
static int pool_plane(const struct ckpt_call *c, const struct pool *p, window_fn *reduce,
                      const float *x, float *y, int64_t *at, struct ckpt_err *err) {
    struct window w[3];
    int rc = 0;
    for (int64_t a = 0; a < p->out[0]; a++)
        for (int64_t b = 0; rc == 0 && b < p->out[1]; b++, y += p->out[2]) {
            w[0] = window_of(p, 0, a);
            w[1] = window_of(p, 1, b);
            if (reduce == greatest && !at)
                greatest_row(p, x, w, y);
            else
                pool_row(p, reduce, x, w, y, at);
            at = at ? at + p->out[2] : NULL;
            rc = ckpt_exec_check(c->exec, err);
        }
    return rc;
}

static int make_rows(struct ckpt_call *c, struct pool *p, struct ckpt_err *err) {
    const int64_t shape[2] = {p->out[2], sizeof(struct window) / sizeof(int64_t)};
    struct ckpt_memory *const memory = &c->exec->memory;
    int rc = ckpt_array_new(&p->last, memory, CKPT_DT_I64, shape, 2, err);
    if (rc == 0)
        rc = ckpt_array_new(&p->row, memory, CKPT_DT_F32, &p->axes.in[2], 1, err);
    for (int64_t k = 0; rc == 0 && k < p->out[2]; k++)
        ((struct window *)p->last.data)[k] = window_of(p, 2, k);
    return rc;
}

static int pool_planes(struct ckpt_call *c, struct pool *p, window_fn *reduce,
                       struct ckpt_err *err) {
    const int64_t from = p->axes.in[0] * p->axes.in[1] * p->axes.in[2];
    const bool positions = reduce == greatest && c->nout > 1;
    int rc = ckpt_axes_result(c, 0, CKPT_DT_F32, &p->x, p->axes.spatial, p->out, err);
    if (rc == 0 && positions)
        rc = ckpt_axes_result(c, 1, CKPT_DT_I64, &p->x, p->axes.spatial, p->out, err);
    const int64_t to = rc == 0 ? p->out[0] * p->out[1] * p->out[2] : 0;
    if (rc == 0)
        rc = make_rows(c, p, err);
    for (int64_t i = 0; rc == 0 && to > 0 && i < p->axes.planes; i++)
        rc = pool_plane(c, p, reduce, ckpt_array_f32(&p->x) + i * from,
                        ckpt_array_f32(&c->out[0]) + i * to,
                        positions ? ckpt_array_i64(&c->out[1]) + i * to : NULL, err);
    return rc;
}

/* ---- arguments ---- */

static const int64_t zeros[3], ones[3] = {1, 1, 1};

static int read_axes(const struct ckpt_call *c, struct pool *p, struct ckpt_err *err) {
    const uint32_t n = p->axes.spatial;
    if (p->adaptive)
        return ckpt_axes_read(c, n, "output_size", p->axes.in, 1, 0, p->out, err);
    int rc = ckpt_axes_read(c, n, "kernel_size", zeros, 1, 1, p->kernel, err);
    if (rc == 0)
        rc = ckpt_axes_read(c, n, "stride", p->kernel, 1, 1, p->stride, err);
    if (rc == 0)
        rc = ckpt_axes_read(c, n, "padding", zeros, 0, 0, p->pad, err);
    if (rc == 0)
        rc = ckpt_axes_read(c, n, "dilation", ones, 1, 1, p->dilation, err);
    return rc;
}

/* With ceil_mode a window may reach beyond the padded input, but must begin before the padding
 * behind. */
static int64_t out_size(const struct pool *p, int d, bool ceil_mode) {
    const int64_t in = p->axes.in[d], reach = p->dilation[d] * (p->kernel[d] - 1) + 1;
    const int64_t room = in + 2 * p->pad[d] - reach, stride = p->stride[d];
    if (room < 0 && !(ceil_mode && room + stride > 0))
        return 0;
    const int64_t n = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
    return ceil_mode && (n - 1) * stride >= in + p->pad[d] ? n - 1 : n;
}

static int set_output(const struct ckpt_call *c, struct pool *p, struct ckpt_err *err) {
    const bool ceil_mode = ckpt_call_bool(c, "ceil_mode", false);
    for (int d = 0; d < 3; d++) {
        if (p->axes.in[d] == 0)
            return ckpt_fail(err, -EINVAL, "the input has nothing to pool: an axis of size 0");
        if (p->adaptive)
            continue;
        if (p->pad[d] > (p->dilation[d] * (p->kernel[d] - 1) + 1) / 2)
            return ckpt_fail(err, -EINVAL, "padding is %lld, expected at most half the kernel",
                             (long long)p->pad[d]);
        p->out[d] = out_size(p, d, ceil_mode);
        if (p->out[d] < 1)
            return ckpt_fail(err, -EINVAL, "the input is too small for kernel_size %lld",
                             (long long)p->kernel[d]);
    }
    return 0;
}

static int pool(struct ckpt_call *c, uint32_t spatial, bool adaptive, window_fn *reduce,
                struct ckpt_err *err) {
    CKPT_AUTO(pool) struct pool p = {.adaptive = adaptive};
    const struct ckpt_arg *const divisor = ckpt_call_arg(c, "divisor_override");
    p.count_padding = ckpt_call_bool(c, "count_include_pad", true);
    p.divisor = ckpt_call_int(c, "divisor_override", 0);
    if (divisor && p.divisor == 0)
        return ckpt_fail(err, -EINVAL, "divisor_override is zero");
    int rc = ckpt_call_input(c, "self", &p.x, err);
    if (rc == 0)
        rc = ckpt_axes_init(&p.axes, &p.x, spatial, err);
    if (rc == 0)
        rc = read_axes(c, &p, err);
    if (rc == 0)
        rc = set_output(c, &p, err);
    return rc < 0 ? rc : pool_planes(c, &p, reduce, err);
}

/* "..._pool2d..." has two axes. */
static uint32_t axes_of(const struct ckpt_call *c) {
    return (uint32_t)(strstr(c->op->name, "pool")[4] - '0');
}

static int max_pool(struct ckpt_call *c, struct ckpt_err *err) {
    return pool(c, axes_of(c), false, greatest, err);
}

static int avg_pool(struct ckpt_call *c, struct ckpt_err *err) {
    return pool(c, axes_of(c), false, mean, err);
}

static int adaptive_max_pool(struct ckpt_call *c, struct ckpt_err *err) {
    return pool(c, axes_of(c), true, greatest, err);
}

static int adaptive_avg_pool(struct ckpt_call *c, struct ckpt_err *err) {
    return pool(c, axes_of(c), true, mean, err);
}

#define MAX_POOL(n)                                                                                \
    {"max_pool" #n "d",                                                                            \
     "max_pool" #n "d(Tensor self, int[" #n "] kernel_size, int[" #n "] stride=[], "               \
     "int[" #n "] padding=0, int[" #n "] dilation=1, bool ceil_mode=False) -> Tensor",             \
     max_pool},                                                                                    \
    {                                                                                              \
        "max_pool" #n "d_with_indices",                                                            \
            "max_pool" #n "d_with_indices(Tensor self, int[" #n "] kernel_size, "                  \
            "int[" #n "] stride=[], int[" #n "] padding=0, int[" #n "] dilation=1, "               \
            "bool ceil_mode=False) -> (Tensor, Tensor)",                                           \
            max_pool                                                                               \
    }
#define ADAPTIVE(n, int)                                                                           \
    {"adaptive_avg_pool" #n "d",                                                                   \
     "adaptive_avg_pool" #n "d(Tensor self, " int "[" #n "] output_size) -> Tensor",               \
     adaptive_avg_pool},                                                                           \
    {                                                                                              \
        "adaptive_max_pool" #n "d",                                                                \
            "adaptive_max_pool" #n "d(Tensor self, int[" #n "] output_size) -> (Tensor, Tensor)",  \
            adaptive_max_pool                                                                      \
    }

static const struct ckpt_op ops[] = {
    MAX_POOL(1),
    MAX_POOL(2),
    MAX_POOL(3),
    {"avg_pool1d",
     "avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, "
     "bool ceil_mode=False, bool count_include_pad=True) -> Tensor",
     avg_pool},
    {"avg_pool2d",
     "avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, "
     "bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
     avg_pool},
    {"avg_pool3d",
     "avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, "
     "bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
     avg_pool},
    ADAPTIVE(1, "int"),
    ADAPTIVE(2, "SymInt"),
    ADAPTIVE(3, "SymInt"),
    {"_adaptive_avg_pool2d", "_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor",
     adaptive_avg_pool},
    {"_adaptive_avg_pool3d", "_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor",
     adaptive_avg_pool},
};

const struct ckpt_op_family ckpt_family_pool = CKPT_OP_FAMILY(ops);
