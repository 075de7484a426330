/* Which part is the model, and where its tensors lie: cases/select.test. */
#include "toy.h"

#include "adapters/model.h"

static struct ckpt_model *build(struct ckpt_checkpoint *c, const struct ckpt_adapt_options *o) {
    struct ckpt_model *m;
    struct ckpt_err err = {0};
    if (ckpt_model_build(c, o, &m, &err))
        fail_msg("%s", err.text);
    return m;
}

static void print_choice(const struct ckpt_model *m, struct ckpt_str *s) {
    ckpt_str_printf(s, "= root=%s prefix=%s suggest=%s others=", m->root.s, m->prefix.s,
                    m->suggested_prefix.s);
    for (size_t i = 0; i < m->ncandidates; i++)
        ckpt_str_printf(s, "%s%s", i ? "," : "", m->candidates[i].s);
}

static void print_tensor(const struct ckpt_adapted *t, struct ckpt_str *s) {
    ckpt_str_printf(s, "> %.*s ", CKPT_TEXT_ARGS(t->key));
    for (uint32_t i = 0; i < t->path.n; i++)
        ckpt_str_printf(s, "%s%.*s", i ? "/" : "", CKPT_TEXT_ARGS(t->path.segment[i]));
}

static bool take_input(const char *line, struct ckpt_checkpoint *c, struct ckpt_adapt_options *o) {
    if (strchr("=>!", line[0]))
        return false;
    if (strncmp(line, "value ", 6) == 0) {
        static const struct ckpt_value none = {.kind = CKPT_VALUE_NONE};
        assert_int_equal(ckpt_checkpoint_add_value(c, toy_path(&c->arena, line + 6), &none), 0);
    } else if (strncmp(line, "module", 6) == 0 && line[6] != '.' && line[6] != '/') {
        toy_module(c, line[6] ? line + 7 : "", "", "user.Net", -1);
    } else if (strncmp(line, "root ", 5) == 0) {
        o->root = ckpt_arena_printf(&c->arena, "%s", line + 5);
    } else if (strcmp(line, "keep") == 0) {
        o->prefix_keep = true;
    } else if (strncmp(line, "layout ", 7) == 0) {
        o->layout = line[7] == 's' ? CKPT_LAYOUT_SOURCE : CKPT_LAYOUT_TORCH;
    } else {
        toy_tensor(c, line, CKPT_DT_F32, "2,3", 0);
    }
    return true;
}

static void check_case(struct cases *c) {
    struct ckpt_checkpoint *k = toy_new();
    struct ckpt_adapt_options o = {.layout = CKPT_LAYOUT_TORCH};
    struct ckpt_model *m = NULL;
    size_t tensor = 0, warning = 0;
    while (cases_line(c)) {
        if (take_input(c->line, k, &o))
            continue;
        struct ckpt_str s = {0};
        if (!m)
            m = build(k, &o);
        if (c->line[0] == '=')
            print_choice(m, &s);
        else if (c->line[0] == '>' && tensor < m->ntensors)
            print_tensor(&m->tensor[tensor++], &s);
        else if (c->line[0] == '!' && warning < m->nwarnings)
            ckpt_str_printf(&s, "! %s", m->warnings[warning++].s);
        cases_equal(c, ckpt_str_text(&s).s, c->line);
        ckpt_str_fini(&s);
    }
    if (m && warning != m->nwarnings)
        fail_msg("%s:%u: warning: %s", c->name, c->number, m->warnings[warning].s);
    ckpt_model_free(m);
    ckpt_checkpoint_close(k);
}

static void test_cases(void **state) {
    (void)state;
    struct cases c = cases_open(CASES "select.test");
    while (cases_more(&c))
        check_case(&c);
    fclose(c.f);
}

static void test_bare_tensor(void **state) {
    (void)state;
    struct ckpt_checkpoint *k = toy_new();
    toy_tensor(k, "", CKPT_DT_F32, "2", 0);
    for (int layout = CKPT_LAYOUT_BURN; layout <= CKPT_LAYOUT_SOURCE; layout++) {
        const struct ckpt_adapt_options o = {.layout = (enum ckpt_layout)layout};
        struct ckpt_model *m = build(k, &o);
        assert_true(ckpt_text_is(m->tensor[0].key, "tensor"));
        assert_int_equal(m->tensor[0].path.n, 1);
        assert_true(m->tensor[0].in_model && m->tensor[0].untouched);
        ckpt_model_free(m);
    }
    ckpt_checkpoint_close(k);
}

static void test_empty(void **state) {
    (void)state;
    struct ckpt_checkpoint *k = toy_new();
    const struct ckpt_adapt_options o = {0};
    struct ckpt_model *m = build(k, &o);
    assert_int_equal(m->ntensors, 0);
    assert_string_equal(m->root.s, "");
    ckpt_model_free(m);
    ckpt_checkpoint_close(k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_bare_tensor),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
