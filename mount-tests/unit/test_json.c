/* The strict JSON reader and the writer: tables of texts to accept and to refuse, exact numbers,
 * and random trees that have to come back equal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "property.h"

/* Reads a whole text, copying its strings and in place, token by token the same; 0 or the error. */
static int read_all(const char *text, size_t n, unsigned depth, struct ckpt_err *err) {
    struct ckpt_json j, k;
    struct ckpt_err other;
    char *copy = malloc(n + 1);
    int t;
    assert_non_null(copy);
    memcpy(copy, text, n);
    ckpt_json_init(&j, text, n, depth, err);
    ckpt_json_init_in_place(&k, copy, n, depth, &other);
    while ((t = ckpt_json_next(&j)) > 0) {
        assert_int_equal(ckpt_json_next(&k), t);
        assert_int_equal(k.at, j.at);
        if (t == CKPT_JSON_KEY || t == CKPT_JSON_STRING || t == CKPT_JSON_NUMBER) {
            assert_int_equal(k.text.n, j.text.n);
            assert_memory_equal(k.text.s, j.text.s, j.text.n + 1);
        }
    }
    assert_int_equal(ckpt_json_next(&k), t);
    if (t < 0 && err)
        assert_string_equal(other.text, err->text);
    if (t < 0)
        assert_true(ckpt_json_next(&j) < 0); /* an error stays an error */
    ckpt_json_fini(&j);
    ckpt_json_fini(&k);
    free(copy);
    return t;
}

static void accepted(void **state) {
    (void)state;
    static const char *const texts[] = {
        "0",
        "-1",
        "1.5",
        "-0",
        "0.0e-0",
        "1E+400",
        "1e5",
        " \t\r\n1 ",
        "true",
        "false",
        "null",
        "\"\"",
        "\"a\\u0000b\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"\\ud83d\\ude00\"",
        "\"\xf0\x9f\x98\x80\"",
        "\"\x7f\"",
        "[]",
        "[ ]",
        "{}",
        "{ }",
        "[1,2]",
        "[[],{}]",
        "{\"a\":1,\"b\":{\"a\":2}}",
        "[{\"a\":1},{\"a\":1}]",
        "{\"\":0}",
        "{\"a\":1,\"A\":1}",
        "18446744073709551616",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ckpt_err err = {0};
        if (read_all(texts[i], strlen(texts[i]), 64, &err))
            fail_msg("%s: %s", texts[i], err.text);
    }
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "found the end at byte 0"},
        {"  ", "at byte 2"},
        {"01", "leading zero"},
        {"-", "a digit"},
        {"-01", "leading zero"},
        {"+1", "found '+'"},
        {".5", "found '.'"},
        {"1.", "decimal point"},
        {"1.e5", "decimal point"},
        {"1e", "exponent"},
        {"1e+", "exponent"},
        {"0x10", "nothing behind the value, found 'x' at byte 1"},
        {"NaN", "found 'N'"},
        {"Infinity", "found 'I'"},
        {"nul", "a value"},
        {"True", "found 'T'"},
        {"\"", "without end"},
        {"\"abc", "without end begins at byte 0"},
        {"\"\\\"", "without end"},
        {"\"\n\"", "control byte in a string at byte 1"},
        {"\"\\\n\"", "escape"},
        {"\"\\x41\"", "unknown escape at byte 1"},
        {"\"\\u12\"", "unknown escape"},
        {"\"\\u12g4\"", "unknown escape"},
        {"\"\\ud800\"", "half a surrogate pair"},
        {"\"\\udc00\"", "half a surrogate pair"},
        {"\"\\ud800\\u0041\"", "half a surrogate pair"},
        {"\"\\ud800\\ud800\"", "half a surrogate pair"},
        {"\"\xff\"", "not UTF-8 in a string at byte 1"},
        {"\"\xc0\x80\"", "not UTF-8"},
        {"\"\xed\xa0\x80\"", "not UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "not UTF-8"},
        {"\"a\xe2\x82\"", "not UTF-8 in a string at byte 2"},
        {"\xef\xbb\xbf{}", "found byte 0xef at byte 0"},
        {"[1", "',' or ']'"},
        {"[1,", "a value, found the end"},
        {"[1,]", "a value, found ']'"},
        {"[,1]", "a value, found ','"},
        {"[1 2]", "',' or ']', found '2' at byte 3"},
        {"[1}", "',' or ']', found '}'"},
        {"{\"a\"}", "':'"},
        {"{\"a\":}", "a value"},
        {"{\"a\":1,}", "a key in quotes"},
        {"{a:1}", "a key in quotes"},
        {"{1:1}", "a key in quotes"},
        {"{\"a\":1]", "',' or '}'"},
        {"{\"a\":1 \"b\":2}", "',' or '}'"},
        {"{} {}", "nothing behind the value"},
        {"[]x", "nothing behind the value"},
        {"// c\n1", "found '/'"},
        {"{\"a\":1,\"a\":2}", "\"a\" at byte 7 is there twice"},
        {"{\"a\":1,\"\\u0061\":2}", "is there twice"},
        {"[[[[[]]]]]", "nested deeper than 4 levels at byte 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ckpt_err err = {0};
        if (read_all(cases[i].text, strlen(cases[i].text), 4, &err) != -EINVAL)
            fail_msg("%s: accepted", cases[i].text);
        if (!strstr(err.text, cases[i].part))
            fail_msg("%s: \"%s\" does not hold \"%s\"", cases[i].text, err.text, cases[i].part);
        assert_int_equal(read_all(cases[i].text, strlen(cases[i].text), 4, NULL), -EINVAL);
    }
    struct ckpt_err err = {0};
    assert_int_equal(read_all("\"a\0b\"", 5, 4, &err), -EINVAL); /* a raw NUL */
    assert_int_equal(read_all("1\0", 2, 4, &err), -EINVAL);
}

