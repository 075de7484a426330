/*
 * The decoded cache: who decodes and who waits (decoded_cache.h has the picture).
 */
#include "formats/decoded_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/pages.h"
#include "base/size.h"
#include "formats/decoded_piece.h"
#include "formats/decoded_room.h"

#define SPILL_SHARE 16 /* temporary files hold so many times the bound before idle ones go */
#define TURNS_MOST ((uint64_t)64 << 30)

/* --- pins --- */

static void unpin_piece(struct ckpt_decoded_piece *p) {
    p->pins--;
    if (p->pins == 0 && p->state == CKPT_PIECE_READY)
        ckpt_decoded_put_idle(p);
}

static int failed_before(const struct ckpt_decoded *d, struct ckpt_err *err) {
    if (d->failure && err)
        *err = *d->failure;
    return d->failure ? d->failure->code : 0;
}

static int wait_for_progress(struct ckpt_decoded_cache *c, const struct ckpt_stop *stop,
                             struct ckpt_err *err) {
    if (!ckpt_stop_may_wait(stop))
        return ckpt_fail_impatient(err);
    return ckpt_stop_wait(&c->progress, &c->mu, stop) ? ckpt_fail_stopped(err) : 0;
}

static int pin_piece(struct ckpt_decoded *d, uint64_t index, uint64_t per_part,
                     const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct ckpt_decoded_cache *const c = d->cache;
    struct ckpt_decoded_piece *const p = &d->pieces[index];
    const struct ckpt_decoded_piece *const first = &d->pieces[index / per_part * per_part];
    int rc = 0;
    if (p->pins++ == 0 && p->state == CKPT_PIECE_READY)
        ckpt_decoded_take_idle(p);
    while (rc == 0 && p->state != CKPT_PIECE_READY && first->is_busy)
        rc = wait_for_progress(c, stop, err);
    if (rc == 0)
        rc = failed_before(d, err);
    if (rc == 0 && p->state != CKPT_PIECE_READY)
        rc = ckpt_stop_may_work(stop) ? ckpt_decoded_fill(d, index, stop, err)
                                      : ckpt_fail_impatient(err);
    if (rc)
        unpin_piece(p);
    return rc;
}

/* The pieces that hold bytes [lo, hi) of a part; one at least. */
struct range {
    uint64_t first, end; /* pieces */
    uint64_t per_part;
    uint64_t offset; /* of byte lo, in the item's room */
};

static struct range range_of(const struct ckpt_decoded *d, uint64_t part, uint64_t lo,
                             uint64_t hi) {
    const struct ckpt_decoded_cut cut = ckpt_decoded_cut(d);
    const uint64_t piece = cut.piece ? cut.piece : 1, start = part * cut.per_part;
    const uint64_t last = cut.per_part - 1, first = lo / piece < last ? lo / piece : last;
    const uint64_t end = hi > lo ? (hi - 1) / piece : first;
    return (struct range){start + first, start + end + 1, cut.per_part, part * cut.slot + lo};
}

static void unpin(struct ckpt_decoded *d, uint64_t first, uint64_t end) {
    for (uint64_t i = first; i < end; i++)
        unpin_piece(&d->pieces[i]);
    d->pins--;
    ckpt_decoded_item_close(d);
}

static int pin(struct ckpt_decoded *d, const struct range *r, const struct ckpt_stop *stop,
               struct ckpt_err *err) {
    uint64_t at = r->first;
    d->pins++;
    int rc = ckpt_decoded_item_open(d, err);
    for (; rc == 0 && at < r->end; at += rc == 0)
        rc = pin_piece(d, at, r->per_part, stop, err);
    if (rc)
        unpin(d, r->first, at);
    return rc;
}

int ckpt_decoded_pin_part(struct ckpt_decoded *d, uint64_t part, uint64_t lo, uint64_t hi,
                          const uint8_t **data, const struct ckpt_stop *stop,
                          struct ckpt_err *err) {
    const struct range r = range_of(d, part, lo, hi);
    pthread_mutex_lock(&d->cache->mu);
    const int rc = pin(d, &r, stop, err);
    if (rc == 0)
        *data = d->data + r.offset;
    pthread_mutex_unlock(&d->cache->mu);
    return rc;
}

