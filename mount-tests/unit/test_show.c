/* Text for people: escapes, columns, cells cut in the middle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fs/show.h"
#include "random.h"

static void check_text(const char *in, size_t n, const char *expected) {
    struct ckpt_str out = {0};
    ckpt_show_text(&out, (struct ckpt_text){in, n});
    assert_string_equal(ckpt_str_text(&out).s, expected);
    ckpt_str_fini(&out);
}

/* Nothing that a terminal would obey comes through: escape, C1 controls, text direction. */
static void test_escapes(void **state) {
    (void)state;
    check_text("a.b", 3, "a.b");
    check_text("\033[2J", 4, "\\x1b[2J");
    check_text("a\0b\n", 4, "a\\x00b\\x0a");
    check_text("\xc2\x9b"
               "2J",
               4, "\\x9b2J");
    check_text("\xe2\x80\xae"
               "txt",
               6, "\\u202etxt");
    check_text("\xe2\x80\xa9", 3, "\\u2029"); /* ends a paragraph */
    check_text("\xe2\n\033", 3, "\\xe2\\x0a\\x1b");
    check_text("h\xc3\xa9", 3, "h\xc3\xa9");
    check_text("\xff", 1, "\\xff");
    check_text("\xe2\x80", 2, "\\xe2\\x80"); /* cut off */
}

static void test_widths(void **state) {
    (void)state;
    assert_int_equal(ckpt_show_width(CKPT_TEXT("")), 0);
    assert_int_equal(ckpt_show_width(CKPT_TEXT("abc")), 3);
    assert_int_equal(ckpt_show_width(CKPT_TEXT("\xc3\xa9")), 1);
    assert_int_equal(ckpt_show_width(CKPT_TEXT("\xe4\xb8\xad")), 2);     /* U+4E2D */
    assert_int_equal(ckpt_show_width(CKPT_TEXT("\xf0\x9f\x98\x80")), 2); /* U+1F600 */
    assert_int_equal(ckpt_show_width(CKPT_TEXT("e\xcc\x81")), 1);        /* combining */
}

static void check_cell(const char *in, unsigned width, bool right, const char *expected) {
    struct ckpt_str out = {0};
    ckpt_show_cell(&out, ckpt_text_of(in), width, right);
    assert_string_equal(ckpt_str_text(&out).s, expected);
    ckpt_str_fini(&out);
}

static void test_cells(void **state) {
    (void)state;
    check_cell("abc", 5, false, "abc  ");
    check_cell("abc", 5, true, "  abc");
    check_cell("abc", 3, false, "abc");
    check_cell("abcdefgh", 5, false, "ab\xe2\x80\xa6gh");
    check_cell("abcdefgh", 4, false, "a\xe2\x80\xa6gh");
    check_cell("abcdefgh", 1, false, "\xe2\x80\xa6");
    check_cell("abcdefgh", 0, false, "");
    /* Half of a wide character can't be shown: a blank takes its place. */
    check_cell("\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad", 4, false, "\xe2\x80\xa6\xe4\xb8\xad ");
}

/* Whatever the text, a cell takes the columns that it was given. */
static void test_cells_of_any_text(void **state) {
    static const char *const pieces[] = {
        "a", "\xc3\xa9", "\xe4\xb8\xad", "\xf0\x9f\x98\x80", "e\xcc\x81", ".", "weight"};
    struct rng r = rng_seeded("cells");
    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct ckpt_str text = {0}, cell = {0};
        for (int64_t n = rng_below(&r, 12); n > 0; n--)
            ckpt_str_puts(&text, pieces[rng_below(&r, 7)]);
        const unsigned width = (unsigned)rng_below(&r, 20);
        ckpt_show_cell(&cell, ckpt_str_text(&text), width, round % 2);
        assert_int_equal(ckpt_show_width(ckpt_str_text(&cell)), width);
        ckpt_str_fini(&text);
        ckpt_str_fini(&cell);
    }
}

static void check_size(uint64_t n, const char *expected) {
    struct ckpt_str out = {0};
    ckpt_show_size(&out, n);
    assert_string_equal(out.s, expected);
    ckpt_str_fini(&out);
}

static void test_sizes(void **state) {
    (void)state;
    check_size(0, "0 bytes");
    check_size(1, "1 byte");
    check_size(1023, "1023 bytes");
    check_size(1024, "1.0 KiB");
    check_size(3u << 20, "3.0 MiB");
    check_size(UINT64_MAX, "16777216.0 TiB");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escapes), cmocka_unit_test(test_widths),
        cmocka_unit_test(test_cells),   cmocka_unit_test(test_cells_of_any_text),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
