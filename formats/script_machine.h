#ifndef CKPT_FORMATS_SCRIPT_MACHINE_H
#define CKPT_FORMATS_SCRIPT_MACHINE_H
/*
 * Following a script without running it (private to script_*.c). Everything that is known from the
 * archive alone has its value: numbers, texts, lists, the objects of data.pkl. What only a run
 * knows (tensors, and numbers taken from them) is a value of the graph, and an operation on it a
 * node:
 *
 *     fc1 = self.fc1                    OBJECT "fc1" of class Linear
 *     x = (fc1).forward(x, )            its method is followed in turn
 *       w = self.weight                 GRAPH 1, the input "fc1.weight"
 *       return torch.linear(x, w, b)    node aten.linear(0, 1, 2), GRAPH 3
 *
 *     script_run.c       statements, calls of functions and methods
 *     script_eval.c      expressions
 *     script_builtin.c   annotate, int, getattr ...
 *     script_op.c        torch.NAME and ops.NS.NAME ──► nodes, or values where all is known
 *     script_object.c    values of the pickles
 *     script_arg.c       values ──► arguments of the graph
 *
 * Bounds: every statement and expression is a step, and nesting of all kinds is counted.
 */
#include "formats/script_graph.h"
#include "formats/script_source.h"
#include "formats/value.h"

enum script_value_kind {
    SCRIPT_VALUE_UNSET, /* a slot to which nothing was assigned */
    SCRIPT_VALUE_NONE,
    SCRIPT_VALUE_BOOL,
    SCRIPT_VALUE_INT,
    SCRIPT_VALUE_FLOAT,
    SCRIPT_VALUE_TEXT,
    SCRIPT_VALUE_DEVICE, /* .text */
    SCRIPT_VALUE_GRAPH,  /* .value, .type */
    SCRIPT_VALUE_LIST,
    SCRIPT_VALUE_TUPLE,
    SCRIPT_VALUE_DICT,   /* .list: key, value, key, value... */
    SCRIPT_VALUE_OBJECT, /* .object */
    SCRIPT_VALUE_GLOBAL, /* .text "__torch__.net.helper": a function */
};

struct script_object {
    const struct ckpt_value *value; /* of data.pkl */
    const struct script_class *cls; /* NULL: no source defines it */
    const struct script_file *file;
    struct ckpt_text path; /* "layers.0"; "" for the root */
};

struct script_list;

struct script_value {
    uint8_t kind;  /* enum script_value_kind */
    uint8_t type;  /* GRAPH: enum ckpt_graph_type */
    bool integral; /* GRAPH: a tensor or number that is certainly an integer */
    union {
        bool b;
        int64_t i;
        double f;
        struct ckpt_text text;
        uint32_t value;
        struct script_list *list;
        const struct script_object *object;
    };
};

/* Lists are shared by whoever refers to them, and can grow. */
struct script_list {
    struct script_value *item;
    size_t n, cap;
    bool is_open;  /* made by `node`: it has n items that are in use, and maybe more */
    uint8_t type;  /* of the items of one that is made by a node */
    uint32_t node; /* CKPT_GRAPH_NONE: written down in the script */
    const struct script_class *cls; /* a named tuple's */
};

struct script_actual {
    struct ckpt_text name; /* "": positional */
    struct script_value value;
};

/* The actual arguments of a call; on the heap. */
struct script_actuals {
    struct script_actual *item;
    uint32_t n;
};

struct script_frame {
    struct script_value *slot;
    struct script_value result;
    bool returned;
};

struct script_machine {
    struct script_source source;
    struct script_graph graph;
    struct ckpt_arena arena;            /* code and values */
    const struct ckpt_value *constants; /* CONSTANTS; NULL: none */
    /* Told of each tensor that is no part of the state dict, with the name of its input. */
    int (*keep)(void *user, struct ckpt_text name, const struct ckpt_value *tensor,
                struct ckpt_err *err);
    void *user;
    struct ckpt_err *err;
    /* private: */
    uint64_t steps;
    unsigned depth;
    const struct script_function *function; /* being followed, and its line */
    uint32_t line;
    const struct ckpt_graph_stack *stack; /* the modules inside which that is */
};

/* --- script_run.c */

/* The graph of `forward` of the root object. The machine, whose private part is zero, is done with
 * afterwards; script_machine_fini frees it. */
int script_follow(struct script_machine *m, const struct ckpt_value *root,
                  struct ckpt_graph **out) CKPT_CHECKED;
void script_machine_fini(struct script_machine *m);
#define ckpt_auto_script_machine script_machine_fini

/* What the function returns. self may be NULL. */
int script_call(struct script_machine *m, const struct script_function *f,
                const struct script_value *self, const struct script_actuals *actuals,
                struct script_value *out) CKPT_CHECKED;

