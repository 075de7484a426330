#ifndef CKPT_FORMATS_ZARR_H
#define CKPT_FORMATS_ZARR_H
/*
 * zarr arrays, versions 2 and 3, in a key-value store:
 *
 *     version 2   w/.zarray    JSON      w/0.1     the chunk at (0, 1), compressed
 *     version 3   w/zarr.json  JSON      w/c/0/1   the same, through a chain of codecs
 *
 * The grid of chunks is regular; those at the edge are stored in full size, and one that is not
 * stored holds the fill value throughout. A chunk is decoded as it lies: Fortran order and
 * transpositions are strides, big-endian is the tensor's swap bit.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "formats/decompress.h"
#include "formats/dtype.h"
#include "formats/kvstore.h"
#include "formats/limits.h"
#include "formats/tensor.h"

#define CKPT_ZARR_ELEMENT_MAX 16u /* bytes */
#define CKPT_ZARR_NDIM_MAX 32     /* as numpy */

struct ckpt_zarr_shards;

/*
 * How a chunk's elements became its stored bytes: encoded from top to bottom, decoded upwards.
 *
 *     order    array axes -> stored axes            (transpose, order "F")
 *     shards   stored axes -> an index and chunks   or, without shards: elements in C order, of a
 *                                                   byte order
 *     step     bytes -> bytes: compression, checksum
 */
struct ckpt_zarr_chain {
    uint32_t ndim;
    int64_t shape[CKPT_ZARR_NDIM_MAX];  /* of the chunk, by array axis */
    uint32_t order[CKPT_ZARR_NDIM_MAX]; /* stored axis j is array axis order[j] */
    uint32_t norder;                    /* 0: as in the array */
    bool is_reversed;                   /* then the other way round */
    struct ckpt_zarr_shards *shards;    /* NULL: elements */
    bool is_big;                        /* big-endian elements */
    struct ckpt_zarr_step {
        bool is_crc32c; /* else compression */
        enum ckpt_compression compression;
    } step[CKPT_LIMIT_ZARR_STEPS];
    uint32_t nsteps;
    /* Derived: */
    uint64_t bytes;                     /* decoded */
    int64_t stride[CKPT_ZARR_NDIM_MAX]; /* of the decoded elements, by array axis */
};

/* A chunk that is itself a grid of chunks, by an index of (offset, length). */
struct ckpt_zarr_shards {
    struct ckpt_zarr_chain inner;
    bool at_start;   /* where the index lies */
    bool has_crc32c; /* behind the index */
    bool index_is_big;
    bool has_index; /* a description of the index was there */
    bool is_one;    /* a single chunk, as orbax writes it */
    uint64_t count; /* of inner chunks */
    int64_t grid[CKPT_ZARR_NDIM_MAX];
};

struct ckpt_zarr {
    uint32_t ndim;
    int64_t shape[CKPT_ZARR_NDIM_MAX];
    enum ckpt_dtype dtype;
    bool swap;                           /* elements are big-endian when decoded */
    uint8_t fill[CKPT_ZARR_ELEMENT_MAX]; /* in the byte order of what is decoded */
    bool fill_unknown;                   /* the fill value can't be had in this element type */
    char separator;                      /* in the keys of chunks */
    bool has_c;                          /* they begin with "c" */
    struct ckpt_zarr_chain chain;
    void **derived; /* what arrays with this metadata derive from it, once (zarr_known.h) */
};

/* Whether the last component of a key names an array's metadata; its version. */
bool ckpt_zarr_is_metadata(struct ckpt_text key, int *version);

/* Parses and checks the metadata; what the chain needs is in the arena. -ENOTSUP: of a kind that is
 * sound but can't be served, with the reason; all else is damage. */
int ckpt_zarr_parse(const void *json, size_t n, int version, struct ckpt_arena *a,
                    struct ckpt_zarr *out, struct ckpt_err *err) CKPT_CHECKED;

/* CKPT_DT_NONE: no such element type. */
enum ckpt_dtype ckpt_zarr_dtype_v2(struct ckpt_text name, bool *is_big);
enum ckpt_dtype ckpt_zarr_dtype_v3(struct ckpt_text name);

