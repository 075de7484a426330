/*
 * The decoded cache: its bound under any order of pins (against what is pinned at the time), one
 * decoding for many threads, the order of eviction, temporary files, interruption, failures.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/decoded_cache.h"
#include "random.h"

/* Decodes to its own number in every byte; counts how often. */
struct item {
    struct ckpt_decoded decoded; /* first */
    atomic_int runs;
    atomic_bool *hold; /* not NULL: decoding ends once it is false, or it is stopped */
    int rc;
    uint8_t number;
};

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

static int decode(struct ckpt_decoded *d, uint8_t *out, const struct ckpt_stop *stop,
                  struct ckpt_err *err) {
    struct item *const item = (struct item *)d;
    atomic_fetch_add(&item->runs, 1);
    while (item->hold && atomic_load(item->hold)) {
        if (ckpt_stop_asked(stop))
            return ckpt_fail_stopped(err);
        nap();
    }
    memset(out, item->number, d->size);
    return item->rc ? ckpt_fail(err, item->rc, "the test wants it so") : 0;
}

static struct ckpt_decoded_cache *new_cache(uint64_t bytes) {
    struct ckpt_decoded_cache *c = NULL;
    assert_int_equal(ckpt_decoded_cache_new(bytes, &c, NULL), 0);
    return c;
}

static void init(struct item *item, struct ckpt_decoded_cache *c, uint8_t number, uint64_t size) {
    memset(item, 0, sizeof *item);
    item->decoded =
        (struct ckpt_decoded){.cache = c, .decode = decode, .name = "item", .size = size};
    item->number = number;
}

static void pin(struct item *item) {
    const uint8_t *data = NULL;
    struct ckpt_err err = {0};
    assert_int_equal(ckpt_decoded_pin(&item->decoded, &data, NULL, &err), 0);
    assert_non_null(data);
    if (item->decoded.size) {
        assert_int_equal(data[0], item->number);
        assert_int_equal(data[item->decoded.size - 1], item->number);
    }
}

static void touch(struct item *item) {
    pin(item);
    ckpt_decoded_unpin(&item->decoded);
}

static void drop(struct item *items, size_t n) {
    for (size_t i = 0; i < n; i++)
        ckpt_decoded_drop(&items[i].decoded);
}

static void assert_usage(struct ckpt_decoded_cache *c, uint64_t memory, uint64_t spilled) {
    const struct ckpt_decoded_usage u = ckpt_decoded_cache_usage(c);
    assert_int_equal(u.memory, memory);
    assert_int_equal(u.spilled, spilled);
}

static void test_least_recently_used_goes(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(300);
    struct item items[4];
    (void)state;
    for (uint8_t i = 0; i < 4; i++)
        init(&items[i], c, i, 100);
    for (size_t i = 0; i < 3; i++)
        touch(&items[i]);
    touch(&items[0]);
    assert_usage(c, 300, 0);
    touch(&items[3]); /* in the place of 1 */
    assert_usage(c, 300, 0);
    touch(&items[0]);
    touch(&items[2]);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(items[i].runs, 1);
    touch(&items[1]);
    assert_int_equal(items[1].runs, 2);
    drop(items, 4);
    assert_usage(c, 0, 0);
    ckpt_decoded_cache_free(c);
}

/* What does not fit beside pinned bytes goes to files, of which 16 times the bound are kept. */
static void test_spilling(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(100000);
    struct item small, large[3];
    (void)state;
    init(&small, c, 9, 60000);
    init(&large[0], c, 1, 100001);
    init(&large[1], c, 2, 50000);
    init(&large[2], c, 3, 1600000 - 50000);
    pin(&small);
    touch(&large[0]);
    assert_usage(c, 60000, 100001);
    touch(&large[0]);
    assert_int_equal(large[0].runs, 1);
    touch(&large[1]); /* it would fit alone */
    assert_usage(c, 60000, 150001);
    touch(&large[2]); /* in the place of the first */
    assert_usage(c, 60000, 1600000);
    touch(&large[1]);
    assert_int_equal(large[1].runs, 1);
    ckpt_decoded_unpin(&small.decoded);
    touch(&small);
    assert_int_equal(small.runs, 1);
    ckpt_decoded_cache_limit(c, 0); /* from now on all is spilled, and nothing idle is kept */
    touch(&large[0]);
    assert_usage(c, 60000, 100001);
    drop(&small, 1);
    drop(large, 3);
    assert_usage(c, 0, 0);
    ckpt_decoded_cache_free(c);
}

static void test_no_temporary_space(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(10);
    struct item item;
    const uint8_t *data;
    struct ckpt_err err = {0};
    (void)state;
    init(&item, c, 1, 11);
    assert_int_equal(setenv("TMPDIR", FIXTURES "/absent", 1), 0);
    touch(&item); /* elsewhere */
    drop(&item, 1);
    assert_int_equal(unsetenv("TMPDIR"), 0);
    init(&item, c, 1, UINT64_C(1) << 60);
    assert_true(ckpt_decoded_pin(&item.decoded, &data, NULL, &err) < 0);
    assert_non_null(strstr(err.text, "\"item\""));
    assert_int_equal(item.runs, 0);
    assert_usage(c, 0, 0);
    init(&item, c, 1, 11);
    touch(&item);
    drop(&item, 1);
    ckpt_decoded_cache_free(c);
}

static void test_empty(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(0);
    struct item item;
    (void)state;
    init(&item, c, 1, 0);
    touch(&item);
    drop(&item, 1);
    ckpt_decoded_drop(&(struct ckpt_decoded){0}); /* of an owner that was never finished */
    ckpt_decoded_cache_free(c);
}

