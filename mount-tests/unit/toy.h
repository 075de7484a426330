#ifndef TOY_H
#define TOY_H
/*
 * Small checkpoints made in memory, and case files: text that a person can read and extend. A line
 * that begins with '#' is a comment; a blank line ends a case.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/checkpoint.h"
#include "formats/decoded_cache.h"

#define CASES FIXTURES "/../cases/"

static inline struct ckpt_path toy_path(struct ckpt_arena *a, const char *slashed) {
    char *copy = ckpt_arena_printf(a, "%s", slashed);
    struct ckpt_text *segment = ckpt_arena_array(a, 16, sizeof *segment);
    struct ckpt_path p = {.segment = segment, .n = 0};
    for (char *s = *copy ? strsep(&copy, "/") : NULL; s; s = strsep(&copy, "/"))
        segment[p.n++] = ckpt_text_of(s);
    return p;
}

static inline struct ckpt_text toy_join(struct ckpt_arena *a, struct ckpt_path p) {
    char *s = ckpt_arena_printf(a, "%s", "");
    for (uint32_t i = 0; i < p.n; i++)
        s = ckpt_arena_printf(a, "%s%s%s", s, i ? "." : "", p.segment[i].s);
    return ckpt_text_of(s);
}

/* "2,3" -> shape; "" -> a scalar. */
static inline const int64_t *toy_shape(struct ckpt_arena *a, const char *text, uint32_t *ndim) {
    int64_t *shape = ckpt_arena_array(a, 16, sizeof *shape);
    *ndim = 0;
    for (char *end; *text; text = *end ? end + 1 : end)
        shape[(*ndim)++] = strtoll(text, &end, 10);
    return shape;
}

/* A dense tensor whose elements, as 32-bit numbers, count from `first`. */
static inline struct ckpt_tensor *toy_tensor(struct ckpt_checkpoint *c, const char *path,
                                             enum ckpt_dtype dtype, const char *shape,
                                             uint32_t first) {
    struct ckpt_tensor *t = ckpt_checkpoint_add_tensor(c);
    assert_non_null(t);
    t->path = toy_path(&c->arena, path);
    t->key = toy_join(&c->arena, t->path);
    t->dtype = dtype;
    t->shape = toy_shape(&c->arena, shape, &t->ndim);
    t->module = -1;
    uint64_t count = 0, bytes = 0;
    assert_true(ckpt_shape_count(t->shape, t->ndim, &count));
    assert_true(ckpt_dtype_bytes(dtype, count, &bytes));
    uint32_t *data = ckpt_arena_alloc(&c->arena, bytes + 4);
    for (uint64_t i = 0; i < bytes / 4; i++)
        data[i] = first + (uint32_t)i;
    assert_int_equal(ckpt_blob_owned(&c->arena, data, bytes, "", &t->blob, NULL), 0);
    assert_int_equal(ckpt_checkpoint_add_blob(c, t->blob), 0);
    return t;
}

static inline int32_t toy_module(struct ckpt_checkpoint *c, const char *container, const char *path,
                                 const char *cls, int32_t parent) {
    struct ckpt_module *m = ckpt_checkpoint_add_module(c);
    assert_non_null(m);
    m->container = toy_path(&c->arena, container);
    m->path = ckpt_text_of(ckpt_arena_printf(&c->arena, "%s", path));
    m->cls = ckpt_text_of(ckpt_arena_printf(&c->arena, "%s", cls));
    m->parent = parent;
    return (int32_t)c->nmodules - 1;
}

static inline struct ckpt_checkpoint *toy_new(void) {
    struct ckpt_checkpoint *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->format = "toy";
    c->name = "toy";
    c->owns_decoded = true;
    assert_int_equal(ckpt_decoded_cache_new(CKPT_DECODED_DEFAULT, &c->decoded, NULL), 0);
    return c;
}

/* --- case files --- */

struct cases {
    FILE *f;
    const char *name;
    char line[4096];
    unsigned number; /* of the line, for messages */
};

static inline struct cases cases_open(const char *path) {
    struct cases c = {.f = fopen(path, "r"), .name = path};
    if (!c.f)
        fail_msg("%s cannot be opened", path);
    return c;
}

/* The next line of this case in c->line: true; false at its end. */
static inline bool cases_line(struct cases *c) {
    while (fgets(c->line, sizeof c->line, c->f)) {
        c->number++;
        c->line[strcspn(c->line, "\n")] = '\0';
        if (c->line[0] != '#')
            return c->line[0] != '\0';
    }
    return false;
}

/* Whether another case follows. */
static inline bool cases_more(const struct cases *c) {
    return !feof(c->f);
}

#define cases_equal(c, got, expected)                                                              \
    do {                                                                                           \
        if (strcmp(got, expected) != 0)                                                            \
            fail_msg("%s:%u: got '%s', expected '%s'", (c)->name, (c)->number, got, expected);     \
    } while (0)

#endif
