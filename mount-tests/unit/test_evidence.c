/* What a module is, and who says so: cases/evidence.test. */
#include "toy.h"

#include "adapters/evidence.h"
#include "adapters/model.h"

struct one {
    struct ckpt_checkpoint *c;
    struct ckpt_mapping kind[4];
    size_t nkind;
    char path[256];
    int32_t module;
    struct ckpt_model *m;
    size_t warning;
    bool store;
};

static void take_kind(struct one *o, const char *line) {
    const char *s = ckpt_arena_printf(&o->c->arena, "%s", line), *arrow = strstr(s, "=>");
    assert_non_null(arrow);
    o->kind[o->nkind++] = (struct ckpt_mapping){
        .pattern = {s, (size_t)(arrow - s)}, .value = ckpt_text_of(arrow + 2), .where = "kind="};
}

static void take_tensor(struct one *o, char *line) {
    char *space = strchr(line, ' ');
    if (space)
        *space = '\0';
    const char *key =
        ckpt_arena_printf(&o->c->arena, "%s%s%s", o->path, o->path[0] ? "." : "", line);
    char *dtype = space ? strchr(space + 1, ' ') : NULL;
    if (dtype)
        *dtype = '\0';
    toy_tensor(o->c, key, dtype ? CKPT_DT_I8 : CKPT_DT_F32, space ? space + 1 : "", 0)->module =
        o->module;
}

static void build(struct one *o) {
    const struct ckpt_adapt_options options = {
        .kind = o->kind, .nkind = o->nkind, .modules_store = o->store};
    struct ckpt_err err = {0};
    if (!o->m && ckpt_model_build(o->c, &options, &o->m, &err))
        fail_msg("%s", err.text);
}

static void check_decision(const struct cases *c, const struct one *o) {
    char got[256];
    const struct ckpt_adapted *t = &o->m->tensor[0];
    snprintf(got, sizeof got, "= %s %s", t->module.kind ? t->module.kind : "-",
             t->module.decided_by ? t->module.decided_by : "-");
    cases_equal(c, got, c->line);
    assert_true(ckpt_text_is(t->module.path, o->path));
    for (size_t i = 1; i < o->m->ntensors; i++) /* all tensors of a module say the same */
        assert_ptr_equal(o->m->tensor[i].module.kind, t->module.kind);
}

static void check_warning(const struct cases *c, struct one *o) {
    const char *got = o->warning < o->m->nwarnings ? o->m->warnings[o->warning++].s : "none";
    if (!strstr(got, c->line + 2))
        fail_msg("%s:%u: warning: %s", c->name, c->number, got);
}

static void check_case(struct cases *c) {
    struct one o = {.c = toy_new(), .module = -1};
    while (cases_line(c)) {
        if (strncmp(c->line, "path ", 5) == 0) {
            strcpy(o.path, c->line + 5);
        } else if (strncmp(c->line, "class ", 6) == 0) {
            o.module = toy_module(o.c, "", o.path, c->line + 6, -1);
        } else if (strncmp(c->line, "kind ", 5) == 0) {
            take_kind(&o, c->line + 5);
        } else if (strcmp(c->line, "store") == 0) {
            o.store = true;
        } else if (c->line[0] == '=') {
            build(&o);
            check_decision(c, &o);
        } else if (c->line[0] == '!') {
            check_warning(c, &o);
        } else {
            take_tensor(&o, c->line);
        }
    }
    if (o.m && o.warning != o.m->nwarnings)
        fail_msg("%s:%u: warning: %s", c->name, c->number, o.m->warnings[o.warning].s);
    ckpt_model_free(o.m);
    ckpt_checkpoint_close(o.c);
}

static void test_cases(void **state) {
    (void)state;
    struct cases c = cases_open(CASES "evidence.test");
    while (cases_more(&c))
        check_case(&c);
    fclose(c.f);
}

/* The square c_proj of a GPT-2 is what the oblong one is. */
static void test_like_conv1d(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = toy_new();
    toy_tensor(c, "h.0.attn.c_proj.weight", CKPT_DT_F32, "4,4", 0);
    toy_tensor(c, "h.0.attn.c_proj.bias", CKPT_DT_F32, "4", 0);
    toy_tensor(c, "h.0.mlp.c_proj.weight", CKPT_DT_F32, "16,4", 0);
    toy_tensor(c, "h.0.mlp.c_proj.bias", CKPT_DT_F32, "4", 0);
    const struct ckpt_adapt_options o = {0};
    struct ckpt_model *m;
    assert_int_equal(ckpt_model_build(c, &o, &m, NULL), 0);
    assert_string_equal(m->tensor[0].module.kind, "conv1d_hf");
    assert_string_equal(m->tensor[0].module.decided_by, "name");
    assert_string_equal(m->tensor[2].module.decided_by, "structure");
    assert_int_equal(m->ntransposed, 0);
    assert_int_equal(m->nwarnings, 1);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void test_unknown_kind(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = toy_new();
    const struct ckpt_mapping kind = {CKPT_TEXT("a"), CKPT_TEXT("liner"), "kind="};
    const struct ckpt_adapt_options o = {.kind = &kind, .nkind = 1};
    struct ckpt_model *m;
    struct ckpt_err err;
    assert_int_equal(ckpt_model_build(c, &o, &m, &err), -EINVAL);
    assert_string_equal(err.text,
                        "kind='a': no kind of module is called 'liner'; did you mean 'linear'?");
    ckpt_checkpoint_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_like_conv1d),
        cmocka_unit_test(test_unknown_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
