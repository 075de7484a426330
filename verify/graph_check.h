#ifndef CKPT_VERIFY_GRAPH_CHECK_H
#define CKPT_VERIFY_GRAPH_CHECK_H
/* A graph that is being checked (private to graph_check.c and properties.c). */
#include "verify/graph_inputs.h"

struct ckpt_graph_check {
    struct ckpt_verification *v;
    const struct ckpt_graph *graph;
    const struct ckpt_checkpoint *own;  /* the graph's file as a checkpoint; NULL: a bare graph */
    struct ckpt_checkpoint *opened_own; /* the same, if it had to be opened */
    struct ckpt_program program;
    struct ckpt_graph_inputs inputs;
    struct ckpt_array torch[CKPT_OUTPUTS_MAX], served[CKPT_OUTPUTS_MAX];
    uint32_t noutputs;
};

/* One run, on an array (or nothing) for each input of the graph; out gets c->noutputs arrays. */
int ckpt_graph_check_run(struct ckpt_graph_check *c, enum ckpt_side side,
                         const struct ckpt_array *input, struct ckpt_array *out,
                         struct ckpt_err *err) CKPT_CHECKED;
/* After both runs: what must hold of outputs when inputs change (properties.c). */
int ckpt_properties_check(struct ckpt_graph_check *c, struct ckpt_err *err) CKPT_CHECKED;

#endif
