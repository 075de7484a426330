/* Plans: the parts that all layers share, and the layers that need little more. */
#include "verify/plan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/naive.h"
#include "verify/source.h"

void ckpt_plan_refuse(struct ckpt_plan *p, enum ckpt_status status, const char *fmt, ...) {
    if (p->status != CKPT_STATUS_PASS)
        return; /* the first reason is the one that matters */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->reason.text, sizeof(p->reason.text), fmt, ap);
    va_end(ap);
    p->status = status;
}

void ckpt_plan_assume(struct ckpt_plan *p, const char *attribute) {
    if (p->nassumed < CKPT_PLAN_ASSUMED)
        p->assumed[p->nassumed++] = attribute;
}

/* ---- attributes ---- */

const struct ckpt_value *ckpt_plan_attribute(const struct ckpt_layer *l, const char *name) {
    if (!l->record || !l->record->attributes)
        return NULL;
    const struct ckpt_value *const v = ckpt_value_get(l->record->attributes, name);
    return v && v->kind != CKPT_VALUE_NONE ? v : NULL;
}

bool ckpt_plan_read_ints(const struct ckpt_value *v, uint32_t n, int64_t *out) {
    if (!v || n > CKPT_ARRAY_NDIM_MAX)
        return false;
    const bool list = v->kind == CKPT_VALUE_TUPLE || v->kind == CKPT_VALUE_LIST;
    if (list ? v->seq.n != n : v->kind != CKPT_VALUE_INT)
        return false;
    for (uint32_t i = 0; list && i < n; i++)
        if (v->seq.item[i]->kind != CKPT_VALUE_INT)
            return false;
    for (uint32_t i = 0; i < n; i++)
        out[i] = list ? v->seq.item[i]->i : v->i;
    return true;
}

bool ckpt_plan_bool(const struct ckpt_layer *l, struct ckpt_plan *p, const char *attribute,
                    bool otherwise) {
    const struct ckpt_value *const v = ckpt_plan_attribute(l, attribute);
    if (v && v->kind == CKPT_VALUE_BOOL)
        return v->b;
    ckpt_plan_assume(p, attribute);
    return otherwise;
}

static struct ckpt_arg *add_arg(struct ckpt_plan *p, const char *name, enum ckpt_arg_kind kind) {
    struct ckpt_arg *const a = &p->arg[p->nargs++];
    a->name = name;
    a->kind = kind;
    return a;
}

void ckpt_plan_add_int(struct ckpt_plan *p, const char *arg, int64_t v) {
    add_arg(p, arg, CKPT_ARG_INT)->i = v;
}

void ckpt_plan_add_float(struct ckpt_plan *p, const char *arg, double v) {
    add_arg(p, arg, CKPT_ARG_FLOAT)->f = v;
}

void ckpt_plan_add_bool(struct ckpt_plan *p, const char *arg, bool v) {
    add_arg(p, arg, CKPT_ARG_BOOL)->b = v;
}

void ckpt_plan_add_string(struct ckpt_plan *p, const char *arg, const char *v) {
    add_arg(p, arg, CKPT_ARG_STRING)->string = v;
}

void ckpt_plan_add_ints(struct ckpt_plan *p, const char *arg, const int64_t *v, uint32_t n) {
    int64_t *const kept = p->ints[p->nargs];
    struct ckpt_arg *const a = add_arg(p, arg, CKPT_ARG_INTS);
    memcpy(kept, v, n * sizeof(*v));
    a->ints.v = kept;
    a->ints.n = n;
}

/* ---- tensors ---- */

/* The tensor's shape once the dialect has brought it to PyTorch's layout. */
static void torch_shape(struct ckpt_plan *p, struct ckpt_plan_param *param) {
    const struct ckpt_adapted *const t = param->tensor;
    struct ckpt_source_param source;
    struct ckpt_err err = {0};
    const int rc = ckpt_source_param_init(&source, t, false, &err);
    if (rc < 0)
        ckpt_plan_refuse(p, rc == -EOPNOTSUPP ? CKPT_STATUS_SKIP : CKPT_STATUS_TEST_FAIL, "%s",
                         err.text);
    else {
        param->ndim = source.param.ndim;
        memcpy(param->shape, source.param.shape, sizeof(param->shape));
    }
    ckpt_source_param_fini(&source);
}

