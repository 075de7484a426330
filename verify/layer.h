#ifndef CKPT_VERIFY_LAYER_H
#define CKPT_VERIFY_LAYER_H
/*
 * Layers: the adapted tensors of a model, gathered by the module that they belong to, in the
 * checkpoint's order. A module that computes with its children's tensors (a Transformer's layer) is
 * a layer, too, before them:
 *
 *     layers.0                encoder_layer   -
 *     layers.0.self_attn      mha             in_proj_weight, in_proj_bias
 *     layers.0.linear1        linear          weight, bias
 */
#include "adapters/evidence.h"
#include "adapters/model.h"
#include "base/strmap.h"

struct ckpt_layer {
    struct ckpt_text path;            /* in PyTorch's names, inside the model */
    const char *kind;                 /* of DESIGN's kinds; NULL: unknown */
    const char *decided_by;           /* "class", "structure"...; NULL: nothing */
    const struct ckpt_module *record; /* NULL: the file knows no modules */
    const struct ckpt_adapted **param;
    uint32_t nparams;
    size_t first, end; /* its tensors and its children's are among these of the model */
};

struct ckpt_layers {
    const struct ckpt_model *model;
    struct ckpt_layer *at;
    size_t n;
    struct ckpt_strmap by_path;
    struct ckpt_strmap by_torch_key, by_key; /* of the model's tensors */
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
/* The layer "layers.0" of this one, or NULL. */
const struct ckpt_layer *ckpt_layer_child(const struct ckpt_layers *layers,
                                          const struct ckpt_layer *l, const char *name);
/* A tensor that shows (some of) the source tensor "PATH.NAME", in PyTorch's names; the one whose
 * key is "PREFIX.NAME". NULL: there is none. */
const struct ckpt_adapted *ckpt_layers_source(const struct ckpt_layers *layers,
                                              struct ckpt_text path, const char *name);
const struct ckpt_adapted *ckpt_layers_served(const struct ckpt_layers *layers,
                                              struct ckpt_text prefix, const char *name);
/* The kind of a module that computes with its children's tensors: a Transformer's layer
 * ("encoder_layer:pre"), or a "stack" of them. NULL: it is none. */
const char *ckpt_layer_composite(const struct ckpt_decision *d);
/* What to call the layer's type in the report: its class, else its kind. */
struct ckpt_text ckpt_layer_type(const struct ckpt_layer *l);

#endif