/* "code/__torch__/net.py, line 12: ..." */
int script_fail(const struct script_machine *m, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);
int script_fail_memory(const struct script_machine *m);
/* Counts n steps. */
int script_step(struct script_machine *m, uint64_t n) CKPT_CHECKED;
/* One level deeper; undone by m->depth--. */
int script_enter(struct script_machine *m) CKPT_CHECKED;

/* --- script_eval.c */

/* frame NULL: a constant of a class. */
int script_eval(struct script_machine *m, const struct script_frame *frame,
                const struct script_expr *e, struct script_value *out) CKPT_CHECKED;
/* The same of a call whose node makes so many values, which come as a tuple; 0: as the operation
 * is known to. */
int script_eval_call(struct script_machine *m, const struct script_frame *frame,
                     const struct script_expr *e, uint32_t nouts,
                     struct script_value *out) CKPT_CHECKED;
int script_eval_actuals(struct script_machine *m, const struct script_frame *frame,
                        const struct script_expr *call, struct script_actuals *out) CKPT_CHECKED;
void script_actuals_fini(struct script_actuals *a);
#define ckpt_auto_script_actuals script_actuals_fini
/* "torch.add" of an expression that begins with a name outside the function; false: it does not, or
 * the name is too long. */
#define SCRIPT_DOTTED_MAX 512
bool script_eval_dotted(const struct script_frame *frame, const struct script_expr *e,
                        char out[static SCRIPT_DOTTED_MAX]);

/* --- script_builtin.c: a call of "annotate" and its kin. *known is false if it is none. */
int script_builtin(struct script_machine *m, const struct script_frame *frame, const char *name,
                   const struct script_expr *call, struct script_value *out,
                   bool *known) CKPT_CHECKED;

/* --- script_alias.c: "aten.add" of torch.add, "aten.gt" of torch.greater. */
#define SCRIPT_OP_NAME_MAX (SCRIPT_DOTTED_MAX + 32)
void script_op_name(const char *name, char out[static SCRIPT_OP_NAME_MAX]);

/* --- script_op.c: an operation, "aten.add". nouts as in script_eval_call. */
int script_op(struct script_machine *m, const char *name, const struct script_actuals *actuals,
              uint32_t nouts, struct script_value *out) CKPT_CHECKED;
/* The node for an operation that makes one value of that type. */
int script_op_node(struct script_machine *m, const char *name, const struct script_actuals *actuals,
                   enum ckpt_graph_type type, struct script_value *out) CKPT_CHECKED;

/* --- script_fold.c: the value of an operation whose operands are all known. *known is false if
 * they are not, or if it is none that is ever computed here. */
int script_fold(struct script_machine *m, const char *name, const struct script_actuals *actuals,
                struct script_value *out, bool *known) CKPT_CHECKED;

/* --- script_list.c */

int script_list_new(struct script_machine *m, enum script_value_kind kind, size_t n,
                    struct script_value *out) CKPT_CHECKED; /* n items, unset */
int script_list_append(struct script_machine *m, struct script_list *list,
                       struct script_value item) CKPT_CHECKED;
/* The item of that index, which may count from the end. */
int script_list_get(struct script_machine *m, const struct script_value *list, int64_t index,
                    struct script_value *out) CKPT_CHECKED;
/* Fails unless it has n items; one whose length only a run knows gets them. */
int script_list_expect(struct script_machine *m, const struct script_value *list,
                       size_t n) CKPT_CHECKED;
/* Fails where only a run knows the length. */
int script_list_close(const struct script_machine *m, const struct script_value *list) CKPT_CHECKED;
bool script_is_list(const struct script_value *v); /* or a tuple */

/* --- script_object.c */

int script_object_root(struct script_machine *m, const struct ckpt_value *v,
                       struct script_value *out) CKPT_CHECKED;
int script_object_attribute(struct script_machine *m, const struct script_value *object,
                            struct ckpt_text name, struct script_value *out) CKPT_CHECKED;
/* CONSTANTS.cN */
int script_object_constant(struct script_machine *m, struct ckpt_text name,
                           struct script_value *out) CKPT_CHECKED;
bool script_object_is_module(const struct script_object *o);

/* --- script_arg.c: as an argument, in the graph's arena; `name` is of the argument. */
int script_arg(struct script_machine *m, struct ckpt_text name, const struct script_value *v,
               struct ckpt_graph_arg *out) CKPT_CHECKED;

static inline bool script_is_graph(const struct script_value *v, enum ckpt_graph_type type) {
    return v->kind == SCRIPT_VALUE_GRAPH && v->type == type;
}

static inline struct script_value script_graph_value(uint32_t value, enum ckpt_graph_type type) {
    return (struct script_value){.kind = SCRIPT_VALUE_GRAPH, .type = (uint8_t)type, .value = value};
}

static inline struct script_value script_bool(bool b) {
    return (struct script_value){.kind = SCRIPT_VALUE_BOOL, .b = b};
}

static inline struct script_value script_int(int64_t i) {
    return (struct script_value){.kind = SCRIPT_VALUE_INT, .i = i};
}

#endif
