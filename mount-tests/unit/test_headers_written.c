/* Headers that we write: safetensors (read back by our own strict reader, also for random tables)
 * and .npy (against numpy's own layout). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/npy_write.h"
#include "formats/safetensors_header.h"
#include "formats/safetensors_write.h"
#include "property.h"

static void exact_text(void **state) {
    (void)state;
    struct ckpt_header_item items[] = {
        {CKPT_TEXT("a"), CKPT_DT_F32, 2, (int64_t[]){2, 3}, 24, 0},
        {CKPT_TEXT("b\"\n"), CKPT_DT_BOOL, 0, NULL, 1, 0},
    };
    const struct ckpt_pair metadata[] = {{CKPT_TEXT("format"), CKPT_TEXT("pt")}};
    struct ckpt_str s = {0};
    ckpt_str_puts(&s, "xyz"); /* offsets count from where the header begins */
    assert_int_equal(ckpt_st_write_header(&s, items, 2, metadata, 1, NULL), 0);
    static const char json[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"b\\\"\\n\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[24,25]}}";
    const size_t padded = (sizeof json - 1 + 7) / 8 * 8;
    assert_int_equal(s.n, 3 + 8 + padded);
    assert_int_equal((unsigned char)s.s[3], padded);
    assert_memory_equal(s.s + 3 + 8, json, sizeof json - 1);
    for (size_t i = 3 + 8 + sizeof json - 1; i < s.n; i++)
        assert_int_equal(s.s[i], ' ');
    assert_int_equal(items[0].offset, 8 + padded);
    assert_int_equal(items[1].offset, 8 + padded + 24);
    ckpt_str_fini(&s);
}

static void what_the_format_cannot_hold(void **state) {
    (void)state;
    const int64_t two[] = {2};
    struct ckpt_header_item cases[] = {
        {CKPT_TEXT("c"), CKPT_DT_C128, 1, two, 32, 0},
        {CKPT_TEXT("c"), CKPT_DT_F32, 1, two, 9, 0},
        {CKPT_TEXT("__metadata__"), CKPT_DT_F32, 1, two, 8, 0},
    };
    for (size_t i = 0; i < 3; i++) {
        struct ckpt_str s = {0};
        struct ckpt_err err = {0};
        assert_int_equal(ckpt_st_write_header(&s, &cases[i], 1, NULL, 0, &err), -EINVAL);
        assert_non_null(strstr(err.text, cases[i].key.s));
        ckpt_str_fini(&s);
    }
    assert_false(ckpt_st_can_hold(CKPT_DT_C128));
    assert_true(ckpt_st_can_hold(CKPT_DT_F4));
    struct ckpt_str s = {0};
    assert_int_equal(ckpt_st_write_header(&s, NULL, 0, NULL, 0, NULL), 0);
    assert_int_equal(s.n, 16);
    assert_memory_equal(s.s, "\x08\0\0\0\0\0\0\0{}      ", 16);
    ckpt_str_fini(&s);
}

#define ITEMS_MAX 40

struct random_table {
    struct ckpt_arena arena;
    struct ckpt_header_item items[ITEMS_MAX];
    size_t n;
    uint64_t data_bytes;
};

/* A random dtype of the format, with a random shape that fills whole bytes. */
static void random_item(struct random_table *r, struct ckpt_header_item *item) {
    int64_t *shape = ckpt_arena_array(&r->arena, 4, sizeof *shape);
    uint64_t count;
    do {
        do
            item->dtype = (enum ckpt_dtype)(1 + property_below(CKPT_DT_COUNT - 1));
        while (!ckpt_st_can_hold(item->dtype));
        item->ndim = (uint32_t)property_below(5);
        for (uint32_t i = 0; i < item->ndim; i++)
            shape[i] = (int64_t)property_below(7);
    } while (!ckpt_shape_count(shape, item->ndim, &count) ||
             !ckpt_dtype_bytes(item->dtype, count, &item->nbytes));
    item->shape = shape;
    const char *key = ckpt_arena_printf(&r->arena, "%zu.\t\xc3\xa9\"%llx", r->n,
                                        (unsigned long long)property_below(1000));
    item->key = ckpt_text_of(key);
}

