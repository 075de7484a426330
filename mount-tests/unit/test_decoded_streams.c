/*
 * Items of the decoded cache that have parts and pieces: forwards each part is decoded once and
 * needs no temporary file; whoever goes back costs one more decoding; random ranges, by threads
 * too, are always right; damage.
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

#include "base/cleanup.h"
#include "formats/decoded_cache.h"
#include "random.h"

#define PIECE ((uint64_t)64 << 10) /* whole pages everywhere */

struct item {
    struct ckpt_decoded decoded; /* first */
    struct ckpt_decoded_parts parts;
    uint64_t fails_at; /* a byte of each part; 0: nowhere */
    int fails_with;
    bool is_checked;
    atomic_int opened, open_now;
    atomic_uint_least64_t bytes;
};

struct decoder {
    struct item *item;
    uint64_t part, at;
};

/* What lies at byte `at` of a part. */
static uint8_t byte_of(uint64_t part, uint64_t at) {
    return (uint8_t)((at * 2654435761u >> 16) ^ at ^ part * 37);
}

static int fill(struct item *item, uint64_t part, uint64_t at, uint8_t *out, uint64_t n,
                struct ckpt_err *err) {
    for (uint64_t i = 0; out && i < n; i++)
        out[i] = byte_of(part, at + i);
    atomic_fetch_add(&item->bytes, n);
    return item->fails_at && at + n > item->fails_at
               ? ckpt_fail(err, item->fails_with, "is damaged")
               : 0;
}

static int open_part(struct ckpt_decoded *d, uint64_t part, void **decoder,
                     const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct item *const item = (struct item *)d;
    struct decoder *const k = calloc(1, sizeof *k);
    (void)stop;
    (void)err;
    *k = (struct decoder){item, part, 0};
    atomic_fetch_add(&item->opened, 1);
    atomic_fetch_add(&item->open_now, 1);
    *decoder = k;
    return 0;
}

static int next(void *decoder, uint8_t *out, uint64_t n, struct ckpt_err *err) {
    struct decoder *const k = decoder;
    k->at += n;
    return fill(k->item, k->part, k->at - n, out, n, err);
}

static int end(void *decoder, struct ckpt_err *err) {
    struct decoder *const k = decoder;
    assert_int_equal(k->at, k->item->parts.bytes);
    return k->item->fails_at ? ckpt_fail(err, k->item->fails_with, "has a wrong checksum") : 0;
}

static bool is_checked(const void *decoder) {
    return ((const struct decoder *)decoder)->item->is_checked;
}

static size_t memory(const void *decoder) {
    (void)decoder;
    return 100;
}

static void close_decoder(void *decoder) {
    atomic_fetch_sub(&((struct decoder *)decoder)->item->open_now, 1);
    free(decoder);
}

static const struct ckpt_decoded_stream stream = {open_part,  next,   end,
                                                  is_checked, memory, close_decoder};

static int decode_part(struct ckpt_decoded *d, uint64_t part, uint8_t *out,
                       const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct item *const item = (struct item *)d;
    (void)stop;
    atomic_fetch_add(&item->opened, 1);
    return fill(item, part, 0, out, item->parts.bytes, err);
}

static struct ckpt_decoded_cache *new_cache(uint64_t bytes) {
    struct ckpt_decoded_cache *c = NULL;
    assert_int_equal(ckpt_decoded_cache_new(bytes, &c, NULL), 0);
    return c;
}

static void init(struct item *item, struct ckpt_decoded_cache *c, uint64_t count, uint64_t bytes) {
    memset(item, 0, sizeof *item);
    item->fails_with = -EBADMSG;
    item->parts = (struct ckpt_decoded_parts){count, bytes, decode_part, &stream, PIECE};
    item->decoded = (struct ckpt_decoded){
        .cache = c, .parts = &item->parts, .name = "item", .size = count * bytes};
}

static int look(struct item *item, uint64_t part, uint64_t lo, uint64_t hi) {
    const uint8_t *data = NULL;
    struct ckpt_err err = {0};
    const int rc = ckpt_decoded_pin_part(&item->decoded, part, lo, hi, &data, NULL, &err);
    if (rc) {
        assert_int_equal(err.code, rc);
        return rc;
    }
    for (uint64_t i = lo; i < hi; i++)
        if (data[i - lo] != byte_of(part, i))
            fail_msg("part %d, byte %d is wrong", (int)part, (int)i);
    ckpt_decoded_unpin_part(&item->decoded, part, lo, hi);
    return 0;
}

/* Nothing of it is left. */
static void finish(struct item *item, struct ckpt_decoded_cache *c) {
    ckpt_decoded_drop(&item->decoded);
    const struct ckpt_decoded_usage u = ckpt_decoded_cache_usage(c);
    assert_int_equal(u.memory, 0);
    assert_int_equal(u.spilled, 0);
    assert_int_equal(u.parked, 0);
    assert_int_equal(item->open_now, 0);
    ckpt_decoded_cache_free(c);
}

