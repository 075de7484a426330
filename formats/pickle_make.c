#include "formats/pickle_make.h"

#include "formats/pickle_vm.h"

/* How values come into being: charged, in the arena, with their depth. */

int pickle_make(struct pickle_vm *vm, int kind, struct ckpt_value **out) {
    const int rc = pickle_charge(vm, 1);
    if (rc)
        return rc;
    *out = ckpt_arena_alloc(vm->arena, sizeof **out);
    if (!*out)
        return pickle_fail_memory(vm);
    (*out)->kind = (uint8_t)kind;
    return 0;
}

int pickle_make_object(struct pickle_vm *vm, int kind, struct ckpt_value **out) {
    const int rc = pickle_charge(vm, 1);
    if (rc)
        return rc;
    struct pickle_object *o = ckpt_arena_alloc(vm->arena, sizeof *o);
    if (!o)
        return pickle_fail_memory(vm);
    o->v.kind = (uint8_t)kind;
    *out = &o->v;
    return 0;
}

int pickle_make_int(struct pickle_vm *vm, int64_t i, struct ckpt_value **out) {
    struct ckpt_value **small = i >= 0 && i < 256 ? &vm->small[i] : NULL;
    if (small && *small) {
        *out = *small;
        return 0;
    }
    const int rc = pickle_make(vm, CKPT_VALUE_INT, out);
    if (rc)
        return rc;
    (*out)->i = i;
    if (small)
        *small = *out;
    return 0;
}

int pickle_make_float(struct pickle_vm *vm, double f, struct ckpt_value **out) {
    const int rc = pickle_make(vm, CKPT_VALUE_FLOAT, out);
    if (rc == 0)
        (*out)->f = f;
    return rc;
}

int pickle_make_bytes(struct pickle_vm *vm, struct ckpt_text t, struct ckpt_value **out) {
    const int rc = pickle_make(vm, CKPT_VALUE_BYTES, out);
    if (rc == 0)
        (*out)->text = t;
    return rc;
}

int pickle_make_left_bytes(struct pickle_vm *vm, struct ckpt_text t, struct ckpt_value **out) {
    const int rc = pickle_make_object(vm, CKPT_PICKLE_LEFT_BYTES, out);
    if (rc == 0)
        (*out)->text = t;
    return rc;
}

/* A surrogate encoded as if it were a character: ED A0..BF 80..BF. */
static bool is_surrogate(const unsigned char *p, size_t n) {
    return n >= 3 && p[0] == 0xed && (p[1] & 0xe0) == 0xa0 && (p[2] & 0xc0) == 0x80;
}

bool pickle_utf8_valid(struct ckpt_text t) {
    size_t i = 0;
    for (;;) {
        i += ckpt_utf8_valid(t.s + i, t.n - i);
        if (i == t.n)
            return true;
        if (!is_surrogate((const unsigned char *)t.s + i, t.n - i))
            return false;
        i += 3;
    }
}

int pickle_make_str(struct pickle_vm *vm, struct ckpt_text t, struct ckpt_value **out) {
    if (!pickle_utf8_valid(t))
        return pickle_fail(vm, "text that is not UTF-8");
    const int rc = pickle_make(vm, CKPT_VALUE_STR, out);
    if (rc)
        return rc;
    (*out)->text = ckpt_text_copy(vm->arena, t.s, t.n);
    return (*out)->text.s ? 0 : pickle_fail_memory(vm);
}

int pickle_deepen(struct pickle_vm *vm, struct ckpt_value *parent, const struct ckpt_value *child) {
    if (child->depth < parent->depth)
        return 0;
    if (child->depth >= CKPT_LIMIT_PICKLE_DEPTH)
        return pickle_fail(vm, "values nested more than %u deep (limit of pickle depth)",
                           CKPT_LIMIT_PICKLE_DEPTH);
    parent->depth = child->depth + 1;
    return 0;
}

