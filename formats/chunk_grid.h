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
 * Of a plain grid a chunk at the edge may be stored only as far as the array goes, if its strides
 * are those of the others: shorter along one axis, with a single index along those outside it.
 *
 * A stored chunk may be a shard, which is a grid of chunks itself: then the grid is that of the
 * smallest chunks, and an index says where in the shard each of them lies.
 *
 * Chunks whose stored bytes are the elements themselves are pinned where their file is mapped.
 * Others are decoded into the checkpoint's decoded cache, each once, by one reader, while others
 * wait; zstd no farther than is asked for. Any thread.
 */
#include "formats/blob.h"
#include "formats/decoded_cache.h"
#include "formats/stream.h"

struct ckpt_chunk_grid;

/* A chunk, or shard, that is stored. */
struct ckpt_chunk {
    struct ckpt_chunk_grid *grid;
    uint64_t number; /* in the grid of what is stored */
    struct ckpt_stored value;
    struct ckpt_decoded decoded; /* a part for each chunk in it */
    struct ckpt_decoded index;   /* of a shard; else unused */
};

/* How stored bytes become a chunk. A value is that of one chunk, cut out of its shard. */
struct ckpt_chunk_ops {
    /* Fills out with all of it. -EINTR if stopped. */
    int (*decode)(const void *codec, const struct ckpt_stored *value, uint8_t *out,
                  const struct ckpt_stop *stop, struct ckpt_err *err);
    /* Checks and takes off what is around zstd; NULL: it is something else. */
    int (*unwrap)(const void *codec, struct ckpt_stored *value, const struct ckpt_stop *stop,
                  struct ckpt_err *err);
    /* Fills in where each chunk of a shard lies in its value: (offset, length), both UINT64_MAX if
     * it is not stored. */
    int (*read_index)(const void *codec, const struct ckpt_stored *shard, uint64_t (*index)[2],
                      const struct ckpt_stop *stop, struct ckpt_err *err);
};

struct ckpt_chunk_grid {
    struct ckpt_blob blob; /* first; its size is that of the array */
    uint32_t ndim, esize;
    const int64_t *shape, *chunk, *count; /* elements; of the grid */
    const int64_t *stride;                /* bytes in a decoded chunk, by axis */
    const int64_t *per;                   /* chunks in a shard, by axis; NULL: there are none */
    const uint8_t *fill;                  /* an element */
    struct ckpt_chunk *chunks;            /* ascending by number */
    size_t nchunks;
    const struct ckpt_chunk_ops *ops;
    const void *codec;
    bool is_plain; /* stored bytes are the elements as they are */
    /* Set by init: */
    struct ckpt_decoded dense; /* the whole array, for whoever pins much of the blob */
    struct ckpt_decoded_parts parts;
    _Atomic(struct ckpt_err *) failure; /* the first one: what all say, so that the log has one */
};

/* Makes it a blob. All above is set, of chunks number and value. `bytes` are those of a decoded
 * chunk. A flat one is a single chunk, whose bytes are the blob's. */
int ckpt_chunk_grid_init(struct ckpt_chunk_grid *g, uint64_t bytes, bool is_flat,
                         struct ckpt_decoded_cache *cache, const char *name,
                         struct ckpt_err *err) CKPT_CHECKED;
/* NULL: the blob is of another kind, or flat. */
struct ckpt_chunk_grid *ckpt_chunk_grid_of(struct ckpt_blob *b);

/* How many of its chunks are among those bytes of a file, which is mapped. */
size_t ckpt_chunk_grid_within(const struct ckpt_chunk_grid *g, const struct ckpt_blob *extent);

/* Bytes [lo, hi) of a chunk until unpinned; data NULL: it is not stored. They may lie in a mapping,
 * so that they are read inside the guard, and asked afterwards whether they were still the same. */
int ckpt_chunk_grid_pin(struct ckpt_chunk_grid *g, uint64_t number, uint64_t lo, uint64_t hi,
                        struct ckpt_pin *pin, const struct ckpt_stop *stop,
                        struct ckpt_err *err) CKPT_CHECKED;
/* -EIO and the sentence: what is pinned can't be read, said SIGBUS. */
int ckpt_chunk_grid_lost(const struct ckpt_chunk_grid *g, const struct ckpt_pin *pin,
                         struct ckpt_err *err);
/* -EIO: what was pinned has changed meanwhile. */
int ckpt_chunk_grid_check(const struct ckpt_chunk_grid *g, const struct ckpt_pin *pin,
                          struct ckpt_err *err) CKPT_CHECKED;
void ckpt_chunk_grid_unpin(struct ckpt_pin *pin);

#endif
