#ifndef CKPT_ADAPTERS_COMPUTED_BLOB_H
#define CKPT_ADAPTERS_COMPUTED_BLOB_H
/*
 * A computed blob: bytes that lie nowhere, since they are arithmetic on other blobs. Views apply to
 * it as to any blob; the read path asks it for elements in the order of a walk, so that a
 * transposed read of a weight larger than all caches computes each element once, and no copy of the
 * weight is ever made:
 *
 *     request --> band --> ckpt_part_compute --> compute(walk, first, n)    elements of the walk
 *                 kept in the band cache             pin(lo, hi)            a run of the blob's
 * bytes
 *
 * What is computed depends on the sources alone, never on how it was cut into calls: the same bytes
 * on every machine. Any thread, any number at once.
 */
#include "adapters/gather.h"

#define CKPT_COMPUTED_SOURCES 3

struct ckpt_computed_blob {
    struct ckpt_blob blob; /* first */
    enum ckpt_dtype dtype; /* of its elements */
    uint64_t phase;        /* the first element's byte; there is none before it */
    bool in_place;         /* as long and with the strides of what it is made of; else C order */
    const char *op;        /* in index.json */
    const struct ckpt_tensor *source[CKPT_COMPUTED_SOURCES]; /* what it is made of, then NULL */
    /* Units [first, first + n) of a walk over this blob, converted by `map`, to out. -EINTR if
     * stopped. */
    int (*compute)(struct ckpt_computed_blob *c, const struct ckpt_walk *w,
                   const struct ckpt_element_map *map, int64_t first, int64_t n, uint8_t *out,
                   const struct ckpt_stop *stop, struct ckpt_err *err);
    void (*fini)(struct ckpt_computed_blob *c);
};

/* Makes c a blob as long as `like`, from whose storage it is computed byte by byte in place. */
void ckpt_computed_blob_init(struct ckpt_computed_blob *c, const struct ckpt_blob *like);
/* NULL: the blob is of another kind. */
struct ckpt_computed_blob *ckpt_computed_blob_of(struct ckpt_blob *b);
/* A file that the blob's bytes come from, itself or what it is computed from (which may lie in
 * several files), and that has changed since it was opened; NULL: there is none. */
const struct ckpt_file *ckpt_blob_changed_file(struct ckpt_blob *b);
/* The same of files that are opened for each read: ckpt_blob_ops.changed. */
const struct ckpt_store_file *ckpt_blob_changed_store(struct ckpt_blob *b,
                                                      const struct ckpt_store_file **last);

#endif
