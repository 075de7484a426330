/* Gathering tensors into layers, by the path of their module. */
#include "verify/layer.h"

#include <string.h>

/* A module was looked for, or the file names it: tensors outside any are no layer. */
static bool has_module(const struct ckpt_adapted *t) {
    return t->in_model && (t->module.kind || t->module.path.n > 0);
}

static int add_layer(struct ckpt_layers *layers, const struct ckpt_adapted *t,
                     struct ckpt_err *err) {
    size_t existing;
    if (ckpt_strmap_get(&layers->by_path, t->module.path) != CKPT_STRMAP_ABSENT)
        return 0;
    if (ckpt_strmap_add(&layers->by_path, t->module.path, layers->n, &existing) < 0)
        return ckpt_fail_memory(err, "finding layers");
    layers->at[layers->n++] = (struct ckpt_layer){.path = t->module.path,
                                                  .kind = t->module.kind,
                                                  .decided_by = t->module.decided_by,
                                                  .record = t->module.record};
    return 0;
}

static struct ckpt_layer *layer_of(struct ckpt_layers *layers, const struct ckpt_adapted *t) {
    return &layers->at[ckpt_strmap_get(&layers->by_path, t->module.path)];
}

/* Counts, then hands out slices of one array. */
static int add_params(const struct ckpt_model *m, struct ckpt_layers *layers,
                      struct ckpt_err *err) {
    const struct ckpt_adapted **slot = ckpt_arena_array(&layers->arena, m->ntensors, sizeof(*slot));
    if (!slot)
        return ckpt_fail_memory(err, "finding layers");
    for (size_t i = 0; i < m->ntensors; i++)
        if (has_module(&m->tensor[i]))
            layer_of(layers, &m->tensor[i])->nparams++;
    for (size_t i = 0; i < layers->n; i++) {
        layers->at[i].param = slot;
        slot += layers->at[i].nparams;
        layers->at[i].nparams = 0;
    }
    for (size_t i = 0; i < m->ntensors; i++)
        if (has_module(&m->tensor[i])) {
            struct ckpt_layer *const l = layer_of(layers, &m->tensor[i]);
            l->param[l->nparams++] = &m->tensor[i];
        }
    return 0;
}

int ckpt_layers_find(const struct ckpt_model *m, struct ckpt_layers *layers, struct ckpt_err *err) {
    *layers = (struct ckpt_layers){0};
    layers->at = ckpt_arena_array(&layers->arena, m->ntensors, sizeof(*layers->at));
    if (!layers->at)
        return ckpt_fail_memory(err, "finding layers");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->ntensors; i++)
        if (has_module(&m->tensor[i]))
            rc = add_layer(layers, &m->tensor[i], err);
    return rc < 0 ? rc : add_params(m, layers, err);
}

void ckpt_layers_fini(struct ckpt_layers *layers) {
    ckpt_strmap_fini(&layers->by_path);
    ckpt_arena_fini(&layers->arena);
    *layers = (struct ckpt_layers){0};
}

const struct ckpt_layer *ckpt_layers_get(const struct ckpt_layers *layers, struct ckpt_text path) {
    const size_t at = ckpt_strmap_get(&layers->by_path, path);
    return at == CKPT_STRMAP_ABSENT ? NULL : &layers->at[at];
}

const struct ckpt_adapted *ckpt_layer_param(const struct ckpt_layer *l, const char *name) {
    for (uint32_t i = 0; i < l->nparams; i++) {
        const struct ckpt_text key = l->param[i]->torch_key;
        const size_t prefix = l->path.n ? l->path.n + 1 : 0;
        if (key.n >= prefix &&
            ckpt_text_is((struct ckpt_text){key.s + prefix, key.n - prefix}, name))
            return l->param[i];
    }
    return NULL;
}

struct ckpt_text ckpt_layer_class(const struct ckpt_module *record) {
    if (!record || !ckpt_text_starts(record->cls, "torch.nn.modules."))
        return CKPT_TEXT("");
    const char *const dot = memrchr(record->cls.s, '.', record->cls.n);
    return (struct ckpt_text){dot + 1, (size_t)(record->cls.s + record->cls.n - dot - 1)};
}

struct ckpt_text ckpt_layer_type(const struct ckpt_layer *l) {
    const struct ckpt_text cls = ckpt_layer_class(l->record);
    if (cls.n)
        return cls;
    return l->kind ? ckpt_text_of(l->kind) : CKPT_TEXT("unknown");
}
