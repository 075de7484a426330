/*
 * Running a program, node by node. A value is an array, or a parameter that is read where it is
 * used; one that no later node uses is dropped, so that only what is in flight takes memory.
 *
 * A matrix that is a parameter stays one when it is transposed: it then only reads as the transpose
 * of what is stored, and a product still streams it (core ATen turns every Linear into
 * permute -> addmm). So do rows that are picked from one by their numbers: a mixture of experts
 * takes a whole matrix for each token, which together are many times what there is.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/graph_program.h"
#include "verify/narrow.h"
#include "verify/op_schema.h"

struct runner {
    const struct ckpt_program *program;
    struct ckpt_exec *exec;
    struct ckpt_run_value *value;
    struct ckpt_arena arena; /* what picks of rows keep */
};

static void runner_fini(struct runner *r) {
    for (size_t i = 0; r->value && i < r->program->graph->nvalues; i++)
        ckpt_array_fini(&r->value[i].array);
    free(r->value);
    ckpt_arena_fini(&r->arena);
}
CKPT_DEFINE_AUTO(runner, struct runner, runner_fini)

/* ---- arguments ---- */

static bool is_present(const struct ckpt_run_value *v) {
    return v->is_param || v->array.store;
}

static int tensor_arg(const struct runner *r, uint32_t at, struct ckpt_arg *a,
                      struct ckpt_err *err) {
    const struct ckpt_run_value *const v = &r->value[at];
    if (!is_present(v)) {
        a->kind = CKPT_ARG_NONE;
        return r->program->graph->value[at].node == CKPT_GRAPH_NONE
                   ? 0
                   : ckpt_fail(err, -EINVAL, "value %.*s has not been computed",
                               CKPT_TEXT_ARGS(r->program->graph->value[at].name));
    }
    a->kind = v->is_param ? CKPT_ARG_PARAM : CKPT_ARG_ARRAY;
    if (v->is_param)
        a->param = &v->param;
    else
        a->array = &v->array;
    return 0;
}

/* A number that the graph computes; scripts have it in a tensor. */
static int symbol_arg(const struct runner *r, uint32_t at, struct ckpt_arg *a,
                      struct ckpt_err *err) {
    const struct ckpt_array *const v = &r->value[at].array;
    if (!v->store || ckpt_array_count(v) != 1)
        return ckpt_fail(err, -EINVAL, "value %.*s is no number",
                         CKPT_TEXT_ARGS(r->program->graph->value[at].name));
    switch (v->dtype) {
    case CKPT_DT_I64:
        a->kind = CKPT_ARG_INT;
        a->i = *ckpt_array_i64(v);
        break;
    case CKPT_DT_BOOL:
        a->kind = CKPT_ARG_BOOL;
        a->b = *ckpt_array_bool(v);
        break;
    default:
        a->kind = CKPT_ARG_FLOAT;
        a->f = ckpt_array_get(v, 0);
    }
    return 0;
}

static int item_arg(const struct runner *r, const struct ckpt_graph_item *it, bool wants_tensor,
                    struct ckpt_arena *arena, struct ckpt_arg *a, struct ckpt_err *err) {
    switch ((enum ckpt_graph_item_kind)it->kind) {
    case CKPT_GRAPH_ITEM_VALUE:
        return wants_tensor ? tensor_arg(r, it->value, a, err) : symbol_arg(r, it->value, a, err);
    case CKPT_GRAPH_ITEM_INT:
        a->kind = CKPT_ARG_INT;
        a->i = it->i;
        return 0;
    case CKPT_GRAPH_ITEM_FLOAT:
        a->kind = CKPT_ARG_FLOAT;
        a->f = it->f;
        return 0;
    case CKPT_GRAPH_ITEM_BOOL:
        a->kind = CKPT_ARG_BOOL;
        a->b = it->b;
        return 0;
    case CKPT_GRAPH_ITEM_DTYPE:
        a->kind = CKPT_ARG_DTYPE;
        a->i = it->i;
        return 0;
    case CKPT_GRAPH_ITEM_TEXT:
        a->kind = CKPT_ARG_STRING;
        a->string = ckpt_arena_copy(arena, it->text.s, it->text.n);
        return a->string ? 0 : ckpt_fail_memory(err, "running the graph");
    case CKPT_GRAPH_ITEM_OTHER:
        return ckpt_fail(err, -EOPNOTSUPP, "an argument of kind %.*s is beyond the checker",
                         CKPT_TEXT_ARGS(it->text));
    default: /* none, and where or in which order the result would lie in memory */
        a->kind = CKPT_ARG_NONE;
        return 0;
    }
}

