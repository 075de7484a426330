/* Element types, and the check that every tensor passes before it enters a checkpoint: a table, and
 * a property against a model that walks all elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "formats/limits.h"
#include "formats/tensor.h"
#include "property.h"

static void dtype_table_is_consistent(void **state) {
    (void)state;
    for (int i = CKPT_DT_NONE + 1; i < CKPT_DT_COUNT; i++) {
        const enum ckpt_dtype t = (enum ckpt_dtype)i;
        const struct ckpt_dtype_info *d = ckpt_dtype_info(t);
        assert_int_equal(ckpt_dtype_by_name(ckpt_text_of(d->name)), t);
        if (d->torch)
            assert_int_equal(ckpt_dtype_by_torch(ckpt_text_of(d->torch)), t);
        assert_int_equal(d->bits * d->unit_elements, d->unit_bytes * 8);
        assert_int_equal(d->component_bytes * (d->cls == CKPT_CLASS_COMPLEX ? 2 : 1),
                         d->unit_elements == 1 ? d->unit_bytes : 1);
        if (d->numpy) {
            assert_int_equal(d->unit_elements, 1);
            assert_int_equal(atoi(d->numpy + 2), d->unit_bytes);
            assert_int_equal(d->numpy[0], d->unit_bytes == 1 ? '|' : '<');
        }
        assert_true(d->in_safetensors || !d->in_burn);
    }
    assert_int_equal(ckpt_dtype_by_name(CKPT_TEXT("f32")), CKPT_DT_NONE);
    assert_int_equal(ckpt_dtype_by_name(CKPT_TEXT("F32\0")), CKPT_DT_NONE);
    assert_int_equal(ckpt_dtype_by_name(CKPT_TEXT("")), CKPT_DT_NONE);
    assert_int_equal(ckpt_dtype_by_name(CKPT_TEXT("NONE")), CKPT_DT_NONE);
    assert_int_equal(ckpt_dtype_by_torch(CKPT_TEXT("F32")), CKPT_DT_NONE);
}

static void byte_counts(void **state) {
    (void)state;
    uint64_t n;
    assert_true(ckpt_dtype_bytes(CKPT_DT_F32, 3, &n) && n == 12);
    assert_true(ckpt_dtype_bytes(CKPT_DT_F4, 6, &n) && n == 3);
    assert_false(ckpt_dtype_bytes(CKPT_DT_F4, 3, &n));
    assert_true(ckpt_dtype_bytes(CKPT_DT_F6_E2M3, 8, &n) && n == 6);
    assert_false(ckpt_dtype_bytes(CKPT_DT_F6_E2M3, 6, &n));
    assert_true(ckpt_dtype_bytes(CKPT_DT_C128, 0, &n) && n == 0);
    assert_true(ckpt_dtype_bytes(CKPT_DT_U8, UINT64_MAX, &n) && n == UINT64_MAX);
    assert_true(ckpt_dtype_bytes(CKPT_DT_F64, UINT64_MAX / 8, &n) && n == UINT64_MAX - 7);
    assert_false(ckpt_dtype_bytes(CKPT_DT_F64, UINT64_MAX / 8 + 1, &n));
}

static void shape_counts(void **state) {
    (void)state;
    uint64_t n;
    assert_true(ckpt_shape_count(NULL, 0, &n) && n == 1);
    assert_true(ckpt_shape_count((int64_t[]){3, 0, 5}, 3, &n) && n == 0);
    assert_true(ckpt_shape_count((int64_t[]){INT64_MAX, 1}, 2, &n) && n == INT64_MAX);
    assert_false(ckpt_shape_count((int64_t[]){INT64_MAX, 2}, 2, &n));
    assert_false(ckpt_shape_count((int64_t[]){INT64_MAX, 2, 0}, 3, &n));
    assert_false(ckpt_shape_count((int64_t[]){0, INT64_MAX, 2}, 3, &n));
    assert_false(ckpt_shape_count((int64_t[]){2, -1}, 2, &n));
}

#define MAX INT64_MAX

static void tensor_table(void **state) {
    (void)state;
    static const struct {
        enum ckpt_dtype dtype;
        uint32_t ndim;
        int64_t shape[3], stride[3];
        bool contiguous;
        uint64_t offset, blob;
        const char *message; /* NULL: sound */
    } cases[] = {
        {CKPT_DT_F32, 0, {0}, {0}, true, 0, 4, NULL},
        {CKPT_DT_F32, 0, {0}, {0}, true, 0, 3, "up to 4 of its storage, which has 3"},
        {CKPT_DT_F32, 0, {0}, {0}, false, 0, 4, NULL},
        {CKPT_DT_F32, 2, {2, 3}, {0}, true, 0, 24, NULL},
        {CKPT_DT_F32, 2, {2, 3}, {0}, true, 1, 24, "up to 25 of its storage, which has 24"},
        {CKPT_DT_F32, 2, {2, 3}, {0}, true, UINT64_MAX, 24, "by more than 2^63"},
        {CKPT_DT_F32, 2, {3, 2}, {1, 3}, false, 0, 24, NULL},
        {CKPT_DT_F32, 2, {3, 2}, {1, 4}, false, 0, 24, "up to 28"},
        {CKPT_DT_F32, 2, {1000, 1000}, {0, 0}, false, 0, 4, NULL}, /* broadcast */
        {CKPT_DT_F32, 2, {1, 2}, {MAX, 1}, false, 0, 8, NULL},     /* size 1: any stride */
        {CKPT_DT_F32, 2, {1, 2}, {-9, 1}, false, 0, 8, NULL},
        {CKPT_DT_F32, 2, {2, 2}, {MAX, MAX}, false, 0, 8, "by more than 2^63"},
        {CKPT_DT_F32, 2, {MAX, 2}, {0, 0}, false, 0, 8, "overflows 63 bits"},
        {CKPT_DT_F32, 1, {MAX}, {1}, false, 0, 8, "do not make whole bytes below 2^64"},
        {CKPT_DT_U8, 1, {MAX}, {0}, false, 0, 8, "the limit for one tensor"},
        {CKPT_DT_F32, 1, {3}, {-1}, false, 8, 12, NULL},
        {CKPT_DT_F32, 1, {3}, {-1}, false, 7, 12, "8 bytes before its offset 7"},
        {CKPT_DT_F32, 2, {0, 3}, {0}, true, 99, 0, NULL}, /* no element, no byte */
        {CKPT_DT_F32, 1, {-2}, {0}, true, 0, 8, "dimension 0 is negative (-2)"},
        {CKPT_DT_F4, 2, {3, 4}, {4, 1}, false, 0, 6, NULL},
        {CKPT_DT_F4, 2, {3, 4}, {1, 3}, false, 0, 6, "strided view of 4-bit elements"},
        {CKPT_DT_F4, 1, {3}, {0}, true, 0, 6, "do not make whole bytes"},
        {CKPT_DT_NONE, 1, {3}, {0}, true, 0, 6, "no element type"},
        {CKPT_DT_F32, 65, {0}, {0}, true, 0, 6, "65 dimensions"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ckpt_blob blob = {.size = cases[i].blob};
        const struct ckpt_tensor t = {.key = CKPT_TEXT("a.b"),
                                      .dtype = cases[i].dtype,
                                      .ndim = cases[i].ndim,
                                      .shape = cases[i].shape,
                                      .stride = cases[i].contiguous ? NULL : cases[i].stride,
                                      .offset = cases[i].offset,
                                      .blob = &blob};
        struct ckpt_err err = {0};
        const int rc = ckpt_tensor_check(&t, &err);
        if ((rc == 0) != (cases[i].message == NULL))
            fail_msg("case %zu: %s", i, rc ? err.text : "accepted");
        if (rc && (!strstr(err.text, cases[i].message) || !strstr(err.text, "\"a.b\"")))
            fail_msg("case %zu: %s", i, err.text);
    }
}

