#include "formats/pickle_vm.h"

/* Calls of Python's own modules: containers and byte strings. */

/* Adds the pairs of a list of (key, value), as dict() does; false if it is anything else. */
static int add_pairs(struct pickle_vm *vm, struct ckpt_value *dict,
                     const struct ckpt_value *pairs) {
    int rc = 0;
    for (size_t i = 0; i < pairs->seq.n && rc == 0; i++) {
        const struct ckpt_value *pair = pairs->seq.item[i];
        if (!pickle_is_seq(pair) || pair->seq.n != 2)
            return pickle_fail(vm, "item %zu of a dict is not a pair", i);
        rc = pickle_dict_set(vm, dict, pair->seq.item[0], pair->seq.item[1]);
    }
    return rc;
}

/* dict(), dict(pairs), dict(other dict) */
static int make_dict(struct pickle_vm *vm, struct ckpt_value *from, struct ckpt_value **out) {
    if (pickle_is(from, CKPT_VALUE_DICT)) {
        *out = from;
        return 0;
    }
    if (from && !pickle_is_seq(from))
        return 0;
    const int rc = pickle_make_object(vm, CKPT_VALUE_DICT, out);
    return rc || !from ? rc : add_pairs(vm, *out, from);
}

static int call_dict(struct pickle_vm *vm, const struct ckpt_value *args, struct ckpt_value **out) {
    return make_dict(vm, pickle_arg_at(args, 0), out);
}

static int call_defaultdict(struct pickle_vm *vm, const struct ckpt_value *args,
                            struct ckpt_value **out) {
    return make_dict(vm, pickle_arg_at(args, 1), out); /* the first argument is the factory */
}

/* tuple(), tuple(items): also torch.Size */
static int make_seq(struct pickle_vm *vm, int kind, struct ckpt_value *from,
                    struct ckpt_value **out) {
    const bool iterable = pickle_is_seq(from) || pickle_is(from, CKPT_VALUE_SET);
    if (from && !iterable)
        return 0;
    if (kind == CKPT_VALUE_TUPLE && pickle_is(from, CKPT_VALUE_TUPLE)) {
        *out = from;
        return 0;
    }
    const size_t n = from ? from->seq.n : 0;
    const int rc = pickle_charge(vm, n);
    return rc ? rc : pickle_make_seq(vm, kind, from ? from->seq.item : NULL, n, out);
}

static int call_tuple(struct pickle_vm *vm, const struct ckpt_value *args,
                      struct ckpt_value **out) {
    return make_seq(vm, CKPT_VALUE_TUPLE, pickle_arg_at(args, 0), out);
}

static int call_list(struct pickle_vm *vm, const struct ckpt_value *args, struct ckpt_value **out) {
    return make_seq(vm, CKPT_VALUE_LIST, pickle_arg_at(args, 0), out);
}

static int call_set(struct pickle_vm *vm, const struct ckpt_value *args, struct ckpt_value **out) {
    return make_seq(vm, CKPT_VALUE_SET, pickle_arg_at(args, 0), out);
}

static bool is_latin1(const struct ckpt_value *v) {
    return pickle_is(v, CKPT_VALUE_STR) &&
           (ckpt_text_is(v->text, "latin1") || ckpt_text_is(v->text, "latin-1"));
}

/* Each code point below 256 to its byte; false if there is another. s has room for t.n bytes. */
static bool encode_latin1(struct ckpt_text t, char *s, size_t *n) {
    *n = 0;
    for (size_t i = 0; i < t.n; i++) {
        const unsigned char c = (unsigned char)t.s[i];
        if (c < 0x80) {
            s[(*n)++] = (char)c;
        } else if ((c == 0xc2 || c == 0xc3) && i + 1 < t.n) {
            s[(*n)++] = (char)((c & 3) << 6 | ((unsigned char)t.s[++i] & 0x3f));
        } else {
            return false;
        }
    }
    return true;
}

/* encode(text, 'latin1'): how protocols up to 2 write bytes. */
static int call_encode(struct pickle_vm *vm, const struct ckpt_value *args,
                       struct ckpt_value **out) {
    const struct ckpt_value *text = pickle_arg_at(args, 0);
    size_t n;
    if (!pickle_is(text, CKPT_VALUE_STR) || !is_latin1(pickle_arg_at(args, 1)))
        return 0;
    char *s = ckpt_arena_alloc(vm->arena, text->text.n + 1);
    if (!s)
        return pickle_fail_memory(vm);
    if (!encode_latin1(text->text, s, &n))
        return 0;
    return pickle_make_bytes(vm, (struct ckpt_text){s, n}, out);
}