/* A rule may show a piece of a parameter, or give it another rank: what is served then belongs to
 * some other module, and this one's formula says nothing about it. */
static bool is_reshaped(const struct ckpt_plan_param *param) {
    const struct ckpt_adapted *const t = param->served;
    int64_t source = 1, served = 1;
    for (uint32_t d = 0; d < param->ndim; d++)
        source *= param->shape[d];
    for (uint32_t d = 0; d < t->ndim; d++)
        served *= t->shape[d];
    return t->ndim != param->ndim || source != served;
}

/* What burn calls a parameter that PyTorch calls otherwise. */
static const char *burn_name(const char *kind, const char *name) {
    static const struct {
        const char *kind, *torch, *burn;
    } names[] = {
        {"norm", "weight", "gamma"},       {"norm", "bias", "beta"},
        {"batch_norm", "weight", "gamma"}, {"batch_norm", "bias", "beta"},
        {"prelu", "weight", "alpha"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i].kind, kind) == 0 && strcmp(names[i].torch, name) == 0)
            return names[i].burn;
    return name;
}

/*
 * What burn finds under its name for a parameter, wherever it comes from: beside t, where t shows.
 * A name that is neither burn's nor PyTorch's is the user's own choice, and t then is what counts;
 * but where PyTorch's has stayed, burn misses its own.
 */
static const struct ckpt_adapted *find_served(const struct ckpt_layer *l, struct ckpt_plan *p,
                                              const struct ckpt_adapted *t, const char *name) {
    const struct ckpt_model *const m = p->layers->model;
    const char *const wanted = m->layout == CKPT_LAYOUT_BURN ? burn_name(l->kind, name) : name;
    const char *const dot = memrchr(t->key.s, '.', t->key.n);
    const struct ckpt_text prefix = {t->key.s, dot ? (size_t)(dot - t->key.s) : 0};
    const struct ckpt_text last = {dot ? dot + 1 : t->key.s, t->key.n - prefix.n - (dot ? 1 : 0)};
    const struct ckpt_adapted *const found = ckpt_layers_served(p->layers, prefix, wanted);
    if (found)
        return found;
    if (strcmp(wanted, name) != 0 && ckpt_text_is(last, name))
        ckpt_plan_refuse(p, m->modules_store ? CKPT_STATUS_SKIP : CKPT_STATUS_TEST_FAIL,
                         m->modules_store ? "modules=store leaves %.*s as it is: burn wants %s"
                                          : "burn's name is missing: %.*s should be %s",
                         CKPT_TEXT_ARGS(t->key), wanted);
    return t;
}

/* Binds the layer's tensor of that name to the argument of that name. NULL: it has none. */
static struct ckpt_plan_param *bind_tensor(const struct ckpt_layer *l, struct ckpt_plan *p,
                                           const char *name) {
    const struct ckpt_adapted *const t = ckpt_layer_param(l, name);
    if (!t)
        return NULL;
    struct ckpt_plan_param *const param = &p->param[p->nparams++];
    *param =
        (struct ckpt_plan_param){.arg = name, .tensor = t, .served = find_served(l, p, t, name)};
    torch_shape(p, param);
    if (p->status == CKPT_STATUS_PASS && is_reshaped(param))
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP,
                         "a rule cuts or reshapes %.*s: its bytes are checked, no layer is run",
                         CKPT_TEXT_ARGS(t->torch_key));
    return param;
}

bool ckpt_plan_left_out(const struct ckpt_model *m, struct ckpt_text path, const char *name) {
    const struct ckpt_checkpoint *const c = m->checkpoint;
    for (size_t i = 0; i < c->ntensors; i++) {
        const struct ckpt_text key = c->tensors[i].key;
        const size_t n = strlen(name) + (path.n ? path.n + 1 : 0);
        if (key.n >= n && ckpt_text_ends(key, name) &&
            (key.n == n || key.s[key.n - n - 1] == '.') &&
            memcmp(key.s + key.n - n, path.s, path.n) == 0)
            return true;
    }
    return false;
}