static void deep_nesting_needs_no_stack(void **state) {
    (void)state;
    const size_t n = 1000000;
    char *text = malloc(n);
    memset(text, '[', n);
    struct ckpt_err err = {0};
    assert_int_equal(read_all(text, n, 64, &err), -EINVAL);
    assert_non_null(strstr(err.text, "64 levels"));
    free(text);
}

/* At the limit, and one beyond it; those of closed objects do not count. */
static void keys_are_limited(void **state) {
    (void)state;
    struct ckpt_err err;
    for (unsigned more = 0; more < 2; more++) {
        CKPT_AUTO(str) struct ckpt_str text = {0};
        ckpt_str_puts(&text, "[{\"a\":{\"x\":1,\"y\":{}},\"b\":2},{");
        for (unsigned i = 0; i < CKPT_JSON_KEYS_MAX + more; i++)
            ckpt_str_printf(&text, "%s\"%x\":0", i ? "," : "", i);
        ckpt_str_puts(&text, "}]");
        assert_int_equal(read_all(text.s, text.n, 4, &err), more ? -EINVAL : 0);
    }
    assert_non_null(strstr(err.text, "limit of JSON keys"));
}

static void integers_are_exact(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool is_int;
        uint64_t u;
        int64_t i;
    } cases[] = {
        {"0", true, 0, 0},
        {"9007199254740993", true, 9007199254740993u, 9007199254740993},
        {"9223372036854775807", true, INT64_MAX, INT64_MAX},
        {"9223372036854775808", true, (uint64_t)INT64_MAX + 1, 0},
        {"18446744073709551615", true, UINT64_MAX, 0},
        {"18446744073709551616", false, 0, 0},
        {"99999999999999999999", false, 0, 0},
        {"-1", true, 0, -1},
        {"-9223372036854775808", true, 0, INT64_MIN},
        {"-9223372036854775809", false, 0, 0},
        {"-0", false, 0, 0},
        {"1.0", false, 0, 0},
        {"1e0", false, 0, 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct ckpt_json j;
        ckpt_json_init(&j, cases[k].text, strlen(cases[k].text), 4, NULL);
        assert_int_equal(ckpt_json_next(&j), cases[k].is_int ? CKPT_JSON_INT : CKPT_JSON_NUMBER);
        assert_int_equal(j.negative, cases[k].text[0] == '-');
        if (cases[k].is_int && !j.negative)
            assert_true(j.u == cases[k].u);
        if (cases[k].is_int)
            assert_true(j.i == cases[k].i);
        else
            assert_true(j.number == strtod(cases[k].text, NULL));
        ckpt_json_fini(&j);
    }
}