/* bytes(), bytes(b), bytearray(text, 'latin-1') */
static int call_bytes(struct pickle_vm *vm, const struct ckpt_value *args,
                      struct ckpt_value **out) {
    struct ckpt_value *from = pickle_arg_at(args, 0);
    if (!from)
        return pickle_make_bytes(vm, CKPT_TEXT(""), out);
    if (!pickle_is_bytes(from))
        return call_encode(vm, args, out);
    *out = from;
    return 0;
}

/* An attribute of a class that we do not have: by its name, "models.Color.RED". */
static int name_attribute(struct pickle_vm *vm, const struct ckpt_value *owner,
                          const struct ckpt_value *name, struct ckpt_value **out) {
    const int rc = pickle_charge(vm, (owner->text.n + name->text.n) / 64);
    if (rc)
        return rc;
    const char *full = ckpt_arena_printf(vm->arena, "%s.%s", owner->text.s, name->text.s);
    return full ? pickle_make_opaque(vm, ckpt_text_of(full), out) : pickle_fail_memory(vm);
}

/* getattr(torch, name): how some files write a dtype. Nothing is looked up for any other owner. */
static int call_getattr(struct pickle_vm *vm, const struct ckpt_value *args,
                        struct ckpt_value **out) {
    const struct ckpt_value *owner = pickle_arg_at(args, 0), *name = pickle_arg_at(args, 1);
    if (!pickle_is(owner, CKPT_VALUE_GLOBAL) || !pickle_is(name, CKPT_VALUE_STR))
        return 0;
    if (!ckpt_text_is(((const struct pickle_global *)owner)->module, "torch"))
        return name_attribute(vm, owner, name, out);
    return pickle_make_global(vm, CKPT_TEXT("torch"), name->text, out);
}

static pickle_call_fn call_newobj, call_reconstructor;

/* The class in the first argument, if calling it may not lead back here. */
static const struct ckpt_value *class_argument(const struct ckpt_value *args) {
    const struct ckpt_value *cls = pickle_arg_at(args, 0);
    if (!pickle_is(cls, CKPT_VALUE_GLOBAL))
        return NULL;
    const struct pickle_call *call = ((const struct pickle_global *)cls)->call;
    return call && (call->run == call_newobj || call->run == call_reconstructor) ? NULL : cls;
}

/* copyreg.__newobj__(class, *args): what NEWOBJ does. */
static int call_newobj(struct pickle_vm *vm, const struct ckpt_value *args,
                       struct ckpt_value **out) {
    const struct ckpt_value *cls = class_argument(args);
    struct ckpt_value *rest;
    if (!cls)
        return 0;
    int rc = pickle_charge(vm, args->seq.n);
    if (rc == 0)
        rc = pickle_make_seq(vm, CKPT_VALUE_TUPLE, args->seq.item + 1, args->seq.n - 1, &rest);
    return rc ? rc : pickle_call_apply(vm, cls, rest, out);
}

/* copyreg._reconstructor(class, base, base's state): an object before protocol 2. */
static int call_reconstructor(struct pickle_vm *vm, const struct ckpt_value *args,
                              struct ckpt_value **out) {
    const struct ckpt_value *cls = class_argument(args);
    struct ckpt_value *state = pickle_arg_at(args, 2), *none;
    if (!cls || args->seq.n != 3)
        return 0;
    if (pickle_is(state, CKPT_VALUE_DICT) || pickle_is(state, CKPT_VALUE_LIST)) {
        *out = state;
        return 0;
    }
    const int rc = pickle_make_object(vm, CKPT_VALUE_TUPLE, &none);
    return rc ? rc : pickle_call_apply(vm, cls, none, out);
}

const struct pickle_call pickle_calls_python[] = {
    {"collections", "OrderedDict", call_dict},
    {"collections", "defaultdict", call_defaultdict},
    {"collections", "Counter", call_dict},
    {"builtins", "dict", call_dict},
    {"builtins", "tuple", call_tuple},
    {"builtins", "list", call_list},
    {"collections", "deque", call_list},
    {"builtins", "set", call_set},
    {"builtins", "frozenset", call_set},
    {"builtins", "bytes", call_bytes},
    {"builtins", "bytearray", call_bytes},
    {"builtins", "getattr", call_getattr},
    {"_codecs", "encode", call_encode},
    {"copyreg", "__newobj__", call_newobj},
    {"copyreg", "_reconstructor", call_reconstructor},
    {"torch", "Size", call_tuple},
    {NULL, NULL, NULL},
};
