/*
 * Patience: who only takes what is there gets -EAGAIN and begins nothing, who works does not wait
 * for others, and sixty-four readers who are put off again and again compute each band once.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "adapters/band_shape.h"
#include "adapters/reader.h"
#include "formats/decoded_cache.h"
#include "fs/lanes.h"
#include "random.h"

#define ROWS 512
#define COLUMNS 1024
#define BYTES ((uint64_t)ROWS * COLUMNS * 4)

/* A matrix in a blob that counts its pins, which may be held up; served transposed. */
struct world {
    struct ckpt_blob blob; /* first */
    uint32_t matrix[ROWS][COLUMNS];
    uint32_t expected[COLUMNS][ROWS];
    atomic_bool hold;
    atomic_bool is_busy; /* another thread makes the bytes */
    atomic_int pins;
    struct ckpt_tensor source;
    struct ckpt_walk *walk;
    struct ckpt_part part;
    struct ckpt_adapted tensor;
    struct ckpt_reader *reader;
};

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

static int pin(struct ckpt_blob *b, uint64_t lo, uint64_t hi, struct ckpt_pin *out,
               const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct world *const w = (struct world *)b;
    (void)hi;
    if (atomic_load(&w->is_busy) && !ckpt_stop_may_wait(stop))
        return ckpt_fail_impatient(err);
    atomic_fetch_add(&w->pins, 1);
    while (atomic_load(&w->hold))
        nap();
    out->data = (const uint8_t *)w->matrix + lo;
    return 0;
}

static void unpin(struct ckpt_blob *b, struct ckpt_pin *held) {
    (void)b;
    held->data = NULL;
}

static const struct ckpt_blob_ops ops = {.kind = "counted", .pin = pin, .unpin = unpin};

static struct world *new_world(bool prefetch) {
    const struct ckpt_reader_options options = {.no_prefetch = !prefetch};
    struct world *const w = calloc(1, sizeof *w);
    struct ckpt_err err = {0};
    assert_non_null(w);
    w->blob = (struct ckpt_blob){.ops = &ops, .size = BYTES, .name = "counted"};
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t c = 0; c < COLUMNS; c++)
            w->matrix[r][c] = w->expected[c][r] = r * COLUMNS + c;
    w->source = (struct ckpt_tensor){.dtype = CKPT_DT_F32, .blob = &w->blob};
    w->walk = calloc(1, sizeof *w->walk + 2 * sizeof w->walk->pair[0]);
    assert_non_null(w->walk);
    *w->walk = (struct ckpt_walk){.esize = 4, .npairs = 2, .count = (int64_t)ROWS * COLUMNS};
    w->walk->pair[0] = (struct ckpt_dim){COLUMNS, 4};
    w->walk->pair[1] = (struct ckpt_dim){ROWS, COLUMNS * 4};
    w->part = (struct ckpt_part){.source = &w->source, .walk = w->walk, .nbytes = BYTES};
    w->tensor = (struct ckpt_adapted){.dtype = CKPT_DT_F32,
                                      .nbytes = BYTES,
                                      .source = &w->source,
                                      .part = &w->part,
                                      .nparts = 1,
                                      .map = {.from = CKPT_DT_F32, .to = CKPT_DT_F32}};
    assert_int_equal(ckpt_reader_new(&options, &w->reader, &err), 0);
    return w;
}

static void free_world(struct world *w) {
    ckpt_reader_free(w->reader);
    free(w->walk);
    free(w);
}

/* n bytes or a negative errno; what came is compared. */
static ssize_t take(struct world *w, uint64_t off, size_t len, enum ckpt_patience patience) {
    struct ckpt_reply reply = {.stop = {.patience = patience}};
    struct ckpt_err err = {0};
    const ssize_t n = ckpt_reader_add(w->reader, &w->tensor, off, len, &reply, &err);
    if (n > 0) {
        uint8_t *const got = malloc((size_t)n);
        assert_non_null(got);
        assert_int_equal(ckpt_reply_copy(&reply, got), 0);
        assert_memory_equal(got, (const uint8_t *)w->expected + off, (size_t)n);
        free(got);
    }
    ckpt_reply_done(w->reader, &reply);
    return n;
}

