/* The strict CBOR reader and the writer: the examples of RFC 8949's appendix A, what is not
 * well-formed, and numbers that have to come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/cbor.h"
#include "random.h"

static size_t unhex(const char *hex, uint8_t *out) {
    size_t n = 0;
    unsigned byte;
    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2)
        out[n++] = (uint8_t)byte;
    return n;
}

/* Appends what the token is in the diagnostic notation of the RFC, without commas. */
static void show(struct ckpt_str *s, const struct ckpt_cbor *c, int token) {
    static const char *const plain[] = {
        [CKPT_CBOR_ARRAY] = "[",   [CKPT_CBOR_ARRAY_END] = "]",         [CKPT_CBOR_MAP] = "{",
        [CKPT_CBOR_MAP_END] = "}", [CKPT_CBOR_FALSE] = "false",         [CKPT_CBOR_TRUE] = "true",
        [CKPT_CBOR_NULL] = "null", [CKPT_CBOR_UNDEFINED] = "undefined", [CKPT_CBOR_FLOAT] = NULL,
    };
    if (s->n)
        ckpt_str_puts(s, " ");
    if (token == CKPT_CBOR_UINT || token == CKPT_CBOR_NEGATIVE)
        ckpt_str_printf(s, "%s%llu", token == CKPT_CBOR_UINT ? "" : "-1-",
                        (unsigned long long)c->u);
    else if (token == CKPT_CBOR_TAG || token == CKPT_CBOR_SIMPLE)
        ckpt_str_printf(s, "%s(%llu)", token == CKPT_CBOR_TAG ? "tag" : "simple",
                        (unsigned long long)c->u);
    else if (token == CKPT_CBOR_FLOAT)
        ckpt_str_printf(s, "%.17g", c->number);
    else if (token == CKPT_CBOR_TEXT)
        ckpt_str_printf(s, "'%.*s'", CKPT_TEXT_ARGS(c->text));
    else if (token == CKPT_CBOR_BYTES)
        for (size_t i = 0; i < c->text.n + 1; i++)
            ckpt_str_printf(s, i ? "%02x" : "h", (uint8_t)c->text.s[i ? i - 1 : 0]);
    else
        ckpt_str_puts(s, plain[token]);
}

/* Reads all of it; 0 or the error. */
static int read_all(const uint8_t *bytes, size_t n, struct ckpt_str *shown, struct ckpt_err *err) {
    struct ckpt_cbor c;
    int t;
    ckpt_cbor_init(&c, bytes, n, 0, err);
    while ((t = ckpt_cbor_next(&c)) > 0)
        if (shown)
            show(shown, &c, t);
    ckpt_cbor_fini(&c);
    return t;
}

