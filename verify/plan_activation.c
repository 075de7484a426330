/* Plans of modules without parameters: activations, pooling, and what leaves elements as they are.
 */
#include <string.h>

#include "verify/plan.h"

const char *const ckpt_activation_names[] = {
    "relu",        "gelu",        "gelu_tanh",   "silu",    "tanh",     "sigmoid",
    "softmax",     "log_softmax", "leaky_relu",  "elu",     "hardtanh", "relu6",
    "softplus",    "hardswish",   "hardsigmoid", "mish",    "selu",     "softsign",
    "log_sigmoid", "dropout",     "identity",    "flatten", NULL,
};

#define ATTRIBUTES_MAX 6

/* A class, its operation, and the attributes that are arguments of the same name. */
static const struct {
    const char *cls, *op, *attribute[ATTRIBUTES_MAX + 1];
} classes[] = {
    {"ReLU", "relu", {NULL}},
    {"GELU", "gelu", {"approximate", NULL}},
    {"SiLU", "silu", {NULL}},
    {"Tanh", "tanh", {NULL}},
    {"Sigmoid", "sigmoid", {NULL}},
    {"Softmax", "softmax", {"dim", NULL}},
    {"LogSoftmax", "log_softmax", {"dim", NULL}},
    {"LeakyReLU", "leaky_relu", {"negative_slope", NULL}},
    {"ELU", "elu", {"alpha", NULL}},
    {"CELU", "celu", {"alpha", NULL}},
    {"Hardtanh", "hardtanh", {"min_val", "max_val", NULL}},
    {"ReLU6", "relu6", {NULL}},
    {"Softplus", "softplus", {"beta", "threshold", NULL}},
    {"Hardswish", "hardswish", {NULL}},
    {"Hardsigmoid", "hardsigmoid", {NULL}},
    {"Mish", "mish", {NULL}},
    {"SELU", "selu", {NULL}},
    {"Softsign", "softsign", {NULL}},
    {"LogSigmoid", "log_sigmoid", {NULL}},
    {"Hardshrink", "hardshrink", {"lambd", NULL}},
    {"Softshrink", "softshrink", {"lambd", NULL}},
    {"GLU", "glu", {"dim", NULL}},
    {"Identity", "identity", {NULL}},
    {"Dropout", "identity", {NULL}},
    {"Dropout1d", "identity", {NULL}},
    {"Dropout2d", "identity", {NULL}},
    {"Dropout3d", "identity", {NULL}},
    {"AlphaDropout", "identity", {NULL}},
    {"Flatten", "flatten", {"start_dim", "end_dim", NULL}},
    {"PixelShuffle", "pixel_shuffle", {"upscale_factor", NULL}},
    {"PixelUnshuffle", "pixel_unshuffle", {"downscale_factor", NULL}},
    {"MaxPool1d",
     "max_pool1d",
     {"kernel_size", "stride", "padding", "dilation", "ceil_mode", NULL}},
    {"AvgPool1d",
     "avg_pool1d",
     {"kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", NULL}},
    {"AdaptiveAvgPool1d", "adaptive_avg_pool1d", {"output_size", NULL}},
    {"MaxPool2d",
     "max_pool2d",
     {"kernel_size", "stride", "padding", "dilation", "ceil_mode", NULL}},
    {"AvgPool2d",
     "avg_pool2d",
     {"kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override",
      NULL}},
    {"AdaptiveAvgPool2d", "adaptive_avg_pool2d", {"output_size", NULL}},
    {"MaxPool3d",
     "max_pool3d",
     {"kernel_size", "stride", "padding", "dilation", "ceil_mode", NULL}},
    {"AvgPool3d",
     "avg_pool3d",
     {"kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override",
      NULL}},
    {"AdaptiveAvgPool3d", "adaptive_avg_pool3d", {"output_size", NULL}},
};

static void add_list(struct ckpt_plan *p, const char *arg, const struct ckpt_value *v) {
    int64_t list[CKPT_ARRAY_NDIM_MAX];
    if (v->seq.n <= CKPT_ARRAY_NDIM_MAX && ckpt_plan_read_ints(v, (uint32_t)v->seq.n, list))
        ckpt_plan_add_ints(p, arg, list, (uint32_t)v->seq.n);
    else
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "its %s is no list of numbers", arg);
}

static void add_value(struct ckpt_plan *p, const char *arg, const struct ckpt_value *v) {
    if (!v)
        return;
    if (v->kind == CKPT_VALUE_INT)
        ckpt_plan_add_int(p, arg, v->i);
    else if (v->kind == CKPT_VALUE_FLOAT)
        ckpt_plan_add_float(p, arg, v->f);
    else if (v->kind == CKPT_VALUE_BOOL)
        ckpt_plan_add_bool(p, arg, v->b);
    else if (v->kind == CKPT_VALUE_STR)
        ckpt_plan_add_string(p, arg, v->text.s);
    else if (v->kind == CKPT_VALUE_TUPLE || v->kind == CKPT_VALUE_LIST)
        add_list(p, arg, v);
}

static bool by_class(const struct ckpt_module *record, struct ckpt_plan *p) {
    const struct ckpt_text cls = ckpt_layer_class(record);
    const struct ckpt_layer l = {.record = record};
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (!ckpt_text_is(cls, classes[i].cls))
            continue;
        p->op = ckpt_op_find(ckpt_text_of(classes[i].op));
        for (const char *const *name = classes[i].attribute; *name; name++)
            add_value(p, *name, ckpt_plan_attribute(&l, *name));
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
