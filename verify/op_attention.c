/*
 * scaled_dot_product_attention: softmax(q k^T * scale + mask) v, one head at a time.
 *
 *     query [N..., L, E]   key [M..., S, E]   value [M..., S, V]   ->   [N..., L, V]
 *
 * N... and M... broadcast; with grouped queries the last of M... is a divisor of that of N... The
 * mask is broadcast to [N..., L, S]: floats are added, booleans say where to look. A row that may
 * look nowhere gives zeros, as in PyTorch.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "verify/op.h"
#include "verify/blas.h"

struct attention {
    struct ckpt_array q, k, v, mask;
    int64_t heads, l, s, e, width; /* heads: all of N... together */
    int64_t group;                 /* heads of q that share one of k and v */
    int64_t
        mask_stride[CKPT_ARRAY_NDIM_MAX]; /* over q's dimensions, the last one S; 0: broadcast */
    bool causal;
    double scale;
};

static void attention_fini(struct attention *a) {
    ckpt_array_fini(&a->q);
    ckpt_array_fini(&a->k);
    ckpt_array_fini(&a->v);
    ckpt_array_fini(&a->mask);
}
CKPT_DEFINE_AUTO(attention, struct attention, attention_fini)

/* ---- shapes ---- */

static int refuse_shapes(const struct attention *a, struct ckpt_err *err) {
    char text[3][96];
    return ckpt_fail(err, -EINVAL, "query %s, key %s and value %s do not fit together",
                     ckpt_array_shape_text(&a->q, text[0], sizeof(text[0])),
                     ckpt_array_shape_text(&a->k, text[1], sizeof(text[1])),
                     ckpt_array_shape_text(&a->v, text[2], sizeof(text[2])));
}

/* Expands the dimensions in front of the last two, and of `shared` heads, to what they broadcast
 * to. */
static int expand_leading(const struct ckpt_call *c, struct ckpt_array *a, const int64_t *leading,
                          uint32_t shared, uint32_t ndim, struct ckpt_err *err) {
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    CKPT_AUTO(array) struct ckpt_array seen = {0};
    const uint32_t kept = shared + 2;
    memcpy(shape, leading, (ndim - kept) * sizeof(*shape));
    memcpy(shape + ndim - kept, a->shape + a->ndim - kept, kept * sizeof(*shape));
    const int rc = ckpt_array_expand(a, shape, ndim, &seen, err);
    if (rc < 0)
        return rc;
    ckpt_array_fini(a);
    return ckpt_array_contiguous(&seen, &c->exec->memory, a, err);
}

/* shared: 1 if the last of the leading dimensions, heads, need not be the same. */
static int expand_all(const struct ckpt_call *c, struct attention *a, uint32_t shared,
                      struct ckpt_err *err) {
    struct ckpt_array *const all[] = {&a->q, &a->k, &a->v};
    struct ckpt_array lead[3];
    const struct ckpt_array *leads[3];
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t n = 0;
    for (int i = 0; i < 3; i++) {
        lead[i] = *all[i];
        lead[i].ndim -= shared + 2;
        leads[i] = &lead[i];
    }
    int rc = ckpt_array_broadcast(leads, 3, shape, &n, err);
    for (int i = 0; rc == 0 && i < 3; i++)
        rc = expand_leading(c, all[i], shape, shared, n + shared + 2, err);
    return rc;
}

static int check_shapes(const struct ckpt_call *c, struct attention *a, struct ckpt_err *err) {
    const struct ckpt_array *const q = &a->q, *const k = &a->k, *const v = &a->v;
    const bool grouped = ckpt_call_bool(c, "enable_gqa", false);
    const uint32_t least = grouped ? 3 : 2;
    if (q->ndim < least || k->ndim < least || v->ndim < least)
        return refuse_shapes(a, err);
    const int rc = expand_all(c, a, grouped ? 1 : 0, err);
    if (rc < 0)
        return rc;
    const uint32_t n = q->ndim;
    bool fits = q->shape[n - 1] == k->shape[n - 1] && k->shape[n - 2] == v->shape[n - 2];
    a->group = 1;
    if (grouped) {
        const int64_t heads = k->shape[n - 3];
        fits = fits && heads > 0 && heads == v->shape[n - 3] && q->shape[n - 3] % heads == 0;
        a->group = fits ? q->shape[n - 3] / heads : 1;
    }
    if (!fits)
        return refuse_shapes(a, err);
    a->l = q->shape[n - 2];
    a->e = q->shape[n - 1];
    a->s = k->shape[n - 2];
    a->width = v->shape[n - 1];
    a->heads = 1;
    fits = ckpt_blas_fits(a->l, a->s, a->e > a->width ? a->e : a->width);
    for (uint32_t d = 0; d + 2 < n; d++)
        fits = fits && ckpt_mul_i64(a->heads, q->shape[d], &a->heads);
    return fits ? 0 : ckpt_fail(err, -EOVERFLOW, "a dimension beyond 2^31");
}

