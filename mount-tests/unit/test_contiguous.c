/* Renumbering: cases/contiguous.test, random keys against the algorithm written as plainly as can
 * be, and cases/lists.test, what is said of it. */
#include "toy.h"

#include "adapters/contiguous.h"
#include "adapters/model.h"
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

/* --- what is said of it --- */

struct told {
    struct ckpt_checkpoint *c;
    struct ckpt_model *m;
    struct ckpt_err err;
    size_t lists;
};

/* The index of the module with this path, or -1. */
static int32_t module_at(const struct ckpt_checkpoint *c, const char *path, size_t n) {
    for (size_t i = 0; i < c->nmodules; i++)
        if (c->modules[i].path.n == n && memcmp(c->modules[i].path.s, path, n) == 0)
            return (int32_t)i;
    return -1;
}

static size_t without_last(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? (size_t)(dot - path) : 0;
}

static void add_module(struct told *t, char *line) {
    char *cls = strchr(line, ' ');
    assert_non_null(cls);
    *cls++ = '\0';
    toy_module(t->c, "", line, cls, module_at(t->c, line, without_last(line)));
}

static void add_key(struct told *t, const char *key) {
    struct ckpt_tensor *tensor = toy_tensor(t->c, key, CKPT_DT_F32, "2", 0);
    tensor->module = module_at(t->c, key, without_last(key));
}

static void check_told(const struct cases *c, struct told *t) {
    const struct ckpt_adapt_options options = {.contiguous = CKPT_ON, .layout = CKPT_LAYOUT_TORCH};
    if (!t->m && !t->err.text[0])
        (void)!ckpt_model_build(t->c, &options, &t->m, &t->err);
    if (c->line[1] == '!') {
        if (!strstr(t->err.text, c->line + 3))
            fail_msg("%s:%u: '%s'", c->name, c->number, t->err.text);
        return;
    }
    assert_non_null(t->m);
    if (c->line[0] == '=') {
        assert_true(t->lists < t->m->nlists);
        cases_equal(c, t->m->list[t->lists++].s, c->line + 2);
        return;
    }
    const char *warning = t->m->nwarnings ? t->m->warnings[0].s : "nothing";
    if (!strstr(warning, c->line + 2) || t->m->nwarnings > 1 || t->lists != t->m->nlists)
        fail_msg("%s:%u: '%s'", c->name, c->number, warning);
}

static void test_no_such_list(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = toy_new();
    toy_tensor(c, "flows.0.w", CKPT_DT_F32, "2", 0);
    toy_tensor(c, "flows.2.w", CKPT_DT_F32, "2", 0);
    const struct ckpt_adapt_options options = {
        .contiguous = CKPT_ON, .layout = CKPT_LAYOUT_TORCH, .contiguous_except = "^flosw$"};
    struct ckpt_model *m;
    assert_int_equal(ckpt_model_build(c, &options, &m, NULL), 0);
    assert_string_equal(m->warnings[0].s,
                        "contiguous_except='^flosw$' matches no list; did you mean 'flows'?");
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void test_told(void **state) {
    (void)state;
    struct cases c = cases_open(CASES "lists.test");
    while (cases_more(&c)) {
        struct told t = {.c = toy_new()};
        toy_module(t.c, "", "", "zoo.Net", -1);
        while (cases_line(&c)) {
            if (strncmp(c.line, "module ", 7) == 0)
                add_module(&t, c.line + 7);
            else if (c.line[0] == '<')
                add_key(&t, c.line + 2);
            else
                check_told(&c, &t);
        }
        ckpt_model_free(t.m);
        ckpt_checkpoint_close(t.c);
    }
    fclose(c.f);
}

/* --- the plain model: for each number, count the smaller ones of its list --- */

struct naive {
    char prefix[128];
    unsigned long number;
};

/* As Rust's usize::from_str on 64 bits: a plus is allowed, zeros in front are. */
static bool naive_number(const char *s, unsigned long *out) {
    static const char most[] = "18446744073709551615";
    s += *s == '+';
    if (*s == '\0' || strspn(s, "0123456789") != strlen(s))
        return false;
    while (*s == '0')
        s++;
    if (strlen(s) > strlen(most) || (strlen(s) == strlen(most) && strcmp(s, most) > 0))
        return false;
    *out = strtoul(s, NULL, 10);
    return true;
}

static size_t naive_places(const char *key, struct naive *out) {
    char copy[128], *rest = copy, *s;
    size_t n = 0;
    strcpy(copy, key);
    while ((s = strsep(&rest, "."))) {
        unsigned long v;
        if (!naive_number(s, &v))
            continue;
        snprintf(out[n].prefix, sizeof out[n].prefix, "%.*s", (int)(s - copy) - (s != copy), key);
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
    char copy[128], *rest = copy, *s;
    size_t at = 0;
    strcpy(copy, key);
    *out = '\0';
    while ((s = strsep(&rest, "."))) {
        char number[24];
        unsigned long v;
        const bool is_number = naive_number(s, &v);
        if (is_number) {
            assert_true(at < places);
            snprintf(number, sizeof number, "%zu", naive_rank(all, n, &own[at++]));
        }
        strcat(strcat(out, s != copy ? "." : ""), is_number ? number : s);
    }
}

static void random_key(char *out) {
    static const char *const words[] = {"a",
                                        "b",
                                        "1",
                                        "2",
                                        "5",
                                        "11",
                                        "30",
                                        "+7",
                                        "007",
                                        "7",
                                        "-1",
                                        "+",
                                        "",
                                        "18446744073709551615",
                                        "18446744073709551616"};
    const int parts = 1 + (int)property_below(4);
    *out = '\0';
    for (int i = 0; i < parts; i++)
        strcat(strcat(out, i ? "." : ""), words[property_below(15)]);
}

static void test_random(void **state) {
    (void)state;
    property_begin("contiguous");
    for (int round = 0; round < 300; round++) {
        struct ckpt_arena a = {0};
        char before[KEYS][128];
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
            char expected[192];
            naive_rewrite(before[i], all, n, expected);
            assert_string_equal(key[i].s, expected);
        }
        ckpt_arena_fini(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_no_such_list),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
