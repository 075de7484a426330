#ifndef CKPT_VERIFY_FORWARD_H
#define CKPT_VERIFY_FORWARD_H
/*
 * Forwards: layers of several operations, each written twice. PyTorch's (torch_*.c) names its
 * parameters as PyTorch does, burn's (burn_*.c) as burn does, and takes what the mount shows under
 * that name, wherever it came from: a rule that swaps two names cannot agree with itself.
 *
 *     names a parameter        source run                       served run
 *     PyTorch's forward        the source tensor of that key    layout=torch: the file of that key
 *     burn's forward           -                                layout=burn: the file of that key
 *
 * Inputs and the result are batches first, [B, L, E]; attributes are the plan's arguments.
 */
#include "verify/plan.h"
#include "verify/source.h"

/* Where a forward finds its parameters. */
struct ckpt_scope {
    const struct ckpt_plan *plan;
    struct ckpt_reader *reader;
    struct ckpt_exec *exec;
    enum ckpt_side side;
    bool burn;            /* burn's forward: a Linear's weight is [in, out] */
    struct ckpt_text key; /* what stands before its names: the layer's path, or the served prefix */
};

/* A parameter of either run. Not moved or copied once bound; zeroed is empty. */
struct ckpt_bound {
    struct ckpt_source_param source;
    struct ckpt_served_param from_mount;
    struct ckpt_param *param; /* NULL: none */
};
void ckpt_bound_fini(struct ckpt_bound *b);
#define ckpt_auto_bound ckpt_bound_fini
/* Binds to the source that t shows, or to what it serves. */
int ckpt_bound_init(struct ckpt_bound *b, const struct ckpt_adapted *t, enum ckpt_side side,
                    struct ckpt_reader *reader, struct ckpt_err *err) CKPT_CHECKED;

/* A visitor of names; true: it has seen enough. */
typedef bool ckpt_name_fn(void *to, const char *name);

typedef int ckpt_forward_fn(const struct ckpt_scope *s, const struct ckpt_inputs *in,
                            struct ckpt_array *out, struct ckpt_err *err);

struct ckpt_forward {
    ckpt_forward_fn *torch, *burn;
    /* Visits the parameters that the forward needs, in PyTorch's names or burn's; what is optional
     * is needed if the source has it. True: the visitor had seen enough. */
    bool (*names)(const struct ckpt_plan *p, bool burn, ckpt_name_fn *see, void *to);
};

extern const struct ckpt_forward ckpt_forward_attention, ckpt_forward_encoder_layer,
    ckpt_forward_decoder_layer, ckpt_forward_stack, ckpt_forward_rnn;

/* Gives the plan its forward and finds its names: which are missing is its status. */
void ckpt_plan_forward(struct ckpt_plan *p, const struct ckpt_forward *f);
/* Probe i: a batch of 2 sequences of that length, as the plan's batch_first has it. */
/* Columns of the matrix of that name, as PyTorch has it. */
int64_t ckpt_plan_columns(const struct ckpt_plan *p, const char *name, int64_t otherwise);
void ckpt_plan_probe_sequence(struct ckpt_plan *p, uint32_t i, int64_t length, int64_t width);
/* Runs it on inputs as the layer takes them: unbatched, or sequences first, or batches first. */
int ckpt_forward_run(const struct ckpt_plan *plan, enum ckpt_side side, struct ckpt_reader *reader,
                     const struct ckpt_inputs *in, struct ckpt_exec *exec, struct ckpt_array *out,
                     struct ckpt_err *err) CKPT_CHECKED;

/* --- for forwards --- */

#define CKPT_NAME_MAX 128
/* "self_attn" and "weight" to "self_attn.weight"; an empty part is left out. */
const char *ckpt_name_join(char buf[CKPT_NAME_MAX], const char *module, const char *name);

/* Binds the parameter of that name, which may be absent if optional: param is then NULL. */
int ckpt_scope_bind(const struct ckpt_scope *s, const char *name, bool optional,
                    struct ckpt_bound *b, struct ckpt_err *err) CKPT_CHECKED;
/* All of it. out->store is NULL if it is absent. */
int ckpt_scope_load(const struct ckpt_scope *s, const char *name, bool optional,
                    struct ckpt_array *out, struct ckpt_err *err) CKPT_CHECKED;
int64_t ckpt_scope_int(const struct ckpt_scope *s, const char *attribute, int64_t otherwise);
double ckpt_scope_float(const struct ckpt_scope *s, const char *attribute, double otherwise);
bool ckpt_scope_bool(const struct ckpt_scope *s, const char *attribute);
const char *ckpt_scope_string(const struct ckpt_scope *s, const char *attribute); /* or NULL */

/* x W + b of the Linear module of that name, its weight in this forward's convention. */
int ckpt_scope_linear(const struct ckpt_scope *s, const char *module, const struct ckpt_array *x,
                      struct ckpt_array *out, struct ckpt_err *err) CKPT_CHECKED;
/* The LayerNorm module of that name, its eps being the attribute "eps". */
int ckpt_scope_layer_norm(const struct ckpt_scope *s, const char *module,
                          const struct ckpt_array *x, struct ckpt_array *out,
                          struct ckpt_err *err) CKPT_CHECKED;
/* The activation that the attribute "activation" names. */
int ckpt_scope_activation(const struct ckpt_scope *s, const struct ckpt_array *x,
                          struct ckpt_array *out, struct ckpt_err *err) CKPT_CHECKED;
/* x += y; both dense and of one shape. */
int ckpt_forward_add(struct ckpt_array *x, const struct ckpt_array *y,
                     struct ckpt_err *err) CKPT_CHECKED;

/* Attention of the module of that name ("": the layer itself): torch_attention.c, burn_attention.c.
 */
int ckpt_torch_attention(const struct ckpt_scope *s, const char *module,
                         const struct ckpt_array *query, const struct ckpt_array *key,
                         const struct ckpt_array *value, struct ckpt_array *out,
                         struct ckpt_err *err) CKPT_CHECKED;
int ckpt_burn_attention(const struct ckpt_scope *s, const char *module,
                        const struct ckpt_array *query, const struct ckpt_array *key,
                        const struct ckpt_array *value, struct ckpt_array *out,
                        struct ckpt_err *err) CKPT_CHECKED;
/* Its names: PyTorch calls the module `torch`, burn calls it `burn`. */
bool ckpt_attention_names(const struct ckpt_plan *p, const char *torch, const char *burn,
                          bool of_burn, ckpt_name_fn *see, void *to);
/* num_heads, batch_first and what else attention needs, of the module's attributes. */
void ckpt_plan_attention_attributes(const struct ckpt_layer *l, struct ckpt_plan *p);
bool ckpt_plan_has(const struct ckpt_plan *p, const char *module, const char *name);

ckpt_forward_fn ckpt_torch_mha, ckpt_burn_mha, ckpt_torch_encoder_layer, ckpt_burn_encoder_layer,
    ckpt_torch_decoder_layer, ckpt_burn_decoder_layer, ckpt_torch_rnn, ckpt_burn_rnn;

#endif
