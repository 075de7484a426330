/*
 * The two kinds of JSON in a .pt2 archive, on any bytes. Properties: of an accepted configuration
 * no description breaks a limit, and reading it again gives the same entries; in an accepted graph
 * every item is resolved, every reference points to a value that was made before, every value to
 * the node that made it, and reading it again gives the same table.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/graph.h"
#include "formats/pt2.h"
#include "graph_same.h"

static void require(bool condition) {
    if (!condition)
        abort();
}

static bool same_list(const int64_t *a, const int64_t *b, uint32_t n) {
    return n == 0 || memcmp(a, b, n * sizeof *a) == 0;
}

static void check_meta(const struct ckpt_export_meta *m, const struct ckpt_export_meta *again) {
    require(m->ndim <= CKPT_NDIM_MAX);
    for (uint32_t i = 0; i < m->ndim; i++)
        require(m->shape[i] >= 0 || m->shape[i] == CKPT_SYMBOLIC);
    require(m->ndim == again->ndim && m->dtype == again->dtype && m->offset == again->offset);
    require(same_list(m->shape, again->shape, m->ndim) && !m->stride == !again->stride);
    require(!m->stride || same_list(m->stride, again->stride, m->ndim));
}

static void check_config(const uint8_t *data, size_t size) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    CKPT_AUTO(pt2_config) struct ckpt_pt2_config c = {0}, again = {0};
    struct ckpt_err err = {0};
    if (ckpt_pt2_config_parse(data, size, &arena, &c, &err) != 0) {
        require(err.text[0] != '\0');
        return;
    }
    require(ckpt_pt2_config_parse(data, size, &arena, &again, NULL) == 0 && c.n == again.n);
    for (size_t i = 0; i < c.n; i++) {
        require(ckpt_text_eq(c.entry[i].key, again.entry[i].key));
        require(ckpt_text_eq(c.entry[i].path, again.entry[i].path));
        check_meta(&c.entry[i].meta, &again.entry[i].meta);
    }
}

/* A value used by `node` was made by an input or an earlier node; one made by it says so. */
static void check_arg(const struct ckpt_graph *g, const struct ckpt_graph_arg *a,
                      const struct ckpt_graph_arg *again, size_t node, bool is_made) {
    require(a->n == again->n && a->is_list == again->is_list && (a->is_list || a->n == 1));
    require(ckpt_text_eq(a->name, again->name));
    for (uint32_t i = 0; i < a->n; i++) {
        require(same_item(&a->item[i], &again->item[i]));
        if (a->item[i].kind != CKPT_GRAPH_ITEM_VALUE)
            continue;
        require(a->item[i].value < g->nvalues);
        const struct ckpt_graph_value *v = &g->value[a->item[i].value];
        require((int)v->type == a->item[i].type);
        require(is_made ? v->node == node : v->node == CKPT_GRAPH_NONE || v->node < node);
    }
}

static void check_node(const struct ckpt_graph *g, const struct ckpt_graph *again, size_t i) {
    const struct ckpt_graph_node *n = &g->node[i], *m = &again->node[i];
    require(ckpt_text_eq(n->op, m->op) && n->base.n <= n->op.n);
    require(n->nargs == m->nargs && n->nouts == m->nouts && n->stack && n->stack->n == m->stack->n);
    for (uint32_t k = 0; k < n->nargs; k++)
        check_arg(g, &n->arg[k], &m->arg[k], i, false);
    for (uint32_t k = 0; k < n->nouts; k++)
        check_arg(g, &n->out[k], &m->out[k], i, true);
}

static void check_graph(const uint8_t *data, size_t size) {
    CKPT_AUTO(graph) struct ckpt_graph *g = NULL, *again = NULL;
    struct ckpt_err err = {0};
    if (ckpt_graph_parse(data, size, &g, &err) != 0) {
        require(err.text[0] != '\0' && !g);
        return;
    }
    require(ckpt_graph_parse(data, size, &again, NULL) == 0);
    require(g->nnodes == again->nnodes && g->nvalues == again->nvalues);
    require(g->ninputs == again->ninputs && g->noutputs == again->noutputs);
    for (size_t i = 0; i < g->nvalues; i++) {
        require(ckpt_text_eq(g->value[i].name, again->value[i].name));
        require(!g->value[i].meta == !again->value[i].meta);
        if (g->value[i].meta)
            check_meta(g->value[i].meta, again->value[i].meta);
    }
    for (size_t i = 0; i < g->ninputs; i++)
        check_arg(g, &g->input[i].arg, &again->input[i].arg, CKPT_GRAPH_NONE, true);
    for (size_t i = 0; i < g->nnodes; i++)
        check_node(g, again, i);
    for (size_t i = 0; i < g->noutputs; i++)
        check_arg(g, &g->output[i].arg, &again->output[i].arg, g->nnodes, false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_config(data, size);
    check_graph(data, size);
    return 0;
}
