/*
 * What the shapes of a module's tensors prove: the third rung of the evidence. Rows are tried in
 * order; each is a fact that holds for one kind of torch.nn module and for no other that has these
 * names.
 */
#include <string.h>

#include "adapters/evidence.h"

static const struct ckpt_tensor *leaf(const struct ckpt_facts *f, enum ckpt_leaf l) {
    return f->leaf[l];
}

static bool rank(const struct ckpt_tensor *t, uint32_t n) {
    return t && t->ndim == n;
}

/* bias is 1-D and as long as the weight's dimension d. */
static bool bias_as_long_as(const struct ckpt_facts *f, uint32_t d) {
    const struct ckpt_tensor *w = leaf(f, CKPT_LEAF_WEIGHT), *b = leaf(f, CKPT_LEAF_BIAS);
    return w && d < w->ndim && rank(b, 1) && b->shape[0] == w->shape[d];
}

/* Running statistics are kept by batch norms (and by instance norms told to). */
static bool batch_norm(const struct ckpt_facts *f) {
    const struct ckpt_tensor *w = leaf(f, CKPT_LEAF_WEIGHT);
    return rank(leaf(f, CKPT_LEAF_RUNNING_MEAN), 1) && (!w || w->ndim == 1);
}

static bool mha(const struct ckpt_facts *f) {
    const struct ckpt_tensor *w = leaf(f, CKPT_LEAF_IN_PROJ_WEIGHT);
    return (rank(w, 2) && w->shape[0] == 3 * w->shape[1]) ||
           (rank(leaf(f, CKPT_LEAF_Q_PROJ_WEIGHT), 2) &&
            rank(leaf(f, CKPT_LEAF_K_PROJ_WEIGHT), 2) && rank(leaf(f, CKPT_LEAF_V_PROJ_WEIGHT), 2));
}

/* Gates stacked in the rows of weight_hh_l0: [gates * hidden, hidden]. */
static bool gates(const struct ckpt_facts *f, int64_t n) {
    const struct ckpt_tensor *hh = leaf(f, CKPT_LEAF_WEIGHT_HH), *ih = leaf(f, CKPT_LEAF_WEIGHT_IH);
    return rank(hh, 2) && rank(ih, 2) && hh->shape[1] > 0 && hh->shape[0] / hh->shape[1] == n &&
           hh->shape[0] % hh->shape[1] == 0 && ih->shape[0] == hh->shape[0];
}

static bool lstm(const struct ckpt_facts *f) {
    return leaf(f, CKPT_LEAF_WEIGHT_HR) || gates(f, 4); /* only an LSTM has a projection */
}

static bool gru(const struct ckpt_facts *f) {
    return gates(f, 3);
}

static bool rnn(const struct ckpt_facts *f) {
    return gates(f, 1);
}

/* A LayerNorm over several dimensions has a weight of that rank, and a bias of the same shape. */
static bool wide_norm(const struct ckpt_facts *f) {
    const struct ckpt_tensor *w = leaf(f, CKPT_LEAF_WEIGHT), *b = leaf(f, CKPT_LEAF_BIAS);
    return w && b && w->ndim >= 2 && b->ndim == w->ndim &&
           memcmp(w->shape, b->shape, w->ndim * sizeof *w->shape) == 0;
}

/* Kernels [out, in/groups, k...] with bias [out]; transposed ones are [in, out/groups, k...]. Where
 * both fit, or there is no bias, it is the usual one: burn stores both as torch does. */
static bool conv_transpose(const struct ckpt_facts *f) {
    const struct ckpt_tensor *w = leaf(f, CKPT_LEAF_WEIGHT), *b = leaf(f, CKPT_LEAF_BIAS);
    return w && w->ndim >= 3 && w->ndim <= 5 && rank(b, 1) && b->shape[0] != w->shape[0] &&
           w->shape[1] > 0 && b->shape[0] % w->shape[1] == 0;
}

static bool conv(const struct ckpt_facts *f) {
    const struct ckpt_tensor *w = leaf(f, CKPT_LEAF_WEIGHT), *b = leaf(f, CKPT_LEAF_BIAS);
    return w && w->ndim >= 3 && w->ndim <= 5 && (!b || bias_as_long_as(f, 0));
}

/* Of [out, in] with a bias: its length is out. It proves nothing of a square weight. */
static bool linear(const struct ckpt_facts *f) {
    return rank(leaf(f, CKPT_LEAF_WEIGHT), 2) && bias_as_long_as(f, 0) && !bias_as_long_as(f, 1);
}

static bool conv1d_hf(const struct ckpt_facts *f) {
    return rank(leaf(f, CKPT_LEAF_WEIGHT), 2) && bias_as_long_as(f, 1) && !bias_as_long_as(f, 0);
}

/* Weights of burn's layers are floats: integers are packed ones, of somebody's quantisation. */
static bool integers(const struct ckpt_facts *f) {
    const struct ckpt_tensor *w = leaf(f, CKPT_LEAF_WEIGHT);
    return w && w->ndim > 0 && ckpt_dtype_info(w->dtype)->cls <= CKPT_CLASS_INT;
}

static bool norm(const struct ckpt_facts *f) {
    return rank(leaf(f, CKPT_LEAF_WEIGHT), 1) && bias_as_long_as(f, 0);
}

static const struct structure_row {
    bool (*holds)(const struct ckpt_facts *f);
    const char *kind;
} rows[] = {
    {integers, "other"},
    {batch_norm, "batch_norm"},
    {mha, "mha"},
    {lstm, "lstm"},
    {gru, "gru"},
    {rnn, "rnn"},
    {wide_norm, "norm"},
    {conv_transpose, "conv_transpose"},
    {conv, "conv"},
    {linear, "linear"},
    {conv1d_hf, "conv1d_hf"},
    {norm, "norm"},
};

static bool found(struct ckpt_decision *d, const char *kind) {
    d->kind = d->rule_kind = kind;
    d->decided_by = "structure";
    return true;
}

bool ckpt_evidence_structure(const struct ckpt_facts *f, struct ckpt_decision *d) {
    const char *layer = ckpt_layer_by_children(f);
    if (layer)
        return found(d, layer);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].holds(f))
            return found(d, rows[i].kind);
    return false;
}

bool ckpt_facts_square(const struct ckpt_facts *f) {
    const struct ckpt_tensor *w = leaf(f, CKPT_LEAF_WEIGHT);
    return rank(w, 2) && w->shape[0] == w->shape[1];
}
