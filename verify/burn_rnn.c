/*
 * Lstm, Gru and Rnn as burn computes them: each gate is two Linears, of the input and of the hidden
 * state. Layers of several directions are BiLstm and kin, several layers a Vec of them.
 *
 *     gate    x -> input_transform (for all steps at once)   [B, T, h]
 *             h -> hidden_transform (step by step)           [B, h]
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/rnn.h"
#include "verify/blas.h"

#define GATES_MAX 4

struct gate {
    struct ckpt_array input;                /* of all steps, transformed */
    struct ckpt_array weight, bias, hidden; /* of the hidden transform; what it gives in a step */
};

struct cell {
    const struct ckpt_scope *scope;
    const char *kind;
    const struct ckpt_rnn_place *at;
    struct gate gate[GATES_MAX]; /* in the order of ckpt_rnn_gates */
    int ngates;
    int64_t batch, steps, width; /* width: of the hidden state */
    struct ckpt_array h, c;      /* hidden and cell state [B, h] */
};

static void cell_fini(struct cell *c) {
    for (int i = 0; i < GATES_MAX; i++) {
        ckpt_array_fini(&c->gate[i].input);
        ckpt_array_fini(&c->gate[i].weight);
        ckpt_array_fini(&c->gate[i].bias);
        ckpt_array_fini(&c->gate[i].hidden);
    }
    ckpt_array_fini(&c->h);
    ckpt_array_fini(&c->c);
}
CKPT_DEFINE_AUTO(cell, struct cell, cell_fini)

/* ---- gates ---- */

static int check_gate(struct cell *c, const struct gate *g, const char *name,
                      struct ckpt_err *err) {
    const int64_t width = g->input.shape[2];
    if (c->ngates == 0)
        c->width = width;
    const bool fits = width == c->width && g->weight.ndim == 2 && g->weight.shape[0] == width &&
                      g->weight.shape[1] == width &&
                      (!g->bias.store || ckpt_array_count(&g->bias) == width);
    return fits ? 0
                : ckpt_fail(err, -EINVAL, "%s: its transforms do not fit a hidden state of %lld",
                            name, (long long)c->width);
}

static int open_gate(struct cell *c, const char *name, const struct ckpt_array *x,
                     struct ckpt_err *err) {
    const struct ckpt_scope *const s = c->scope;
    struct gate *const g = &c->gate[c->ngates];
    char buf[CKPT_NAME_MAX];
    ckpt_rnn_burn_name(buf, c->at, name, "input_transform", "");
    buf[strlen(buf) - 1] = '\0'; /* the module, without the dot */
    int rc = ckpt_scope_linear(s, buf, x, &g->input, err);
    if (rc == 0)
        rc = ckpt_scope_load(s, ckpt_rnn_burn_name(buf, c->at, name, "hidden_transform", "weight"),
                             false, &g->weight, err);
    if (rc == 0)
        rc = ckpt_scope_load(s, ckpt_rnn_burn_name(buf, c->at, name, "hidden_transform", "bias"),
                             true, &g->bias, err);
    if (rc == 0)
        rc = check_gate(c, g, name, err);
    if (rc == 0)
        rc = ckpt_array_new(&g->hidden, &s->exec->memory, CKPT_DT_F32,
                            (int64_t[]){c->batch, c->width}, 2, err);
    c->ngates++;
    return rc;
}

static int cell_open(struct cell *c, const struct ckpt_array *x, struct ckpt_err *err) {
    struct ckpt_memory *const memory = &c->scope->exec->memory;
    int rc = 0;
    c->batch = x->shape[0];
    c->steps = x->shape[1];
    for (const char *const *name = ckpt_rnn_gates(c->kind); rc == 0 && *name; name++)
        rc = open_gate(c, *name, x, err);
    const int64_t shape[2] = {c->batch, c->width};
    if (rc == 0 && !ckpt_blas_fits(c->batch, c->width, c->steps))
        return ckpt_fail(err, -EOVERFLOW, "a dimension beyond 2^31");
    if (rc == 0)
        rc = ckpt_array_new(&c->h, memory, CKPT_DT_F32, shape, 2, err);
    if (rc == 0)
        rc = ckpt_array_new(&c->c, memory, CKPT_DT_F32, shape, 2, err);
    return rc;
}

static void transform_hidden(const struct cell *c, struct gate *g) {
    const int batch = (int)c->batch, width = (int)c->width;
    float *const y = ckpt_array_f32(&g->hidden);
    if (batch == 0 || width == 0)
        return;
    ckpt_blas_sgemm(CKPT_BLAS_ROWS, CKPT_BLAS_ROWS, batch, width, width, 1, ckpt_array_f32(&c->h),
                    width, ckpt_array_f32(&g->weight), width, 0, y, width);
    for (int64_t i = 0; g->bias.store && i < c->batch * c->width; i++)
        y[i] += ckpt_array_f32(&g->bias)[i % c->width];
}

/* ---- one step ---- */

