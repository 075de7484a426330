#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/script_machine.h"

/* Expressions. */

void script_actuals_fini(struct script_actuals *a) {
    free(a->item);
    *a = (struct script_actuals){0};
}

int script_eval_actuals(struct script_machine *m, const struct script_frame *frame,
                        const struct script_expr *call, struct script_actuals *out) {
    int rc = 0;
    *out = (struct script_actuals){.item = calloc(call->n + 1, sizeof *out->item)};
    if (!out->item)
        return script_fail_memory(m);
    for (uint32_t i = 0; rc == 0 && i < call->n; i++) {
        out->item[i].name = call->arg[i].name;
        rc = script_eval(m, frame, call->arg[i].value, &out->item[i].value);
        out->n = i + 1;
    }
    return rc;
}

/* --- names ------------------------------------------------------------------------------------ */

static const struct script_value *slot_of(const struct script_frame *frame,
                                          const struct script_expr *name) {
    const struct script_value *const v =
        frame && name->slot != UINT32_MAX ? &frame->slot[name->slot] : NULL;
    return v && v->kind != SCRIPT_VALUE_UNSET ? v : NULL;
}

bool script_eval_dotted(const struct script_frame *frame, const struct script_expr *e,
                        char out[static SCRIPT_DOTTED_MAX]) {
    size_t n = SCRIPT_DOTTED_MAX - 1; /* from the back */
    out[n] = '\0';
    for (; e->kind == SCRIPT_EXPR_ATTRIBUTE; e = e->base) {
        if (e->text.n + 1 > n)
            return false;
        n -= e->text.n;
        memcpy(&out[n], e->text.s, e->text.n);
        out[--n] = '.';
    }
    if (e->kind != SCRIPT_EXPR_NAME || slot_of(frame, e) || e->text.n > n)
        return false;
    n -= e->text.n;
    memcpy(&out[n], e->text.s, e->text.n);
    memmove(out, &out[n], SCRIPT_DOTTED_MAX - n);
    return true;
}

/* A name that is no variable: what torch prints of floats that have no digits. */
static int eval_outside(struct script_machine *m, const struct script_expr *e,
                        struct script_value *out) {
    const bool infinite = ckpt_text_is(e->text, "inf");
    if (!infinite && !ckpt_text_is(e->text, "nan"))
        return script_fail(m, -EINVAL, "\"%.*s\" has no value here", CKPT_TEXT_ARGS(e->text));
    *out = (struct script_value){.kind = SCRIPT_VALUE_FLOAT,
                                 .f = infinite ? (double)INFINITY : (double)NAN};
    return 0;
}

static int eval_name(struct script_machine *m, const struct script_frame *frame,
                     const struct script_expr *e, struct script_value *out) {
    const struct script_value *const v = slot_of(frame, e);
    if (!v)
        return eval_outside(m, e, out);
    *out = *v;
    return 0;
}