static void test_takes_what_is_there(void **state) {
    (void)state;
    struct world *const w = new_world(false);
    assert_int_equal(take(w, 100, 1000, CKPT_TAKES), -EAGAIN);
    assert_int_equal(atomic_load(&w->pins), 0); /* nothing was begun */
    assert_int_equal(take(w, 100, 1000, CKPT_WORKS), 1000);
    assert_int_equal(atomic_load(&w->pins), 1);
    assert_int_equal(take(w, 200, 1000, CKPT_TAKES), 1000);
    assert_int_equal(atomic_load(&w->pins), 1);
    free_world(w);
}

static void *work(void *world) {
    return (void *)(intptr_t)take(world, 0, 100, CKPT_WORKS);
}

static void test_works_but_does_not_wait(void **state) {
    (void)state;
    struct world *const w = new_world(false);
    pthread_t other;
    void *n;
    atomic_store(&w->hold, true);
    assert_int_equal(pthread_create(&other, NULL, work, w), 0);
    while (atomic_load(&w->pins) == 0)
        nap();
    assert_int_equal(take(w, 0, 100, CKPT_TAKES), -EAGAIN);
    assert_int_equal(take(w, 0, 100, CKPT_WORKS), -EAGAIN);
    atomic_store(&w->hold, false);
    pthread_join(other, &n);
    assert_int_equal((intptr_t)n, 100);
    assert_int_equal(take(w, 0, 100, CKPT_TAKES), 100);
    assert_int_equal(atomic_load(&w->pins), 1);
    free_world(w);
}

static void count_call(void *calls) {
    atomic_fetch_add((atomic_int *)calls, 1);
}

/* Or whoever watches would try again at once, for as long as another is at it. */
static void test_being_refused_is_no_news(void **state) {
    (void)state;
    struct world *const w = new_world(false);
    atomic_int told = 0;
    ckpt_reader_watch(w->reader, count_call, &told);
    atomic_store(&w->is_busy, true);
    assert_int_equal(take(w, 0, 100, CKPT_WORKS), -EAGAIN);
    assert_int_equal(atomic_load(&told), 0);
    atomic_store(&w->is_busy, false);
    assert_int_equal(take(w, 0, 100, CKPT_WORKS), 100);
    assert_int_equal(atomic_load(&told), 1);
    free_world(w);
}

/* --- sixty-four readers ----------------------------------------------------------------------- */

#define READERS 64
#define READS 20
#define READ_BYTES 100

struct reader {
    struct ckpt_lane_job job; /* first */
    struct world *world;
    struct ckpt_lanes *lanes;
    struct rng rng;
    atomic_int reads, failed;
    uint64_t off;
};

static void next_read(struct reader *r) {
    r->off = (uint64_t)rng_below(&r->rng, BYTES - READ_BYTES);
    if (ckpt_lanes_add(r->lanes, &r->job) < 0)
        atomic_store(&r->failed, 1);
}

/* A read ends at the end of its band. */
static int run(struct ckpt_lane_job *job, enum ckpt_patience patience) {
    struct reader *const r = (struct reader *)job;
    const ssize_t n = take(r->world, r->off, READ_BYTES, patience);
    if (n == -EAGAIN)
        return -EAGAIN;
    if (n <= 0)
        atomic_store(&r->failed, 1);
    if (atomic_fetch_add(&r->reads, 1) + 1 < READS)
        next_read(r);
    return 0;
}

static void drop(struct ckpt_lane_job *job, int rc) {
    (void)rc;
    atomic_store(&((struct reader *)job)->failed, 1);
}

static bool left(struct ckpt_lane_job *job) {
    (void)job;
    return false;
}

static void tell(void *lanes) {
    ckpt_lanes_progress(lanes);
}

/* Each band is computed once, however many want it: they all fit. */
static void test_each_band_once(void **state) {
    (void)state;
    struct rng rng = rng_seeded("patience");
    struct world *const w = new_world(true);
    struct reader *const readers = calloc(READERS, sizeof *readers);
    struct ckpt_lanes *l = NULL;
    struct ckpt_err err = {0};
    assert_non_null(readers);
    assert_int_equal(ckpt_lanes_new(3, &l, &err), 0);
    ckpt_reader_watch(w->reader, tell, l);
    for (int i = 0; i < READERS; i++) {
        struct reader *const r = &readers[i];
        r->job = (struct ckpt_lane_job){.run = run, .drop = drop, .left = left, .id = r};
        r->world = w;
        r->lanes = l;
        r->rng.state = rng_next(&rng);
        next_read(r);
    }
    for (int i = 0; i < READERS; i++) {
        while (atomic_load(&readers[i].reads) < READS && !atomic_load(&readers[i].failed))
            nap();
        assert_int_equal(atomic_load(&readers[i].failed), 0);
    }
    ckpt_lanes_free(l);
    ckpt_reader_watch(w->reader, NULL, NULL);
    const struct ckpt_band_shape shape = ckpt_band_shape(w->walk, &w->tensor.map, 8 << 20);
    assert_true(shape.per_group > 1);
    assert_in_range(atomic_load(&w->pins), 1, shape.per_group); /* also those read ahead */
    free(readers);
    free_world(w);
}

