/* Modules that hold others, and what their children are called: cases/layers.test. */
#include "toy.h"

#include "adapters/evidence.h"
#include "adapters/model.h"
#include "base/cleanup.h"

struct one {
    struct ckpt_checkpoint *c;
    struct ckpt_mapping kind[4], map[4];
    struct ckpt_adapt_options options;
    struct ckpt_model *m;
    size_t tensor, warning;
};

static const char *keep(struct one *o, const char *text) {
    return ckpt_arena_printf(&o->c->arena, "%s", text);
}

static void take_mapping(struct one *o, struct ckpt_mapping *list, size_t *n, const char *text) {
    const char *s = keep(o, text), *arrow = strstr(s, "=>");
    assert_non_null(arrow);
    assert_true(*n < 4);
    list[(*n)++] = (struct ckpt_mapping){
        .pattern = {s, (size_t)(arrow - s)}, .value = ckpt_text_of(arrow + 2), .where = "OPTION="};
}

static struct ckpt_value *new_value(struct one *o, enum ckpt_value_kind kind, const char *text) {
    struct ckpt_value *v = ckpt_arena_alloc(&o->c->arena, sizeof *v);
    v->kind = (uint8_t)kind;
    if (kind == CKPT_VALUE_STR)
        v->text = ckpt_text_of(keep(o, text));
    else
        v->b = strcmp(text, "true") == 0;
    return v;
}

/* {"NAME": VALUE} of "NAME=VALUE". */
static struct ckpt_value *attribute(struct one *o, char *text) {
    char *value = strchr(text, '=');
    assert_non_null(value);
    *value++ = '\0';
    const bool flag = strcmp(value, "true") == 0 || strcmp(value, "false") == 0;
    struct ckpt_value *dict = ckpt_arena_alloc(&o->c->arena, sizeof *dict);
    dict->kind = CKPT_VALUE_DICT;
    dict->seq.item = ckpt_arena_array(&o->c->arena, 2, sizeof *dict->seq.item);
    dict->seq.item[0] = new_value(o, CKPT_VALUE_STR, text);
    dict->seq.item[1] = new_value(o, flag ? CKPT_VALUE_BOOL : CKPT_VALUE_STR, value);
    dict->seq.n = dict->seq.cap = 2;
    return dict;
}

static void take_class(struct one *o, char *line) {
    char *cls = strchr(line, ' '), *more;
    assert_non_null(cls);
    *cls++ = '\0';
    more = strchr(cls, ' ');
    if (more)
        *more++ = '\0';
    const int32_t at = toy_module(o->c, "", line, cls, -1);
    if (more)
        o->c->modules[at].attributes = attribute(o, more);
}

/* The module of a path; one that is only there to lead to the classes above it is made. */
static int32_t module_at(struct one *o, const char *path) {
    for (size_t i = 0; i < o->c->nmodules; i++)
        if (ckpt_text_is(o->c->modules[i].path, path))
            return (int32_t)i;
    const char *dot = strrchr(path, '.');
    if (!dot)
        return -1;
    const int32_t parent =
        module_at(o, ckpt_arena_printf(&o->c->arena, "%.*s", (int)(dot - path), path));
    return parent < 0 ? -1 : toy_module(o->c, "", path, "zoo.Plain", parent);
}

static void take_tensor(struct one *o, char *line) {
    char *shape = strchr(line, ' ');
    assert_non_null(shape);
    *shape++ = '\0';
    struct ckpt_tensor *t = toy_tensor(o->c, keep(o, line), CKPT_DT_F32, shape, 0);
    const char *dot = strrchr(line, '.');
    t->module =
        dot ? module_at(o, ckpt_arena_printf(&o->c->arena, "%.*s", (int)(dot - line), line)) : -1;
}

static void build(struct one *o) {
    struct ckpt_err err = {0};
    o->options.kind = o->kind;
    o->options.map = o->map;
    if (!o->m && ckpt_model_build(o->c, &o->options, &o->m, &err))
        fail_msg("%s", err.text);
}

static void check_tensor(const struct cases *c, struct one *o) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    build(o);
    if (o->tensor == o->m->ntensors)
        fail_msg("%s:%u: only %zu tensors", c->name, c->number, o->m->ntensors);
    const struct ckpt_adapted *t = &o->m->tensor[o->tensor++];
    ckpt_str_printf(&s, "> %s", t->key.s);
    const char *between = " ";
    for (const struct ckpt_decision *d = t->module.within; d; d = d->within) {
        if (!d->kind)
            continue;
        ckpt_str_printf(&s, "%s%s %s", between, d->kind, d->decided_by);
        between = ", ";
    }
    cases_equal(c, s.s, c->line);
}

static void check_warning(const struct cases *c, struct one *o) {
    const char *got = o->warning < o->m->nwarnings ? o->m->warnings[o->warning++].s : "none";
    if (!strstr(got, c->line + 2))
        fail_msg("%s:%u: warning: %s", c->name, c->number, got);
}

static void check_line(struct cases *c, struct one *o) {
    if (strncmp(c->line, "class ", 6) == 0)
        take_class(o, c->line + 6);
    else if (strncmp(c->line, "kind ", 5) == 0)
        take_mapping(o, o->kind, &o->options.nkind, c->line + 5);
    else if (strncmp(c->line, "map ", 4) == 0)
        take_mapping(o, o->map, &o->options.nmap, c->line + 4);
    else if (strcmp(c->line, "contiguous") == 0)
        o->options.contiguous = CKPT_ON;
    else if (c->line[0] == '<')
        take_tensor(o, c->line + 2);
    else if (c->line[0] == '>')
        check_tensor(c, o);
    else
        check_warning(c, o);
}

static void test_cases(void **state) {
    (void)state;
    struct cases c = cases_open(CASES "layers.test");
    while (cases_more(&c)) {
        struct one o = {.c = toy_new()};
        while (cases_line(&c))
            check_line(&c, &o);
        if (o.m && o.tensor != o.m->ntensors)
            fail_msg("%s:%u: %zu tensors", c.name, c.number, o.m->ntensors);
        if (o.m && o.warning != o.m->nwarnings)
            fail_msg("%s:%u: warning: %s", c.name, c.number, o.m->warnings[o.warning].s);
        ckpt_model_free(o.m);
        ckpt_checkpoint_close(o.c);
    }
    fclose(c.f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
