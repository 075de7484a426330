#ifndef CKPT_VERIFY_OP_H
#define CKPT_VERIFY_OP_H
/*
 * Operations: one row of a table each, named and typed as in ATen, so that the nodes of a graph
 * find them by name. Arguments are bound by the names of the schema; one that is absent or None has
 * the schema's default. A parameter (a model's tensor) may stand wherever an array may.
 *
 * A new operation is a function and a row in the file of its family. In-place variants ("relu_")
 * need no row: whoever runs a graph runs "relu" and writes the result back.
 *
 * Truth values, integers and their symbols (a size) are 0-d arrays among values, and numbers among
 * arguments. float16 and bfloat16 are computed in float32, all integers in int64.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "verify/array.h"
#include "verify/param.h"

enum ckpt_arg_kind {
    CKPT_ARG_NONE,
    CKPT_ARG_ARRAY,
    CKPT_ARG_PARAM,
    CKPT_ARG_INT,
    CKPT_ARG_FLOAT,
    CKPT_ARG_BOOL,
    CKPT_ARG_INTS,
    CKPT_ARG_FLOATS,
    CKPT_ARG_STRING,
    CKPT_ARG_DTYPE, /* .i is an enum ckpt_dtype, any of them: what arrays make of it tells
                       ckpt_array_dtype */
    CKPT_ARG_LIST,  /* of arrays, parameters, or NONE */
};

struct ckpt_arg {
    const char *name; /* "weight" */
    enum ckpt_arg_kind kind;
    union {
        const struct ckpt_array *array;
        const struct ckpt_param *param;
        int64_t i;
        double f;
        bool b;
        struct {
            const int64_t *v;
            uint32_t n;
        } ints;
        struct {
            const double *v;
            uint32_t n;
        } floats;
        const char *string;
        struct {
            const struct ckpt_arg *v;
            uint32_t n;
        } list;
    };
};

/* What all operations of a run share. */
struct ckpt_exec {
    struct ckpt_memory memory; /* arrays and bands */
    uint64_t band;             /* bytes of weights or columns held at a time */
    const atomic_bool *cancel; /* may be NULL */
    bool narrowed; /* by ckpt_call_array, which took float64 as float32 for the operation that runs:
                      its results are widened again */
};

/* -EINTR once the run has been cancelled. */
int ckpt_exec_check(const struct ckpt_exec *e, struct ckpt_err *err) CKPT_CHECKED;

struct ckpt_op;

struct ckpt_call {
    const struct ckpt_op *op;
    const struct ckpt_arg *arg;
    uint32_t nargs;
    struct ckpt_exec *exec;
    struct ckpt_array *out; /* results, in the schema's order */
    uint32_t nout;          /* how many of them are wanted: at least one; of a result that is a
                               list, how many it must have */
};

struct ckpt_op {
    const char *name;   /* without namespace and overload */
    const char *schema; /* ATen's, of the overload that is meant: "max.dim(Tensor self, ..." */
    int (*run)(struct ckpt_call *c, struct ckpt_err *err);
};

/* The operations of one file, a row each; an operation of several overloads has several rows. */
struct ckpt_op_family {
    const struct ckpt_op *op;
    size_t n;
};
#define CKPT_OP_FAMILY(ops)                                                                        \
    { (ops), sizeof(ops) / sizeof((ops)[0]) }
