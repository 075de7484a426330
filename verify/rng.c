/* SplitMix64 seeded by the FNV-1a hash of a layer's path. */
#include "verify/rng.h"

struct ckpt_rng ckpt_rng_seeded(struct ckpt_text path) {
    return (struct ckpt_rng){ckpt_text_hash(path.s, path.n)};
}

uint64_t ckpt_rng_next(struct ckpt_rng *r) {
    r->state += 0x9E3779B97F4A7C15u;
    uint64_t z = r->state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

float ckpt_rng_float(struct ckpt_rng *r) {
    return (float)(ckpt_rng_next(r) >> 40) * 0x1p-23f - 1.0f;
}

int64_t ckpt_rng_index(struct ckpt_rng *r, int64_t n) {
    return (int64_t)(ckpt_rng_next(r) % (uint64_t)n);
}
