/*
 * Plans of LSTM, GRU and RNN: attributes, and the names of their parameters.
 *
 *     PyTorch  weight_ih_l1_reverse
 *     burn     1.reverse.input_gate.input_transform.weight       one for each gate
 *              |  |-- in both directions
 *              |-- in more than one layer
 */
#include <stdio.h>
#include <string.h>

#include "verify/forward.h"
#include "verify/rnn.h"

const char *ckpt_rnn_torch_name(char buf[CKPT_NAME_MAX], const char *what, int64_t layer,
                                bool reverse) {
    snprintf(buf, CKPT_NAME_MAX, "%s_l%lld%s", what, (long long)layer, reverse ? "_reverse" : "");
    return buf;
}

const char *const *ckpt_rnn_gates(const char *kind) {
    static const char *const lstm[] = {"input_gate", "forget_gate", "cell_gate", "output_gate",
                                       NULL};
    static const char *const gru[] = {"reset_gate", "update_gate", "new_gate", NULL};
    static const char *const rnn[] = {"gate", NULL};
    return strcmp(kind, "lstm") == 0 ? lstm : strcmp(kind, "gru") == 0 ? gru : rnn;
}

const char *ckpt_rnn_burn_name(char buf[CKPT_NAME_MAX], const struct ckpt_rnn_place *at,
                               const char *gate, const char *transform, const char *leaf) {
    char layer[32] = "";
    if (at->layers > 1)
        snprintf(layer, sizeof(layer), "%lld.", (long long)at->layer);
    snprintf(buf, CKPT_NAME_MAX, "%s%s%s.%s.%s", layer,
             !at->both       ? ""
             : at->direction ? "reverse."
                             : "forward.",
             gate, transform, leaf);
    return buf;
}

static bool torch_names(const struct ckpt_rnn_place *at, bool biases, ckpt_name_fn *see, void *to) {
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    char buf[CKPT_NAME_MAX];
    for (int i = 0; i < (biases ? 4 : 2); i++)
        if (see(to, ckpt_rnn_torch_name(buf, names[i], at->layer, at->direction)))
            return true;
    return false;
}

static bool burn_names(const char *kind, const struct ckpt_rnn_place *at, bool biases,
                       ckpt_name_fn *see, void *to) {
    static const char *const transforms[] = {"input_transform", "hidden_transform"};
    char buf[CKPT_NAME_MAX];
    for (const char *const *gate = ckpt_rnn_gates(kind); *gate; gate++)
        for (int i = 0; i < 2; i++)
            if (see(to, ckpt_rnn_burn_name(buf, at, *gate, transforms[i], "weight")) ||
                (biases && see(to, ckpt_rnn_burn_name(buf, at, *gate, transforms[i], "bias"))))
                return true;
    return false;
}

static bool names(const struct ckpt_plan *p, bool burn, ckpt_name_fn *see, void *to) {
    const struct ckpt_scope s = {.plan = p};
    const bool biases = ckpt_scope_bool(&s, "has_biases");
    struct ckpt_rnn_place at = {.layers = ckpt_scope_int(&s, "num_layers", 1),
                                .both = ckpt_scope_bool(&s, "bidirectional")};
    for (at.layer = 0; at.layer < at.layers; at.layer++)
        for (at.direction = 0; at.direction < (at.both ? 2 : 1); at.direction++)
            if (burn ? burn_names(p->layer->kind, &at, biases, see, to)
                     : torch_names(&at, biases, see, to))
                return true;
    return false;
}

const struct ckpt_forward ckpt_forward_rnn = {ckpt_torch_rnn, ckpt_burn_rnn, names};

/* What the attribute says, else what the tensors that are there say. */
static bool said_or_there(const struct ckpt_layer *l, const struct ckpt_plan *p,
                          const char *attribute, const char *name) {
    const struct ckpt_value *const v = ckpt_plan_attribute(l, attribute);
    return v && v->kind == CKPT_VALUE_BOOL ? v->b : ckpt_plan_has(p, "", name);
}

static int64_t count_layers(const struct ckpt_layer *l, const struct ckpt_plan *p) {
    char buf[CKPT_NAME_MAX];
    int64_t n = 0;
    if (ckpt_plan_read_ints(ckpt_plan_attribute(l, "num_layers"), 1, &n) && n > 0)
        return n;
    n = 1;
    while (ckpt_plan_has(p, "", ckpt_rnn_torch_name(buf, "weight_hh", n, false)))
        n++;
    return n;
}

/* The operation: an RNN's also by its nonlinearity. */
static const char *operation(const struct ckpt_layer *l, struct ckpt_plan *p) {
    if (strcmp(l->kind, "rnn") != 0)
        return l->kind;
    const struct ckpt_value *const v = ckpt_plan_attribute(l, "nonlinearity");
    const struct ckpt_value *const mode = ckpt_plan_attribute(l, "mode"); /* before torch 2.3 */
    if (v && v->kind == CKPT_VALUE_STR)
        return ckpt_text_is(v->text, "relu") ? "rnn_relu" : "rnn_tanh";
    if (mode && mode->kind == CKPT_VALUE_STR)
        return ckpt_text_is(mode->text, "RNN_RELU") ? "rnn_relu" : "rnn_tanh";
    ckpt_plan_assume(p, "nonlinearity");
    return "rnn_tanh";
}

void ckpt_plan_rnn(const struct ckpt_layer *l, struct ckpt_plan *p) {
    if (ckpt_plan_has(p, "", "weight_hr_l0"))
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "burn has no LSTM with proj_size");
    ckpt_plan_add_string(p, "operation", operation(l, p));
    ckpt_plan_add_int(p, "num_layers", count_layers(l, p));
    ckpt_plan_add_bool(p, "bidirectional",
                       said_or_there(l, p, "bidirectional", "weight_hh_l0_reverse"));
    ckpt_plan_add_bool(p, "has_biases", said_or_there(l, p, "bias", "bias_hh_l0"));
    ckpt_plan_add_bool(p, "batch_first", ckpt_plan_bool(l, p, "batch_first", false));
    ckpt_plan_probe_sequence(p, 0, 5, ckpt_plan_columns(p, "weight_ih_l0", 1));
    ckpt_plan_forward(p, &ckpt_forward_rnn);
}
