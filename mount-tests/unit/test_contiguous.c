/* Renumbering: cases/contiguous.test, and random keys against the algorithm written as plainly as
 * can be. */
#include "toy.h"

#include "adapters/contiguous.h"
#include "property.h"

enum { KEYS = 64 };

static void check_case(struct cases *c) {
    struct ckpt_arena a = {0};
    struct ckpt_regex *except = NULL;
    struct ckpt_text key[KEYS];
    const char *expected[KEYS];
    size_t n = 0;
    struct ckpt_renumbered done;
    while (cases_line(c)) {
        if (strncmp(c->line, "except ", 7) == 0) {
            assert_int_equal(ckpt_regex_new(ckpt_text_of(c->line + 7), false, "", &except, NULL),
                             0);
            continue;
        }
        char *line = ckpt_arena_printf(&a, "%s", c->line), *arrow = strstr(line, " > ");
        assert_non_null(arrow);
        *arrow = '\0';
        key[n] = ckpt_text_of(line);
        expected[n++] = arrow + 3;
    }
    assert_int_equal(ckpt_contiguous_keys(key, n, except, &a, &done, NULL), 0);
    for (size_t i = 0; i < n; i++)
        cases_equal(c, key[i].s, expected[i]);
    assert_int_equal(ckpt_contiguous_keys(key, n, except, &a, &done, NULL), 0);
    assert_int_equal(done.changed, 0); /* once is enough */
    ckpt_regex_free(except);
    ckpt_arena_fini(&a);
}

static void test_cases(void **state) {
    (void)state;
    struct cases c = cases_open(CASES "contiguous.test");
    while (cases_more(&c))
        check_case(&c);
    fclose(c.f);
}

/* --- the plain model: for each number, count the smaller ones of its list --- */

struct naive {
    char prefix[64];
    unsigned long number;
};

static size_t naive_places(const char *key, struct naive *out) {
    char copy[64], *rest = copy, *s;
    size_t n = 0;
    strcpy(copy, key);
    while ((s = strsep(&rest, "."))) {
        char *end;
        const unsigned long v = strtoul(s, &end, 10);
        if (*s == '\0' || *end)
            continue;
        snprintf(out[n].prefix, sizeof out[n].prefix, "%.*s", (int)(s - copy), key);
        out[n++].number = v;
    }
    return n;
}

static size_t naive_rank(const struct naive *all, size_t n, const struct naive *one) {
    size_t rank = 0;
    for (size_t i = 0; i < n; i++) {
        bool first = true;
        for (size_t j = 0; j < i; j++)
            first &= strcmp(all[j].prefix, all[i].prefix) != 0 || all[j].number != all[i].number;
        rank += first && strcmp(all[i].prefix, one->prefix) == 0 && all[i].number < one->number;
    }
    return rank;
}

static void naive_rewrite(const char *key, const struct naive *all, size_t n, char *out) {
    struct naive own[8];
    const size_t places = naive_places(key, own);
    char copy[64], *rest = copy, *s;
    size_t at = 0;
    strcpy(copy, key);
    *out = '\0';
    while ((s = strsep(&rest, "."))) {
        char number[24];
        const bool is_number = *s && strspn(s, "0123456789") == strlen(s);
        if (is_number) {
            assert_true(at < places);
            snprintf(number, sizeof number, "%zu", naive_rank(all, n, &own[at++]));
        }
        strcat(strcat(out, *out ? "." : ""), is_number ? number : s);
    }
}

static void random_key(char *out) {
    static const char *const words[] = {"a", "b", "1", "2", "5", "11", "30"};
    const int parts = 1 + (int)property_below(4);
    *out = '\0';
    for (int i = 0; i < parts; i++)
        strcat(strcat(out, i ? "." : ""), words[property_below(7)]);
}

static void test_random(void **state) {
    (void)state;
    property_begin("contiguous");
    for (int round = 0; round < 300; round++) {
        struct ckpt_arena a = {0};
        char before[KEYS][64];
        struct ckpt_text key[KEYS];
        struct naive all[KEYS * 4];
        size_t n = 0;
        struct ckpt_renumbered done;
        for (size_t i = 0; i < KEYS; i++) {
            random_key(before[i]);
            key[i] = ckpt_text_of(before[i]);
            n += naive_places(before[i], all + n);
        }
        assert_int_equal(ckpt_contiguous_keys(key, KEYS, NULL, &a, &done, NULL), 0);
        for (size_t i = 0; i < KEYS; i++) {
            char expected[128];
            naive_rewrite(before[i], all, n, expected);
            assert_string_equal(key[i].s, expected);
        }
        ckpt_arena_fini(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
