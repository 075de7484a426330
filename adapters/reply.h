#ifndef CKPT_ADAPTERS_REPLY_H
#define CKPT_ADAPTERS_REPLY_H
/* Inside a reply: what its iovecs point into and must be let go of afterwards. */
#include "adapters/bands.h"
#include "adapters/reader.h"

/* Each takes what it is given over, also when it fails (-ENOMEM). */
int ckpt_reply_hold_band(struct ckpt_reply *reply, struct ckpt_bands *bands,
                         struct ckpt_band *b) CKPT_CHECKED;
int ckpt_reply_hold_pin(struct ckpt_reply *reply, struct ckpt_blob *blob,
                        struct ckpt_pin pin) CKPT_CHECKED;
int ckpt_reply_hold_memory(struct ckpt_reply *reply, void *memory) CKPT_CHECKED;

#endif
