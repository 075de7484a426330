/*
 * What burn may load wrongly, or miss: decisions that nothing but a name or a habit supports, and
 * layers of which burn lacks something. One warning for each row of the table, with the modules.
 */
#include <string.h>

#include "adapters/build.h"
#include "adapters/evidence.h"

static bool is(const char *a, const char *b) {
    return a && strcmp(a, b) == 0;
}

static const struct ckpt_tensor *weight(const struct ckpt_decision *d) {
    return d->facts->leaf[CKPT_LEAF_WEIGHT];
}

static bool has(const struct ckpt_decision *d, enum ckpt_leaf leaf) {
    return d->facts->leaf[leaf];
}

/* --- guesses ---------------------------------------------------------------------------------- */

static bool by_name(const struct ckpt_decision *d) {
    return is(d->decided_by, "name");
}

static bool guessed(const struct ckpt_decision *d) {
    return is(d->decided_by, "default") && is(d->kind, "linear");
}

static bool square(const struct ckpt_decision *d) {
    return by_name(d) && has(d, CKPT_LEAF_BIAS);
}

static bool named_table(const struct ckpt_decision *d) {
    return by_name(d) && !has(d, CKPT_LEAF_BIAS) && weight(d)->ndim == 2 && !is(d->kind, "linear");
}

static bool named_vector(const struct ckpt_decision *d) {
    return by_name(d) && !has(d, CKPT_LEAF_BIAS) && weight(d)->ndim == 1;
}

static bool lone_vector(const struct ckpt_decision *d) {
    const struct ckpt_tensor *w = weight(d);
    return !d->decided_by && w && w->ndim == 1 && !has(d, CKPT_LEAF_BIAS);
}

static bool lora(const struct ckpt_decision *d) {
    return by_name(d) && !has(d, CKPT_LEAF_BIAS) &&
           is(d->kind, "linear"); /* no other is, by name */
}

static bool integers(const struct ckpt_decision *d) {
    const struct ckpt_tensor *w = weight(d);
    return is(d->decided_by, "structure") && is(d->kind, "other") && w &&
           ckpt_dtype_info(w->dtype)->cls <= CKPT_CLASS_INT;
}

static bool norm_order(const struct ckpt_decision *d) {
    return is(d->kind, "encoder_layer") || is(d->kind, "decoder_layer");
}

/* --- what burn lacks -------------------------------------------------------------------------- */

static bool packed(const struct ckpt_decision *d) {
    return is(d->kind, "mha") || is(d->kind, "lstm") || is(d->kind, "gru") || is(d->kind, "rnn");
}

static bool projection(const struct ckpt_decision *d) {
    return has(d, CKPT_LEAF_WEIGHT_HR);
}

static bool widths(const struct ckpt_decision *d) {
    const struct ckpt_tensor *k = d->facts->leaf[CKPT_LEAF_K_PROJ_WEIGHT];
    const struct ckpt_tensor *v = d->facts->leaf[CKPT_LEAF_V_PROJ_WEIGHT];
    return is(d->kind, "mha") && k && v && k->ndim == 2 && v->ndim == 2 &&
           k->shape[1] != v->shape[1];
}

static bool bias_kv(const struct ckpt_decision *d) {
    return is(d->kind, "mha") && has(d, CKPT_LEAF_BIAS_K);
}

static bool zero_attn(const struct ckpt_decision *d) {
    const struct ckpt_value *v = ckpt_facts_attribute(d->facts, "add_zero_attn");
    return is(d->kind, "mha") && v && v->kind == CKPT_VALUE_BOOL && v->b;
}

static bool relu(const struct ckpt_decision *d) {
    const struct ckpt_value *mode = ckpt_facts_attribute(d->facts, "mode");
    return is(d->kind, "rnn") &&
           (is(d->facts->use.op, "aten.rnn_relu") ||
            (mode && mode->kind == CKPT_VALUE_STR && ckpt_text_is(mode->text, "RNN_RELU")));
}

/* In eval they normalise with what they kept, burn's InstanceNorm with what it sees. */
static bool own_statistics(const struct ckpt_decision *d) {
    return is(d->rule_kind, "instance_norm") && has(d, CKPT_LEAF_RUNNING_MEAN);
}

static bool padded_otherwise(const struct ckpt_decision *d) {
    const struct ckpt_value *mode = ckpt_facts_attribute(d->facts, "padding_mode");
    return is(d->kind, "conv") && mode && mode->kind == CKPT_VALUE_STR &&
           !ckpt_text_is(mode->text, "zeros");
}

/* Classes that are norms by their names and multiply by 1 + weight. */
static bool one_more(const struct ckpt_decision *d) {
    static const char *const classes[] = {"GemmaRMSNorm", "Gemma2RMSNorm", "Gemma3RMSNorm",
                                          "Qwen3NextRMSNorm"};
    const struct ckpt_module *record = d->facts->record;
    if (d->adds_one)
        return true;
    for (size_t i = 0; record && is(d->kind, "norm") && i < sizeof classes / sizeof *classes; i++)
        if (ckpt_text_ends(record->cls, classes[i]))
            return true;
    return false;
}

