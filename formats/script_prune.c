/*
 * Numbers that nobody uses. Scripted modules check the shapes they get and raise where these are
 * wrong; what the checks ask a tensor for is no part of what the model computes.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "formats/script_graph.h"

#define DROPPED UINT32_MAX

struct pruner {
    struct ckpt_graph *graph;
    uint32_t *uses;  /* of each value */
    uint32_t *value; /* its new index, or DROPPED */
    uint32_t *node;  /* the same of each node */
};

static void count_uses(const struct pruner *p, const struct ckpt_graph_arg *arg, uint32_t n,
                       int by) {
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t i = 0; i < arg[a].n; i++)
            if (arg[a].item[i].kind == CKPT_GRAPH_ITEM_VALUE)
                p->uses[arg[a].item[i].value] += (uint32_t)by;
}

/* Whether all that the node makes are numbers without a use, or a list of which nothing is used. */
static bool is_idle(const struct pruner *p, const struct ckpt_graph_node *node) {
    for (uint32_t o = 0; o < node->nouts; o++)
        for (uint32_t i = 0; i < node->out[o].n; i++) {
            const struct ckpt_graph_item *const item = &node->out[o].item[i];
            if (item->type == CKPT_GRAPH_TENSOR || p->uses[item->value])
                return false;
        }
    return true;
}

/* From the last node to the first, so that what fed an idle one is idle, too. */
static size_t mark(const struct pruner *p) {
    const struct ckpt_graph *const g = p->graph;
    size_t dropped = 0;
    for (size_t i = 0; i < g->nnodes; i++)
        count_uses(p, g->node[i].arg, g->node[i].nargs, 1);
    for (size_t i = 0; i < g->noutputs; i++)
        count_uses(p, &g->output[i].arg, 1, 1);
    for (size_t i = g->nnodes; i-- > 0;) {
        if (!is_idle(p, &g->node[i]))
            continue;
        p->node[i] = DROPPED;
        dropped++;
        count_uses(p, g->node[i].arg, g->node[i].nargs, -1);
    }
    return dropped;
}

/* New numbers for what stays. */
static void renumber(const struct pruner *p) {
    const struct ckpt_graph *const g = p->graph;
    uint32_t nodes = 0, values = 0;
    for (size_t i = 0; i < g->nnodes; i++)
        p->node[i] = p->node[i] == DROPPED ? DROPPED : nodes++;
    for (size_t i = 0; i < g->nvalues; i++) {
        const uint32_t node = g->value[i].node;
        const bool stays = node == CKPT_GRAPH_NONE || p->node[node] != DROPPED;
        p->value[i] = stays ? values++ : DROPPED;
    }
}

static void rewrite(const struct pruner *p, const struct ckpt_graph_arg *arg, uint32_t n) {
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t i = 0; i < arg[a].n; i++)
            if (arg[a].item[i].kind == CKPT_GRAPH_ITEM_VALUE)
                arg[a].item[i].value = p->value[arg[a].item[i].value];
}

static void move_values(const struct pruner *p) {
    struct ckpt_graph *const g = p->graph;
    size_t n = 0;
    for (size_t i = 0; i < g->nvalues; i++) {
        if (p->value[i] == DROPPED)
            continue;
        g->value[n] = g->value[i];
        if (g->value[n].node != CKPT_GRAPH_NONE)
            g->value[n].node = p->node[g->value[n].node];
        n++;
    }
    g->nvalues = n;
}

static void move_nodes(const struct pruner *p) {
    struct ckpt_graph *const g = p->graph;
    size_t n = 0;
    for (size_t i = 0; i < g->nnodes; i++) {
        if (p->node[i] == DROPPED)
            continue;
        g->node[n] = g->node[i];
        rewrite(p, g->node[n].arg, g->node[n].nargs);
        rewrite(p, g->node[n].out, g->node[n].nouts);
        n++;
    }
    g->nnodes = n;
}

int script_graph_prune(struct script_graph *b) {
    struct ckpt_graph *const g = b->graph;
    CKPT_AUTO(free) uint32_t *uses = calloc(g->nvalues + 1, sizeof *uses);
    CKPT_AUTO(free) uint32_t *value = calloc(g->nvalues + 1, sizeof *value);
    CKPT_AUTO(free) uint32_t *node = calloc(g->nnodes + 1, sizeof *node);
    const struct pruner p = {g, uses, value, node};
    if (!uses || !value || !node)
        return script_graph_fail_memory(b);
    if (mark(&p) == 0)
        return 0;
    renumber(&p);
    move_values(&p);
    move_nodes(&p);
    for (size_t i = 0; i < g->ninputs; i++)
        rewrite(&p, &g->input[i].arg, 1);
    for (size_t i = 0; i < g->noutputs; i++)
        rewrite(&p, &g->output[i].arg, 1);
    return 0;
}
