#ifndef CKPT_FORMATS_DECODED_PIECE_H
#define CKPT_FORMATS_DECODED_PIECE_H
/*
 * Inside the decoded cache: pieces, the shelves they lie on, and parked decoders. All of it is
 * guarded by the cache's lock, but the bytes of a piece and its decoder while it is being decoded,
 * which belong to the thread that does so.
 */
#include "formats/decoded_cache.h"

struct ckpt_decoded_piece {
    struct ckpt_decoded *of;
    struct ckpt_decoded_piece *older, *newer; /* among the idle ones of its shelf */
    uint64_t spilled_at;                      /* in the temporary file */
    uint32_t pins;
    enum { CKPT_PIECE_ABSENT, CKPT_PIECE_DECODING, CKPT_PIECE_READY } state;
    bool is_spilled, was_evicted;
    bool is_busy; /* of a part's first one: a thread decodes of that part */
};

struct ckpt_decoded_shelf {
    uint64_t limit, bytes;
    uint64_t idle;                              /* of these bytes, those not pinned */
    struct ckpt_decoded_piece *oldest, *newest; /* the idle ones, by when they were last used */
};

/* A decoder at the beginning of a piece. */
struct ckpt_decoded_parked {
    struct ckpt_decoded *of;
    uint64_t part, at; /* of the part's pieces, the one that comes next */
    const struct ckpt_decoded_stream *stream;
    void *decoder;
    size_t memory;                     /* counted on the shelf */
    struct ckpt_decoded_parked *older; /* parked before this one */
};

struct ckpt_decoded_cache {
    pthread_mutex_t mu; /* guards all below */
    pthread_cond_t progress;
    void (*finished)(void *arg); /* somebody watches; NULL: nobody */
    void *finished_arg;
    struct ckpt_decoded_shelf memory, spilled;
    uint64_t expected; /* bytes that are read in turns, at most */
    uint64_t decoded;
    int spill_fd; /* -1: not needed yet */
    const char *spill_folder;
    uint64_t spill_end;
    struct ckpt_decoded_parked *parked; /* the last one first */
    /* Memory of the piece that was evicted last, CKPT_DECODED_PIECE bytes for the next one: fresh
     * pages would have to be cleared, a third of the time of reading on. */
    uint8_t *spare;
    bool has_spare;
};

/* --- how an item is cut (decoded_piece.c) --- */

struct ckpt_decoded_cut {
    uint64_t parts, part_bytes;
    uint64_t slot; /* from one part to the next in the item's room */
    uint64_t piece, per_part;
};
struct ckpt_decoded_cut ckpt_decoded_cut(const struct ckpt_decoded *d);
/* A piece's place in the item's room, and its size. */
uint64_t ckpt_decoded_piece_offset(const struct ckpt_decoded_cut *cut, uint64_t index);
uint64_t ckpt_decoded_piece_bytes(const struct ckpt_decoded_cut *cut, uint64_t index);

/* --- pieces and their room (decoded_piece.c), with the lock --- */

/* The item's table of pieces and address space, unless it has them. It is pinned. */
int ckpt_decoded_item_open(struct ckpt_decoded *d, struct ckpt_err *err) CKPT_CHECKED;
/* Gives both up if nobody needs them. */
void ckpt_decoded_item_close(struct ckpt_decoded *d);
/* Wakes all who wait for a piece, and calls who watches, unless decoding ended with -EAGAIN. */
void ckpt_decoded_tell_progress(struct ckpt_decoded_cache *c, int rc);
void ckpt_decoded_put_idle(struct ckpt_decoded_piece *p);
void ckpt_decoded_take_idle(struct ckpt_decoded_piece *p);
/* Takes room for a piece that is absent, in memory if that can be had; it is being decoded then. */
void ckpt_decoded_reserve(struct ckpt_decoded_piece *p);
/* Gives up a piece's bytes and its room. */
void ckpt_decoded_empty(struct ckpt_decoded_piece *p);
void ckpt_decoded_evict_oldest(struct ckpt_decoded_shelf *s);

/* --- without the lock --- */

/* The room of a piece that is being decoded, ready to be written to: *out. */
int ckpt_decoded_obtain(struct ckpt_decoded_piece *p, uint8_t **out,
                        struct ckpt_err *err) CKPT_CHECKED;

/* --- decoding (decoded_fill.c), with the lock, which is released meanwhile --- */

/* Decodes the piece, whose part nobody else decodes of. */
int ckpt_decoded_fill(struct ckpt_decoded *d, uint64_t index, const struct ckpt_stop *stop,
                      struct ckpt_err *err) CKPT_CHECKED;
/* Closes the decoders of the item; NULL: of all. */
void ckpt_decoded_unpark(struct ckpt_decoded_cache *c, const struct ckpt_decoded *d);

#endif
