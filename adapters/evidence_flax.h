#ifndef CKPT_ADAPTERS_EVIDENCE_FLAX_H
#define CKPT_ADAPTERS_EVIDENCE_FLAX_H
/* The part of dialect=flax that rules cannot say: what the modules are. */
#include "adapters/evidence.h"

struct ckpt_build;

/* Whether an Orbax or msgpack tree has flax's names: 1 or 0. */
int ckpt_is_flax(struct ckpt_build *b) CKPT_CHECKED;
/* Takes stacks of layers apart: each layer's arrays are then items of their own. */
int ckpt_flax_unstack(struct ckpt_build *b) CKPT_CHECKED;
/* Takes the running statistics into the model, and the state of random numbers out of it. */
void ckpt_settle_flax_model(struct ckpt_build *b);
/* Takes stacks of layers apart, and decides what each module is. */
int ckpt_decide_flax_modules(struct ckpt_build *b) CKPT_CHECKED;

#endif
