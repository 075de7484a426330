#include "formats/torch.h"

#include <errno.h>

#include "formats/pickle_vm.h"

/*
 * A whole torch.nn.Module in a pickle -> what its state_dict() would list, in its order: own
 * parameters, own persistent buffers, then the children's, each name prefixed by the child's. Tied
 * weights and shared modules appear under every name. Hooks and overridden state_dict() methods are
 * code and not applied. Every module also gets a row in the module table, with its class and its
 * plain attributes (stride, eps, num_heads ...).
 *
 *     container path        one segment
 *     ["ema"]           +   "layers.0.norm1" "." "weight"
 */

#define ATTRIBUTE_ITEMS_MAX 16
#define ATTRIBUTE_DEPTH_MAX 2

/* Where a module hangs. */
struct place {
    struct ckpt_text path, name;
    int32_t parent;
    unsigned depth;
};

static int read_module(struct torch_walk *w, struct ckpt_value *module, struct place at);

/* "prefix.name", or the name alone below the root. */
static struct ckpt_text dotted(struct torch_walk *w, struct ckpt_text prefix,
                               struct ckpt_text name) {
    if (prefix.n == 0)
        return name;
    char *s = ckpt_arena_array(&w->r->c->arena, prefix.n + name.n + 2, 1);
    if (!s)
        return (struct ckpt_text){NULL, 0};
    memcpy(s, prefix.s, prefix.n);
    s[prefix.n] = '.';
    memcpy(s + prefix.n + 1, name.s, name.n);
    return (struct ckpt_text){s, prefix.n + 1 + name.n};
}

/* Sets the one segment below the container; undone by w->depth--. */
static int push_entry(struct torch_walk *w, const struct place *at, struct ckpt_text name,
                      struct ckpt_path *path) {
    const struct ckpt_text segment = dotted(w, at->path, name);
    if (!segment.s)
        return ckpt_fail_memory(w->err, "reading modules");
    torch_walk_enter(w, segment, false);
    *path = torch_walk_path(w);
    w->depth--;
    return path->segment ? 0 : ckpt_fail_memory(w->err, "reading modules");
}

static int leave_out(struct torch_walk *w, struct ckpt_path path, const char *reason) {
    return ckpt_checkpoint_add_unsupported(w->r->c, path, ckpt_text_of(reason)) == 0
               ? 0
               : ckpt_fail_memory(w->err, "reading modules");
}

static int add_tensor(struct torch_walk *w, struct ckpt_path path, int32_t module,
                      const struct ckpt_value *v) {
    int rc = torch_tensor_add(w->r, path, v->format, module, w->err);
    torch_walk_enter(w, path.segment[path.n - 1], false);
    if (rc == 0)
        rc = torch_walk_attributes(w, v);
    w->depth--;
    return rc;
}

static int add_entry(struct torch_walk *w, const struct place *at, int32_t module,
                     const struct ckpt_value *name, const struct ckpt_value *v) {
    struct ckpt_path path;
    int rc = torch_walk_count(w, 1);
    if (rc == 0)
        rc = push_entry(w, at, name->text, &path);
    if (rc)
        return rc;
    if (v->kind == CKPT_PICKLE_TENSOR)
        return add_tensor(w, path, module, v);
    return leave_out(w, path, "a parameter or buffer that is not a tensor");
}

static size_t member_count(const struct ckpt_value *set) {
    return pickle_is(set, CKPT_VALUE_SET) || pickle_is_seq(set) ? set->seq.n : 0;
}

static bool holds(const struct ckpt_value *set, struct ckpt_text name) {
    for (size_t i = 0; i < member_count(set); i++)
        if (set->seq.item[i]->kind == CKPT_VALUE_STR && ckpt_text_eq(set->seq.item[i]->text, name))
            return true;
    return false;
}

/* The tensors of _parameters or _buffers but None and those in `without`. */
static int add_entries(struct torch_walk *w, const struct place *at, int32_t module,
                       const struct ckpt_value *dict, const struct ckpt_value *without) {
    if (!pickle_is(dict, CKPT_VALUE_DICT))
        return 0;
    for (size_t i = 0; i + 1 < dict->seq.n; i += 2) {
        const struct ckpt_value *name = dict->seq.item[i], *v = dict->seq.item[i + 1];
        if (name->kind != CKPT_VALUE_STR)
            return ckpt_fail(w->err, -EINVAL,
                             "module \"%.*s\" has a parameter whose name is no text",
                             CKPT_TEXT_ARGS(at->path));
        const int counted = torch_walk_count(w, member_count(without) / 16);
        if (counted)
            return counted;
        if (v->kind == CKPT_VALUE_NONE || holds(without, name->text))
            continue;
        const int rc = add_entry(w, at, module, name, v);
        if (rc)
            return rc;
    }
    return 0;
}

