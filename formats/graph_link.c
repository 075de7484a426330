/*
 * From names to indices. Values are entered in the order in which they come to be: the inputs, then
 * what each node makes. A name that is looked up before it was entered does not exist yet, which is
 * what keeps cycles out.
 */
#include "formats/graph_read.h"

#include <errno.h>

#include "base/array.h"
#include "base/cleanup.h"

struct linker {
    struct ckpt_graph_reader *r;
    struct ckpt_strmap by_name; /* -> index in graph->value */
    uint32_t node;              /* being linked; NONE: the inputs or outputs */
};

static const char *const wrong_type[] = {[CKPT_GRAPH_TENSOR] = "is no tensor",
                                         [CKPT_GRAPH_SYM_INT] = "is no integer",
                                         [CKPT_GRAPH_SYM_FLOAT] = "is no floating-point number",
                                         [CKPT_GRAPH_SYM_BOOL] = "is no truth value",
                                         [CKPT_GRAPH_OBJECT] = "is no object"};

/* "node 3 (aten.linear.default)", for messages. */
static int fail(const struct linker *l, struct ckpt_text name, const char *what) {
    const struct ckpt_graph *g = l->r->graph;
    if (l->node == CKPT_GRAPH_NONE)
        return ckpt_fail(l->r->err, -EINVAL,
                         "value \"%.*s\" among the graph's inputs or outputs %s",
                         CKPT_TEXT_ARGS(name), what);
    return ckpt_fail(l->r->err, -EINVAL, "value \"%.*s\" of node %u (%.*s) %s",
                     CKPT_TEXT_ARGS(name), l->node, CKPT_TEXT_ARGS(g->node[l->node].op), what);
}

static int define(struct linker *l, struct ckpt_graph_item *item) {
    struct ckpt_graph_reader *r = l->r;
    struct ckpt_graph *g = r->graph;
    const struct ckpt_text name = item->text;
    if (g->nvalues == CKPT_GRAPH_NONE ||
        !ckpt_array_grow(&g->value, g->nvalues, &r->values_cap, sizeof *g->value))
        return ckpt_graph_fail_memory(r);
    const int rc = ckpt_strmap_add(&l->by_name, name, g->nvalues, NULL);
    if (rc)
        return rc == -EEXIST ? fail(l, name, "was made before") : ckpt_graph_fail_memory(r);
    struct ckpt_graph_value *v = &g->value[g->nvalues];
    *v = (struct ckpt_graph_value){
        .name = name, .type = (enum ckpt_graph_type)item->type, .node = l->node};
    const size_t meta = ckpt_strmap_get(&r->by_meta, name);
    if (v->type == CKPT_GRAPH_TENSOR && meta != CKPT_STRMAP_ABSENT)
        v->meta = &r->metas[meta]->meta;
    item->kind = CKPT_GRAPH_ITEM_VALUE;
    item->value = (uint32_t)g->nvalues++;
    return 0;
}

static int resolve(struct linker *l, struct ckpt_graph_item *item) {
    const struct ckpt_text name = item->text;
    const size_t known = ckpt_strmap_get(&l->by_name, name);
    if (known == CKPT_STRMAP_ABSENT)
        return fail(l, name, "does not exist there");
    if (l->r->graph->value[known].type != item->type)
        return fail(l, name, wrong_type[item->type]);
    item->kind = CKPT_GRAPH_ITEM_VALUE;
    item->value = (uint32_t)known;
    return 0;
}

static int for_names(struct linker *l, const struct ckpt_graph_arg *arg,
                     int (*visit)(struct linker *l, struct ckpt_graph_item *item)) {
    for (uint32_t i = 0; i < arg->n; i++) {
        if (arg->item[i].kind != CKPT_GRAPH_ITEM_NAME)
            continue;
        const int rc = visit(l, &arg->item[i]);
        if (rc)
            return rc;
    }
    return 0;
}

static int link_inputs(struct linker *l) {
    struct ckpt_graph_reader *r = l->r;
    struct ckpt_graph *g = r->graph;
    if (r->inputs.n != g->ninputs)
        return ckpt_fail(r->err, -EINVAL, "%zu inputs of the graph, %zu in its signature",
                         r->inputs.n, g->ninputs);
    l->node = CKPT_GRAPH_NONE;
    for (size_t i = 0; i < g->ninputs; i++) {
        const int rc = for_names(l, &r->inputs.arg[i], define);
        if (rc)
            return rc;
        g->input[i].arg = r->inputs.arg[i];
    }
    return 0;
}

static int link_nodes(struct linker *l) {
    const struct ckpt_graph *g = l->r->graph;
    for (size_t n = 0; n < g->nnodes; n++) {
        const struct ckpt_graph_node *node = &g->node[n];
        int rc = 0;
        l->node = (uint32_t)n;
        for (uint32_t i = 0; rc == 0 && i < node->nargs; i++)
            rc = for_names(l, &node->arg[i], resolve);
        for (uint32_t i = 0; rc == 0 && i < node->nouts; i++)
            rc = for_names(l, &node->out[i], define);
        if (rc)
            return rc;
    }
    return 0;
}

static int link_outputs(struct linker *l) {
    struct ckpt_graph_reader *r = l->r;
    struct ckpt_graph *g = r->graph;
    if (r->outputs.n != g->noutputs)
        return ckpt_fail(r->err, -EINVAL, "%zu outputs of the graph, %zu in its signature",
                         r->outputs.n, g->noutputs);
    l->node = CKPT_GRAPH_NONE;
    for (size_t i = 0; i < g->noutputs; i++) {
        const int rc = for_names(l, &r->outputs.arg[i], resolve);
        if (rc)
            return rc;
        g->output[i].arg = r->outputs.arg[i];
    }
    return 0;
}

int ckpt_graph_link(struct ckpt_graph_reader *r) {
    struct linker l = {.r = r};
    int rc = link_inputs(&l);
    if (rc == 0)
        rc = link_nodes(&l);
    if (rc == 0)
        rc = link_outputs(&l);
    ckpt_strmap_fini(&l.by_name);
    return rc;
}
