#include "formats/torch.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/pickle_vm.h"

/*
 * The value graph of a checkpoint, walked in file order:
 *
 *     tensor                          a tensor under its path
 *     module                          its state dict (torch_module.c)
 *     container without tensors       one of the values, and its opaque objects as notes
 *     container with tensors          its items, each one segment further down
 *     opaque object with a state      as a dict of that state, and a note of its class; one that
 *                                     holds tensors is walked where it is met first
 *     one made of others              as a tuple of them where there are tensors (named tuples)
 *     container met inside itself     listed as unsupported
 */

#define VALUE_DEPTH_MAX 50  /* the JSON writer nests 60 deep */
#define KEY_WEIGHT_MAX 1000 /* nodes in a dict key whose repr becomes a segment */

int torch_walk_count(struct torch_walk *w, uint64_t n) {
    w->nodes += n;
    if (w->nodes <= CKPT_LIMIT_WALK_NODES)
        return 0;
    return ckpt_fail(w->err, -E2BIG,
                     "more than %u values in the checkpoint (limit of visited values)",
                     CKPT_LIMIT_WALK_NODES);
}

struct ckpt_path torch_walk_path(const struct torch_walk *w) {
    struct ckpt_text *s = ckpt_arena_array(&w->r->c->arena, w->depth, sizeof *s);
    if (s && w->depth)
        memcpy(s, w->segment, w->depth * sizeof *s);
    return (struct ckpt_path){.segment = s, .n = w->depth, .bare = w->bare};
}

void torch_walk_enter(struct torch_walk *w, struct ckpt_text segment, bool bare) {
    if (w->depth < 32)
        w->bare = (w->bare & ~(UINT32_C(1) << w->depth)) | (uint32_t)bare << w->depth;
    w->segment[w->depth++] = segment;
}

static int push(struct torch_walk *w, struct ckpt_text segment, bool bare) {
    if (!segment.s)
        return ckpt_fail_memory(w->err, "walking the checkpoint");
    if (w->depth >= CKPT_LIMIT_PICKLE_DEPTH)
        return ckpt_fail(w->err, -E2BIG, "values nested more than %u deep (limit of pickle depth)",
                         CKPT_LIMIT_PICKLE_DEPTH);
    torch_walk_enter(w, segment, bare);
    return 0;
}

/* PREFIX, i, SUFFIX. */
static struct ckpt_text index_segment(struct ckpt_arena *a, const char *prefix, size_t i,
                                      const char *suffix) {
    const char *s = ckpt_arena_printf(a, "%s%zu%s", prefix, i, suffix);
    return (struct ckpt_text){s, s ? strlen(s) : 0};
}

/* A dict key as a segment: its Python repr, or its place where that would be no text. */
static int push_key(struct torch_walk *w, struct ckpt_value *key, size_t i) {
    struct ckpt_arena *a = &w->r->c->arena;
    enum torch_mark mark;
    uint64_t weight;
    const int rc = torch_scan(a, key, 0, &mark, &weight, w->err);
    if (rc)
        return rc;
    const bool has_repr = key->kind == CKPT_VALUE_STR ||
                          (mark == TORCH_PLAIN && weight <= KEY_WEIGHT_MAX &&
                           key->kind != CKPT_VALUE_OPAQUE && key->depth <= VALUE_DEPTH_MAX);
    return push(w, has_repr ? ckpt_value_path_segment(a, key) : index_segment(a, "<key ", i, ">"),
                key->kind != CKPT_VALUE_STR);
}

static int push_item(struct torch_walk *w, const struct ckpt_value *container, size_t i) {
    if (container->kind == CKPT_VALUE_DICT)
        return push_key(w, container->seq.item[2 * i], i);
    return push(w, index_segment(&w->r->c->arena, "", i, ""), true);
}

static size_t item_count(const struct ckpt_value *container) {
    return container->kind == CKPT_VALUE_DICT ? container->seq.n / 2 : container->seq.n;
}

static struct ckpt_value *item_at(const struct ckpt_value *container, size_t i) {
    return container->seq.item[container->kind == CKPT_VALUE_DICT ? 2 * i + 1 : i];
}

static bool is_container(const struct ckpt_value *v) {
    return v->kind == CKPT_VALUE_LIST || v->kind == CKPT_VALUE_TUPLE || v->kind == CKPT_VALUE_SET ||
           v->kind == CKPT_VALUE_DICT;
}

