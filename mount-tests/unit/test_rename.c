/* map=: cases/rename.test. */
#include "toy.h"

#include "adapters/rename.h"

static struct ckpt_mapping split_rule(struct ckpt_arena *a, const char *line) {
    const char *s = ckpt_arena_printf(a, "%s", line), *arrow = NULL;
    for (const char *p = s; (p = strstr(p, "=>")); p++)
        arrow = p;
    assert_non_null(arrow);
    return (struct ckpt_mapping){
        .pattern = {s, (size_t)(arrow - s)}, .value = ckpt_text_of(arrow + 2), .where = "map="};
}

static void check(struct cases *c, const struct ckpt_mapping *map, size_t n, const char *before,
                  struct ckpt_arena *a) {
    struct ckpt_text key = ckpt_text_of(before);
    struct ckpt_err err = {0};
    size_t hits[16];
    const int rc = ckpt_rename_keys(map, n, &key, 1, hits, a, &err);
    if (c->line[0] == '!') {
        assert_int_equal(rc, -EINVAL);
        if (!strstr(err.text, c->line + 2))
            fail_msg("%s:%u: %s", c->name, c->number, err.text);
        return;
    }
    if (rc)
        fail_msg("%s:%u: %s", c->name, c->number, err.text);
    cases_equal(c, key.s, c->line + 2);
    size_t all = 0;
    for (size_t i = 0; i < n; i++)
        all += hits[i];
    assert_int_equal(all > 0, strcmp(before, key.s) != 0);
}

static void test_cases(void **state) {
    (void)state;
    struct cases c = cases_open(CASES "rename.test");
    unsigned checked = 0;
    while (cases_more(&c)) {
        struct ckpt_arena a = {0};
        struct ckpt_mapping map[16];
        char before[4096] = "";
        size_t n = 0;
        while (cases_line(&c)) {
            if (strncmp(c.line, "< ", 2) == 0)
                strcpy(before, c.line + 2);
            else if (strncmp(c.line, "> ", 2) == 0 || strncmp(c.line, "! ", 2) == 0)
                check(&c, map, n, before, &a), checked++;
            else
                map[n++] = split_rule(&a, c.line);
        }
        ckpt_arena_fini(&a);
    }
    fclose(c.f);
    assert_true(checked >= 20);
}

static void test_not_utf8(void **state) {
    (void)state;
    struct ckpt_arena a = {0};
    const struct ckpt_mapping map = {CKPT_TEXT("w$"), CKPT_TEXT("x"), "map="};
    struct ckpt_text key[] = {CKPT_TEXT("\xff.w"), {"a\0b.w", 5}};
    assert_int_equal(ckpt_rename_keys(&map, 1, key, 2, NULL, &a, NULL), 0);
    assert_true(ckpt_text_is(key[0], "\xff.x"));
    assert_true(ckpt_text_eq(key[1], (struct ckpt_text){"a\0b.x", 5}));
    ckpt_arena_fini(&a);
}

/* A key cannot grow without end. */
static void test_growth(void **state) {
    (void)state;
    struct ckpt_arena a = {0};
    struct ckpt_mapping map[40];
    for (size_t i = 0; i < 40; i++)
        map[i] = (struct ckpt_mapping){CKPT_TEXT("a"), CKPT_TEXT("aa"), "map="};
    struct ckpt_text key = CKPT_TEXT("a");
    struct ckpt_err err = {0};
    assert_int_equal(ckpt_rename_keys(map, 40, &key, 1, NULL, &a, &err), -EINVAL);
    assert_non_null(strstr(err.text, "more than 8192 bytes"));
    ckpt_arena_fini(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_not_utf8),
        cmocka_unit_test(test_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