/* Pins in any order: memory never holds more than the bound. */
static void test_bounded(void **state) {
    enum { ITEMS = 40, LIMIT = 1000 };
    struct ckpt_decoded_cache *const c = new_cache(LIMIT);
    struct item items[ITEMS];
    unsigned pins[ITEMS] = {0};
    (void)state;
    struct rng rng = rng_seeded("bounded");
    for (uint8_t i = 0; i < ITEMS; i++)
        init(&items[i], c, i, (uint64_t)rng_below(&rng, 600));
    for (int round = 0; round < 20000; round++) {
        const size_t i = (size_t)rng_below(&rng, ITEMS);
        if (pins[i] && rng_below(&rng, 2)) {
            ckpt_decoded_unpin(&items[i].decoded);
            pins[i]--;
        } else if (!pins[i] || rng_below(&rng, 16) == 0) {
            pin(&items[i]);
            pins[i]++;
        }
        assert_true(ckpt_decoded_cache_usage(c).memory <= LIMIT);
    }
    for (size_t i = 0; i < ITEMS; i++)
        for (; pins[i]; pins[i]--)
            ckpt_decoded_unpin(&items[i].decoded);
    drop(items, ITEMS);
    assert_usage(c, 0, 0);
    ckpt_decoded_cache_free(c);
}

/* --- threads ---------------------------------------------------------------------------------- */

#define THREADS 8

struct thread {
    pthread_t id;
    struct item *items;
    size_t n;
    atomic_bool stop;
    int rc;
    unsigned seed;
};

static bool asked(void *arg) {
    return atomic_load((atomic_bool *)arg);
}

static void *pin_one(void *arg) {
    struct thread *const t = arg;
    const struct ckpt_stop stop = {.ask = asked, .arg = &t->stop};
    const uint8_t *data;
    struct ckpt_err err = {0};
    t->rc = ckpt_decoded_pin(&t->items->decoded, &data, &stop, &err);
    if (t->rc == 0) {
        assert_int_equal(data[0], t->items->number);
        ckpt_decoded_unpin(&t->items->decoded);
    }
    return NULL;
}

static void start(struct thread *threads, struct item *items, size_t n, void *(*run)(void *)) {
    for (unsigned i = 0; i < THREADS; i++) {
        threads[i].items = items;
        threads[i].n = n;
        threads[i].seed = i;
        atomic_init(&threads[i].stop, false);
        assert_int_equal(pthread_create(&threads[i].id, NULL, run, &threads[i]), 0);
    }
}

static void join(struct thread *threads) {
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i].id, NULL);
}

static void test_one_decoding(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(100);
    struct thread threads[THREADS];
    struct item item;
    atomic_bool hold = true;
    (void)state;
    init(&item, c, 7, 100);
    item.hold = &hold;
    start(threads, &item, 1, pin_one);
    while (atomic_load(&item.runs) == 0)
        nap();
    atomic_store(&hold, false);
    join(threads);
    assert_int_equal(item.runs, 1);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(threads[i].rc, 0);
    drop(&item, 1);
    ckpt_decoded_cache_free(c);
}

/* Half of them give up, the one that decodes maybe among them: then another one does it. */
static void test_interruption(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(1000);
    struct thread threads[THREADS];
    struct item item;
    atomic_bool hold = true;
    (void)state;
    init(&item, c, 7, 100);
    item.hold = &hold;
    start(threads, &item, 1, pin_one);
    while (atomic_load(&item.runs) == 0)
        nap();
    for (size_t i = 0; i < THREADS / 2; i++)
        atomic_store(&threads[i].stop, true);
    for (size_t i = 0; i < THREADS / 2; i++)
        pthread_join(threads[i].id, NULL);
    atomic_store(&hold, false);
    for (size_t i = THREADS / 2; i < THREADS; i++)
        pthread_join(threads[i].id, NULL);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(threads[i].rc, i < THREADS / 2 ? -EINTR : 0);
    assert_usage(c, 100, 0);
    drop(&item, 1);
    ckpt_decoded_cache_free(c);
}

static void test_failure(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(1000);
    struct thread threads[THREADS];
    struct item item;
    (void)state;
    init(&item, c, 7, 100);
    item.rc = -EINVAL;
    start(threads, &item, 1, pin_one);
    join(threads);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(threads[i].rc, -EINVAL);
    assert_usage(c, 0, 0);
    item.rc = 0; /* it may be better next time: out of memory, say */
    touch(&item);
    drop(&item, 1);
    ckpt_decoded_cache_free(c);
}

static void *pin_at_random(void *arg) {
    struct thread *const t = arg;
    for (int round = 0; round < 500; round++) {
        struct item *const item = &t->items[(size_t)rand_r(&t->seed) % t->n];
        struct item *const other = &t->items[(size_t)rand_r(&t->seed) % t->n];
        pin(item);
        touch(other);
        ckpt_decoded_unpin(&item->decoded);
    }
    return NULL;
}

static void test_many_threads(void **state) {
    enum { ITEMS = 16 };
    struct ckpt_decoded_cache *const c = new_cache(1000);
    struct thread threads[THREADS];
    struct item items[ITEMS];
    (void)state;
    for (uint8_t i = 0; i < ITEMS; i++)
        init(&items[i], c, i, 100u + 30u * i);
    start(threads, items, ITEMS, pin_at_random);
    join(threads);
    const struct ckpt_decoded_usage u = ckpt_decoded_cache_usage(c);
    assert_true(u.memory <= 1000 && u.spilled <= 16000);
    drop(items, ITEMS);
    assert_usage(c, 0, 0);
    ckpt_decoded_cache_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_recently_used_goes),
        cmocka_unit_test(test_spilling),
        cmocka_unit_test(test_no_temporary_space),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_one_decoding),
        cmocka_unit_test(test_interruption),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