static int note(struct torch_walk *w, int rc) {
    return rc ? ckpt_fail_memory(w->err, "listing what the checkpoint holds") : 0;
}

static int leave_out(struct torch_walk *w, const char *reason) {
    const struct ckpt_path path = torch_walk_path(w);
    return note(w, !path.segment ||
                       ckpt_checkpoint_add_unsupported(w->r->c, path, ckpt_text_of(reason)) != 0);
}

typedef int visit_fn(struct torch_walk *w, struct ckpt_value *v);

/* The items of a container, or what the state of an object holds. */
static int each_item(struct torch_walk *w, const struct ckpt_value *v, visit_fn *visit) {
    const struct ckpt_value *container = ckpt_value_shown(v);
    for (size_t i = 0; i < item_count(container); i++) {
        int rc = push_item(w, container, i);
        if (rc == 0)
            rc = visit(w, item_at(container, i));
        if (rc)
            return rc;
        w->depth--;
    }
    return 0;
}

static int note_class(struct torch_walk *w, const struct ckpt_value *v) {
    const struct ckpt_path path = torch_walk_path(w);
    return note(w, !path.segment || ckpt_checkpoint_add_opaque(w->r->c, path, v->text) != 0);
}

/* Notes the opaque objects in a part without tensors. Its weight was counted before. */
static int note_opaque(struct torch_walk *w, struct ckpt_value *v) {
    const int rc = v->kind == CKPT_VALUE_OPAQUE ? note_class(w, v) : 0;
    if (rc || v->depth == 0 || !(is_container(v) || torch_has_content(v)))
        return rc;
    return each_item(w, v, note_opaque);
}

static int add_value(struct torch_walk *w, struct ckpt_value *v, uint64_t weight) {
    if (v->depth > VALUE_DEPTH_MAX)
        return leave_out(w, "plain values nested too deep to be shown as JSON");
    if (weight > CKPT_LIMIT_WALK_NODES - w->nodes)
        return leave_out(w, "plain values too many to be shown as JSON");
    w->nodes += weight;
    const struct ckpt_path path = torch_walk_path(w);
    const int rc = note(w, !path.segment || ckpt_checkpoint_add_value(w->r->c, path, v) != 0);
    return rc ? rc : note_opaque(w, v);
}

/* Lists the tensors below an attribute that nothing shows. Objects in cycles are met on the path.
 */
static int list_hidden(struct torch_walk *w, struct ckpt_value *v) {
    static const char reason[] =
        "in an attribute of a dict, list, set or tensor, of which only the "
        "items or elements are served";
    struct pickle_object *o = (struct pickle_object *)v;
    enum torch_mark mark;
    uint64_t weight;
    int rc = torch_walk_count(w, 1);
    if (rc)
        return rc;
    if (v->kind == CKPT_PICKLE_TENSOR || v->kind == CKPT_VALUE_MODULE)
        return leave_out(w, reason);
    rc = torch_scan(&w->r->c->arena, v, 0, &mark, &weight, w->err);
    if (rc || mark != TORCH_MIXED)
        return rc;
    o->mark = TORCH_ON_PATH;
    rc = each_item(w, v, list_hidden);
    o->mark = TORCH_MIXED;
    return rc;
}

int torch_walk_attributes(struct torch_walk *w, const struct ckpt_value *v) {
    if (v->kind == CKPT_VALUE_OPAQUE || !pickle_is(v->attributes, CKPT_VALUE_DICT))
        return 0;
    return list_hidden(w, v->attributes);
}

static int walk(struct torch_walk *w, struct ckpt_value *v);

static int walk_mixed(struct torch_walk *w, struct ckpt_value *v) {
    struct pickle_object *o = (struct pickle_object *)v;
    const bool is_object = v->kind == CKPT_VALUE_OPAQUE;
    int rc = is_object ? note_class(w, v) : 0;
    o->mark = TORCH_ON_PATH;
    if (rc == 0)
        rc = each_item(w, v, walk);
    if (rc == 0)
        rc = torch_walk_attributes(w, v);
    o->mark = is_object ? TORCH_WALKED : TORCH_MIXED;
    return rc;
}

