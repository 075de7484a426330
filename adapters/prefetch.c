/*
 * Prefetch: one thread that computes the next band of whoever reads on, so that a sequential reader
 * finds it ready while the last one is still being copied out (measured: 1.3 to 1.5 times faster).
 * A short queue; what does not fit is dropped, since it is only a guess.
 *
 * When nothing was asked for in a while, it gives the bands up: what was read is in the kernel's
 * page cache, and a mount at rest should cost nothing. Then it sleeps until there are bands again.
 */
#include "adapters/prefetch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/reader_compute.h"

#define QUEUE 4
#define REST_NANOSECONDS 1000000000 /* until bands rest */

struct ckpt_prefetch {
    struct ckpt_bands *bands;
    int64_t band_limit;
    pthread_mutex_t mu; /* guards all below but `quit` */
    pthread_cond_t added;
    struct ckpt_band_key queue[QUEUE];
    size_t n;
    bool started;
    bool made; /* there may be bands */
    pthread_t thread;
    atomic_bool quit;
};

static bool asked_to_quit(void *arg) {
    return atomic_load((atomic_bool *)arg);
}

static void compute(struct ckpt_prefetch *p, const struct ckpt_band_key *key) {
    const struct ckpt_band_shape shape = ckpt_band_shape(key->part->walk, key->map, p->band_limit);
    const struct ckpt_band_range range = ckpt_band_numbered(&shape, key->number);
    const struct ckpt_stop stop = {.ask = asked_to_quit, .arg = &p->quit};
    const size_t bytes = (size_t)range.n * ckpt_map_out_bytes(key->map, key->part->walk->esize);
    struct ckpt_band *band;
    struct ckpt_err err = {0};
    if (ckpt_bands_get(p->bands, key, bytes, false, NULL, &band, &err) != CKPT_BANDS_MINE)
        return;
    const int rc = ckpt_part_compute(key->part, key->map, range.first, range.n,
                                     ckpt_band_data(band), &stop, &err);
    ckpt_bands_finish(p->bands, band, rc, &err);
    if (rc == 0)
        ckpt_bands_unpin(p->bands, band);
}

/* Waits for work, with the lock held; gives the bands up if nothing happens meanwhile. */
static void wait_for_work(struct ckpt_prefetch *p, uint64_t *clock) {
    if (!p->made)
        pthread_cond_wait(&p->added, &p->mu);
    else if (!ckpt_stop_cond_wait(&p->added, &p->mu, REST_NANOSECONDS))
        p->made = !ckpt_bands_rest(p->bands, clock);
}

/* The oldest key; false: quit. */
static bool next_key(struct ckpt_prefetch *p, struct ckpt_band_key *key) {
    uint64_t clock = 0;
    pthread_mutex_lock(&p->mu);
    while (p->n == 0 && !atomic_load(&p->quit))
        wait_for_work(p, &clock);
    const bool more = !atomic_load(&p->quit);
    if (more) {
        *key = p->queue[0];
        p->n--;
        memmove(p->queue, p->queue + 1, p->n * sizeof p->queue[0]);
    }
    pthread_mutex_unlock(&p->mu);
    return more;
}

static void *work(void *arg) {
    struct ckpt_band_key key;
    while (next_key(arg, &key))
        compute(arg, &key);
    return NULL;
}

static bool queued(const struct ckpt_prefetch *p, const struct ckpt_band_key *key) {
    for (size_t i = 0; i < p->n; i++) {
        if (p->queue[i].part == key->part && p->queue[i].number == key->number)
            return true;
    }
    return false;
}

/* With the lock held. */
static void start(struct ckpt_prefetch *p) {
    if (!p->started)
        p->started = pthread_create(&p->thread, NULL, work, p) == 0;
}

void ckpt_prefetch_made(struct ckpt_prefetch *p) {
    pthread_mutex_lock(&p->mu);
    start(p);
    if (!p->made)
        pthread_cond_signal(&p->added);
    p->made = true;
    pthread_mutex_unlock(&p->mu);
}

void ckpt_prefetch_add(struct ckpt_prefetch *p, const struct ckpt_band_key *key) {
    pthread_mutex_lock(&p->mu);
    start(p);
    if (p->started && p->n < QUEUE && !queued(p, key)) {
        p->queue[p->n++] = *key;
        p->made = true;
        pthread_cond_signal(&p->added);
    }
    pthread_mutex_unlock(&p->mu);
}

int ckpt_prefetch_new(struct ckpt_bands *bands, int64_t band_limit, struct ckpt_prefetch **out,
                      struct ckpt_err *err) {
    struct ckpt_prefetch *const p = calloc(1, sizeof *p);
    if (!p)
        return ckpt_fail_memory(err, "making the prefetcher");
    p->bands = bands;
    p->band_limit = band_limit;
    atomic_init(&p->quit, false);
    pthread_mutex_init(&p->mu, NULL);
    ckpt_stop_cond_init(&p->added);
    *out = p;
    return 0;
}

void ckpt_prefetch_free(struct ckpt_prefetch *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->mu);
    atomic_store(&p->quit, true);
    const bool started = p->started;
    pthread_cond_signal(&p->added);
    pthread_mutex_unlock(&p->mu);
    if (started)
        pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->added);
    pthread_mutex_destroy(&p->mu);
    free(p);
}
