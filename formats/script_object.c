/*
 * What the pickles of the archive hold, as values of a script. A tensor becomes an input of the
 * graph when it is first used, under the name that the state dict has for it: the attributes on
 * the way to it. A tensor that the class lists neither as parameter nor as buffer is a constant.
 */
#include <errno.h>
#include <string.h>

#include "formats/limits.h"
#include "formats/script_machine.h"
#include "formats/torch.h"
#include "formats/torch_script.h"

/* Which names count as the state dict's. */
struct home {
    const struct script_class *cls; /* NULL: of no module */
    struct ckpt_text name;
};

static int convert(struct script_machine *m, const struct ckpt_value *v, struct ckpt_text path,
                   struct home home, struct script_value *out);

static bool is_integer(const struct ckpt_value *tensor) {
    const struct torch_tensor *const t = tensor->format;
    const enum ckpt_dtype_class cls = ckpt_dtype_info(t->dtype)->cls;
    return t->dtype && (cls == CKPT_CLASS_INT || cls == CKPT_CLASS_UINT);
}

static int add_input(struct script_machine *m, const struct ckpt_value *v, struct ckpt_text path,
                     struct home home, uint32_t *value) {
    const bool parameter = home.cls && script_names_have(home.cls->parameters, home.name);
    const bool buffer = home.cls && script_names_have(home.cls->buffers, home.name);
    int rc = script_graph_add_input(&m->graph,
                                    parameter ? CKPT_GRAPH_PARAMETER
                                    : buffer  ? CKPT_GRAPH_BUFFER
                                              : CKPT_GRAPH_CONSTANT,
                                    parameter ? "parameter"
                                    : buffer  ? "buffer"
                                              : "tensor_constant",
                                    path, CKPT_GRAPH_TENSOR, value);
    if (rc == 0 && m->keep && !parameter && !buffer)
        rc = m->keep(m->user, path, v, m->err);
    return rc;
}

static int take_tensor(struct script_machine *m, const struct ckpt_value *v, struct ckpt_text path,
                       struct home home, struct script_value *out) {
    const size_t known = ckpt_strmap_get(&m->graph.by_input, path);
    uint32_t value = (uint32_t)known;
    int rc = known == CKPT_STRMAP_ABSENT ? add_input(m, v, path, home, &value) : 0;
    if (rc == 0 && known == CKPT_STRMAP_ABSENT &&
        ckpt_strmap_add(&m->graph.by_input, path, value, NULL))
        rc = script_fail_memory(m);
    *out = script_graph_value(value, CKPT_GRAPH_TENSOR);
    out->integral = is_integer(v);
    return rc;
}

static int take_object(struct script_machine *m, const struct ckpt_value *v, struct ckpt_text path,
                       struct script_value *out) {
    struct script_object *const o = ckpt_arena_alloc(&m->arena, sizeof *o);
    if (!o)
        return script_fail_memory(m);
    *o = (struct script_object){.value = v, .path = path};
    *out = (struct script_value){.kind = SCRIPT_VALUE_OBJECT, .object = o};
    return v->kind == CKPT_VALUE_OPAQUE
               ? script_source_class(&m->source, v->text, &o->cls, &o->file)
               : 0;
}

/* path.name */
static struct ckpt_text join(struct script_machine *m, struct ckpt_text path,
                             struct ckpt_text name) {
    if (path.n == 0)
        return name;
    char *const s = ckpt_arena_alloc(&m->arena, path.n + name.n + 2);
    if (!s || path.n + name.n >= CKPT_LIMIT_KEY_BYTES)
        return (struct ckpt_text){NULL, 0};
    memcpy(s, path.s, path.n);
    s[path.n] = '.';
    memcpy(s + path.n + 1, name.s, name.n);
    return (struct ckpt_text){s, path.n + 1 + name.n};
}

static int take_item(struct script_machine *m, const struct ckpt_value *v, struct ckpt_text path,
                     size_t i, struct script_value *out) {
    const char *const digits = ckpt_arena_printf(&m->arena, "%zu", i);
    const struct ckpt_text below =
        digits ? join(m, path, ckpt_text_of(digits)) : (struct ckpt_text){NULL, 0};
    return below.s ? convert(m, v, below, (struct home){NULL, CKPT_TEXT("")}, out)
                   : script_fail_memory(m);
}

