/*
 * Literals of TorchScript's source, as torch prints them:
 *
 *     2    1.0000000000000001e-05    True    None    "zeros"    (2, 2)    (16,)    [1, 2]
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/torch_script.h"

#define DEPTH_MAX 4
#define NUMBER_MAX 64 /* characters */
#define ITEMS_MAX 64

struct literal {
    struct ckpt_text rest;
    struct ckpt_arena *arena;
    bool memory; /* ran out of it */
};

static struct ckpt_value *new_value(struct literal *l, enum ckpt_value_kind kind) {
    struct ckpt_value *const v = ckpt_arena_alloc(l->arena, sizeof *v);
    l->memory = l->memory || !v;
    if (v)
        v->kind = (uint8_t)kind;
    return v;
}

static bool take(struct literal *l, const char *word) {
    if (!ckpt_text_starts(l->rest, word))
        return false;
    l->rest.s += strlen(word);
    l->rest.n -= strlen(word);
    return true;
}

static struct ckpt_value *read_number(struct literal *l) {
    static const char characters[] = "+-.0123456789e";
    char number[NUMBER_MAX], *end = number;
    size_t n = 0;
    while (n < l->rest.n && n < sizeof number - 1 &&
           memchr(characters, l->rest.s[n], sizeof characters - 1))
        n++;
    memcpy(number, l->rest.s, n);
    number[n] = '\0';
    if (n == 0)
        return NULL;
    l->rest.s += n;
    l->rest.n -= n;
    const bool is_float = strpbrk(number, ".e");
    struct ckpt_value *const v = new_value(l, is_float ? CKPT_VALUE_FLOAT : CKPT_VALUE_INT);
    errno = 0;
    if (v && is_float)
        v->f = strtod(number, &end);
    else if (v)
        v->i = strtoll(number, &end, 10);
    return v && !*end && !errno ? v : NULL;
}

static struct ckpt_value *read_string(struct literal *l) {
    const char *const end = memchr(l->rest.s, '"', l->rest.n);
    const size_t n = end ? (size_t)(end - l->rest.s) : 0;
    if (!end || memchr(l->rest.s, '\\', n))
        return NULL;
    struct ckpt_value *const v = new_value(l, CKPT_VALUE_STR);
    if (v)
        v->text = (struct ckpt_text){l->rest.s, n};
    l->rest.s += n + 1;
    l->rest.n -= n + 1;
    return v;
}

static struct ckpt_value *read_value(struct literal *l, unsigned depth);

static struct ckpt_value *read_items(struct literal *l, enum ckpt_value_kind kind,
                                     const char *close, unsigned depth) {
    struct ckpt_value *item[ITEMS_MAX], *const v = new_value(l, kind);
    size_t n = 0;
    while (v && n < ITEMS_MAX && !ckpt_text_starts(l->rest, close)) {
        item[n] = read_value(l, depth + 1);
        if (!item[n++] || (!take(l, ", ") && !take(l, ",") && !ckpt_text_starts(l->rest, close)))
            return NULL;
    }
    if (!v || !take(l, close))
        return NULL;
    v->seq.item = ckpt_arena_array(l->arena, n, sizeof *v->seq.item);
    l->memory = l->memory || !v->seq.item;
    if (v->seq.item && n)
        memcpy(v->seq.item, item, n * sizeof *item);
    v->seq.n = v->seq.cap = n;
    return v;
}

static struct ckpt_value *read_value(struct literal *l, unsigned depth) {
    struct ckpt_value *v = NULL;
    if (depth > DEPTH_MAX)
        return NULL;
    if (take(l, "None"))
        return new_value(l, CKPT_VALUE_NONE);
    if (take(l, "("))
        return read_items(l, CKPT_VALUE_TUPLE, ")", depth);
    if (take(l, "["))
        return read_items(l, CKPT_VALUE_LIST, "]", depth);
    if (take(l, "\""))
        return read_string(l);
    const bool yes = take(l, "True");
    if (!yes && !take(l, "False"))
        return read_number(l);
    v = new_value(l, CKPT_VALUE_BOOL);
    if (v)
        v->b = yes;
    return v;
}

int torch_script_constant(struct ckpt_arena *a, struct ckpt_text literal, struct ckpt_value **out,
                          struct ckpt_err *err) {
    struct literal l = {.rest = literal, .arena = a};
    *out = read_value(&l, 0);
    if (l.memory)
        return ckpt_fail_memory(err, "reading TorchScript code");
    if (l.rest.n)
        *out = NULL;
    return 0;
}
