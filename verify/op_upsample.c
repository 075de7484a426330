/*
 * Upsampling: along each axis an output position is a weighted sum of a few input positions, its
 * taps; over several axes the weights multiply.
 *
 *     nearest, nearest-exact   1 tap
 *     linear                   2, one on each side
 *     cubic                    4, two on each side
 *
 * Positions beyond the edge are the edge.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/axes.h"

#define TAPS_MAX 4

struct tap {
    int64_t at;
    double weight;
};

enum mode { NEAREST, NEAREST_EXACT, LINEAR, CUBIC };
static const int taps_of[] = {1, 1, 2, 4};

struct axis {
    int64_t in, out;
    double factor; /* given by the user; 0: none */
    bool align_corners;
};

/* ---- one axis ---- */

static int64_t clamp(int64_t at, int64_t n) {
    return at < 0 ? 0 : at >= n ? n - 1 : at;
}

/* Input positions an output position. */
static double step_of(const struct axis *a) {
    if (a->align_corners)
        return a->out > 1 ? (double)(a->in - 1) / (double)(a->out - 1) : 0;
    return a->factor > 0 ? 1 / a->factor : (double)a->in / (double)a->out;
}

/* In float32, as in PyTorch: which neighbour is the nearest hangs on its rounding. */
static void nearest(const struct axis *a, enum mode mode, int64_t o, struct tap *taps) {
    const float step = a->factor > 0 ? (float)(1 / a->factor) : (float)a->in / (float)a->out;
    const float at = ((float)o + (mode == NEAREST_EXACT ? 0.5F : 0)) * step;
    taps[0] = (struct tap){clamp(at < (float)a->in ? (int64_t)at : a->in - 1, a->in), 1};
}

static double position(const struct axis *a, int64_t o) {
    const double step = step_of(a);
    return a->align_corners ? (double)o * step : ((double)o + 0.5) * step - 0.5;
}

static void linear(const struct axis *a, int64_t o, struct tap *taps) {
    const double at = fmin(fmax(position(a, o), 0), (double)(a->in - 1));
    const int64_t first = (int64_t)at;
    const double part = at - (double)first;
    taps[0] = (struct tap){first, 1 - part};
    taps[1] = (struct tap){clamp(first + 1, a->in), part};
}

/* Keys' kernel with a = -0.75, at distances up to 1 and from 1 to 2. */
static double cubic_near(double x) {
    return ((-0.75 + 2) * x - (-0.75 + 3)) * x * x + 1;
}

static double cubic_far(double x) {
    return ((-0.75 * x - 5 * -0.75) * x + 8 * -0.75) * x - 4 * -0.75;
}

static void cubic(const struct axis *a, int64_t o, struct tap *taps) {
    const double at = fmin(fmax(position(a, o), -2), (double)a->in + 1);
    const double below = floor(at), part = at - below;
    const double weights[4] = {cubic_far(part + 1), cubic_near(part), cubic_near(1 - part),
                               cubic_far(2 - part)};
    for (int k = 0; k < 4; k++)
        taps[k] = (struct tap){clamp((int64_t)below - 1 + k, a->in), weights[k]};
}

static void find_taps(const struct axis *a, enum mode mode, int64_t o, struct tap *taps) {
    if (mode == LINEAR)
        linear(a, o, taps);
    else if (mode == CUBIC)
        cubic(a, o, taps);
    else
        nearest(a, mode, o, taps);
}

/* ---- all axes ---- */

struct upsample {
    struct ckpt_axes axes;
    struct ckpt_array x, taps; /* the last axis' taps, as bytes of struct tap */
    struct axis axis[3];
    enum mode mode;
};

static void upsample_fini(struct upsample *u) {
    ckpt_array_fini(&u->x);
    ckpt_array_fini(&u->taps);
}
CKPT_DEFINE_AUTO(upsample, struct upsample, upsample_fini)

/* Taps of an axis that isn't there. */
static int axis_taps(const struct upsample *u, int d, int64_t o, struct tap *taps) {
    if (d < 3 - (int)u->axes.spatial) {
        taps[0] = (struct tap){0, 1};
        return 1;
    }
    find_taps(&u->axis[d], u->mode, o, taps);
    return taps_of[u->mode];
}