static void check_string(const char *json, const char *text, size_t n) {
    struct ckpt_json j;
    ckpt_json_init(&j, json, strlen(json), 4, NULL);
    assert_int_equal(ckpt_json_next(&j), CKPT_JSON_STRING);
    assert_int_equal(j.text.n, n);
    assert_memory_equal(j.text.s, text, n);
    assert_int_equal(j.text.s[n], '\0');
    assert_int_equal(ckpt_json_next(&j), CKPT_JSON_EOF);
    ckpt_json_fini(&j);
}

static void escapes(void **state) {
    (void)state;
    check_string("\"a\\u0000b\"", "a\0b", 3);
    check_string("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8);
    check_string("\"\\u00e9\\u20AC\\ud83d\\ude00\"", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9);
    check_string("\"\\ud800\\udc00\\udbff\\udfff\"", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 8);
    check_string("\"\"", "", 0);
}

static void skipping(void **state) {
    (void)state;
    static const char text[] = "{\"a\":[1,{\"b\":[[]]}],\"c\":2}";
    struct ckpt_json j;
    ckpt_json_init(&j, text, strlen(text), 8, NULL);
    assert_int_equal(ckpt_json_next(&j), CKPT_JSON_OBJECT);
    assert_int_equal(ckpt_json_next(&j), CKPT_JSON_KEY);
    assert_int_equal(ckpt_json_skip(&j, ckpt_json_next(&j)), 0);
    assert_int_equal(ckpt_json_next(&j), CKPT_JSON_KEY);
    assert_string_equal(j.text.s, "c");
    assert_int_equal(ckpt_json_skip(&j, ckpt_json_next(&j)), 0);
    assert_int_equal(ckpt_json_next(&j), CKPT_JSON_OBJECT_END);
    assert_int_equal(ckpt_json_next(&j), CKPT_JSON_EOF);
    ckpt_json_fini(&j);
    /* what is skipped is checked all the same */
    static const char bad[] = "[[{\"a\":1,\"a\":2}]]";
    ckpt_json_init(&j, bad, strlen(bad), 8, NULL);
    assert_true(ckpt_json_skip(&j, ckpt_json_next(&j)) < 0);
    ckpt_json_fini(&j);
}

static void writer_layout(void **state) {
    (void)state;
    static const char compact[] =
        "{\"a\":[1,2,[]],\"b\":{},\"c\":[{\"d\":null}],\"e\":\"\\u0001%FF\"}";
    static const char pretty[] =
        "{\n  \"a\": [1, 2,\n    []\n  ],\n  \"b\": {},\n  \"c\": [\n    {\n"
        "      \"d\": null\n    }\n  ],\n  \"e\": \"\\u0001%FF\"\n}";
    for (int i = 0; i < 2; i++) {
        struct ckpt_str s = {0};
        struct ckpt_json_out w = {.out = &s, .pretty = i == 1};
        ckpt_jsonw_object(&w);
        ckpt_jsonw_key(&w, "a");
        ckpt_jsonw_array(&w);
        ckpt_jsonw_u64(&w, 1);
        ckpt_jsonw_i64(&w, 2);
        ckpt_jsonw_array(&w);
        ckpt_jsonw_array_end(&w);
        ckpt_jsonw_array_end(&w);
        ckpt_jsonw_key(&w, "b");
        ckpt_jsonw_object(&w);
        ckpt_jsonw_object_end(&w);
        ckpt_jsonw_key(&w, "c");
        ckpt_jsonw_array(&w);
        ckpt_jsonw_object(&w);
        ckpt_jsonw_key(&w, "d");
        ckpt_jsonw_string(&w, NULL);
        ckpt_jsonw_object_end(&w);
        ckpt_jsonw_array_end(&w);
        ckpt_jsonw_key(&w, "e");
        ckpt_jsonw_text(&w, CKPT_TEXT("\x01\xff"));
        ckpt_jsonw_object_end(&w);
        assert_string_equal(s.s, i ? pretty : compact);
        ckpt_str_fini(&s);
    }
}

static void double_texts(void **state) {
    (void)state;
    static const struct {
        double v;
        const char *text;
    } cases[] = {
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {1.0, "1.0"},
        {0.1, "0.1"},
        {1e-4, "0.0001"},
        {1e-5, "1e-05"},
        {1e15, "1000000000000000.0"},
        {1e16, "1e+16"},
        {1.5e300, "1.5e+300"},
        {5e-324, "5e-324"},
        {1.0 / 3, "0.3333333333333333"},
        {100000.0, "100000.0"},
        {123456.789, "123456.789"},
        {9007199254740993.0, "9007199254740992.0"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
    };
    char text[CKPT_DOUBLE_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_double_text(text, cases[i].v);
        assert_string_equal(text, cases[i].text);
    }
    struct ckpt_str s = {0};
    struct ckpt_json_out w = {.out = &s};
    ckpt_jsonw_array(&w);
    ckpt_jsonw_double(&w, NAN);
    ckpt_jsonw_double(&w, INFINITY);
    ckpt_jsonw_double(&w, -INFINITY);
    ckpt_jsonw_array_end(&w);
    assert_string_equal(s.s, "[\"NaN\",\"Infinity\",\"-Infinity\"]");
    ckpt_str_fini(&s);
}

static void doubles_come_back(void **state) {
    (void)state;
    property_begin("doubles_come_back");
    for (int i = 0; i < 20000; i++) {
        const uint64_t bits = property_u64();
        double v;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v))
            continue;
        if (i % 2)
            v = (double)(int64_t)property_below(2000000) / 1000;
        struct ckpt_str s = {0};
        struct ckpt_json_out w = {.out = &s};
        ckpt_jsonw_double(&w, v);
        struct ckpt_json j;
        ckpt_json_init(&j, s.s, s.n, 1, NULL);
        assert_int_equal(ckpt_json_next(&j), CKPT_JSON_NUMBER);
        assert_memory_equal(&j.number, &v, sizeof v);
        ckpt_json_fini(&j);
        ckpt_str_fini(&s);
    }
}

