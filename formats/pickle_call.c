#include "formats/pickle_vm.h"

/*
 * Calls. The tables hold every call that has a meaning here; module and name must match exactly (a
 * look-alike module is somebody else's). All others make an opaque object that bears the callee's
 * name, and nothing is ever imported or run.
 */

static const struct pickle_call *const tables[] = {pickle_calls_python, pickle_calls_numpy,
                                                   pickle_calls_torch};

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

int pickle_call_apply(struct pickle_vm *vm, const struct ckpt_value *callee,
                      const struct ckpt_value *args, struct ckpt_value **out) {
    *out = NULL;
    if (callee->kind == CKPT_VALUE_GLOBAL && args->kind == CKPT_VALUE_TUPLE) {
        const struct pickle_call *call = ((const struct pickle_global *)callee)->call;
        const int rc = call ? call->run(vm, args, out) : 0;
        if (rc || *out)
            return rc;
    }
    return pickle_make_opaque(vm, callee_name(callee), out);
}