/* Adds `weight` times an input row, resampled, to an output row. */
static void add_row(const struct upsample *u, const float *x, double weight, double *row) {
    const struct tap *const taps = u->taps.data;
    const int n = taps_of[u->mode];
    for (int64_t o = 0; o < u->axis[2].out; o++) {
        double sum = 0;
        for (int k = 0; k < n; k++)
            sum += taps[o * n + k].weight * (double)x[taps[o * n + k].at];
        row[o] += weight * sum;
    }
}

/* Output row (a, b) of the plane x. */
static void make_row(const struct upsample *u, const float *x, int64_t a, int64_t b, double *row,
                     float *y) {
    struct tap outer[TAPS_MAX], inner[TAPS_MAX];
    const int nouter = axis_taps(u, 0, a, outer), ninner = axis_taps(u, 1, b, inner);
    const int64_t width = u->axis[2].in;
    memset(row, 0, (size_t)u->axis[2].out * sizeof(*row));
    for (int i = 0; i < nouter; i++)
        for (int k = 0; k < ninner; k++)
            add_row(u, x + (outer[i].at * u->axis[1].in + inner[k].at) * width,
                    outer[i].weight * inner[k].weight, row);
    for (int64_t o = 0; o < u->axis[2].out; o++)
        y[o] = (float)row[o];
}

static int make_planes(struct ckpt_call *c, const struct upsample *u, struct ckpt_err *err) {
    const int64_t *const in = u->axes.in;
    const int64_t plane = in[0] * in[1] * in[2], width = u->axis[2].out;
    CKPT_AUTO(array) struct ckpt_array row = {0};
    float *y = ckpt_array_f32(c->out);
    int rc = ckpt_array_new(&row, &c->exec->memory, CKPT_DT_F64, &width, 1, err);
    for (int64_t p = 0; rc == 0 && p < u->axes.planes; p++)
        for (int64_t a = 0; rc == 0 && a < u->axis[0].out; a++) {
            for (int64_t b = 0; b < u->axis[1].out; b++, y += width)
                make_row(u, ckpt_array_f32(&u->x) + p * plane, a, b, ckpt_array_f64(&row), y);
            rc = ckpt_exec_check(c->exec, err);
        }
    return rc;
}

static int make_taps(struct ckpt_call *c, struct upsample *u, struct ckpt_err *err) {
    const int n = taps_of[u->mode];
    const int64_t doubles = (int64_t)(sizeof(struct tap) / sizeof(double)) * n;
    const int rc = ckpt_array_new(&u->taps, &c->exec->memory, CKPT_DT_F64,
                                  (int64_t[]){u->axis[2].out, doubles}, 2, err);
    for (int64_t o = 0; rc == 0 && o < u->axis[2].out; o++)
        find_taps(&u->axis[2], u->mode, o, (struct tap *)u->taps.data + o * n);
    return rc;
}

/* ---- arguments ---- */

/* A factor for each axis: scale_factors, or scales (of one axis), scales_d, scales_h, scales_w. */
static void read_factors(const struct ckpt_call *c, struct upsample *u) {
    static const char *const names[] = {"scales_d", "scales_h", "scales_w"};
    const struct ckpt_arg *const list = ckpt_call_arg(c, "scale_factors");
    const uint32_t n = u->axes.spatial;
    for (uint32_t d = 3 - n; d < 3; d++) {
        if (list && list->kind == CKPT_ARG_FLOATS && list->floats.n == n)
            u->axis[d].factor = list->floats.v[d - (3 - n)];
        else if (!list)
            u->axis[d].factor = ckpt_call_float(c, n == 1 ? "scales" : names[d], 0);
    }
}

