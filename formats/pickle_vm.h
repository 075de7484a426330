#ifndef CKPT_FORMATS_PICKLE_VM_H
#define CKPT_FORMATS_PICKLE_VM_H
/*
 * Inside the pickle machine (private to pickle_*.c and torch_*.c).
 *
 *     bytes ──► pickle_read.c: opcode + argument ──► pickle_vm.c: table row ──► its handler
 *                                                                                │
 *            stack of values, marks ◄── pickle_stack.c        pickle_object.c ◄──┤ items, BUILD
 *            memo (hash map)        ◄── pickle_memo.c         pickle_call.c   ◄──┘ calls
 *
 * Work is bounded three ways: every opcode eats at least a byte of the stream; every value made and
 * every 64 bytes hashed is charged against CKPT_LIMIT_PICKLE_OBJECTS; memory comes from an arena
 * with a limit. Values are shared by pointer and never copied.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "formats/limits.h"
#include "formats/pickle_make.h"

struct pickle_vm;

/* What a call may make. Leaves *out NULL if these arguments have no meaning to us: the result is
 * then an opaque object. Fails only for what damages the stream. */
typedef int pickle_call_fn(struct pickle_vm *vm, const struct ckpt_value *args,
                           struct ckpt_value **out);

struct pickle_call {
    const char *module, *name;
    pickle_call_fn *run;
};

/* A class or function named by the stream. `call` is its row in the table of known calls or NULL,
 * found by module and name exactly. */
struct pickle_global {
    struct ckpt_value v; /* .text "module.name" */
    struct ckpt_text module, name;
    const struct pickle_call *call;
    size_t listed; /* its place in hooks->globals, or CKPT_GLOBAL_NONE */
};

struct pickle_stack {
    struct ckpt_value **item;
    size_t n, cap;
    size_t *mark; /* heights at which marks lie */
    size_t nmark, mark_cap;
};

struct pickle_memo_slot {
    uint64_t key; /* memo index + 1; 0: free */
    struct ckpt_value *value;
};

struct pickle_memo {
    struct ckpt_value **dense; /* entries 0 .. n-1 */
    size_t n, room;
    struct pickle_memo_slot *slot; /* all others */
    size_t used, cap;
    size_t count; /* different indices in all */
};

struct pickle_arg {
    uint64_t u;
    int64_t i;
    double f;
    struct ckpt_text text, text2; /* point into the stream, no NUL behind them */
};

enum pickle_arg_kind {
    PICKLE_ARG_NONE,
    PICKLE_ARG_U8,
    PICKLE_ARG_U16,
    PICKLE_ARG_I32,
    PICKLE_ARG_U32,
    PICKLE_ARG_U64,
    PICKLE_ARG_F64, /* big-endian */
    PICKLE_ARG_LINE,
    PICKLE_ARG_LINES, /* two of them */
    PICKLE_ARG_BYTES1,
    PICKLE_ARG_BYTES4,
    PICKLE_ARG_BYTES4_SIGNED,
    PICKLE_ARG_BYTES8,
};

struct pickle_op {
    const char *name; /* NULL: no such opcode */
    enum pickle_arg_kind arg;
    int (*run)(struct pickle_vm *vm, const struct pickle_arg *arg);
};

struct pickle_vm {
    struct ckpt_buf in;
    size_t op_at;
    const struct pickle_op *op;
    bool stopped;
    struct ckpt_value *result;
    struct pickle_stack stack;
    struct pickle_memo memo;
    struct ckpt_arena *arena;
    const struct ckpt_pickle_hooks *hooks;
    uint64_t charged;
    uint64_t nested_bytes; /* given to nested_storage so far */
    struct ckpt_value *none, *boolean[2], *small[256];
    struct ckpt_err *err;
};

extern const struct pickle_op ckpt_pickle_ops[256];

/* "pickle byte 12 (REDUCE): ..." */
int pickle_fail(struct pickle_vm *vm, const char *fmt, ...) CKPT_PRINTF(2, 3);
/* Out of memory or over the arena's limit. */
int pickle_fail_memory(struct pickle_vm *vm);
/* Counts n units of work; fails over the limit. */
int pickle_charge(struct pickle_vm *vm, uint64_t n) CKPT_CHECKED;

/* pickle_read.c. False if the stream ends too soon; a negative length sets *negative. */
bool pickle_read_arg(struct ckpt_buf *in, enum pickle_arg_kind kind, struct pickle_arg *arg,
                     bool *negative);

/* pickle_stack.c. Pops never cross the last mark. */
int pickle_push(struct pickle_vm *vm, struct ckpt_value *v) CKPT_CHECKED;
int pickle_pop(struct pickle_vm *vm, struct ckpt_value **v) CKPT_CHECKED;
int pickle_top(struct pickle_vm *vm, struct ckpt_value **v) CKPT_CHECKED;
int pickle_push_mark(struct pickle_vm *vm) CKPT_CHECKED;
/* The items above the last mark; both leave the stack, the pointer stays valid until a push. */
int pickle_pop_mark(struct pickle_vm *vm, struct ckpt_value ***items, size_t *n) CKPT_CHECKED;
void pickle_stack_fini(struct pickle_stack *s);

/* pickle_memo.c */
int pickle_memo_put(struct pickle_vm *vm, uint64_t key, struct ckpt_value *v) CKPT_CHECKED;
struct ckpt_value *pickle_memo_get(const struct pickle_memo *m, uint64_t key); /* or NULL */
void pickle_memo_fini(struct pickle_memo *m);

/* pickle_call.c. `args` is what the stream gives as argument tuple, whatever it is. */
int pickle_call_apply(struct pickle_vm *vm, const struct ckpt_value *callee,
                      struct ckpt_value *args, struct ckpt_value **out) CKPT_CHECKED;
const struct pickle_call *pickle_call_find(struct ckpt_text module, struct ckpt_text name);
extern const struct pickle_call pickle_calls_python[], pickle_calls_plain[], pickle_calls_numpy[],
    pickle_calls_torch[];
/* torch._utils._rebuild_* that we do not know: a tensor that can't be served. */
extern const struct pickle_call pickle_call_unknown_rebuild;
/* What an object without a dict of attributes consists of: a tuple, which shows
 * only where torch_scan.c finds tensors in it. */
int pickle_keep_parts(struct pickle_vm *vm, struct ckpt_value *object,
                      struct ckpt_value *parts) CKPT_CHECKED;
/* The attributes in a state (or NULL): a dict, or (dict or None, dict of slots); else NULL. */
struct ckpt_value *pickle_state_dict(struct ckpt_value *state);
/* What BUILD does to a numpy array or dtype. */
int pickle_build_numpy(struct pickle_vm *vm, struct ckpt_value *target,
                       const struct ckpt_value *state) CKPT_CHECKED;

/* Arguments by position; NULL beyond the last. args is a TUPLE. */
static inline struct ckpt_value *pickle_arg_at(const struct ckpt_value *args, size_t i) {
    return i < args->seq.n ? args->seq.item[i] : NULL;
}

#endif