/* Numbers of one kind, in an array of their own. */
static int number_list(struct ckpt_arg *a, const struct ckpt_arg *item, uint32_t n, bool floats,
                       struct ckpt_arena *arena, struct ckpt_err *err) {
    double *const f = ckpt_arena_array(arena, n, sizeof(*f));
    int64_t *const v = ckpt_arena_array(arena, n, sizeof(*v));
    if (!f || !v)
        return ckpt_fail_memory(err, "running the graph");
    for (uint32_t i = 0; i < n; i++) {
        const bool is_float = item[i].kind == CKPT_ARG_FLOAT;
        if (!is_float && item[i].kind != CKPT_ARG_INT && item[i].kind != CKPT_ARG_BOOL)
            return ckpt_fail(err, -EINVAL, "%s is no list of numbers", a->name);
        floats = floats || is_float;
        v[i] = item[i].kind == CKPT_ARG_BOOL ? item[i].b : is_float ? 0 : item[i].i;
        f[i] = is_float ? item[i].f : (double)v[i];
    }
    a->kind = floats ? CKPT_ARG_FLOATS : CKPT_ARG_INTS;
    if (floats) {
        a->floats.v = f;
        a->floats.n = n;
    } else {
        a->ints.v = v;
        a->ints.n = n;
    }
    return 0;
}

static int list_arg(const struct runner *r, const struct ckpt_graph_arg *from,
                    const struct ckpt_schema_param *p, struct ckpt_arena *arena, struct ckpt_arg *a,
                    struct ckpt_err *err) {
    const bool tensors = ckpt_text_starts(p->type, "Tensor");
    struct ckpt_arg *const item = ckpt_arena_array(arena, from->n, sizeof(*item));
    int rc = item ? 0 : ckpt_fail_memory(err, "running the graph");
    for (uint32_t i = 0; rc == 0 && i < from->n; i++)
        rc = item_arg(r, &from->item[i], tensors, arena, &item[i], err);
    if (rc < 0)
        return rc;
    if (!tensors)
        return number_list(a, item, from->n, ckpt_text_starts(p->type, "float"), arena, err);
    a->kind = CKPT_ARG_LIST;
    a->list.v = item;
    a->list.n = from->n;
    return 0;
}

/* A script writes numbers where the schema has a type of its own. */
static void retype(struct ckpt_arg *a, const struct ckpt_schema_param *p) {
    if (a->kind != CKPT_ARG_INT)
        return;
    if (ckpt_text_starts(p->type, "ScalarType") || ckpt_text_is(p->name, "dtype")) {
        a->kind = CKPT_ARG_DTYPE;
        a->i = ckpt_graph_script_dtype(a->i);
    } else if (ckpt_text_starts(p->type, "MemoryFormat") || ckpt_text_starts(p->type, "Layout")) {
        a->kind = CKPT_ARG_NONE;
    }
}

static int bind(const struct runner *r, size_t at, struct ckpt_arena *arena, struct ckpt_arg *arg,
                uint32_t *n, struct ckpt_err *err) {
    const struct ckpt_graph_node *const node = &r->program->graph->node[at];
    const struct ckpt_step *const s = &r->program->step[at];
    struct ckpt_schema_param p;
    int rc = 0;
    *n = 0;
    for (uint32_t i = 0; rc == 0 && i < node->nargs; i++) {
        if (!s->name[i] || !ckpt_schema_find(s->op->schema, ckpt_text_of(s->name[i]), &p))
            continue;
        struct ckpt_arg *const a = &arg[(*n)++];
        a->name = s->name[i];
        if (node->arg[i].is_list)
            rc = list_arg(r, &node->arg[i], &p, arena, a, err);
        else if (node->arg[i].n)
            rc = item_arg(r, &node->arg[i].item[0], ckpt_text_starts(p.type, "Tensor"), arena, a,
                          err);
        if (rc == 0)
            retype(a, &p);
    }
    return rc;
}