/* RFC 8949, appendix A. */
static const struct {
    const char *hex, *shown;
} examples[] = {
    {"00", "0"},
    {"01", "1"},
    {"0a", "10"},
    {"17", "23"},
    {"1818", "24"},
    {"1819", "25"},
    {"1864", "100"},
    {"1903e8", "1000"},
    {"1a000f4240", "1000000"},
    {"1b000000e8d4a51000", "1000000000000"},
    {"1bffffffffffffffff", "18446744073709551615"},
    {"c249010000000000000000", "tag(2) h010000000000000000"},
    {"3bffffffffffffffff", "-1-18446744073709551615"},
    {"20", "-1-0"},
    {"29", "-1-9"},
    {"3863", "-1-99"},
    {"3903e7", "-1-999"},
    {"f90000", "0"},
    {"f98000", "-0"},
    {"f93c00", "1"},
    {"fb3ff199999999999a", "1.1000000000000001"},
    {"f93e00", "1.5"},
    {"f97bff", "65504"},
    {"fa47c35000", "100000"},
    {"fa7f7fffff", "3.4028234663852886e+38"},
    {"fb7e37e43c8800759c", "1.0000000000000001e+300"},
    {"f90001", "5.9604644775390625e-08"},
    {"f90400", "6.103515625e-05"},
    {"f9c400", "-4"},
    {"fbc010666666666666", "-4.0999999999999996"},
    {"f97c00", "inf"},
    {"f97e00", "nan"},
    {"f9fc00", "-inf"},
    {"fa7f800000", "inf"},
    {"fb7ff0000000000000", "inf"},
    {"f4", "false"},
    {"f5", "true"},
    {"f6", "null"},
    {"f7", "undefined"},
    {"f0", "simple(16)"},
    {"f8ff", "simple(255)"},
    {"c11a514b67b0", "tag(1) 1363896240"},
    {"c1fb41d452d9ec200000", "tag(1) 1363896240.5"},
    {"d818456449455446", "tag(24) h6449455446"},
    {"40", "h"},
    {"4401020304", "h01020304"},
    {"60", "''"},
    {"6161", "'a'"},
    {"6449455446", "'IETF'"},
    {"62225c", "'\"\\'"},
    {"62c3bc", "'\u00fc'"},
    {"64f0908591", "'\U00010151'"},
    {"80", "[ ]"},
    {"83010203", "[ 1 2 3 ]"},
    {"8301820203820405", "[ 1 [ 2 3 ] [ 4 5 ] ]"},
    {"98190102030405060708090a0b0c0d0e0f101112131415161718181819",
     "[ 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 ]"},
    {"a0", "{ }"},
    {"a201020304", "{ 1 2 3 4 }"},
    {"a26161016162820203", "{ 'a' 1 'b' [ 2 3 ] }"},
    {"826161a161626163", "[ 'a' { 'b' 'c' } ]"},
    {"5f42010243030405ff", "h0102030405"},
    {"7f657374726561646d696e67ff", "'streaming'"},
    {"9fff", "[ ]"},
    {"9f018202039f0405ffff", "[ 1 [ 2 3 ] [ 4 5 ] ]"},
    {"83018202039f0405ff", "[ 1 [ 2 3 ] [ 4 5 ] ]"},
    {"bf61610161629f0203ffff", "{ 'a' 1 'b' [ 2 3 ] }"},
    {"826161bf61626163ff", "[ 'a' { 'b' 'c' } ]"},
    {"bf6346756ef563416d7421ff", "{ 'Fun' true 'Amt' -1-1 }"},
};

static void examples_of_the_rfc(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        CKPT_AUTO(str) struct ckpt_str shown = {0};
        uint8_t bytes[64];
        const size_t n = unhex(examples[i].hex, bytes);
        assert_int_equal(read_all(bytes, n, &shown, NULL), 0);
        assert_string_equal(shown.s, examples[i].shown);
        for (size_t cut = 0; cut < n; cut++) /* no beginning of an item is one */
            assert_int_equal(read_all(bytes, cut, NULL, NULL), -EINVAL);
    }
}

/* Its appendix F, and what is ours to refuse. */
static void refused(void **state) {
    (void)state;
    static const char *const hex[] = {
        "",
        "1c",
        "1d",
        "1e",
        "3c",
        "5c",
        "7d",
        "9e",
        "bc",
        "dd",
        "fc",
        "fe", /* reserved */
        "1f",
        "3f",
        "df",
        "ff", /* nothing is indefinite here, or ends */
        "f800",
        "f818",
        "f81f", /* short simple values written long */
        "0000",
        "8000", /* two values */
        "81ff",
        "8200ff",
        "a1ff",
        "a100ff",
        "a20000ff", /* a break in a definite length */
        "bf00ff",
        "bf000000ff", /* a map that ends after a key */
        "9fc1ff",
        "c1ff", /* a tag about nothing */
        "5f00ff",
        "5f6100ff",
        "7f4100ff",
        "5f5f4100ffff",
        "7f7f6100ffff", /* pieces */
        "61ff",
        "62c328",
        "63eda080",
        "7f61c361bcff", /* not UTF-8; pieces have to be by themselves */
        "9bffffffffffffffff",
        "bb8000000000000000",
        "bbffffffffffffffff",
        "5bffffffffffffffff00",
        "9a000000030000",
    };
    for (size_t i = 0; i < sizeof hex / sizeof *hex; i++) {
        struct ckpt_err err = {0};
        uint8_t bytes[64];
        if (read_all(bytes, unhex(hex[i], bytes), NULL, &err) != -EINVAL)
            fail_msg("%s was accepted", hex[i]);
        assert_non_null(strstr(err.text, "at byte "));
    }
}