/* A random tree is written once, and its tokens noted down as a model, one line each. */
struct tree {
    struct ckpt_json_out w;
    struct ckpt_str text, model;
    unsigned nodes;
};

static void random_text(struct ckpt_str *s) {
    static const char *const pieces[] = {
        "a",  "\"", "\\", "\n", "\x01", "\xc3\xa9",    "\xf0\x9f\x98\x80",
        "\0", "/",  " ",  "xy", "\x7f", "\xed\x9f\xbf"};
    for (uint64_t n = property_below(6); n > 0; n--) {
        const uint64_t k = property_below(sizeof pieces / sizeof *pieces);
        ckpt_str_add(s, pieces[k], k == 7 ? 1 : strlen(pieces[k]));
    }
}

static void note(struct ckpt_str *model, int token, struct ckpt_text text) {
    ckpt_str_printf(model, "%d ", token);
    ckpt_str_add(model, text.s, text.n);
    ckpt_str_puts(model, "\n");
}

static void write_text(struct tree *t, bool is_key, unsigned number) {
    struct ckpt_str s = {0};
    if (is_key)
        ckpt_str_printf(&s, "%u", number); /* keys of an object differ */
    random_text(&s);
    (is_key ? ckpt_jsonw_key_text : ckpt_jsonw_text)(&t->w, ckpt_str_text(&s));
    note(&t->model, is_key ? CKPT_JSON_KEY : CKPT_JSON_STRING, ckpt_str_text(&s));
    ckpt_str_fini(&s);
}

static void write_node(struct tree *t, unsigned depth);

