/*
 * flax's recurrent cells: PyTorch keeps the gates of a cell in one matrix a side, flax as a Dense
 * each, or (nnx) side by side in one.
 *
 *     LSTMCell             ii if ig io | hi hf hg ho          one bias where PyTorch adds two
 *     GRUCell              ir iz in | hr hz hn                of h, only n has one
 *     MGUCell              if in | hf hn                      a GRU whose r and z are both f
 *     SimpleCell           i | h                              an RNN
 *     nnx                  dense_i | dense_h, of as many columns as all gates have
 *     ConvLSTMCell         ih | hh, which are Conv            PyTorch and burn have none: two Conv
 */
#include "adapters/flax_survey.h"

#define GATES_MAX 4u
static const struct cell_row {
    const char *kind, *rule_kind;
    uint32_t gates;                 /* modules a side */
    uint32_t packed;                /* gates in each of them */
    const char *gate[2][GATES_MAX]; /* of the input, of the hidden state */
    unsigned biases[2];             /* bit per gate: it has one */
} cells[] = {
    {"lstm", "lstm", 4, 1, {{"ii", "if", "ig", "io"}, {"hi", "hf", "hg", "ho"}}, {0, 15}},
    {"lstm", "lstm", 4, 1, {{"ii", "if_", "ig", "io"}, {"hi", "hf", "hg", "ho"}}, {0, 15}},
    {"lstm", "lstm", 1, 4, {{"dense_i"}, {"dense_h"}}, {0, 1}},
    {"gru", "gru", 3, 1, {{"ir", "iz", "in"}, {"hr", "hz", "hn"}}, {7, 4}},
    {"gru", "gru", 1, 3, {{"dense_i"}, {"dense_h"}}, {1, 0}},
    {"gru", "mgu", 2, 1, {{"if", "in"}, {"hf", "hn"}}, {3, 2}},
    {"rnn", "rnn", 1, 1, {{"i"}, {"h"}}, {1, 0}},
    {"rnn", "rnn", 1, 1, {{"dense_i"}, {"dense_h"}}, {1, 0}},
};

/* A Dense with a bias or none, of the same sizes as the first of its side. */
static bool is_gate(const struct ckpt_survey *s, size_t i, size_t first, bool has_bias) {
    const struct ckpt_tensor *const k = ckpt_survey_kernel(s, i);
    const struct ckpt_tensor *const f = ckpt_survey_kernel(s, first);
    const struct ckpt_tensor *const b = ckpt_survey_bias(s, i);
    return k && f && k->ndim == 2 && ckpt_survey_ends_as(k, f) && f->ndim == 2 &&
           k->dtype == f->dtype && !b == !has_bias &&
           (!b || (b->ndim == 1 && ckpt_survey_ends_as(k, b) && b->dtype == k->dtype));
}

static bool is_cell(const struct ckpt_survey *s, size_t i, const struct cell_row *row) {
    for (uint32_t side = 0; side < 2; side++) {
        const size_t first = ckpt_survey_child(s, i, row->gate[side][0]);
        for (uint32_t g = 0; g < row->gates; g++)
            if (!is_gate(s, ckpt_survey_child(s, i, row->gate[side][g]), first,
                         row->biases[side] >> g & 1))
                return false;
    }
    const struct ckpt_tensor *const x =
        ckpt_survey_kernel(s, ckpt_survey_child(s, i, row->gate[0][0]));
    const struct ckpt_tensor *const h =
        ckpt_survey_kernel(s, ckpt_survey_child(s, i, row->gate[1][0]));
    return h->shape[1] % row->packed == 0 && h->shape[0] == h->shape[1] / row->packed &&
           x->shape[1] == h->shape[1] && x->dtype == h->dtype;
}

/* [kernel, in, 4 hidden] and [kernel, hidden, 4 hidden]. */
static void decide_conv_lstm(struct ckpt_survey *s, size_t i) {
    const size_t ih = ckpt_survey_child(s, i, "ih"), hh = ckpt_survey_child(s, i, "hh");
    const struct ckpt_tensor *const x = ckpt_survey_kernel(s, ih), *const h =
                                                                       ckpt_survey_kernel(s, hh);
    if (!x || !h || x->ndim != h->ndim || h->ndim < 3 || h->ndim > 5)
        return;
    const int64_t gates = h->shape[h->ndim - 1];
    if (gates % 4 || h->shape[h->ndim - 2] != gates / 4 || x->shape[x->ndim - 1] != gates)
        return;
    ckpt_survey_decide(s, ih, "conv", "conv", "structure");
    ckpt_survey_decide(s, hh, "conv", "conv", "structure");
}

void ckpt_flax_decide_cell(struct ckpt_survey *s, size_t i) {
    for (size_t r = 0; r < sizeof cells / sizeof cells[0]; r++) {
        const struct cell_row *const row = &cells[r];
        if (!is_cell(s, i, row))
            continue;
        for (uint32_t side = 0; side < 2; side++)
            for (uint32_t g = 0; g < row->gates; g++)
                ckpt_survey_decide(s, ckpt_survey_child(s, i, row->gate[side][g]), row->kind,
                                   row->rule_kind, "structure");
        return;
    }
    decide_conv_lstm(s, i);
}