/* ---- results ---- */

/* What the graph says of a value, where it says it in numbers. */
static int check_result(const struct runner *r, uint32_t at, struct ckpt_err *err) {
    const struct ckpt_graph_value *const v = &r->program->graph->value[at];
    const struct ckpt_array *const a = &r->value[at].array;
    char text[96];
    bool same = true;
    if (!a->store)
        return ckpt_fail(err, -EINVAL, "gives no value for %.*s", CKPT_TEXT_ARGS(v->name));
    if (!v->meta)
        return 0;
    if (v->meta->dtype != CKPT_DT_NONE && ckpt_array_dtype(v->meta->dtype) != a->dtype)
        return ckpt_fail(err, -EINVAL, "%.*s is %s, the graph says %s", CKPT_TEXT_ARGS(v->name),
                         ckpt_dtype_info(a->dtype)->name, ckpt_dtype_info(v->meta->dtype)->name);
    for (uint32_t d = 0; d < v->meta->ndim && d < a->ndim; d++)
        same = same && (v->meta->shape[d] == CKPT_SYMBOLIC || v->meta->shape[d] == a->shape[d]);
    if (!same || v->meta->ndim != a->ndim)
        return ckpt_fail(err, -EINVAL, "%.*s has the shape %s, the graph says otherwise",
                         CKPT_TEXT_ARGS(v->name), ckpt_array_shape_text(a, text, sizeof(text)));
    return 0;
}

/* What the model has in half precision is rounded as PyTorch rounds each result. Views show what
 * was rounded before. */
static void round_result(const struct runner *r, uint32_t at) {
    const struct ckpt_export_meta *const meta = r->program->graph->value[at].meta;
    if (meta && (meta->dtype == CKPT_DT_F16 || meta->dtype == CKPT_DT_BF16))
        ckpt_narrow(&r->value[at].array, meta->dtype);
}

/* Hands the results to the node's values, which own them from here on. */
static int keep_results(struct runner *r, size_t at, struct ckpt_array *result,
                        struct ckpt_err *err) {
    const struct ckpt_graph_node *const node = &r->program->graph->node[at];
    uint32_t k = 0;
    int rc = 0;
    for (uint32_t i = 0; i < node->nouts; i++)
        for (uint32_t j = 0; j < node->out[i].n; j++, k++) {
            const struct ckpt_graph_item *const it = &node->out[i].item[j];
            if (it->kind != CKPT_GRAPH_ITEM_VALUE)
                continue;
            r->value[it->value].array = result[k];
            result[k] = (struct ckpt_array){0};
            if (rc == 0)
                rc = check_result(r, it->value, err);
            if (rc == 0)
                round_result(r, it->value);
        }
    return rc;
}

/* The argument that an operation in place changes: the first of its schema. */
static const struct ckpt_arg *self_of(const struct ckpt_step *s, const struct ckpt_arg *arg,
                                      uint32_t n) {
    struct ckpt_schema_param p;
    for (uint32_t i = 0; i < n && ckpt_schema_param(s->op->schema, 0, &p); i++)
        if (ckpt_text_is(p.name, arg[i].name))
            return &arg[i];
    return NULL;
}

/* "squeeze_" writes nothing: it is self, seen otherwise. */
static bool only_turns(const struct ckpt_step *s) {
    static const char *const names[] = {"t",       "transpose", "swapaxes", "swapdims",
                                        "squeeze", "unsqueeze", "detach",   "as_strided"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(s->op->name, names[i]) == 0)
            return true;
    return false;
}

/* Writes what the operation gave into self, which is then the result. What lies in self's own
 * memory may lie in other places of it, and is copied first. */