static int take_sequence(struct script_machine *m, const struct ckpt_value *v,
                         struct ckpt_text path, struct script_value *out) {
    const enum script_value_kind kind = v->kind == CKPT_VALUE_TUPLE  ? SCRIPT_VALUE_TUPLE
                                        : v->kind == CKPT_VALUE_DICT ? SCRIPT_VALUE_DICT
                                                                     : SCRIPT_VALUE_LIST;
    int rc = script_enter(m);
    if (rc)
        return rc;
    rc = script_step(m, v->seq.n);
    if (rc == 0)
        rc = script_list_new(m, kind, v->seq.n, out);
    for (size_t i = 0; rc == 0 && i < v->seq.n; i++)
        rc = take_item(m, v->seq.item[i], path, i, &out->list->item[i]);
    m->depth--;
    return rc;
}

static int convert(struct script_machine *m, const struct ckpt_value *v, struct ckpt_text path,
                   struct home home, struct script_value *out) {
    *out = (struct script_value){.kind = SCRIPT_VALUE_NONE};
    switch ((int)v->kind) {
    case CKPT_VALUE_NONE:
        return 0;
    case CKPT_VALUE_BOOL:
        *out = script_bool(v->b);
        return 0;
    case CKPT_VALUE_INT:
        *out = script_int(v->i);
        return 0;
    case CKPT_VALUE_FLOAT:
        *out = (struct script_value){.kind = SCRIPT_VALUE_FLOAT, .f = v->f};
        return 0;
    case CKPT_VALUE_STR:
        *out = (struct script_value){.kind = SCRIPT_VALUE_TEXT, .text = v->text};
        return 0;
    case CKPT_VALUE_LIST:
    case CKPT_VALUE_TUPLE:
    case CKPT_VALUE_DICT:
        return take_sequence(m, v, path, out);
    case CKPT_PICKLE_TENSOR:
        return take_tensor(m, v, path, home, out);
    default:
        return take_object(m, v, path, out);
    }
}

int script_object_root(struct script_machine *m, const struct ckpt_value *v,
                       struct script_value *out) {
    return convert(m, v, CKPT_TEXT(""), (struct home){NULL, CKPT_TEXT("")}, out);
}

bool script_object_is_module(const struct script_object *o) {
    return o->cls && ckpt_text_is(o->cls->base, "Module");
}

/* The dict of its attributes, or NULL. */
static const struct ckpt_value *state_of(const struct ckpt_value *v) {
    return torch_has_state(v) ? v->attributes : NULL;
}

static const struct ckpt_value *find(const struct ckpt_value *state, struct ckpt_text name) {
    for (size_t i = 0; state && i + 1 < state->seq.n; i += 2)
        if (state->seq.item[i]->kind == CKPT_VALUE_STR &&
            ckpt_text_eq(state->seq.item[i]->text, name))
            return state->seq.item[i + 1];
    return NULL;
}

int script_object_attribute(struct script_machine *m, const struct script_value *object,
                            struct ckpt_text name, struct script_value *out) {
    const struct script_object *const o = object->object;
    const struct ckpt_value *const state = state_of(o->value), *const v = find(state, name);
    const struct script_attribute *const a = o->cls ? script_class_attribute(o->cls, name) : NULL;
    const struct home home = {script_object_is_module(o) ? o->cls : NULL, name};
    const struct ckpt_text path = join(m, o->path, name);
    int rc = script_step(m, state ? 1 + state->seq.n / 16 : 1);
    if (rc)
        return rc;
    if (!path.s)
        return script_fail_memory(m);
    if (v)
        return convert(m, v, path, home, out);
    if (a && a->value)
        return script_eval(m, NULL, a->value, out);
    return script_fail(
        m, -EINVAL, "\"%.*s\" (%.*s) has no attribute \"%.*s\"", CKPT_TEXT_ARGS(o->path),
        CKPT_TEXT_ARGS(o->cls ? o->cls->name : CKPT_TEXT("an object")), CKPT_TEXT_ARGS(name));
}

int script_object_constant(struct script_machine *m, struct ckpt_text name,
                           struct script_value *out) {
    const struct ckpt_value *const all = m->constants;
    size_t index = 0;
    bool is_number = name.n > 1 && name.n < 10 && name.s[0] == 'c';
    for (size_t i = 1; is_number && i < name.n; i++) {
        is_number = name.s[i] >= '0' && name.s[i] <= '9';
        index = 10 * index + (size_t)(name.s[i] - '0');
    }
    if (!is_number || !all || all->kind != CKPT_VALUE_TUPLE || index >= all->seq.n)
        return script_fail(m, -EINVAL, "constants.pkl has no CONSTANTS.%.*s", CKPT_TEXT_ARGS(name));
    const struct ckpt_text path = join(m, CKPT_TEXT("CONSTANTS"), name);
    if (!path.s)
        return script_fail_memory(m);
    return convert(m, all->seq.item[index], path, (struct home){NULL, CKPT_TEXT("")}, out);
}
