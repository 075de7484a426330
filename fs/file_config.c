/*
 * config.json as openpi's own converter writes it beside its model.safetensors, from what the
 * checkpoint tells:
 *
 *     action_dim          [action_dim, width] of action_in_proj's kernel
 *     action_horizon      in no tensor: null
 *     ..._variant         by width, depth and width of the feed-forward: [depth, 2, width, mlp] of
 *                         a gating_einsum; null for sizes that openpi has no name for
 *     precision           what is served; null where that are several dtypes
 */
#include "fs/files.h"

#include <string.h>

#include "base/cleanup.h"

#define DECODER "paligemma_with_expert.paligemma.model.language_model."
#define EXPERT "paligemma_with_expert.gemma_expert.model."
#define GATE "layers.0.mlp.gate_proj.weight"

static const struct variant {
    const char *name;
    int64_t width, depth, mlp;
} variants[] = {
    {"gemma_300m", 1024, 18, 4096},
    {"gemma_2b", 2048, 18, 16384},
};

static const struct ckpt_tensor *source_of(const struct ckpt_model *m, const char *torch_key) {
    for (size_t i = 0; i < m->ntensors; i++)
        if (ckpt_text_is(m->tensor[i].torch_key, torch_key))
            return m->tensor[i].source;
    return NULL;
}

static const char *find_variant(const struct ckpt_model *m, const char *gate) {
    const struct ckpt_tensor *const t = source_of(m, gate);
    for (size_t i = 0; t && t->ndim == 4 && i < sizeof variants / sizeof variants[0]; i++) {
        const struct variant *const v = &variants[i];
        if (t->shape[0] == v->depth && t->shape[2] == v->width && t->shape[3] == v->mlp)
            return v->name;
    }
    return NULL;
}

static const char *precision(const struct ckpt_model *m) {
    enum ckpt_dtype found = CKPT_DT_NONE;
    for (size_t i = 0; i < m->ntensors; i++) {
        if (!ckpt_adapted_is_stored(&m->tensor[i]))
            continue;
        if (found != CKPT_DT_NONE && found != m->tensor[i].dtype)
            return NULL;
        found = m->tensor[i].dtype;
    }
    return found == CKPT_DT_BF16  ? "bfloat16"
           : found == CKPT_DT_F32 ? "float32"
           : found == CKPT_DT_F16 ? "float16"
                                  : NULL;
}

static void put(struct ckpt_str *out, const char *name, const char *value, const char *end) {
    if (value)
        ckpt_str_printf(out, "  \"%s\": \"%s\"%s\n", name, value, end);
    else
        ckpt_str_printf(out, "  \"%s\": null%s\n", name, end);
}

static void write_config(const struct ckpt_model *m, struct ckpt_str *out) {
    const struct ckpt_tensor *const action = source_of(m, "action_in_proj.weight");
    ckpt_str_puts(out, "{\n");
    if (action && action->ndim == 2)
        ckpt_str_printf(out, "  \"action_dim\": %lld,\n", (long long)action->shape[0]);
    else
        put(out, "action_dim", NULL, ",");
    put(out, "action_horizon", NULL, ",");
    put(out, "paligemma_variant", find_variant(m, DECODER GATE), ",");
    put(out, "action_expert_variant", find_variant(m, EXPERT GATE), ",");
    put(out, "precision", precision(m), "");
    ckpt_str_puts(out, "}\n");
}

/* With openpi's models only, and unless the source has one of its own. */
int ckpt_files_add_config(struct ckpt_session *s, struct ckpt_err *err) {
    const struct ckpt_text name = CKPT_TEXT("config.json");
    const struct ckpt_model *const m = s->model;
    if (strcmp(m->dialect, "openpi") != 0 || m->layout == CKPT_LAYOUT_SOURCE ||
        ckpt_tree_lookup(&s->tree, CKPT_TREE_ROOT, name) != CKPT_TREE_NONE)
        return 0;
    CKPT_AUTO(str) struct ckpt_str text = {0};
    write_config(m, &text);
    const struct ckpt_text kept = ckpt_text_copy(&s->arena, ckpt_str_text(&text).s, text.n);
    uint32_t node;
    return text.failed || !kept.s
               ? ckpt_fail_memory(err, "writing config.json")
               : ckpt_session_add_text(s, CKPT_TREE_ROOT, name, kept, &node, err);
}
