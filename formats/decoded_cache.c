/*
 * The decoded cache: the shelves, and who decodes and who waits (decoded_cache.h has the picture).
 */
#include "formats/decoded_cache.h"

#include <errno.h>
#include <stdlib.h>

#include "base/size.h"
#include "formats/decoded_buffer.h"

#define SPILL_SHARE 16 /* temporary files hold so many times the bound before idle ones go */
#define TURNS_MOST ((uint64_t)64 << 30)

struct ckpt_decoded_shelf {
    uint64_t limit, bytes;
    uint64_t idle;                        /* of these bytes, those not pinned */
    struct ckpt_decoded *oldest, *newest; /* the idle ones, by when they were last used */
};

struct ckpt_decoded_cache {
    pthread_mutex_t mu; /* guards all below, and each ckpt_decoded */
    pthread_cond_t finished;
    struct ckpt_decoded_shelf memory, spilled;
    uint64_t expected; /* bytes that are read in turns, at most */
    uint64_t decoded;
};

/* --- shelves --- */

static bool is_spilled(const struct ckpt_decoded *d) {
    return d->shelf == &d->cache->spilled;
}

static void put_idle(struct ckpt_decoded *d) {
    struct ckpt_decoded_shelf *const s = d->shelf;
    d->older = s->newest;
    d->newer = NULL;
    *(s->newest ? &s->newest->newer : &s->oldest) = d;
    s->newest = d;
    s->idle += d->size;
}

static void take_idle(struct ckpt_decoded *d) {
    struct ckpt_decoded_shelf *const s = d->shelf;
    *(d->older ? &d->older->newer : &s->oldest) = d->newer;
    *(d->newer ? &d->newer->older : &s->newest) = d->older;
    d->older = d->newer = NULL;
    s->idle -= d->size;
}

/* Gives up its bytes and its room. */
static void empty(struct ckpt_decoded *d) {
    ckpt_decoded_buffer_free(d->data, d->size, is_spilled(d));
    d->data = NULL;
    d->shelf->bytes -= d->size;
    d->state = CKPT_DECODED_ABSENT;
}

static void evict_oldest(struct ckpt_decoded_shelf *s) {
    struct ckpt_decoded *const d = s->oldest;
    take_idle(d);
    empty(d);
    d->was_evicted = true;
}

static bool has_room(const struct ckpt_decoded_shelf *s, uint64_t used, uint64_t size) {
    return used <= s->limit && size <= s->limit - used;
}

/* Takes room for d, in memory if that can be had. What is read in turns with more than memory holds
 * does not drive out what will be wanted before it is wanted again: nor does what comes back. */
static void reserve(struct ckpt_decoded_cache *c, struct ckpt_decoded *d) {
    const bool in_turns = d->was_evicted || d->turns > c->memory.limit;
    const uint64_t used = c->memory.bytes - (in_turns ? 0 : c->memory.idle);
    d->shelf = has_room(&c->memory, used, d->size) ? &c->memory : &c->spilled;
    while (d->shelf->oldest && !has_room(d->shelf, d->shelf->bytes, d->size))
        evict_oldest(d->shelf);
    d->shelf->bytes += d->size;
    d->state = CKPT_DECODED_DECODING;
}

/* --- decoding, without the lock --- */

/* Whether idle temporary files could be given up for room on the disk. */
static bool free_disk(struct ckpt_decoded_cache *c) {
    pthread_mutex_lock(&c->mu);
    const bool any = c->spilled.oldest;
    while (c->spilled.oldest)
        evict_oldest(&c->spilled);
    pthread_mutex_unlock(&c->mu);
    return any;
}

static int decode(struct ckpt_decoded *d, uint8_t **out, const struct ckpt_stop *stop,
                  struct ckpt_err *err) {
    uint8_t *data = NULL;
    int rc = ckpt_decoded_buffer_new(d->name, d->size, is_spilled(d), &data, err);
    if (rc == -ENOSPC && free_disk(d->cache))
        rc = ckpt_decoded_buffer_new(d->name, d->size, is_spilled(d), &data, err);
    if (rc == 0)
        rc = d->decode(d, data, stop, err);
    if (rc == 0)
        *out = data;
    else
        ckpt_decoded_buffer_free(data, d->size, is_spilled(d));
    return rc;
}

/* With the lock, which is released meanwhile. */
static int make_ready(struct ckpt_decoded *d, const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct ckpt_decoded_cache *const c = d->cache;
    uint8_t *data = NULL;
    reserve(c, d);
    pthread_mutex_unlock(&c->mu);
    const int rc = decode(d, &data, stop, err);
    pthread_mutex_lock(&c->mu);
    d->data = data;
    d->state = CKPT_DECODED_READY;
    c->decoded++;
    if (rc)
        empty(d); /* whoever waits for it tries himself */
    pthread_cond_broadcast(&c->finished);
    return rc;
}

/* --- pins --- */

static void unpin(struct ckpt_decoded *d) {
    d->pins--;
    if (d->pins == 0 && d->state == CKPT_DECODED_READY)
        put_idle(d);
}

static int pin(struct ckpt_decoded *d, const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct ckpt_decoded_cache *const c = d->cache;
    int rc = 0;
    if (d->pins++ == 0 && d->state == CKPT_DECODED_READY)
        take_idle(d);
    while (rc == 0 && d->state == CKPT_DECODED_DECODING)
        if (ckpt_stop_wait(&c->finished, &c->mu, stop))
            rc = ckpt_fail_stopped(err);
    if (rc == 0 && d->state == CKPT_DECODED_ABSENT)
        rc = make_ready(d, stop, err);
    if (rc)
        unpin(d);
    return rc;
}

int ckpt_decoded_pin(struct ckpt_decoded *d, const uint8_t **data, const struct ckpt_stop *stop,
                     struct ckpt_err *err) {
    pthread_mutex_lock(&d->cache->mu);
    const int rc = pin(d, stop, err);
    if (rc == 0)
        *data = d->data;
    pthread_mutex_unlock(&d->cache->mu);
    return rc;
}

void ckpt_decoded_unpin(struct ckpt_decoded *d) {
    pthread_mutex_lock(&d->cache->mu);
    unpin(d);
    pthread_mutex_unlock(&d->cache->mu);
}

void ckpt_decoded_drop(struct ckpt_decoded *d) {
    if (!d->cache)
        return;
    pthread_mutex_lock(&d->cache->mu);
    if (d->state == CKPT_DECODED_READY) {
        take_idle(d);
        empty(d);
    }
    pthread_mutex_unlock(&d->cache->mu);
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

struct ckpt_decoded_usage ckpt_decoded_cache_usage(struct ckpt_decoded_cache *c) {
    pthread_mutex_lock(&c->mu);
    const struct ckpt_decoded_usage u = {c->memory.bytes, c->spilled.bytes, c->decoded};
    pthread_mutex_unlock(&c->mu);
    return u;
}

int ckpt_decoded_cache_new(uint64_t bytes, struct ckpt_decoded_cache **out, struct ckpt_err *err) {
    struct ckpt_decoded_cache *const c = calloc(1, sizeof *c);
    if (!c)
        return ckpt_fail_memory(err, "making the cache of decoded bytes");
    set_limit(c, bytes);
    pthread_mutex_init(&c->mu, NULL);
    ckpt_stop_cond_init(&c->finished);
    *out = c;
    return 0;
}

void ckpt_decoded_cache_free(struct ckpt_decoded_cache *c) {
    if (!c)
        return;
    pthread_cond_destroy(&c->finished);
    pthread_mutex_destroy(&c->mu);
    free(c);
}
