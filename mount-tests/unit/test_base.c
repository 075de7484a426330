/* Text, arena, string map, errors: tables, and properties against a naive model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdalign.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/pages.h"
#include "base/strmap.h"
#include "base/text.h"
#include "property.h"

static void utf8_table(void **state) {
    (void)state;
    static const struct {
        const char *s;
        size_t n, valid;
    } cases[] = {
        {"", 0, 0},
        {"abc", 3, 3},
        {"a\0b", 3, 3},
        {"\x7f", 1, 1},
        {"\x80", 1, 0},
        {"\xc2\x80", 2, 2},
        {"\xc1\xbf", 2, 0},
        {"\xdf\xbf", 2, 2},
        {"\xc3", 1, 0},
        {"\xc3(", 2, 0},
        {"\xe0\xa0\x80", 3, 3},
        {"\xe0\x9f\xbf", 3, 0},
        {"\xed\x9f\xbf", 3, 3},
        {"\xed\xa0\x80", 3, 0},
        {"\xee\x80\x80", 3, 3},
        {"\xef\xbf\xbf", 3, 3},
        {"\xf0\x90\x80\x80", 4, 4},
        {"\xf0\x8f\xbf\xbf", 4, 0},
        {"\xf4\x8f\xbf\xbf", 4, 4},
        {"\xf4\x90\x80\x80", 4, 0},
        {"\xf5\x80\x80\x80", 4, 0},
        {"ok\xff", 3, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ckpt_utf8_valid(cases[i].s, cases[i].n), cases[i].valid);
}

/* Every code point, encoded by hand, is valid just when it is no surrogate. */
static void utf8_all_code_points(void **state) {
    (void)state;
    for (uint32_t c = 0x800; c < 0x110000; c++) {
        const unsigned char three[] = {(unsigned char)(0xe0 | c >> 12),
                                       (unsigned char)(0x80 | (c >> 6 & 63)),
                                       (unsigned char)(0x80 | (c & 63))};
        const unsigned char four[] = {
            (unsigned char)(0xf0 | c >> 18), (unsigned char)(0x80 | (c >> 12 & 63)),
            (unsigned char)(0x80 | (c >> 6 & 63)), (unsigned char)(0x80 | (c & 63))};
        const size_t n = c < 0x10000 ? 3 : 4;
        const bool surrogate = c >= 0xd800 && c <= 0xdfff;
        assert_int_equal(ckpt_utf8_valid(n == 3 ? three : four, n), surrogate ? 0 : n);
    }
}

static void comparisons(void **state) {
    (void)state;
    assert_true(ckpt_text_is(CKPT_TEXT("ab"), "ab"));
    assert_false(ckpt_text_is(CKPT_TEXT("ab\0"), "ab"));
    assert_true(ckpt_text_starts(CKPT_TEXT("abc"), "ab"));
    assert_false(ckpt_text_starts(CKPT_TEXT("a"), "ab"));
    assert_true(ckpt_text_ends(CKPT_TEXT("abc"), "bc"));
    assert_true(ckpt_text_ends(CKPT_TEXT("abc"), ""));
    assert_false(ckpt_text_ends(CKPT_TEXT("c"), "bc"));
    assert_true(ckpt_text_cmp(CKPT_TEXT("a"), CKPT_TEXT("ab")) < 0);
    assert_true(ckpt_text_cmp(CKPT_TEXT("b"), CKPT_TEXT("ab")) > 0);
    assert_true(ckpt_text_cmp(CKPT_TEXT("\xff"), CKPT_TEXT("a")) > 0);
    assert_int_equal(ckpt_text_cmp(CKPT_TEXT(""), CKPT_TEXT("")), 0);
}

static void did_you_mean(void **state) {
    (void)state;
    const struct ckpt_text names[] = {CKPT_TEXT("layout"), CKPT_TEXT("dialect"),
                                      CKPT_TEXT("contiguous"), CKPT_TEXT("layout")};
    assert_int_equal(ckpt_text_nearest(CKPT_TEXT("layuot"), names, 4), 0);
    assert_int_equal(ckpt_text_nearest(CKPT_TEXT("contigous"), names, 4), 2);
    assert_int_equal(ckpt_text_nearest(CKPT_TEXT("zzz"), names, 4), -1);
    assert_int_equal(ckpt_text_nearest(CKPT_TEXT("layout"), names, 0), -1);
    assert_true(ckpt_text_similarity(CKPT_TEXT("martha"), CKPT_TEXT("marhta")) > 0.94);
    assert_true(ckpt_text_similarity(CKPT_TEXT("martha"), CKPT_TEXT("marhta")) < 0.95);
    char longer[1000];
    memset(longer, 'a', sizeof longer);
    assert_true(ckpt_text_similarity((struct ckpt_text){longer, 1000}, CKPT_TEXT("b")) == 0.0);
}

