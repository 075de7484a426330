/* Which tensor of the checkpoint each of a graph's parameters is. */
#include "verify/graph_params.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

struct finder {
    const struct ckpt_verification *v;
    const struct ckpt_checkpoint *own;
    struct ckpt_strmap own_by_key, code_by_key; /* of the graph's file */
    struct ckpt_strmap by_key;                  /* of the whole checkpoint */
    struct ckpt_graph_params *params;
};

static void finder_fini(struct finder *f) {
    ckpt_strmap_fini(&f->own_by_key);
    ckpt_strmap_fini(&f->code_by_key);
    ckpt_strmap_fini(&f->by_key);
}
CKPT_DEFINE_AUTO(finder, struct finder, finder_fini)

static int index_keys(const struct ckpt_checkpoint *c, struct ckpt_strmap *map,
                      struct ckpt_err *err) {
    for (size_t i = 0; c && i < c->ntensors; i++)
        if (ckpt_strmap_add(map, c->tensors[i].key, i, NULL) == -ENOMEM)
            return ckpt_fail_memory(err, "reading the graph");
    return 0;
}

static const struct ckpt_tensor *get(const struct ckpt_checkpoint *c, const struct ckpt_strmap *map,
                                     struct ckpt_text key) {
    const size_t at = c ? ckpt_strmap_get(map, key) : CKPT_STRMAP_ABSENT;
    return at == CKPT_STRMAP_ABSENT ? NULL : &c->tensors[at];
}

/* ---- by name ---- */

static const struct ckpt_adapted *shown(const struct ckpt_layers *layers, struct ckpt_text key) {
    const size_t at = ckpt_strmap_get(&layers->by_torch_key, key);
    return at == CKPT_STRMAP_ABSENT ? NULL : &layers->model->tensor[at];
}

/* The key below the part of the checkpoint that was chosen: "model_state_dict.fc1.weight". */
static const struct ckpt_tensor *hidden(const struct finder *f, struct ckpt_text key) {
    const struct ckpt_model *const m = f->v->model;
    CKPT_AUTO(str) struct ckpt_str whole = {0};
    if (m->root.n)
        ckpt_str_printf(&whole, "%.*s.", CKPT_TEXT_ARGS(m->root));
    ckpt_str_add(&whole, m->prefix.s, m->prefix.n);
    ckpt_str_add(&whole, key.s, key.n);
    return whole.failed ? NULL : get(m->checkpoint, &f->by_key, ckpt_str_text(&whole));
}

bool ckpt_graph_param_tied(const struct ckpt_tensor *a, const struct ckpt_tensor *b) {
    return a->blob == b->blob && a->offset == b->offset && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0;
}

static bool find_by_name(const struct finder *f, struct ckpt_text key, struct ckpt_graph_param *p) {
    p->tensor = shown(&f->v->layers, key);
    p->raw = p->tensor ? NULL : hidden(f, key);
    p->from = p->tensor ? CKPT_FROM_MODEL : p->raw ? CKPT_FROM_HIDDEN : CKPT_FROM_NOWHERE;
    return p->from != CKPT_FROM_NOWHERE;
}

/* A file that kept only one of a tied tensor's names: the graph's own file knows the others. */
static void find_by_tie(const struct finder *f, struct ckpt_graph_param *p) {
    for (size_t i = 0; p->own && i < f->own->ntensors; i++) {
        const struct ckpt_tensor *const other = &f->own->tensors[i];
        if (other != p->own && ckpt_graph_param_tied(other, p->own) &&
            find_by_name(f, other->key, p))
            return;
    }
}

/* ---- how it is served ---- */

static bool is_turn(const struct ckpt_view_op *op) {
    return op->kind == CKPT_VIEW_PERMUTE && op->n == 2 && op->list[0] == 1;
}

static enum ckpt_graph_served how_served(const struct ckpt_layers *layers,
                                         const struct ckpt_adapted *t) {
    const struct ckpt_part *const part = &t->part[0];
    const uint32_t more = part->nop - part->ntorch;
    if (ckpt_graph_is_joined(layers, t))
        return CKPT_SERVED_JOINED;
    if (t->nparts == 1 && more == 0)
        return CKPT_SERVED_AS_IS;
    if (t->nparts == 1 && more == 1 && is_turn(&part->op[part->ntorch]))
        return CKPT_SERVED_TURNED;
    return CKPT_SERVED_READ_BACK;
}

const struct ckpt_tensor *ckpt_graph_param_source(const struct ckpt_graph_param *p) {
    return p->tensor ? p->tensor->source : p->raw;
}

/* The shape that the graph gives its input, where the source lies in PyTorch's layout. */
static bool is_ill_shaped(const struct ckpt_graph *g, const struct ckpt_graph_param *p) {
    const struct ckpt_export_meta *const meta = g->value[p->value].meta;
    const struct ckpt_tensor *const t = ckpt_graph_param_source(p);
    if (!meta || !t || (p->tensor && (p->tensor->part[0].ntorch || p->tensor->joined)))
        return false;
    bool same = meta->ndim == t->ndim;
    for (uint32_t d = 0; same && d < t->ndim; d++)
        same = meta->shape[d] == CKPT_SYMBOLIC || meta->shape[d] == t->shape[d];
    return !same;
}

