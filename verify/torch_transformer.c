/*
 * TransformerEncoderLayer and DecoderLayer as PyTorch computes them: blocks with a way around each,
 *
 *     post   x = norm(x + block(x))
 *     pre    x = x + block(norm(x))          norm_first
 *
 * with norm1, norm2 (and norm3) in the order in which the blocks run.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/forward.h"

struct block {
    const char *norm;
    /* memory: the decoder's second input */
    int (*run)(const struct ckpt_scope *s, const struct ckpt_array *x,
               const struct ckpt_array *memory, struct ckpt_array *out, struct ckpt_err *err);
};

static int self_attention(const struct ckpt_scope *s, const struct ckpt_array *x,
                          const struct ckpt_array *memory, struct ckpt_array *out,
                          struct ckpt_err *err) {
    (void)memory;
    return ckpt_torch_attention(s, "self_attn", x, x, x, out, err);
}

static int cross_attention(const struct ckpt_scope *s, const struct ckpt_array *x,
                           const struct ckpt_array *memory, struct ckpt_array *out,
                           struct ckpt_err *err) {
    return ckpt_torch_attention(s, "multihead_attn", x, memory, memory, out, err);
}

static int feed_forward(const struct ckpt_scope *s, const struct ckpt_array *x,
                        const struct ckpt_array *memory, struct ckpt_array *out,
                        struct ckpt_err *err) {
    (void)memory;
    CKPT_AUTO(array) struct ckpt_array wide = {0}, active = {0};
    int rc = ckpt_scope_linear(s, "linear1", x, &wide, err);
    if (rc == 0)
        rc = ckpt_scope_activation(s, &wide, &active, err);
    return rc < 0 ? rc : ckpt_scope_linear(s, "linear2", &active, out, err);
}

/* x becomes the block's result. */
static int run_block(const struct ckpt_scope *s, const struct block *block,
                     const struct ckpt_array *memory, struct ckpt_array *x, struct ckpt_err *err) {
    const bool pre = ckpt_scope_bool(s, "norm_first");
    CKPT_AUTO(array) struct ckpt_array in = {0}, y = {0};
    int rc = 0;
    if (pre)
        rc = ckpt_scope_layer_norm(s, block->norm, x, &in, err);
    else
        in = ckpt_array_ref(x);
    if (rc == 0)
        rc = block->run(s, &in, memory, &y, err);
    if (rc == 0)
        rc = ckpt_forward_add(&y, x, err);
    if (rc < 0)
        return rc;
    ckpt_array_fini(x);
    if (!pre)
        return ckpt_scope_layer_norm(s, block->norm, &y, x, err);
    *x = ckpt_array_ref(&y);
    return 0;
}

static int run_blocks(const struct ckpt_scope *s, const struct block *block, int n,
                      const struct ckpt_inputs *in, struct ckpt_array *out, struct ckpt_err *err) {
    int rc = 0;
    *out = ckpt_array_ref(&in->at[0]);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = run_block(s, &block[i], &in->at[1], out, err);
    if (rc < 0)
        ckpt_array_fini(out);
    return rc;
}

int ckpt_torch_encoder_layer(const struct ckpt_scope *s, const struct ckpt_inputs *in,
                             struct ckpt_array *out, struct ckpt_err *err) {
    static const struct block blocks[] = {{"norm1", self_attention}, {"norm2", feed_forward}};
    return run_blocks(s, blocks, 2, in, out, err);
}

int ckpt_torch_decoder_layer(const struct ckpt_scope *s, const struct ckpt_inputs *in,
                             struct ckpt_array *out, struct ckpt_err *err) {
    if (in->n < 2)
        return ckpt_fail(err, -EOPNOTSUPP, "a decoder needs a second input, the memory");
    static const struct block blocks[] = {
        {"norm1", self_attention}, {"norm2", cross_attention}, {"norm3", feed_forward}};
    return run_blocks(s, blocks, 3, in, out, err);
}