static void depth_is_bounded(void **state) {
    (void)state;
    uint8_t bytes[CKPT_CBOR_DEPTH_MAX + 2];
    memset(bytes, 0x81, sizeof bytes);
    bytes[CKPT_CBOR_DEPTH_MAX] = 0;
    assert_int_equal(read_all(bytes, CKPT_CBOR_DEPTH_MAX + 1, NULL, NULL), 0);
    bytes[CKPT_CBOR_DEPTH_MAX] = 0x81;
    bytes[CKPT_CBOR_DEPTH_MAX + 1] = 0;
    struct ckpt_err err = {0};
    assert_int_equal(read_all(bytes, sizeof bytes, NULL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "128 levels"));
}

/* Every item, skipped between two numbers, leaves the second. */
static void skipped(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        uint8_t bytes[64] = {0x83, 1};
        struct ckpt_cbor c;
        const size_t n = unhex(examples[i].hex, bytes + 2);
        bytes[2 + n] = 2;
        ckpt_cbor_init(&c, bytes, n + 3, 0, NULL);
        assert_int_equal(ckpt_cbor_next(&c), CKPT_CBOR_ARRAY);
        assert_int_equal(ckpt_cbor_next(&c), CKPT_CBOR_UINT);
        assert_int_equal(ckpt_cbor_skip(&c, ckpt_cbor_next(&c)), 0);
        assert_int_equal(ckpt_cbor_next(&c), CKPT_CBOR_UINT);
        assert_int_equal(c.u, 2);
        assert_int_equal(ckpt_cbor_next(&c), CKPT_CBOR_ARRAY_END);
        assert_int_equal(ckpt_cbor_next(&c), CKPT_CBOR_EOF);
        ckpt_cbor_fini(&c);
    }
}

/* What is written is what the RFC shows, and the shortest form of any number comes back. */
static void written(void **state) {
    (void)state;
    CKPT_AUTO(str) struct ckpt_str out = {0};
    ckpt_cborw_map(&out, 2);
    ckpt_cborw_text(&out, CKPT_TEXT("a"));
    ckpt_cborw_u64(&out, 1);
    ckpt_cborw_text(&out, CKPT_TEXT("b"));
    ckpt_cborw_array(&out, 2);
    ckpt_cborw_u64(&out, 2);
    ckpt_cborw_u64(&out, 3);
    assert_int_equal(out.n, 9);
    assert_memory_equal(out.s, "\xa2\x61\x61\x01\x61\x62\x82\x02\x03", 9);
    ckpt_str_cut(&out, 0);
    ckpt_cborw_text(&out, CKPT_TEXT("a\xff\u00fc\xc3"));
    assert_memory_equal(out.s,
                        "\x69"
                        "a%FF\u00fc%C3",
                        10);
    struct rng r = rng_seeded("written");
    for (int i = 0; i < 20000; i++) {
        const uint64_t v = rng_next(&r) >> rng_below(&r, 64);
        const size_t size = v < 24 ? 1 : v < 256 ? 2 : v < 65536 ? 3 : v >> 32 ? 9 : 5;
        struct ckpt_cbor c;
        ckpt_str_cut(&out, 0);
        ckpt_cborw_u64(&out, v);
        assert_int_equal(out.n, size);
        ckpt_cbor_init(&c, out.s, out.n, 0, NULL);
        assert_int_equal(ckpt_cbor_next(&c), CKPT_CBOR_UINT);
        assert_true(c.u == v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_of_the_rfc),
        cmocka_unit_test(refused),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(skipped),
        cmocka_unit_test(written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
