#ifndef CKPT_ADAPTERS_BANDS_H
#define CKPT_ADAPTERS_BANDS_H
/*
 * The band cache of a reader, bounded in bytes and in slots:
 *
 *     free -> computing (its owner, pinned) -> ready -> evicted, least recently used first
 *                                           -> failed: waiters take the error, the last frees it
 *
 * Pinned bands are never evicted. When all there is is pinned, ckpt_bands_get says so, and the
 * reader computes what it needs into a buffer of its own: nobody ever waits for another's pin, so
 * there is no deadlock. Any thread may call all functions at any time.
 */
#include <stddef.h>
#include <stdint.h>

#include "adapters/band_shape.h"

/* Tied tensors and the same tensor in two files have equal keys. The part and the map are
 * referenced as long as the cache lives. */
struct ckpt_band_key {
    const struct ckpt_part *part;
    const struct ckpt_element_map *map;
    int64_t number;
};

struct ckpt_bands;
struct ckpt_band;

int ckpt_bands_new(size_t bytes, struct ckpt_bands **out, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_bands_free(struct ckpt_bands *b);

enum ckpt_bands_answer {
    CKPT_BANDS_READY, /* pinned: read it, then unpin */
    CKPT_BANDS_MINE,  /* pinned: compute it, ckpt_bands_finish, read it, then unpin */
    CKPT_BANDS_FULL,  /* everything is pinned, or no memory: do without */
    CKPT_BANDS_BUSY,  /* only without `wait`: it is there or being computed already */
};
/* Finds the band or makes room for one of `bytes`. With `wait` it waits while another thread
 * computes the band: negative if that failed, or -EINTR if `stop` (may be NULL) said so; -EAGAIN,
 * and nothing is begun, if it takes more patience than `stop` has. */
int ckpt_bands_get(struct ckpt_bands *b, const struct ckpt_band_key *key, size_t bytes, bool wait,
                   const struct ckpt_stop *stop, struct ckpt_band **out,
                   struct ckpt_err *err) CKPT_CHECKED;
/* rc 0: ready; else failed with *err, and unpinned. */
void ckpt_bands_finish(struct ckpt_bands *b, struct ckpt_band *band, int rc,
                       const struct ckpt_err *err);
uint8_t *ckpt_band_data(struct ckpt_band *band);
void ckpt_bands_unpin(struct ckpt_bands *b, struct ckpt_band *band);
/* Calls back whenever a band was finished, with the cache's lock held; NULL: no more, from then on.
 * Not for -EAGAIN: nothing is new for whoever was refused himself. */
void ckpt_bands_watch(struct ckpt_bands *b, void (*finished)(void *arg), void *arg);
/* Whether the band is there or being computed. */
bool ckpt_bands_has(struct ckpt_bands *b, const struct ckpt_band_key *key);
/* Gives up all bands, if nobody has asked for one since the clock showed *clock, which is set.
 * False: somebody has, or holds one. */
bool ckpt_bands_rest(struct ckpt_bands *b, uint64_t *clock);

#endif
