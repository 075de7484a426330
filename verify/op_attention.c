/*
 * scaled_dot_product_attention: softmax(q k^T * scale + mask) v, one head at a time.
 *
 *     query [N..., L, E]   key [M..., S, E]   value [M..., S, V]   ->   [N..., L, V]
 *
 * The mask is broadcast to [N..., L, S]: floats are added, booleans (here integers) say where to
 * look. A row that may look nowhere gives zeros, as in PyTorch.
 */
#include <cblas.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "verify/op.h"

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

static int check_shapes(struct attention *a, bool grouped, struct ckpt_err *err) {
    const struct ckpt_array *const q = &a->q, *const k = &a->k, *const v = &a->v;
    const uint32_t n = q->ndim;
    char text[3][64];
    bool fits = n >= 2 && k->ndim == n && v->ndim == n;
    for (uint32_t d = 0; fits && d + 2 < n; d++) {
        const bool head = grouped && d + 3 == n;
        fits = k->shape[d] == v->shape[d] && (head || k->shape[d] == q->shape[d]);
    }
    fits = fits && q->shape[n - 1] == k->shape[n - 1] && k->shape[n - 2] == v->shape[n - 2];
    a->group = 1;
    if (fits && grouped && n > 2) {
        fits = k->shape[n - 3] > 0 && q->shape[n - 3] % k->shape[n - 3] == 0;
        a->group = fits ? q->shape[n - 3] / k->shape[n - 3] : 1;
    }
    if (!fits)
        return ckpt_fail(err, -EINVAL, "query %s, key %s and value %s do not fit together",
                         ckpt_array_shape_text(q, text[0], sizeof(text[0])),
                         ckpt_array_shape_text(k, text[1], sizeof(text[1])),
                         ckpt_array_shape_text(v, text[2], sizeof(text[2])));
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

/* The mask may be of another dtype than F32, which ckpt_call_array insists on. */
static int take_mask(const struct ckpt_call *c, struct attention *a, struct ckpt_err *err) {
    const struct ckpt_arg *const arg = ckpt_call_arg(c, "attn_mask");
    char text[64];
    if (!arg)
        return 0;
    if (arg->kind != CKPT_ARG_ARRAY)
        return ckpt_fail(err, -EINVAL, "attn_mask is not a tensor");
    const int rc = ckpt_array_contiguous(arg->array, &c->exec->memory, &a->mask, err);
    if (rc < 0)
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

static double masked(const struct attention *a, double score, int64_t offset, int64_t i,
                     int64_t j) {
    if (a->causal && j > i)
        return -(double)INFINITY;
    if (!a->mask.store)
        return score;
    const uint32_t n = a->q.ndim;
    const double m =
        ckpt_array_get(&a->mask, offset + i * a->mask_stride[n - 2] + j * a->mask_stride[n - 1]);
    if (a->mask.dtype == CKPT_DT_I64)
        return m != 0 ? score : -(double)INFINITY;
    return score + m;
}

/* Softmax of one row in place, summed in double. */
static void weigh(const struct attention *a, float *row, int64_t offset, int64_t i) {
    double most = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j < a->s; j++) {
        row[j] = (float)masked(a, (double)row[j] * a->scale, offset, i, j);
        most = fmax(most, (double)row[j]);
    }
    const bool nowhere = most == -(double)INFINITY;
    for (int64_t j = 0; !nowhere && j < a->s; j++)
        sum += exp((double)row[j] - most);
    for (int64_t j = 0; j < a->s; j++)
        row[j] = nowhere ? 0 : (float)(exp((double)row[j] - most) / sum);
}

static void attend(const struct attention *a, int64_t head, float *scores, float *out) {
    const int64_t shared = head / a->group;
    const int l = (int)a->l, s = (int)a->s, e = (int)a->e, width = (int)a->width;
    const float *const q = ckpt_array_f32(&a->q) + head * a->l * a->e;
    const float *const k = ckpt_array_f32(&a->k) + shared * a->s * a->e;
    const float *const v = ckpt_array_f32(&a->v) + shared * a->s * a->width;
    const int64_t offset = mask_offset(a, head);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, l, s, e, 1, q, e, k, e, 0, scores, s);
    for (int64_t i = 0; i < a->l; i++)
        weigh(a, scores + i * a->s, offset, i);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, l, width, s, 1, scores, s, v, width, 0,
                out + head * a->l * a->width, width);
}

static int run(struct ckpt_call *c, const struct attention *a, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array scores = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    memcpy(shape, a->q.shape, sizeof(shape));
    shape[a->q.ndim - 1] = a->width;
    int rc = ckpt_call_result(c, shape, a->q.ndim, err);
    if (rc == 0)
        rc =
            ckpt_array_new(&scores, &c->exec->memory, CKPT_DT_F32, (int64_t[]){a->l, a->s}, 2, err);
    const bool empty = a->l == 0 || a->s == 0 || a->e == 0 || a->width == 0;
    for (int64_t head = 0; rc == 0 && !empty && head < a->heads; head++) {
        attend(a, head, ckpt_array_f32(&scores), ckpt_array_f32(c->out));
        rc = ckpt_exec_check(c->exec, err);
    }
    return rc;
}

int ckpt_op_scaled_dot_product_attention(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(attention) struct attention a = {0};
    if (ckpt_call_float(c, "dropout_p", 0) > 0)
        return ckpt_fail(err, -EOPNOTSUPP, "runs in training mode; save the model after eval()");
    int rc = ckpt_call_input(c, "query", &a.q, err);
    if (rc == 0)
        rc = ckpt_call_input(c, "key", &a.k, err);
    if (rc == 0)
        rc = ckpt_call_input(c, "value", &a.v, err);
    if (rc == 0)
        rc = check_shapes(&a, ckpt_call_bool(c, "enable_gqa", false), err);
    if (rc == 0)
        rc = take_mask(c, &a, err);
    if (rc < 0)
        return rc;
    a.causal = ckpt_call_bool(c, "is_causal", false);
    a.scale = ckpt_call_float(c, "scale", a.e > 0 ? 1 / sqrt((double)a.e) : 1);
    return run(c, &a, err);
}