static int add_child(struct torch_walk *w, const struct place *at, int32_t module,
                     const struct ckpt_value *name, struct ckpt_value *child) {
    struct ckpt_path path;
    if (name->kind != CKPT_VALUE_STR)
        return ckpt_fail(w->err, -EINVAL, "module \"%.*s\" has a child whose name is no text",
                         CKPT_TEXT_ARGS(at->path));
    if (child->kind == CKPT_VALUE_NONE)
        return 0;
    if (child->kind != CKPT_VALUE_MODULE) {
        const int rc = push_entry(w, at, name->text, &path);
        return rc ? rc : leave_out(w, path, "a child module whose state is not torch.nn.Module's");
    }
    const struct place below = {dotted(w, at->path, name->text), name->text, module, at->depth + 1};
    return below.path.s ? read_module(w, child, below)
                        : ckpt_fail_memory(w->err, "reading modules");
}

static int add_children(struct torch_walk *w, const struct place *at, int32_t module,
                        const struct ckpt_value *children) {
    if (!pickle_is(children, CKPT_VALUE_DICT))
        return 0;
    for (size_t i = 0; i + 1 < children->seq.n; i += 2) {
        const int rc = add_child(w, at, module, children->seq.item[i], children->seq.item[i + 1]);
        if (rc)
            return rc;
    }
    return 0;
}

/* None, numbers, text, functions by their names, and short tuples and lists of them. */
static bool is_plain_attribute(const struct ckpt_value *v, int depth) {
    if (v->kind <= CKPT_VALUE_STR || v->kind == CKPT_VALUE_GLOBAL)
        return true;
    if (!pickle_is_seq(v) || v->seq.n > ATTRIBUTE_ITEMS_MAX || depth == ATTRIBUTE_DEPTH_MAX)
        return false;
    for (size_t i = 0; i < v->seq.n; i++)
        if (!is_plain_attribute(v->seq.item[i], depth + 1))
            return false;
    return true;
}

static struct ckpt_value *plain_attributes(struct ckpt_arena *a, const struct ckpt_value *state) {
    struct pickle_object *o = ckpt_arena_alloc(a, sizeof *o);
    struct ckpt_value **item = ckpt_arena_array(a, state->seq.n, sizeof *item);
    if (!o || !item)
        return NULL;
    o->v.kind = CKPT_VALUE_DICT;
    o->v.seq.item = item;
    for (size_t i = 0; i + 1 < state->seq.n; i += 2) {
        if (state->seq.item[i]->kind != CKPT_VALUE_STR ||
            !is_plain_attribute(state->seq.item[i + 1], 0))
            continue;
        item[o->v.seq.n++] = state->seq.item[i];
        item[o->v.seq.n++] = state->seq.item[i + 1];
    }
    o->v.seq.cap = o->v.seq.n;
    return &o->v;
}

static int add_row(struct torch_walk *w, const struct ckpt_value *module, const struct place *at,
                   int32_t *index) {
    struct ckpt_checkpoint *c = w->r->c;
    if (c->nmodules >= CKPT_LIMIT_MODULES)
        return ckpt_fail(w->err, -E2BIG, "more than %u modules (limit of modules)",
                         CKPT_LIMIT_MODULES);
    *index = (int32_t)c->nmodules;
    const struct ckpt_module row = {
        .container = torch_walk_path(w),
        .path = at->path,
        .cls = module->text,
        .name = at->name,
        .parent = at->parent,
        .attributes = plain_attributes(&c->arena, module->attributes),
    };
    struct ckpt_module *slot = ckpt_checkpoint_add_module(c);
    if (!slot || !row.container.segment || !row.attributes)
        return ckpt_fail_memory(w->err, "reading modules");
    *slot = row;
    return 0;
}

static int read_members(struct torch_walk *w, const struct ckpt_value *module, struct place at) {
    const struct ckpt_value *state = module->attributes;
    int32_t index = -1;
    int rc = torch_walk_count(w, state->seq.n / 2);
    if (rc == 0)
        rc = add_row(w, module, &at, &index);
    if (rc == 0)
        rc = add_entries(w, &at, index, ckpt_value_get(state, "_parameters"), NULL);
    if (rc == 0)
        rc = add_entries(w, &at, index, ckpt_value_get(state, "_buffers"),
                         ckpt_value_get(state, "_non_persistent_buffers_set"));
    if (rc == 0)
        rc = add_children(w, &at, index, ckpt_value_get(state, "_modules"));
    return rc;
}

static int read_module(struct torch_walk *w, struct ckpt_value *module, struct place at) {
    struct pickle_object *o = (struct pickle_object *)module;
    int rc = torch_walk_count(w, 1);
    if (rc)
        return rc;
    if (o->mark == TORCH_ON_PATH)
        return ckpt_fail(w->err, -EINVAL, "module \"%.*s\" contains itself",
                         CKPT_TEXT_ARGS(at.path));
    if (at.depth > CKPT_LIMIT_PICKLE_DEPTH)
        return ckpt_fail(w->err, -E2BIG, "modules nested more than %u deep (limit of pickle depth)",
                         CKPT_LIMIT_PICKLE_DEPTH);
    o->mark = TORCH_ON_PATH;
    rc = read_members(w, module, at);
    o->mark = TORCH_UNKNOWN;
    return rc;
}

int torch_module_read(struct torch_walk *w, struct ckpt_value *module) {
    return read_module(w, module, (struct place){CKPT_TEXT(""), CKPT_TEXT(""), -1, 0});
}