void ckpt_decoded_unpin_part(struct ckpt_decoded *d, uint64_t part, uint64_t lo, uint64_t hi) {
    const struct range r = range_of(d, part, lo, hi);
    pthread_mutex_lock(&d->cache->mu);
    unpin(d, r.first, r.end);
    pthread_mutex_unlock(&d->cache->mu);
}

int ckpt_decoded_pin(struct ckpt_decoded *d, const uint8_t **data, const struct ckpt_stop *stop,
                     struct ckpt_err *err) {
    return ckpt_decoded_pin_part(d, 0, 0, d->size, data, stop, err);
}

void ckpt_decoded_unpin(struct ckpt_decoded *d) {
    ckpt_decoded_unpin_part(d, 0, 0, d->size);
}

void ckpt_decoded_drop(struct ckpt_decoded *d) {
    if (!d->cache)
        return;
    const struct ckpt_decoded_cut cut = ckpt_decoded_cut(d);
    pthread_mutex_lock(&d->cache->mu);
    ckpt_decoded_unpark(d->cache, d);
    for (uint64_t i = 0; d->pieces && i < cut.parts * cut.per_part; i++)
        if (d->pieces[i].state == CKPT_PIECE_READY) {
            ckpt_decoded_take_idle(&d->pieces[i]);
            ckpt_decoded_empty(&d->pieces[i]);
        }
    ckpt_decoded_item_close(d);
    pthread_mutex_unlock(&d->cache->mu);
    free(d->failure);
    d->failure = NULL;
}

/* --- the cache --- */

static void set_limit(struct ckpt_decoded_cache *c, uint64_t bytes) {
    c->memory.limit = bytes;
    if (!ckpt_mul_u64(bytes, SPILL_SHARE, &c->spilled.limit))
        c->spilled.limit = UINT64_MAX;
    if (2 * c->expected > c->spilled.limit)
        c->spilled.limit = 2 * c->expected;
}

void ckpt_decoded_cache_expect(struct ckpt_decoded_cache *c, uint64_t bytes) {
    pthread_mutex_lock(&c->mu);
    bytes = bytes < TURNS_MOST ? bytes : TURNS_MOST;
    if (bytes > c->expected)
        c->expected = bytes;
    set_limit(c, c->memory.limit);
    pthread_mutex_unlock(&c->mu);
}

void ckpt_decoded_cache_limit(struct ckpt_decoded_cache *c, uint64_t bytes) {
    pthread_mutex_lock(&c->mu);
    set_limit(c, bytes);
    pthread_mutex_unlock(&c->mu);
}

void ckpt_decoded_cache_watch(struct ckpt_decoded_cache *c, void (*finished)(void *arg),
                              void *arg) {
    pthread_mutex_lock(&c->mu);
    c->finished = finished;
    c->finished_arg = arg;
    pthread_mutex_unlock(&c->mu);
}

struct ckpt_decoded_usage ckpt_decoded_cache_usage(struct ckpt_decoded_cache *c) {
    pthread_mutex_lock(&c->mu);
    struct ckpt_decoded_usage u = {c->memory.bytes, c->spilled.bytes, c->decoded, 0};
    for (const struct ckpt_decoded_parked *k = c->parked; k; k = k->older)
        u.parked++;
    pthread_mutex_unlock(&c->mu);
    return u;
}

int ckpt_decoded_cache_new(uint64_t bytes, struct ckpt_decoded_cache **out, struct ckpt_err *err) {
    struct ckpt_decoded_cache *const c = calloc(1, sizeof *c);
    if (!c)
        return ckpt_fail_memory(err, "making the cache of decoded bytes");
    c->spill_fd = -1;
    set_limit(c, bytes);
    pthread_mutex_init(&c->mu, NULL);
    ckpt_stop_cond_init(&c->progress);
    *out = c;
    return 0;
}

void ckpt_decoded_cache_free(struct ckpt_decoded_cache *c) {
    if (!c)
        return;
    ckpt_pages_free(c->spare, CKPT_DECODED_PIECE);
    if (c->spill_fd >= 0)
        close(c->spill_fd);
    pthread_cond_destroy(&c->progress);
    pthread_mutex_destroy(&c->mu);
    free(c);
}
