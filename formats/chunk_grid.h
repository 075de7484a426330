#ifndef CKPT_FORMATS_CHUNK_GRID_H
#define CKPT_FORMATS_CHUNK_GRID_H
/*
 * A blob of chunks: an array that is stored cut into a regular grid. As a blob it has the bytes of
 * the whole array in C order, so that tensors and views of it know nothing of chunks; whoever moves
 * many bytes (adapters/grid_gather.c) pins the chunks themselves:
 *
 *     array [5, 7] in chunks of [3, 4]       numbers in C order of the grid
 *       0 0 0 0 1 1 1                        a chunk at the edge is stored in full size
 *       0 0 0 0 1 1 1                        and decoded as it lies, with strides of its own
 *       0 0 0 0 1 1 1
 *       2 2 2 2 . . .                        one that is not stored is the fill value throughout
 *       2 2 2 2 . . .
 *
 * Decoded chunks are kept by the checkpoint's decoded cache; a chunk is decoded once, by one
 * reader, while others wait. Any thread.
 */
#include "formats/blob.h"
#include "formats/decoded_cache.h"
#include "formats/stream.h"

struct ckpt_chunk_grid;

/* A chunk that is stored. */
struct ckpt_chunk {
    const struct ckpt_chunk_grid *grid;
    uint64_t number;
    struct ckpt_stored value;
    struct ckpt_decoded decoded;
};

struct ckpt_chunk_grid {
    struct ckpt_blob blob; /* first; its size is that of the array */
    uint32_t ndim, esize;
    const int64_t *shape, *chunk, *count; /* elements; of the grid */
    const int64_t *stride;                /* bytes in a decoded chunk, by axis */
    const uint8_t *fill;                  /* an element */
    struct ckpt_chunk *chunks;            /* ascending by number */
    size_t nchunks;
    struct ckpt_decoded dense; /* the whole array, for whoever pins much of the blob */
    /* Fills out with a decoded chunk. */
    int (*decode)(const struct ckpt_chunk *chunk, uint8_t *out, const struct ckpt_stop *stop,
                  struct ckpt_err *err);
    const void *codec; /* of decode */
};

/* Makes it a blob. All else but blob and dense is set; chunks have number and value. `bytes` are
 * those of a decoded chunk. */
int ckpt_chunk_grid_init(struct ckpt_chunk_grid *g, uint64_t bytes,
                         struct ckpt_decoded_cache *cache, const char *name,
                         struct ckpt_err *err) CKPT_CHECKED;
/* NULL: the blob is of another kind. */
struct ckpt_chunk_grid *ckpt_chunk_grid_of(struct ckpt_blob *b);

/* A chunk's bytes until unpinned; data NULL: it is not stored. */
int ckpt_chunk_grid_pin(struct ckpt_chunk_grid *g, uint64_t number, struct ckpt_pin *pin,
                        const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_chunk_grid_unpin(struct ckpt_pin *pin);

#endif
