/*
 * Losses: of classes (cross_entropy_loss, nll_loss) and of differences (mse, l1, smooth_l1); and
 * cosine_similarity, which is made of sums, too.
 *
 *     scores [N, C, d...] or [C], target [N, d...] (the class) or as the scores (probabilities)
 *
 * reduction 0: each by itself, 1: their mean, 2: their sum. A mean of classes is one by weights.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

enum reduction { NONE, MEAN, SUM };

static int take_reduction(const struct ckpt_call *c, enum reduction *out, struct ckpt_err *err) {
    const int64_t r = ckpt_call_int(c, "reduction", MEAN);
    *out = (enum reduction)r;
    return r >= NONE && r <= SUM ? 0 : ckpt_fail(err, -EINVAL, "reduction is %lld", (long long)r);
}

/* ---- classes ---- */

struct classes {
    struct ckpt_array scores, target, weight;
    int64_t n, count, inner; /* N, C, elements of one class of one sample */
    int64_t ignored;
    double smoothing;
    bool logarithms; /* the scores are logarithms of probabilities already */
    enum reduction reduction;
};

static void classes_fini(struct classes *k) {
    ckpt_array_fini(&k->scores);
    ckpt_array_fini(&k->target);
    ckpt_array_fini(&k->weight);
}
CKPT_DEFINE_AUTO(classes, struct classes, classes_fini)

static double weight_of(const struct classes *k, int64_t class) {
    return k->weight.store ? (double)ckpt_array_f32(&k->weight)[class] : 1;
}

/* What is subtracted from scores x, `inner` apart, to make them logarithms of probabilities. */
static double normaliser(const struct classes *k, const float *x) {
    double most = -(double)INFINITY, sum = 0;
    if (k->logarithms)
        return 0;
    for (int64_t i = 0; i < k->count; i++)
        most = fmax(most, (double)x[i * k->inner]);
    for (int64_t i = 0; i < k->count; i++)
        sum += exp((double)x[i * k->inner] - most);
    return most + log(sum);
}

/* The loss of scores x by the wanted probabilities: p of each class, or 1 of one and 0 of others.
 */
static double row_loss(const struct classes *k, const float *x, const float *p, int64_t class) {
    const double shift = normaliser(k, x), even = k->smoothing / (double)k->count;
    double loss = 0;
    for (int64_t i = 0; i < k->count; i++) {
        const double wanted = p ? (double)p[i * k->inner] : i == class;
        const double share = wanted * (1 - k->smoothing) + even;
        if (share != 0)
            loss -= share * weight_of(k, i) * ((double)x[i * k->inner] - shift);
    }
    return loss;
}

/* Row `at` of N * inner: its loss, and the weight by which it counts in the mean. */
static int one_row(const struct classes *k, int64_t at, double *loss, double *weight,
                   struct ckpt_err *err) {
    const int64_t first = at / k->inner * k->count * k->inner + at % k->inner;
    const float *const x = ckpt_array_f32(&k->scores) + first;
    *loss = *weight = 0;
    if (k->target.dtype == CKPT_DT_F32) {
        *loss = row_loss(k, x, ckpt_array_f32(&k->target) + first, 0);
        *weight = 1;
        return 0;
    }
    const int64_t class = ckpt_array_i64(&k->target)[at];
    if (class == k->ignored)
        return 0;
    if (class < 0 || class >= k->count)
        return ckpt_fail(err, -EINVAL, "target %lld is none of %lld classes", (long long)class,
                         (long long)k->count);
    *loss = row_loss(k, x, NULL, class);
    *weight = weight_of(k, class);
    return 0;
}

static int sum_rows(struct ckpt_call *c, const struct classes *k, struct ckpt_err *err) {
    double total = 0, weights = 0, loss = 0, weight = 0;
    int rc = 0;
    for (int64_t at = 0; rc == 0 && at < k->n * k->inner; at++) {
        rc = one_row(k, at, &loss, &weight, err);
        total += loss;
        weights += weight;
        if (k->reduction == NONE)
            ckpt_array_f32(c->out)[at] = (float)loss;
    }
    if (rc == 0 && k->reduction != NONE)
        *ckpt_array_f32(c->out) = (float)(k->reduction == MEAN ? total / weights : total);
    if (rc == 0 && c->nout > 1)
        rc = ckpt_call_new(c, 1, CKPT_DT_F32, NULL, 0, err);
    if (rc == 0 && c->nout > 1)
        *ckpt_array_f32(&c->out[1]) = k->reduction == NONE ? 0 : (float)weights;
    return rc;
}

