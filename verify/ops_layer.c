/* The operations that make up layers. */
#include "verify/op.h"

static const struct ckpt_op ops[] = {
    {"linear", "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", ckpt_op_linear},
    {"layer_norm",
     "layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
     "float eps=1e-05, bool cudnn_enable=True) -> Tensor",
     ckpt_op_layer_norm},
    {"rms_norm",
     "rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) "
     "-> Tensor",
     ckpt_op_rms_norm},
    {"group_norm",
     "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, "
     "float eps=1e-05, bool cudnn_enabled=True) -> Tensor",
     ckpt_op_group_norm},
    {"batch_norm",
     "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
     "Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor",
     ckpt_op_batch_norm},
    {"instance_norm",
     "instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
     "Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled) "
     "-> Tensor",
     ckpt_op_instance_norm},
    {"embedding",
     "embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, "
     "bool scale_grad_by_freq=False, bool sparse=False) -> Tensor",
     ckpt_op_embedding},
    {"scaled_dot_product_attention",
     "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, "
     "Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, float? scale=None, "
     "bool enable_gqa=False) -> Tensor",
     ckpt_op_scaled_dot_product_attention},
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
