#ifndef CKPT_FORMATS_GRAPH_H
#define CKPT_FORMATS_GRAPH_H
/*
 * A graph: what a model computes, as torch.export wrote it down, and nothing of the code that wrote
 * it. A table of values, each made once, by an input or by a node, and a table of nodes in the
 * order in which they run:
 *
 *     inputs                nodes                                             outputs
 *     0 fc1.weight ─┐
 *     1 fc1.bias   ─┼─► linear(input=2, weight=0, bias=1) ─► 3
 *     2 x          ─┘   relu(self=3)                      ─► 4 ─────────────► 4
 *
 * Whatever a node, or the list of outputs, refers to was made before it: there are no cycles and no
 * names left to look up. Arguments have the names of the ATen schema; those that are not given
 * are absent and take the schema's defaults. Immutable once read; any thread may use it.
 *
 *     graph_open.c  a file or an archive ──► text
 *     graph_read.c, graph_arg.c  text ──► the tables, still with names
 *     graph_link.c  names ──► indices
 *     script_*.c  TorchScript ──► the same table (script_machine.h)
 *
 * A graph of TorchScript knows less: operations have no overload (op is base is "aten.linear"),
 * arguments have a name only where the script gives one (else "", and the schema's order holds,
 * from which trailing ones may be missing), an INT may be a dtype or another enum of c10, no value
 * has a description, and of a list of outputs only those items are there that are used.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/strmap.h"
#include "base/text.h"
#include "formats/export_schema.h"
#include "formats/zip.h"

#define CKPT_GRAPH_NONE UINT32_MAX /* no value, no node */

enum ckpt_graph_type {
    CKPT_GRAPH_TENSOR,
    CKPT_GRAPH_SYM_INT,
    CKPT_GRAPH_SYM_FLOAT,
    CKPT_GRAPH_SYM_BOOL,
    CKPT_GRAPH_OBJECT, /* a custom object: nothing is known of it */
};

struct ckpt_graph_value {
    struct ckpt_text name;
    enum ckpt_graph_type type;
    uint32_t node;                       /* that makes it; NONE: an input */
    const struct ckpt_export_meta *meta; /* of a tensor, where the file has it; else NULL */
};

enum ckpt_graph_item_kind {
    CKPT_GRAPH_ITEM_NONE,
    CKPT_GRAPH_ITEM_VALUE, /* .value */
    CKPT_GRAPH_ITEM_INT,   /* .i */
    CKPT_GRAPH_ITEM_FLOAT,
    CKPT_GRAPH_ITEM_BOOL,
    CKPT_GRAPH_ITEM_TEXT,
    CKPT_GRAPH_ITEM_DTYPE,         /* .i is an enum ckpt_dtype */
    CKPT_GRAPH_ITEM_LAYOUT,        /* .i by the schema: 7 strided */
    CKPT_GRAPH_ITEM_MEMORY_FORMAT, /* .i by the schema: 1 contiguous, 2 channels last, 4 preserve */
    CKPT_GRAPH_ITEM_DEVICE,        /* .text "cpu" */
    CKPT_GRAPH_ITEM_OTHER,         /* .text the schema's name of what is not read: "as_graph" */
    CKPT_GRAPH_ITEM_NAME,          /* private to the readers: .text is still to be looked up */
};

struct ckpt_graph_item {
    uint8_t kind; /* enum ckpt_graph_item_kind */
    uint8_t type; /* enum ckpt_graph_type, of a VALUE */
    union {
        uint32_t value;
        int64_t i;
        double f;
        bool b;
        struct ckpt_text text;
    };
};

/* An argument or an output: one item, or a list of them (of one kind but for symbols among ints
 * and none among tensors). */
struct ckpt_graph_arg {
    struct ckpt_text name; /* the schema's; "" where it has none */
    bool is_list;
    uint32_t n;
    struct ckpt_graph_item *item;
};

/* The modules inside which a node ran, the outermost first. */
struct ckpt_graph_frame {
    struct ckpt_text path, cls; /* "layers.0.norm1", "torch.nn.modules.normalization.LayerNorm" */
};

