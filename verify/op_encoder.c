/*
 * The fused operations of PyTorch's transformer layers, put together from the operations that they
 * fuse:
 *
 *     _native_multi_head_attention   x -qkv-> [B, L, 3E] -> 3 of [B, H, L, E/H] -> attention ->
 * proj _transformer_encoder_layer_fwd    x + attention(x), then x + ffn(x), with a norm before or
 *                                       behind each
 *
 * Where a mask is not zero nothing is looked at: the opposite of what attention's own mask says.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

/* ---- parts ---- */

static struct ckpt_arg array_arg(const char *name, const struct ckpt_array *a) {
    struct ckpt_arg arg = {.name = name, .kind = CKPT_ARG_ARRAY};
    arg.array = a;
    return arg;
}

/* An argument of this call under another name; NONE if it is absent. */
static struct ckpt_arg passed(const struct ckpt_call *c, const char *from, const char *name) {
    const struct ckpt_arg *const given = ckpt_call_arg(c, from);
    struct ckpt_arg arg = {.kind = CKPT_ARG_NONE};
    if (given)
        arg = *given;
    arg.name = name;
    return arg;
}

static int run_op(struct ckpt_call *c, struct ckpt_text name, const struct ckpt_arg *arg,
                  uint32_t nargs, struct ckpt_array *out, uint32_t nout, struct ckpt_err *err) {
    return ckpt_op_run_all(ckpt_op_find(name), arg, nargs, c->exec, out, nout, err);
}

static int linear(struct ckpt_call *c, const char *weight, const char *bias,
                  const struct ckpt_array *x, struct ckpt_array *out, struct ckpt_err *err) {
    const struct ckpt_arg arg[] = {array_arg("input", x), passed(c, weight, "weight"),
                                   passed(c, bias, "bias")};
    return run_op(c, CKPT_TEXT("linear"), arg, 3, out, 1, err);
}

static int norm(struct ckpt_call *c, const char *weight, const char *bias,
                const struct ckpt_array *x, struct ckpt_array *out, struct ckpt_err *err) {
    const struct ckpt_arg arg[] = {array_arg("input", x), passed(c, weight, "weight"),
                                   passed(c, bias, "bias"), passed(c, "eps", "eps")};
    return run_op(c, CKPT_TEXT("layer_norm"), arg, 4, out, 1, err); /* of the weight's shape */
}

/* *x becomes x + y. */
static int add(struct ckpt_call *c, struct ckpt_array *x, const struct ckpt_array *y,
               struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array sum = {0};
    const struct ckpt_arg arg[] = {array_arg("self", x), array_arg("other", y)};
    const int rc = run_op(c, CKPT_TEXT("add"), arg, 2, &sum, 1, err);
    if (rc < 0)
        return rc;
    ckpt_array_fini(x);
    *x = ckpt_array_ref(&sum);
    return 0;
}

/* ---- attention ---- */

struct heads {
    int64_t n, embed;
    struct ckpt_array mask; /* of truth values, [.., L, S]: where to look; empty: everywhere */
};

static void heads_fini(struct heads *h) {
    ckpt_array_fini(&h->mask);
}
CKPT_DEFINE_AUTO(heads, struct heads, heads_fini)

/* Part `which` (query, key, value) of x's projection, as [B, H, L, E/H]. */
static int split_heads(struct ckpt_call *c, const struct heads *h, const struct ckpt_array *all,
                       int64_t which, struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array part = {0}, split = {0};
    const int64_t shape[] = {all->shape[0], all->shape[1], h->n, h->embed / h->n};
    part = ckpt_array_slice(all, 2, which * h->embed, h->embed);
    const int rc = ckpt_array_reshape(&part, shape, 4, &c->exec->memory, &split, err);
    if (rc == 0)
        *out = ckpt_array_permute(&split, (uint32_t[]){0, 2, 1, 3});
    return rc;
}

static int project(struct ckpt_call *c, const struct heads *h, const struct ckpt_array *x,
                   struct ckpt_array *all, struct ckpt_err *err) {
    char text[96];
    ckpt_array_fini(all);
    const int rc = linear(c, "qkv_weight", "qkv_bias", x, all, err);
    if (rc == 0 && (all->ndim != 3 || all->shape[2] != 3 * h->embed))
        return ckpt_fail(err, -EINVAL, "the projection %s is not one of [B, L, 3 * %lld]",
                         ckpt_array_shape_text(all, text, sizeof(text)), (long long)h->embed);
    return rc;
}

/* out: query, key and value of the heads. What is the same input is projected once. */
static int project_all(struct ckpt_call *c, const struct heads *h,
                       const struct ckpt_array *const *in, struct ckpt_array *out,
                       struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array all = {0};
    int rc = 0;
    for (int i = 0; rc == 0 && i < 3; i++) {
        if (i == 0 || in[i]->data != in[i - 1]->data || !ckpt_array_same_shape(in[i], in[i - 1]))
            rc = project(c, h, in[i], &all, err);
        if (rc == 0)
            rc = split_heads(c, h, &all, i, &out[i], err);
    }
    return rc;
}

