#ifndef CKPT_ADAPTERS_GRID_GATHER_H
#define CKPT_ADAPTERS_GRID_GATHER_H
/*
 * Gathering from a grid of chunks (formats/chunk_grid.h): a region of the walk is cut at the
 * chunks' borders, and each part copied from its chunk to where it belongs in the output. No chunk
 * is pinned longer than that takes, nothing is copied twice.
 *
 *     array [4, 8], chunks [4, 4]      walk: transposed          the region's parts
 *       0 0 0 0 | 1 1 1 1                (8, 1)(4, 8)              (4, 1)(4, 8) of chunk 0
 *       ...     | ...                                              (4, 1)(4, 8) of chunk 1
 */
#include "adapters/gather.h"
#include "formats/chunk_grid.h"

/* Whether a walk of this kind can be: one of elements, or of equal parts of them. */
bool ckpt_grid_gather_can(const struct ckpt_chunk_grid *g, const struct ckpt_walk *w);
/* Units [first, first + n) of a walk over the grid's blob, converted by `map`, to out. -EINTR if
 * stopped. Any thread. */
int ckpt_grid_gather(struct ckpt_chunk_grid *g, const struct ckpt_walk *w,
                     const struct ckpt_element_map *map, int64_t first, int64_t n, uint8_t *out,
                     const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;

#endif
