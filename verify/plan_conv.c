/* Plans of convolutions. Their probe is one image just large enough for three output positions. */
#include <string.h>

#include "base/size.h"
#include "verify/plan.h"

#define KERNEL_MAX (1 << 20)    /* of one axis */
#define ATTRIBUTE_MAX INT32_MAX /* of a stride, padding, dilation */

struct geometry {
    uint32_t spatial;
    int64_t stride[3], dilation[3], groups;
};

static void known_or_assumed(const struct ckpt_layer *l, struct ckpt_plan *p, const char *name,
                             uint32_t n, int64_t otherwise, int64_t *out) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = otherwise;
    if (!ckpt_plan_read_ints(ckpt_plan_attribute(l, name), n, out))
        ckpt_plan_assume(p, name);
    for (uint32_t i = 0; i < n; i++)
        if (out[i] < 0 || out[i] > ATTRIBUTE_MAX)
            ckpt_plan_refuse(p, CKPT_STATUS_TEST_FAIL, "%s is %lld", name, (long long)out[i]);
}

static void add_padding(const struct ckpt_layer *l, struct ckpt_plan *p, uint32_t spatial) {
    int64_t padding[3];
    const struct ckpt_value *const v = ckpt_plan_attribute(l, "padding");
    const struct ckpt_value *const mode = ckpt_plan_attribute(l, "padding_mode");
    if (mode && mode->kind == CKPT_VALUE_STR && !ckpt_text_is(mode->text, "zeros"))
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "padding_mode=%.*s has no probe",
                         CKPT_TEXT_ARGS(mode->text));
    if (v && v->kind == CKPT_VALUE_STR) {
        ckpt_plan_add_string(p, "padding", v->text.s);
        return;
    }
    known_or_assumed(l, p, "padding", spatial, 0, padding);
    ckpt_plan_add_ints(p, "padding", padding, spatial);
}

/* Of a transposed convolution without attributes, the bias tells: it has out = shape[1] * groups.
 */
static int64_t find_groups(const struct ckpt_layer *l, struct ckpt_plan *p, bool transposed) {
    int64_t groups = 1;
    const struct ckpt_plan_param *const w = &p->param[0], *const bias = &p->param[1];
    if (ckpt_plan_read_ints(ckpt_plan_attribute(l, "groups"), 1, &groups))
        return groups;
    ckpt_plan_assume(p, "groups");
    if (transposed && p->nparams > 1 && bias->ndim == 1 && w->shape[1] > 0 &&
        bias->shape[0] % w->shape[1] == 0)
        groups = bias->shape[0] / w->shape[1];
    return groups;
}

static void set_probe(struct ckpt_plan *p, const struct geometry *g, bool transposed) {
    const int64_t *const shape = p->param[0].shape;
    int64_t channels = shape[0];
    if (!transposed && !ckpt_mul_i64(shape[1], g->groups, &channels))
        ckpt_plan_refuse(p, CKPT_STATUS_TEST_FAIL, "groups is %lld", (long long)g->groups);
    p->probe[0] = (struct ckpt_plan_probe){.shape = {1, channels}, .ndim = 2 + g->spatial};
    p->nprobes = 1;
    for (uint32_t d = 0; d < g->spatial; d++) {
        const int64_t kernel = shape[2 + d];
        if (kernel < 1 || kernel > KERNEL_MAX)
            ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "a kernel of %lld positions", (long long)kernel);
        else
            p->probe[0].shape[2 + d] = g->dilation[d] * (kernel - 1) + 1 + 2 * g->stride[d];
    }
}

static const struct ckpt_op *find_op(uint32_t spatial, bool transposed) {
    static const struct ckpt_text names[2][3] = {
        {CKPT_TEXT("conv1d"), CKPT_TEXT("conv2d"), CKPT_TEXT("conv3d")},
        {CKPT_TEXT("conv_transpose1d"), CKPT_TEXT("conv_transpose2d"),
         CKPT_TEXT("conv_transpose3d")},
    };
    return ckpt_op_find(names[transposed][spatial - 1]);
}

void ckpt_plan_conv(const struct ckpt_layer *l, struct ckpt_plan *p, bool transposed) {
    const struct ckpt_plan_param *const w = &p->param[0];
    struct geometry g = {.spatial = w->ndim - 2};
    int64_t extra[3];
    if (w->ndim < 3 || w->ndim > 5) {
        ckpt_plan_refuse(p, CKPT_STATUS_TEST_FAIL,
                         "parameter %.*s is ill-shaped: %u dimensions, expected 3 to 5",
                         CKPT_TEXT_ARGS(w->tensor->torch_key), w->ndim);
        return;
    }
    p->op = find_op(g.spatial, transposed);
    known_or_assumed(l, p, "stride", g.spatial, 1, g.stride);
    ckpt_plan_add_ints(p, "stride", g.stride, g.spatial);
    add_padding(l, p, g.spatial);
    known_or_assumed(l, p, "dilation", g.spatial, 1, g.dilation);
    ckpt_plan_add_ints(p, "dilation", g.dilation, g.spatial);
    if (transposed) {
        known_or_assumed(l, p, "output_padding", g.spatial, 0, extra);
        ckpt_plan_add_ints(p, "output_padding", extra, g.spatial);
    }
    g.groups = find_groups(l, p, transposed);
    ckpt_plan_add_int(p, "groups", g.groups);
    set_probe(p, &g, transposed);
}
