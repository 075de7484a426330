/* What burn's modules are found to be, and what PyTorch calls them: cases/way_back.test. */
#include "toy.h"

#include "adapters/model.h"

struct one {
    struct ckpt_checkpoint *c;
    struct ckpt_mapping kind[4], map[4];
    size_t nkind, nmap, tensor, warning;
    struct ckpt_model *m;
};

static void take_source(struct one *o, char *line) {
    char *space = strchr(line, ' ');
    if (space)
        *space = '\0';
    toy_tensor(o->c, line, CKPT_DT_F32, space ? space + 1 : "", 0);
}

static void take_mapping(struct one *o, struct ckpt_mapping *to, size_t *n, const char *line) {
    const char *s = ckpt_arena_printf(&o->c->arena, "%s", line), *arrow = strstr(s, "=>");
    assert_non_null(arrow);
    to[(*n)++] = (struct ckpt_mapping){
        .pattern = {s, (size_t)(arrow - s)}, .value = ckpt_text_of(arrow + 2), .where = "-o "};
}

static void build(struct one *o) {
    const struct ckpt_adapt_options options = {.layout = CKPT_LAYOUT_TORCH,
                                               .dialect = "burn",
                                               .kind = o->kind,
                                               .nkind = o->nkind,
                                               .map = o->map,
                                               .nmap = o->nmap};
    struct ckpt_err err = {0};
    if (!o->m && ckpt_model_build(o->c, &options, &o->m, &err))
        fail_msg("%s", err.text);
}

/* "> KEY shape ops; PATH KIND BY" */
static void print_tensor(const struct ckpt_adapted *t, struct ckpt_str *s) {
    ckpt_str_printf(s, "> %s ", t->key.s);
    for (uint32_t d = 0; d < t->ndim; d++)
        ckpt_str_printf(s, "%s%d", d ? "," : "", (int)t->shape[d]);
    for (const char *const *op = t->ops; *op; op++)
        ckpt_str_printf(s, " %s", *op);
    if (t->module.kind)
        ckpt_str_printf(s, "; '%.*s' %s %s", CKPT_TEXT_ARGS(t->module.path), t->module.kind,
                        t->module.decided_by);
}

static void check_line(const struct cases *c, struct one *o) {
    build(o);
    if (c->line[0] == '!') {
        const char *got = o->warning < o->m->nwarnings ? o->m->warnings[o->warning++].s : "none";
        if (!strstr(got, c->line + 2))
            fail_msg("%s:%u: warning: %s", c->name, c->number, got);
        return;
    }
    assert_true(o->tensor < o->m->ntensors);
    struct ckpt_str s = {0};
    print_tensor(&o->m->tensor[o->tensor++], &s);
    cases_equal(c, s.s, c->line);
    ckpt_str_fini(&s);
}

static void check_case(struct cases *c) {
    struct one o = {.c = toy_new()};
    while (cases_line(c)) {
        if (c->line[0] == '<')
            take_source(&o, c->line + 2);
        else if (strncmp(c->line, "kind ", 5) == 0)
            take_mapping(&o, o.kind, &o.nkind, c->line + 5);
        else if (strncmp(c->line, "map ", 4) == 0)
            take_mapping(&o, o.map, &o.nmap, c->line + 4);
        else
            check_line(c, &o);
    }
    if (o.m && o.tensor != o.m->ntensors)
        fail_msg("%s:%u: %zu tensors", c->name, c->number, o.m->ntensors);
    if (o.m && o.warning != o.m->nwarnings)
        fail_msg("%s:%u: warning: %s", c->name, c->number, o.m->warnings[o.warning].s);
    ckpt_model_free(o.m);
    ckpt_checkpoint_close(o.c);
}

static void test_cases(void **state) {
    (void)state;
    struct cases c = cases_open(CASES "way_back.test");
    while (cases_more(&c))
        check_case(&c);
    fclose(c.f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