static void write_container(struct tree *t, unsigned depth, bool is_object) {
    (is_object ? ckpt_jsonw_object : ckpt_jsonw_array)(&t->w);
    note(&t->model, is_object ? CKPT_JSON_OBJECT : CKPT_JSON_ARRAY, CKPT_TEXT(""));
    const unsigned n = (unsigned)property_below(5);
    for (unsigned i = 0; i < n; i++) {
        if (is_object)
            write_text(t, true, i);
        write_node(t, depth + 1);
    }
    (is_object ? ckpt_jsonw_object_end : ckpt_jsonw_array_end)(&t->w);
    note(&t->model, is_object ? CKPT_JSON_OBJECT_END : CKPT_JSON_ARRAY_END, CKPT_TEXT(""));
}

static void write_integer(struct tree *t) {
    const uint64_t v = property_u64() >> property_below(64);
    char text[32];
    if (property_below(2) && (int64_t)v < 0)
        ckpt_jsonw_i64(&t->w, (int64_t)v), snprintf(text, sizeof text, "%lld", (long long)v);
    else
        ckpt_jsonw_u64(&t->w, v), snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    note(&t->model, CKPT_JSON_INT, ckpt_text_of(text));
}

static void write_node(struct tree *t, unsigned depth) {
    const uint64_t kind = property_below(depth < 12 && t->nodes++ < 300 ? 8 : 6);
    if (kind >= 6) {
        write_container(t, depth, kind == 6);
    } else if (kind >= 4) {
        write_integer(t);
    } else if (kind == 3) {
        write_text(t, false, 0);
    } else if (kind == 2) {
        ckpt_jsonw_null(&t->w);
        note(&t->model, CKPT_JSON_NULL, CKPT_TEXT(""));
    } else {
        ckpt_jsonw_bool(&t->w, kind);
        note(&t->model, kind ? CKPT_JSON_TRUE : CKPT_JSON_FALSE, CKPT_TEXT(""));
    }
}

/* The tokens of the text in the model's form. */
static void read_model(const struct ckpt_str *text, struct ckpt_str *model) {
    struct ckpt_json j;
    int t;
    ckpt_json_init(&j, text->s, text->n, 64, NULL);
    while ((t = ckpt_json_next(&j)) > 0) {
        char number[32];
        snprintf(number, sizeof number, j.negative ? "%lld" : "%llu",
                 j.negative ? (long long)j.i : (long long)j.u);
        const bool has_text = t == CKPT_JSON_KEY || t == CKPT_JSON_STRING;
        note(model, t,
             has_text             ? j.text
             : t == CKPT_JSON_INT ? ckpt_text_of(number)
                                  : CKPT_TEXT(""));
    }
    assert_int_equal(t, CKPT_JSON_EOF);
    ckpt_json_fini(&j);
}

static void random_trees_come_back(void **state) {
    (void)state;
    property_begin("random_trees_come_back");
    for (int i = 0; i < 500; i++) {
        struct tree t = {0};
        struct ckpt_str got = {0};
        t.w = (struct ckpt_json_out){.out = &t.text, .pretty = i % 2};
        write_container(&t, 0, i % 3 > 0);
        read_model(&t.text, &got);
        assert_int_equal(got.n, t.model.n);
        assert_memory_equal(got.s, t.model.s, got.n);
        /* a text cut anywhere is no JSON any more */
        const size_t cut = (size_t)property_below(t.text.n);
        assert_true(read_all(t.text.s, cut, 64, NULL) < 0);
        ckpt_str_fini(&t.text);
        ckpt_str_fini(&t.model);
        ckpt_str_fini(&got);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted),
        cmocka_unit_test(refused),
        cmocka_unit_test(deep_nesting_needs_no_stack),
        cmocka_unit_test(keys_are_limited),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(escapes),
        cmocka_unit_test(skipping),
        cmocka_unit_test(writer_layout),
        cmocka_unit_test(double_texts),
        cmocka_unit_test(doubles_come_back),
        cmocka_unit_test(random_trees_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