struct ckpt_graph_stack {
    uint32_t n;
    const struct ckpt_graph_frame *frame;
};

struct ckpt_graph_node {
    struct ckpt_text op;   /* "aten.linear.default", "_operator.ge", or a custom one */
    struct ckpt_text base; /* without the overload: "aten.linear" */
    uint32_t nargs, nouts;
    const struct ckpt_graph_arg *arg;
    const struct ckpt_graph_arg *out;     /* items are VALUEs that this node makes, or NONE */
    const struct ckpt_graph_stack *stack; /* never NULL; n is 0 where nothing is known */
};

enum ckpt_graph_role {
    CKPT_GRAPH_USER, /* an argument of the call, or what it returns */
    CKPT_GRAPH_PARAMETER,
    CKPT_GRAPH_BUFFER,
    CKPT_GRAPH_CONSTANT, /* a tensor that is part of the code */
    CKPT_GRAPH_BAKED,    /* an argument of the call that the export fixed */
    CKPT_GRAPH_FOREIGN,  /* anything else: kind says what */
};

struct ckpt_graph_input {
    enum ckpt_graph_role role;
    struct ckpt_text kind; /* as the file calls it: "parameter", "token" */
    struct ckpt_text name; /* PARAMETER, BUFFER, CONSTANT: its full name in the model; else "" */
    bool persistent;       /* a buffer that is part of the state dict */
    struct ckpt_graph_arg arg;
};

struct ckpt_graph_output {
    enum ckpt_graph_role role; /* USER or FOREIGN */
    struct ckpt_text kind;     /* "user_output", "buffer_mutation" */
    struct ckpt_graph_arg arg;
};

struct ckpt_graph {
    struct ckpt_graph_value *value;
    size_t nvalues;
    struct ckpt_graph_node *node;
    size_t nnodes;
    struct ckpt_graph_input *input;
    size_t ninputs;
    struct ckpt_graph_output *output;
    size_t noutputs;
    const struct ckpt_graph_stack **stack; /* the different ones */
    size_t nstacks;
    int64_t schema_major, schema_minor;
    struct ckpt_text torch_version;
    /* Of a script: the tensors of its inputs of role CONSTANT, by their names; NULL: none. Owned.
     */
    struct ckpt_checkpoint *constants;
    struct ckpt_arena arena;
};

/* Of a .pt2 archive, a bare JSON file of its models/ folder, or a TorchScript archive: there
 * -EOPNOTSUPP says that what it computes hangs on more than its code and flags ("FILE, line N:
 * ..."). */
int ckpt_graph_open(const char *path, struct ckpt_graph **out, struct ckpt_err *err) CKPT_CHECKED;
/* The graph of an open archive whose entries begin with root ("archive/"): models/model.json, or
 * the only one. *out is NULL if it has none. */
int ckpt_graph_of_archive(const struct ckpt_zip *zip, struct ckpt_text root,
                          struct ckpt_graph **out, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_graph_parse(const void *json, size_t n, struct ckpt_graph **out,
                     struct ckpt_err *err) CKPT_CHECKED;
void ckpt_graph_free(struct ckpt_graph *g); /* NULL is fine */

static inline void ckpt_auto_graph(struct ckpt_graph **g) {
    ckpt_graph_free(*g);
}

/* What scripts write as numbers where the schema has a type: a dtype (NONE: unknown), a memory
 * format by the schema of torch.export (0: unknown). */
enum ckpt_dtype ckpt_graph_script_dtype(int64_t number);
int64_t ckpt_graph_script_memory_format(int64_t number);

/* The argument of that name, or NULL. */
const struct ckpt_graph_arg *ckpt_graph_arg(const struct ckpt_graph_node *node, const char *name);
/* The value that an argument is, CKPT_GRAPH_NONE if it is none; arg may be NULL. */
uint32_t ckpt_graph_arg_value(const struct ckpt_graph_arg *arg);

#endif
