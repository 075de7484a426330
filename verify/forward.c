/* What forwards are made of: their parameters by name, attributes, and the modules they share. */
#include "verify/forward.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

/* ---- parameters ---- */

int ckpt_bound_init(struct ckpt_bound *b, const struct ckpt_adapted *t, enum ckpt_side side,
                    struct ckpt_reader *reader, struct ckpt_err *err) {
    const bool served = side == CKPT_SIDE_SERVED;
    memset(b, 0, sizeof(*b));
    b->param = served ? &b->from_mount.param : &b->source.param;
    return served ? ckpt_served_param_init(&b->from_mount, reader, t, err)
                  : ckpt_source_param_init(&b->source, t, side == CKPT_SIDE_CAST, err);
}

void ckpt_bound_fini(struct ckpt_bound *b) {
    ckpt_source_param_fini(&b->source);
    b->param = NULL;
}

const char *ckpt_name_join(char buf[CKPT_NAME_MAX], const char *module, const char *name) {
    const bool both = module[0] && name[0];
    snprintf(buf, CKPT_NAME_MAX, "%s%s%s", module, both ? "." : "", name);
    return buf;
}

int ckpt_scope_bind(const struct ckpt_scope *s, const char *name, bool optional,
                    struct ckpt_bound *b, struct ckpt_err *err) {
    const struct ckpt_layers *const layers = s->plan->layers;
    const struct ckpt_adapted *const t = s->side == CKPT_SIDE_SERVED
                                             ? ckpt_layers_served(layers, s->key, name)
                                             : ckpt_layers_source(layers, s->key, name);
    memset(b, 0, sizeof(*b));
    if (t)
        return ckpt_bound_init(b, t, s->side, s->reader, err);
    return optional ? 0
                    : ckpt_fail(err, -EINVAL, "parameter %.*s%s%s is missing",
                                CKPT_TEXT_ARGS(s->key), s->key.n ? "." : "", name);
}

int ckpt_scope_load(const struct ckpt_scope *s, const char *name, bool optional,
                    struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(bound) struct ckpt_bound b = {0};
    memset(out, 0, sizeof(*out));
    const int rc = ckpt_scope_bind(s, name, optional, &b, err);
    return rc < 0 || !b.param ? rc : ckpt_param_load(b.param, &s->exec->memory, out, err);
}

/* ---- attributes ---- */

static struct ckpt_call attributes(const struct ckpt_scope *s) {
    return (struct ckpt_call){.arg = s->plan->arg, .nargs = s->plan->nargs};
}

int64_t ckpt_scope_int(const struct ckpt_scope *s, const char *attribute, int64_t otherwise) {
    const struct ckpt_call c = attributes(s);
    return ckpt_call_int(&c, attribute, otherwise);
}

double ckpt_scope_float(const struct ckpt_scope *s, const char *attribute, double otherwise) {
    const struct ckpt_call c = attributes(s);
    return ckpt_call_float(&c, attribute, otherwise);
}

bool ckpt_scope_bool(const struct ckpt_scope *s, const char *attribute) {
    const struct ckpt_call c = attributes(s);
    return ckpt_call_bool(&c, attribute, false);
}

const char *ckpt_scope_string(const struct ckpt_scope *s, const char *attribute) {
    const struct ckpt_call c = attributes(s);
    const struct ckpt_arg *const a = ckpt_call_arg(&c, attribute);
    return a && a->kind == CKPT_ARG_STRING ? a->string : NULL;
}

/* ---- modules ---- */

static struct ckpt_arg array_arg(const char *name, const struct ckpt_array *a) {
    struct ckpt_arg arg = {.name = name, .kind = CKPT_ARG_ARRAY};
    arg.array = a;
    return arg;
}

/* Appends the parameter, unless it is absent. */
static void add_param(struct ckpt_arg *arg, uint32_t *n, const char *name,
                      const struct ckpt_bound *b) {
    if (!b->param)
        return;
    arg[*n] = (struct ckpt_arg){.name = name, .kind = CKPT_ARG_PARAM};
    arg[(*n)++].param = b->param;
}

