/* Values: look-up, names for paths (as Python prints them), JSON; hostile ones included. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "formats/limits.h"
#include "formats/value.h"

#define VALUE(...) (&(struct ckpt_value){__VA_ARGS__})
#define NONE VALUE(.kind = CKPT_VALUE_NONE)
#define BOOL(v) VALUE(.kind = CKPT_VALUE_BOOL, .b = (v))
#define INT(v) VALUE(.kind = CKPT_VALUE_INT, .i = (v))
#define FLOAT(v) VALUE(.kind = CKPT_VALUE_FLOAT, .f = (v))
#define TEXT(k, v) VALUE(.kind = (k), .text = CKPT_TEXT(v))
#define STR(v) TEXT(CKPT_VALUE_STR, v)
#define SEQ(k, ...)                                                                                \
    VALUE(.kind = (k), .seq = {(struct ckpt_value *[]){__VA_ARGS__},                               \
                               sizeof((struct ckpt_value *[]){__VA_ARGS__}) / sizeof(void *), 0})
#define EMPTY(k) VALUE(.kind = (k))
#define LIST(...) SEQ(CKPT_VALUE_LIST, __VA_ARGS__)
#define TUPLE(...) SEQ(CKPT_VALUE_TUPLE, __VA_ARGS__)
#define DICT(...) SEQ(CKPT_VALUE_DICT, __VA_ARGS__)

static void look_up(void **state) {
    (void)state;
    const struct ckpt_value *d = DICT(INT(1), STR("int"), STR("a"), INT(7), STR("b"), NONE);
    assert_int_equal(ckpt_value_get(d, "a")->i, 7);
    assert_int_equal(ckpt_value_get(d, "b")->kind, CKPT_VALUE_NONE);
    assert_null(ckpt_value_get(d, "1"));
    assert_null(ckpt_value_get(d, "c"));
    assert_null(ckpt_value_get(NULL, "a"));
    assert_null(ckpt_value_get(LIST(STR("a"), INT(1)), "a"));
}

static void path_segments(void **state) {
    (void)state;
    const struct {
        const struct ckpt_value *key;
        const char *text;
    } cases[] = {
        {STR("fc1.weight"), "fc1.weight"},
        {STR("it's"), "it's"},
        {STR(""), ""},
        {STR("a\xed\xa0\x80"
             "b"),
         "a%ED%A0%80b"},
        {INT(0), "0"},
        {INT(-3), "-3"},
        {BOOL(true), "True"},
        {BOOL(false), "False"},
        {NONE, "None"},
        {FLOAT(0.1), "0.1"},
        {FLOAT(2), "2.0"},
        {FLOAT(1e16), "1e+16"},
        {FLOAT(INFINITY), "inf"},
        {FLOAT(NAN), "nan"},
        {TEXT(CKPT_VALUE_BIGINT, "123456789012345678901"), "123456789012345678901"},
        {TEXT(CKPT_VALUE_BYTES, "a\xff'\n"), "b\"a\\xff'\\n\""},
        {TUPLE(INT(1), STR("x")), "(1, 'x')"},
        {TUPLE(INT(1)), "(1,)"},
        {EMPTY(CKPT_VALUE_TUPLE), "()"},
        {EMPTY(CKPT_VALUE_SET), "set()"},
        {SEQ(CKPT_VALUE_SET, INT(1), INT(2)), "{1, 2}"},
        {TUPLE(LIST(STR("it's"), STR("\"'")), DICT(INT(1), NONE)),
         "([\"it's\", '\"\\''], {1: None})"},
        {TEXT(CKPT_VALUE_GLOBAL, "torch.float32"), "torch.float32"},
    };
    struct ckpt_arena a = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ckpt_text got = ckpt_value_path_segment(&a, cases[i].key);
        assert_string_equal(got.s, cases[i].text);
        assert_int_equal(got.n, strlen(cases[i].text));
    }
    ckpt_arena_fini(&a);
}

static void expect_json(const struct ckpt_value *v, const char *json) {
    struct ckpt_str s = {0};
    struct ckpt_json_out w = {.out = &s};
    ckpt_value_json(&w, v);
    assert_string_equal(s.s, json);
    ckpt_str_fini(&s);
}

static void json(void **state) {
    (void)state;
    expect_json(NONE, "null");
    expect_json(DICT(STR("a"), LIST(INT(1), FLOAT(1.0), BOOL(true)), INT(2), TUPLE(NONE)),
                "{\"a\":[1,1.0,true],\"2\":[null]}");
    expect_json(FLOAT(-INFINITY), "\"-Infinity\"");
    expect_json(TEXT(CKPT_VALUE_BIGINT, "-123456789012345678901"), "-123456789012345678901");
    expect_json(TEXT(CKPT_VALUE_BYTES, "\1\xff"), "[1,255]");
    expect_json(TEXT(CKPT_VALUE_OPAQUE, "my.Class"), "\"my.Class\"");
    expect_json(STR("\xed\xa0\x80"), "\"%ED%A0%80\"");
    expect_json(EMPTY(CKPT_VALUE_DICT), "{}");
    expect_json(VALUE(.kind = CKPT_VALUE_FORMAT), "\"object\"");
}

/* Strict JSON, without a key twice. */
static void expect_strict(const struct ckpt_value *v, size_t max_bytes) {
    struct ckpt_str s = {0};
    struct ckpt_json_out w = {.out = &s, .pretty = true};
    struct ckpt_json j;
    struct ckpt_err err = {0};
    int t;
    ckpt_value_json(&w, v);
    assert_in_range(s.n, 1, max_bytes);
    ckpt_json_init(&j, s.s, s.n, 64, &err);
    while ((t = ckpt_json_next(&j)) > 0) {
    }
    if (t < 0)
        fail_msg("%s", err.text);
    ckpt_json_fini(&j);
    ckpt_str_fini(&s);
}

