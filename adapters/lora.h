#ifndef CKPT_ADAPTERS_LORA_H
#define CKPT_ADAPTERS_LORA_H
/*
 * Low-rank factors added to the weight that they adapt: w + a * b, a matrix product for each index
 * of the leading dimensions.
 *
 *     w [layers, heads, m, n]    a [layers, heads, m, rank]    b [layers, heads, rank, n]
 *
 * Where the einsum that uses the factors adds up an axis of each separately (the heads of openpi's
 * output projection), b is added up along that axis first, and all of w's matrices along it get the
 * same one.
 *
 * The result is float32 in C order, whatever w is. Products are added up in float32 in the order of
 * the rank, each rounded together with its sum, as BLAS does on a processor that can; then w is
 * added. b is added up in float32. The factors are kept as floats in the decoded cache
 * from the first read on; a read computes the elements that it asks for, so there is no copy of a
 * weight.
 */
#include "adapters/computed_blob.h"

#define CKPT_LORA_NO_SUM UINT32_MAX

struct ckpt_decoded_cache;

struct ckpt_lora {
    const struct ckpt_tensor *w, *a, *b;
    uint32_t sum; /* the axis that b is added up along; CKPT_LORA_NO_SUM: none */
};

/* *out lives in the arena and is finished by its fini. -EINVAL where the shapes are not those of
 * factors, with a sentence that says why. */
int ckpt_lora_new(struct ckpt_arena *arena, const struct ckpt_lora *of,
                  struct ckpt_decoded_cache *cache, struct ckpt_computed_blob **out,
                  struct ckpt_err *err) CKPT_CHECKED;
/* What a blob is computed from; NULL: it is none of these. */
const struct ckpt_lora *ckpt_lora_of(struct ckpt_blob *b);

#endif
