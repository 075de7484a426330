#ifndef CKPT_VERIFY_LAYER_H
#define CKPT_VERIFY_LAYER_H
/*
 * Layers: the adapted tensors of a model, gathered by the module that they belong to, in the
 * checkpoint's order.
 */
#include "adapters/model.h"
#include "base/strmap.h"

struct ckpt_layer {
    struct ckpt_text path;            /* in PyTorch's names, inside the model */
    const char *kind;                 /* of DESIGN's kinds; NULL: unknown */
    const char *decided_by;           /* "class", "structure"...; NULL: nothing */
    const struct ckpt_module *record; /* NULL: the file knows no modules */
    const struct ckpt_adapted **param;
    uint32_t nparams;
};

struct ckpt_layers {
    struct ckpt_layer *at;
    size_t n;
    struct ckpt_strmap by_path;
    struct ckpt_arena arena;
};

int ckpt_layers_find(const struct ckpt_model *m, struct ckpt_layers *layers,
                     struct ckpt_err *err) CKPT_CHECKED;
void ckpt_layers_fini(struct ckpt_layers *layers);
#define ckpt_auto_layers ckpt_layers_fini

const struct ckpt_layer *ckpt_layers_get(const struct ckpt_layers *layers, struct ckpt_text path);
/* The parameter of that last name ("weight"), or NULL. */
const struct ckpt_adapted *ckpt_layer_param(const struct ckpt_layer *l, const char *name);
/* "Conv2d" of "torch.nn.modules.conv.Conv2d"; empty unless it is PyTorch's own class. */
struct ckpt_text ckpt_layer_class(const struct ckpt_module *record);
/* What to call the layer's type in the report: its class, else its kind. */
struct ckpt_text ckpt_layer_type(const struct ckpt_layer *l);

#endif
