#ifndef CKPT_ADAPTERS_WEIGHT_NORM_H
#define CKPT_ADAPTERS_WEIGHT_NORM_H
/*
 * Weight normalisation undone: w = g * v / ||v||, as torch.nn.utils.weight_norm computes it at each
 * forward. v has the weight's shape; the norm is over all dimensions but one, which g's shape
 * tells:
 *
 *     v [8, 4]       g [8, 1]       a norm a row (dim=0, the default)
 *     v [4, 8, 3]    g [1, 8, 1]    a norm an index of dimension 1 (dim=1)
 *     v [8, 4]       g [] or [1,1]  one norm of all (dim=None)
 *
 * The blob is as long as v's storage, and its element at a byte is made of v's element there, so
 * that the weight has v's own strides and any walk over it is a walk over v. Norms are summed in
 * double, in v's C order, at the first read, and g/||v|| is kept in the cache (a double a norm);
 * products are
 * rounded once from double to float32 (float64 for float64), then to the weight's dtype.
 */
#include "adapters/computed_blob.h"

#define CKPT_WEIGHT_NORMS_MAX ((int64_t)1 << 24) /* norms of one weight: 128 MiB of doubles */
#define CKPT_WEIGHT_NORM_WHOLE UINT32_MAX        /* dim: one norm of all */

struct ckpt_decoded_cache;

struct ckpt_weight_norm {
    const struct ckpt_tensor *v, *g;
    uint32_t dim;
};

/* A weight made of the two: *blob lives in the arena and is finished by its fini. -EOPNOTSUPP where
 * they are no weight norm or v's strides do not tell an element's index; the sentence says why. */
int ckpt_weight_norm_new(struct ckpt_arena *a, const struct ckpt_tensor *v,
                         const struct ckpt_tensor *g, struct ckpt_decoded_cache *cache,
                         struct ckpt_computed_blob **out, struct ckpt_err *err) CKPT_CHECKED;
/* What a blob is computed from; NULL: it is none of these. */
const struct ckpt_weight_norm *ckpt_weight_norm_of(struct ckpt_blob *b);

#endif