/* What gate g has at unit u of sequence b: from the input of step t, and from the hidden state. */
static double from_input(const struct cell *c, int g, int64_t b, int64_t t, int64_t u) {
    return (double)ckpt_array_f32(&c->gate[g].input)[(b * c->steps + t) * c->width + u];
}

static double from_hidden(const struct cell *c, int g, int64_t b, int64_t u) {
    return (double)ckpt_array_f32(&c->gate[g].hidden)[b * c->width + u];
}

static double product(const struct cell *c, int g, int64_t b, int64_t t, int64_t u) {
    return from_input(c, g, b, t, u) + from_hidden(c, g, b, u);
}

static double logistic(double x) {
    return 1 / (1 + exp(-x));
}

static double lstm_unit(struct cell *c, int64_t b, int64_t t, int64_t u) {
    enum { INPUT, FORGET, CELL, OUTPUT };
    float *const state = ckpt_array_f32(&c->c) + b * c->width + u;
    const double kept = logistic(product(c, FORGET, b, t, u)) * (double)*state;
    const double candidate = tanh(product(c, CELL, b, t, u));
    *state = (float)(kept + logistic(product(c, INPUT, b, t, u)) * candidate);
    return logistic(product(c, OUTPUT, b, t, u)) * tanh((double)*state);
}

/* reset_after, burn's default: the reset acts on what the hidden transform gives. */
static double gru_unit(struct cell *c, int64_t b, int64_t t, int64_t u) {
    enum { RESET, UPDATE, NEW };
    const double reset = logistic(product(c, RESET, b, t, u));
    const double update = logistic(product(c, UPDATE, b, t, u));
    const double candidate = tanh(from_input(c, NEW, b, t, u) + reset * from_hidden(c, NEW, b, u));
    const double h = (double)ckpt_array_f32(&c->h)[b * c->width + u];
    return candidate * (1 - update) + update * h;
}

static double rnn_unit(struct cell *c, int64_t b, int64_t t, int64_t u) {
    const double x = product(c, 0, b, t, u);
    const bool relu = strcmp(ckpt_scope_string(c->scope, "operation"), "rnn_relu") == 0;
    return !relu ? tanh(x) : x > 0 || isnan(x) ? x : 0;
}

/* The hidden state of step t, also to its columns of out [B, T, directions * h]. */
static void step(struct cell *c, int64_t t, struct ckpt_array *out) {
    double (*const unit)(struct cell *, int64_t, int64_t, int64_t) =
        strcmp(c->kind, "lstm") == 0  ? lstm_unit
        : strcmp(c->kind, "gru") == 0 ? gru_unit
                                      : rnn_unit;
    for (int g = 0; g < c->ngates; g++)
        transform_hidden(c, &c->gate[g]);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t u = 0; u < c->width; u++) {
            const float h = (float)unit(c, b, t, u);
            const int64_t column = c->at->direction * c->width + u;
            ckpt_array_f32(&c->h)[b * c->width + u] = h;
            ckpt_array_f32(out)[(b * c->steps + t) * out->shape[2] + column] = h;
        }
}

static int run_direction(const struct ckpt_scope *s, const struct ckpt_rnn_place *at,
                         const struct ckpt_array *x, struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(cell) struct cell c = {.scope = s, .kind = s->plan->layer->kind, .at = at};
    int rc = cell_open(&c, x, err);
    if (rc == 0 && at->direction == 0)
        rc = ckpt_array_new(out, &s->exec->memory, CKPT_DT_F32,
                            (int64_t[]){c.batch, c.steps, c.width * (at->both ? 2 : 1)}, 3, err);
    if (rc == 0 && at->direction == 1 && out->shape[2] != 2 * c.width)
        return ckpt_fail(err, -EINVAL, "forward and reverse differ in their hidden state");
    for (int64_t i = 0; rc == 0 && i < c.steps; i++) {
        step(&c, at->direction ? c.steps - 1 - i : i, out);
        rc = ckpt_exec_check(s->exec, err);
    }
    return rc;
}

int ckpt_burn_rnn(const struct ckpt_scope *s, const struct ckpt_inputs *in, struct ckpt_array *out,
                  struct ckpt_err *err) {
    struct ckpt_rnn_place at = {.layers = ckpt_scope_int(s, "num_layers", 1),
                                .both = ckpt_scope_bool(s, "bidirectional")};
    CKPT_AUTO(array) struct ckpt_array x = ckpt_array_ref(&in->at[0]);
    int rc = 0;
    for (at.layer = 0; rc == 0 && at.layer < at.layers; at.layer++) {
        CKPT_AUTO(array) struct ckpt_array y = {0};
        for (at.direction = 0; rc == 0 && at.direction < (at.both ? 2 : 1); at.direction++)
            rc = run_direction(s, &at, &x, &y, err);
        ckpt_array_fini(&x);
        x = ckpt_array_ref(&y);
    }
    if (rc == 0)
        *out = ckpt_array_ref(&x);
    return rc;
}