/* weight_norm keeps weight_g and weight_v instead of weight, spectral_norm weight_orig. */
static bool is_reparametrised(const struct ckpt_layer *l) {
    return ckpt_layer_param(l, "weight_v") || ckpt_layer_param(l, "weight_orig");
}

static void require_weight(const struct ckpt_layer *l, struct ckpt_plan *p) {
    const char *const dot = l->path.n ? "." : "";
    if (bind_tensor(l, p, "weight"))
        return;
    if (is_reparametrised(l))
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP,
                         "its weight is computed from other tensors, which stay as they are");
    else if (ckpt_plan_left_out(p->layers->model, l->path, "weight"))
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "%.*s%sweight was left out", CKPT_TEXT_ARGS(l->path),
                         dot);
    else
        ckpt_plan_refuse(p, CKPT_STATUS_TEST_FAIL, "parameter %.*s%sweight is missing",
                         CKPT_TEXT_ARGS(l->path), dot);
}

/* ---- layers that need little more ---- */

/* An attribute that repeats a dimension of the weight must agree with it. */
static void check_size(const struct ckpt_layer *l, struct ckpt_plan *p, const char *attribute,
                       int64_t size) {
    int64_t said;
    if (ckpt_plan_read_ints(ckpt_plan_attribute(l, attribute), 1, &said) && said != size)
        ckpt_plan_refuse(p, CKPT_STATUS_TEST_FAIL,
                         "parameter %.*s is ill-shaped: %s is %lld, its shape says %lld",
                         CKPT_TEXT_ARGS(p->param[0].tensor->torch_key), attribute, (long long)said,
                         (long long)size);
}

static void set_probe(struct ckpt_plan *p, int64_t rows, int64_t width) {
    p->probe[0] = (struct ckpt_plan_probe){.shape = {rows, width}, .ndim = 2};
    p->nprobes = 1;
}

static bool is_matrix(struct ckpt_plan *p) {
    const struct ckpt_plan_param *const w = &p->param[0];
    if (p->status == CKPT_STATUS_PASS && w->ndim != 2)
        ckpt_plan_refuse(p, CKPT_STATUS_TEST_FAIL,
                         "parameter %.*s is ill-shaped: %u dimensions, expected 2",
                         CKPT_TEXT_ARGS(w->tensor->torch_key), w->ndim);
    return p->status == CKPT_STATUS_PASS;
}

static void plan_linear(const struct ckpt_layer *l, struct ckpt_plan *p) {
    if (!is_matrix(p))
        return;
    struct ckpt_plan_param *const w = &p->param[0];
    w->in_out_served = p->layers->model->layout == CKPT_LAYOUT_BURN;
    check_size(l, p, "in_features", w->shape[1]);
    check_size(l, p, "out_features", w->shape[0]);
    bind_tensor(l, p, "bias");
    set_probe(p, 4, w->shape[1]);
}

/* Hugging Face's Conv1D: a Linear whose weight is [in, out] in PyTorch already. */
static void plan_conv1d_hf(const struct ckpt_layer *l, struct ckpt_plan *p) {
    if (!is_matrix(p))
        return;
    struct ckpt_plan_param *const w = &p->param[0];
    w->in_out_source = w->in_out_served = true;
    bind_tensor(l, p, "bias");
    set_probe(p, 4, w->shape[0]);
}

static void plan_embedding(const struct ckpt_layer *l, struct ckpt_plan *p) {
    if (ckpt_text_is(ckpt_layer_class(l->record), "EmbeddingBag"))
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "EmbeddingBag has no probe");
    if (ckpt_plan_attribute(l, "max_norm"))
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "max_norm changes the weight when it runs");
    if (!is_matrix(p))
        return;
    p->input = "indices";
    const int64_t rows = p->param[0].shape[0];
    check_size(l, p, "num_embeddings", rows);
    check_size(l, p, "embedding_dim", p->param[0].shape[1]);
    if (rows == 0)
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "the table has no rows");
    p->probe[0] = (struct ckpt_plan_probe){.shape = {8}, .ndim = 1, .id_limit = rows};
    p->nprobes = 1;
}