static int write_back(const struct ckpt_step *s, const struct ckpt_arg *arg, uint32_t n,
                      struct ckpt_exec *exec, struct ckpt_array *result, struct ckpt_err *err) {
    const struct ckpt_arg *const self = self_of(s, arg, n);
    if (!self || self->kind != CKPT_ARG_ARRAY)
        return ckpt_fail(err, -EOPNOTSUPP, "it changes a parameter");
    if (!result->store)
        return ckpt_fail(err, -EINVAL, "it gives nothing that could be written into %s",
                         self->name);
    if (only_turns(s))
        return 0;
    CKPT_AUTO(array) struct ckpt_array given = *result;
    *result = (struct ckpt_array){0};
    int rc = 0;
    if (given.store == self->array->store) {
        CKPT_AUTO(array) struct ckpt_array shared = given;
        rc = ckpt_array_copy(&shared, &exec->memory, &given, err);
    }
    if (rc == 0)
        rc = ckpt_array_assign(self->array, &given, err);
    if (rc == 0)
        *result = ckpt_array_ref(self->array);
    return rc;
}

/* ---- parameters that stay what they are ---- */

/* The parameter that a node only passes on, or turns; NULL: it does something to it. */
static const struct ckpt_param *passed_on(const struct ckpt_step *s, const struct ckpt_arg *arg,
                                          uint32_t n, bool *turned) {
    static const char *const same[] = {"alias", "detach", "contiguous", "lift_fresh_copy", "clone"};
    static const char *const turning[] = {"t", "transpose", "permute", "numpy_T"};
    if (n == 0 || arg[0].kind != CKPT_ARG_PARAM || s->in_place)
        return NULL;
    *turned = false;
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        if (strcmp(s->op->name, same[i]) == 0)
            return arg[0].param;
    if (arg[0].param->ndim != 2)
        return NULL;
    const bool axes = n == 2 && arg[1].kind == CKPT_ARG_INTS && arg[1].ints.n == 2;
    const bool pair = n == 3 && arg[1].kind == CKPT_ARG_INT && arg[2].kind == CKPT_ARG_INT;
    *turned = (n == 1) || (axes && (arg[1].ints.v[0] & 1) == 1 && (arg[1].ints.v[1] & 1) == 0) ||
              (pair && ((arg[1].i ^ arg[2].i) & 1) == 1);
    for (size_t i = 0; *turned && i < sizeof(turning) / sizeof(turning[0]); i++)
        if (strcmp(s->op->name, turning[i]) == 0)
            return arg[0].param;
    return NULL;
}

static bool pass_on(struct runner *r, size_t at, const struct ckpt_arg *arg, uint32_t n) {
    const struct ckpt_graph_node *const node = &r->program->graph->node[at];
    bool turned;
    const struct ckpt_param *const p = passed_on(&r->program->step[at], arg, n, &turned);
    if (!p || node->nouts != 1 || ckpt_graph_arg_value(&node->out[0]) == CKPT_GRAPH_NONE)
        return false;
    struct ckpt_run_value *const to = &r->value[node->out[0].item[0].value];
    to->param = turned ? ckpt_param_transpose(p) : *p;
    to->is_param = true;
    return true;
}

#define PICK_ROW_MIN 4096  /* elements: less is gathered at once */
#define PICK_IDS_MAX 65536 /* they are kept to the end of the run */

static bool uses(const struct ckpt_graph_node *n, uint32_t value) {
    for (uint32_t a = 0; a < n->nargs; a++)
        for (uint32_t i = 0; i < n->arg[a].n; i++)
            if (n->arg[a].item[i].kind == CKPT_GRAPH_ITEM_VALUE && n->arg[a].item[i].value == value)
                return true;
    return false;
}

/* Only products of batches take a matrix at a time; everybody else would load all of it. */
static bool is_only_multiplied(const struct ckpt_program *p, size_t at, uint32_t value) {
    const uint32_t last = p->last[value];
    if (last == CKPT_GRAPH_NONE)
        return false; /* an output */
    for (size_t i = at + 1; i <= last; i++)
        if (uses(&p->graph->node[i], value) && strcmp(p->step[i].op->name, "bmm") != 0)
            return false;
    return true;
}