extern const struct ckpt_op_family ckpt_family_layer;
extern const struct ckpt_op_family ckpt_family_conv;
extern const struct ckpt_op_family ckpt_family_norm;
extern const struct ckpt_op_family ckpt_family_pool;
extern const struct ckpt_op_family ckpt_family_embedding_bag;
extern const struct ckpt_op_family ckpt_family_loss;
extern const struct ckpt_op_family ckpt_family_rnn_cell;
extern const struct ckpt_op_family ckpt_family_rnn;
extern const struct ckpt_op_family ckpt_family_encoder;
extern const struct ckpt_op_family ckpt_family_attention;
extern const struct ckpt_op_family ckpt_family_shuffle;
extern const struct ckpt_op_family ckpt_family_upsample;
extern const struct ckpt_op_family ckpt_family_view;
extern const struct ckpt_op_family ckpt_family_arithmetic;
extern const struct ckpt_op_family ckpt_family_count;
extern const struct ckpt_op_family ckpt_family_product;
extern const struct ckpt_op_family ckpt_family_einsum;
extern const struct ckpt_op_family ckpt_family_scan;
extern const struct ckpt_op_family ckpt_family_sort;
extern const struct ckpt_op_family ckpt_family_extreme;
extern const struct ckpt_op_family ckpt_family_reduce;
extern const struct ckpt_op_family ckpt_family_matmul;
extern const struct ckpt_op_family ckpt_family_softmax;
extern const struct ckpt_op_family ckpt_family_activation;
extern const struct ckpt_op_family ckpt_family_clamp;
extern const struct ckpt_op_family ckpt_family_unary;
extern const struct ckpt_op_family ckpt_family_slice;
extern const struct ckpt_op_family ckpt_family_window;
extern const struct ckpt_op_family ckpt_family_compare;
extern const struct ckpt_op_family ckpt_family_cast;
extern const struct ckpt_op_family ckpt_family_scalar;
extern const struct ckpt_op_family ckpt_family_number;
extern const struct ckpt_op_family ckpt_family_create;
extern const struct ckpt_op_family ckpt_family_random;
extern const struct ckpt_op_family ckpt_family_join;
extern const struct ckpt_op_family ckpt_family_repeat;
extern const struct ckpt_op_family ckpt_family_pad;
extern const struct ckpt_op_family ckpt_family_index;
extern const struct ckpt_op_family ckpt_family_gather;
extern const struct ckpt_op_family ckpt_family_where;

const struct ckpt_op *ckpt_op_at(size_t i);                /* of all; NULL: no more */
const struct ckpt_op *ckpt_op_find(struct ckpt_text name); /* its first row; NULL: none */
/* "max", "dim"; "relu", "" or "default". NULL: none. */
const struct ckpt_op *ckpt_op_find_overload(struct ckpt_text name, struct ckpt_text overload);
/* Runs op; *out is the (first) result. A sentence in err begins with the operation's name. */
int ckpt_op_run(const struct ckpt_op *op, const struct ckpt_arg *arg, uint32_t nargs,
                struct ckpt_exec *exec, struct ckpt_array *out, struct ckpt_err *err) CKPT_CHECKED;
/* The same for an operation of several results: out[0] to out[nout - 1]. */
int ckpt_op_run_all(const struct ckpt_op *op, const struct ckpt_arg *arg, uint32_t nargs,
                    struct ckpt_exec *exec, struct ckpt_array *out, uint32_t nout,
                    struct ckpt_err *err) CKPT_CHECKED;

/* For the operations themselves. An argument that is absent or None: */
const struct ckpt_arg *ckpt_call_arg(const struct ckpt_call *c, const char *name); /* NULL */
int64_t ckpt_call_int(const struct ckpt_call *c, const char *name, int64_t otherwise);
double ckpt_call_float(const struct ckpt_call *c, const char *name, double otherwise);
bool ckpt_call_bool(const struct ckpt_call *c, const char *name, bool otherwise);
/* n integers; a single one stands for all. */
int ckpt_call_ints(const struct ckpt_call *c, const char *name, uint32_t n, int64_t otherwise,
                   int64_t *out, struct ckpt_err *err) CKPT_CHECKED;
/* A list of up to CKPT_ARRAY_NDIM_MAX integers; a single one is a list; absent: none. */
int ckpt_call_list(const struct ckpt_call *c, const char *name, int64_t *out, uint32_t *n,
                   struct ckpt_err *err) CKPT_CHECKED;
/* A number, 0-d arrays included. */
struct ckpt_scalar {
    enum ckpt_dtype dtype; /* F64, I64 or BOOL; NONE: absent */
    int64_t i;             /* of I64 and BOOL */
    double f;              /* of any */
};
/* A 0-d array over a number, which must outlive it; a truth value becomes 0 or 1. */
struct ckpt_array ckpt_scalar_array(const struct ckpt_scalar *s);
struct ckpt_scalar ckpt_call_scalar(const struct ckpt_call *c, const char *name);
enum ckpt_dtype ckpt_call_dtype(const struct ckpt_call *c, const char *name,
                                enum ckpt_dtype otherwise);
/* A dimension of an array of ndim, negative ones counted from its end. */
int ckpt_call_dim(const struct ckpt_call *c, const char *name, int64_t otherwise, uint32_t ndim,
                  uint32_t *out, struct ckpt_err *err) CKPT_CHECKED;
