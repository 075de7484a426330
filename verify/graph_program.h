#ifndef CKPT_VERIFY_GRAPH_PROGRAM_H
#define CKPT_VERIFY_GRAPH_PROGRAM_H
/*
 * A program: a graph whose nodes have found their operations, and whose values know when they are
 * used last. Made once, run as often as one likes, on whatever stands for the parameters:
 *
 *     graph      linear(input=%2, weight=%0, bias=%1) -> %3
 *     program    op "linear", names "input" "weight" "bias"; %2 dies here
 *     run        arrays and parameters for %0 %1 %2        -> an array for %3
 *
 * Immutable; it refers to the graph, which must outlive it.
 */
#include "formats/graph.h"
#include "verify/op.h"
#include "verify/status.h"

struct ckpt_step {
    const struct ckpt_op *op;
    bool in_place;     /* "relu_": the result is written into self */
    const char **name; /* of each argument, in the schema's words; NULL: it is not handed over */
    uint32_t nresults;
};

struct ckpt_program {
    const struct ckpt_graph *graph;
    struct ckpt_step *step; /* of each node */
    uint32_t *last; /* of each value: the node that uses it last; NONE: an output, or none */
    bool *used;     /* of each value: by a node or as an output */
    bool writes;    /* some step is in place */
    struct ckpt_arena arena;
};

/* -EOPNOTSUPP with a sentence that lists the operations which the checker lacks, or says why a
 * graph cannot be run at all (training mode, mutated buffers, custom objects). */
int ckpt_program_make(const struct ckpt_graph *g, struct ckpt_program *p,
                      struct ckpt_err *err) CKPT_CHECKED;
void ckpt_program_fini(struct ckpt_program *p); /* zeroed is fine */
#define ckpt_auto_program ckpt_program_fini

/* What runs on: for each input of the graph an array, a parameter, or nothing (None). */
struct ckpt_run_value {
    struct ckpt_array array;
    struct ckpt_param param;
    bool is_param;
};

/* Runs it: out gets the n tensors among the graph's outputs, as float32, float64, int64 or BOOL
 * arrays. A sentence in err names the node and the module in which it stands. */
int ckpt_program_run(const struct ckpt_program *p, const struct ckpt_run_value *input,
                     struct ckpt_exec *exec, struct ckpt_array *out, uint32_t n,
                     struct ckpt_err *err) CKPT_CHECKED;
/* How many tensors the outputs hold. */
uint32_t ckpt_program_outputs(const struct ckpt_program *p);
/* The dtype that the graph says an output has; NONE: it doesn't say. */
enum ckpt_dtype ckpt_program_output_dtype(const struct ckpt_program *p, uint32_t output);

#endif