/* The ids, if a node does nothing but pick rows of a parameter, all of which are there. */
static const struct ckpt_array *picked_by(const struct ckpt_step *s, const struct ckpt_arg *arg,
                                          uint32_t n) {
    if (n != 2 || strcmp(s->op->name, "index") != 0 || s->in_place ||
        arg[0].kind != CKPT_ARG_PARAM || arg[1].kind != CKPT_ARG_LIST || arg[1].list.n != 1 ||
        arg[1].list.v[0].kind != CKPT_ARG_ARRAY)
        return NULL;
    const struct ckpt_param *const of = arg[0].param;
    const struct ckpt_array *const ids = arg[1].list.v[0].array;
    if (of->ndim < 2 || of->in_out || of->shape[0] < 1 || ids->dtype != CKPT_DT_I64 ||
        ids->ndim != 1 || ids->shape[0] < 1 || ids->shape[0] > PICK_IDS_MAX ||
        ckpt_param_count(of) / of->shape[0] < PICK_ROW_MIN)
        return NULL;
    for (int64_t i = 0; i < ids->shape[0]; i++) {
        const int64_t id = ckpt_array_i64(ids)[i * ids->stride[0]];
        if (id < -of->shape[0] || id >= of->shape[0])
            return NULL;
    }
    return ids;
}

/* 1: done, 0: not of this kind. */
static int pick(struct runner *r, size_t at, const struct ckpt_arg *arg, uint32_t n,
                struct ckpt_err *err) {
    const struct ckpt_graph_node *const node = &r->program->graph->node[at];
    const struct ckpt_array *const ids = picked_by(&r->program->step[at], arg, n);
    if (!ids || node->nouts != 1 || node->out[0].n != 1 ||
        !is_only_multiplied(r->program, at, node->out[0].item[0].value))
        return 0;
    const int64_t count = ids->shape[0];
    struct ckpt_param_pick *const p = ckpt_arena_alloc(&r->arena, sizeof(*p));
    int64_t *const id = ckpt_arena_array(&r->arena, (size_t)count, sizeof(*id));
    if (!p || !id)
        return ckpt_fail_memory(err, "running the graph");
    for (int64_t i = 0; i < count; i++) {
        id[i] = ckpt_array_i64(ids)[i * ids->stride[0]];
        id[i] += id[i] < 0 ? arg[0].param->shape[0] : 0;
    }
    ckpt_param_pick_init(p, arg[0].param, id, count);
    struct ckpt_run_value *const to = &r->value[node->out[0].item[0].value];
    to->param = p->param;
    to->is_param = true;
    return 1;
}

/* ---- nodes ---- */

#define ARGS_MAX 32
#define RESULTS_MAX 4096 /* of one node: chunk, split, unbind */

static int run_op(struct runner *r, size_t at, const struct ckpt_arg *arg, uint32_t n,
                  struct ckpt_err *err) {
    const struct ckpt_step *const s = &r->program->step[at];
    const uint32_t nresults = s->nresults ? s->nresults : 1;
    struct ckpt_array few[4] = {{0}};
    CKPT_AUTO(free) struct ckpt_array *many = NULL;
    if (nresults > RESULTS_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "gives %u results", nresults);
    if (nresults > 4 && !(many = calloc(nresults, sizeof(*many))))
        return ckpt_fail_memory(err, "running the graph");
    struct ckpt_array *const result = many ? many : few;
    int rc = ckpt_op_run_all(s->op, arg, n, r->exec, result, nresults, err);
    if (rc == 0 && s->in_place)
        rc = write_back(s, arg, n, r->exec, &result[0], err);
    if (rc == 0)
        rc = keep_results(r, at, result, err);
    for (uint32_t i = 0; i < nresults; i++)
        ckpt_array_fini(&result[i]);
    return rc;
}

static void drop_dead(struct runner *r, const struct ckpt_graph_arg *list, uint32_t n,
                      uint32_t at) {
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t i = 0; i < list[a].n; i++) {
            const struct ckpt_graph_item *const it = &list[a].item[i];
            if (it->kind == CKPT_GRAPH_ITEM_VALUE && r->program->last[it->value] == at)
                ckpt_array_fini(&r->value[it->value].array);
        }
}

/* "node 12, aten.linear in layers.0.fc1" */
static int name_node(const struct runner *r, size_t at, int rc, struct ckpt_err *err) {
    const struct ckpt_graph_node *const node = &r->program->graph->node[at];
    const struct ckpt_graph_stack *const stack = node->stack;
    const struct ckpt_text path = stack->n ? stack->frame[stack->n - 1].path : CKPT_TEXT("");
    if (rc == -EINTR)
        return rc;
    return ckpt_fail_in(err, "node %zu (%.*s%s%.*s)", at, CKPT_TEXT_ARGS(node->base),
                        path.n ? " in " : "", CKPT_TEXT_ARGS(path));
}