/* The shape of the scores without that of the classes. */
static uint32_t row_shape(const struct classes *k, int64_t *shape) {
    const uint32_t at = k->scores.ndim > 1 ? 1 : 0;
    uint32_t n = 0;
    for (uint32_t d = 0; d < k->scores.ndim; d++)
        if (d != at)
            shape[n++] = k->scores.shape[d];
    return n;
}

static int check_target(struct ckpt_call *c, struct classes *k, struct ckpt_err *err) {
    struct ckpt_array expected = {0};
    char text[2][96];
    CKPT_AUTO(array) struct ckpt_array given = {0};
    int rc = ckpt_call_tensor(c, "target", &given, err);
    if (rc < 0)
        return rc;
    expected.ndim = row_shape(k, expected.shape);
    const bool likely = given.dtype == CKPT_DT_F32 || given.dtype == CKPT_DT_F64;
    if (likely && !k->logarithms)
        expected = k->scores;
    if (!ckpt_array_same_shape(&given, &expected) || given.dtype == CKPT_DT_BOOL ||
        (likely && k->logarithms))
        return ckpt_fail(err, -EINVAL, "target %s of %s does not fit scores %s",
                         ckpt_array_shape_text(&given, text[0], sizeof(text[0])),
                         ckpt_dtype_info(given.dtype)->name,
                         ckpt_array_shape_text(&k->scores, text[1], sizeof(text[1])));
    if (likely)
        return ckpt_call_input(c, "target", &k->target, err);
    return ckpt_array_contiguous(&given, &c->exec->memory, &k->target, err);
}

static int classes_init(struct ckpt_call *c, struct classes *k, struct ckpt_err *err) {
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    k->ignored = ckpt_call_int(c, "ignore_index", -100);
    k->smoothing = ckpt_call_float(c, "label_smoothing", 0);
    int rc = take_reduction(c, &k->reduction, err);
    if (rc == 0)
        rc = ckpt_call_input(c, "self", &k->scores, err);
    if (rc == 0 && (k->scores.ndim == 0 || ckpt_array_count(&k->scores) == 0))
        rc = ckpt_fail(err, -EINVAL, "there are no scores");
    if (rc < 0)
        return rc;
    const uint32_t at = k->scores.ndim > 1 ? 1 : 0;
    k->n = at ? k->scores.shape[0] : 1;
    k->count = k->scores.shape[at];
    k->inner = k->scores.stride[at];
    rc = ckpt_call_vector(c, "weight", k->count, &k->weight, err);
    if (rc == 0)
        rc = check_target(c, k, err);
    if (rc == 0)
        rc = ckpt_call_result(c, shape, k->reduction == NONE ? row_shape(k, shape) : 0, err);
    return rc;
}

static int class_loss(struct ckpt_call *c, bool logarithms, struct ckpt_err *err) {
    CKPT_AUTO(classes) struct classes k = {.logarithms = logarithms};
    const int rc = classes_init(c, &k, err);
    return rc < 0 ? rc : sum_rows(c, &k, err);
}

static int cross_entropy(struct ckpt_call *c, struct ckpt_err *err) {
    return class_loss(c, false, err);
}

static int nll(struct ckpt_call *c, struct ckpt_err *err) {
    return class_loss(c, true, err);
}

/* ---- differences ---- */

/* Two inputs, broadcast to one shape. */
static int take_pair(struct ckpt_call *c, const char *const *names, struct ckpt_array *pair,
                     struct ckpt_err *err) {
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim = 0;
    int rc = ckpt_call_input(c, names[0], &pair[0], err);
    if (rc == 0)
        rc = ckpt_call_input(c, names[1], &pair[1], err);
    if (rc == 0)
        rc = ckpt_array_broadcast((const struct ckpt_array *const[]){&pair[0], &pair[1]}, 2, shape,
                                  &ndim, err);
    for (int i = 0; rc == 0 && i < 2; i++) {
        CKPT_AUTO(array) struct ckpt_array seen = {0};
        rc = ckpt_array_expand(&pair[i], shape, ndim, &seen, err);
        ckpt_array_fini(&pair[i]);
        if (rc == 0)
            rc = ckpt_array_contiguous(&seen, &c->exec->memory, &pair[i], err);
    }
    return rc;
}

static double difference_loss(const struct ckpt_call *c, double d, double beta) {
    if (strcmp(c->op->name, "mse_loss") == 0)
        return d * d;
    if (strcmp(c->op->name, "l1_loss") == 0 || fabs(d) >= beta)
        return fabs(d) - (strcmp(c->op->name, "l1_loss") == 0 ? 0 : beta / 2);
    return d * d / (2 * beta);
}