/* The least and the greatest byte offset of any element, by visiting all of them. */
static void visit(const struct ckpt_tensor *t, uint32_t dim, int64_t at, int64_t *lo, int64_t *hi) {
    if (dim == t->ndim) {
        *lo = at < *lo ? at : *lo;
        *hi = at > *hi ? at : *hi;
        return;
    }
    for (int64_t i = 0; i < t->shape[dim]; i++)
        visit(t, dim + 1, at + i * t->stride[dim], lo, hi);
}

static void agrees_with_a_walk_over_all_elements(void **state) {
    (void)state;
    property_begin("agrees_with_a_walk_over_all_elements");
    static const enum ckpt_dtype dtypes[] = {CKPT_DT_U8, CKPT_DT_F16, CKPT_DT_F32, CKPT_DT_C128};
    unsigned sound = 0;
    for (int round = 0; round < 20000; round++) {
        int64_t shape[4], stride[4], lo = INT64_MAX, hi = INT64_MIN;
        const uint32_t ndim = (uint32_t)property_below(5);
        for (uint32_t i = 0; i < ndim; i++) {
            shape[i] = (int64_t)property_below(4);
            stride[i] = (int64_t)property_below(9) - 2;
        }
        struct ckpt_blob blob = {.size = property_below(300)};
        const struct ckpt_tensor t = {.key = CKPT_TEXT("k"),
                                      .dtype = dtypes[property_below(4)],
                                      .ndim = ndim,
                                      .shape = shape,
                                      .stride = stride,
                                      .offset = property_below(60),
                                      .blob = &blob};
        visit(&t, 0, 0, &lo, &hi);
        const int64_t unit = ckpt_dtype_info(t.dtype)->unit_bytes;
        const bool is_sound =
            lo > hi || ((int64_t)t.offset + lo * unit >= 0 &&
                        (int64_t)t.offset + (hi + 1) * unit <= (int64_t)blob.size);
        assert_int_equal(ckpt_tensor_check(&t, NULL) == 0, is_sound);
        sound += is_sound;
    }
    assert_in_range(sound, 2000, 18000); /* the cases tell both ways apart */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtype_table_is_consistent),
        cmocka_unit_test(byte_counts),
        cmocka_unit_test(shape_counts),
        cmocka_unit_test(tensor_table),
        cmocka_unit_test(agrees_with_a_walk_over_all_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
