/* The probe streams against values printed by fixtures/verify/make_op_cases.py (torch's side). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "verify/rng.h"

static void stream_of_linear(void **state) {
    (void)state;
    struct ckpt_rng r = ckpt_rng_seeded(CKPT_TEXT("linear"));
    assert_int_equal(r.state, 0xAC3191C5ECC66E60u);
    assert_int_equal(ckpt_rng_next(&r), 0xA0531A1238511F59u);
    assert_int_equal(ckpt_rng_next(&r), 0x9EF2C59FE1981E1Eu);
}

static void floats_are_exact(void **state) {
    (void)state;
    struct ckpt_rng r = ckpt_rng_seeded(CKPT_TEXT("linear"));
    const float expected[3] = {0x1.0298d00000000p-2f, 0x1.ef2c500000000p-3f,
                               -0x1.941e600000000p-3f};
    for (int i = 0; i < 3; i++)
        assert_true(ckpt_rng_float(&r) == expected[i]);
    for (int i = 0; i < 100000; i++) {
        const float f = ckpt_rng_float(&r);
        assert_true(f >= -1.0f && f < 1.0f);
    }
}

static void indices_stay_inside(void **state) {
    (void)state;
    struct ckpt_rng r = ckpt_rng_seeded(CKPT_TEXT("embedding"));
    const int64_t expected[6] = {7, 4, 0, 8, 4, 6};
    for (int i = 0; i < 6; i++)
        assert_int_equal(ckpt_rng_index(&r, 9), expected[i]);
}

static void empty_path_is_the_offset_basis(void **state) {
    (void)state;
    assert_int_equal(ckpt_rng_seeded(CKPT_TEXT("")).state, 0xCBF29CE484222325u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_of_linear),
        cmocka_unit_test(floats_are_exact),
        cmocka_unit_test(indices_stay_inside),
        cmocka_unit_test(empty_path_is_the_offset_basis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
