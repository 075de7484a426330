/*
 * TorchScript's source as a graph, for objects that are always the same (script_world.h). The input
 * is the code of "__torch__" and, behind a line of "====", that of "__torch__.lib". Property:
 * whatever the text, it is refused with one sentence, or every item of the graph is resolved, every
 * reference points to a value that an input or an earlier node made, every value is made once and
 * by whom it says, and following it again gives the same.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "mount-tests/unit/script_world.h"
#include "graph_same.h"

static void require(bool condition) {
    if (!condition)
        abort();
}

static int follow(const uint8_t *data, size_t size, struct ckpt_graph **g, struct ckpt_err *err) {
    static const char mark[] = "\n====\n";
    const char *const text = (const char *)data;
    const char *const cut = size ? memmem(text, size, mark, sizeof mark - 1) : NULL;
    struct script_world w = {.code = {text, cut ? (size_t)(cut - text) + 1 : size}};
    if (cut)
        w.lib = (struct ckpt_text){cut + sizeof mark - 1,
                                   size - (size_t)(cut - text) - (sizeof mark - 1)};
    return world_follow(&w, g, err);
}

/* A value that `node` uses was made before it; one that it makes says so, and nobody else makes
 * it. */
static void check_arg(const struct ckpt_graph *g, const struct ckpt_graph_arg *a,
                      const struct ckpt_graph_arg *again, size_t node, bool *made) {
    require(a->n == again->n && a->is_list == again->is_list && (a->is_list || a->n == 1));
    require(a->name.s && ckpt_text_eq(a->name, again->name));
    for (uint32_t i = 0; i < a->n; i++) {
        const struct ckpt_graph_item *const item = &a->item[i];
        require(same_item(item, &again->item[i]) && (!made || item->kind == CKPT_GRAPH_ITEM_VALUE));
        if (item->kind != CKPT_GRAPH_ITEM_VALUE)
            continue;
        require(item->value < g->nvalues);
        const struct ckpt_graph_value *const v = &g->value[item->value];
        require((int)v->type == item->type && v->name.n);
        require(made ? v->node == node && !made[item->value]
                     : v->node == CKPT_GRAPH_NONE || v->node < node);
        if (made)
            made[item->value] = true;
    }
}

static void check_node(const struct ckpt_graph *g, const struct ckpt_graph *again, size_t i,
                       bool *made) {
    const struct ckpt_graph_node *const n = &g->node[i], *const m = &again->node[i];
    require(n->op.n && ckpt_text_eq(n->op, m->op) && ckpt_text_eq(n->base, n->op));
    require(n->nargs == m->nargs && n->nouts == m->nouts && n->stack && n->stack->n == m->stack->n);
    for (uint32_t k = 0; k < n->nargs; k++)
        check_arg(g, &n->arg[k], &m->arg[k], i, NULL);
    for (uint32_t k = 0; k < n->nouts; k++)
        check_arg(g, &n->out[k], &m->out[k], i, made);
}

static void check_graph(const struct ckpt_graph *g, const struct ckpt_graph *again) {
    CKPT_AUTO(free) bool *made = calloc(g->nvalues + 1, 1);
    require(made && g->nnodes == again->nnodes && g->nvalues == again->nvalues);
    require(g->ninputs == again->ninputs && g->noutputs == again->noutputs);
    for (size_t i = 0; i < g->ninputs; i++)
        check_arg(g, &g->input[i].arg, &again->input[i].arg, CKPT_GRAPH_NONE, made);
    for (size_t i = 0; i < g->nnodes; i++)
        check_node(g, again, i, made);
    for (size_t i = 0; i < g->noutputs; i++)
        check_arg(g, &g->output[i].arg, &again->output[i].arg, g->nnodes, NULL);
    for (size_t i = 0; i < g->nvalues; i++)
        require(made[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CKPT_AUTO(graph) struct ckpt_graph *g = NULL;
    CKPT_AUTO(graph) struct ckpt_graph *again = NULL;
    struct ckpt_err err = {0};
    if (follow(data, size, &g, &err) != 0) {
        require(!g && err.text[0] && !strchr(err.text, '\n'));
        return 0;
    }
    require(follow(data, size, &again, &err) == 0);
    check_graph(g, again);
    return 0;
}