static int walk_tensor(struct torch_walk *w, const struct ckpt_value *v) {
    const struct ckpt_path path = torch_walk_path(w);
    if (!path.segment)
        return ckpt_fail_memory(w->err, "walking the checkpoint");
    const int rc = torch_tensor_add(w->r, path, v->format, -1, w->err);
    return rc ? rc : torch_walk_attributes(w, v);
}

static int walk(struct torch_walk *w, struct ckpt_value *v) {
    enum torch_mark mark;
    uint64_t weight;
    int rc = torch_walk_count(w, 1);
    if (rc)
        return rc;
    if (v->kind == CKPT_PICKLE_TENSOR)
        return walk_tensor(w, v);
    if (v->kind == CKPT_VALUE_MODULE)
        return torch_module_read(w, v);
    rc = torch_scan(&w->r->c->arena, v, 0, &mark, &weight, w->err);
    if (rc)
        return rc;
    switch (mark) {
    case TORCH_ON_PATH:
        return leave_out(w, "a container that contains itself");
    case TORCH_MIXED:
        return walk_mixed(w, v);
    case TORCH_WALKED:
        return note_class(w, v);
    default:
        return add_value(w, v, weight);
    }
}

/* As Python would write it below the checkpoint: ['m'][1]. */
static const char *python_path(struct ckpt_arena *a, struct ckpt_path p) {
    CKPT_AUTO(str) struct ckpt_str out = {0};
    for (uint32_t i = 0; i < p.n; i++) {
        const bool is_bare = i < 32 && p.bare >> i & 1;
        ckpt_str_puts(&out, "[");
        if (is_bare)
            ckpt_str_add(&out, p.segment[i].s, p.segment[i].n);
        else
            ckpt_value_quote(&out, p.segment[i]);
        ckpt_str_puts(&out, "]");
    }
    const struct ckpt_text text = ckpt_str_text(&out);
    const char *s = out.failed ? NULL : ckpt_text_copy(a, text.s, text.n).s;
    return s ? s : "?";
}

static int fail_twice(struct ckpt_checkpoint *c, const struct ckpt_tensor *one,
                      const struct ckpt_tensor *other, struct ckpt_err *err) {
    return ckpt_fail(err, -EINVAL,
                     "two tensors have the key \"%.*s\": %.300s and %.300s; save the checkpoint "
                     "with another name for one of them",
                     one->key.n < 300 ? (int)one->key.n : 300, one->key.s,
                     python_path(&c->arena, one->path), python_path(&c->arena, other->path));
}

int torch_tree_check(struct ckpt_checkpoint *c, struct ckpt_err *err) {
    CKPT_AUTO(strmap) struct ckpt_strmap seen = {0};
    for (size_t i = 0; i < c->ntensors; i++) {
        size_t other;
        const struct ckpt_tensor *t = &c->tensors[i];
        const int rc = ckpt_strmap_add(&seen, t->key, i, &other);
        if (rc == -EEXIST)
            return fail_twice(c, &c->tensors[other], t, err);
        if (rc)
            return ckpt_fail_memory(err, "comparing keys");
    }
    return 0;
}

int torch_tree_add(struct torch_reader *r, struct ckpt_path path, struct ckpt_value *v,
                   struct ckpt_err *err) {
    CKPT_AUTO(free) struct torch_walk *w = calloc(1, sizeof *w);
    if (!w)
        return ckpt_fail_memory(err, "walking the checkpoint");
    w->r = r;
    w->err = err;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < path.n; i++)
        rc = push(w, path.segment[i], i < 32 && path.bare >> i & 1);
    if (rc)
        return rc;
    /* Paths repeat the keys above them: a long key above many tensors must not fill the memory. */
    r->c->arena.limit = r->c->arena.used + CKPT_LIMIT_WALK_ARENA;
    rc = walk(w, v);
    r->c->arena.limit = 0;
    if (rc == -ENOMEM && r->c->arena.exceeded)
        return ckpt_fail(err, -E2BIG,
                         "the paths of what the checkpoint holds need more than %u bytes of memory "
                         "(limit of path memory)",
                         CKPT_LIMIT_WALK_ARENA);
    return rc;
}

int torch_tree_read(struct torch_reader *r, struct ckpt_value *root, struct ckpt_err *err) {
    const int rc = torch_tree_add(r, (struct ckpt_path){0}, root, err);
    return rc ? rc : torch_tree_check(r->c, err);
}
