/*
 * Normalisations. All are one kernel over *groups* of elements that share a mean and a variance,
 * and an affine step whose weight is picked by position:
 *
 *     operation       a group is                     weight index
 *     layer_norm      the last dimensions            position in the group
 *     rms_norm        the last dimensions            position in the group (no mean, no bias)
 *     group_norm      C/G channels of one sample     channel
 *     instance_norm   one channel of one sample      channel
 *     batch_norm      (running statistics)           channel
 *
 * Sums are kept in double: float32 sums of long rows cost more digits than the tolerance allows.
 */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/cpu.h"
#include "verify/op.h"

struct stats {
    double mean, scale; /* y = (x - mean) * scale */
};

static struct stats moments(const float *x, int64_t n, double eps) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    const double mean = n ? sum / (double)n : 0;
    for (int64_t i = 0; i < n; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    return (struct stats){mean, 1 / sqrt((n ? squares / (double)n : 0) + eps)};
}

static struct stats root_mean_square(const float *x, int64_t n, double eps) {
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += (double)x[i] * (double)x[i];
    return (struct stats){0, 1 / sqrt((n ? squares / (double)n : 0) + eps)};
}

/* y = (x - mean) * scale * weight + bias, each element with its own weight and bias; NULL: 1 and 0.
 */
static void apply_each(const float *x, struct stats s, const float *weight, const float *bias,
                       int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) {
        const double scaled = ((double)x[i] - s.mean) * s.scale * (weight ? (double)weight[i] : 1);
        y[i] = (float)(scaled + (bias ? (double)bias[i] : 0));
    }
}

static inline __attribute__((always_inline)) void
scale_and_shift(const float *x, double slope, double offset, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((double)x[i] * slope + offset);
}

static void scale_plain(const float *x, double slope, double offset, int64_t n, float *y) {
    scale_and_shift(x, slope, offset, n, y);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void scale_avx2(const float *x, double slope, double offset,
                                                       int64_t n, float *y) {
    scale_and_shift(x, slope, offset, n, y);
}
#else
#define scale_avx2 scale_plain
#endif

/* The same with one weight and bias for all. */
static void apply_one(const float *x, struct stats s, double weight, double bias, int64_t n,
                      float *y) {
    const double slope = s.scale * weight;
    (ckpt_cpu()->avx2 ? scale_avx2 : scale_plain)(x, slope, bias - s.mean * slope, n, y);
}

static const float *elements(const struct ckpt_array *a) {
    return a->store ? ckpt_array_f32(a) : NULL;
}

/* The input, and a result of its shape. */
static int begin(struct ckpt_call *c, struct ckpt_array *x, struct ckpt_err *err) {
    const int rc = ckpt_call_input(c, "input", x, err);
    return rc < 0 ? rc
                  : ckpt_array_new_unset(c->out, &c->exec->memory, CKPT_DT_F32, x->shape, x->ndim,
                                         err);
}

/* ---- over the last dimensions ---- */

/* normalized_shape, else the weight's shape, must be the input's last dimensions. */
static int trailing(const struct ckpt_call *c, const struct ckpt_array *x,
                    const struct ckpt_array *weight, int64_t *width, struct ckpt_err *err) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, "normalized_shape");
    const bool given = a && a->kind == CKPT_ARG_INTS;
    const int64_t *const shape = given ? a->ints.v : weight->shape;
    const uint32_t n = given ? a->ints.n : weight->ndim;
    char text[2][64];
    bool fits = n > 0 && n <= x->ndim;
    *width = 1;
    for (uint32_t d = 0; fits && d < n; d++) {
        fits = shape[d] == x->shape[x->ndim - n + d];
        *width *= fits ? shape[d] : 1;
    }
    if (!fits)
        return ckpt_fail(err, -EINVAL, "the input %s does not end with the normalised shape %s",
                         ckpt_array_shape_text(x, text[0], sizeof(text[0])),
                         given ? "given" : ckpt_array_shape_text(weight, text[1], sizeof(text[1])));
    return 0;
}

static int check_count(const struct ckpt_array *a, const char *name, int64_t n,
                       struct ckpt_err *err) {
    char text[64];
    if (!a->store || ckpt_array_count(a) == n)
        return 0;
    return ckpt_fail(err, -EINVAL, "%s has shape %s, expected %lld elements", name,
                     ckpt_array_shape_text(a, text, sizeof(text)), (long long)n);
}