static void growing_text(void **state) {
    (void)state;
    struct ckpt_str s = {0};
    assert_int_equal(ckpt_str_text(&s).n, 0);
    assert_string_equal(ckpt_str_text(&s).s, "");
    ckpt_str_add(&s, "", 0);
    assert_string_equal(ckpt_str_text(&s).s, "");
    for (int i = 0; i < 1000; i++)
        ckpt_str_printf(&s, "%d,", i % 10);
    assert_int_equal(s.n, 2000);
    assert_int_equal(s.s[2000], 0);
    ckpt_str_cut(&s, 2);
    assert_string_equal(s.s, "0,");
    ckpt_str_cut(&s, 3);
    assert_int_equal(s.n, 2);
    assert_false(s.failed);
    ckpt_str_add(&s, s.s, SIZE_MAX - 1);
    assert_true(s.failed);
    ckpt_str_puts(&s, "dropped");
    assert_string_equal(s.s, "0,");
    ckpt_str_fini(&s);
}

static void errors(void **state) {
    (void)state;
    struct ckpt_err err = {0};
    assert_int_equal(ckpt_fail(&err, -EINVAL, "tensor \"%s\"", "a\nb\x1b[31m\x7f"), -EINVAL);
    assert_string_equal(err.text, "tensor \"a\\x0ab\\x1b[31m\\x7f\"");
    assert_int_equal(err.code, -EINVAL);
    assert_int_equal(ckpt_fail_in(&err, "%s", "shard"), -EINVAL);
    assert_string_equal(err.text, "shard: tensor \"a\\x0ab\\x1b[31m\\x7f\"");
    ckpt_fail(&err, -EINVAL, "%s",
              "\xc2\x9b"
              "2J \xe2\x80\xa8 \xe2\x80\xae \xe2\x81\xa6 \xd8\x9c h\xc3\xa9 \xe2\n \xff");
    assert_string_equal(err.text,
                        "\\x9b2J \\u2028 \\u202e \\u2066 \\u061c h\xc3\xa9 \\xe2\\x0a \\xff");
    assert_int_equal(ckpt_fail(NULL, -EIO, "nobody asks"), -EIO);
    assert_int_equal(ckpt_fail_memory(&err, "testing"), -ENOMEM);
    char longer[3 * CKPT_ERR_TEXT];
    memset(longer, '\1', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    ckpt_fail(&err, -EINVAL, "%s", longer);
    assert_true(strlen(err.text) < CKPT_ERR_TEXT);
}

static void buffer_never_reads_past_its_end(void **state) {
    (void)state;
    static const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 'a', '\n', 'b'};
    struct ckpt_buf b = {.p = bytes, .n = sizeof bytes};
    assert_true(ckpt_buf_u64(&b) == 0x0807060504030201u);
    size_t n;
    assert_memory_equal(ckpt_buf_line(&b, &n), "a", 1);
    assert_int_equal(n, 1);
    assert_null(ckpt_buf_line(&b, &n));
    assert_true(b.failed);
    struct ckpt_buf c = {.p = bytes, .n = 3};
    assert_int_equal(ckpt_buf_u32(&c), 0);
    assert_true(c.failed);
    assert_int_equal(ckpt_buf_u8(&c), 0); /* stays failed, although a byte is left */
    assert_null(ckpt_buf_take(&c, UINT64_MAX));
    struct ckpt_buf d = {.p = bytes, .n = 8};
    assert_true(ckpt_buf_be64(&d) == 0x0102030405060708u);
}

/* Objects of random sizes keep what was written into them, are zeroed, aligned and disjoint. */
static void arena_objects_are_disjoint(void **state) {
    (void)state;
    static const char zeros[100000];
    property_begin("arena_objects_are_disjoint");
    struct ckpt_arena a = {0};
    struct {
        unsigned char *p;
        size_t n;
    } objects[1000];
    for (size_t i = 0; i < 1000; i++) {
        const size_t n = (size_t)property_below(property_below(20) ? 200 : 100000);
        const bool is_text = property_below(3) == 0; /* texts need no alignment */
        unsigned char *p =
            is_text ? (unsigned char *)ckpt_arena_copy(&a, zeros, n) : ckpt_arena_alloc(&a, n);
        assert_non_null(p);
        assert_true(is_text || (uintptr_t)p % alignof(uint64_t) == 0);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(p[k], 0);
        memset(p, (int)(i & 0xff), n);
        objects[i].p = p;
        objects[i].n = n;
    }
    for (size_t i = 0; i < 1000; i++)
        for (size_t k = 0; k < objects[i].n; k++)
            assert_int_equal(objects[i].p[k], i & 0xff);
    ckpt_arena_fini(&a);
    assert_int_equal(a.used, 0);
    assert_non_null(ckpt_arena_alloc(&a, 1));
    ckpt_arena_fini(&a);
}

