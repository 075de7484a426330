/*
 * The band cache: the slots, their states and who waits for whom (bands.h has the picture).
 */
#include "adapters/bands.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/pages.h"

#define SLOTS 256
#define ALIGNMENT 64 /* of a band's data: whole cache lines */
#define ROUNDING ((size_t)64 << 10)
#define ONCE_MORE 1000 /* get()'s answer: what was waited for is not there */

enum state { FREE, COMPUTING, READY, FAILED };

struct ckpt_band {
    struct ckpt_band_key key;
    enum state state;
    uint32_t pins; /* the owner, waiters and replies */
    uint64_t used; /* the clock when it was last asked for */
    uint8_t *data;
    size_t capacity;
    struct ckpt_err err; /* of FAILED */
};

struct ckpt_bands {
    pthread_mutex_t mu; /* guards all below, but not the data of a band */
    pthread_cond_t finished;
    void (*watch)(void *arg); /* somebody watches; NULL: nobody */
    void *watch_arg;
    size_t bytes, limit;
    uint64_t clock;
    uint64_t hash[SLOTS]; /* of the slots' keys, apart so that a search stays in a few lines */
    struct ckpt_band slot[SLOTS];
};

/* --- keys --- */

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t hash_key(const struct ckpt_band_key *key) {
    const struct ckpt_walk *const w = key->part->walk;
    uint64_t h = mix((uint64_t)(uintptr_t)key->part->source->blob, (uint64_t)key->number);
    h = mix(h, (uint64_t)w->offset);
    for (uint32_t i = 0; i < w->npairs; i++)
        h = mix(mix(h, (uint64_t)w->pair[i].size), (uint64_t)w->pair[i].stride);
    return mix(h, (uint64_t)key->map->from << 8 | (uint64_t)key->map->to);
}

static bool equal_keys(const struct ckpt_band_key *a, const struct ckpt_band_key *b) {
    const struct ckpt_element_map *const m = a->map, *const n = b->map;
    return a->number == b->number && a->part->source->blob == b->part->source->blob &&
           m->from == n->from && m->to == n->to && m->swap == n->swap && m->conj == n->conj &&
           m->neg == n->neg && ckpt_walk_equal(a->part->walk, b->part->walk);
}

static struct ckpt_band *find(struct ckpt_bands *b, const struct ckpt_band_key *key,
                              uint64_t hash) {
    for (size_t i = 0; i < SLOTS; i++) {
        struct ckpt_band *const band = &b->slot[i];
        if (b->hash[i] == hash && (band->state == COMPUTING || band->state == READY) &&
            equal_keys(&band->key, key))
            return band;
    }
    return NULL;
}

/* --- room --- */

/* Buffers of many pages are mapped, not taken from malloc, whose arenas keep what was freed: bands
 * of mixed sizes made 32 MiB of them cost 110 MiB (measured). */
static uint8_t *new_buffer(size_t capacity) {
    return capacity < ROUNDING ? aligned_alloc(ALIGNMENT, capacity)
                               : ckpt_pages_new(capacity, true);
}

static void free_buffer(uint8_t *data, size_t capacity) {
    if (capacity < ROUNDING)
        free(data);
    else
        ckpt_pages_free(data, capacity);
}

/* In steps, so that an evicted buffer fits again; in huge pages where little is wasted. */
static size_t capacity_for(size_t bytes) {
    const size_t step = bytes < ROUNDING             ? ALIGNMENT
                        : bytes < 2 * CKPT_HUGE_PAGE ? ROUNDING
                                                     : CKPT_HUGE_PAGE;
    return (bytes + step - 1) / step * step;
}

static void drop(struct ckpt_bands *b, struct ckpt_band *band) {
    free_buffer(band->data, band->capacity);
    b->bytes -= band->capacity;
    band->data = NULL;
    band->capacity = 0;
    band->state = FREE;
}

static struct ckpt_band *least_recent(struct ckpt_bands *b) {
    struct ckpt_band *oldest = NULL;
    for (size_t i = 0; i < SLOTS; i++) {
        struct ckpt_band *const band = &b->slot[i];
        if (band->state == READY && band->pins == 0 && (!oldest || band->used < oldest->used))
            oldest = band;
    }
    return oldest;
}

static struct ckpt_band *free_slot(struct ckpt_bands *b) {
    for (size_t i = 0; i < SLOTS; i++) {
        if (b->slot[i].state == FREE)
            return &b->slot[i];
    }
    return NULL;
}

/* A slot with a buffer of `capacity`, or NULL. An evicted buffer of the same size is used again:
 * fresh pages would cost as much as half the transposition. */
static struct ckpt_band *make_room(struct ckpt_bands *b, size_t capacity) {
    struct ckpt_band *band = free_slot(b);
    while (!band || b->bytes + capacity > b->limit) {
        struct ckpt_band *const old = least_recent(b);
        if (!old)
            return NULL;
        band = old;
        if (old->capacity == capacity)
            return old;
        drop(b, old);
    }
    band->data = new_buffer(capacity);
    if (!band->data)
        return NULL;
    band->capacity = capacity;
    b->bytes += capacity;
    return band;
}

static struct ckpt_band *start(struct ckpt_bands *b, const struct ckpt_band_key *key, uint64_t hash,
                               size_t bytes) {
    struct ckpt_band *const band = make_room(b, capacity_for(bytes));
    if (!band)
        return NULL;
    b->hash[band - b->slot] = hash;
    band->key = *key;
    band->state = COMPUTING;
    band->pins = 1;
    return band;
}

