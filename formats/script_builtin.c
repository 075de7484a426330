/* What TorchScript's Python has beside operations: types beside values, conversions of numbers. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/script_machine.h"

struct call {
    struct script_machine *m;
    const struct script_frame *frame;
    const struct script_expr *e;
    struct script_value *out;
};

/* The call's argument i. */
static int argument(const struct call *c, uint32_t i, struct script_value *out) {
    if (i >= c->e->n)
        return script_fail(c->m, -EINVAL, "a call of %u arguments, expected more", c->e->n);
    return script_eval(c->m, c->frame, c->e->arg[i].value, out);
}

/* A node for one operand. */
static int unary(const struct call *c, const char *op, const struct script_value *operand,
                 enum ckpt_graph_type type) {
    struct script_actual actual = {.name = CKPT_TEXT(""), .value = *operand};
    const struct script_actuals actuals = {.item = &actual, .n = 1};
    const int rc = script_op_node(c->m, op, &actuals, type, c->out);
    c->out->integral = type == CKPT_GRAPH_SYM_INT;
    return rc;
}

/* --- annotate(TYPE, value) -------------------------------------------------------------------- */

/* A tensor that is annotated as a number becomes one: annotate(number, x). */
static int annotate(const struct call *c) {
    int rc = argument(c, 1, c->out);
    if (rc || !script_is_graph(c->out, CKPT_GRAPH_TENSOR))
        return rc;
    const struct script_expr *const type = c->e->arg[0].value;
    const struct script_value tensor = *c->out;
    if (type->kind != SCRIPT_EXPR_NAME)
        return 0;
    if (ckpt_text_is(type->text, "int"))
        return unary(c, "aten.IntImplicit", &tensor, CKPT_GRAPH_SYM_INT);
    if (ckpt_text_is(type->text, "float"))
        return unary(c, "aten.FloatImplicit", &tensor, CKPT_GRAPH_SYM_FLOAT);
    if (ckpt_text_is(type->text, "number"))
        return unary(c, "aten.ScalarImplicit", &tensor,
                     tensor.integral ? CKPT_GRAPH_SYM_INT : CKPT_GRAPH_SYM_FLOAT);
    return 0;
}

static int unchecked_cast(const struct call *c) {
    return argument(c, 1, c->out);
}

static int nothing(const struct call *c) {
    *c->out = (struct script_value){.kind = SCRIPT_VALUE_NONE};
    return 0;
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* A number as a double; false: it is none, or only a run knows it. */
static bool as_double(const struct script_value *v, double *out) {
    *out = v->kind == SCRIPT_VALUE_FLOAT  ? v->f
           : v->kind == SCRIPT_VALUE_INT  ? (double)v->i
           : v->kind == SCRIPT_VALUE_BOOL ? (double)v->b
                                          : 0;
    return v->kind == SCRIPT_VALUE_FLOAT || v->kind == SCRIPT_VALUE_INT ||
           v->kind == SCRIPT_VALUE_BOOL;
}

/* int(x), float(x), bool(x): of a constant at once, of what only a run knows an operation. */
struct conversion {
    const char *op;
    enum ckpt_graph_type type;
    bool (*of)(const struct script_value *v, struct script_value *out);
};

static bool int_of(const struct script_value *v, struct script_value *out) {
    double f;
    if (v->kind == SCRIPT_VALUE_INT)
        *out = *v;
    else if (as_double(v, &f) && f > -0x1p63 && f < 0x1p63)
        *out = script_int((int64_t)f);
    else
        return false;
    return true;
}

static bool float_of(const struct script_value *v, struct script_value *out) {
    double f;
    if (v->kind == SCRIPT_VALUE_TEXT && ckpt_text_is(v->text, "inf"))
        f = __builtin_inf();
    else if (v->kind == SCRIPT_VALUE_TEXT && ckpt_text_is(v->text, "-inf"))
        f = -__builtin_inf();
    else if (v->kind == SCRIPT_VALUE_TEXT && ckpt_text_is(v->text, "nan"))
        f = __builtin_nan("");
    else if (!as_double(v, &f))
        return false;
    *out = (struct script_value){.kind = SCRIPT_VALUE_FLOAT, .f = f};
    return true;
}

static bool bool_of(const struct script_value *v, struct script_value *out) {
    double f;
    if (!as_double(v, &f))
        return false;
    *out = script_bool(f < 0 || f > 0 || f != f);
    return true;
}

static int convert(const struct call *c, struct conversion to) {
    struct script_value v;
    const int rc = argument(c, 0, &v);
    if (rc)
        return rc;
    if (v.kind == SCRIPT_VALUE_GRAPH)
        return unary(c, to.op, &v, to.type);
    return to.of(&v, c->out)
               ? 0
               : script_fail(c->m, -EOPNOTSUPP, "a number is made of what is no number");
}

static int to_int(const struct call *c) {
    return convert(c, (struct conversion){"aten.Int", CKPT_GRAPH_SYM_INT, int_of});
}

static int to_float(const struct call *c) {
    return convert(c, (struct conversion){"aten.Float", CKPT_GRAPH_SYM_FLOAT, float_of});
}

static int to_bool(const struct call *c) {
    return convert(c, (struct conversion){"aten.Bool", CKPT_GRAPH_SYM_BOOL, bool_of});
}

/* --- objects ---------------------------------------------------------------------------------- */

/* getattr(self, "0"): names that are no names. */
static int get_attribute(const struct call *c) {
    struct script_value object, name;
    int rc = argument(c, 0, &object);
    if (rc == 0)
        rc = argument(c, 1, &name);
    if (rc)
        return rc;
    if (object.kind != SCRIPT_VALUE_OBJECT || name.kind != SCRIPT_VALUE_TEXT)
        return script_fail(c->m, -EINVAL, "getattr of what is no object");
    return script_object_attribute(c->m, &object, name.text, c->out);
}

static int device(const struct call *c) {
    struct script_value v;
    const int rc = argument(c, 0, &v);
    if (rc)
        return rc;
    if (v.kind != SCRIPT_VALUE_TEXT)
        return script_fail(c->m, -EOPNOTSUPP, "a device whose name only a run of the model knows");
    *c->out = (struct script_value){.kind = SCRIPT_VALUE_DEVICE, .text = v.text};
    return 0;
}

/* ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*run)(const struct call *c);
} builtins[] = {
    {"annotate", annotate},     {"unchecked_cast", unchecked_cast},
    {"uninitialized", nothing}, {"int", to_int},
    {"float", to_float},        {"bool", to_bool},
    {"getattr", get_attribute}, {"torch.device", device},
    {"torch.warn", nothing},    {"print", nothing},
};

int script_builtin(struct script_machine *m, const struct script_frame *frame, const char *name,
                   const struct script_expr *call, struct script_value *out, bool *known) {
    const struct call c = {m, frame, call, out};
    *known = false;
    for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++)
        if (strcmp(name, builtins[i].name) == 0) {
            *known = true;
            return builtins[i].run(&c);
        }
    return 0;
}
