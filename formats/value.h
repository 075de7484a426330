#ifndef CKPT_FORMATS_VALUE_H
#define CKPT_FORMATS_VALUE_H
/*
 * What a checkpoint holds beside tensors: an immutable graph of plain values. A value is data and
 * nothing else: none ever leads to a call. Values are shared by pointer and may be cyclic (a
 * hostile pickle); whoever walks one bounds depth and count.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/text.h"

enum ckpt_value_kind {
    CKPT_VALUE_NONE,
    CKPT_VALUE_BOOL,
    CKPT_VALUE_INT,    /* fits int64 */
    CKPT_VALUE_BIGINT, /* decimal digits in .text */
    CKPT_VALUE_FLOAT,
    CKPT_VALUE_STR, /* .text; UTF-8, lone surrogates as their three bytes */
    CKPT_VALUE_BYTES,
    CKPT_VALUE_LIST,
    CKPT_VALUE_TUPLE,
    CKPT_VALUE_SET,
    CKPT_VALUE_DICT,   /* items: key, value, key, value... in insertion order */
    CKPT_VALUE_GLOBAL, /* .text: "module.name", a class or function, never looked up */
    CKPT_VALUE_OPAQUE, /* an object of a class we do not interpret: .text names it */
    CKPT_VALUE_TENSOR, /* .tensor: index in the checkpoint's tensors */
    CKPT_VALUE_MODULE, /* a torch.nn.Module; .text its class; attributes in the module table */
    CKPT_VALUE_FORMAT, /* kinds private to a reader from here on */
};

struct ckpt_value {
    uint8_t kind; /* enum ckpt_value_kind */
    bool b;
    uint32_t depth; /* height above its deepest leaf when it was made; bounds recursion */
    union {
        int64_t i;
        double f;
        struct ckpt_text text;
        size_t tensor;
        struct {
            struct ckpt_value **item;
            size_t n, cap; /* n counts keys and values both in a dict */
        } seq;
        void *format; /* CKPT_VALUE_FORMAT and above */
    };
    /* OPAQUE: what it shows as: a dict of its state, or its constructor as text; NULL: its class's
     * name. Containers: attributes beside the items, never shown. MODULE: its state. */
    struct ckpt_value *attributes;
};

/* The value of a string key in a dict, or NULL. Linear. */
struct ckpt_value *ckpt_value_get(const struct ckpt_value *dict, const char *key);
/* How a dict key shows in a path: a string as it is, anything else its Python repr (1, True,
 * (1, 2)). Lone surrogates are percent-encoded. */
struct ckpt_text ckpt_value_path_segment(struct ckpt_arena *a, const struct ckpt_value *key);
/* Adds the text as a string in Python's quotes. */
void ckpt_value_quote(struct ckpt_str *out, struct ckpt_text t);
/* "module.Class(1, 'a')": a call with the arguments in a tuple. */
struct ckpt_text ckpt_value_call(struct ckpt_arena *a, struct ckpt_text callee,
                                 const struct ckpt_value *args);
/* The value that v shows as: of an opaque object what stands for it, else v itself. The parts that
 * an object was made of, a tuple, stand for it only where .b says so. */
static inline const struct ckpt_value *ckpt_value_shown(const struct ckpt_value *v) {
    const bool is_shown = v->kind == CKPT_VALUE_OPAQUE && v->attributes &&
                          (v->attributes->kind != CKPT_VALUE_TUPLE || v->b);
    return is_shown ? v->attributes : v;
}
/* JSON: tuples and sets as arrays, keys that are not strings by their Python repr, big ints in
 * full, non-finite floats as strings, opaque objects as the state they hold or else as a string
 * ("module.Class"), bytes as an array of numbers. False: it was cut at CKPT_LIMIT_VALUE_JSON_BYTES
 * or at the writer's depth, and shows "..." there. */
bool ckpt_value_json(struct ckpt_json_out *w, const struct ckpt_value *v);

#endif
