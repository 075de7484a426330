#ifndef CKPT_ADAPTERS_READER_COMPUTE_H
#define CKPT_ADAPTERS_READER_COMPUTE_H
/* Computing elements of a part: the blob's bytes, the guard, the gather. Any thread. */
#include "adapters/bands.h"
#include "adapters/reader.h"

/* A blob's bytes [lo, hi), in the mapping or pinned. */
struct ckpt_source_bytes {
    const uint8_t *base; /* where byte 0 of the blob would lie */
    struct ckpt_blob *blob;
    struct ckpt_pin pin; /* held only if the blob is not in a file */
};
int ckpt_source_open(struct ckpt_blob *blob, int64_t lo, int64_t hi, struct ckpt_source_bytes *s,
                     const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_source_close(struct ckpt_source_bytes *s);

/* -EIO with its sentence: the source shrank or cannot be read. */
int ckpt_source_failed(const struct ckpt_blob *blob, struct ckpt_err *err);

/* Gathers elements [first, first + n) of a part into out, inside the guard; of a computed blob,
 * computes them. -EINTR if stopped. */
int ckpt_part_compute(const struct ckpt_part *p, const struct ckpt_element_map *map, int64_t first,
                      int64_t n, uint8_t *out, const struct ckpt_stop *stop,
                      struct ckpt_err *err) CKPT_CHECKED;

#endif
