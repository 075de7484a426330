/* Gathering tensors into layers, by the path of their module. */
#include "verify/layer.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"

/* A module was looked for, or the file names it: tensors outside any are no layer. */
static bool has_module(const struct ckpt_adapted *t) {
    return t->in_model && (t->module.kind || t->module.path.n > 0);
}

/* Adds it unless it is there; the tensor at index `at` is one of its own or its children's. */
static int add_layer(struct ckpt_layers *layers, const struct ckpt_layer *l, size_t at,
                     struct ckpt_err *err) {
    size_t existing = layers->n;
    const int rc = ckpt_strmap_add(&layers->by_path, l->path, layers->n, &existing);
    if (rc == -ENOMEM)
        return ckpt_fail_memory(err, "finding layers");
    if (rc == 0) {
        layers->at[layers->n] = *l;
        layers->at[layers->n++].first = at;
    }
    layers->at[existing].end = at + 1;
    return 0;
}

/* "Conv2d" of "torch.nn.modules.conv.Conv2d"; empty unless it is PyTorch's own class. */
static struct ckpt_text torch_class(struct ckpt_text cls) {
    if (!cls.s || !ckpt_text_starts(cls, "torch.nn.modules."))
        return CKPT_TEXT("");
    const char *const dot = memrchr(cls.s, '.', cls.n);
    return (struct ckpt_text){dot + 1, (size_t)(cls.s + cls.n - dot - 1)};
}

const char *ckpt_layer_composite(const struct ckpt_decision *d) {
    const struct ckpt_text cls = torch_class(d->record ? d->record->cls : d->graph_class);
    if (d->kind && ckpt_is_layer(d->kind))
        return d->kind;
    return ckpt_text_is(cls, "TransformerEncoder") || ckpt_text_is(cls, "TransformerDecoder")
               ? "stack"
               : NULL;
}

/* The modules around a tensor's own that compute with it, outermost first. */
static int add_composites(struct ckpt_layers *layers, const struct ckpt_decision *d, size_t at,
                          struct ckpt_err *err) {
    if (!d)
        return 0;
    const int rc = add_composites(layers, d->within, at, err);
    const char *const kind = ckpt_layer_composite(d);
    if (rc < 0 || !kind)
        return rc;
    const struct ckpt_layer l = {.path = d->path,
                                 .kind = kind,
                                 .decided_by = d->decided_by ? d->decided_by : "class",
                                 .record = d->record};
    return add_layer(layers, &l, at, err);
}

static int add_layers_of(struct ckpt_layers *layers, size_t at, struct ckpt_err *err) {
    const struct ckpt_adapted *const t = &layers->model->tensor[at];
    const struct ckpt_layer own = {.path = t->module.path,
                                   .kind = t->module.kind,
                                   .decided_by = t->module.decided_by,
                                   .record = t->module.record};
    const int rc = add_composites(layers, t->module.within, at, err);
    return rc < 0 ? rc : add_layer(layers, &own, at, err);
}

/* A layer's children may come after it: an attention's out_proj. */
static void widen_spans(struct ckpt_layers *layers) {
    for (size_t i = 0; i < layers->n; i++) {
        struct ckpt_text path = layers->at[i].path;
        const struct ckpt_layer l = layers->at[i];
        while (path.n > 0) {
            const char *const dot = memrchr(path.s, '.', path.n);
            path.n = dot ? (size_t)(dot - path.s) : 0;
            const size_t above = ckpt_strmap_get(&layers->by_path, path);
            if (above == CKPT_STRMAP_ABSENT)
                continue;
            if (l.first < layers->at[above].first)
                layers->at[above].first = l.first;
            if (l.end > layers->at[above].end)
                layers->at[above].end = l.end;
        }
    }
}

/* One source may show as several tensors; any of them leads to it. */
static int index_keys(struct ckpt_layers *layers, struct ckpt_err *err) {
    for (size_t i = 0; i < layers->model->ntensors; i++) {
        const struct ckpt_adapted *const t = &layers->model->tensor[i];
        if (t->in_model &&
            (ckpt_strmap_add(&layers->by_torch_key, t->torch_key, i, NULL) == -ENOMEM ||
             ckpt_strmap_add(&layers->by_key, t->key, i, NULL) == -ENOMEM))
            return ckpt_fail_memory(err, "finding layers");
    }
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

/* At least as many as there are. */
static size_t count_composites(const struct ckpt_model *m) {
    const struct ckpt_decision *last = NULL;
    size_t n = 0;
    for (size_t i = 0; i < m->ntensors; i++) {
        const struct ckpt_decision *const within = m->tensor[i].module.within;
        for (const struct ckpt_decision *d = within; d && within != last; d = d->within)
            n += ckpt_layer_composite(d) != NULL;
        last = within;
    }
    return n;
}

int ckpt_layers_find(const struct ckpt_model *m, struct ckpt_layers *layers, struct ckpt_err *err) {
    *layers = (struct ckpt_layers){.model = m};
    layers->at =
        ckpt_arena_array(&layers->arena, m->ntensors + count_composites(m), sizeof(*layers->at));
    if (!layers->at)
        return ckpt_fail_memory(err, "finding layers");
    int rc = index_keys(layers, err);
    for (size_t i = 0; rc == 0 && i < m->ntensors; i++)
        if (has_module(&m->tensor[i]))
            rc = add_layers_of(layers, i, err);
    widen_spans(layers);
    return rc < 0 ? rc : add_params(m, layers, err);
}

void ckpt_layers_fini(struct ckpt_layers *layers) {
    ckpt_strmap_fini(&layers->by_path);
    ckpt_strmap_fini(&layers->by_torch_key);
    ckpt_strmap_fini(&layers->by_key);
    ckpt_arena_fini(&layers->arena);
    *layers = (struct ckpt_layers){0};
}

/* The value of "PATH.NAME". */
static size_t get_joined(const struct ckpt_strmap *map, struct ckpt_text path, const char *name) {
    CKPT_AUTO(str) struct ckpt_str key = {0};
    ckpt_str_add(&key, path.s, path.n);
    ckpt_str_puts(&key, path.n ? "." : "");
    ckpt_str_puts(&key, name);
    return key.failed ? CKPT_STRMAP_ABSENT : ckpt_strmap_get(map, ckpt_str_text(&key));
}

const struct ckpt_adapted *ckpt_layers_source(const struct ckpt_layers *layers,
                                              struct ckpt_text path, const char *name) {
    const size_t at = get_joined(&layers->by_torch_key, path, name);
    return at == CKPT_STRMAP_ABSENT ? NULL : &layers->model->tensor[at];
}

const struct ckpt_adapted *ckpt_layers_served(const struct ckpt_layers *layers,
                                              struct ckpt_text prefix, const char *name) {
    const size_t at = get_joined(&layers->by_key, prefix, name);
    return at == CKPT_STRMAP_ABSENT ? NULL : &layers->model->tensor[at];
}

const struct ckpt_layer *ckpt_layer_child(const struct ckpt_layers *layers,
                                          const struct ckpt_layer *l, const char *name) {
    const size_t at = get_joined(&layers->by_path, l->path, name);
    return at == CKPT_STRMAP_ABSENT ? NULL : &layers->at[at];
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
    return record ? torch_class(record->cls) : CKPT_TEXT("");
}

struct ckpt_text ckpt_layer_type(const struct ckpt_layer *l) {
    const struct ckpt_text cls = ckpt_layer_class(l->record);
    if (cls.n)
        return cls;
    return l->kind ? ckpt_text_of(l->kind) : CKPT_TEXT("unknown");
}
