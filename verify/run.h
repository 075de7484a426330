#ifndef CKPT_VERIFY_RUN_H
#define CKPT_VERIFY_RUN_H
/* One verification: what the parts share, and what each leaves for the report. */
#include "verify/bytes.h"
#include "verify/diff.h"
#include "verify/plan.h"
#include "verify/reference.h"

#define CKPT_LAYERS_LISTED 1000

struct ckpt_layer_result {
    const struct ckpt_layer *layer;
    enum ckpt_status status;
    struct ckpt_reason reason;
    bool compared;             /* torch against served */
    double max_abs;            /* of that */
    double cast_max;           /* what the cast alone changes: the source's floats against served */
    enum ckpt_status recorded; /* of both runs against the recorded output; SKIP: none */
    double torch_max, served_max; /* of those */
    const char *assumed[CKPT_PLAN_ASSUMED];
    uint32_t nassumed;
};

struct ckpt_layers_result {
    enum ckpt_status status;
    struct ckpt_layer_result *at; /* at most CKPT_LAYERS_LISTED; rather bad ones than good ones */
    size_t n, total, probed, recorded;
    const struct ckpt_layer *most_cast; /* the layer of the largest cast_max; NULL: no cast */
    double cast_max;
    uint64_t parameters; /* tensors that a probe read */
    bool truncated;
};

#define CKPT_RUNS_MAX 3

struct ckpt_run_result {
    const char *name; /* "torch-vs-recorded" */
    char output[16];  /* "output.0" */
    struct ckpt_diff diff;
    enum ckpt_status status;
    enum ckpt_dtype dtype; /* whose tolerance it is held to; NONE: the one of all */
};

struct ckpt_chain_result {
    enum ckpt_status status; /* SKIP: no chain */
    struct ckpt_reason reason;
    struct ckpt_run_result run[CKPT_RUNS_MAX];
    uint32_t nruns;
    uint32_t steps;
    const char *text;      /* "fc1:relu:fc2", as given or as an nn.Sequential says; NULL: none */
    char *found;           /* the same, if it had to be written; owned */
    bool seeded;           /* the input is a probe, not a recorded one */
    uint32_t more_outputs; /* recorded ones that a chain doesn't compute */
};

#define CKPT_OUTPUTS_MAX 64 /* of a graph that are compared */

struct ckpt_graph_params;

#define CKPT_PROPERTIES_MAX 6

struct ckpt_property {
    const char *name; /* "causal" */
    enum ckpt_status status;
    struct ckpt_reason detail;
};

struct ckpt_graph_result {
    enum ckpt_status status;
    struct ckpt_reason reason;
    const char *file; /* base name; NULL: none */
    bool own;         /* the source's, rather than one given or beside it */
    size_t nodes, operations;
    struct ckpt_run_result *run; /* up to three an output */
    uint32_t nruns, noutputs, more_outputs;
    const char *inputs; /* "recorded", "sample" (the graph's own), "seeded"; NULL: it did not run */
    struct ckpt_graph_params *params; /* NULL: not looked for */
    struct ckpt_property property[CKPT_PROPERTIES_MAX];
    uint32_t nproperties;
};

#define CKPT_STAGES_MAX 16

struct ckpt_stage {
    const char *name;
    double seconds;
};

struct ckpt_verification {
    const struct ckpt_model *model;
    const struct ckpt_verify_options *options;
    struct ckpt_reader *reader;
    struct ckpt_exec exec;
    struct ckpt_layers layers;
    struct ckpt_reference reference;
    struct ckpt_bytes_result bytes;
    struct ckpt_layers_result layer;
    struct ckpt_chain_result chain;
    struct ckpt_graph_result graph;
    enum ckpt_status status;
    struct ckpt_stage stage[CKPT_STAGES_MAX]; /* for people, not for the report: what took long */
    uint32_t nstages;
};

/* What stands between the two is timed; stages may lie inside one another. */
uint32_t ckpt_stage_begin(struct ckpt_verification *v, const char *name);
void ckpt_stage_end(struct ckpt_verification *v, uint32_t stage);

/* Each fills its result; negative only for -EINTR and real lack of memory. */
int ckpt_verify_layers(struct ckpt_verification *v, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_verify_chain(struct ckpt_verification *v, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_verify_graph(struct ckpt_verification *v, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_graph_result_fini(struct ckpt_graph_result *g);
/* Sets chain.text: what the options say, else what an nn.Sequential's modules say, unless there is
 * a graph. */
void ckpt_chain_choose(struct ckpt_verification *v);
/* How many outputs were compared with recorded ones. */
size_t ckpt_graph_recorded(const struct ckpt_graph_result *g);
/* After the layers are found: what of the reference cannot be compared, as its reason. */
void ckpt_verify_reference(struct ckpt_verification *v);
/* Compares two outputs that the model has in this dtype (NONE: unknown); the status of *r says
 * whether they are close. r->name and r->output are the caller's. */
int ckpt_run_compare(const struct ckpt_verify_options *o, enum ckpt_dtype dtype,
                     const struct ckpt_array *ref, const struct ckpt_array *out,
                     struct ckpt_run_result *r, struct ckpt_err *err) CKPT_CHECKED;
/* Which status a failed operation makes: what can't be done is skipped, what went wrong is not. */
enum ckpt_status ckpt_verify_failure(int rc);

/* Appends the JSON. */
void ckpt_report_write(const struct ckpt_verification *v, struct ckpt_str *out);

#endif
