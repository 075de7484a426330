/* The rule engine: cases/rule.test shows what rules make of tensors, element by element, and
 * cases/bad_rules.test what a rule file may not say. */
#include "toy.h"

#include <unistd.h>

#include "adapters/model.h"
#include "adapters/rule.h"

/* Elements [first, first + n) of a part, by stepping through its walk as plainly as can be. */
static void print_part(const struct ckpt_part *p, int64_t first, int64_t n, struct ckpt_str *s) {
    if (!p->walk) {
        for (int64_t i = 0; i < n; i++)
            ckpt_str_puts(s, " 0");
        return;
    }
    struct ckpt_pin pin;
    const struct ckpt_walk *w = p->walk;
    assert_int_equal(
        p->source->blob->ops->pin(p->source->blob, 0, p->source->blob->size, &pin, NULL, NULL), 0);
    for (int64_t i = first; i < first + n; i++) {
        int64_t at = w->offset, rest = i;
        for (uint32_t d = w->npairs; d-- > 0; rest /= w->pair[d].size)
            at += rest % w->pair[d].size * w->pair[d].stride;
        uint32_t element;
        memcpy(&element, pin.data + at, sizeof element);
        ckpt_str_printf(s, " %u", element);
    }
    p->source->blob->ops->unpin(p->source->blob, &pin);
}

static void print_tensor(const struct ckpt_adapted *t, struct ckpt_str *s) {
    ckpt_str_printf(s, "> %s [", t->key.s);
    for (uint32_t d = 0; d < t->ndim; d++)
        ckpt_str_printf(s, "%s%d", d ? "," : "", (int)t->shape[d]);
    ckpt_str_puts(s, "]");
    for (const char *const *op = t->ops; *op; op++)
        ckpt_str_printf(s, " %s", *op);
    ckpt_str_puts(s, " :");
    const int64_t turns = t->turns > 1 ? (int64_t)t->turns : 1;
    for (int64_t turn = 0; turn < turns; turn++) {
        for (uint32_t i = 0; i < t->nparts; i++) {
            const int64_t share = (int64_t)t->part[i].nbytes / 4 / turns;
            print_part(&t->part[i], turn * share, share, s);
        }
    }
}

struct one {
    struct ckpt_checkpoint *c;
    struct ckpt_model *m;
    char file[64];
    uint32_t elements; /* so far */
    size_t tensor;
    bool built;
    struct ckpt_err err;
};

static void write_rules(struct one *o, const char *json) {
    snprintf(o->file, sizeof o->file, "/tmp/ckpt-test-rule.%d/case", (int)getpid());
    FILE *f = fopen(o->file, "w");
    assert_non_null(f);
    fputs(json, f);
    fclose(f);
}

static void take_source(struct one *o, char *line) {
    char *shape = strchr(line, ' ');
    assert_non_null(shape);
    *shape++ = '\0';
    const struct ckpt_tensor *t = toy_tensor(o->c, line, CKPT_DT_F32, shape, o->elements);
    o->elements += (uint32_t)ckpt_tensor_count(t);
}

static void check_line(const struct cases *c, struct one *o) {
    const struct ckpt_adapt_options options = {.layout = CKPT_LAYOUT_TORCH, .rules = o->file};
    if (!o->built)
        (void)!ckpt_model_build(o->c, &options, &o->m, &o->err);
    o->built = true;
    if (c->line[0] == '!') {
        if (o->m || !strstr(o->err.text, c->line + 2))
            fail_msg("%s:%u: %s", c->name, c->number, o->m ? "no error" : o->err.text);
        return;
    }
    if (!o->m)
        fail_msg("%s:%u: %s", c->name, c->number, o->err.text);
    assert_true(o->tensor < o->m->ntensors);
    struct ckpt_str s = {0};
    print_tensor(&o->m->tensor[o->tensor++], &s);
    cases_equal(c, s.s, c->line);
    ckpt_str_fini(&s);
}

static void test_cases(void **state) {
    (void)state;
    struct cases c = cases_open(CASES "rule.test");
    while (cases_more(&c)) {
        struct one o = {.c = toy_new()};
        while (cases_line(&c)) {
            if (c.line[0] == '{')
                write_rules(&o, c.line);
            else if (c.line[0] == '<')
                take_source(&o, c.line + 2);
            else
                check_line(&c, &o);
        }
        if (o.m && o.tensor != o.m->ntensors)
            fail_msg("%s:%u: %zu tensors", c.name, c.number, o.m->ntensors);
        ckpt_model_free(o.m);
        ckpt_checkpoint_close(o.c);
        unlink(o.file);
    }
    fclose(c.f);
}

