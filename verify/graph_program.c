/* Finding the operations of a graph's nodes, and what each value is needed for. */
#include "verify/graph_program.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op_schema.h"

#define LISTED_MAX 12 /* missing operations in a sentence */

/* ---- which operation ---- */

/* "aten.relu_" is "relu_"; "_operator.ge" stays, and so does a library of somebody's own. */
static struct ckpt_text bare_name(struct ckpt_text base) {
    const char *const skipped[] = {"aten.", "prim.", "prims."};
    for (size_t i = 0; i < sizeof(skipped) / sizeof(skipped[0]); i++)
        if (ckpt_text_starts(base, skipped[i]))
            return (struct ckpt_text){base.s + strlen(skipped[i]), base.n - strlen(skipped[i])};
    return base;
}

static struct ckpt_text overload_of(const struct ckpt_graph_node *n) {
    return n->op.n > n->base.n
               ? (struct ckpt_text){n->op.s + n->base.n + 1, n->op.n - n->base.n - 1}
               : CKPT_TEXT("");
}

static bool is_word(const struct ckpt_schema_param *p, const char *type) {
    return ckpt_text_starts(p->type, type);
}

/* The item that tells what a list holds: [None, x] of indices is a list of tensors. */
static const struct ckpt_graph_item *telling_item(const struct ckpt_graph_arg *a) {
    for (uint32_t i = 0; i < a->n; i++)
        if (a->item[i].kind != CKPT_GRAPH_ITEM_NONE)
            return &a->item[i];
    return a->n ? &a->item[0] : NULL;
}

/* Whether an argument could be what the parameter is. */
static bool may_be(const struct ckpt_graph *g, const struct ckpt_graph_arg *a,
                   const struct ckpt_schema_param *p) {
    const bool list = memchr(p->type.s, '[', p->type.n) != NULL;
    const struct ckpt_graph_item *const it = telling_item(a);
    if (it && it->kind == CKPT_GRAPH_ITEM_NONE)
        return p->optional || memchr(p->type.s, '?', p->type.n);
    if (a->is_list != list)
        return list && !a->is_list && it && it->kind == CKPT_GRAPH_ITEM_INT;
    if (!it)
        return true;
    if (it->kind == CKPT_GRAPH_ITEM_VALUE && g->value[it->value].type == CKPT_GRAPH_TENSOR)
        return is_word(p, "Tensor");
    if (it->kind == CKPT_GRAPH_ITEM_TEXT)
        return is_word(p, "str");
    if (it->kind == CKPT_GRAPH_ITEM_FLOAT)
        return is_word(p, "Scalar") || is_word(p, "float");
    if (it->kind == CKPT_GRAPH_ITEM_DEVICE || is_word(p, "Device"))
        return it->kind == CKPT_GRAPH_ITEM_DEVICE && is_word(p, "Device");
    if (it->kind == CKPT_GRAPH_ITEM_BOOL)
        return is_word(p, "bool") || is_word(p, "Scalar");
    return !is_word(p, "Tensor") && !is_word(p, "str");
}

/* The schema's parameter for argument i: by its name, or by its place. */
static bool param_of(const struct ckpt_op *op, const struct ckpt_graph_arg *a, uint32_t i,
                     struct ckpt_schema_param *out) {
    return a->name.n ? ckpt_schema_find(op->schema, a->name, out)
                     : ckpt_schema_param(op->schema, i, out) && !out->named;
}

static bool fits(const struct ckpt_graph *g, const struct ckpt_graph_node *n,
                 const struct ckpt_op *op) {
    struct ckpt_schema_param p;
    for (uint32_t i = 0; i < n->nargs; i++)
        if (!param_of(op, &n->arg[i], i, &p) || !may_be(g, &n->arg[i], &p))
            return false;
    for (uint32_t i = n->nargs; ckpt_schema_param(op->schema, i, &p); i++)
        if (n->nargs && !n->arg[n->nargs - 1].name.n && !p.optional)
            return false; /* by place, and one that must be there is not */
    return true;
}

/* TorchScript names no overload: the first whose parameters fit. */
static const struct ckpt_op *find_fitting(const struct ckpt_graph *g,
                                          const struct ckpt_graph_node *n, struct ckpt_text name) {
    const struct ckpt_op *op;
    for (size_t i = 0; (op = ckpt_op_at(i)); i++)
        if (ckpt_text_is(name, op->name) && fits(g, n, op))
            return op;
    return NULL;
}

static const struct ckpt_op *find(const struct ckpt_graph *g, const struct ckpt_graph_node *n,
                                  struct ckpt_text name) {
    const struct ckpt_text overload = overload_of(n);
    const struct ckpt_op *const op =
        overload.n ? ckpt_op_find_overload(name, overload) : find_fitting(g, n, name);
    return op || !overload.n ? op : find_fitting(g, n, name);
}

static const struct ckpt_op *choose(const struct ckpt_graph *g, const struct ckpt_graph_node *n,
                                    bool *in_place) {
    struct ckpt_text name = bare_name(n->base);
    const struct ckpt_op *op = find(g, n, name);
    *in_place = false;
    if (op || name.n < 2 || name.s[name.n - 1] != '_' || name.s[name.n - 2] == '_')
        return op;
    name.n--;
    *in_place = true;
    return find(g, n, name);
}

/* ---- steps ---- */

static uint32_t count_results(const struct ckpt_graph_node *n) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n->nouts; i++)
        count += n->out[i].n;
    return count;
}

