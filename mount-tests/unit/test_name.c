/* File names made of key segments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "fs/name.h"
#include "property.h"

static void check(const char *segment, size_t n, const char *name) {
    CKPT_AUTO(str) struct ckpt_str out = {0};
    ckpt_str_puts(&out, "before/"); /* what is there already stays */
    ckpt_name_encode(&out, (struct ckpt_text){segment, n});
    assert_false(out.failed);
    assert_string_equal(out.s + strlen("before/"), name);
}

#define CHECK(segment, name) check(segment, sizeof(segment) - 1, name)

static void test_encoding(void **state) {
    (void)state;
    CHECK("weight", "weight");
    CHECK("", "%");
    CHECK("%", "%25");
    CHECK(".", "%2E");
    CHECK("..", "%2E%2E");
    CHECK("a/b", "a%2Fb");
    CHECK("a\0b", "a%00b");
    CHECK("tab\there", "tab%09here");
    CHECK("\x7f", "%7F");
    CHECK(" (1, 2)", " (1, 2)");
    CHECK("gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f");
    CHECK("\xf0\x9f\x98\x80!", "\xf0\x9f\x98\x80!");
    CHECK("\xff\xfe", "%FF%FE");
    CHECK("\xc3", "%C3");
    CHECK("\xc3(", "%C3(");
    CHECK("\xed\xa0\x80", "%ED%A0%80"); /* a lone surrogate */
    CHECK("\xc0\xaf", "%C0%AF");        /* an overlong slash */
    CHECK("\xe2\x82", "%E2%82");
}

static void encode(struct ckpt_str *out, const char *s, size_t n) {
    ckpt_str_cut(out, 0);
    ckpt_name_encode(out, (struct ckpt_text){s, n});
    assert_false(out->failed);
}

static void test_long_names_are_cut(void **state) {
    (void)state;
    CKPT_AUTO(str) struct ckpt_str out = {0};
    char s[400];
    memset(s, 'a', sizeof s);
    encode(&out, s, CKPT_NAME_MAX);
    assert_int_equal(out.n, CKPT_NAME_MAX);
    assert_null(strchr(out.s, '%'));
    encode(&out, s, CKPT_NAME_MAX + 1);
    assert_int_equal(out.n, CKPT_NAME_MAX);
    /* printf 'a%.0s' $(seq 245) | sha256sum */
    assert_string_equal(out.s + 226, "%~5553f05514a6f627");
}

/* Cut at a character: neither inside UTF-8 nor inside a %XX. */
static void test_cut_at_a_character(void **state) {
    (void)state;
    CKPT_AUTO(str) struct ckpt_str out = {0};
    char s[600];
    for (size_t lead = 0; lead < 4; lead++) {
        size_t n = lead;
        memset(s, 'a', lead);
        while (n + 2 <= 300) {
            memcpy(s + n, "\xc3\xbc", 2);
            n += 2;
        }
        encode(&out, s, n);
        assert_true(out.n <= CKPT_NAME_MAX);
        assert_int_equal(ckpt_utf8_valid(out.s, out.n), out.n);
        memset(s + lead, '/', 300);
        encode(&out, s, lead + 300);
        const char *mark = strstr(out.s, "%~");
        assert_non_null(mark);
        assert_int_equal((mark - out.s - (ptrdiff_t)lead) % 3, 0);
    }
}

/* Any bytes: a valid name, and different segments have different names. */
static void test_names_are_valid_and_differ(void **state) {
    (void)state;
    property_begin("names");
    CKPT_AUTO(str) struct ckpt_str a = {0}, b = {0};
    for (int round = 0; round < 20000; round++) {
        char s[2][300];
        size_t n[2];
        for (int k = 0; k < 2; k++) {
            n[k] = property_u64() % (round % 10 ? 6 : sizeof s[k]);
            for (size_t i = 0; i < n[k]; i++)
                s[k][i] = (char)(round % 3 ? property_u64()
                                           : (uint64_t) "a./%\xc3\xbc~2"[property_u64() % 8]);
        }
        encode(&a, s[0], n[0]);
        encode(&b, s[1], n[1]);
        assert_true(a.n > 0 && a.n <= CKPT_NAME_MAX);
        assert_int_equal(ckpt_utf8_valid(a.s, a.n), a.n);
        assert_null(memchr(a.s, '/', a.n));
        assert_null(memchr(a.s, '.', a.n));
        assert_null(memchr(a.s, 0, a.n));
        const bool same = n[0] == n[1] && memcmp(s[0], s[1], n[0]) == 0;
        assert_int_equal(same, ckpt_text_eq(ckpt_str_text(&a), ckpt_str_text(&b)));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encoding),
        cmocka_unit_test(test_long_names_are_cut),
        cmocka_unit_test(test_cut_at_a_character),
        cmocka_unit_test(test_names_are_valid_and_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