struct over_last {
    struct ckpt_array x, weight, bias;
    int64_t width; /* elements that are normalised together */
};

static void over_last_fini(struct over_last *o) {
    ckpt_array_fini(&o->x);
    ckpt_array_fini(&o->weight);
    ckpt_array_fini(&o->bias);
}
CKPT_DEFINE_AUTO(over_last, struct over_last, over_last_fini)

static int over_last_init(struct ckpt_call *c, struct over_last *o, struct ckpt_err *err) {
    int rc = begin(c, &o->x, err);
    if (rc == 0)
        rc = ckpt_call_array(c, "weight", &o->weight, err);
    if (rc == 0)
        rc = ckpt_call_array(c, "bias", &o->bias, err);
    if (rc == 0)
        rc = trailing(c, &o->x, &o->weight, &o->width, err);
    if (rc == 0)
        rc = check_count(&o->weight, "weight", o->width, err);
    if (rc == 0)
        rc = check_count(&o->bias, "bias", o->width, err);
    return rc;
}

/* Results for the statistics: of the input's shape, but 1 where it is normalised. */
static int make_statistics(struct ckpt_call *c, const struct over_last *o, struct ckpt_err *err) {
    int64_t shape[CKPT_ARRAY_NDIM_MAX], width = 1;
    memcpy(shape, o->x.shape, sizeof(shape));
    for (uint32_t d = o->x.ndim; d-- > 0 && width < o->width;) {
        width *= shape[d];
        shape[d] = 1;
    }
    int rc = 0;
    for (uint32_t i = 1; rc == 0 && i < c->nout; i++)
        rc = ckpt_call_new(c, i, CKPT_DT_F32, shape, o->x.ndim, err);
    return rc;
}

/* Mean and scale; of what has no mean the scale alone. */
static void keep_statistics(struct ckpt_call *c, bool centred, int64_t row, struct stats s) {
    if (centred && c->nout > 1)
        ckpt_array_f32(&c->out[1])[row] = (float)s.mean;
    if (c->nout > (centred ? 2 : 1))
        ckpt_array_f32(&c->out[centred ? 2 : 1])[row] = (float)s.scale;
}

static int over_last(struct ckpt_call *c, double eps, bool centred, struct ckpt_err *err) {
    CKPT_AUTO(over_last) struct over_last o = {0};
    int rc = over_last_init(c, &o, err);
    if (rc == 0)
        rc = make_statistics(c, &o, err);
    const int64_t count = ckpt_array_count(&o.x);
    for (int64_t at = 0; rc == 0 && at < count; at += o.width) {
        const float *const x = ckpt_array_f32(&o.x) + at;
        const struct stats s =
            centred ? moments(x, o.width, eps) : root_mean_square(x, o.width, eps);
        apply_each(x, s, elements(&o.weight), elements(&o.bias), o.width,
                   ckpt_array_f32(c->out) + at);
        keep_statistics(c, centred, at / o.width, s);
    }
    return rc;
}

static int layer_norm(struct ckpt_call *c, struct ckpt_err *err) {
    return over_last(c, ckpt_call_float(c, "eps", 1e-5), true, err);
}

/* Without eps it is what the input's dtype can just tell from 1. */
static int rms_norm(struct ckpt_call *c, struct ckpt_err *err) {
    const struct ckpt_arg *const input = ckpt_call_arg(c, "input");
    const bool wide = input && input->kind == CKPT_ARG_ARRAY && input->array->dtype == CKPT_DT_F64;
    const double otherwise = wide ? DBL_EPSILON : (double)FLT_EPSILON;
    return over_last(c, ckpt_call_float(c, "eps", otherwise), false, err);
}

/* ---- by channel: input [N, C, ...] ---- */

struct channels {
    struct ckpt_array x, weight, bias, mean, var;
    int64_t samples, count, inner; /* N, C, elements of one channel of one sample */
};

static void channels_fini(struct channels *ch) {
    ckpt_array_fini(&ch->x);
    ckpt_array_fini(&ch->weight);
    ckpt_array_fini(&ch->bias);
    ckpt_array_fini(&ch->mean);
    ckpt_array_fini(&ch->var);
}
CKPT_DEFINE_AUTO(channels, struct channels, channels_fini)