/* The mask, if there is one: BOOL, or F32 whatever float it was. */
static int load_mask(const struct ckpt_call *c, struct ckpt_array *mask, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = {0}, cast = {0};
    int rc = ckpt_call_optional(c, "attn_mask", &given, err);
    if (rc < 0 || !given.store)
        return rc;
    if (given.dtype == CKPT_DT_I64)
        return ckpt_fail(err, -EINVAL, "attn_mask is I64, expected BOOL or floats");
    const enum ckpt_dtype dtype = given.dtype == CKPT_DT_BOOL ? CKPT_DT_BOOL : CKPT_DT_F32;
    rc = ckpt_array_cast(&given, dtype, &c->exec->memory, &cast, err);
    return rc < 0 ? rc : ckpt_array_contiguous(&cast, &c->exec->memory, mask, err);
}

static int take_mask(const struct ckpt_call *c, struct attention *a, struct ckpt_err *err) {
    char text[96];
    const int rc = load_mask(c, &a->mask, err);
    if (rc < 0 || !a->mask.store)
        return rc;
    const uint32_t n = a->q.ndim, m = a->mask.ndim;
    bool fits = m <= n;
    for (uint32_t d = 0; fits && d < m; d++) {
        const uint32_t at = n - m + d;
        const int64_t wanted = at == n - 1 ? a->s : a->q.shape[at];
        fits = a->mask.shape[d] == wanted || a->mask.shape[d] == 1;
        a->mask_stride[at] = a->mask.shape[d] == 1 ? 0 : a->mask.stride[d];
    }
    return fits ? 0
                : ckpt_fail(err, -EINVAL, "attn_mask %s cannot be broadcast to [..., %lld, %lld]",
                            ckpt_array_shape_text(&a->mask, text, sizeof(text)), (long long)a->l,
                            (long long)a->s);
}

/* ---- one head ---- */

/* Where the mask of this head begins: the head's index is split into q's leading dimensions. */
static int64_t mask_offset(const struct attention *a, int64_t head) {
    int64_t offset = 0;
    for (uint32_t d = a->q.ndim - 2; d-- > 0;) {
        offset += head % a->q.shape[d] * a->mask_stride[d];
        head /= a->q.shape[d];
    }
    return offset;
}

/* Scales row i of the scores and adds its mask. */
static void scale_and_mask(const struct attention *a, float *row, int64_t offset, int64_t i) {
    const int64_t step = a->mask_stride[a->q.ndim - 1];
    const int64_t at = offset + i * a->mask_stride[a->q.ndim - 2];
    const bool words = a->mask.dtype == CKPT_DT_BOOL;
    for (int64_t j = 0; j < a->s; j++)
        row[j] = (float)((double)row[j] * a->scale);
    for (int64_t j = 0; words && j < a->s; j++)
        row[j] = ckpt_array_bool(&a->mask)[at + j * step] ? row[j] : -INFINITY;
    for (int64_t j = 0; a->mask.store && !words && j < a->s; j++)
        row[j] += ckpt_array_f32(&a->mask)[at + j * step];
    for (int64_t j = i + 1; a->causal && j < a->s; j++)
        row[j] = -INFINITY;
}

/* Softmax of a row in place, summed in double; gives the logarithm of that sum. */
static double softmax(float *row, int64_t n) {
    double most = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        most = fmax(most, (double)row[j]);
    const bool nowhere = most == -(double)INFINITY;
    for (int64_t j = 0; j < n; j++) {
        const double weight =
            nowhere ? (isnan(row[j]) ? (double)NAN : 0) : exp((double)row[j] - most);
        row[j] = (float)weight;
        sum += weight;
    }
    for (int64_t j = 0; !nowhere && j < n; j++)
        row[j] = (float)((double)row[j] / sum);
    return nowhere ? most : most + log(sum);
}

/* scores: of this head, [L, S]. sums: the logarithms of the softmax' sums, [L], or NULL. */
static void attend(const struct attention *a, int64_t head, float *scores, float *out,
                   float *sums) {
    const int64_t shared = head / a->group;
    const int l = (int)a->l, s = (int)a->s, e = (int)a->e, width = (int)a->width;
    const float *const q = ckpt_array_f32(&a->q) + head * a->l * a->e;
    const float *const k = ckpt_array_f32(&a->k) + shared * a->s * a->e;
    const float *const v = ckpt_array_f32(&a->v) + shared * a->s * a->width;
    const int64_t offset = mask_offset(a, head);
    if (e > 0)
        ckpt_blas_sgemm(CKPT_BLAS_ROWS, CKPT_BLAS_COLUMNS, l, s, e, 1, q, e, k, e, 0, scores, s);
    else
        memset(scores, 0, (size_t)(a->l * a->s) * sizeof(*scores));
    for (int64_t i = 0; i < a->l; i++) {
        scale_and_mask(a, scores + i * a->s, offset, i);
        const double sum = softmax(scores + i * a->s, a->s);
        if (sums)
            sums[i] = (float)sum;
    }
    ckpt_blas_sgemm(CKPT_BLAS_ROWS, CKPT_BLAS_ROWS, l, width, s, 1, scores, s, v, width, 0,
                    out + head * a->l * a->width, width);
}