/* [B, H, L, D] as [B, L, H * D] through the last projection. */
static int join_heads(struct ckpt_call *c, const struct heads *h, const struct ckpt_array *y,
                      struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array turned = {0}, joined = {0};
    const int64_t shape[] = {y->shape[0], y->shape[2], h->embed};
    turned = ckpt_array_permute(y, (uint32_t[]){0, 2, 1, 3});
    const int rc = ckpt_array_reshape(&turned, shape, 3, &c->exec->memory, &joined, err);
    return rc < 0 ? rc : linear(c, "proj_weight", "proj_bias", &joined, out, err);
}

/* in: query, key and value. weights may be NULL. */
static int attend(struct ckpt_call *c, const struct heads *h, const struct ckpt_array *const *in,
                  struct ckpt_array *out, struct ckpt_array *weights, struct ckpt_err *err) {
    struct ckpt_array part[3] = {{0}}, got[2] = {{0}};
    int rc = project_all(c, h, in, part, err);
    const struct ckpt_arg arg[] = {array_arg("query", &part[0]), array_arg("key", &part[1]),
                                   array_arg("value", &part[2]), array_arg("attn_mask", &h->mask)};
    if (rc == 0)
        rc = run_op(c, CKPT_TEXT("_scaled_dot_product_attention_math"), arg, h->mask.store ? 4 : 3,
                    got, weights ? 2 : 1, err);
    if (rc == 0)
        rc = join_heads(c, h, &got[0], out, err);
    for (int i = 0; i < 3; i++)
        ckpt_array_fini(&part[i]);
    ckpt_array_fini(&got[0]);
    if (rc == 0 && weights)
        *weights = got[1];
    else
        ckpt_array_fini(&got[1]);
    return rc;
}

/* mask_type 0: [L, S]; 1: [B, S], for all heads and queries; 2: [B, H, L, S]. */
static int take_mask(struct ckpt_call *c, struct heads *h, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = {0}, truth = {0}, whole = {0};
    int rc = ckpt_call_optional(c, "mask", &given, err);
    if (rc < 0 || !given.store)
        return rc;
    const int64_t type = ckpt_call_int(c, "mask_type", given.ndim == 2 ? 0 : 2);
    if (type < 0 || type > 2 || given.ndim != (type == 2 ? 4 : 2))
        return ckpt_fail(err, -EINVAL, "a mask of %u dimensions with mask_type %lld", given.ndim,
                         (long long)type);
    rc = ckpt_array_cast(&given, CKPT_DT_BOOL, &c->exec->memory, &truth, err);
    if (rc == 0)
        rc = ckpt_array_new(&whole, &c->exec->memory, CKPT_DT_BOOL, truth.shape, truth.ndim, err);
    if (rc == 0)
        rc = ckpt_array_assign(&whole, &truth, err);
    if (rc < 0)
        return rc;
    for (int64_t i = 0; i < ckpt_array_count(&whole); i++)
        ckpt_array_bool(&whole)[i] = !ckpt_array_bool(&whole)[i];
    const int64_t shape[] = {whole.shape[0], 1, 1, whole.shape[1]};
    return ckpt_array_reshape(&whole, type == 1 ? shape : whole.shape, type == 1 ? 4 : whole.ndim,
                              &c->exec->memory, &h->mask, err);
}

static int take_heads(struct ckpt_call *c, const char *name, struct heads *h,
                      struct ckpt_err *err) {
    h->n = ckpt_call_int(c, name, 0);
    h->embed = ckpt_call_int(c, "embed_dim", 0);
    if (h->n < 1 || h->embed < 1 || h->embed > INT32_MAX || h->embed % h->n != 0)
        return ckpt_fail(err, -EINVAL, "embed_dim %lld cannot be %lld heads", (long long)h->embed,
                         (long long)h->n);
    return take_mask(c, h, err);
}

/* The mean over the heads of [B, H, L, S]. */
static int average(struct ckpt_call *c, const struct ckpt_array *weights, struct ckpt_array *out,
                   struct ckpt_err *err) {
    const int64_t *const s = weights->shape, plane = s[2] * s[3];
    const int rc =
        ckpt_array_new(out, &c->exec->memory, CKPT_DT_F32, (int64_t[]){s[0], s[2], s[3]}, 3, err);
    for (int64_t i = 0; rc == 0 && i < s[0] * plane; i++) {
        double sum = 0;
        for (int64_t h = 0; h < s[1]; h++)
            sum += (double)ckpt_array_f32(weights)[(i / plane * s[1] + h) * plane + i % plane];
        ckpt_array_f32(out)[i] = (float)(sum / (double)s[1]);
    }
    return rc;
}