/* --- decoding --------------------------------------------------------------------------------- */

static atomic_int decodings;
static atomic_bool decoding_held;

static int decode(struct ckpt_decoded *d, uint8_t *out, const struct ckpt_stop *stop,
                  struct ckpt_err *err) {
    (void)stop;
    (void)err;
    atomic_fetch_add(&decodings, 1);
    while (atomic_load(&decoding_held))
        nap();
    memset(out, 7, d->size);
    return 0;
}

static void *decode_in_thread(void *item) {
    const uint8_t *data;
    return (void *)(intptr_t)ckpt_decoded_pin(item, &data, NULL, NULL);
}

static int try_pin(struct ckpt_decoded *d, enum ckpt_patience patience) {
    const struct ckpt_stop stop = {.patience = patience};
    const uint8_t *data;
    struct ckpt_err err = {0};
    return ckpt_decoded_pin(d, &data, &stop, &err);
}

/* Decoding that needs what another decodes. */
static int decode_later(struct ckpt_decoded *d, uint8_t *out, const struct ckpt_stop *stop,
                        struct ckpt_err *err) {
    memset(out, 7, d->size);
    return ckpt_stop_may_wait(stop) ? 0 : ckpt_fail_impatient(err);
}

static void test_decoding_that_is_refused_is_no_news(void **state) {
    (void)state;
    struct ckpt_decoded_cache *cache = NULL;
    struct ckpt_err err = {0};
    atomic_int told = 0;
    assert_int_equal(ckpt_decoded_cache_new(1 << 20, &cache, &err), 0);
    struct ckpt_decoded item = {
        .cache = cache, .decode = decode_later, .name = "item", .size = 100};
    ckpt_decoded_cache_watch(cache, count_call, &told);
    assert_int_equal(try_pin(&item, CKPT_WORKS), -EAGAIN);
    assert_int_equal(atomic_load(&told), 0);
    assert_int_equal(try_pin(&item, CKPT_WAITS), 0);
    assert_in_range(atomic_load(&told), 1, 2);
    ckpt_decoded_unpin(&item);
    ckpt_decoded_drop(&item);
    ckpt_decoded_cache_free(cache);
}

static void test_decoding(void **state) {
    (void)state;
    struct ckpt_decoded_cache *cache = NULL;
    struct ckpt_err err = {0};
    pthread_t other;
    void *rc;
    atomic_int told = 0;
    assert_int_equal(ckpt_decoded_cache_new(1 << 20, &cache, &err), 0);
    struct ckpt_decoded item = {.cache = cache, .decode = decode, .name = "item", .size = 100};
    ckpt_decoded_cache_watch(cache, count_call, &told);
    assert_int_equal(try_pin(&item, CKPT_TAKES), -EAGAIN);
    assert_int_equal(atomic_load(&decodings), 0);
    atomic_store(&decoding_held, true);
    assert_int_equal(pthread_create(&other, NULL, decode_in_thread, &item), 0);
    while (atomic_load(&decodings) == 0)
        nap();
    assert_int_equal(try_pin(&item, CKPT_WORKS), -EAGAIN);
    assert_int_equal(try_pin(&item, CKPT_TAKES), -EAGAIN);
    assert_int_equal(atomic_load(&told), 0);
    atomic_store(&decoding_held, false);
    pthread_join(other, &rc);
    assert_int_equal((intptr_t)rc, 0);
    assert_in_range(atomic_load(&told), 1, 2);
    assert_int_equal(try_pin(&item, CKPT_TAKES), 0);
    assert_int_equal(atomic_load(&decodings), 1);
    ckpt_decoded_unpin(&item);
    ckpt_decoded_unpin(&item);
    ckpt_decoded_drop(&item);
    ckpt_decoded_cache_free(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_what_is_there),
        cmocka_unit_test(test_works_but_does_not_wait),
        cmocka_unit_test(test_being_refused_is_no_news),
        cmocka_unit_test(test_each_band_once),
        cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_decoding_that_is_refused_is_no_news),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
