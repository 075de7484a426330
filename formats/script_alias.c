/*
 * Operations that have two names. A trace keeps the one that the model called; torch.jit.load puts
 * the other in its place, whose schema is the same, and so do we. In place ("clip_") as well.
 */
#include <stdio.h>
#include <string.h>

#include "formats/script_machine.h"

static const struct {
    const char *alias, *name;
} aliases[] = {
    {"absolute", "abs"},       {"arccos", "acos"},
    {"arccosh", "acosh"},      {"arcsin", "asin"},
    {"arcsinh", "asinh"},      {"arctan", "atan"},
    {"arctanh", "atanh"},      {"clip", "clamp"},
    {"concat", "cat"},         {"concatenate", "cat"},
    {"det", "linalg_det"},     {"divide", "div"},
    {"fix", "trunc"},          {"ger", "outer"},
    {"greater", "gt"},         {"greater_equal", "ge"},
    {"inverse", "linalg_inv"}, {"less", "lt"},
    {"less_equal", "le"},      {"matrix_exp", "linalg_matrix_exp"},
    {"moveaxis", "movedim"},   {"multiply", "mul"},
    {"negative", "neg"},       {"not_equal", "ne"},
    {"row_stack", "vstack"},   {"subtract", "sub"},
    {"swapaxes", "transpose"}, {"swapdims", "transpose"},
    {"true_divide", "div"},
};

/* "_" behind the name of an operation in place, as in "clip_"; "" else. */
static const char *suffix_of(const char *name, size_t n) {
    return n > 1 && name[n - 1] == '_' && name[n - 2] != '_' ? "_" : "";
}

void script_op_name(const char *name, char out[static SCRIPT_OP_NAME_MAX]) {
    const char *const suffix = suffix_of(name, strlen(name));
    const size_t n = strlen(name) - strlen(suffix);
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strlen(aliases[i].alias) == n && memcmp(name, aliases[i].alias, n) == 0) {
            snprintf(out, SCRIPT_OP_NAME_MAX, "aten.%s%s", aliases[i].name, suffix);
            return;
        }
    snprintf(out, SCRIPT_OP_NAME_MAX, "aten.%s", name);
}