int pickle_make_seq(struct pickle_vm *vm, int kind, struct ckpt_value *const *items, size_t n,
                    struct ckpt_value **out) {
    int rc = pickle_make_object(vm, kind, out);
    if (rc || n == 0)
        return rc;
    struct ckpt_value *v = *out;
    v->seq.item = ckpt_arena_array(vm->arena, n, sizeof(struct ckpt_value *));
    if (!v->seq.item)
        return pickle_fail_memory(vm);
    v->seq.n = v->seq.cap = n;
    for (size_t i = 0; i < n && rc == 0; i++) {
        v->seq.item[i] = items[i];
        rc = pickle_deepen(vm, v, items[i]);
    }
    return rc;
}

int pickle_make_opaque(struct pickle_vm *vm, struct ckpt_text cls, struct ckpt_value **out) {
    const int rc = pickle_make_object(vm, CKPT_VALUE_OPAQUE, out);
    if (rc == 0)
        (*out)->text = cls;
    return rc;
}

int pickle_make_private(struct pickle_vm *vm, int kind, void *data, struct ckpt_value **out) {
    const int rc = pickle_make_object(vm, kind, out);
    if (rc == 0)
        (*out)->format = data;
    return rc;
}

/* Python 2's names for what Python 3 has elsewhere; protocols up to 2 always write these. */
static struct ckpt_text modern_module(struct ckpt_text m) {
    if (ckpt_text_is(m, "__builtin__"))
        return CKPT_TEXT("builtins");
    if (ckpt_text_is(m, "copy_reg"))
        return CKPT_TEXT("copyreg");
    if (ckpt_text_is(m, "torch.tensor"))
        return CKPT_TEXT("torch._tensor");
    return m;
}

/* Of those, the ones that are called something else now. */
static struct ckpt_text modern_name(struct ckpt_text module, struct ckpt_text name) {
    if (!ckpt_text_is(module, "__builtin__"))
        return name;
    if (ckpt_text_is(name, "xrange"))
        return CKPT_TEXT("range");
    if (ckpt_text_is(name, "long"))
        return CKPT_TEXT("int");
    if (ckpt_text_is(name, "unicode"))
        return CKPT_TEXT("str");
    return name;
}

static int list_global(struct pickle_vm *vm, struct pickle_global *g) {
    g->listed = CKPT_GLOBAL_NONE;
    if (!vm->hooks || !vm->hooks->globals)
        return 0;
    g->listed = ckpt_globals_add(vm->hooks->globals, g->module, g->name, g->v.text,
                                 g->call || pickle_is_plain_class(g->v.text));
    return g->listed == CKPT_GLOBAL_NONE ? pickle_fail_memory(vm) : 0;
}

int pickle_make_global(struct pickle_vm *vm, struct ckpt_text module, struct ckpt_text old_name,
                       struct ckpt_value **out) {
    if (!pickle_utf8_valid(module) || !pickle_utf8_valid(old_name))
        return pickle_fail(vm, "a module or class name that is not UTF-8");
    if (module.n + 1 + old_name.n > CKPT_LIMIT_PICKLE_NAME_BYTES)
        return pickle_fail(vm,
                           "a class name of %zu bytes, the limit is %u (limit of pickled names)",
                           module.n + 1 + old_name.n, CKPT_LIMIT_PICKLE_NAME_BYTES);
    const int rc = pickle_charge(vm, 1);
    if (rc)
        return rc;
    const struct ckpt_text m = modern_module(module), name = modern_name(module, old_name);
    struct pickle_global *g = ckpt_arena_alloc(vm->arena, sizeof *g);
    char *full = ckpt_arena_array(vm->arena, m.n + name.n + 2, 1);
    if (!g || !full)
        return pickle_fail_memory(vm);
    memcpy(full, m.s, m.n);
    full[m.n] = '.';
    memcpy(full + m.n + 1, name.s, name.n);
    g->v.kind = CKPT_VALUE_GLOBAL;
    g->v.text = (struct ckpt_text){full, m.n + 1 + name.n};
    g->module = (struct ckpt_text){full, m.n};
    g->name = (struct ckpt_text){full + m.n + 1, name.n};
    g->call = pickle_call_find(g->module, g->name);
    *out = &g->v;
    return list_global(vm, g);
}