/* Sizes are given, or those of the input times the factors. */
static int read_sizes(const struct ckpt_call *c, struct upsample *u, int64_t *out,
                      struct ckpt_err *err) {
    const bool align = ckpt_call_bool(c, "align_corners", false);
    int64_t scaled[3];
    for (int d = 0; d < 3; d++) {
        const double size = (double)u->axes.in[d] * u->axis[d].factor;
        scaled[d] = size >= 1 && size <= INT32_MAX ? (int64_t)size : 0;
    }
    const int rc = ckpt_axes_read(c, u->axes.spatial, "output_size", scaled, 1, 1, out, err);
    for (int d = 0; rc == 0 && d < 3; d++) {
        if (u->axes.in[d] == 0)
            return ckpt_fail(err, -EINVAL, "the input has an axis of size 0");
        u->axis[d].in = u->axes.in[d];
        u->axis[d].out = out[d];
        u->axis[d].align_corners = align;
    }
    return rc;
}

static int upsample(struct ckpt_call *c, enum mode mode, struct ckpt_err *err) {
    CKPT_AUTO(upsample) struct upsample u = {.mode = mode};
    const uint32_t spatial = (uint32_t)(c->op->name[strlen(c->op->name) - 2] - '0');
    int64_t out[3] = {1, 1, 1};
    int rc = ckpt_call_input(c, ckpt_call_arg(c, "self") ? "self" : "input", &u.x, err);
    if (rc == 0)
        rc = ckpt_axes_init(&u.axes, &u.x, spatial, err);
    if (rc == 0 && u.axes.unbatched)
        rc = ckpt_fail(err, -EINVAL, "the input has %u dimensions, expected %u", u.x.ndim,
                       spatial + 2);
    if (rc < 0)
        return rc;
    read_factors(c, &u);
    rc = read_sizes(c, &u, out, err);
    if (rc == 0)
        rc = ckpt_axes_result(c, 0, CKPT_DT_F32, &u.x, spatial, out, err);
    if (rc == 0)
        rc = make_taps(c, &u, err);
    return rc < 0 ? rc : make_planes(c, &u, err);
}

static int upsample_nearest(struct ckpt_call *c, struct ckpt_err *err) {
    return upsample(c, NEAREST, err);
}

static int upsample_exact(struct ckpt_call *c, struct ckpt_err *err) {
    return upsample(c, NEAREST_EXACT, err);
}

static int upsample_linear(struct ckpt_call *c, struct ckpt_err *err) {
    return upsample(c, LINEAR, err);
}

static int upsample_cubic(struct ckpt_call *c, struct ckpt_err *err) {
    return upsample(c, CUBIC, err);
}

#define VEC(name, align, run)                                                                      \
    {                                                                                              \
        name,                                                                                      \
            name ".vec(Tensor input, SymInt[]? output_size, " align "float[]? scale_factors) "     \
                 "-> Tensor",                                                                      \
            run                                                                                    \
    }
#define BOTH(name, n, align, scales, run)                                                          \
    VEC(name, align, run), {                                                                       \
        name, name "(Tensor self, SymInt[" #n "] output_size, " align scales ") -> Tensor", run    \
    }
#define ALIGN "bool align_corners, "
#define SCALES1 "float? scales=None"
#define SCALES2 "float? scales_h=None, float? scales_w=None"
#define SCALES3 "float? scales_d=None, " SCALES2

static const struct ckpt_op ops[] = {
    BOTH("upsample_nearest1d", 1, "", SCALES1, upsample_nearest),
    BOTH("upsample_nearest2d", 2, "", SCALES2, upsample_nearest),
    BOTH("upsample_nearest3d", 3, "", SCALES3, upsample_nearest),
    BOTH("_upsample_nearest_exact1d", 1, "", SCALES1, upsample_exact),
    BOTH("_upsample_nearest_exact2d", 2, "", SCALES2, upsample_exact),
    BOTH("_upsample_nearest_exact3d", 3, "", SCALES3, upsample_exact),
    BOTH("upsample_linear1d", 1, ALIGN, SCALES1, upsample_linear),
    BOTH("upsample_bilinear2d", 2, ALIGN, SCALES2, upsample_linear),
    BOTH("upsample_trilinear3d", 3, ALIGN, SCALES3, upsample_linear),
    BOTH("upsample_bicubic2d", 2, ALIGN, SCALES2, upsample_cubic),
};

const struct ckpt_op_family ckpt_family_upsample = CKPT_OP_FAMILY(ops);