static int channels_init(struct ckpt_call *c, struct channels *ch, struct ckpt_err *err) {
    int rc = begin(c, &ch->x, err);
    if (rc < 0)
        return rc;
    if (ch->x.ndim < 2)
        return ckpt_fail(err, -EINVAL, "the input has %u dimensions, expected at least 2",
                         ch->x.ndim);
    ch->samples = ch->x.shape[0];
    ch->count = ch->x.shape[1];
    ch->inner = 1;
    for (uint32_t d = 2; d < ch->x.ndim; d++)
        ch->inner *= ch->x.shape[d];
    rc = ckpt_call_vector(c, "weight", ch->count, &ch->weight, err);
    if (rc == 0)
        rc = ckpt_call_vector(c, "bias", ch->count, &ch->bias, err);
    if (rc == 0)
        rc = ckpt_call_vector(c, "running_mean", ch->count, &ch->mean, err);
    if (rc == 0)
        rc = ckpt_call_vector(c, "running_var", ch->count, &ch->var, err);
    return rc;
}

/* Normalises channel `channel` of sample n by s. */
static void normalise_channel(const struct ckpt_call *c, const struct channels *ch, int64_t n,
                              int64_t channel, struct stats s) {
    const int64_t at = (n * ch->count + channel) * ch->inner;
    const double weight = ch->weight.store ? (double)ckpt_array_f32(&ch->weight)[channel] : 1;
    const double bias = ch->bias.store ? (double)ckpt_array_f32(&ch->bias)[channel] : 0;
    apply_one(ckpt_array_f32(&ch->x) + at, s, weight, bias, ch->inner, ckpt_array_f32(c->out) + at);
}

/* Results 1 and 2, if they are wanted: mean and scale of each group. */
static int make_group_statistics(struct ckpt_call *c, const int64_t *shape, uint32_t ndim,
                                 struct ckpt_err *err) {
    int rc = 0;
    for (uint32_t i = 1; rc == 0 && i < c->nout; i++)
        rc = ckpt_call_new(c, i, CKPT_DT_F32, shape, ndim, err);
    return rc;
}

/* Groups of `width` neighbouring channels of one sample. */
static int by_groups(struct ckpt_call *c, const struct channels *ch, int64_t width, double eps,
                     struct ckpt_err *err) {
    const int64_t groups = ch->samples * (ch->count / width);
    const int64_t shape[2] = {ch->samples, ch->count / width};
    int rc = make_group_statistics(c, shape, 2, err);
    for (int64_t g = 0; rc == 0 && g < groups; g++) {
        const int64_t n = g / shape[1], first = g % shape[1] * width;
        const float *const in = ckpt_array_f32(&ch->x) + (n * ch->count + first) * ch->inner;
        const struct stats s = moments(in, width * ch->inner, eps);
        for (int64_t k = first; k < first + width; k++)
            normalise_channel(c, ch, n, k, s);
        keep_statistics(c, true, g, s);
    }
    return rc;
}

static struct stats running(const struct channels *ch, int64_t channel, double eps) {
    const double var = (double)ckpt_array_f32(&ch->var)[channel];
    return (struct stats){(double)ckpt_array_f32(&ch->mean)[channel], 1 / sqrt(var + eps)};
}

/* The moments of a channel over all samples. */
static struct stats batch_moments(const struct channels *ch, int64_t channel, double eps) {
    double sum = 0, squares = 0;
    const double n = (double)(ch->samples * ch->inner);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t s = 0; s < ch->samples; s++)
            for (int64_t i = 0; i < ch->inner; i++) {
                const double x =
                    (double)ckpt_array_f32(&ch->x)[(s * ch->count + channel) * ch->inner + i];
                sum += pass == 0 ? x : 0;
                squares += pass == 1 ? (x - sum / n) * (x - sum / n) : 0;
            }
    return (struct stats){sum / n, 1 / sqrt(squares / n + eps)};
}

static int check_running(const struct channels *ch, struct ckpt_err *err) {
    if (ch->mean.store && ch->var.store)
        return 0;
    return ckpt_fail(err, -EINVAL, "%s is missing",
                     ch->mean.store ? "running_var" : "running_mean");
}

