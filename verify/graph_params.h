#ifndef CKPT_VERIFY_GRAPH_PARAMS_H
#define CKPT_VERIFY_GRAPH_PARAMS_H
/*
 * A graph's parameters, buffers and constants, and where each run has them from:
 *
 *     the graph's input        torch run                     burn run
 *     parameter, buffer        the checkpoint's tensor       what the mount shows of it, by the
 * reader: as it is, or transposed         streamed attention's and RNNs' packed tensors, from
 * burn's names      joined cut by a rule                   read back constant, and a buffer   the
 * graph's own file          the same that no state dict has
 *
 * Names are the state dict's, of the model inside the checkpoint. None is guessed.
 */
#include "formats/graph.h"
#include "verify/graph_program.h"
#include "verify/run.h"
#include "verify/source.h"

enum ckpt_graph_from {
    CKPT_FROM_NOWHERE, /* missing */
    CKPT_FROM_MODEL,   /* shown by the mount */
    CKPT_FROM_HIDDEN,  /* in the checkpoint, but not shown: both runs take the source's bytes */
    CKPT_FROM_GRAPH,   /* the graph's own file */
};

enum ckpt_graph_served {
    CKPT_SERVED_AS_IS,
    CKPT_SERVED_TURNED,    /* a matrix, transposed */
    CKPT_SERVED_JOINED,    /* from what burn has instead */
    CKPT_SERVED_READ_BACK, /* through the inverse of what was done: proves nothing but its bytes */
};

#define CKPT_NAMES_LISTED 1000 /* in each list of the report */

struct ckpt_graph_param {
    const struct ckpt_graph_input *input; /* NULL: an argument of the call */
    uint32_t value;                       /* of the graph */
    bool used;                            /* by a node, or as an output */
    enum ckpt_dtype dtype;                /* of arrays, that the graph computes with */
    enum ckpt_graph_from from;
    enum ckpt_graph_served served;
    const struct ckpt_adapted *tensor; /* FROM_MODEL: shows it, or a part of it */
    const struct ckpt_tensor *raw;     /* FROM_HIDDEN, FROM_GRAPH */
    const struct ckpt_tensor *own;     /* the graph file's own copy; NULL: it has none */
    bool ill_shaped, differs;          /* against the graph; against its own copy */
};

struct ckpt_graph_params {
    struct ckpt_graph_param *at; /* of each input of the graph */
    size_t n;
    size_t missing, ill_shaped, used, unused, differs, read_back, not_served;
    size_t broken_ties; /* pairs that are one tensor in the graph's file, two in the checkpoint */
    struct ckpt_text broken[2];   /* the first */
    struct ckpt_text *unexpected; /* keys of the model that the graph has no input for */
    size_t nunexpected;
    struct ckpt_arena arena;
};

/* own: the graph file's own tensors (of its weights and of its code), or NULL. */
int ckpt_graph_params_find(const struct ckpt_verification *v, const struct ckpt_program *p,
                           const struct ckpt_checkpoint *own, struct ckpt_graph_params *params,
                           struct ckpt_err *err) CKPT_CHECKED;
/* The tensor of the checkpoint; NULL: it has none. */
const struct ckpt_tensor *ckpt_graph_param_source(const struct ckpt_graph_param *p);
/* Whether two tensors of one file show the same elements. */
bool ckpt_graph_param_tied(const struct ckpt_tensor *a, const struct ckpt_tensor *b);
/* Sets broken_ties and broken. */
int ckpt_graph_params_check_ties(struct ckpt_graph_params *params,
                                 struct ckpt_err *err) CKPT_CHECKED;
void ckpt_graph_params_fini(struct ckpt_graph_params *params);
#define ckpt_auto_graph_params ckpt_graph_params_fini

/* One run's parameters. Not moved; zeroed is fine. */
struct ckpt_graph_bounds {
    struct ckpt_bound_input *at;
    size_t n;
};
void ckpt_graph_bounds_fini(struct ckpt_graph_bounds *b);
#define ckpt_auto_graph_bounds ckpt_graph_bounds_fini
/* Binds what the graph uses to value[], one for each input; the call's arguments are left alone. */
int ckpt_graph_params_bind(struct ckpt_verification *v, const struct ckpt_graph_params *params,
                           enum ckpt_side side, struct ckpt_graph_bounds *b,
                           struct ckpt_run_value *value, struct ckpt_err *err) CKPT_CHECKED;

/* The packed tensor that PyTorch has for what burn has under several names: CKPT_SERVED_JOINED.
 * False: burn has the tensor itself. */
bool ckpt_graph_is_joined(const struct ckpt_layers *layers, const struct ckpt_adapted *t);
int ckpt_graph_join(const struct ckpt_layers *layers, const struct ckpt_adapted *t,
                    struct ckpt_reader *reader, struct ckpt_exec *exec, struct ckpt_array *out,
                    struct ckpt_err *err) CKPT_CHECKED;
/* The packed tensor read back from every tensor that shows a part of it. */
int ckpt_graph_read_back(const struct ckpt_layers *layers, const struct ckpt_adapted *t,
                         struct ckpt_reader *reader, struct ckpt_exec *exec, struct ckpt_array *out,
                         struct ckpt_err *err) CKPT_CHECKED;
/* All of a served tensor, in the dtype that arrays have for it. */
int ckpt_served_load(struct ckpt_reader *reader, const struct ckpt_adapted *t,
                     struct ckpt_memory *memory, struct ckpt_array *out,
                     struct ckpt_err *err) CKPT_CHECKED;

#endif