/* An operation whose weight and bias are parameters of a module. */
struct module {
    const char *op, *name;
    const char *weight, *bias; /* what they are called */
    struct ckpt_arg more[2];
    uint32_t nmore;
};

static int run_module(const struct ckpt_scope *s, const struct module *m,
                      const struct ckpt_array *x, struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(bound) struct ckpt_bound weight = {0};
    CKPT_AUTO(bound) struct ckpt_bound bias = {0};
    char buf[CKPT_NAME_MAX];
    struct ckpt_arg arg[5] = {array_arg("input", x)};
    uint32_t n = 1;
    int rc = ckpt_scope_bind(s, ckpt_name_join(buf, m->name, m->weight), false, &weight, err);
    if (rc == 0)
        rc = ckpt_scope_bind(s, ckpt_name_join(buf, m->name, m->bias), true, &bias, err);
    if (rc < 0)
        return rc;
    weight.param->in_out = s->burn;
    add_param(arg, &n, "weight", &weight);
    add_param(arg, &n, "bias", &bias);
    for (uint32_t i = 0; i < m->nmore; i++)
        arg[n++] = m->more[i];
    rc = ckpt_op_run(ckpt_op_find(ckpt_text_of(m->op)), arg, n, s->exec, out, err);
    return rc < 0 && rc != -EINTR ? ckpt_fail_in(err, "%s", m->name) : rc;
}

int ckpt_scope_linear(const struct ckpt_scope *s, const char *module, const struct ckpt_array *x,
                      struct ckpt_array *out, struct ckpt_err *err) {
    const struct module m = {.op = "linear", .name = module, .weight = "weight", .bias = "bias"};
    return run_module(s, &m, x, out, err);
}

int ckpt_scope_layer_norm(const struct ckpt_scope *s, const char *module,
                          const struct ckpt_array *x, struct ckpt_array *out,
                          struct ckpt_err *err) {
    struct module m = {.op = "layer_norm",
                       .name = module,
                       .weight = s->burn ? "gamma" : "weight",
                       .bias = s->burn ? "beta" : "bias",
                       .more = {{.name = "eps", .kind = CKPT_ARG_FLOAT},
                                {.name = "normalized_shape", .kind = CKPT_ARG_INTS}},
                       .nmore = 2};
    m.more[0].f = ckpt_scope_float(s, "eps", 1e-5);
    m.more[1].ints.v = &x->shape[x->ndim - 1];
    m.more[1].ints.n = 1;
    return run_module(s, &m, x, out, err);
}

int ckpt_scope_activation(const struct ckpt_scope *s, const struct ckpt_array *x,
                          struct ckpt_array *out, struct ckpt_err *err) {
    const char *const name = ckpt_scope_string(s, "activation");
    struct ckpt_plan plan;
    if (!name || !ckpt_plan_activation(ckpt_text_of(name), NULL, &plan))
        return ckpt_fail(err, -EOPNOTSUPP, "its activation is unknown");
    const struct ckpt_inputs in = {.at = {*x}, .n = 1};
    return ckpt_plan_run(&plan, CKPT_SIDE_TORCH, s->reader, &in, s->exec, out, err);
}

int ckpt_forward_add(struct ckpt_array *x, const struct ckpt_array *y, struct ckpt_err *err) {
    char text[2][64];
    if (!ckpt_array_same_shape(x, y))
        return ckpt_fail(err, -EINVAL, "%s and %s cannot be added",
                         ckpt_array_shape_text(x, text[0], sizeof(text[0])),
                         ckpt_array_shape_text(y, text[1], sizeof(text[1])));
    const int64_t count = ckpt_array_count(x);
    for (int64_t i = 0; i < count; i++)
        ckpt_array_f32(x)[i] += ckpt_array_f32(y)[i];
    return 0;
}