static int group_norm(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(channels) struct channels ch = {0};
    const int rc = channels_init(c, &ch, err);
    if (rc < 0)
        return rc;
    const int64_t groups = ckpt_call_int(c, "num_groups", ckpt_call_int(c, "group", 1));
    if (groups < 1 || ch.count % groups != 0 || ch.count == 0)
        return ckpt_fail(err, -EINVAL, "%lld channels cannot be %lld groups", (long long)ch.count,
                         (long long)groups);
    return by_groups(c, &ch, ch.count / groups, ckpt_call_float(c, "eps", 1e-5), err);
}

/* Every channel by its running statistics, or by those of all its samples. PyTorch's further
 * results are the latter; of the former they are empty. */
static int by_channel(struct ckpt_call *c, const struct channels *ch, bool own,
                      struct ckpt_err *err) {
    const double eps = ckpt_call_float(c, "eps", 1e-5);
    const int64_t kept = own ? ch->count : 0;
    int rc = make_group_statistics(c, &kept, 1, err);
    for (int64_t k = 0; rc == 0 && k < ch->count; k++) {
        const struct stats s = own ? batch_moments(ch, k, eps) : running(ch, k, eps);
        for (int64_t n = 0; n < ch->samples; n++)
            normalise_channel(c, ch, n, k, s);
        if (own)
            keep_statistics(c, true, k, s);
    }
    return rc;
}

/* A layer that keeps running statistics and yet normalises by the input's own is in training; one
 * that keeps none has no others. */
static int batch_norm(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(channels) struct channels ch = {0};
    const bool own = ckpt_call_bool(c, "training", false);
    int rc = channels_init(c, &ch, err);
    if (rc == 0 && own && (ch.mean.store || ch.var.store))
        rc = ckpt_fail(err, -EOPNOTSUPP, "runs in training mode; save the model after eval()");
    if (rc == 0 && !own)
        rc = check_running(&ch, err);
    return rc < 0 ? rc : by_channel(c, &ch, own, err);
}

static int instance_norm(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(channels) struct channels ch = {0};
    int rc = channels_init(c, &ch, err);
    if (rc == 0 && ckpt_call_bool(c, "use_input_stats", true))
        return by_groups(c, &ch, 1, ckpt_call_float(c, "eps", 1e-5), err);
    if (rc == 0)
        rc = check_running(&ch, err);
    return rc < 0 ? rc : by_channel(c, &ch, false, err);
}

static const struct ckpt_op ops[] = {
    {"layer_norm",
     "layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
     "float eps=1e-05, bool cudnn_enable=True) -> Tensor",
     layer_norm},
    {"native_layer_norm",
     "native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, "
     "float eps) -> (Tensor, Tensor, Tensor)",
     layer_norm},
    {"rms_norm",
     "rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) "
     "-> Tensor",
     rms_norm},
    {"_fused_rms_norm",
     "_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) "
     "-> (Tensor, Tensor)",
     rms_norm},
    {"group_norm",
     "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, "
     "float eps=1e-05, bool cudnn_enabled=True) -> Tensor",
     group_norm},
    {"native_group_norm",
     "native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, "
     "SymInt HxW, int group, float eps) -> (Tensor, Tensor, Tensor)",
     group_norm},
    {"batch_norm",
     "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
     "Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor",
     batch_norm},
    {"native_batch_norm",
     "native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
     "Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
     batch_norm},
    {"_native_batch_norm_legit",
     "_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, "
     "Tensor(a!) running_mean, Tensor(b!) running_var, bool training, float momentum, float eps) "
     "-> (Tensor, Tensor, Tensor)",
     batch_norm},
    {"_native_batch_norm_legit",
     "_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, "
     "float momentum, float eps) -> (Tensor, Tensor, Tensor)",
     batch_norm},
    {"_native_batch_norm_legit_no_training",
     "_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, "
     "Tensor running_mean, Tensor running_var, float momentum, float eps) "
     "-> (Tensor, Tensor, Tensor)",
     batch_norm},
    {"instance_norm",
     "instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
     "Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled) "
     "-> Tensor",
     instance_norm},
};

const struct ckpt_op_family ckpt_family_norm = CKPT_OP_FAMILY(ops);