/* Arrays that grow in turns keep what they hold, with zeros behind it, among other objects. */
static void arena_arrays_grow(void **state) {
    (void)state;
    property_begin("arena_arrays_grow");
    struct ckpt_arena a = {0};
    unsigned char *p[4] = {NULL};
    size_t n[4] = {0};
    for (int step = 0; step < 60; step++) {
        const size_t k = (size_t)property_below(4);
        const size_t bigger = n[k] ? 2 * n[k] : 16 * (k + 1);
        if (bigger > 4 << 20)
            continue;
        p[k] = ckpt_arena_grow(&a, p[k], n[k], bigger);
        assert_non_null(p[k]);
        for (size_t i = 0; i < bigger; i++)
            assert_int_equal(p[k][i], i < n[k] ? k + 1 : 0);
        memset(p[k], (int)k + 1, bigger);
        n[k] = bigger;
        assert_non_null(ckpt_arena_copy(&a, "text", 4));
    }
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < n[k]; i++)
            assert_int_equal(p[k][i], k + 1);
    const size_t used = a.used;
    a.limit = used + 100;
    assert_null(ckpt_arena_grow(&a, p[0], n[0], n[0] + 1000));
    assert_true(a.exceeded);
    assert_int_equal(a.used, used);
    ckpt_arena_fini(&a);
}

static bool append(void *arg, const char *bytes, size_t n) {
    ckpt_str_add(arg, bytes, n);
    return n != 666;
}

/* What went through a sink is what would have been held, and is counted. */
static void str_with_a_sink(void **state) {
    (void)state;
    property_begin("str_with_a_sink");
    static const char letters[200000];
    CKPT_AUTO(str) struct ckpt_str held = {0};
    CKPT_AUTO(str) struct ckpt_str got = {0};
    CKPT_AUTO(str) struct ckpt_str buffer = {.sink = append, .arg = &got};
    CKPT_AUTO(str) struct ckpt_str measured = {.sink = ckpt_str_forget};
    for (int i = 0; i < 2000; i++) {
        const size_t n = (size_t)property_below(property_below(100) ? 100 : sizeof letters);
        struct ckpt_str *const all[] = {&held, &buffer, &measured};
        for (size_t k = 0; k < 3; k++) {
            ckpt_str_u64(all[k], (uint64_t)i);
            ckpt_str_printf(all[k], "<%d>", i);
            ckpt_str_add(all[k], letters, n);
            assert_true(ckpt_str_total(all[k]) == held.n);
        }
    }
    assert_true(measured.cap < 200000);
    ckpt_str_flush(&buffer);
    ckpt_str_flush(&buffer);
    ckpt_str_flush(&held);
    assert_false(buffer.failed);
    assert_int_equal(got.n, held.n);
    assert_memory_equal(got.s, held.s, held.n);
    ckpt_str_add(&buffer, letters, 666);
    ckpt_str_flush(&buffer);
    assert_true(buffer.failed);
}

static void arena_limits(void **state) {
    (void)state;
    struct ckpt_arena a = {.limit = 1000};
    assert_non_null(ckpt_arena_alloc(&a, 500));
    assert_null(ckpt_arena_alloc(&a, 501));
    assert_non_null(ckpt_arena_alloc(&a, 400));
    assert_null(ckpt_arena_alloc(&a, SIZE_MAX));
    assert_null(ckpt_arena_alloc(&a, SIZE_MAX - 15));
    assert_null(ckpt_arena_array(&a, SIZE_MAX / 2, 3));
    assert_null(ckpt_arena_copy(&a, "", SIZE_MAX));
    ckpt_arena_fini(&a);
    assert_string_equal(ckpt_arena_printf(&a, "%d-%s", 7, "x"), "7-x");
    ckpt_arena_fini(&a);
}

