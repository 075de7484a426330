#ifndef CKPT_FORMATS_BLOB_H
#define CKPT_FORMATS_BLOB_H
/*
 * A blob: where a tensor's bytes come from. To whoever pins it, it is one run of bytes, whatever
 * it is made of:
 *
 *     kind       bytes                                       in_file
 *     extent     lie as they are in a source file            yes: served from the mapping, no copy
 *     owned      in memory from the start (small: a pickled  no
 *                numpy array)
 *     inflated   a compressed archive entry                  no
 *     chunk      an array stored as one encoded chunk        no
 *     grid       an array stored in many: chunk_grid.h,      no
 *                whose chunks can be pinned by themselves
 *     computed   arithmetic on other blobs (adapters/)       no
 *
 * What is decoded is decoded whole when it is pinned, and kept by decoded_cache.h.
 *
 * pin/unpin may be called from any thread at any time; a pin may block while bytes are made,
 * and asks meanwhile whether to stop (`stop` may be NULL).
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/stop.h"
#include "formats/file.h"

struct ckpt_blob;
struct ckpt_store_file;

/* Bytes [lo, hi) of a chunk, readable until unpinned. */
struct ckpt_pin {
    const uint8_t *data; /* the byte at lo */
    void *held;          /* the blob's own business, and so is the rest */
    const struct ckpt_file *file;
    uint64_t part, lo, hi;
};

struct ckpt_blob_ops {
    const char *kind;
    int (*pin)(struct ckpt_blob *b, uint64_t lo, uint64_t hi, struct ckpt_pin *pin,
               const struct ckpt_stop *stop, struct ckpt_err *err);
    void (*unpin)(struct ckpt_blob *b, struct ckpt_pin *pin);
    /* Compares the bytes with the checksum stored in the file: 0 right, or none is stored; -EBADMSG
     * wrong. NULL: the format has none. */
    int (*check)(struct ckpt_blob *b, const struct ckpt_stop *stop, struct ckpt_err *err);
    void (*fini)(struct ckpt_blob *b); /* NULL: nothing to free */
    /* One of its files that are opened for each read, if any has changed: looks at all of their
     * paths, but not at *last again, which becomes the last one. NULL: it has no such files. */
    const struct ckpt_store_file *(*changed)(struct ckpt_blob *b,
                                             const struct ckpt_store_file **last);
};

struct ckpt_blob {
    const struct ckpt_blob_ops *ops;
    uint64_t size;                /* bytes */
    const struct ckpt_file *file; /* it comes from, or is (first) computed from; NULL: none, or not
                                     one of the checkpoint's (owned, chunk, grid) */
    uint64_t file_offset;         /* with in_file: where it begins */
    bool in_file;                 /* bytes are exactly file->data[file_offset .. + size) */
    const char *name;             /* entry name for messages, "data/0"; "" if there is none */
    uint32_t id;                  /* index in the checkpoint: equal ids = the same storage */
};

/* Both live in the arena; the data of `owned` must live as long. Range-checks the extent against
 * the file. */
int ckpt_blob_extent(struct ckpt_arena *a, const struct ckpt_file *f, uint64_t offset,
                     uint64_t size, const char *name, struct ckpt_blob **out,
                     struct ckpt_err *err) CKPT_CHECKED;
int ckpt_blob_owned(struct ckpt_arena *a, const void *data, uint64_t size, const char *name,
                    struct ckpt_blob **out, struct ckpt_err *err) CKPT_CHECKED;

#endif
