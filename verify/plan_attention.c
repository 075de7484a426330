/* Plans of MultiheadAttention: its names in PyTorch and in burn, its attributes, its probe. */
#include <string.h>

#include "verify/forward.h"

static bool see_all(const char *module, const char *const *names, ckpt_name_fn *see, void *to) {
    char buf[CKPT_NAME_MAX];
    for (; *names; names++)
        if (see(to, ckpt_name_join(buf, module, *names)))
            return true;
    return false;
}

bool ckpt_attention_names(const struct ckpt_plan *p, const char *torch, const char *burn,
                          bool of_burn, ckpt_name_fn *see, void *to) {
    static const char *const packed[] = {"in_proj_weight", "out_proj.weight", NULL};
    static const char *const apart[] = {"q_proj_weight", "k_proj_weight", "v_proj_weight",
                                        "out_proj.weight", NULL};
    static const char *const weights[] = {"query.weight", "key.weight", "value.weight",
                                          "output.weight", NULL};
    static const char *const in_bias[2][4] = {{"in_proj_bias", NULL},
                                              {"query.bias", "key.bias", "value.bias", NULL}};
    static const char *const out_bias[2][2] = {{"out_proj.bias", NULL}, {"output.bias", NULL}};
    const char *const module = of_burn ? burn : torch;
    const char *const *const torchs = ckpt_plan_has(p, torch, "q_proj_weight") ? apart : packed;
    return see_all(module, of_burn ? weights : torchs, see, to) ||
           (ckpt_plan_has(p, torch, "in_proj_bias") &&
            see_all(module, in_bias[of_burn], see, to)) ||
           (ckpt_plan_has(p, torch, "out_proj.bias") &&
            see_all(module, out_bias[of_burn], see, to));
}

static bool names(const struct ckpt_plan *p, bool burn, ckpt_name_fn *see, void *to) {
    return ckpt_attention_names(p, "", "", burn, see, to);
}

const struct ckpt_forward ckpt_forward_attention = {ckpt_torch_mha, ckpt_burn_mha, names};

void ckpt_plan_attention_attributes(const struct ckpt_layer *l, struct ckpt_plan *p) {
    int64_t heads = 1;
    if (!ckpt_plan_read_ints(ckpt_plan_attribute(l, "num_heads"), 1, &heads))
        ckpt_plan_assume(p, "num_heads");
    ckpt_plan_add_int(p, "num_heads", heads);
    ckpt_plan_add_bool(p, "batch_first", ckpt_plan_bool(l, p, "batch_first", false));
    const struct ckpt_value *const zero = ckpt_plan_attribute(l, "add_zero_attn");
    ckpt_plan_add_bool(p, "add_zero_attn", zero && zero->kind == CKPT_VALUE_BOOL && zero->b);
}

/* Query alone if it can be key and value, too. */
static void set_probes(struct ckpt_plan *p) {
    const int64_t width =
        ckpt_plan_columns(p, "q_proj_weight", ckpt_plan_columns(p, "in_proj_weight", 1));
    const int64_t key = ckpt_plan_columns(p, "k_proj_weight", width);
    const int64_t value = ckpt_plan_columns(p, "v_proj_weight", width);
    ckpt_plan_probe_sequence(p, 0, 5, width);
    if (key == width && value == width)
        return;
    ckpt_plan_probe_sequence(p, 1, 7, key);
    ckpt_plan_probe_sequence(p, 2, 7, value);
}

void ckpt_plan_attention(const struct ckpt_layer *l, struct ckpt_plan *p) {
    ckpt_plan_attention_attributes(l, p);
    set_probes(p);
    if (ckpt_plan_has(p, "", "bias_k"))
        p->otherwise = "burn's attention has no add_bias_kv";
    else if (ckpt_scope_bool(&(struct ckpt_scope){.plan = p}, "add_zero_attn"))
        p->otherwise = "burn's attention has no add_zero_attn";
    ckpt_plan_forward(p, &ckpt_forward_attention);
}
