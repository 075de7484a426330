/*
 * Plans of a Transformer's layers, which compute with their children's tensors, and of a stack of
 * them, which is its layers one after the other and the norm behind them, if there is one.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/forward.h"

/* ---- one layer ---- */

struct name_pair {
    const char *torch, *burn;
};

static bool is_decoder(const struct ckpt_layer *l) {
    return strncmp(l->kind, "decoder", strlen("decoder")) == 0;
}

/* Weight and bias of Linears and norms, the bias if the source has one. */
static bool module_names(const struct ckpt_plan *p, const struct name_pair *pair, size_t n,
                         bool burn, const char *const leaves[2], ckpt_name_fn *see, void *to) {
    char buf[CKPT_NAME_MAX];
    for (size_t i = 0; i < n; i++) {
        const char *const module = burn ? pair[i].burn : pair[i].torch;
        if (see(to, ckpt_name_join(buf, module, leaves[0])) ||
            (ckpt_plan_has(p, pair[i].torch, "bias") &&
             see(to, ckpt_name_join(buf, module, leaves[1]))))
            return true;
    }
    return false;
}

static bool layer_names(const struct ckpt_plan *p, bool burn, ckpt_name_fn *see, void *to) {
    static const char *const linear[2] = {"weight", "bias"}, *const affine[2] = {"gamma", "beta"};
    static const struct name_pair linears[] = {{"linear1", "pwff.linear_inner"},
                                               {"linear2", "pwff.linear_outer"}};
    /* Which is which depends on norm_first; all of them must be there. */
    static const struct name_pair norms[] = {
        {"norm1", "norm_1"}, {"norm2", "norm_2"}, {"norm3", "norm_3"}};
    const bool decoder = is_decoder(p->layer);
    return ckpt_attention_names(p, "self_attn", decoder ? "self_attn" : "mha", burn, see, to) ||
           (decoder && ckpt_attention_names(p, "multihead_attn", "cross_attn", burn, see, to)) ||
           module_names(p, linears, 2, burn, linear, see, to) ||
           module_names(p, norms, decoder ? 3 : 2, burn, burn ? affine : linear, see, to);
}

const struct ckpt_forward ckpt_forward_encoder_layer = {ckpt_torch_encoder_layer,
                                                        ckpt_burn_encoder_layer, layer_names},
                          ckpt_forward_decoder_layer = {ckpt_torch_decoder_layer,
                                                        ckpt_burn_decoder_layer, layer_names};

/* Where the norms stand: the kind's word. The attribute of a class that nobody knows named no norm
 * of burn's; only between PyTorch's names it is enough. */
static void add_norm_first(const struct ckpt_layer *l, struct ckpt_plan *p) {
    const struct ckpt_value *const v = ckpt_plan_attribute(l, "norm_first");
    const struct ckpt_text kind = ckpt_text_of(l->kind);
    const bool said = ckpt_text_ends(kind, ":pre") || ckpt_text_ends(kind, ":post");
    const bool enough = p->layers->model->layout != CKPT_LAYOUT_BURN && v;
    if (!said && !(enough && v->kind == CKPT_VALUE_BOOL))
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP,
                         "norm_first is unknown, so its norms have no names of burn's; -o kind= "
                         "can say %s:pre or %s:post",
                         l->kind, l->kind);
    ckpt_plan_add_bool(p, "norm_first", said ? ckpt_text_ends(kind, ":pre") : v && v->b);
}

/* Its last name, if that is an operation's: "relu" of torch.nn.functional.relu. */
static const char *known_activation(struct ckpt_text function) {
    for (size_t i = 0; ckpt_activation_names[i]; i++) {
        const size_t n = strlen(ckpt_activation_names[i]);
        if (ckpt_text_ends(function, ckpt_activation_names[i]) &&
            (function.n == n || function.s[function.n - n - 1] == '.'))
            return ckpt_activation_names[i];
    }
    return NULL;
}

/* An activation that is a module itself, registered below the layer's. */
static const char *activation_module(const struct ckpt_layer *l, const struct ckpt_plan *p) {
    const struct ckpt_checkpoint *const c = p->layers->model->checkpoint;
    struct ckpt_plan plan;
    for (size_t i = 0; i < c->nmodules; i++) {
        const struct ckpt_module *const m = &c->modules[i];
        if (m->parent < 0 || &c->modules[m->parent] != l->record ||
            !ckpt_text_is(m->name, "activation") || !ckpt_plan_activation(m->name, m, &plan))
            continue;
        const bool plain = plan.nargs == 0 || (plan.arg[0].kind == CKPT_ARG_STRING &&
                                               strcmp(plan.arg[0].string, "none") == 0);
        return plain ? plan.op->name : strcmp(plan.op->name, "gelu") == 0 ? "gelu_tanh" : NULL;
    }
    return NULL;
}

