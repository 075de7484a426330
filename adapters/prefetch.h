#ifndef CKPT_ADAPTERS_PREFETCH_H
#define CKPT_ADAPTERS_PREFETCH_H
/* The worker that computes bands before they are asked for, and gives up those that nobody has
 * asked for in a while. Its thread starts with the first band, which is after the program went to
 * the background. */
#include "adapters/bands.h"

struct ckpt_prefetch;

int ckpt_prefetch_new(struct ckpt_bands *bands, int64_t band_limit, struct ckpt_prefetch **out,
                      struct ckpt_err *err) CKPT_CHECKED;
/* Somebody has made a band: the worker will look whether it rests. */
void ckpt_prefetch_made(struct ckpt_prefetch *p);
/* Never waits; drops the key when much is queued already. */
void ckpt_prefetch_add(struct ckpt_prefetch *p, const struct ckpt_band_key *key);
void ckpt_prefetch_free(struct ckpt_prefetch *p); /* stops the thread; NULL is fine */

#endif
