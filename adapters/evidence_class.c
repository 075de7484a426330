/* Classes of modules whose tensors we know, as whole-module pickles and graphs name them. */
#include <string.h>

#include "adapters/evidence.h"

static const struct class_row {
    const char *cls; /* a whole name, or "*End": a class of that ending in any package */
    const char *kind, *rule_kind;
} classes[] = {
    {"torch.nn.modules.linear.Linear", "linear", "linear"},
    {"torch.nn.modules.linear.LazyLinear", "linear", "linear"},
    {"torch.nn.modules.linear.NonDynamicallyQuantizableLinear", "linear", "linear"},
    {"torch.nn.modules.linear.Bilinear", "other", "other"},
    {"torch.nn.modules.batchnorm.BatchNorm1d", "batch_norm", "batch_norm"},
    {"torch.nn.modules.batchnorm.BatchNorm2d", "batch_norm", "batch_norm"},
    {"torch.nn.modules.batchnorm.BatchNorm3d", "batch_norm", "batch_norm"},
    {"torch.nn.modules.batchnorm.SyncBatchNorm", "batch_norm", "batch_norm"},
    {"torch.nn.modules.normalization.LayerNorm", "norm", "norm"},
    {"torch.nn.modules.normalization.GroupNorm", "norm", "norm"},
    {"torch.nn.modules.normalization.RMSNorm", "norm", "norm"},
    /* burn-store's own adapter leaves these alone (modules=store), so rules tell them apart. */
    {"torch.nn.modules.instancenorm.InstanceNorm1d", "norm", "instance_norm"},
    {"torch.nn.modules.instancenorm.InstanceNorm2d", "norm", "instance_norm"},
    {"torch.nn.modules.instancenorm.InstanceNorm3d", "norm", "instance_norm"},
    {"torch.nn.modules.conv.Conv1d", "conv", "conv"},
    {"torch.nn.modules.conv.Conv2d", "conv", "conv"},
    {"torch.nn.modules.conv.Conv3d", "conv", "conv"},
    {"torch.nn.modules.conv.ConvTranspose1d", "conv_transpose", "conv_transpose"},
    {"torch.nn.modules.conv.ConvTranspose2d", "conv_transpose", "conv_transpose"},
    {"torch.nn.modules.conv.ConvTranspose3d", "conv_transpose", "conv_transpose"},
    {"torch.nn.modules.sparse.Embedding", "embedding", "embedding"},
    {"torch.nn.modules.sparse.EmbeddingBag", "embedding", "embedding"},
    {"torch.nn.modules.activation.PReLU", "prelu", "prelu"},
    {"torch.nn.modules.activation.MultiheadAttention", "mha", "mha"},
    {"torch.nn.modules.transformer.TransformerEncoderLayer", "encoder_layer", "encoder_layer"},
    {"torch.nn.modules.transformer.TransformerDecoderLayer", "decoder_layer", "decoder_layer"},
    {"torch.nn.modules.rnn.LSTM", "lstm", "lstm"},
    {"torch.nn.modules.rnn.GRU", "gru", "gru"},
    {"torch.nn.modules.rnn.RNN", "rnn", "rnn"},
    {"torch.nn.modules.rnn.LSTMCell", "other", "other"},
    {"torch.nn.modules.rnn.GRUCell", "other", "other"},
    {"torch.nn.modules.rnn.RNNCell", "other", "other"},
    {"torch.nn.modules.container.ParameterList", "other", "other"},
    {"torch.nn.modules.container.ParameterDict", "other", "other"},
    /* Hugging Face's Conv1D is a Linear whose weight is stored [in, out] already. */
    {"transformers.pytorch_utils.Conv1D", "conv1d_hf", "conv1d_hf"},
    {"transformers.modeling_utils.Conv1D", "conv1d_hf", "conv1d_hf"},
    /* LlamaRMSNorm, T5LayerNorm, LayerNorm2d's kin: everybody's own norms keep weight and bias. */
    {"*RMSNorm", "norm", "norm"},
    {"*LayerNorm", "norm", "norm"},
};

static bool is_class(struct ckpt_text cls, const char *row) {
    return row[0] == '*' ? ckpt_text_ends(cls, row + 1) : ckpt_text_is(cls, row);
}

bool ckpt_kind_of_class(struct ckpt_text cls, struct ckpt_decision *d) {
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (!is_class(cls, classes[i].cls))
            continue;
        d->kind = classes[i].kind;
        d->rule_kind = classes[i].rule_kind;
        return true;
    }
    return false;
}

bool ckpt_evidence_class(const struct ckpt_facts *f, struct ckpt_decision *d) {
    if (!f->record || !ckpt_kind_of_class(f->record->cls, d))
        return false;
    d->decided_by = "class";
    return true;
}
