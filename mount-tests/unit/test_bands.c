/* The band cache at rest: what nobody asks for is given up, what is held is not; the prefetcher
 * sees to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "adapters/model.h"
#include "adapters/prefetch.h"
#include "formats/checkpoint.h"

/* Keys need a part, a map and a tensor with a blob; nothing looks into the blob. */
struct fixture {
    struct ckpt_tensor tensor;
    struct ckpt_element_map map;
    struct ckpt_part part;
    struct ckpt_bands *bands;
    struct ckpt_walk walk; /* of no pairs */
};

static struct ckpt_band_key key_of(struct fixture *f, int64_t number) {
    return (struct ckpt_band_key){&f->part, &f->map, number};
}

static void make(struct fixture *f) {
    struct ckpt_err err;
    *f = (struct fixture){0};
    f->part.source = &f->tensor;
    f->part.walk = &f->walk;
    assert_int_equal(ckpt_bands_new(1 << 20, &f->bands, &err), 0);
}

/* Makes a band of some KiB and holds it. */
static struct ckpt_band *hold(struct fixture *f, int64_t number) {
    struct ckpt_err err;
    const struct ckpt_band_key key = key_of(f, number);
    struct ckpt_band *band;
    assert_int_equal(ckpt_bands_get(f->bands, &key, 100000, true, NULL, &band, &err),
                     CKPT_BANDS_MINE);
    ckpt_bands_finish(f->bands, band, 0, NULL);
    return band;
}

static bool has(struct fixture *f, int64_t number) {
    const struct ckpt_band_key key = key_of(f, number);
    return ckpt_bands_has(f->bands, &key);
}

static void test_what_is_held_stays(void **state) {
    (void)state;
    struct fixture f;
    uint64_t clock = 0;
    make(&f);
    struct ckpt_band *const held = hold(&f, 1);
    ckpt_bands_unpin(f.bands, hold(&f, 2));
    assert_false(ckpt_bands_rest(f.bands, &clock)); /* somebody has just asked */
    assert_true(has(&f, 1) && has(&f, 2));
    assert_false(ckpt_bands_rest(f.bands, &clock)); /* held */
    assert_true(has(&f, 1));
    assert_false(has(&f, 2));
    ckpt_bands_unpin(f.bands, held);
    assert_true(ckpt_bands_rest(f.bands, &clock));
    assert_false(has(&f, 1));
    ckpt_bands_unpin(f.bands, hold(&f, 1));
    assert_false(ckpt_bands_rest(f.bands, &clock)); /* it is asked for again */
    ckpt_bands_free(f.bands);
}

static bool gone_within(struct fixture *f, int64_t number, int seconds) {
    const struct timespec pause = {0, 10000000};
    for (int i = 0; i < 100 * seconds && has(f, number); i++)
        nanosleep(&pause, NULL);
    return !has(f, number);
}

/* It rests, is used and rests again. */
static void test_prefetcher_lets_them_rest(void **state) {
    (void)state;
    struct fixture f;
    struct ckpt_err err;
    struct ckpt_prefetch *prefetch;
    make(&f);
    assert_int_equal(ckpt_prefetch_new(f.bands, 1 << 18, &prefetch, &err), 0);
    for (int i = 0; i < 2; i++) {
        ckpt_bands_unpin(f.bands, hold(&f, i));
        ckpt_prefetch_made(prefetch);
        assert_true(gone_within(&f, i, 60));
    }
    ckpt_prefetch_free(prefetch);
    ckpt_bands_free(f.bands);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_held_stays),
        cmocka_unit_test(test_prefetcher_lets_them_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
