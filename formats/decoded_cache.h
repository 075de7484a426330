#ifndef CKPT_FORMATS_DECODED_CACHE_H
#define CKPT_FORMATS_DECODED_CACHE_H
/*
 * Bytes that must be decoded before they can be read (deflated archive entries, chunks of arrays),
 * and what is computed once from whole tensors, bounded together by -o cache=. One cache a
 * checkpoint. What is kept, and given up, is a *piece*:
 *
 *     absent ── first pin ──> decoding ──> ready, pinned <──> ready, idle ── room is needed ──>
 * absent (one thread; others wait)       (least recently used goes first)
 *
 * Most items are one piece. Others have *parts* (the chunks in a shard), each of which is decoded
 * by itself, and a large part that decodes forwards has several pieces:
 *
 *     item   | part 0                          | part 1     ...
 *            | piece | piece | piece | piece   |
 *     decoded ^^^^^^^^^^^^^^^ ^ a decoder is parked here: whoever reads on goes on with it,
 *                             whoever goes back to what is no longer there begins the part again
 *
 * so that who reads forwards needs no more than a piece in memory and decodes each part once, and
 * the first bytes of a huge chunk don't wait for its last. A part whose stream ends with a checksum
 * is decoded to its end before any of it is shown.
 *
 * The bytes lie on one of two shelves. Memory holds no more than the bound, whatever readers do;
 * what does not fit beside that which is pinned (an entry larger than the bound, say), or what
 * comes back after it had to go, is decoded into an unlinked temporary file, which is mapped. So
 * nobody ever waits for another's pin, and random reads of a huge entry cost one or two decodings.
 * Idle pieces of the file go when they hold more than SPILL_SHARE (decoded_cache.c) times the bound
 * and twice what is read in turns, or when the disk is full.
 *
 * Any thread may call all functions at any time. No lock is held while bytes are decoded, so
 * decoding may pin something else of the same cache.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/stop.h"

#define CKPT_DECODED_DEFAULT ((uint64_t)256 << 20)
#define CKPT_DECODED_PIECE ((uint64_t)2 << 20) /* of what decodes forwards: a huge page */

struct ckpt_decoded;
struct ckpt_decoded_cache;
struct ckpt_decoded_piece;

/* Decoding a part forwards. Calls for one decoder come one after the other, from any thread. */
struct ckpt_decoded_stream {
    int (*open)(struct ckpt_decoded *d, uint64_t part, void **decoder, const struct ckpt_stop *stop,
                struct ckpt_err *err);
    /* The next n bytes to out. */
    int (*next)(void *decoder, uint8_t *out, uint64_t n, struct ckpt_err *err);
    /* After the last byte: whether it is the end of the stream, too. */
    int (*end)(void *decoder, struct ckpt_err *err);
    bool (*is_checked)(const void *decoder); /* a checksum follows the last byte */
    size_t (*memory)(const void *decoder);   /* that it needs */
    void (*close)(void *decoder);
};

/* How items of several parts are decoded. */
struct ckpt_decoded_parts {
    uint64_t count, bytes; /* all of the same size */
    /* Either all of a part, -EINTR if stopped, */
    int (*decode)(struct ckpt_decoded *d, uint64_t part, uint8_t *out, const struct ckpt_stop *stop,
                  struct ckpt_err *err);
    /* or, if not NULL, in pieces of so many bytes (whole pages), the last being shorter. */
    const struct ckpt_decoded_stream *stream;
    uint64_t piece;
};

/* Something decoded; part of its owner, who sets the first, the rest being zero. */
struct ckpt_decoded {
    struct ckpt_decoded_cache *cache;
    /* Fills `out` with all `size` bytes. -EINTR if stopped. */
    int (*decode)(struct ckpt_decoded *d, uint8_t *out, const struct ckpt_stop *stop,
                  struct ckpt_err *err);
    const struct ckpt_decoded_parts *parts; /* NULL: one, which `decode` makes */
    const char *name;                       /* for messages */
    uint64_t size;                          /* of all parts */
    uint64_t turns; /* of all that a reader takes in turns, this among it; 0: it is read alone */
    /* The cache's own, guarded by its lock; bytes do not change while they are pinned. */
    uint8_t *data;
    struct ckpt_decoded_piece *pieces; /* NULL: none is there */
    uint64_t present;                  /* pieces that are there or being decoded */
    uint32_t pins;                     /* readers, and those who wait to be */
    bool was_evicted;                  /* all of it */
    bool comes_back;                   /* what had been evicted was wanted again */
    struct ckpt_err *failure;          /* of a stream: nothing of it is shown any more */
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
/* Calls back whenever a thread has finished decoding, with or without success, with the cache's
 * lock held; NULL: no more, from then on. Not for -EAGAIN: what it needs is being decoded by
 * another, whose end is told. */
void ckpt_decoded_cache_watch(struct ckpt_decoded_cache *c, void (*finished)(void *arg), void *arg);

struct ckpt_decoded_usage {
    uint64_t memory, spilled; /* bytes on the two shelves */
    uint64_t decoded;         /* how often the decoding of a part was begun */
    uint64_t parked;          /* decoders that wait for whoever reads on */
};
struct ckpt_decoded_usage ckpt_decoded_cache_usage(struct ckpt_decoded_cache *c);

/* Bytes [lo, hi) of a part, readable until unpinned: decoded, or waited for while another thread
 * does so. -EINTR if stopped; -ENOMEM; -ENOSPC without room for a temporary file; whatever decoding
 * says. -EBADMSG of a stream, that it is damaged, is said ever after. -EAGAIN if that takes more
 * patience than `stop` has. */
int ckpt_decoded_pin_part(struct ckpt_decoded *d, uint64_t part, uint64_t lo, uint64_t hi,
                          const uint8_t **data, const struct ckpt_stop *stop,
                          struct ckpt_err *err) CKPT_CHECKED;
/* What was pinned. */
void ckpt_decoded_unpin_part(struct ckpt_decoded *d, uint64_t part, uint64_t lo, uint64_t hi);
/* The same of all bytes of an item of one part. */
int ckpt_decoded_pin(struct ckpt_decoded *d, const uint8_t **data, const struct ckpt_stop *stop,
                     struct ckpt_err *err) CKPT_CHECKED;
void ckpt_decoded_unpin(struct ckpt_decoded *d);
/* Forgets the bytes: nobody has it pinned or ever will. */
void ckpt_decoded_drop(struct ckpt_decoded *d);

#endif