static void keys_that_print_alike(void **state) {
    (void)state;
    expect_strict(DICT(INT(1), NONE, STR("1"), NONE, FLOAT(1), NONE), 100);
    expect_strict(DICT(STR("%ED%A0%80"), NONE, STR("\xed\xa0\x80"), NONE), 100);
}

static void cycles_end(void **state) {
    (void)state;
    struct ckpt_value *items[2] = {0};
    struct ckpt_value list = {.kind = CKPT_VALUE_LIST, .seq = {items, 1, 1}};
    items[0] = &list;
    expect_strict(&list, 10000);
    struct ckpt_arena a = {0};
    assert_true(ckpt_value_path_segment(&a, &list).n < 100);
    list.kind = CKPT_VALUE_DICT;
    list.seq.n = 2;
    items[1] = &list;
    expect_strict(&list, 10000000);
    assert_true(ckpt_value_path_segment(&a, &list).n < 10000);
    ckpt_arena_fini(&a);
}

/* A list of two references to a list of two references...: 2^50 leaves. */
static void shared_lists_end(void **state) {
    (void)state;
    struct ckpt_value *items[50][2], lists[50], none = {.kind = CKPT_VALUE_NONE};
    for (int i = 0; i < 50; i++) {
        lists[i] = (struct ckpt_value){.kind = CKPT_VALUE_LIST, .seq = {items[i], 2, 2}};
        items[i][0] = items[i][1] = i ? &lists[i - 1] : &none;
    }
    struct ckpt_str s = {0};
    struct ckpt_json_out w = {.out = &s};
    ckpt_value_json(&w, &lists[49]);
    assert_in_range(s.n, 1, CKPT_LIMIT_VALUE_JSON_BYTES + 10000);
    ckpt_str_fini(&s);
    struct ckpt_arena a = {0};
    assert_true(ckpt_value_path_segment(&a, &lists[49]).n < 10000);
    ckpt_arena_fini(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(look_up),    cmocka_unit_test(path_segments),
        cmocka_unit_test(json),       cmocka_unit_test(keys_that_print_alike),
        cmocka_unit_test(cycles_end), cmocka_unit_test(shared_lists_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