static int sum_differences(struct ckpt_call *c, const struct ckpt_array *pair,
                           struct ckpt_err *err) {
    enum reduction reduction;
    const double beta = ckpt_call_float(c, "beta", 1);
    const int64_t count = ckpt_array_count(&pair[0]);
    double total = 0;
    int rc = take_reduction(c, &reduction, err);
    if (rc == 0)
        rc = ckpt_call_result(c, pair[0].shape, reduction == NONE ? pair[0].ndim : 0, err);
    for (int64_t i = 0; rc == 0 && i < count; i++) {
        const double d = (double)ckpt_array_f32(&pair[0])[i] - (double)ckpt_array_f32(&pair[1])[i];
        const double loss = difference_loss(c, d, beta);
        total += loss;
        if (reduction == NONE)
            ckpt_array_f32(c->out)[i] = (float)loss;
    }
    if (rc == 0 && reduction != NONE)
        *ckpt_array_f32(c->out) = (float)(reduction == MEAN ? total / (double)count : total);
    return rc;
}

static int difference(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_array pair[2] = {{0}, {0}};
    int rc = take_pair(c, (const char *const[]){"self", "target"}, pair, err);
    if (rc == 0)
        rc = sum_differences(c, pair, err);
    ckpt_array_fini(&pair[0]);
    ckpt_array_fini(&pair[1]);
    return rc;
}

/* ---- cosine similarity ---- */

static double cosine(const float *x, const float *y, int64_t n, int64_t step, double eps) {
    double product = 0, xx = 0, yy = 0;
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)x[i * step], b = (double)y[i * step];
        product += a * b;
        xx += a * a;
        yy += b * b;
    }
    return product / (fmax(sqrt(xx), eps) * fmax(sqrt(yy), eps));
}

/* Along dimension dim, which the result lacks. */
static int cosines(struct ckpt_call *c, const struct ckpt_array *pair, struct ckpt_err *err) {
    uint32_t dim = 0;
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t n = 0;
    int rc = pair[0].ndim ? ckpt_call_dim(c, "dim", 1, pair[0].ndim, &dim, err)
                          : ckpt_fail(err, -EINVAL, "the inputs have no dimension");
    for (uint32_t d = 0; d < pair[0].ndim; d++)
        if (d != dim)
            shape[n++] = pair[0].shape[d];
    if (rc == 0)
        rc = ckpt_call_result(c, shape, n, err);
    if (rc < 0)
        return rc;
    const int64_t size = pair[0].shape[dim], step = pair[0].stride[dim];
    for (int64_t i = 0; i < ckpt_array_count(c->out); i++) {
        const int64_t at = i / step * size * step + i % step;
        ckpt_array_f32(c->out)[i] =
            (float)cosine(ckpt_array_f32(&pair[0]) + at, ckpt_array_f32(&pair[1]) + at, size, step,
                          ckpt_call_float(c, "eps", 1e-8));
    }
    return 0;
}

static int cosine_similarity(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_array pair[2] = {{0}, {0}};
    int rc = take_pair(c, (const char *const[]){"x1", "x2"}, pair, err);
    if (rc == 0)
        rc = cosines(c, pair, err);
    ckpt_array_fini(&pair[0]);
    ckpt_array_fini(&pair[1]);
    return rc;
}

static const struct ckpt_op ops[] = {
    {"cross_entropy_loss",
     "cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, "
     "SymInt ignore_index=-100, float label_smoothing=0.0) -> Tensor",
     cross_entropy},
    {"nll_loss",
     "nll_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, "
     "SymInt ignore_index=-100) -> Tensor",
     nll},
    {"nll_loss_nd",
     "nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, "
     "SymInt ignore_index=-100) -> Tensor",
     nll},
    {"nll_loss_forward",
     "nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, "
     "SymInt ignore_index) -> (Tensor output, Tensor total_weight)",
     nll},
    {"mse_loss", "mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor", difference},
    {"l1_loss", "l1_loss(Tensor self, Tensor target, int reduction=1) -> Tensor", difference},
    {"smooth_l1_loss",
     "smooth_l1_loss(Tensor self, Tensor target, int reduction=1, float beta=1.0) -> Tensor",
     difference},
    {"cosine_similarity",
     "cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor",
     cosine_similarity},
};

const struct ckpt_op_family ckpt_family_loss = CKPT_OP_FAMILY(ops);