static void plan_conv(const struct ckpt_layer *l, struct ckpt_plan *p) {
    bind_tensor(l, p, "bias");
    ckpt_plan_conv(l, p, false);
}

static void plan_transposed(const struct ckpt_layer *l, struct ckpt_plan *p) {
    bind_tensor(l, p, "bias");
    ckpt_plan_conv(l, p, true);
}

static void plan_norm(const struct ckpt_layer *l, struct ckpt_plan *p) {
    bind_tensor(l, p, "weight");
    bind_tensor(l, p, "bias");
    bind_tensor(l, p, "running_mean");
    bind_tensor(l, p, "running_var");
    ckpt_plan_norm(l, p);
}

static void plan_prelu(const struct ckpt_layer *l, struct ckpt_plan *p) {
    (void)l;
    const int64_t slopes = p->param[0].ndim == 1 ? p->param[0].shape[0] : 1;
    p->input = "self";
    p->probe[0] = (struct ckpt_plan_probe){.shape = {2, slopes > 1 ? slopes : 3, 4}, .ndim = 3};
    p->nprobes = 1;
}

static const struct {
    const char *kind, *op;
    bool weight; /* must be there */
    void (*fill)(const struct ckpt_layer *l, struct ckpt_plan *p);
} kinds[] = {
    {"linear", "linear", true, plan_linear},
    {"conv1d_hf", "linear", true, plan_conv1d_hf},
    {"embedding", "embedding", true, plan_embedding},
    {"conv", NULL, true, plan_conv},
    {"conv_transpose", NULL, true, plan_transposed},
    {"norm", NULL, false, plan_norm},
    {"batch_norm", "batch_norm", false, plan_norm},
    {"prelu", "prelu", true, plan_prelu},
    {"mha", NULL, false, ckpt_plan_attention},
    {"encoder_layer", NULL, false, ckpt_plan_transformer_layer},
    {"encoder_layer:pre", NULL, false, ckpt_plan_transformer_layer},
    {"encoder_layer:post", NULL, false, ckpt_plan_transformer_layer},
    {"decoder_layer", NULL, false, ckpt_plan_transformer_layer},
    {"decoder_layer:pre", NULL, false, ckpt_plan_transformer_layer},
    {"decoder_layer:post", NULL, false, ckpt_plan_transformer_layer},
    {"stack", NULL, false, ckpt_plan_stack},
    {"lstm", NULL, false, ckpt_plan_rnn},
    {"gru", NULL, false, ckpt_plan_rnn},
    {"rnn", NULL, false, ckpt_plan_rnn},
};

static void refuse_kind(const struct ckpt_layer *l, struct ckpt_plan *p) {
    if (!l->kind)
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP,
                         "what this module computes is unknown; -o kind= can say");
    else
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "no probe for %.*s; its bytes are checked",
                         CKPT_TEXT_ARGS(ckpt_layer_type(l)));
}

void ckpt_plan_layer(const struct ckpt_layers *layers, const struct ckpt_layer *l,
                     struct ckpt_plan *plan) {
    memset(plan, 0, sizeof(*plan));
    plan->status = CKPT_STATUS_PASS;
    plan->layers = layers;
    plan->layer = l;
    plan->input = "input";
    for (size_t i = 0; l->kind && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].kind, l->kind) != 0)
            continue;
        if (kinds[i].op)
            plan->op = ckpt_op_find(ckpt_text_of(kinds[i].op));
        if (kinds[i].weight)
            require_weight(l, plan);
        if (plan->status == CKPT_STATUS_PASS)
            kinds[i].fill(l, plan);
        return;
    }
    refuse_kind(l, plan);
}
