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

static float affine(float x, struct stats s, const struct ckpt_array *weight,
                    const struct ckpt_array *bias, int64_t at) {
    double y = ((double)x - s.mean) * s.scale;
    if (weight->store)
        y *= (double)ckpt_array_f32(weight)[at];
    if (bias->store)
        y += (double)ckpt_array_f32(bias)[at];
    return (float)y;
}

/* The input, and a result of its shape. */
static int begin(struct ckpt_call *c, struct ckpt_array *x, struct ckpt_err *err) {
    const int rc = ckpt_call_input(c, "input", x, err);
    return rc < 0 ? rc : ckpt_call_result(c, x->shape, x->ndim, err);
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
        *width *= shape[d];
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

static int over_last(struct ckpt_call *c, double eps,
                     struct stats (*stats)(const float *, int64_t, double), struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0}, weight = {0}, bias = {0};
    int64_t width = 1;
    int rc = begin(c, &x, err);
    if (rc == 0)
        rc = ckpt_call_array(c, "weight", &weight, err);
    if (rc == 0)
        rc = ckpt_call_array(c, "bias", &bias, err);
    if (rc == 0)
        rc = trailing(c, &x, &weight, &width, err);
    if (rc == 0)
        rc = check_count(&weight, "weight", width, err);
    if (rc == 0)
        rc = check_count(&bias, "bias", width, err);
    const int64_t count = ckpt_array_count(&x);
    for (int64_t at = 0; rc == 0 && at < count; at += width) {
        const float *const in = ckpt_array_f32(&x) + at;
        const struct stats s = stats(in, width, eps);
        for (int64_t i = 0; i < width; i++)
            ckpt_array_f32(c->out)[at + i] = affine(in[i], s, &weight, &bias, i);
    }
    return rc;
}

int ckpt_op_layer_norm(struct ckpt_call *c, struct ckpt_err *err) {
    return over_last(c, ckpt_call_float(c, "eps", 1e-5), moments, err);
}

int ckpt_op_rms_norm(struct ckpt_call *c, struct ckpt_err *err) {
    return over_last(c, ckpt_call_float(c, "eps", (double)FLT_EPSILON), root_mean_square, err);
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
    const float *const in = ckpt_array_f32(&ch->x) + at;
    for (int64_t i = 0; i < ch->inner; i++)
        ckpt_array_f32(c->out)[at + i] = affine(in[i], s, &ch->weight, &ch->bias, channel);
}

/* Groups of `width` neighbouring channels of one sample. */
static void by_groups(const struct ckpt_call *c, const struct channels *ch, int64_t width,
                      double eps) {
    for (int64_t n = 0; n < ch->samples; n++)
        for (int64_t first = 0; first < ch->count; first += width) {
            const float *const in = ckpt_array_f32(&ch->x) + (n * ch->count + first) * ch->inner;
            const struct stats s = moments(in, width * ch->inner, eps);
            for (int64_t k = first; k < first + width; k++)
                normalise_channel(c, ch, n, k, s);
        }
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

int ckpt_op_group_norm(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(channels) struct channels ch = {0};
    const int rc = channels_init(c, &ch, err);
    if (rc < 0)
        return rc;
    const int64_t groups = ckpt_call_int(c, "num_groups", 1);
    if (groups < 1 || ch.count % groups != 0 || ch.count == 0)
        return ckpt_fail(err, -EINVAL, "%lld channels cannot be %lld groups", (long long)ch.count,
                         (long long)groups);
    by_groups(c, &ch, ch.count / groups, ckpt_call_float(c, "eps", 1e-5));
    return 0;
}

/* With running statistics, unless the layer keeps none (or trains). */
static int by_channel(struct ckpt_call *c, struct channels *ch, bool own_statistics,
                      struct stats (*own)(const struct channels *, int64_t, double),
                      struct ckpt_err *err) {
    const double eps = ckpt_call_float(c, "eps", 1e-5);
    if (!own_statistics && (!ch->mean.store || !ch->var.store))
        return ckpt_fail(err, -EINVAL, "%s is missing",
                         ch->mean.store ? "running_var" : "running_mean");
    for (int64_t k = 0; k < ch->count; k++) {
        const struct stats s = own_statistics ? own(ch, k, eps) : running(ch, k, eps);
        for (int64_t n = 0; n < ch->samples; n++)
            normalise_channel(c, ch, n, k, s);
    }
    return 0;
}

int ckpt_op_batch_norm(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(channels) struct channels ch = {0};
    const int rc = channels_init(c, &ch, err);
    if (rc < 0)
        return rc;
    return by_channel(c, &ch, ckpt_call_bool(c, "training", false), batch_moments, err);
}

int ckpt_op_instance_norm(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(channels) struct channels ch = {0};
    const int rc = channels_init(c, &ch, err);
    if (rc < 0)
        return rc;
    if (!ckpt_call_bool(c, "use_input_stats", true))
        return by_channel(c, &ch, false, NULL, err);
    by_groups(c, &ch, 1, ckpt_call_float(c, "eps", 1e-5));
    return 0;
}