/* The same, of an array that must have dimensions. */
int ckpt_call_real_dim(const struct ckpt_call *c, const char *name, uint32_t ndim, uint32_t *out,
                       struct ckpt_err *err) CKPT_CHECKED;
/* A list of dimensions of an array of ndim, each at most once. */
int ckpt_call_dims(const struct ckpt_call *c, const char *name, uint32_t ndim, uint32_t *out,
                   uint32_t *n, struct ckpt_err *err) CKPT_CHECKED;
/* Shape and dtype alone of an argument that must be there: no data, and no parameter is loaded. */
int ckpt_call_form(const struct ckpt_call *c, const char *name, struct ckpt_array *out,
                   struct ckpt_err *err) CKPT_CHECKED;
/* The argument as it is: any dtype and strides, shared; loaded if it is a parameter; *out is empty
 * if absent. */
int ckpt_call_optional(const struct ckpt_call *c, const char *name, struct ckpt_array *out,
                       struct ckpt_err *err) CKPT_CHECKED;
/* The same, but it must be there. */
int ckpt_call_tensor(const struct ckpt_call *c, const char *name, struct ckpt_array *out,
                     struct ckpt_err *err) CKPT_CHECKED;
/* Item i of a list, which must be an array or a parameter. */
int ckpt_call_item(const struct ckpt_call *c, const char *name, uint32_t i, struct ckpt_array *out,
                   struct ckpt_err *err) CKPT_CHECKED;
/* A dense float32 array, loaded if it is a parameter; *out is empty (dtype NONE) if absent. Float64
 * is narrowed: operations that ask for float32 only compute in it. */
int ckpt_call_array(const struct ckpt_call *c, const char *name, struct ckpt_array *out,
                    struct ckpt_err *err) CKPT_CHECKED;
/* The same, but it must be there. */
int ckpt_call_input(const struct ckpt_call *c, const char *name, struct ckpt_array *out,
                    struct ckpt_err *err) CKPT_CHECKED;
/* A vector of n, or absent. */
int ckpt_call_vector(const struct ckpt_call *c, const char *name, int64_t n, struct ckpt_array *out,
                     struct ckpt_err *err) CKPT_CHECKED;
/* A parameter or array as a parameter; *hold keeps the dense array behind it. */
int ckpt_call_param(const struct ckpt_call *c, const char *name, struct ckpt_array *hold,
                    struct ckpt_param *out, struct ckpt_err *err) CKPT_CHECKED;
/* The result, of this shape. */
int ckpt_call_result(struct ckpt_call *c, const int64_t *shape, uint32_t ndim,
                     struct ckpt_err *err) CKPT_CHECKED;
/* Result i, of any dtype. */
int ckpt_call_new(struct ckpt_call *c, uint32_t i, enum ckpt_dtype dtype, const int64_t *shape,
                  uint32_t ndim, struct ckpt_err *err) CKPT_CHECKED;
/* The result is a number. */
int ckpt_call_give(struct ckpt_call *c, struct ckpt_scalar s, struct ckpt_err *err) CKPT_CHECKED;
/* Result i is a view, whose reference this takes. One that shows more elements than the run's
 * memory could hold is refused: whoever walks it would not end. */
int ckpt_call_view(struct ckpt_call *c, uint32_t i, struct ckpt_array view,
                   struct ckpt_err *err) CKPT_CHECKED;
/* How many of `rows` rows of `row_bytes` bytes each are held at a time: at least one. */
int64_t ckpt_call_band(const struct ckpt_call *c, int64_t rows, int64_t row_bytes);
/* Dimensions as BLAS takes them: false if one is beyond its 32 bits. */
bool ckpt_blas_fits(int64_t a, int64_t b, int64_t c);

int ckpt_op_linear(struct ckpt_call *c, struct ckpt_err *err);
int ckpt_op_embedding(struct ckpt_call *c, struct ckpt_err *err);
int ckpt_op_flatten(struct ckpt_call *c, struct ckpt_err *err);
int ckpt_op_prelu(struct ckpt_call *c, struct ckpt_err *err);
int ckpt_op_prelu_kernel(struct ckpt_call *c, struct ckpt_err *err);

#endif