/* --- waiting --- */

static void unpin(struct ckpt_bands *b, struct ckpt_band *band) {
    band->pins--;
    if (band->pins == 0 && band->state == FAILED)
        drop(b, band);
}

/* Waits for another's band, which the caller has pinned. 0: it is ready, still pinned; negative:
 * unpinned; ONCE_MORE: its owner gave up, so somebody else must compute it. */
static int wait_for(struct ckpt_bands *b, struct ckpt_band *band, const struct ckpt_stop *stop,
                    struct ckpt_err *err) {
    int rc = 0;
    while (band->state == COMPUTING && rc == 0) {
        if (ckpt_stop_wait(&b->finished, &b->mu, stop) && band->state == COMPUTING)
            rc = ckpt_fail_stopped(err);
    }
    if (rc == 0 && band->state == READY)
        return 0;
    if (rc == 0 && (band->err.code == -EINTR || band->err.code == -EAGAIN))
        rc = ONCE_MORE;
    else if (rc == 0)
        rc = ckpt_fail(err, band->err.code, "%s", band->err.text);
    unpin(b, band);
    return rc;
}

/* What it takes: nothing, or to wait for the band, or to compute it. */
static bool is_ready_for(const struct ckpt_stop *stop, const struct ckpt_band *band) {
    if (!band)
        return ckpt_stop_may_work(stop);
    return band->state == READY || ckpt_stop_may_wait(stop);
}

static int get(struct ckpt_bands *b, const struct ckpt_band_key *key, size_t bytes, bool wait,
               const struct ckpt_stop *stop, struct ckpt_band **out, struct ckpt_err *err) {
    const uint64_t hash = hash_key(key);
    struct ckpt_band *band = find(b, key, hash);
    int rc = CKPT_BANDS_READY;
    if (band && !wait)
        return CKPT_BANDS_BUSY;
    if (!is_ready_for(stop, band))
        return ckpt_fail_impatient(err);
    if (band) {
        band->pins++;
        rc = wait_for(b, band, stop, err);
    } else {
        rc = CKPT_BANDS_MINE;
        band = start(b, key, hash, bytes);
    }
    if (!band)
        return CKPT_BANDS_FULL;
    if (rc >= 0 && rc != ONCE_MORE)
        band->used = ++b->clock;
    *out = band;
    return rc;
}

int ckpt_bands_get(struct ckpt_bands *b, const struct ckpt_band_key *key, size_t bytes, bool wait,
                   const struct ckpt_stop *stop, struct ckpt_band **out, struct ckpt_err *err) {
    int rc;
    pthread_mutex_lock(&b->mu);
    do {
        rc = get(b, key, bytes, wait, stop, out, err);
    } while (rc == ONCE_MORE);
    pthread_mutex_unlock(&b->mu);
    return rc;
}

void ckpt_bands_finish(struct ckpt_bands *b, struct ckpt_band *band, int rc,
                       const struct ckpt_err *err) {
    pthread_mutex_lock(&b->mu);
    band->state = rc == 0 ? READY : FAILED;
    if (rc < 0) {
        band->err = *err;
        band->err.code = rc;
        unpin(b, band);
    }
    pthread_cond_broadcast(&b->finished);
    if (b->watch && rc != -EAGAIN)
        b->watch(b->watch_arg);
    pthread_mutex_unlock(&b->mu);
}

void ckpt_bands_watch(struct ckpt_bands *b, void (*finished)(void *arg), void *arg) {
    pthread_mutex_lock(&b->mu);
    b->watch = finished;
    b->watch_arg = arg;
    pthread_mutex_unlock(&b->mu);
}

uint8_t *ckpt_band_data(struct ckpt_band *band) {
    return band->data;
}

void ckpt_bands_unpin(struct ckpt_bands *b, struct ckpt_band *band) {
    pthread_mutex_lock(&b->mu);
    unpin(b, band);
    pthread_mutex_unlock(&b->mu);
}

bool ckpt_bands_has(struct ckpt_bands *b, const struct ckpt_band_key *key) {
    const uint64_t hash = hash_key(key);
    pthread_mutex_lock(&b->mu);
    const bool has = find(b, key, hash) != NULL;
    pthread_mutex_unlock(&b->mu);
    return has;
}

bool ckpt_bands_rest(struct ckpt_bands *b, uint64_t *clock) {
    pthread_mutex_lock(&b->mu);
    struct ckpt_band *band;
    while (b->clock == *clock && (band = least_recent(b)))
        drop(b, band);
    *clock = b->clock;
    const bool empty = b->bytes == 0;
    pthread_mutex_unlock(&b->mu);
    return empty;
}

/* --- making and freeing --- */

int ckpt_bands_new(size_t bytes, struct ckpt_bands **out, struct ckpt_err *err) {
    struct ckpt_bands *const b = calloc(1, sizeof *b);
    if (!b)
        return ckpt_fail_memory(err, "making the band cache");
    b->limit = bytes;
    ckpt_stop_cond_init(&b->finished);
    pthread_mutex_init(&b->mu, NULL);
    *out = b;
    return 0;
}

void ckpt_bands_free(struct ckpt_bands *b) {
    if (!b)
        return;
    for (size_t i = 0; i < SLOTS; i++)
        free_buffer(b->slot[i].data, b->slot[i].capacity);
    pthread_cond_destroy(&b->finished);
    pthread_mutex_destroy(&b->mu);
    free(b);
}
