#ifndef CKPT_UNIT_SCRIPT_WORLD_H
#define CKPT_UNIT_SCRIPT_WORLD_H
/*
 * A module for scripts that tests write: one text is the source of "__torch__", another of
 * "__torch__.lib", and the objects are always these:
 *
 *     M   w, b (tensors)  cache (a tensor)  counts (a tensor of integers)  training False
 *         times 3  eps 0.5  nothing None  sizes [2, 3]  both (1, [w's like])
 *         sub, "0": one Sub, with w and training      alien: an object without source
 *     CONSTANTS.c0 a tensor of floats, c1 of integers
 *
 * Which of them are parameters or buffers the source of class M says.
 */
#include <string.h>

#include "formats/script_machine.h"
#include "formats/torch.h"

struct script_world {
    struct ckpt_text code, lib;
    struct ckpt_arena arena;
};

static struct ckpt_value *world_new(struct script_world *w, int kind) {
    struct ckpt_value *v = ckpt_arena_alloc(&w->arena, sizeof *v);
    v->kind = (uint8_t)kind;
    return v;
}

static struct ckpt_value *world_text(struct script_world *w, int kind, const char *text) {
    struct ckpt_value *v = world_new(w, kind);
    v->text = ckpt_text_of(text);
    return v;
}

static struct ckpt_value *world_int(struct script_world *w, int64_t i) {
    struct ckpt_value *v = world_new(w, CKPT_VALUE_INT);
    v->i = i;
    return v;
}

static struct ckpt_value *world_tensor(struct script_world *w, enum ckpt_dtype dtype) {
    struct ckpt_value *v = world_new(w, CKPT_PICKLE_TENSOR);
    struct torch_tensor *t = ckpt_arena_alloc(&w->arena, sizeof *t);
    t->dtype = dtype;
    v->format = t;
    return v;
}

static struct ckpt_value *world_seq(struct script_world *w, int kind, size_t n) {
    struct ckpt_value *v = world_new(w, kind);
    v->seq.item = ckpt_arena_array(&w->arena, n, sizeof(struct ckpt_value *));
    v->seq.cap = n;
    return v;
}

static void world_add(struct ckpt_value *seq, struct ckpt_value *v) {
    seq->seq.item[seq->seq.n++] = v;
}

static void world_set(struct script_world *w, struct ckpt_value *object, const char *name,
                      struct ckpt_value *v) {
    world_add(object->attributes, world_text(w, CKPT_VALUE_STR, name));
    world_add(object->attributes, v);
}

static struct ckpt_value *world_object(struct script_world *w, const char *cls) {
    struct ckpt_value *v = world_text(w, CKPT_VALUE_OPAQUE, cls);
    v->attributes = world_seq(w, CKPT_VALUE_DICT, 32);
    world_set(w, v, "training", world_new(w, CKPT_VALUE_BOOL));
    return v;
}

static struct ckpt_value *world_root(struct script_world *w) {
    struct ckpt_value *root = world_object(w, "__torch__.M"), *both, *sizes, *inner, *eps;
    struct ckpt_value *sub = world_object(w, "__torch__.Sub");
    world_set(w, sub, "w", world_tensor(w, CKPT_DT_F32));
    world_set(w, root, "w", world_tensor(w, CKPT_DT_F32));
    world_set(w, root, "b", world_tensor(w, CKPT_DT_F32));
    world_set(w, root, "cache", world_tensor(w, CKPT_DT_F32));
    world_set(w, root, "counts", world_tensor(w, CKPT_DT_I64));
    world_set(w, root, "times", world_int(w, 3));
    world_set(w, root, "eps", eps = world_new(w, CKPT_VALUE_FLOAT));
    eps->f = 0.5;
    world_set(w, root, "nothing", world_new(w, CKPT_VALUE_NONE));
    world_set(w, root, "sizes", sizes = world_seq(w, CKPT_VALUE_LIST, 2));
    world_add(sizes, world_int(w, 2));
    world_add(sizes, world_int(w, 3));
    world_set(w, root, "both", both = world_seq(w, CKPT_VALUE_TUPLE, 2));
    world_add(both, world_int(w, 1));
    world_add(both, inner = world_seq(w, CKPT_VALUE_LIST, 1));
    world_add(inner, world_tensor(w, CKPT_DT_F32));
    world_set(w, root, "sub", sub);
    world_set(w, root, "0", sub);
    world_set(w, root, "alien", world_object(w, "__torch__.elsewhere.Alien"));
    return root;
}

static int world_read(void *user, struct ckpt_text module, struct ckpt_text *name,
                      struct ckpt_text *text, struct ckpt_err *err) {
    const struct script_world *w = user;
    (void)err;
    *name = CKPT_TEXT("code");
    if (ckpt_text_is(module, "__torch__"))
        *text = w->code;
    else if (ckpt_text_is(module, "__torch__.lib"))
        *text = w->lib;
    return 0;
}

static int world_follow(struct script_world *w, struct ckpt_graph **out, struct ckpt_err *err) {
    struct ckpt_value *constants = world_seq(w, CKPT_VALUE_TUPLE, 2);
    struct script_machine m = {
        .source = {.read = world_read, .user = w}, .constants = constants, .err = err};
    world_add(constants, world_tensor(w, CKPT_DT_F32));
    world_add(constants, world_tensor(w, CKPT_DT_I64));
    const int rc = script_follow(&m, world_root(w), out);
    script_machine_fini(&m);
    ckpt_arena_fini(&w->arena);
    return rc;
}

#endif
