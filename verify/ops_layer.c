/* The operations that make up layers. */
#include "verify/op.h"

static const struct ckpt_op ops[] = {
    {"linear", "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", ckpt_op_linear},
    {"embedding",
     "embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, "
     "bool scale_grad_by_freq=False, bool sparse=False) -> Tensor",
     ckpt_op_embedding},
    {"lstm",
     "lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, "
     "float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)",
     ckpt_op_rnn},
    {"gru",
     "gru.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, "
     "float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
     ckpt_op_rnn},
    {"rnn_tanh",
     "rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, "
     "float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
     ckpt_op_rnn},
    {"rnn_relu",
     "rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, "
     "float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
     ckpt_op_rnn},
    {"prelu", "prelu(Tensor self, Tensor weight) -> Tensor", ckpt_op_prelu},
};

const struct ckpt_op_family ckpt_family_layer = CKPT_OP_FAMILY(ops);
