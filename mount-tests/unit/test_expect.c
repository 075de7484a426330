/* -o expect=: cases/expect.test, and lists in files that burn saved. */
#include "toy.h"

#include <unistd.h>

#include "adapters/expect.h"
#include "adapters/model.h"
#include "base/cleanup.h"

static const char *const outcome_names[] = {
    [CKPT_EXPECT_APPLIED] = "applied", [CKPT_EXPECT_WIDTH] = "width",
    [CKPT_EXPECT_MISSING] = "missing", [CKPT_EXPECT_SHAPE] = "shape",
    [CKPT_EXPECT_DTYPE] = "dtype",
};

/* Names and shapes are to stay as a case has them. */
static int build(const struct ckpt_checkpoint *c, const char *expect, bool strict,
                 struct ckpt_model **m, struct ckpt_err *err) {
    const struct ckpt_adapt_options options = {
        .layout = CKPT_LAYOUT_SOURCE, .expect = expect, .strict = strict};
    return ckpt_model_build(c, &options, m, err);
}

static void show(struct ckpt_str *out, const struct ckpt_model *m) {
    const struct ckpt_expect *e = m->expect;
    size_t counted = 0;
    for (size_t i = 0; i < e->nrecords; i++) {
        const struct ckpt_expect_record *r = &e->record[i];
        ckpt_str_printf(out, "> %s %s", outcome_names[r->outcome], r->parameter->name.s);
        if (r->tensor != CKPT_EXPECT_NONE)
            ckpt_str_printf(out, " %s", m->tensor[r->tensor].key.s);
        ckpt_str_puts(out, "\n");
    }
    for (size_t i = 0; i < e->nunused; i++) {
        const char *key = m->tensor[e->unused[i]].key.s;
        ckpt_str_printf(out, "> %s %s\n",
                        ckpt_expect_is_usual(ckpt_text_of(key)) ? "usual" : "unused", key);
    }
    for (size_t i = 0; i < CKPT_EXPECT_OUTCOMES; i++)
        counted += e->count[i];
    assert_int_equal(counted, e->nrecords);
}

static char list_path[] = "/tmp/test_expect.XXXXXX";

static void write_list(const struct ckpt_str *json) {
    FILE *f = fopen(list_path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(json->s ? json->s : "", 1, json->n, f), json->n);
    assert_int_equal(fclose(f), 0);
}

struct expectation {
    struct ckpt_checkpoint *c;
    struct ckpt_str json, outcome, message;
};

static void read_case(struct cases *c, struct expectation *x) {
    *x = (struct expectation){.c = toy_new()};
    while (cases_line(c)) {
        char key[100], dtype[20], shape[50];
        if (sscanf(c->line, "t %99s %19s %49s", key, dtype, shape) == 3)
            toy_tensor(x->c, key, ckpt_dtype_by_name(ckpt_text_of(dtype)),
                       strcmp(shape, "-") == 0 ? "" : shape, 0);
        else if (c->line[0] == '=')
            ckpt_str_puts(&x->json, c->line + 1 + (c->line[1] == ' '));
        else if (c->line[0] == '!')
            ckpt_str_puts(&x->message, c->line + 2);
        else
            ckpt_str_printf(&x->outcome, "%s\n", c->line);
    }
}

/* What is missing or would be refused is a warning, and nothing else is. */
static void check_warnings(const struct ckpt_checkpoint *c, const struct ckpt_model *m) {
    const size_t *count = m->expect->count;
    struct ckpt_model *strict = NULL;
    size_t warnings = 0;
    for (size_t i = 0; i < m->nwarnings; i++)
        warnings += strstr(m->warnings[i].s, "expect=test_expect.") != NULL;
    assert_int_equal(warnings, (count[CKPT_EXPECT_MISSING] > 0) + (count[CKPT_EXPECT_SHAPE] > 0) +
                                   (count[CKPT_EXPECT_DTYPE] > 0));
    if (m->nwarnings == warnings)
        assert_int_equal(build(c, list_path, true, &strict, NULL), warnings ? -EINVAL : 0);
    ckpt_model_free(strict);
}

static void check_case(struct cases *c) {
    struct expectation x;
    CKPT_AUTO(str) struct ckpt_str got = {0};
    struct ckpt_model *m = NULL;
    struct ckpt_err err = {0};
    read_case(c, &x);
    write_list(&x.json);
    const int rc = x.json.n ? build(x.c, list_path, false, &m, &err) : 0;
    if (x.json.n == 0) {
        assert_int_equal(x.c->ntensors, 0); /* only a comment */
    } else if (x.message.n) {
        assert_true(rc < 0);
        assert_non_null(strstr(err.text, "expect=test_expect."));
        if (!strstr(err.text, x.message.s))
            fail_msg("%s:%u: %s", c->name, c->number, err.text);
    } else {
        if (rc)
            fail_msg("%s:%u: %s", c->name, c->number, err.text);
        show(&got, m);
        cases_equal(c, ckpt_str_text(&got).s, ckpt_str_text(&x.outcome).s);
        check_warnings(x.c, m);
    }
    ckpt_model_free(m);
    ckpt_checkpoint_close(x.c);
    ckpt_str_fini(&x.json);
    ckpt_str_fini(&x.outcome);
    ckpt_str_fini(&x.message);
}

static void all_cases(void **state) {
    (void)state;
    struct cases c = cases_open(CASES "expect.test");
    unsigned checked = 0;
    while (cases_more(&c)) {
        check_case(&c);
        checked++;
    }
    fclose(c.f);
    assert_true(checked >= 25);
}

/* The file that burn saved of a model, as its list. */
static void saved_by_burn(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_model *m = NULL;
    const struct ckpt_adapt_options options = {.expect = FIXTURES "/burnpack/a1.bpk",
                                               .strict = true};
    assert_int_equal(ckpt_checkpoint_open(FIXTURES "/a1/a1_state.pt", NULL, &c, NULL), 0);
    assert_int_equal(ckpt_model_build(c, &options, &m, NULL), 0);
    assert_string_equal(m->expect->file, "a1.bpk");
    assert_int_equal(m->expect->count[CKPT_EXPECT_APPLIED], 4);
    assert_int_equal(m->expect->nunused, 0);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

/* A quantised tensor is a parameter, of which nothing but the name is known. */
static void quantised(void **state) {
    (void)state;
    struct ckpt_parameters list = {0};
    struct ckpt_arena a = {0};
    assert_int_equal(ckpt_parameters_read(&list, &a, FIXTURES "/burnpack/dtypes.bpk", NULL), 0);
    size_t bare = 0;
    for (size_t i = 0; i < list.n; i++)
        if (!list.at[i].has_shape) {
            assert_string_equal(list.at[i].name.s, "quantised");
            assert_int_equal(list.at[i].dtype, CKPT_DT_NONE);
            bare++;
        }
    assert_int_equal(list.n, 18);
    assert_int_equal(bare, 1);
    ckpt_parameters_fini(&list);
    ckpt_arena_fini(&a);
}

static int make_list(void **state) {
    (void)state;
    const int fd = mkstemp(list_path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_list(void **state) {
    (void)state;
    return unlink(list_path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cases),
        cmocka_unit_test(saved_by_burn),
        cmocka_unit_test(quantised),
    };
    return cmocka_run_group_tests(tests, make_list, remove_list);
}