/* The map against a plain array of keys, with keys that are often equal and may hold NUL. */
static void strmap_agrees_with_a_list(void **state) {
    (void)state;
    property_begin("strmap_agrees_with_a_list");
    enum { KEYS = 400 };
    static char bytes[KEYS][4];
    for (int round = 0; round < 50; round++) {
        struct ckpt_strmap m = {0};
        struct ckpt_text list[KEYS];
        size_t values[KEYS], n = 0;
        for (size_t i = 0; i < KEYS; i++) {
            for (int k = 0; k < 4; k++)
                bytes[i][k] = (char)property_below(3);
            const struct ckpt_text key = {bytes[i], (size_t)property_below(5)};
            size_t k = 0, existing = 12345;
            while (k < n && !ckpt_text_eq(list[k], key))
                k++;
            assert_int_equal(ckpt_strmap_get(&m, key), k < n ? values[k] : CKPT_STRMAP_ABSENT);
            const int rc = ckpt_strmap_add(&m, key, i, &existing);
            assert_int_equal(rc, k < n ? -EEXIST : 0);
            assert_int_equal(existing, k < n ? values[k] : 12345);
            if (k == n) {
                list[n] = key;
                values[n++] = i;
            }
            assert_int_equal(m.count, n);
        }
        for (size_t k = 0; k < n; k++)
            assert_int_equal(ckpt_strmap_get(&m, list[k]), values[k]);
        ckpt_strmap_clear(&m);
        assert_int_equal(m.count, 0);
        assert_int_equal(ckpt_strmap_get(&m, list[0]), CKPT_STRMAP_ABSENT);
        assert_int_equal(ckpt_strmap_add(&m, list[0], 1, NULL), 0);
        ckpt_strmap_clear(&m); /* small: the table stays, emptied */
        assert_int_equal(ckpt_strmap_get(&m, list[0]), CKPT_STRMAP_ABSENT);
        ckpt_strmap_fini(&m);
    }
}

static void decimal_digits(void **state) {
    (void)state;
    const int64_t numbers[] = {0, 7, 10, -1, 1234567890, INT64_MAX, INT64_MIN, -1000};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct ckpt_str s = {0}, expected = {0};
        ckpt_str_i64(&s, numbers[i]);
        ckpt_str_u64(&s, (uint64_t)numbers[i]);
        ckpt_str_printf(&expected, "%" PRId64 "%" PRIu64, numbers[i], (uint64_t)numbers[i]);
        assert_string_equal(s.s, expected.s);
        ckpt_str_fini(&s);
        ckpt_str_fini(&expected);
    }
}

static void array_grows(void **state) {
    (void)state;
    int *list = NULL;
    size_t cap = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(ckpt_array_grow(&list, (size_t)i, &cap, sizeof *list));
        list[i] = i;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(list[i], i);
    free(list);
}

static void pages_are_zero_and_aligned(void **state) {
    (void)state;
    const size_t page = ckpt_page_bytes();
    static const uint64_t sizes[] = {
        1, 4096, 100000, CKPT_HUGE_PAGE - 1, CKPT_HUGE_PAGE, 2 * CKPT_HUGE_PAGE + 5};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        const uint64_t n = sizes[i / 2];
        const bool huge = i % 2;
        uint8_t *const p = ckpt_pages_new(n, huge);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (huge && n >= CKPT_HUGE_PAGE ? CKPT_HUGE_PAGE : page), 0);
        assert_int_equal(ckpt_pages_round(n) % page, 0);
        for (size_t at = 0; at < n; at += page) {
            assert_int_equal(p[at], 0);
            p[at] = 1;
        }
        ckpt_pages_free(p, n);
    }
    assert_null(ckpt_pages_new(UINT64_MAX, true));
    assert_null(ckpt_pages_new((uint64_t)1 << 62, false));
    ckpt_pages_free(NULL, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_table),
        cmocka_unit_test(utf8_all_code_points),
        cmocka_unit_test(comparisons),
        cmocka_unit_test(did_you_mean),
        cmocka_unit_test(growing_text),
        cmocka_unit_test(errors),
        cmocka_unit_test(buffer_never_reads_past_its_end),
        cmocka_unit_test(arena_objects_are_disjoint),
        cmocka_unit_test(arena_arrays_grow),
        cmocka_unit_test(str_with_a_sink),
        cmocka_unit_test(arena_limits),
        cmocka_unit_test(strmap_agrees_with_a_list),
        cmocka_unit_test(decimal_digits),
        cmocka_unit_test(pages_are_zero_and_aligned),
        cmocka_unit_test(array_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
