#include "formats/pickle_vm.h"

/*
 * What the stream does to objects after they are made: items, elements, state. An opaque object
 * that is given items is a subclass of dict (Lightning's AttributeDict), one that is given elements
 * a subclass of list or set: it becomes that container, for its content is plain data.
 */

static bool becomes(struct ckpt_value *v, int kind) {
    if (v->kind != CKPT_VALUE_OPAQUE)
        return v->kind == kind;
    v->kind = (uint8_t)kind;
    v->seq.item = NULL;
    v->seq.n = v->seq.cap = 0;
    return true;
}

static const char *kind_name(const struct ckpt_value *v) {
    static const char *const names[] = {
        [CKPT_VALUE_NONE] = "None",
        [CKPT_VALUE_BOOL] = "a bool",
        [CKPT_VALUE_INT] = "an int",
        [CKPT_VALUE_BIGINT] = "an int",
        [CKPT_VALUE_FLOAT] = "a float",
        [CKPT_VALUE_STR] = "a string",
        [CKPT_VALUE_BYTES] = "bytes",
        [CKPT_VALUE_LIST] = "a list",
        [CKPT_VALUE_TUPLE] = "a tuple",
        [CKPT_VALUE_SET] = "a set",
        [CKPT_VALUE_DICT] = "a dict",
        [CKPT_VALUE_GLOBAL] = "a class or function",
        [CKPT_VALUE_OPAQUE] = "an object",
        [CKPT_VALUE_MODULE] = "a module",
        [CKPT_PICKLE_STORAGE] = "a storage",
        [CKPT_PICKLE_TENSOR] = "a tensor",
        [CKPT_PICKLE_NUMPY_DTYPE] = "a numpy dtype",
        [CKPT_PICKLE_LEFT_BYTES] = "bytes",
    };
    return v->kind < sizeof names / sizeof *names && names[v->kind] ? names[v->kind] : "a value";
}

int pickle_set_items(struct pickle_vm *vm, struct ckpt_value *target, struct ckpt_value *const *kv,
                     size_t n) {
    if (n % 2)
        return pickle_fail(vm, "%zu keys and values: one has no other half", n);
    if (!becomes(target, CKPT_VALUE_DICT))
        return pickle_fail(vm, "sets items of %s, expected a dict", kind_name(target));
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i += 2)
        rc = pickle_dict_set(vm, target, kv[i], kv[i + 1]);
    return rc;
}

static int reserve(struct pickle_vm *vm, struct ckpt_value *v, size_t n) {
    if (v->seq.n + n <= v->seq.cap)
        return 0;
    size_t cap = v->seq.cap ? v->seq.cap * 2 : 4;
    if (cap < v->seq.n + n)
        cap = v->seq.n + n;
    struct ckpt_value **item = ckpt_arena_array(vm->arena, cap, sizeof(struct ckpt_value *));
    if (!item)
        return pickle_fail_memory(vm);
    if (v->seq.n)
        memcpy(item, v->seq.item, v->seq.n * sizeof(struct ckpt_value *));
    v->seq.item = item;
    v->seq.cap = cap;
    return 0;
}

int pickle_append(struct pickle_vm *vm, struct ckpt_value *target, struct ckpt_value *const *items,
                  size_t n, int kind) {
    if (!becomes(target, kind))
        return pickle_fail(vm, "adds elements to %s, expected a %s", kind_name(target),
                           kind == CKPT_VALUE_SET ? "set" : "list");
    int rc = reserve(vm, target, n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        target->seq.item[target->seq.n++] = items[i];
        rc = pickle_deepen(vm, target, items[i]);
    }
    return rc;
}

struct ckpt_value *pickle_state_dict(struct ckpt_value *state) {
    if (!state || state->kind == CKPT_VALUE_DICT)
        return state;
    if (state->kind != CKPT_VALUE_TUPLE || state->seq.n != 2)
        return NULL;
    for (size_t i = 0; i < 2; i++)
        if (state->seq.item[i]->kind == CKPT_VALUE_DICT)
            return state->seq.item[i];
    return NULL;
}

/* A torch.nn.Module is known by its state alone; its class may be anybody's. */
static bool is_module_state(const struct ckpt_value *state) {
    return pickle_is(pickle_dict_get(state, "_parameters"), CKPT_VALUE_DICT) &&
           pickle_is(pickle_dict_get(state, "_modules"), CKPT_VALUE_DICT);
}

int pickle_keep_parts(struct pickle_vm *vm, struct ckpt_value *object, struct ckpt_value *parts) {
    object->attributes = parts;
    return pickle_deepen(vm, object, parts);
}

static int keep_state(struct pickle_vm *vm, struct ckpt_value *target, struct ckpt_value *state) {
    struct ckpt_value *dict = pickle_state_dict(state);
    bool taken = false;
    const int rc = dict ? pickle_take_state(vm, target, dict, &taken) : 0;
    if (rc || taken)
        return rc;
    if (!dict && state->kind == CKPT_VALUE_TUPLE && target->kind == CKPT_VALUE_OPAQUE &&
        (!target->attributes || target->attributes->kind == CKPT_VALUE_TUPLE))
        return pickle_keep_parts(vm, target, state);
    if (!dict || dict->seq.n == 0 || pickle_is(target->attributes, CKPT_VALUE_DICT))
        return 0;
    target->attributes = dict;
    if (target->kind == CKPT_VALUE_OPAQUE && is_module_state(dict))
        target->kind = CKPT_VALUE_MODULE;
    return pickle_deepen(vm, target, dict);
}

int pickle_build(struct pickle_vm *vm, struct ckpt_value *target, struct ckpt_value *state) {
    switch (target->kind) {
    case CKPT_VALUE_OPAQUE:
    case CKPT_VALUE_MODULE:
    case CKPT_VALUE_DICT: /* OrderedDict's attributes (_metadata) are not items */
    case CKPT_VALUE_LIST:
    case CKPT_VALUE_SET:
        return keep_state(vm, target, state);
    case CKPT_PICKLE_NUMPY_DTYPE:
    case CKPT_PICKLE_TENSOR: /* a numpy array; torch tensors ignore it */
        return pickle_build_numpy(vm, target, state);
    case CKPT_VALUE_GLOBAL:
    case CKPT_PICKLE_STORAGE:
        return 0;
    default:
        return pickle_fail(vm, "gives a state to %s", kind_name(target));
    }
}