static int multi_head_attention(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array q = {0}, k = {0}, v = {0}, weights = {0};
    CKPT_AUTO(heads) struct heads h = {0};
    const bool wanted = c->nout > 1 && ckpt_call_bool(c, "need_weights", true);
    int rc = ckpt_call_input(c, "query", &q, err);
    if (rc == 0)
        rc = ckpt_call_input(c, "key", &k, err);
    if (rc == 0)
        rc = ckpt_call_input(c, "value", &v, err);
    if (rc == 0)
        rc = take_heads(c, "num_head", &h, err);
    if (rc == 0)
        rc = attend(c, &h, (const struct ckpt_array *const[]){&q, &k, &v}, &c->out[0],
                    wanted ? &weights : NULL, err);
    if (rc < 0 || !wanted)
        return rc;
    if (ckpt_call_bool(c, "average_attn_weights", true))
        return average(c, &weights, &c->out[1], err);
    c->out[1] = ckpt_array_ref(&weights);
    return 0;
}

/* ---- the encoder layer ---- */

static int feed_forward(struct ckpt_call *c, const struct ckpt_array *x, struct ckpt_array *out,
                        struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array inner = {0}, active = {0};
    const bool gelu = ckpt_call_bool(c, "use_gelu", false);
    int rc = linear(c, "ffn_weight_1", "ffn_bias_1", x, &inner, err);
    const struct ckpt_arg arg = array_arg("self", &inner);
    if (rc == 0)
        rc = run_op(c, gelu ? CKPT_TEXT("gelu") : CKPT_TEXT("relu"), &arg, 1, &active, 1, err);
    return rc < 0 ? rc : linear(c, "ffn_weight_2", "ffn_bias_2", &active, out, err);
}

/* Attention, or, without heads, the feed-forward part. */
static int block(struct ckpt_call *c, const struct heads *h, const struct ckpt_array *x,
                 struct ckpt_array *out, struct ckpt_err *err) {
    return h ? attend(c, h, (const struct ckpt_array *const[]){x, x, x}, out, NULL, err)
             : feed_forward(c, x, out, err);
}

/* *x becomes x + block(norm(x)), or norm(x + block(x)). */
static int residual_block(struct ckpt_call *c, const struct heads *h, const char *weight,
                          const char *bias, struct ckpt_array *x, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array normed = {0}, y = {0};
    const bool first = ckpt_call_bool(c, "norm_first", false);
    int rc = first ? norm(c, weight, bias, x, &normed, err) : 0;
    if (rc == 0)
        rc = block(c, h, first ? &normed : x, &y, err);
    if (rc == 0)
        rc = add(c, x, &y, err);
    if (rc < 0 || first)
        return rc;
    rc = norm(c, weight, bias, x, &normed, err);
    if (rc < 0)
        return rc;
    ckpt_array_fini(x);
    *x = ckpt_array_ref(&normed);
    return 0;
}

static int encoder_layer(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0};
    CKPT_AUTO(heads) struct heads h = {0};
    int rc = ckpt_call_input(c, "src", &x, err);
    if (rc == 0)
        rc = take_heads(c, "num_heads", &h, err);
    if (rc == 0)
        rc = residual_block(c, &h, "norm_weight_1", "norm_bias_1", &x, err);
    if (rc == 0)
        rc = residual_block(c, NULL, "norm_weight_2", "norm_bias_2", &x, err);
    if (rc == 0)
        c->out[0] = ckpt_array_ref(&x);
    return rc;
}

static const struct ckpt_op ops[] = {
    {"_native_multi_head_attention",
     "_native_multi_head_attention(Tensor query, Tensor key, Tensor value, int embed_dim, "
     "int num_head, Tensor qkv_weight, Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, "
     "Tensor? mask=None, bool need_weights=True, bool average_attn_weights=True, "
     "int? mask_type=None) -> (Tensor, Tensor)",
     multi_head_attention},
    {"_transformer_encoder_layer_fwd",
     "_transformer_encoder_layer_fwd(Tensor src, int embed_dim, int num_heads, Tensor qkv_weight, "
     "Tensor qkv_bias, Tensor proj_weight, Tensor proj_bias, bool use_gelu, bool norm_first, "
     "float eps, Tensor norm_weight_1, Tensor norm_bias_1, Tensor norm_weight_2, "
     "Tensor norm_bias_2, Tensor ffn_weight_1, Tensor ffn_bias_1, Tensor ffn_weight_2, "
     "Tensor ffn_bias_2, Tensor? mask=None, int? mask_type=None) -> Tensor",
     encoder_layer},
};

const struct ckpt_op_family ckpt_family_encoder = CKPT_OP_FAMILY(ops);