/* A fill value as JSON has it. */
struct ckpt_zarr_fill {
    enum {
        CKPT_ZARR_FILL_ZERO,
        CKPT_ZARR_FILL_INT,
        CKPT_ZARR_FILL_FLOAT,
        CKPT_ZARR_FILL_BITS
    } kind;
    bool negative;
    uint64_t u;     /* INT: the magnitude, or of a negative one the two's complement; BITS */
    double part[2]; /* FLOAT; a complex number has two */
};
/* The bytes of an element, little-endian. False: it is not known how to write it in that type. */
bool ckpt_zarr_fill_bytes(const struct ckpt_zarr_fill *fill, enum ckpt_dtype t,
                          uint8_t out[static CKPT_ZARR_ELEMENT_MAX]);

/* Checks the chain against the shape of its chunk and derives what it leads to. */
int ckpt_zarr_chain_settle(struct ckpt_zarr_chain *c, const int64_t *shape, uint32_t ndim,
                           uint32_t esize, unsigned depth, struct ckpt_err *err) CKPT_CHECKED;
/* Whether a value of this size can be such a chunk. */
int ckpt_zarr_chain_can(const struct ckpt_zarr_chain *c, uint64_t stored,
                        struct ckpt_err *err) CKPT_CHECKED;
/*
 * The smallest chunks that can be had one by one: those in shards (in shards...), or the stored one
 * itself. All by array axis.
 */
struct ckpt_zarr_leaf {
    const struct ckpt_zarr_chain *chain; /* of a smallest chunk */
    bool is_sharded;
    uint32_t axis[CKPT_ZARR_NDIM_MAX]; /* of the array, of each of the chain */
    int64_t shape[CKPT_ZARR_NDIM_MAX], stride[CKPT_ZARR_NDIM_MAX]; /* elements */
    int64_t per[CKPT_ZARR_NDIM_MAX];                               /* such chunks in a stored one */
};
void ckpt_zarr_leaf(const struct ckpt_zarr_chain *c, struct ckpt_zarr_leaf *out);
/* Where they lie in a stored chunk, in C order: (offset, length), both UINT64_MAX if it isn't
 * stored. */
int ckpt_zarr_flat_index(const struct ckpt_zarr_chain *c, const struct ckpt_zarr_leaf *leaf,
                         const struct ckpt_stored *value, uint64_t (*index)[2],
                         const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;
/* An index as it is stored, count pairs; malloc'ed. */
int ckpt_zarr_read_index(const struct ckpt_zarr_shards *s, const struct ckpt_stored *shard,
                         uint64_t **index, const struct ckpt_stop *stop,
                         struct ckpt_err *err) CKPT_CHECKED;

/* Whether the chunk's stored bytes are its elements, or checksums and zstd around them. */
bool ckpt_zarr_is_plain(const struct ckpt_zarr_chain *c);
bool ckpt_zarr_is_zstd(const struct ckpt_zarr_chain *c);
/* Checks and takes off the checksums around the zstd. */
int ckpt_zarr_unwrap(const struct ckpt_zarr_chain *c, struct ckpt_stored *value,
                     const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;
/* Decodes the value of a chunk by its chain; what isn't stored is `fill`, of esize bytes. */
int ckpt_zarr_decode_chain(const struct ckpt_zarr_chain *c, const struct ckpt_stored *value,
                           const uint8_t *fill, uint32_t esize, uint8_t *out,
                           const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;
/* Decodes a stored chunk to out, chain->bytes in all. -EIO: it is damaged. Any thread. */
int ckpt_zarr_decode(const struct ckpt_zarr *z, const struct ckpt_stored *value, uint8_t *out,
                     const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;

/* Reads version 3's list of codecs, none of which has been read yet. -ENOTSUP as above. */
int ckpt_zarr_read_codecs(struct ckpt_json *j, struct ckpt_arena *a, unsigned depth,
                          struct ckpt_zarr_chain *out, struct ckpt_err *err) CKPT_CHECKED;

/* The number, in C order over the grid, of the chunk whose key is array prefix + rest. False: it
 * names no chunk of this array. */
bool ckpt_zarr_chunk_number(const struct ckpt_zarr *z, struct ckpt_text rest, uint64_t *number);

#endif
