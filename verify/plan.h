#ifndef CKPT_VERIFY_PLAN_H
#define CKPT_VERIFY_PLAN_H
/*
 * A plan: how to run one layer. Which operation, with which of the layer's tensors and attributes,
 * and what a probe for it looks like. Attributes that the file does not know take PyTorch's
 * defaults and are listed as assumed.
 */
#include "verify/layer.h"
#include "verify/op.h"
#include "verify/status.h"

#define CKPT_PLAN_ARGS 8
#define CKPT_PLAN_PARAMS 5
#define CKPT_PLAN_ASSUMED 8

struct ckpt_plan_param {
    const char *arg; /* the operation's argument */
    const struct ckpt_adapted *tensor;
    uint32_t ndim;
    int64_t shape[CKPT_ARRAY_NDIM_MAX]; /* in PyTorch's layout */
    bool in_out_source, in_out_served; /* of a matrix: [in, out] in the source, in what is served */
};

/* Arguments point into the plan: it is not copied. */
struct ckpt_plan {
    const struct ckpt_op *op;
    const char *input;                   /* the argument that takes the layer's input */
    struct ckpt_arg arg[CKPT_PLAN_ARGS]; /* attributes */
    int64_t ints[CKPT_PLAN_ARGS][CKPT_ARRAY_NDIM_MAX];
    uint32_t nargs;
    struct ckpt_plan_param param[CKPT_PLAN_PARAMS];
    uint32_t nparams;
    const char *assumed[CKPT_PLAN_ASSUMED];
    uint32_t nassumed;
    int64_t probe[CKPT_ARRAY_NDIM_MAX]; /* shape of the probe input */
    uint32_t probe_ndim;
    int64_t id_limit;        /* > 0: the probe is indices below it */
    enum ckpt_status status; /* PASS: can run; else why not */
    struct ckpt_reason reason;
};

/* Always fills the plan; whether it can run is its status. */
void ckpt_plan_layer(const struct ckpt_model *m, const struct ckpt_layer *l,
                     struct ckpt_plan *plan);
/* The plan of a parameter-free module or operation, by its class ("LeakyReLU") with the record's
 * attributes, or by an operation's name ("leaky_relu"). False: neither is known. */
bool ckpt_plan_activation(struct ckpt_text name, const struct ckpt_module *record,
                          struct ckpt_plan *plan);
/* Every name that ckpt_plan_activation takes for an operation; NULL-terminated. */
extern const char *const ckpt_activation_names[];

enum ckpt_side { CKPT_SIDE_TORCH, CKPT_SIDE_SERVED };

/* Runs the plan on input: PyTorch's formula on source tensors, or burn's on served bytes. */
int ckpt_plan_run(const struct ckpt_plan *plan, enum ckpt_side side, struct ckpt_reader *reader,
                  const struct ckpt_array *input, struct ckpt_exec *exec, struct ckpt_array *out,
                  struct ckpt_err *err) CKPT_CHECKED;
/* The seeded probe input; the seed is `path`. */
int ckpt_plan_probe(const struct ckpt_plan *plan, struct ckpt_text path, struct ckpt_exec *exec,
                    struct ckpt_array *out, struct ckpt_err *err) CKPT_CHECKED;

/* For the files that fill plans. */
void ckpt_plan_refuse(struct ckpt_plan *p, enum ckpt_status status, const char *fmt, ...)
    CKPT_PRINTF(3, 4);
void ckpt_plan_assume(struct ckpt_plan *p, const char *attribute);
const struct ckpt_value *ckpt_plan_attribute(const struct ckpt_layer *l, const char *name);
void ckpt_plan_add_int(struct ckpt_plan *p, const char *arg, int64_t v);
void ckpt_plan_add_float(struct ckpt_plan *p, const char *arg, double v);
void ckpt_plan_add_bool(struct ckpt_plan *p, const char *arg, bool v);
void ckpt_plan_add_ints(struct ckpt_plan *p, const char *arg, const int64_t *v, uint32_t n);
/* A tuple of ints, or an int standing for n. False (with *out untouched) if it is neither. */
bool ckpt_plan_read_ints(const struct ckpt_value *v, uint32_t n, int64_t *out);

/* Conv*d and ConvTranspose*d; weight is bound already. */
void ckpt_plan_conv(const struct ckpt_layer *l, struct ckpt_plan *p, bool transposed);
/* Norms. */
void ckpt_plan_norm(const struct ckpt_layer *l, struct ckpt_plan *p);

#endif
