/*
 * TransformerEncoderLayer and DecoderLayer as burn computes them. Its norms are numbered by their
 * places in a layer without norm_first, and keep their numbers otherwise:
 *
 *     encoder  [norm_2 first] mha, add        [norm_1] pwff, add       [norm_2 last]
 *     decoder  [norm_3 first] self_attn, add  [norm_1] cross_attn, add [norm_2] pwff, add [norm_3]
 *
 * With norm_first the first norm runs and the last doesn't, and those between feed the block alone;
 * without it, the first doesn't run, and those between stay on the main path.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/forward.h"

static int position_wise(const struct ckpt_scope *s, const struct ckpt_array *x,
                         struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array inner = {0}, active = {0};
    int rc = ckpt_scope_linear(s, "pwff.linear_inner", x, &inner, err);
    if (rc == 0)
        rc = ckpt_scope_activation(s, &inner, &active, err);
    return rc < 0 ? rc : ckpt_scope_linear(s, "pwff.linear_outer", &active, out, err);
}

/* The main path x becomes its norm; or, with norm_first, only what goes into the block does. */
static int norm_between(const struct ckpt_scope *s, const char *norm, struct ckpt_array *x,
                        struct ckpt_array *residual, struct ckpt_err *err) {
    const int rc = ckpt_scope_layer_norm(s, norm, x, residual, err);
    if (rc < 0 || ckpt_scope_bool(s, "norm_first"))
        return rc;
    ckpt_array_fini(x);
    *x = ckpt_array_ref(residual);
    return 0;
}

static int norm_at_first(const struct ckpt_scope *s, const char *norm, const struct ckpt_array *x,
                         struct ckpt_array *residual, struct ckpt_err *err) {
    if (ckpt_scope_bool(s, "norm_first"))
        return ckpt_scope_layer_norm(s, norm, x, residual, err);
    *residual = ckpt_array_ref(x);
    return 0;
}

static int norm_at_last(const struct ckpt_scope *s, const char *norm, const struct ckpt_array *x,
                        struct ckpt_array *out, struct ckpt_err *err) {
    if (!ckpt_scope_bool(s, "norm_first"))
        return ckpt_scope_layer_norm(s, norm, x, out, err);
    *out = ckpt_array_ref(x);
    return 0;
}

/* x + y into x, which may be shared: y's memory takes the sum. */
static int add(struct ckpt_array *x, struct ckpt_array *y, struct ckpt_err *err) {
    const int rc = ckpt_forward_add(y, x, err);
    ckpt_array_fini(x);
    *x = *y;
    *y = (struct ckpt_array){0};
    return rc;
}

/* Self-attention with the norm before it. */
static int attend_self(const struct ckpt_scope *s, const char *module, const char *norm,
                       struct ckpt_array *x, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array residual = {0}, y = {0};
    int rc = norm_at_first(s, norm, x, &residual, err);
    if (rc == 0)
        rc = ckpt_burn_attention(s, module, &residual, &residual, &residual, &y, err);
    return rc < 0 ? rc : add(x, &y, err);
}

static int attend_memory(const struct ckpt_scope *s, const char *norm, struct ckpt_array *x,
                         const struct ckpt_array *memory, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array residual = {0}, y = {0};
    int rc = norm_between(s, norm, x, &residual, err);
    if (rc == 0)
        rc = ckpt_burn_attention(s, "cross_attn", &residual, memory, memory, &y, err);
    return rc < 0 ? rc : add(x, &y, err);
}

static int feed_forward(const struct ckpt_scope *s, const char *norm, struct ckpt_array *x,
                        struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array residual = {0}, y = {0};
    int rc = norm_between(s, norm, x, &residual, err);
    if (rc == 0)
        rc = position_wise(s, &residual, &y, err);
    return rc < 0 ? rc : add(x, &y, err);
}

int ckpt_burn_encoder_layer(const struct ckpt_scope *s, const struct ckpt_inputs *in,
                            struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = ckpt_array_ref(&in->at[0]);
    int rc = attend_self(s, "mha", "norm_2", &x, err);
    if (rc == 0)
        rc = feed_forward(s, "norm_1", &x, err);
    return rc < 0 ? rc : norm_at_last(s, "norm_2", &x, out, err);
}

int ckpt_burn_decoder_layer(const struct ckpt_scope *s, const struct ckpt_inputs *in,
                            struct ckpt_array *out, struct ckpt_err *err) {
    if (in->n < 2)
        return ckpt_fail(err, -EOPNOTSUPP, "a decoder needs a second input, the memory");
    CKPT_AUTO(array) struct ckpt_array x = ckpt_array_ref(&in->at[0]);
    int rc = attend_self(s, "self_attn", "norm_3", &x, err);
    if (rc == 0)
        rc = attend_memory(s, "norm_1", &x, &in->at[1], err);
    if (rc == 0)
        rc = feed_forward(s, "norm_2", &x, err);
    return rc < 0 ? rc : norm_at_last(s, "norm_3", &x, out, err);
}