static bool final_norm(const struct ckpt_decision *d) {
    return is(d->kind, "norm") && d->within && d->within->facts->stack &&
           ckpt_text_is(ckpt_module_last_name(d->facts->path), "norm");
}

/* --- what burn's names do not say ------------------------------------------------------------- */

static bool by_habit(const struct ckpt_decision *d) {
    return is(d->decided_by, "default");
}

static bool post_norm(const struct ckpt_decision *d) {
    return by_habit(d) && ckpt_is_layer(d->kind);
}

static bool stacked(const struct ckpt_decision *d) {
    return by_habit(d) && !d->facts->owns &&
           (is(d->kind, "lstm") || is(d->kind, "gru") || is(d->kind, "rnn"));
}

static bool gaps(const struct ckpt_decision *d) {
    return d->facts->list;
}

/* --- what flax's shapes do not say -------------------------------------------------------------
 */

static bool habitual_conv(const struct ckpt_decision *d) {
    return by_habit(d) && is(d->kind, "conv") && d->facts->leaf[CKPT_LEAF_KERNEL]->ndim > 3;
}

static bool short_kernel(const struct ckpt_decision *d) {
    return by_habit(d) && is(d->kind, "conv") && !habitual_conv(d);
}

static bool either_way(const struct ckpt_decision *d) {
    return by_habit(d) && is(d->kind, "conv_transpose");
}

static bool lone_factors(const struct ckpt_decision *d) {
    return has(d, CKPT_LEAF_LORA_A) && !d->rule_kind;
}

static bool lost_kernel(const struct ckpt_decision *d) {
    return has(d, CKPT_LEAF_KERNEL) && !d->rule_kind;
}

/* modules=nn or store to burn, or the way back from it; or from flax to PyTorch. */
enum when { WITH_NN = 1, WITH_STORE = 2, TO_BURN = 3, BACK = 4, ALWAYS = 7, FLAX = 8 };

