#ifndef CKPT_ADAPTERS_READER_COMPUTE_H
#define CKPT_ADAPTERS_READER_COMPUTE_H
/* What the files of the reader share; nobody else includes it. */
#include "adapters/bands.h"
#include "adapters/reader.h"

/* A blob's bytes [lo, hi), in the mapping or pinned. */
struct ckpt_source_bytes {
    const uint8_t *base; /* where byte 0 of the blob would lie */
    struct ckpt_blob *blob;
    struct ckpt_pin pin; /* held only if the blob is not in a file */
};
int ckpt_source_open(struct ckpt_blob *blob, int64_t lo, int64_t hi, struct ckpt_source_bytes *s,
                     struct ckpt_err *err) CKPT_CHECKED;
void ckpt_source_close(struct ckpt_source_bytes *s);

/* -EIO with its sentence and a line in the log: the source shrank or cannot be read. */
int ckpt_source_failed(const struct ckpt_blob *blob, struct ckpt_err *err);

/* Gathers elements [first, first + n) of a part into out, inside the guard. -EINTR if stopped. */
int ckpt_part_compute(const struct ckpt_part *p, const struct ckpt_element_map *map, int64_t first,
                      int64_t n, uint8_t *out, const struct ckpt_stop *stop,
                      struct ckpt_err *err) CKPT_CHECKED;

/* The worker that computes bands before they are asked for. Its thread starts at the first call of
 * ckpt_prefetch_add, which is after the program went to the background. */
struct ckpt_prefetch;
int ckpt_prefetch_new(struct ckpt_bands *bands, int64_t band_limit, struct ckpt_prefetch **out,
                      struct ckpt_err *err) CKPT_CHECKED;
/* Never waits; drops the key when much is queued already. */
void ckpt_prefetch_add(struct ckpt_prefetch *p, const struct ckpt_band_key *key);
void ckpt_prefetch_free(struct ckpt_prefetch *p); /* stops the thread; NULL is fine */

/* Something that a reply points into. */
struct ckpt_reply_hold {
    struct ckpt_reply_hold *next;
    struct ckpt_band *band;          /* or NULL */
    struct ckpt_source_bytes source; /* .blob NULL: none */
    uint8_t data[];                  /* a private buffer */
};
/* A hold with a buffer of n bytes, in the reply's list; NULL when out of memory. */
struct ckpt_reply_hold *ckpt_reply_hold(struct ckpt_reply *reply, size_t n);

#endif
