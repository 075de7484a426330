#ifndef CKPT_VERIFY_GRAPH_INPUTS_H
#define CKPT_VERIFY_GRAPH_INPUTS_H
/*
 * What a graph runs on: the arguments of the call, in order. From the reference (input.N, or the
 * names that its metadata "inputs" lists, null being None), else from the graph's own file, which
 * keeps the arguments of its export, else made up: seeded numbers, where all arguments are floats
 * of known shapes.
 */
#include "verify/graph_params.h"

struct ckpt_graph_inputs {
    struct ckpt_array *at; /* of each input of the graph; empty: a parameter, or None */
    size_t n;
    const char *origin; /* "recorded", "sample" or "seeded" */
};
void ckpt_graph_inputs_fini(struct ckpt_graph_inputs *in); /* zeroed is fine */
#define ckpt_auto_graph_inputs ckpt_graph_inputs_fini
/* -ENOENT with a sentence if there are none; -EINVAL if they don't fit the graph. */
int ckpt_graph_inputs_find(struct ckpt_verification *v, const struct ckpt_graph *g,
                           const struct ckpt_checkpoint *own, struct ckpt_graph_inputs *in,
                           struct ckpt_err *err) CKPT_CHECKED;

#endif