static void random_tables_come_back(void **state) {
    (void)state;
    property_begin("random_tables_come_back");
    for (unsigned round = 0; round < 300; round++) {
        struct random_table r = {0};
        for (const size_t n = (size_t)property_below(ITEMS_MAX); r.n < n; r.n++) {
            random_item(&r, &r.items[r.n]);
            r.data_bytes += r.items[r.n].nbytes;
        }
        const struct ckpt_pair pair = {CKPT_TEXT("k\0"), CKPT_TEXT("\xe2\x82\xac")};
        struct ckpt_str s = {0};
        struct ckpt_st_table t;
        struct ckpt_err err = {0};
        assert_int_equal(ckpt_st_write_header(&s, r.items, r.n, &pair, round % 2u, NULL), 0);
        if (ckpt_st_parse(&t, &r.arena, s.s + 8, s.n - 8, r.data_bytes, false, &err))
            fail_msg("%s", err.text);
        assert_int_equal(t.n, r.n);
        assert_int_equal(t.data_start, s.n);
        assert_int_equal(t.nmetadata, round % 2);
        for (size_t i = 0; i < t.n; i++) {
            assert_true(ckpt_text_eq(t.entries[i].key, r.items[i].key));
            assert_int_equal(t.entries[i].dtype, r.items[i].dtype);
            assert_int_equal(t.entries[i].ndim, r.items[i].ndim);
            assert_memory_equal(t.entries[i].shape, r.items[i].shape, r.items[i].ndim * 8);
            assert_int_equal(t.data_start + t.entries[i].begin, r.items[i].offset);
            assert_int_equal(t.entries[i].end - t.entries[i].begin, r.items[i].nbytes);
        }
        ckpt_st_table_fini(&t);
        /* one byte of data more or less is refused */
        assert_true(ckpt_st_parse(&t, &r.arena, s.s + 8, s.n - 8, r.data_bytes + 1, false, NULL));
        if (r.data_bytes)
            assert_true(
                ckpt_st_parse(&t, &r.arena, s.s + 8, s.n - 8, r.data_bytes - 1, false, NULL));
        ckpt_str_fini(&s);
        ckpt_arena_fini(&r.arena);
    }
}

static void npy_headers(void **state) {
    (void)state;
    static const struct {
        enum ckpt_dtype dtype;
        uint32_t ndim;
        int64_t shape[2];
        const char *text; /* as numpy.save writes it */
    } cases[] = {
        {CKPT_DT_F32, 0, {0}, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }"},
        {CKPT_DT_I64, 1, {3}, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }"},
        {CKPT_DT_BOOL, 2, {2, 0}, "{'descr': '|b1', 'fortran_order': False, 'shape': (2, 0), }"},
        {CKPT_DT_C128, 2, {4, 5}, "{'descr': '<c16', 'fortran_order': False, 'shape': (4, 5), }"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ckpt_str s = {0};
        assert_int_equal(
            ckpt_npy_write_header(&s, cases[i].dtype, cases[i].shape, cases[i].ndim, NULL), 0);
        assert_int_equal(s.n % 64, 0);
        assert_memory_equal(s.s, "\x93NUMPY\x01\x00", 8);
        assert_int_equal((unsigned char)s.s[8] + 256 * (unsigned char)s.s[9], s.n - 10);
        const size_t n = strlen(cases[i].text);
        assert_memory_equal(s.s + 10, cases[i].text, n);
        for (size_t k = 10 + n; k < s.n - 1; k++)
            assert_int_equal(s.s[k], ' ');
        assert_int_equal(s.s[s.n - 1], '\n');
        ckpt_str_fini(&s);
    }
    struct ckpt_str s = {0};
    int64_t shape[CKPT_NDIM_MAX];
    for (size_t i = 0; i < CKPT_NDIM_MAX; i++)
        shape[i] = INT64_MAX;
    assert_int_equal(ckpt_npy_write_header(&s, CKPT_DT_BF16, shape, 1, NULL), -EINVAL);
    assert_int_equal(ckpt_npy_write_header(&s, CKPT_DT_F32, shape, CKPT_NDIM_MAX, NULL), 0);
    assert_true(s.n % 64 == 0 && s.n < 65535);
    ckpt_str_fini(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_text),
        cmocka_unit_test(what_the_format_cannot_hold),
        cmocka_unit_test(random_tables_come_back),
        cmocka_unit_test(npy_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