static const struct doubt_row {
    unsigned when;
    bool (*holds)(const struct ckpt_decision *d);
    const char *what, *advice;
} doubts[] = {
    {ALWAYS, guessed, "2-D weights without a bias, taken for Linear and transposed",
     "nothing in the file tells them from embeddings, -o 'kind=REGEX=>embedding' does"},
    {TO_BURN, square, "square weights whose shape cannot tell Linear from Conv1D, decided by name",
     "-o 'kind=REGEX=>linear' or conv1d_hf settles it"},
    {ALWAYS, named_table,
     "2-D weights without a bias, by their names not Linear and not transposed",
     "-o 'kind=REGEX=>linear' says otherwise"},
    {TO_BURN, named_vector, "1-D weights without a bias, by their names a norm's or a PReLU's",
     "-o 'kind=REGEX=>norm' or prelu settles it"},
    {TO_BURN, lone_vector, "1-D weights alone, an RMSNorm's or a PReLU's, keep the name weight",
     "-o 'kind=REGEX=>norm' or prelu decides"},
    {TO_BURN, lora, "LoRA factors, by their names Linear and transposed as such",
     "they are not merged into the weights that they adapt: peft's merge_and_unload() before "
     "saving does that"},
    {TO_BURN, integers, "weights of integers, packed by a quantisation, stay as they are",
     "burn's layers take floats only"},
    {WITH_STORE, packed, "attention and recurrent layers keep PyTorch's packed tensors",
     "burn has them split and will report its own as missing; modules=nn splits them"},
    {WITH_NN, norm_order,
     "Transformer layers whose norm_first is unknown: their norms keep the names norm1, norm2",
     "burn numbers them by it and will report its own as missing; -o "
     "'kind=REGEX=>encoder_layer:pre' (norm_first=True), encoder_layer:post, decoder_layer:pre or "
     "decoder_layer:post decides"},
    {WITH_NN, projection, "LSTMs with proj_size keep PyTorch's tensors",
     "burn's Lstm has no projection"},
    {WITH_NN, widths, "attention whose kdim and vdim differ",
     "neither MultiHeadAttention nor CrossAttention of burn takes it, a struct of four Linear with "
     "these names does"},
    {WITH_NN, bias_kv, "attention with add_bias_kv",
     "burn has none: it loads without a complaint and computes something else"},
    {WITH_NN, zero_attn, "attention with add_zero_attn",
     "burn has none: it loads without a complaint and computes something else"},
    {WITH_NN, relu, "RNNs with nonlinearity='relu'",
     "burn's Rnn has Tanh unless its config says otherwise: it loads and computes something else"},
    {WITH_NN, own_statistics, "instance norms with track_running_stats",
     "burn's InstanceNorm keeps none: it loads and computes something else"},
    {TO_BURN, padded_otherwise, "convolutions whose padding_mode is not zeros",
     "burn's pad with zeros: they load and compute something else"},
    {TO_BURN, one_more, "norms that multiply by 1 + weight, as their class or the dialect has it",
     "burn's RmsNorm multiplies by gamma: it loads and computes something else"},
    {WITH_NN, final_norm, "norms behind the last Transformer layer",
     "burn's TransformerEncoder and TransformerDecoder have none and leave them out silently: put "
     "a LayerNorm of your own behind them"},
    {BACK, post_norm,
     "Transformer layers, taken for norm_first=False since burn's names do not say",
     "-o 'kind=REGEX=>encoder_layer:pre' or decoder_layer:pre says otherwise"},
    {BACK, stacked,
     "recurrent layers in a list, taken for one module with num_layers since burn's names do not "
     "say",
     "-o 'kind=REGEX=>lstm' (gru, rnn) on the layers says that each is a module of its own"},
    {BACK, gaps,
     "lists that burn numbers without gaps, as PyTorch's Sequential does not where layers without "
     "parameters stand between",
     "-o 'map=^LIST\\.1\\.=>LIST.2.' puts the numbers back"},
    {FLAX, short_kernel,
     "kernels of rank 3, taken for a Conv's of one dimension though a ConvTranspose's, a "
     "DenseGeneral's or those of stacked Dense look the same",
     "-o 'kind=REGEX=>conv' says that they are, conv_transpose (conv_transpose:kernel with "
     "transpose_kernel=True) or dense:N (of N dimensions that go out) what else; =>stack, on the "
     "module that holds them all, that nn.scan stacked them"},
    {FLAX, habitual_conv, "kernels taken for a Conv's though a ConvTranspose's look the same",
     "-o 'kind=REGEX=>conv' says that they are, conv_transpose (conv_transpose:kernel with "
     "transpose_kernel=True) that they are not"},
    {FLAX, either_way,
     "kernels of a ConvTranspose, taken for [in, out] though with transpose_kernel=True they are "
     "[out, in], and no bias tells",
     "-o 'kind=REGEX=>conv_transpose' says that they are, conv_transpose:kernel that they are not"},
    {FLAX, lost_kernel,
     "kernels that stay as they are: which of their dimensions go in, nothing says (DenseGeneral "
     "without a bias, Einsum, ConvLocal)",
     "-o 'kind=REGEX=>dense:N' (of N dimensions that go out), conv or conv_transpose may; =>other "
     "says that they are to stay"},
    {FLAX, lone_factors, "LoRA's factors beside no kernel stay as they are",
     "a module that wraps a layer of another kind, or none, computes x a b with them"},
};

/* "wte, h.0.attn and 11 more" */
static void list_name(struct ckpt_str *s, struct ckpt_text path, size_t before) {
    enum { LISTED = 4 };
    if (before >= LISTED)
        return;
    ckpt_str_printf(s, "%s%.*s", before ? ", " : "", CKPT_TEXT_ARGS(path));
    if (path.n == 0)
        ckpt_str_puts(s, "the model itself");
}

static int warn_of(struct ckpt_build *b, const struct ckpt_modules *m,
                   const struct doubt_row *doubt) {
    CKPT_AUTO(str) struct ckpt_str names = {0};
    size_t n = 0, squares = 0;
    for (size_t i = 0; i < m->n; i++) {
        if (!doubt->holds(&m->decision[i]))
            continue;
        list_name(&names, m->facts[i].path, n++);
        squares += doubt->holds == guessed && ckpt_facts_square(&m->facts[i]);
    }
    if (n == 0)
        return 0;
    if (n > 4)
        ckpt_str_printf(&names, " and %zu more", n - 4);
    if (squares)
        ckpt_str_printf(&names, "; %zu of them are square, so no shape would show an error",
                        squares);
    if (names.failed)
        return ckpt_fail_memory(b->err, "collecting warnings");
    return ckpt_build_warn(b, "%s: %s; %s", doubt->what, names.s, doubt->advice);
}

static enum when direction(const struct ckpt_build *b) {
    if (b->options->layout == CKPT_LAYOUT_TORCH)
        return BACK;
    return b->options->modules_store ? WITH_STORE : WITH_NN;
}

static int warn_of_all(struct ckpt_build *b, const struct ckpt_modules *m, enum when now) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof doubts / sizeof doubts[0]; i++)
        if (doubts[i].when & now)
            rc = warn_of(b, m, &doubts[i]);
    return rc;
}

int ckpt_warn_modules(struct ckpt_build *b, const struct ckpt_modules *m) {
    return warn_of_all(b, m, direction(b));
}

int ckpt_warn_flax_modules(struct ckpt_build *b, const struct ckpt_modules *m) {
    return warn_of_all(b, m, FLAX);
}
