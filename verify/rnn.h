#ifndef CKPT_VERIFY_RNN_H
#define CKPT_VERIFY_RNN_H
/* How PyTorch and burn call the parameters of LSTM, GRU and RNN. */
#include "verify/forward.h"

/* One layer and direction of many. */
struct ckpt_rnn_place {
    int64_t layer, layers;
    bool both; /* directions */
    int direction;
};

/* "weight_ih_l0_reverse" */
const char *ckpt_rnn_torch_name(char buf[CKPT_NAME_MAX], const char *what, int64_t layer,
                                bool reverse);
/* burn's gates of "lstm", "gru" or "rnn", in PyTorch's order; NULL-terminated. */
const char *const *ckpt_rnn_gates(const char *kind);
/* "1.reverse.input_gate.hidden_transform.weight" */
const char *ckpt_rnn_burn_name(char buf[CKPT_NAME_MAX], const struct ckpt_rnn_place *at,
                               const char *gate, const char *transform, const char *leaf);

#endif