static bool starts(const char *s, const char *prefix) {
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* __torch__.net.helper, CONSTANTS.c0, or value.name */
static int eval_attribute(struct script_machine *m, const struct script_frame *frame,
                          const struct script_expr *e, struct script_value *out) {
    char name[SCRIPT_DOTTED_MAX];
    struct script_value base;
    if (script_eval_dotted(frame, e, name)) {
        if (starts(name, "CONSTANTS.") && e->base->kind == SCRIPT_EXPR_NAME)
            return script_object_constant(m, e->text, out);
        const struct ckpt_text copy = ckpt_text_copy(&m->arena, name, strlen(name));
        *out = (struct script_value){.kind = SCRIPT_VALUE_GLOBAL, .text = copy};
        return copy.s ? 0 : script_fail_memory(m);
    }
    const int rc = script_eval(m, frame, e->base, &base);
    if (rc)
        return rc;
    if (base.kind == SCRIPT_VALUE_OBJECT)
        return script_object_attribute(m, &base, e->text, out);
    if (base.kind != SCRIPT_VALUE_TUPLE || !base.list->cls)
        return script_fail(m, -EINVAL, "\"%.*s\" of what is no object", CKPT_TEXT_ARGS(e->text));
    const size_t i = ckpt_strmap_get(&base.list->cls->by_attribute, e->text);
    if (i >= base.list->n)
        return script_fail(m, -EINVAL, "a named tuple without \"%.*s\"", CKPT_TEXT_ARGS(e->text));
    *out = base.list->item[i];
    return 0;
}

/* --- lists ------------------------------------------------------------------------------------ */

static int eval_items(struct script_machine *m, const struct script_frame *frame,
                      const struct script_expr *e, struct script_value *out) {
    const enum script_value_kind kind = e->kind == SCRIPT_EXPR_LIST    ? SCRIPT_VALUE_LIST
                                        : e->kind == SCRIPT_EXPR_TUPLE ? SCRIPT_VALUE_TUPLE
                                                                       : SCRIPT_VALUE_DICT;
    int rc = script_list_new(m, kind, e->n, out);
    for (uint32_t i = 0; rc == 0 && i < e->n; i++)
        rc = script_eval(m, frame, e->arg[i].value, &out->list->item[i]);
    return rc;
}

static int eval_index(struct script_machine *m, const struct script_frame *frame,
                      const struct script_expr *e, struct script_value *out) {
    struct script_value base, index;
    int rc = script_eval(m, frame, e->base, &base);
    if (rc == 0 && e->n != 1)
        rc = script_fail(m, -EINVAL, "an index of %u values", e->n);
    if (rc == 0)
        rc = script_eval(m, frame, e->arg[0].value, &index);
    if (rc)
        return rc;
    if (!script_is_list(&base))
        return script_fail(m, -EOPNOTSUPP, "an item of what is no list");
    if (index.kind != SCRIPT_VALUE_INT)
        return script_fail(m, -EOPNOTSUPP, "an index that only a run of the model knows");
    return script_list_get(m, &base, index.i, out);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* __torch__.net.Pair(a, b): a named tuple; other classes are not made. */
static int make_tuple(struct script_machine *m, const struct script_class *cls,
                      const struct script_actuals *actuals, struct script_value *out) {
    if (!ckpt_text_is(cls->base, "NamedTuple"))
        return script_fail(m, -EOPNOTSUPP, "it makes an object of class %.*s",
                           CKPT_TEXT_ARGS(cls->name));
    const int rc = script_list_new(m, SCRIPT_VALUE_TUPLE, actuals->n, out);
    for (uint32_t i = 0; rc == 0 && i < actuals->n; i++)
        out->list->item[i] = actuals->item[i].value;
    if (rc == 0)
        out->list->cls = cls;
    return rc;
}

static int call_global(struct script_machine *m, struct ckpt_text name,
                       const struct script_actuals *actuals, struct script_value *out) {
    const struct script_function *function;
    const struct script_class *cls = NULL;
    const struct script_file *file;
    int rc = script_source_function(&m->source, name, &function);
    if (rc == 0 && !function)
        rc = script_source_class(&m->source, name, &cls, &file);
    if (rc)
        return rc;
    if (function)
        return script_call(m, function, NULL, actuals, out);
    if (cls)
        return make_tuple(m, cls, actuals, out);
    return script_fail(m, -EINVAL, "no code defines %.*s", CKPT_TEXT_ARGS(name));
}

/* torch.NAME and ops.NS.NAME are operations, __torch__.NAME is code, the rest is built in. */
static int call_named(struct script_machine *m, const struct script_frame *frame, const char *name,
                      const struct script_expr *e, uint32_t nouts, struct script_value *out) {
    CKPT_AUTO(script_actuals) struct script_actuals actuals = {0};
    char op[SCRIPT_OP_NAME_MAX];
    bool known;
    int rc = script_builtin(m, frame, name, e, out, &known);
    if (rc || known)
        return rc;
    rc = script_eval_actuals(m, frame, e, &actuals);
    if (rc)
        return rc;
    if (starts(name, "__torch__."))
        return call_global(m, ckpt_text_of(name), &actuals, out);
    if (starts(name, "ops."))
        return script_op(m, name + strlen("ops."), &actuals, nouts, out);
    if (!starts(name, "torch."))
        return script_fail(m, -EOPNOTSUPP, "a call of \"%s\", which is not known", name);
    script_op_name(name + strlen("torch."), op);
    return script_op(m, op, &actuals, nouts, out);
}

/* (object).method(...) */
static int call_method(struct script_machine *m, const struct script_value *self,
                       struct ckpt_text name, const struct script_actuals *actuals,
                       struct script_value *out) {
    const struct script_object *const o = self->kind == SCRIPT_VALUE_OBJECT ? self->object : NULL;
    const struct script_function *const f =
        o && o->cls ? script_class_method(o->file, o->cls, name) : NULL;
    if (!f)
        return script_fail(m, o && o->cls ? -EINVAL : -EOPNOTSUPP,
                           "no code defines the method \"%.*s\"", CKPT_TEXT_ARGS(name));
    return script_call(m, f, self, actuals, out);
}

static int call_value(struct script_machine *m, const struct script_frame *frame,
                      const struct script_expr *e, struct script_value *out) {
    CKPT_AUTO(script_actuals) struct script_actuals actuals = {0};
    const bool is_method = e->base->kind == SCRIPT_EXPR_ATTRIBUTE;
    struct script_value callee;
    int rc = script_eval(m, frame, is_method ? e->base->base : e->base, &callee);
    if (rc == 0)
        rc = script_eval_actuals(m, frame, e, &actuals);
    if (rc)
        return rc;
    if (is_method)
        return call_method(m, &callee, e->base->text, &actuals, out);
    if (callee.kind != SCRIPT_VALUE_GLOBAL)
        return script_fail(m, -EINVAL, "a call of what is no function");
    return call_global(m, callee.text, &actuals, out);
}

int script_eval_call(struct script_machine *m, const struct script_frame *frame,
                     const struct script_expr *e, uint32_t nouts, struct script_value *out) {
    char name[SCRIPT_DOTTED_MAX];
    int rc = script_step(m, 1);
    if (rc == 0)
        rc = script_enter(m);
    if (rc)
        return rc;
    rc = script_eval_dotted(frame, e->base, name) ? call_named(m, frame, name, e, nouts, out)
                                                  : call_value(m, frame, e, out);
    m->depth--;
    return rc;
}

/* ---------------------------------------------------------------------------------------------- */

static int eval_negated(struct script_machine *m, const struct script_frame *frame,
                        const struct script_expr *e, struct script_value *out) {
    const int rc = script_eval(m, frame, e->base, out);
    if (rc)
        return rc;
    if (out->kind == SCRIPT_VALUE_FLOAT) {
        out->f = -out->f;
        return 0;
    }
    if (out->kind != SCRIPT_VALUE_INT || out->i == INT64_MIN)
        return script_fail(m, -EINVAL, "a minus before what is no number");
    out->i = -out->i;
    return 0;
}

static int eval_node(struct script_machine *m, const struct script_frame *frame,
                     const struct script_expr *e, struct script_value *out) {
    switch ((enum script_expr_kind)e->kind) {
    case SCRIPT_EXPR_NAME:
        return eval_name(m, frame, e, out);
    case SCRIPT_EXPR_NONE:
        return 0;
    case SCRIPT_EXPR_BOOL:
        *out = script_bool(e->b);
        return 0;
    case SCRIPT_EXPR_INT:
        *out = script_int(e->i);
        return 0;
    case SCRIPT_EXPR_FLOAT:
        *out = (struct script_value){.kind = SCRIPT_VALUE_FLOAT, .f = e->f};
        return 0;
    case SCRIPT_EXPR_TEXT:
        *out = (struct script_value){.kind = SCRIPT_VALUE_TEXT, .text = e->text};
        return 0;
    case SCRIPT_EXPR_NEGATED:
        return eval_negated(m, frame, e, out);
    case SCRIPT_EXPR_ATTRIBUTE:
        return eval_attribute(m, frame, e, out);
    case SCRIPT_EXPR_INDEX:
        return eval_index(m, frame, e, out);
    case SCRIPT_EXPR_CALL:
        return script_eval_call(m, frame, e, 0, out);
    case SCRIPT_EXPR_LIST:
    case SCRIPT_EXPR_TUPLE:
    case SCRIPT_EXPR_DICT:
        break;
    }
    return eval_items(m, frame, e, out);
}

int script_eval(struct script_machine *m, const struct script_frame *frame,
                const struct script_expr *e, struct script_value *out) {
    int rc = script_step(m, 1);
    if (rc == 0)
        rc = script_enter(m);
    if (rc)
        return rc;
    *out = (struct script_value){.kind = SCRIPT_VALUE_NONE};
    rc = eval_node(m, frame, e, out);
    m->depth--;
    return rc;
}
