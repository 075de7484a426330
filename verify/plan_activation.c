/* Plans of modules without parameters: activations and what leaves elements as they are. */
#include <string.h>

#include "verify/plan.h"

const char *const ckpt_activation_names[] = {
    "relu",        "gelu",        "gelu_tanh",   "silu",    "tanh",     "sigmoid",
    "softmax",     "log_softmax", "leaky_relu",  "elu",     "hardtanh", "relu6",
    "softplus",    "hardswish",   "hardsigmoid", "mish",    "selu",     "softsign",
    "log_sigmoid", "dropout",     "identity",    "flatten", NULL,
};

static const struct {
    const char *cls, *op;
    const char *attribute[2], *arg[2];
} classes[] = {
    {"ReLU", "relu", {NULL, NULL}, {NULL, NULL}},
    {"GELU", "gelu", {"approximate", NULL}, {"approximate", NULL}},
    {"SiLU", "silu", {NULL, NULL}, {NULL, NULL}},
    {"Tanh", "tanh", {NULL, NULL}, {NULL, NULL}},
    {"Sigmoid", "sigmoid", {NULL, NULL}, {NULL, NULL}},
    {"Softmax", "softmax", {"dim", NULL}, {"dim", NULL}},
    {"LogSoftmax", "log_softmax", {"dim", NULL}, {"dim", NULL}},
    {"LeakyReLU", "leaky_relu", {"negative_slope", NULL}, {"negative_slope", NULL}},
    {"ELU", "elu", {"alpha", NULL}, {"alpha", NULL}},
    {"Hardtanh", "hardtanh", {"min_val", "max_val"}, {"min_val", "max_val"}},
    {"ReLU6", "relu6", {NULL, NULL}, {NULL, NULL}},
    {"Softplus", "softplus", {"beta", "threshold"}, {"beta", "threshold"}},
    {"Hardswish", "hardswish", {NULL, NULL}, {NULL, NULL}},
    {"Hardsigmoid", "hardsigmoid", {NULL, NULL}, {NULL, NULL}},
    {"Mish", "mish", {NULL, NULL}, {NULL, NULL}},
    {"SELU", "selu", {NULL, NULL}, {NULL, NULL}},
    {"Softsign", "softsign", {NULL, NULL}, {NULL, NULL}},
    {"LogSigmoid", "log_sigmoid", {NULL, NULL}, {NULL, NULL}},
    {"Identity", "identity", {NULL, NULL}, {NULL, NULL}},
    {"Dropout", "identity", {NULL, NULL}, {NULL, NULL}},
    {"Dropout1d", "identity", {NULL, NULL}, {NULL, NULL}},
    {"Dropout2d", "identity", {NULL, NULL}, {NULL, NULL}},
    {"Dropout3d", "identity", {NULL, NULL}, {NULL, NULL}},
    {"AlphaDropout", "identity", {NULL, NULL}, {NULL, NULL}},
    {"Flatten", "flatten", {"start_dim", "end_dim"}, {"start_dim", "end_dim"}},
};

static void add_value(struct ckpt_plan *p, const char *arg, const struct ckpt_value *v) {
    if (v && v->kind == CKPT_VALUE_INT)
        ckpt_plan_add_int(p, arg, v->i);
    else if (v && v->kind == CKPT_VALUE_FLOAT)
        ckpt_plan_add_float(p, arg, v->f);
    else if (v && v->kind == CKPT_VALUE_STR)
        ckpt_plan_add_string(p, arg, v->text.s);
}

static bool by_class(const struct ckpt_module *record, struct ckpt_plan *p) {
    const struct ckpt_text cls = ckpt_layer_class(record);
    const struct ckpt_layer l = {.record = record};
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (!ckpt_text_is(cls, classes[i].cls))
            continue;
        p->op = ckpt_op_find(ckpt_text_of(classes[i].op));
        for (int k = 0; k < 2 && classes[i].attribute[k]; k++)
            add_value(p, classes[i].arg[k], ckpt_plan_attribute(&l, classes[i].attribute[k]));
        return true;
    }
    return false;
}

static bool by_name(struct ckpt_text name, struct ckpt_plan *p) {
    size_t i = 0;
    while (ckpt_activation_names[i] && !ckpt_text_is(name, ckpt_activation_names[i]))
        i++;
    if (!ckpt_activation_names[i])
        return false;
    const bool gelu_tanh = ckpt_text_is(name, "gelu_tanh");
    p->op = ckpt_op_find(gelu_tanh ? CKPT_TEXT("gelu") : name);
    if (gelu_tanh)
        ckpt_plan_add_string(p, "approximate", "tanh");
    if (ckpt_text_is(name, "flatten"))
        ckpt_plan_add_int(p, "start_dim", 1); /* as nn.Flatten: the batch stays */
    return true;
}

bool ckpt_plan_activation(struct ckpt_text name, const struct ckpt_module *record,
                          struct ckpt_plan *plan) {
    memset(plan, 0, sizeof(*plan));
    plan->status = CKPT_STATUS_PASS;
    const bool known = record ? by_class(record, plan) : by_name(name, plan);
    plan->input = known && strcmp(plan->op->name, "dropout") == 0 ? "input" : "self";
    return known;
}
