#ifndef CKPT_VERIFY_RNG_H
#define CKPT_VERIFY_RNG_H
/*
 * Seeded probe inputs that any language can make again bit for bit: the seed is FNV-1a (64 bits) of
 * a path, the stream is SplitMix64 from there.
 */
#include <stdint.h>

#include "base/text.h"

struct ckpt_rng {
    uint64_t state;
};

struct ckpt_rng ckpt_rng_seeded(struct ckpt_text path);
uint64_t ckpt_rng_next(struct ckpt_rng *r);
/* In [-1, 1), a multiple of 2^-23: exact in float32. */
float ckpt_rng_float(struct ckpt_rng *r);
/* In [0, n), n > 0. */
int64_t ckpt_rng_index(struct ckpt_rng *r, int64_t n);

#endif
