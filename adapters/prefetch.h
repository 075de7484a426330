#ifndef CKPT_ADAPTERS_PREFETCH_H
#define CKPT_ADAPTERS_PREFETCH_H
/*
 * One worker that computes the band which a sequential reader will ask for next, while the current
 * one is copied out. What is sequential is told by the cache, not by file handles: eight processes
 * may read one file, and a loader may use one handle for all tensors.
 */
#include "adapters/bands.h"

struct ckpt_prefetch;

int ckpt_prefetch_new(struct ckpt_bands *bands, struct ckpt_prefetch **out,
                      struct ckpt_err *err) CKPT_CHECKED;
/* Stops the worker. NULL is fine. */
void ckpt_prefetch_free(struct ckpt_prefetch *p);
/* Asks for a band soon; forgotten if the worker has enough to do. Any thread. */
void ckpt_prefetch_ask(struct ckpt_prefetch *p, const struct ckpt_band_key *key,
                       const struct ckpt_band_rule *rule);

#endif