/* What warned of, rule by rule, is what took nothing and asked for nothing beside. */
static void test_unused(void **state) {
    (void)state;
    struct one o = {.c = toy_new()};
    toy_tensor(o.c, "attn.qkv.weight", CKPT_DT_F32, "6,2", 0);
    write_rules(&o, "{\"rules\": [{\"match\": \"attn\\\\.qkv\\\\.wieght\"},"
                    "{\"match\": \".*weight\", \"rank\": 1},"
                    "{\"match\": \"x\", \"when\": {\"exists\": \"y\"}},"
                    "{\"match\": \".*weight\"}]}");
    const struct ckpt_adapt_options options = {.layout = CKPT_LAYOUT_TORCH, .rules = o.file};
    assert_int_equal(ckpt_model_build(o.c, &options, &o.m, &o.err), 0);
    assert_int_equal(o.m->nwarnings, 1);
    assert_string_equal(
        o.m->warnings[0].s,
        "rules=case: 2 of 4 rules took no tensor: rule 1 'attn\\.qkv\\.wieght'; did "
        "you mean 'attn.qkv.weight'?; rule 2 '.*weight'; --inspect --explain KEY "
        "says why");
    ckpt_model_free(o.m);
    ckpt_checkpoint_close(o.c);
    unlink(o.file);
}

static void test_bad_files(void **state) {
    (void)state;
    struct cases c = cases_open(CASES "bad_rules.test");
    unsigned checked = 0;
    while (cases_more(&c)) {
        char text[4096] = "";
        while (cases_line(&c)) {
            if (c.line[0] != '!') {
                strcpy(text, c.line);
                continue;
            }
            struct ckpt_rules *rules;
            struct ckpt_err err = {0};
            assert_int_equal(ckpt_rules_parse(text, strlen(text), "FILE", &rules, &err), -EINVAL);
            cases_equal(&c, err.text, c.line + 2);
            checked++;
        }
    }
    fclose(c.f);
    assert_true(checked > 30);
}

static void test_builtin(void **state) {
    (void)state;
    struct ckpt_rules *rules;
    assert_int_equal(ckpt_rules_builtin("burn-store", &rules, NULL), 0);
    assert_int_equal(rules->nrules, 3);
    ckpt_rules_free(rules);
    assert_int_equal(ckpt_rules_builtin("burn-nn", &rules, NULL), 0);
    ckpt_rules_free(rules);
    assert_int_equal(ckpt_rules_builtin("nothing", &rules, NULL), -ENOENT);
}

static void test_file_limits(void **state) {
    (void)state;
    struct ckpt_rules *rules;
    struct ckpt_err err;
    char *big = malloc(CKPT_RULE_FILE_BYTES + 1);
    memset(big, ' ', CKPT_RULE_FILE_BYTES + 1);
    assert_int_equal(ckpt_rules_parse(big, CKPT_RULE_FILE_BYTES + 1, "F", &rules, &err), -EINVAL);
    free(big);
    assert_int_equal(ckpt_rules_parse("{\"rules\": [\xff]}", 13, "F", &rules, &err), -EINVAL);
    assert_string_equal(err.text, "F: not UTF-8 text at byte 11 (line 1, column 12)");
    assert_int_equal(ckpt_rules_parse("{\n \"rules\":\n []]}", 17, "F", &rules, &err), -EINVAL);
    assert_string_equal(err.text, "F: not JSON at byte 15 (line 3, column 4)");
    assert_int_equal(ckpt_rules_load("/nonexistent/dir/r.json", &rules, &err), -ENOENT);
    assert_string_equal(err.text, "rules=r.json: No such file or directory");
}

static int make_folder(void **state) {
    (void)state;
    char folder[64];
    snprintf(folder, sizeof folder, "mkdir -p /tmp/ckpt-test-rule.%d", (int)getpid());
    return system(folder);
}

static int remove_folder(void **state) {
    (void)state;
    char folder[64];
    snprintf(folder, sizeof folder, "/tmp/ckpt-test-rule.%d", (int)getpid());
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),       cmocka_unit_test(test_unused),
        cmocka_unit_test(test_bad_files),   cmocka_unit_test(test_builtin),
        cmocka_unit_test(test_file_limits),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
