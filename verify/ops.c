/*
 * All operations: the tables of the families, one file each. Schemas are ATen's; whoever binds a
 * node's arguments reads their names and order from them.
 */
#include <string.h>

#include "verify/op.h"

/* clang-format off */
static const struct ckpt_op_family *const families[] = {
    &ckpt_family_layer,
    &ckpt_family_pool,
    &ckpt_family_embedding_bag,
    &ckpt_family_loss,
    &ckpt_family_rnn_cell,
    &ckpt_family_rnn,
    &ckpt_family_encoder,
    &ckpt_family_attention,
    &ckpt_family_shuffle,
    &ckpt_family_upsample,
    &ckpt_family_view,
    &ckpt_family_arithmetic,
    &ckpt_family_count,
    &ckpt_family_einsum,
    &ckpt_family_product,
    &ckpt_family_extreme,
    &ckpt_family_sort,
    &ckpt_family_scan,
    &ckpt_family_reduce,
    &ckpt_family_matmul,
    &ckpt_family_unary,
    &ckpt_family_clamp,
    &ckpt_family_activation,
    &ckpt_family_softmax,
    &ckpt_family_slice,
    &ckpt_family_window,
    &ckpt_family_conv,
    &ckpt_family_compare,
    &ckpt_family_cast,
    &ckpt_family_scalar,
    &ckpt_family_number,
    &ckpt_family_norm,
    &ckpt_family_create,
    &ckpt_family_random,
    &ckpt_family_join,
    &ckpt_family_repeat,
    &ckpt_family_pad,
    &ckpt_family_index,
    &ckpt_family_gather,
    &ckpt_family_where,
};
/* clang-format on */

const struct ckpt_op *ckpt_op_at(size_t i) {
    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        if (i < families[f]->n)
            return &families[f]->op[i];
        i -= families[f]->n;
    }
    return NULL;
}

const struct ckpt_op *ckpt_op_find(struct ckpt_text name) {
    const struct ckpt_op *op;
    for (size_t i = 0; (op = ckpt_op_at(i)); i++)
        if (ckpt_text_is(name, op->name))
            return op;
    return NULL;
}

/* "dim" of "max.dim(Tensor self, ..."; empty for the default overload. */
static struct ckpt_text overload_of(const struct ckpt_op *op) {
    const char *const s = op->schema + strlen(op->name);
    return *s == '.' ? (struct ckpt_text){s + 1, strcspn(s + 1, "(")} : CKPT_TEXT("");
}

const struct ckpt_op *ckpt_op_find_overload(struct ckpt_text name, struct ckpt_text overload) {
    const struct ckpt_text wanted = ckpt_text_is(overload, "default") ? CKPT_TEXT("") : overload;
    const struct ckpt_op *op;
    for (size_t i = 0; (op = ckpt_op_at(i)); i++)
        if (ckpt_text_is(name, op->name) && ckpt_text_eq(overload_of(op), wanted))
            return op;
    return NULL;
}
