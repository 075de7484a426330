#ifndef CKPT_FORMATS_PICKLE_MAKE_H
#define CKPT_FORMATS_PICKLE_MAKE_H
/*
 * How the pickle machine makes and changes values (private, as pickle_vm.h). All functions return 0
 * or fail with a sentence that names the byte and the opcode.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/pickle.h"

struct pickle_vm;

/* A value with identity: list, tuple, set, dict, opaque object, module. All are made as this struct
 * so that an opaque object can become a dict when the stream gives it items (a dict subclass). */
struct pickle_object {
    struct ckpt_value v; /* first: a pointer to one is a pointer to the other */
    uint32_t *slot;      /* dict: open addressing, item pair index + 1; NULL while small */
    size_t nslot;        /* power of two */
    uint64_t weight;     /* torch_scan.c: nodes when written out as a tree */
    uint8_t mark;        /* torch_scan.c: enum torch_mark */
};

/* pickle_make.c: values. Each returns 0 or fails. */
int pickle_make(struct pickle_vm *vm, int kind, struct ckpt_value **out) CKPT_CHECKED;
int pickle_make_object(struct pickle_vm *vm, int kind, struct ckpt_value **out) CKPT_CHECKED;
int pickle_make_int(struct pickle_vm *vm, int64_t i, struct ckpt_value **out) CKPT_CHECKED;
int pickle_make_float(struct pickle_vm *vm, double f, struct ckpt_value **out) CKPT_CHECKED;
int pickle_make_bytes(struct pickle_vm *vm, struct ckpt_text t,
                      struct ckpt_value **out) CKPT_CHECKED; /* refers to t */
int pickle_make_left_bytes(struct pickle_vm *vm, struct ckpt_text t,
                           struct ckpt_value **out) CKPT_CHECKED;
/* UTF-8 with surrogates allowed, else an error. Copies. */
int pickle_make_str(struct pickle_vm *vm, struct ckpt_text t, struct ckpt_value **out) CKPT_CHECKED;
/* A list, tuple or set of n items (copied pointers). */
int pickle_make_seq(struct pickle_vm *vm, int kind, struct ckpt_value *const *items, size_t n,
                    struct ckpt_value **out) CKPT_CHECKED;
int pickle_make_opaque(struct pickle_vm *vm, struct ckpt_text cls,
                       struct ckpt_value **out) CKPT_CHECKED;
/* A value of a reader's own kind that points to `data`. */
int pickle_make_private(struct pickle_vm *vm, int kind, void *data,
                        struct ckpt_value **out) CKPT_CHECKED;
int pickle_make_global(struct pickle_vm *vm, struct ckpt_text module, struct ckpt_text name,
                       struct ckpt_value **out) CKPT_CHECKED;
/* parent->depth covers child; fails beyond CKPT_LIMIT_PICKLE_DEPTH. */
int pickle_deepen(struct pickle_vm *vm, struct ckpt_value *parent,
                  const struct ckpt_value *child) CKPT_CHECKED;
/* Whether s is UTF-8 in which surrogates may be encoded. */
bool pickle_utf8_valid(struct ckpt_text t);

/* pickle_text.c: the arguments that are text. */
int pickle_parse_int(struct pickle_vm *vm, struct ckpt_text t,
                     struct ckpt_value **out) CKPT_CHECKED;
int pickle_parse_float(struct pickle_vm *vm, struct ckpt_text t,
                       struct ckpt_value **out) CKPT_CHECKED;
int pickle_parse_index(struct pickle_vm *vm, struct ckpt_text t, uint64_t *out) CKPT_CHECKED;
/* 'quoted' with Python's escapes: a str if it is UTF-8, else bytes. */
int pickle_parse_quoted(struct pickle_vm *vm, struct ckpt_text t,
                        struct ckpt_value **out) CKPT_CHECKED;
int pickle_parse_raw_unicode(struct pickle_vm *vm, struct ckpt_text t,
                             struct ckpt_value **out) CKPT_CHECKED;
/* Python 2's str: a str if it is UTF-8, else bytes. */
int pickle_make_str2(struct pickle_vm *vm, struct ckpt_text t,
                     struct ckpt_value **out) CKPT_CHECKED;
/* pickle_long.c: two's complement, little-endian, any length. */
int pickle_make_long(struct pickle_vm *vm, struct ckpt_text t,
                     struct ckpt_value **out) CKPT_CHECKED;

/* pickle_dict.c: a repeated key keeps its first place and takes the last value, as in Python. */
int pickle_dict_set(struct pickle_vm *vm, struct ckpt_value *dict, struct ckpt_value *key,
                    struct ckpt_value *value) CKPT_CHECKED;

/* The value of a text key, or NULL. Unlike ckpt_value_get it takes the same time in a dict of any
 * size, which matters while the stream can make us ask again and again. */
struct ckpt_value *pickle_dict_get(const struct ckpt_value *dict, const char *key);

/* pickle_object.c */
int pickle_set_items(struct pickle_vm *vm, struct ckpt_value *target, struct ckpt_value *const *kv,
                     size_t n) CKPT_CHECKED;
int pickle_append(struct pickle_vm *vm, struct ckpt_value *target, struct ckpt_value *const *items,
                  size_t n, int kind) CKPT_CHECKED; /* kind: LIST or SET */
int pickle_build(struct pickle_vm *vm, struct ckpt_value *target,
                 struct ckpt_value *state) CKPT_CHECKED;

/* pickle_state.c: if target is of a class that is nothing but what it holds, it becomes that. */
int pickle_take_state(struct pickle_vm *vm, struct ckpt_value *target, struct ckpt_value *state,
                      bool *taken) CKPT_CHECKED;
/* Whether objects of "module.Class" are such, or bookkeeping of such. */
bool pickle_is_plain_class(struct ckpt_text cls);

static inline bool pickle_is(const struct ckpt_value *v, int kind) {
    return v && v->kind == kind;
}

/* Bytes, wherever their content is. */
static inline bool pickle_is_bytes(const struct ckpt_value *v) {
    return pickle_is(v, CKPT_VALUE_BYTES) || pickle_is(v, CKPT_PICKLE_LEFT_BYTES);
}

static inline bool pickle_is_seq(const struct ckpt_value *v) {
    return pickle_is(v, CKPT_VALUE_LIST) || pickle_is(v, CKPT_VALUE_TUPLE);
}

#endif