static void test_first_bytes(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(100 * PIECE);
    struct item item;
    (void)state;
    init(&item, c, 1, 50 * PIECE);
    assert_int_equal(look(&item, 0, 0, 10), 0);
    assert_int_equal(item.bytes, PIECE);
    assert_int_equal(ckpt_decoded_cache_usage(c).parked, 1);
    assert_int_equal(look(&item, 0, PIECE - 1, PIECE + 1), 0);
    assert_int_equal(item.bytes, 2 * PIECE);
    assert_int_equal(item.opened, 1);
    finish(&item, c);
}

/* Forwards, with room for a few pieces: once, and in memory alone. */
static void test_forwards(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(3 * PIECE);
    struct item item;
    (void)state;
    init(&item, c, 1, 20 * PIECE + 7);
    for (uint64_t at = 0; at < item.parts.bytes; at += 10000) {
        const uint64_t to = at + 10000 < item.parts.bytes ? at + 10000 : item.parts.bytes;
        assert_int_equal(look(&item, 0, at, to), 0);
        const struct ckpt_decoded_usage u = ckpt_decoded_cache_usage(c);
        assert_true(u.memory <= 3 * PIECE);
        assert_int_equal(u.spilled, 0);
    }
    assert_int_equal(item.opened, 1);
    assert_int_equal(item.bytes, item.parts.bytes);
    finish(&item, c);
}

/* Slices that cut all parts, one after the other: each part is decoded once. */
static void test_in_turns(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(6 * PIECE);
    struct item item;
    (void)state;
    init(&item, c, 4, 10 * PIECE);
    for (uint64_t at = 0; at < item.parts.bytes; at += PIECE / 4)
        for (uint64_t part = 0; part < 4; part++)
            assert_int_equal(look(&item, part, at, at + PIECE / 4), 0);
    assert_int_equal(item.opened, 4);
    assert_int_equal(ckpt_decoded_cache_usage(c).spilled, 0);
    finish(&item, c);
}

/* Back and forth with less room than it takes: from the second decoding on nothing gets lost. */
static void test_back(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(4 * PIECE);
    struct item item;
    (void)state;
    init(&item, c, 1, 20 * PIECE);
    for (int turn = 0; turn < 4; turn++)
        for (uint64_t at = 0; at < item.parts.bytes; at += PIECE)
            assert_int_equal(look(&item, 0, at, at + PIECE), 0);
    assert_in_range(item.opened, 2, 3);
    assert_true(ckpt_decoded_cache_usage(c).memory <= 4 * PIECE);
    finish(&item, c);
}

/* All of it at once, with room for a part of it. */
static void test_more_than_memory(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(4 * PIECE);
    struct item item;
    (void)state;
    init(&item, c, 1, 20 * PIECE);
    for (int turn = 0; turn < 3; turn++)
        assert_int_equal(look(&item, 0, 0, item.parts.bytes), 0);
    assert_int_equal(item.opened, 1);
    assert_true(ckpt_decoded_cache_usage(c).spilled >= 16 * PIECE);
    finish(&item, c);
}

static void test_damage(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(100 * PIECE);
    struct item item;
    (void)state;
    init(&item, c, 1, 10 * PIECE);
    item.fails_at = 5 * PIECE + 3;
    assert_int_equal(look(&item, 0, 0, 10), 0);
    assert_int_equal(look(&item, 0, 6 * PIECE, 6 * PIECE + 1), -EBADMSG);
    assert_int_equal(look(&item, 0, 0, 10), -EBADMSG); /* now that it is known */
    assert_int_equal(item.opened, 1);
    ckpt_decoded_drop(&item.decoded);
    init(&item, c, 1, 10 * PIECE); /* a checksum at its end */
    item.fails_at = 10 * PIECE;
    item.is_checked = true;
    assert_int_equal(look(&item, 0, 0, 10), -EBADMSG);
    assert_int_equal(ckpt_decoded_cache_usage(c).memory, 0);
    ckpt_decoded_drop(&item.decoded);
    init(&item, c, 2, 10 * PIECE);
    item.is_checked = true;
    assert_int_equal(look(&item, 1, 0, 10), 0);
    assert_int_equal(item.bytes, 10 * PIECE);
    finish(&item, c);
}

/* A bad sector that can be read later is no damage. */
static void test_unreadable(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(100 * PIECE);
    struct item item;
    (void)state;
    init(&item, c, 1, 10 * PIECE);
    item.fails_at = 5 * PIECE + 3;
    item.fails_with = -EIO;
    assert_int_equal(look(&item, 0, 6 * PIECE, 6 * PIECE + 1), -EIO);
    assert_int_equal(look(&item, 0, 0, 10), 0);
    item.fails_at = 0;
    assert_int_equal(look(&item, 0, 0, 10 * PIECE), 0);
    finish(&item, c);
}

