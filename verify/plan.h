#ifndef CKPT_VERIFY_PLAN_H
#define CKPT_VERIFY_PLAN_H
/*
 * A plan: how to run one layer. Which operation, with which of the layer's tensors and attributes,
 * and what a probe for it looks like. Attributes that the file does not know take PyTorch's
 * defaults and are listed as assumed. A layer of several operations has a forward (forward.h)
 * instead of one.
 */
#include "verify/layer.h"
#include "verify/op.h"
#include "verify/status.h"

#define CKPT_PLAN_ARGS 8
#define CKPT_PLAN_PARAMS 5
#define CKPT_PLAN_ASSUMED 8
#define CKPT_PLAN_INPUTS 3

struct ckpt_plan_param {
    const char *arg;                   /* the operation's argument */
    const struct ckpt_adapted *tensor; /* shows the source tensor */
    const struct ckpt_adapted *served; /* what the mount has under burn's name for it */
    uint32_t ndim;
    int64_t shape[CKPT_ARRAY_NDIM_MAX]; /* in PyTorch's layout */
    bool in_out_source, in_out_served; /* of a matrix: [in, out] in the source, in what is served */
};

struct ckpt_plan_probe {
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim;
    int64_t id_limit; /* > 0: indices below it */
};

struct ckpt_forward;

/* Arguments point into the plan: it is not copied. */
struct ckpt_plan {
    const struct ckpt_layers *layers;
    const struct ckpt_layer *layer;      /* NULL: an activation by its name */
    const struct ckpt_op *op;            /* or */
    const struct ckpt_forward *forward;  /* several */
    struct ckpt_text prefix;             /* forward: what stands before its names in served keys */
    const char *input;                   /* the argument that takes the layer's input */
    struct ckpt_arg arg[CKPT_PLAN_ARGS]; /* attributes */
    int64_t ints[CKPT_PLAN_ARGS][CKPT_ARRAY_NDIM_MAX];
    uint32_t nargs;
    struct ckpt_plan_param param[CKPT_PLAN_PARAMS];
    uint32_t nparams;
    const char *assumed[CKPT_PLAN_ASSUMED];
    uint32_t nassumed;
    struct ckpt_plan_probe probe[CKPT_PLAN_INPUTS];
    uint32_t nprobes;
    struct ckpt_arg in_burn; /* instead of the one of that name, in burn; .name NULL: none */
    const char *otherwise; /* why burn's layer computes something else, if that is known; or NULL */
    enum ckpt_status status; /* PASS: can run; else why not */
    struct ckpt_reason reason;
};

/* Always fills the plan; whether it can run is its status. */
void ckpt_plan_layer(const struct ckpt_layers *layers, const struct ckpt_layer *l,
                     struct ckpt_plan *plan);
/* The plan of a parameter-free module or operation, by its class ("LeakyReLU") with the record's
 * attributes, or by an operation's name ("leaky_relu"). False: neither is known. */
bool ckpt_plan_activation(struct ckpt_text name, const struct ckpt_module *record,
                          struct ckpt_plan *plan);
/* Every name that ckpt_plan_activation takes for an operation; NULL-terminated. */
extern const char *const ckpt_activation_names[];

/* CAST: PyTorch's, its parameters rounded as the mount's cast rounds them. */
enum ckpt_side { CKPT_SIDE_TORCH, CKPT_SIDE_CAST, CKPT_SIDE_SERVED };

/* Inputs of a layer. */
struct ckpt_inputs {
    struct ckpt_array at[CKPT_PLAN_INPUTS];
    uint32_t n;
};
void ckpt_inputs_fini(struct ckpt_inputs *in);
#define ckpt_auto_inputs ckpt_inputs_fini

/* Runs the plan: PyTorch's formula on source tensors, or burn's on served bytes. */
int ckpt_plan_run(const struct ckpt_plan *plan, enum ckpt_side side, struct ckpt_reader *reader,
                  const struct ckpt_inputs *in, struct ckpt_exec *exec, struct ckpt_array *out,
                  struct ckpt_err *err) CKPT_CHECKED;
/* The seeded probe inputs; the seed is `path`. */
int ckpt_plan_make_probe(const struct ckpt_plan *plan, struct ckpt_text path,
                         struct ckpt_exec *exec, struct ckpt_inputs *out,
                         struct ckpt_err *err) CKPT_CHECKED;

/* For the files that fill plans. */
void ckpt_plan_refuse(struct ckpt_plan *p, enum ckpt_status status, const char *fmt, ...)
    CKPT_PRINTF(3, 4);
void ckpt_plan_assume(struct ckpt_plan *p, const char *attribute);
/* Whether the checkpoint has the tensor "PATH.NAME", though it is not among those shown. */
bool ckpt_plan_left_out(const struct ckpt_model *m, struct ckpt_text path, const char *name);
const struct ckpt_value *ckpt_plan_attribute(const struct ckpt_layer *l, const char *name);
void ckpt_plan_add_int(struct ckpt_plan *p, const char *arg, int64_t v);
void ckpt_plan_add_float(struct ckpt_plan *p, const char *arg, double v);
void ckpt_plan_add_bool(struct ckpt_plan *p, const char *arg, bool v);
void ckpt_plan_add_ints(struct ckpt_plan *p, const char *arg, const int64_t *v, uint32_t n);
void ckpt_plan_add_string(struct ckpt_plan *p, const char *arg, const char *v); /* not copied */
/* A bool that is the attribute's, else PyTorch's default and listed as assumed. */
bool ckpt_plan_bool(const struct ckpt_layer *l, struct ckpt_plan *p, const char *attribute,
                    bool otherwise);
/* A tuple of ints, or an int standing for n. False (with *out untouched) if it is neither. */
bool ckpt_plan_read_ints(const struct ckpt_value *v, uint32_t n, int64_t *out);

/* Conv*d and ConvTranspose*d; weight is bound already. */
void ckpt_plan_conv(const struct ckpt_layer *l, struct ckpt_plan *p, bool transposed);
/* Norms. */
void ckpt_plan_norm(const struct ckpt_layer *l, struct ckpt_plan *p);
double ckpt_plan_eps(const struct ckpt_layer *l, struct ckpt_plan *p, double otherwise);
/* Layers of several operations. */
void ckpt_plan_attention(const struct ckpt_layer *l, struct ckpt_plan *p);
void ckpt_plan_transformer_layer(const struct ckpt_layer *l, struct ckpt_plan *p);
void ckpt_plan_stack(const struct ckpt_layer *l, struct ckpt_plan *p);
void ckpt_plan_rnn(const struct ckpt_layer *l, struct ckpt_plan *p);

#endif