/* ---- all heads ---- */

enum second { NOTHING, SUMS, WEIGHTS }; /* what an operation's second result is */

/* Scores of one head, or of all if they are a result. */
static int make_results(struct ckpt_call *c, const struct attention *a, enum second second,
                        struct ckpt_array *scores, struct ckpt_err *err) {
    const uint32_t n = a->q.ndim;
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    memcpy(shape, a->q.shape, sizeof(shape));
    shape[n - 1] = a->width;
    int rc = ckpt_call_result(c, shape, n, err);
    shape[n - 1] = a->s;
    if (rc == 0 && second == SUMS && c->nout > 1)
        rc = ckpt_call_new(c, 1, CKPT_DT_F32, shape, n - 1, err);
    if (rc == 0 && second == WEIGHTS && c->nout > 1)
        rc = ckpt_call_new(c, 1, CKPT_DT_F32, shape, n, err);
    else if (rc == 0)
        rc = ckpt_array_new(scores, &c->exec->memory, CKPT_DT_F32, (int64_t[]){a->l, a->s}, 2, err);
    return rc;
}

static int run(struct ckpt_call *c, const struct attention *a, enum second second,
               struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array scores = {0};
    int rc = make_results(c, a, second, &scores, err);
    const bool sums = second == SUMS && c->nout > 1, weights = second == WEIGHTS && c->nout > 1;
    const bool empty = a->l == 0 || a->s == 0 || a->width == 0;
    for (int64_t head = 0; rc == 0 && !empty && head < a->heads; head++) {
        float *const own =
            weights ? ckpt_array_f32(&c->out[1]) + head * a->l * a->s : ckpt_array_f32(&scores);
        attend(a, head, own, ckpt_array_f32(c->out),
               sums ? ckpt_array_f32(&c->out[1]) + head * a->l : NULL);
        rc = ckpt_exec_check(c->exec, err);
    }
    return rc;
}

static int attention(struct ckpt_call *c, enum second second, struct ckpt_err *err) {
    CKPT_AUTO(attention) struct attention a = {0};
    if (ckpt_call_float(c, "dropout_p", 0) > 0)
        return ckpt_fail(err, -EOPNOTSUPP, "runs in training mode; save the model after eval()");
    int rc = ckpt_call_input(c, "query", &a.q, err);
    if (rc == 0)
        rc = ckpt_call_input(c, "key", &a.k, err);
    if (rc == 0)
        rc = ckpt_call_input(c, "value", &a.v, err);
    if (rc == 0)
        rc = check_shapes(c, &a, err);
    if (rc == 0)
        rc = take_mask(c, &a, err);
    if (rc < 0)
        return rc;
    a.causal = ckpt_call_bool(c, "is_causal", false);
    a.scale = ckpt_call_float(c, "scale", a.e > 0 ? 1 / sqrt((double)a.e) : 1);
    return run(c, &a, second, err);
}

static int plain(struct ckpt_call *c, struct ckpt_err *err) {
    return attention(c, NOTHING, err);
}

static int with_sums(struct ckpt_call *c, struct ckpt_err *err) {
    return attention(c, SUMS, err);
}

static int with_weights(struct ckpt_call *c, struct ckpt_err *err) {
    if (ckpt_call_arg(c, "dropout_mask"))
        return ckpt_fail(err, -EOPNOTSUPP, "runs in training mode; save the model after eval()");
    return attention(c, WEIGHTS, err);
}

static const struct ckpt_op ops[] = {
    {"scaled_dot_product_attention",
     "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, "
     "Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, float? scale=None, "
     "bool enable_gqa=False) -> Tensor",
     plain},
    {"_scaled_dot_product_flash_attention_for_cpu",
     "_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, "
     "float dropout_p=0.0, bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) "
     "-> (Tensor output, Tensor logsumexp)",
     with_sums},
    {"_scaled_dot_product_attention_math",
     "_scaled_dot_product_attention_math(Tensor query, Tensor key, Tensor value, "
     "Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, "
     "Tensor? dropout_mask=None, *, float? scale=None, bool enable_gqa=False) -> (Tensor, Tensor)",
     with_weights},
};

const struct ckpt_op_family ckpt_family_attention = CKPT_OP_FAMILY(ops);
