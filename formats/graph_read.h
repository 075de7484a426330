#ifndef CKPT_FORMATS_GRAPH_READ_H
#define CKPT_FORMATS_GRAPH_READ_H
/* Inside the readers of a graph (private to graph_*.c). */
#include "base/json.h"
#include "formats/graph.h"

/* A description of a tensor, found by its value's name when names are looked up. */
struct ckpt_graph_named_meta {
    struct ckpt_text name;
    struct ckpt_export_meta meta;
};

struct ckpt_graph_list {
    struct ckpt_graph_arg *arg;
    size_t n, cap;
};

struct ckpt_graph_reader {
    struct ckpt_json json;
    struct ckpt_graph *graph;
    size_t values_cap, nodes_cap, inputs_cap, outputs_cap, stacks_cap;
    struct ckpt_strmap by_stack; /* an nn_module_stack's text -> index in graph->stack */
    struct ckpt_strmap by_meta;  /* a value's name -> index in metas */
    struct ckpt_graph_named_meta **metas;
    size_t nmetas, metas_cap;
    struct ckpt_graph_list inputs, outputs, *given; /* graph.inputs, graph.outputs; being read */
    bool has_graph, has_signature;
    /* of the list that is being read: */
    struct ckpt_graph_item *item;
    size_t nitems, items_cap;
    struct ckpt_graph_arg *arg;
    size_t nargs, args_cap;
    struct ckpt_err *err;
};

/* Out of memory, or more than the limit for a graph. */
int ckpt_graph_fail_memory(struct ckpt_graph_reader *r);

/* A list longer than CKPT_LIMIT_GRAPH_ITEMS. */
int ckpt_graph_fail_items(struct ckpt_graph_reader *r);

/* graph_arg.c: the next value, {"as_tensor": {"name": ...}} and its kin. */
int ckpt_graph_read_arg(struct ckpt_graph_reader *r, struct ckpt_graph_arg *out) CKPT_CHECKED;
/* The same where the object has begun already. */
int ckpt_graph_take_arg(struct ckpt_graph_reader *r, int token,
                        struct ckpt_graph_arg *out) CKPT_CHECKED;

/* graph_node.c: an element of "nodes". */
int ckpt_graph_take_node(struct ckpt_graph_reader *r, int token) CKPT_CHECKED;

/* graph_link.c: checks what belongs together and turns every name into an index. */
int ckpt_graph_link(struct ckpt_graph_reader *r) CKPT_CHECKED;

#endif