/* What the graph says, or else what the source has. */
static enum ckpt_dtype dtype_of(const struct ckpt_graph *g, const struct ckpt_graph_param *p) {
    const struct ckpt_export_meta *const meta = g->value[p->value].meta;
    const enum ckpt_dtype said = meta ? ckpt_array_dtype(meta->dtype) : CKPT_DT_NONE;
    const struct ckpt_tensor *const t = ckpt_graph_param_source(p);
    return said != CKPT_DT_NONE ? said : t ? ckpt_array_dtype(t->dtype) : CKPT_DT_NONE;
}

/* ---- one input ---- */

static void count(struct ckpt_graph_params *all, const struct ckpt_graph_param *p) {
    all->used += p->used;
    all->unused += !p->used;
    all->missing += p->used && p->from == CKPT_FROM_NOWHERE;
    all->ill_shaped += p->ill_shaped;
    all->differs += p->differs;
    all->not_served += p->used && p->from == CKPT_FROM_HIDDEN;
    all->read_back += p->from == CKPT_FROM_MODEL && p->served == CKPT_SERVED_READ_BACK;
}

static int find_param(struct finder *f, const struct ckpt_program *program, size_t i,
                      struct ckpt_err *err) {
    const struct ckpt_graph_input *const in = &program->graph->input[i];
    struct ckpt_graph_param *const p = &f->params->at[i];
    const bool state =
        in->role == CKPT_GRAPH_PARAMETER || (in->role == CKPT_GRAPH_BUFFER && in->persistent);
    p->value = ckpt_graph_arg_value(&in->arg);
    if (p->value == CKPT_GRAPH_NONE || in->role == CKPT_GRAPH_USER || in->role == CKPT_GRAPH_BAKED)
        return 0;
    p->input = in;
    p->used = program->used[p->value];
    p->own = get(f->own, &f->own_by_key, in->name);
    if (state && !find_by_name(f, in->name, p))
        find_by_tie(f, p);
    const struct ckpt_tensor *const constant =
        get(f->own ? f->own->code : NULL, &f->code_by_key, in->name);
    if (!state && constant) {
        p->raw = constant;
        p->from = CKPT_FROM_GRAPH;
    } else if (!state) {
        find_by_name(f, in->name, p); /* a bare graph, and a state dict that has it after all */
    }
    if (p->from == CKPT_FROM_MODEL)
        p->served = how_served(&f->v->layers, p->tensor);
    p->dtype = dtype_of(program->graph, p);
    p->ill_shaped = is_ill_shaped(program->graph, p);
    if (state && p->own && p->from != CKPT_FROM_NOWHERE && p->own != ckpt_graph_param_source(p)) {
        const int rc = ckpt_source_differs(ckpt_graph_param_source(p), p->own, &p->differs, err);
        if (rc < 0)
            return rc;
    }
    count(f->params, p);
    return 0;
}

/* ---- what the graph does not expect ---- */

static int find_unexpected(struct finder *f, struct ckpt_err *err) {
    const struct ckpt_model *const m = f->v->model;
    struct ckpt_graph_params *const all = f->params;
    CKPT_AUTO(strmap) struct ckpt_strmap seen = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < all->n; i++)
        if (all->at[i].tensor)
            rc = ckpt_strmap_add(&seen, all->at[i].tensor->torch_key, 0, NULL);
    all->unexpected = ckpt_arena_array(&all->arena, m->ntensors, sizeof(*all->unexpected));
    if (rc == -ENOMEM || !all->unexpected)
        return ckpt_fail_memory(err, "reading the graph");
    for (size_t i = 0; i < m->ntensors; i++) {
        const struct ckpt_text key = m->tensor[i].torch_key;
        if (!m->tensor[i].in_model || m->tensor[i].ntied ||
            ckpt_text_ends(key, "num_batches_tracked"))
            continue;
        rc = ckpt_strmap_add(&seen, key, 0, NULL); /* parts of one tensor count once */
        if (rc == -ENOMEM)
            return ckpt_fail_memory(err, "reading the graph");
        if (rc == 0)
            all->unexpected[all->nunexpected++] = key;
    }
    return 0;
}

int ckpt_graph_params_find(const struct ckpt_verification *v, const struct ckpt_program *p,
                           const struct ckpt_checkpoint *own, struct ckpt_graph_params *params,
                           struct ckpt_err *err) {
    CKPT_AUTO(finder) struct finder f = {.v = v, .own = own, .params = params};
    *params = (struct ckpt_graph_params){.n = p->graph->ninputs};
    params->at = ckpt_arena_array(&params->arena, params->n, sizeof(*params->at));
    if (!params->at)
        return ckpt_fail_memory(err, "reading the graph");
    int rc = index_keys(own, &f.own_by_key, err);
    if (rc == 0)
        rc = index_keys(own ? own->code : NULL, &f.code_by_key, err);
    if (rc == 0)
        rc = index_keys(v->model->checkpoint, &f.by_key, err);
    for (size_t i = 0; rc == 0 && i < params->n; i++)
        rc = find_param(&f, p, i, err);
    if (rc == 0)
        rc = ckpt_graph_params_check_ties(params, err);
    return rc < 0 ? rc : find_unexpected(&f, err);
}

void ckpt_graph_params_fini(struct ckpt_graph_params *params) {
    ckpt_arena_fini(&params->arena);
    *params = (struct ckpt_graph_params){0};
}
