/* lstm_cell, gru_cell, rnn_tanh_cell and rnn_relu_cell: one step of one layer, without the
 * dimension of steps; computed as a sequence of one step. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

#define STATES_MAX 2

struct cell {
    struct ckpt_array x, state[STATES_MAX];
    struct ckpt_arg states[STATES_MAX], params[4], arg[6];
    uint32_t nstates;
};

static void cell_fini(struct cell *cell) {
    ckpt_array_fini(&cell->x);
    for (int i = 0; i < STATES_MAX; i++)
        ckpt_array_fini(&cell->state[i]);
}
CKPT_DEFINE_AUTO(cell, struct cell, cell_fini)

/* [B, n] as [1, B, n]. */
static int with_step(const struct ckpt_call *c, struct ckpt_array *a, const char *name,
                     struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = *a;
    memset(a, 0, sizeof(*a));
    if (given.ndim != 2)
        return ckpt_fail(err, -EINVAL, "%s has %u dimensions, expected 2", name, given.ndim);
    const int64_t shape[] = {1, given.shape[0], given.shape[1]};
    return ckpt_array_reshape(&given, shape, 3, &c->exec->memory, out, err);
}

static int take_states(const struct ckpt_call *c, struct cell *cell, struct ckpt_err *err) {
    struct ckpt_array given = {0};
    int rc = 0;
    cell->nstates = strcmp(c->op->name, "lstm_cell") == 0 ? 2 : 1;
    for (uint32_t i = 0; rc == 0 && i < cell->nstates; i++) {
        rc = cell->nstates > 1 ? ckpt_call_item(c, "hx", i, &given, err)
                               : ckpt_call_tensor(c, "hx", &given, err);
        if (rc == 0)
            rc = with_step(c, &given, "hx", &cell->state[i], err);
        cell->states[i] = (struct ckpt_arg){.name = "hx", .kind = CKPT_ARG_ARRAY};
        cell->states[i].array = &cell->state[i];
    }
    return rc;
}

/* The parameters by their names here; the biases only if there is one. */
static uint32_t take_params(const struct ckpt_call *c, struct cell *cell) {
    static const char *const names[] = {"w_ih", "w_hh", "b_ih", "b_hh"};
    uint32_t n = 0;
    for (int i = 0; i < 4; i++) {
        const struct ckpt_arg *const given = ckpt_call_arg(c, names[i]);
        cell->params[i] = given ? *given : (struct ckpt_arg){.kind = CKPT_ARG_NONE};
        n = given || i < 2 ? (i < 2 ? 2 : 4) : n;
    }
    return n;
}

static void bind(struct cell *cell, uint32_t nparams) {
    cell->arg[0] = (struct ckpt_arg){.name = "input", .kind = CKPT_ARG_ARRAY};
    cell->arg[0].array = &cell->x;
    cell->arg[1] = (struct ckpt_arg){.name = "params", .kind = CKPT_ARG_LIST};
    cell->arg[1].list.v = cell->params;
    cell->arg[1].list.n = nparams;
    cell->arg[2] = (struct ckpt_arg){.name = "has_biases", .kind = CKPT_ARG_BOOL};
    cell->arg[2].b = nparams == 4;
    cell->arg[3] = (struct ckpt_arg){.name = "hx", .kind = CKPT_ARG_LIST};
    cell->arg[3].list.v = cell->states;
    cell->arg[3].list.n = cell->nstates;
}

/* The operation whose one step this is: "lstm" of "lstm_cell". */
static const struct ckpt_op *whole(const struct ckpt_call *c) {
    const char *const name = c->op->name;
    return ckpt_op_find((struct ckpt_text){name, strlen(name) - strlen("_cell")});
}

/* Final states [1, B, h] are the results [B, h]. */
static int give_states(struct ckpt_call *c, struct ckpt_array *results, uint32_t n,
                       struct ckpt_err *err) {
    int rc = 0;
    for (uint32_t i = 0; i <= n; i++) {
        struct ckpt_array *const r = &results[i];
        if (rc == 0 && i > 0 && i <= c->nout)
            rc = ckpt_array_reshape(r, r->shape + 1, 2, &c->exec->memory, &c->out[i - 1], err);
        ckpt_array_fini(r);
    }
    return rc;
}

static int cell(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(cell) struct cell one = {0};
    struct ckpt_array x = {0}, results[1 + STATES_MAX] = {{0}};
    int rc = ckpt_call_tensor(c, "input", &x, err);
    if (rc == 0)
        rc = with_step(c, &x, "the input", &one.x, err);
    if (rc == 0)
        rc = take_states(c, &one, err);
    if (rc < 0)
        return rc;
    bind(&one, take_params(c, &one));
    rc = ckpt_op_run_all(whole(c), one.arg, 4, c->exec, results, 1 + one.nstates, err);
    return rc < 0 ? rc : give_states(c, results, one.nstates, err);
}

#define CELL(name, hx, results)                                                                    \
    {                                                                                              \
        name,                                                                                      \
            name "(Tensor input, " hx " hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, "         \
                 "Tensor? b_hh=None) -> " results,                                                 \
            cell                                                                                   \
    }

static const struct ckpt_op ops[] = {
    CELL("lstm_cell", "Tensor[]", "(Tensor, Tensor)"),
    CELL("gru_cell", "Tensor", "Tensor"),
    CELL("rnn_tanh_cell", "Tensor", "Tensor"),
    CELL("rnn_relu_cell", "Tensor", "Tensor"),
};

const struct ckpt_op_family ckpt_family_rnn_cell = CKPT_OP_FAMILY(ops);
