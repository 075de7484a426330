/* The operations that make up layers. */
#include "verify/op.h"

static const struct ckpt_op ops[] = {
    {"linear", "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", ckpt_op_linear},
    {"embedding",
     "embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, "
     "bool scale_grad_by_freq=False, bool sparse=False) -> Tensor",
     ckpt_op_embedding},
    {"prelu", "prelu(Tensor self, Tensor weight) -> Tensor", ckpt_op_prelu},
    {"_prelu_kernel", "_prelu_kernel(Tensor self, Tensor weight) -> Tensor", ckpt_op_prelu_kernel},
};

const struct ckpt_op_family ckpt_family_layer = CKPT_OP_FAMILY(ops);