static int run_node(struct runner *r, size_t at, struct ckpt_err *err) {
    const struct ckpt_graph_node *const node = &r->program->graph->node[at];
    struct ckpt_arg arg[ARGS_MAX] = {{0}};
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    uint32_t n;
    if (node->nargs > ARGS_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "node %zu has %u arguments", at, node->nargs);
    int rc = bind(r, at, &arena, arg, &n, err);
    int done = rc == 0 && pass_on(r, at, arg, n);
    if (rc == 0 && !done)
        done = rc = pick(r, at, arg, n, err);
    if (rc >= 0 && !done)
        rc = run_op(r, at, arg, n, err);
    if (rc < 0)
        return name_node(r, at, rc, err);
    drop_dead(r, node->arg, node->nargs, (uint32_t)at);
    drop_dead(r, node->out, node->nouts, (uint32_t)at);
    return 0;
}

/* ---- outputs ---- */

static int take_output(struct runner *r, uint32_t at, struct ckpt_array *out,
                       struct ckpt_err *err) {
    struct ckpt_run_value *const v = &r->value[at];
    CKPT_AUTO(array) struct ckpt_array whole = {0};
    if (!is_present(v))
        return ckpt_fail(err, -EINVAL, "output %.*s has no value",
                         CKPT_TEXT_ARGS(r->program->graph->value[at].name));
    const int rc = v->is_param ? ckpt_param_array(&v->param, &r->exec->memory, &whole, err) : 0;
    return rc < 0 ? rc
                  : ckpt_array_contiguous(v->is_param ? &whole : &v->array, &r->exec->memory, out,
                                          err);
}

static int take_outputs(struct runner *r, struct ckpt_array *out, uint32_t n,
                        struct ckpt_err *err) {
    const struct ckpt_graph *const g = r->program->graph;
    uint32_t at = 0;
    int rc = 0;
    for (size_t i = 0; i < g->noutputs; i++)
        for (uint32_t k = 0; rc == 0 && k < g->output[i].arg.n; k++)
            if (g->output[i].arg.item[k].kind == CKPT_GRAPH_ITEM_VALUE && at < n)
                rc = take_output(r, g->output[i].arg.item[k].value, &out[at++], err);
    return rc;
}

/* Where the program writes into values, its inputs are copies: the caller's stay what they are. */
static int enter_input(struct runner *r, const struct ckpt_run_value *input,
                       struct ckpt_run_value *to, struct ckpt_err *err) {
    *to = *input;
    to->array = (struct ckpt_array){0};
    if (!input->array.store)
        return 0;
    if (r->program->writes)
        return ckpt_array_copy(&input->array, &r->exec->memory, &to->array, err);
    to->array = ckpt_array_ref(&input->array);
    return 0;
}

static int enter_inputs(struct runner *r, const struct ckpt_run_value *input,
                        struct ckpt_err *err) {
    const struct ckpt_graph *const g = r->program->graph;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < g->ninputs; i++) {
        const uint32_t at = ckpt_graph_arg_value(&g->input[i].arg);
        if (at != CKPT_GRAPH_NONE)
            rc = enter_input(r, &input[i], &r->value[at], err);
    }
    return rc;
}

int ckpt_program_run(const struct ckpt_program *p, const struct ckpt_run_value *input,
                     struct ckpt_exec *exec, struct ckpt_array *out, uint32_t n,
                     struct ckpt_err *err) {
    CKPT_AUTO(runner) struct runner r = {.program = p, .exec = exec};
    memset(out, 0, n * sizeof(*out));
    r.value = calloc(p->graph->nvalues + 1, sizeof(*r.value));
    if (!r.value)
        return ckpt_fail_memory(err, "running the graph");
    int rc = enter_inputs(&r, input, err);
    for (size_t i = 0; rc == 0 && i < p->graph->nnodes; i++)
        rc = run_node(&r, i, err);
    if (rc == 0)
        rc = take_outputs(&r, out, n, err);
    for (uint32_t i = 0; rc < 0 && i < n; i++)
        ckpt_array_fini(&out[i]);
    return rc;
}
