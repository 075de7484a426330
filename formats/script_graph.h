#ifndef CKPT_FORMATS_SCRIPT_GRAPH_H
#define CKPT_FORMATS_SCRIPT_GRAPH_H
/* The graph while a script is followed (private to script_*.c): it grows by inputs, nodes and
 * outputs; whatever is given is copied into its arena. */
#include "base/strmap.h"
#include "formats/graph.h"

struct script_graph {
    struct ckpt_graph *graph;
    struct ckpt_err *err;
    size_t values_cap, nodes_cap, inputs_cap, outputs_cap, stacks_cap;
    struct ckpt_strmap by_input; /* full name of a parameter, buffer or constant -> value */
    struct ckpt_strmap by_stack; /* -> index in graph->stack */
    struct ckpt_strmap by_text;  /* -> index in text */
    struct ckpt_text *text;      /* the different ones */
    size_t ntexts, texts_cap;
};

void script_graph_fini(struct script_graph *b); /* not the graph itself */
int script_graph_fail_memory(const struct script_graph *b);

/* A copy of the text in the graph's arena, one for all equal ones; .s NULL when out of memory. */
struct ckpt_text script_graph_text(struct script_graph *b, struct ckpt_text text);

/* A new value that an input is. */
int script_graph_add_input(struct script_graph *b, enum ckpt_graph_role role, const char *kind,
                           struct ckpt_text name, enum ckpt_graph_type type,
                           uint32_t *value) CKPT_CHECKED;

/* What runs, before it is known what it makes. The arguments are in the graph's arena. */
int script_graph_add_node(struct script_graph *b, struct ckpt_text op,
                          const struct ckpt_graph_arg *arg, uint32_t nargs,
                          const struct ckpt_graph_stack *stack, uint32_t *node) CKPT_CHECKED;
/* Gives the node n outputs of one value each, or if is_list one output that is a list of n. May
 * come again for a list that turns out to be longer; the values that it had stay. */
int script_graph_set_outs(struct script_graph *b, uint32_t node, enum ckpt_graph_type type,
                          uint32_t n, bool is_list) CKPT_CHECKED;

int script_graph_add_output(struct script_graph *b, enum ckpt_graph_role role, const char *kind,
                            struct ckpt_graph_arg arg) CKPT_CHECKED;

/* The stack that has one frame more than `below` (NULL: none). */
int script_graph_push_stack(struct script_graph *b, const struct ckpt_graph_stack *below,
                            struct ckpt_text path, struct ckpt_text cls,
                            const struct ckpt_graph_stack **out) CKPT_CHECKED;

/* script_prune.c: drops nodes that make nothing but numbers which nobody uses. */
int script_graph_prune(struct script_graph *b) CKPT_CHECKED;

#endif
