#ifndef CKPT_ADAPTERS_GATHER_H
#define CKPT_ADAPTERS_GATHER_H
/*
 * Copying a range of a walk: the inner loops. `base` is the byte of the blob that walk offsets
 * count from. out receives units [first, first + n) of the walk, converted by `map`. One pass:
 * tiles, casts, swaps and sign bits together. Runs inside the SIGBUS guard: allocates nothing.
 */
#include "adapters/model.h"

/* Bytes of an output element for a walk's unit under this map. */
uint32_t ckpt_map_out_bytes(const struct ckpt_element_map *map, uint32_t esize);
/* True if elements pass as they are. */
bool ckpt_map_identity(const struct ckpt_element_map *map);

void ckpt_gather(const struct ckpt_walk *w, const struct ckpt_element_map *map, const uint8_t *base,
                 int64_t first, int64_t n, uint8_t *out);

/* One element by the naive scalar rules, for the byte check and the tests: from and to are sizes of
 * map->from and map->to. */
void ckpt_element_convert(const struct ckpt_element_map *map, const uint8_t *from, uint8_t *to);

#endif
