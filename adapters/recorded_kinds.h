#ifndef CKPT_ADAPTERS_RECORDED_KINDS_H
#define CKPT_ADAPTERS_RECORDED_KINDS_H
/*
 * What burn's names no longer say. A model.safetensors of ours in burn's layout can be turned back
 * (evidence_burn.c) but for a few modules: norm_first, an embedding of which only the class was
 * known, a parameter of the user's own that is called gamma. Their kinds go into its metadata,
 *
 *     "mount.ckpt.kinds": "{\"layers.0\":\"encoder_layer:pre\"}"
 *
 * and only theirs, so that nearly every file has no such pair. burn and PyTorch ignore it.
 */
#include "adapters/evidence.h"

#define CKPT_RECORDED_KINDS_KEY "mount.ckpt.kinds"

struct ckpt_build;

/* Whether some item could come back wrongly: asked while there are facts of the modules. */
bool ckpt_kinds_at_risk(const struct ckpt_build *b, const struct ckpt_modules *m);
/* Then: fills model->kinds of a finished model in burn's layout, if there is anything to say. */
int ckpt_record_kinds(struct ckpt_build *b) CKPT_CHECKED;
/* Decides what the source's metadata say, where no option has. What makes no sense is a warning. */
int ckpt_decide_by_record(struct ckpt_build *b, struct ckpt_modules *m,
                          const struct ckpt_strmap *by_path) CKPT_CHECKED;

#endif
