#include "formats/pickle_vm.h"

/*
 * Calls. The tables hold every call that has a meaning here; module and name must match exactly (a
 * look-alike module is somebody else's). All others make an opaque object that bears the callee's
 * name, and nothing is ever imported or run.
 */

static const struct pickle_call *const tables[] = {pickle_calls_python, pickle_calls_plain,
                                                   pickle_calls_numpy, pickle_calls_torch};

const struct pickle_call *pickle_call_find(struct ckpt_text module, struct ckpt_text name) {
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct pickle_call *c = tables[t]; c->name; c++)
            if (ckpt_text_is(name, c->name) && ckpt_text_is(module, c->module))
                return c;
    if (ckpt_text_is(module, "torch._utils") && ckpt_text_starts(name, "_rebuild"))
        return &pickle_call_unknown_rebuild;
    return NULL;
}

static struct ckpt_text callee_name(const struct ckpt_value *callee) {
    const bool named = callee->kind == CKPT_VALUE_GLOBAL || callee->kind == CKPT_VALUE_OPAQUE ||
                       callee->kind == CKPT_VALUE_MODULE;
    return named ? callee->text : CKPT_TEXT("object");
}

static void count_call(struct pickle_vm *vm, const struct ckpt_value *callee) {
    const struct pickle_global *g = (const struct pickle_global *)callee;
    if (callee->kind == CKPT_VALUE_GLOBAL && g->listed != CKPT_GLOBAL_NONE)
        vm->hooks->globals->global[g->listed].calls++;
}

#define SHOWN_ARGS_MAX 4
#define SHOWN_TEXT_MAX 256

/* Whether an argument says something as text: an enum's value, the ends of a range. */
static bool is_telling(const struct ckpt_value *v) {
    if (v->kind == CKPT_VALUE_STR || v->kind == CKPT_VALUE_BIGINT)
        return v->text.n <= SHOWN_TEXT_MAX;
    return v->kind <= CKPT_VALUE_FLOAT;
}

static bool are_telling(const struct ckpt_value *args) {
    if (args->seq.n > SHOWN_ARGS_MAX)
        return false;
    for (size_t i = 0; i < args->seq.n; i++)
        if (!is_telling(args->seq.item[i]))
            return false;
    return true;
}

static int show_as_call(struct pickle_vm *vm, struct ckpt_value *object,
                        const struct ckpt_value *args) {
    uint64_t weight = object->text.n / 64;
    for (size_t i = 0; i < args->seq.n; i++) {
        const struct ckpt_value *v = args->seq.item[i];
        weight += v->kind == CKPT_VALUE_STR || v->kind == CKPT_VALUE_BIGINT ? v->text.n / 64 : 0;
    }
    int rc = pickle_charge(vm, weight);
    if (rc == 0)
        rc = pickle_make(vm, CKPT_VALUE_STR, &object->attributes);
    if (rc)
        return rc;
    object->attributes->text = ckpt_value_call(vm->arena, object->text, args);
    return object->attributes->text.s ? 0 : pickle_fail_memory(vm);
}

static bool is_empty_dict(const struct ckpt_value *v) {
    return v->kind == CKPT_VALUE_DICT && v->seq.n == 0;
}

/* A subclass of tuple is made of one tuple, one of CPython's own (torch.return_types) of a tuple
 * and a dict. */
static struct ckpt_value *parts_of(struct ckpt_value *args) {
    const size_t n = args->seq.n;
    const bool is_tuple = args->seq.item[0]->kind == CKPT_VALUE_TUPLE &&
                          (n == 1 || (n == 2 && is_empty_dict(args->seq.item[1])));
    return is_tuple ? args->seq.item[0] : args;
}

/* Until it is given a state, an object shows as what it was made of: a few plain arguments as that
 * call, "models.Color(1)"; others as a tuple if torch_scan.c finds tensors there: the fields of a
 * named tuple. */
static int show_arguments(struct pickle_vm *vm, struct ckpt_value *object,
                          struct ckpt_value *args) {
    if (args->kind != CKPT_VALUE_TUPLE || args->seq.n == 0)
        return 0;
    return are_telling(args) ? show_as_call(vm, object, args)
                             : pickle_keep_parts(vm, object, parts_of(args));
}

int pickle_call_apply(struct pickle_vm *vm, const struct ckpt_value *callee,
                      struct ckpt_value *args, struct ckpt_value **out) {
    *out = NULL;
    count_call(vm, callee);
    if (callee->kind == CKPT_VALUE_GLOBAL && args->kind == CKPT_VALUE_TUPLE) {
        const struct pickle_call *call = ((const struct pickle_global *)callee)->call;
        const int rc = call ? call->run(vm, args, out) : 0;
        if (rc || *out)
            return rc;
    }
    const int rc = pickle_make_opaque(vm, callee_name(callee), out);
    return rc ? rc : show_arguments(vm, *out, args);
}