static int make_step(struct ckpt_program *p, size_t at, struct ckpt_err *err) {
    const struct ckpt_graph_node *const n = &p->graph->node[at];
    struct ckpt_step *const s = &p->step[at];
    struct ckpt_schema_param param;
    s->nresults = count_results(n);
    s->name = ckpt_arena_array(&p->arena, n->nargs, sizeof(*s->name));
    if (!s->name)
        return ckpt_fail_memory(err, "reading the graph");
    for (uint32_t i = 0; i < n->nargs; i++) {
        if (!param_of(s->op, &n->arg[i], i, &param))
            continue; /* what the operation does not know cannot change what it computes here */
        s->name[i] = ckpt_arena_copy(&p->arena, param.name.s, param.name.n);
        if (!s->name[i])
            return ckpt_fail_memory(err, "reading the graph");
    }
    return 0;
}

/* Adds the operation to the list, unless it is there. */
static void add_missing(struct ckpt_str *list, uint32_t *n, struct ckpt_text op) {
    CKPT_AUTO(str) struct ckpt_str quoted = {0};
    ckpt_str_printf(&quoted, " %.*s,", CKPT_TEXT_ARGS(op));
    if (quoted.failed || (list->s && memmem(list->s, list->n, quoted.s, quoted.n)))
        return;
    if (++*n <= LISTED_MAX)
        ckpt_str_add(list, quoted.s, quoted.n);
}

static int make_steps(struct ckpt_program *p, struct ckpt_err *err) {
    CKPT_AUTO(str) struct ckpt_str missing = {0};
    uint32_t nmissing = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->graph->nnodes; i++) {
        p->step[i].op = choose(p->graph, &p->graph->node[i], &p->step[i].in_place);
        if (!p->step[i].op)
            add_missing(&missing, &nmissing, p->graph->node[i].op);
        else
            rc = make_step(p, i, err);
        p->writes = p->writes || p->step[i].in_place;
    }
    if (rc < 0 || nmissing == 0)
        return rc;
    return ckpt_fail(err, -EOPNOTSUPP, "the graph has operations that the checker lacks:%.*s%s",
                     missing.n ? (int)missing.n - 1 : 0, missing.s ? missing.s : "",
                     nmissing > LISTED_MAX ? " and more" : "");
}

/* ---- uses ---- */

static void use_all(struct ckpt_program *p, const struct ckpt_graph_arg *a, uint32_t node) {
    for (uint32_t i = 0; i < a->n; i++)
        if (a->item[i].kind == CKPT_GRAPH_ITEM_VALUE) {
            p->last[a->item[i].value] = node;
            p->used[a->item[i].value] = true;
        }
}

static void find_uses(struct ckpt_program *p) {
    const struct ckpt_graph *const g = p->graph;
    for (size_t v = 0; v < g->nvalues; v++)
        p->last[v] = g->value[v].node; /* what nobody uses dies where it was made */
    for (size_t i = 0; i < g->nnodes; i++)
        for (uint32_t a = 0; a < g->node[i].nargs; a++)
            use_all(p, &g->node[i].arg[a], (uint32_t)i);
    for (size_t i = 0; i < g->noutputs; i++)
        use_all(p, &g->output[i].arg, CKPT_GRAPH_NONE);
}

/* ---- what cannot be run ---- */

static int check_outside(const struct ckpt_graph *g, struct ckpt_err *err) {
    for (size_t i = 0; i < g->noutputs; i++)
        if (g->output[i].role == CKPT_GRAPH_FOREIGN)
            return ckpt_fail(err, -EOPNOTSUPP,
                             "the graph has an output of kind %.*s, as graphs exported in training "
                             "mode have: export the model after eval()",
                             CKPT_TEXT_ARGS(g->output[i].kind));
    for (size_t i = 0; i < g->ninputs; i++)
        if (g->input[i].role == CKPT_GRAPH_FOREIGN)
            return ckpt_fail(err, -EOPNOTSUPP,
                             "the graph has an input of kind %.*s, which the checker has no value "
                             "for",
                             CKPT_TEXT_ARGS(g->input[i].kind));
    return 0;
}

int ckpt_program_make(const struct ckpt_graph *g, struct ckpt_program *p, struct ckpt_err *err) {
    *p = (struct ckpt_program){.graph = g};
    int rc = check_outside(g, err);
    if (rc < 0)
        return rc;
    p->step = ckpt_arena_array(&p->arena, g->nnodes, sizeof(*p->step));
    p->last = ckpt_arena_array(&p->arena, g->nvalues, sizeof(*p->last));
    p->used = ckpt_arena_array(&p->arena, g->nvalues, sizeof(*p->used));
    if (!p->step || !p->last || !p->used)
        return ckpt_fail_memory(err, "reading the graph");
    rc = make_steps(p, err);
    if (rc == 0)
        find_uses(p);
    return rc;
}

void ckpt_program_fini(struct ckpt_program *p) {
    ckpt_arena_fini(&p->arena);
    *p = (struct ckpt_program){0};
}

uint32_t ckpt_program_outputs(const struct ckpt_program *p) {
    uint32_t n = 0;
    for (size_t i = 0; i < p->graph->noutputs; i++)
        for (uint32_t k = 0; k < p->graph->output[i].arg.n; k++)
            n += p->graph->output[i].arg.item[k].kind == CKPT_GRAPH_ITEM_VALUE;
    return n;
}

enum ckpt_dtype ckpt_program_output_dtype(const struct ckpt_program *p, uint32_t output) {
    const struct ckpt_graph *const g = p->graph;
    for (size_t i = 0; i < g->noutputs; i++)
        for (uint32_t k = 0; k < g->output[i].arg.n; k++) {
            const struct ckpt_graph_item *const it = &g->output[i].arg.item[k];
            if (it->kind != CKPT_GRAPH_ITEM_VALUE || output-- > 0)
                continue;
            const struct ckpt_export_meta *const meta = g->value[it->value].meta;
            return meta ? meta->dtype : CKPT_DT_NONE;
        }
    return CKPT_DT_NONE;
}