static bool always(void *arg) {
    (void)arg;
    return true;
}

/* Whoever gives up leaves the decoder where it is. */
static void test_interruption(void **state) {
    struct ckpt_decoded_cache *const c = new_cache(100 * PIECE);
    const struct ckpt_stop stop = {.ask = always};
    const uint8_t *data;
    struct item item;
    (void)state;
    init(&item, c, 1, 10 * PIECE);
    assert_int_equal(look(&item, 0, 0, 3 * PIECE), 0);
    assert_int_equal(ckpt_decoded_pin_part(&item.decoded, 0, 0, 10 * PIECE, &data, &stop, NULL),
                     -EINTR);
    assert_int_equal(look(&item, 0, 0, 10 * PIECE), 0);
    assert_int_equal(item.opened, 1);
    finish(&item, c);
}

/* --- at random -------------------------------------------------------------------------------- */

static void look_at_random(struct item *item, struct rng *rng, int rounds) {
    for (int i = 0; i < rounds; i++) {
        const uint64_t part = (uint64_t)rng_below(rng, (int64_t)item->parts.count);
        const uint64_t lo = (uint64_t)rng_below(rng, (int64_t)item->parts.bytes + 1);
        const uint64_t left = item->parts.bytes - lo + 1;
        const uint64_t n = (uint64_t)rng_below(rng, (int64_t)(i % 8 || left < 1000 ? left : 1000));
        assert_int_equal(look(item, part, lo, lo + n), 0);
    }
}

static void init_random(struct item *item, struct rng *rng, struct ckpt_decoded_cache *c) {
    const uint64_t count = 1 + (uint64_t)rng_below(rng, 6);
    init(item, c, count, 1 + (uint64_t)rng_below(rng, (int64_t)(8 * PIECE)));
    item->is_checked = rng_below(rng, 4) == 0;
    if (rng_below(rng, 4) == 0)
        item->parts.stream = NULL;
}

static void test_random(void **state) {
    struct rng rng = rng_seeded("decoded streams");
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct ckpt_decoded_cache *const c =
            new_cache((uint64_t)rng_below(&rng, (int64_t)(20 * PIECE)));
        struct item item;
        init_random(&item, &rng, c);
        look_at_random(&item, &rng, 20);
        finish(&item, c);
    }
}

#define THREADS 8

struct thread {
    pthread_t id;
    struct item *items;
    size_t n;
    struct rng rng;
};

static void *read_forwards(void *arg) {
    struct thread *const t = arg;
    for (uint64_t at = 0; at < t->items->parts.bytes; at += 5000) {
        const uint64_t left = t->items->parts.bytes - at;
        assert_int_equal(look(t->items, 0, at, at + (left < 5000 ? left : 5000)), 0);
    }
    return NULL;
}

static void *read_at_random(void *arg) {
    struct thread *const t = arg;
    for (int i = 0; i < 20; i++)
        look_at_random(&t->items[rng_below(&t->rng, (int64_t)t->n)], &t->rng, 1);
    return NULL;
}

static void run(struct item *items, size_t n, struct rng *rng, void *(*body)(void *)) {
    struct thread threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.items = items, .n = n, .rng = *rng};
        for (int skip = 0; skip <= i; skip++)
            (void)rng_below(&threads[i].rng, 1000);
        assert_int_equal(pthread_create(&threads[i].id, NULL, body, &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i].id, NULL);
}

static void test_threads_forwards(void **state) {
    struct rng rng = rng_seeded("threads forwards");
    struct ckpt_decoded_cache *const c = new_cache(40 * PIECE);
    struct item item;
    (void)state;
    init(&item, c, 1, 30 * PIECE);
    run(&item, 1, &rng, read_forwards);
    assert_int_equal(item.opened, 1);
    assert_int_equal(item.bytes, 30 * PIECE);
    finish(&item, c);
}

static void test_threads_at_random(void **state) {
    struct rng rng = rng_seeded("threads at random");
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct ckpt_decoded_cache *const c =
            new_cache((uint64_t)rng_below(&rng, (int64_t)(20 * PIECE)));
        struct item items[3];
        for (int k = 0; k < 3; k++)
            init_random(&items[k], &rng, c);
        run(items, 3, &rng, read_at_random);
        ckpt_decoded_drop(&items[0].decoded);
        ckpt_decoded_drop(&items[1].decoded);
        finish(&items[2], c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_bytes),
        cmocka_unit_test(test_forwards),
        cmocka_unit_test(test_in_turns),
        cmocka_unit_test(test_back),
        cmocka_unit_test(test_more_than_memory),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_interruption),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_threads_forwards),
        cmocka_unit_test(test_threads_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