static void add_activation(const struct ckpt_layer *l, struct ckpt_plan *p) {
    const struct ckpt_value *const v = ckpt_plan_attribute(l, "activation");
    const char *name = "relu";
    if (v && (v->kind == CKPT_VALUE_GLOBAL || v->kind == CKPT_VALUE_STR))
        name = known_activation(v->text);
    else if (l->record)
        name = activation_module(l, p);
    else
        ckpt_plan_assume(p, "activation");
    if (name)
        ckpt_plan_add_string(p, "activation", name);
    else
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "its activation has no probe");
}

static int64_t width_of(const struct ckpt_plan *p) {
    const struct ckpt_adapted *const t =
        ckpt_layers_source(p->layers, p->layer->path, "linear2.weight");
    return t && t->source->ndim > 0 ? t->source->shape[0] : 1;
}

void ckpt_plan_transformer_layer(const struct ckpt_layer *l, struct ckpt_plan *p) {
    static const struct ckpt_layer nothing = {.kind = ""};
    const struct ckpt_layer *const attention = ckpt_layer_child(p->layers, l, "self_attn");
    const struct ckpt_layer *const norm = ckpt_layer_child(p->layers, l, "norm1");
    const int64_t width = width_of(p);
    add_norm_first(l, p);
    add_activation(l, p);
    ckpt_plan_attention_attributes(attention ? attention : &nothing, p);
    ckpt_plan_add_float(p, "eps", ckpt_plan_eps(norm ? norm : &nothing, p, 1e-5));
    ckpt_plan_probe_sequence(p, 0, 5, width);
    if (is_decoder(l))
        ckpt_plan_probe_sequence(p, 1, 7, width);
    ckpt_plan_forward(p, is_decoder(l) ? &ckpt_forward_decoder_layer : &ckpt_forward_encoder_layer);
}

/* ---- a stack ---- */

static const struct ckpt_layer *stacked(const struct ckpt_plan *p, int i) {
    char name[32];
    snprintf(name, sizeof(name), "layers.%d", i);
    return ckpt_layer_child(p->layers, p->layer, name);
}

/* One layer or the final norm, on either side; x becomes its result. */
static int run_child(const struct ckpt_scope *s, const struct ckpt_layer *child,
                     const struct ckpt_inputs *in, struct ckpt_array *x, struct ckpt_err *err) {
    struct ckpt_plan plan;
    ckpt_plan_layer(s->plan->layers, child, &plan);
    if (plan.status != CKPT_STATUS_PASS)
        return ckpt_fail(err, plan.status == CKPT_STATUS_SKIP ? -EOPNOTSUPP : -EINVAL, "%.*s: %s",
                         CKPT_TEXT_ARGS(child->path), plan.reason.text);
    struct ckpt_inputs of_child = {.at = {*x, in->at[1]}, .n = in->n};
    struct ckpt_array y;
    for (uint32_t i = 0; i < plan.nargs; i++) /* the stack has turned its inputs already */
        if (strcmp(plan.arg[i].name, "batch_first") == 0)
            plan.arg[i].b = true;
    const int rc = ckpt_plan_run(&plan, s->side, s->reader, &of_child, s->exec, &y, err);
    if (rc < 0)
        return rc == -EINTR ? rc : ckpt_fail_in(err, "%.*s", CKPT_TEXT_ARGS(child->path));
    ckpt_array_fini(x);
    *x = y;
    return 0;
}

static int run_stack(const struct ckpt_scope *s, const struct ckpt_inputs *in,
                     struct ckpt_array *out, struct ckpt_err *err) {
    const struct ckpt_layer *child = NULL;
    const struct ckpt_layer *const norm = ckpt_layer_child(s->plan->layers, s->plan->layer, "norm");
    CKPT_AUTO(array) struct ckpt_array x = ckpt_array_ref(&in->at[0]);
    int rc = 0;
    for (int i = 0; rc == 0 && (child = stacked(s->plan, i)); i++)
        rc = run_child(s, child, in, &x, err);
    if (rc == 0 && norm)
        rc = run_child(s, norm, in, &x, err);
    if (rc == 0)
        *out = ckpt_array_ref(&x);
    return rc;
}

const struct ckpt_forward ckpt_forward_stack = {run_stack, run_stack, NULL};

void ckpt_plan_stack(const struct ckpt_layer *l, struct ckpt_plan *p) {
    const struct ckpt_layer *const first = stacked(p, 0);
    struct ckpt_plan of_first;
    (void)l;
    p->forward = &ckpt_forward_stack;
    if (!first) {
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "it has no layers");
        return;
    }
    ckpt_plan_layer(p->layers, first, &of_first);
    if (of_first.status != CKPT_STATUS_PASS)
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "its layers cannot run");
    for (uint32_t i = 0; i < of_first.nassumed; i++)
        ckpt_plan_assume(p, of_first.assumed[i]);
    for (uint32_t i = 0; i < of_first.nargs; i++)
        if (strcmp(of_first.arg[i].name, "batch_first") == 0)
            ckpt_plan_add_bool(p, "batch_first", of_first.arg[i].b);
    memcpy(p->probe, of_first.probe, sizeof(p->probe));
    p->nprobes = of_first.nprobes;
}
