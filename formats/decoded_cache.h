#ifndef CKPT_FORMATS_DECODED_CACHE_H
#define CKPT_FORMATS_DECODED_CACHE_H
/*
 * What had to be decoded to be read (inflated archive entries, chunks of arrays, norms of a weight,
 * factors of LoRA), kept for the next reader and bounded together by -o cache=. One cache a
 * checkpoint:
 *
 *     absent ── first pin ──> decoding ──> ready, pinned <──> ready, idle ── room is needed ──>
 * absent (one thread; others wait)       (least recently used goes first)
 *
 * The bytes lie on one of two shelves. Memory holds no more than the bound, whatever readers do;
 * what does not fit beside that which is pinned (an entry larger than the bound, say), or what
 * comes back after it had to go, is decoded into an unlinked temporary file, which is mapped. So
 * nobody ever waits for another's pin, and random reads of a huge entry cost one decoding, too.
 * Idle files go when all of them hold more than SPILL_SHARE (decoded_cache.c) times the bound and
 * twice what is read in turns, or when the disk is full.
 *
 * Any thread may call all functions at any time. No lock is held while bytes are decoded, so
 * decoding may pin something else of the same cache.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/stop.h"

#define CKPT_DECODED_DEFAULT ((uint64_t)256 << 20)

struct ckpt_decoded_cache;
struct ckpt_decoded_shelf;

/* Something decoded; part of its owner, who sets the first four, the rest being zero. */
struct ckpt_decoded {
    struct ckpt_decoded_cache *cache;
    /* Fills `out` with all `size` bytes. -EINTR if stopped. */
    int (*decode)(struct ckpt_decoded *d, uint8_t *out, const struct ckpt_stop *stop,
                  struct ckpt_err *err);
    const char *name; /* for messages */
    uint64_t size;
    uint64_t turns; /* of all that a reader takes in turns, this among it; 0: it is read alone */
    /* The cache's own, guarded by its lock; data does not change while it is pinned. */
    uint8_t *data;
    struct ckpt_decoded_shelf *shelf;
    struct ckpt_decoded *older, *newer; /* among the idle ones of the shelf */
    uint32_t pins;                      /* readers, and those who wait to be */
    bool was_evicted;
    enum { CKPT_DECODED_ABSENT, CKPT_DECODED_DECODING, CKPT_DECODED_READY } state;
};

int ckpt_decoded_cache_new(uint64_t bytes, struct ckpt_decoded_cache **out,
                           struct ckpt_err *err) CKPT_CHECKED;
/* NULL is fine. All that was ever pinned has been dropped. */
void ckpt_decoded_cache_free(struct ckpt_decoded_cache *c);
/* So many bytes are read in turns: temporary files may hold twice as many before idle ones go, or
 * each turn would decode all of them again. */
void ckpt_decoded_cache_expect(struct ckpt_decoded_cache *c, uint64_t bytes);
/* Another bound; what is idle beyond it goes when room is next needed. */
void ckpt_decoded_cache_limit(struct ckpt_decoded_cache *c, uint64_t bytes);

struct ckpt_decoded_usage {
    uint64_t memory, spilled; /* bytes on the two shelves */
    uint64_t decoded;         /* how often something was decoded */
};
struct ckpt_decoded_usage ckpt_decoded_cache_usage(struct ckpt_decoded_cache *c);

/* All bytes, readable until unpinned: decoded, or waited for while another thread does so. -EINTR
 * if stopped; -ENOMEM; -ENOSPC without room for a temporary file; whatever decode says. */
int ckpt_decoded_pin(struct ckpt_decoded *d, const uint8_t **data, const struct ckpt_stop *stop,
                     struct ckpt_err *err) CKPT_CHECKED;
void ckpt_decoded_unpin(struct ckpt_decoded *d);
/* Forgets the bytes: nobody has it pinned or ever will. */
void ckpt_decoded_drop(struct ckpt_decoded *d);

#endif
