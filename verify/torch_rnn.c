/* LSTM, GRU and RNN as PyTorch computes them: one operation, given all parameters in its order. */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "verify/rnn.h"

struct params {
    struct ckpt_bound *at;
    struct ckpt_arg *arg;
    size_t n;
};

static void params_fini(struct params *p) {
    for (size_t i = 0; i < p->n; i++)
        ckpt_bound_fini(&p->at[i]);
    free(p->at);
    free(p->arg);
}
CKPT_DEFINE_AUTO(params, struct params, params_fini)

static int add(const struct ckpt_scope *s, const char *name, struct params *p,
               struct ckpt_err *err) {
    struct ckpt_bound *const b = &p->at[p->n];
    const int rc = ckpt_scope_bind(s, name, false, b, err);
    p->arg[p->n].kind = CKPT_ARG_PARAM;
    p->arg[p->n].param = b->param;
    p->n++;
    return rc;
}

static int bind_all(const struct ckpt_scope *s, int64_t layers, int directions, int each,
                    struct params *p, struct ckpt_err *err) {
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    char buf[CKPT_NAME_MAX];
    int rc = 0;
    for (int64_t layer = 0; rc == 0 && layer < layers; layer++)
        for (int d = 0; rc == 0 && d < directions; d++)
            for (int i = 0; rc == 0 && i < each; i++)
                rc = add(s, ckpt_rnn_torch_name(buf, names[i], layer, d), p, err);
    return rc;
}

int ckpt_torch_rnn(const struct ckpt_scope *s, const struct ckpt_inputs *in, struct ckpt_array *out,
                   struct ckpt_err *err) {
    const int64_t layers = ckpt_scope_int(s, "num_layers", 1);
    const bool both = ckpt_scope_bool(s, "bidirectional"),
               biases = ckpt_scope_bool(s, "has_biases");
    const int64_t n = layers * (both ? 2 : 1) * (biases ? 4 : 2); /* all of them are there */
    CKPT_AUTO(params) struct params p = {0};
    p.at = calloc((size_t)n, sizeof(*p.at));
    p.arg = calloc((size_t)n, sizeof(*p.arg));
    if (!p.at || !p.arg)
        return ckpt_fail_memory(err, "running a recurrent layer");
    const int rc = bind_all(s, layers, both ? 2 : 1, biases ? 4 : 2, &p, err);
    if (rc < 0)
        return rc;
    struct ckpt_arg arg[6] = {
        {.name = "input", .kind = CKPT_ARG_ARRAY},
        {.name = "params", .kind = CKPT_ARG_LIST},
        {.name = "num_layers", .kind = CKPT_ARG_INT},
        {.name = "has_biases", .kind = CKPT_ARG_BOOL},
        {.name = "bidirectional", .kind = CKPT_ARG_BOOL},
        {.name = "batch_first", .kind = CKPT_ARG_BOOL},
    };
    arg[0].array = &in->at[0];
    arg[1].list.v = p.arg;
    arg[1].list.n = (uint32_t)n;
    arg[2].i = layers;
    arg[3].b = biases;
    arg[4].b = both;
    arg[5].b = true;
    const struct ckpt_op *const op = ckpt_op_find(ckpt_text_of(ckpt_scope_string(s, "operation")));
    return ckpt_op_run(op, arg, 6, s->exec, out, err);
}
