#include "formats/script_parse.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "formats/limits.h"

/* Files: classes and functions, and before torch 1.6 a line "op_version_set = 1". */

/* What a file may define in all: maps are not in the arena, whose limit bounds the rest. */
static int count_definition(struct script_parser *p) {
    if (p->file->ndefinitions == CKPT_LIMIT_SCRIPT_DEFINITIONS)
        return ckpt_fail(p->err, -E2BIG,
                         "line %u: more than %u classes, functions and attributes (limit of "
                         "definitions)",
                         p->lex.line, CKPT_LIMIT_SCRIPT_DEFINITIONS);
    p->file->ndefinitions++;
    return 0;
}

/* --- functions -------------------------------------------------------------------------------- */

/* NAME: TYPE = STANDARD, or the star before those that are only given by name. */
static int parse_param(struct script_parser *p, struct script_param *param) {
    *param = (struct script_param){.name = p->lex.text};
    int rc = p->lex.token == SCRIPT_NAME ? script_parse_slot(p, p->lex.text, &param->slot) : 0;
    if (rc == 0)
        rc = script_parse_expect(p, SCRIPT_NAME, "the name of a parameter");
    if (rc == 0 && p->lex.token == ':') {
        rc = script_lex(&p->lex);
        if (rc == 0)
            rc = script_parse_expr(p, &param->type);
    }
    if (rc == 0 && p->lex.token == '=') {
        rc = script_lex(&p->lex);
        if (rc == 0)
            rc = script_parse_expr(p, &param->standard);
    }
    return rc;
}

/* A growing list while the parameters are read. */
struct params {
    struct script_param *param;
    size_t n, cap;
};

static int add_param(struct script_parser *p, struct params *all) {
    if (!ckpt_array_grow(&all->param, all->n, &all->cap, sizeof *all->param))
        return script_parse_fail_memory(p);
    struct script_param *const param = &all->param[all->n];
    const int rc = parse_param(p, param);
    for (size_t i = 0; rc == 0 && i < all->n; i++)
        if (all->param[i].slot == param->slot)
            return script_lex_fail(&p->lex, "two parameters have the name \"%.*s\"",
                                   CKPT_TEXT_ARGS(param->name));
    all->n += rc == 0;
    return rc;
}

#define PARAMS_MAX 1024 /* of one function; Python's own limit was 255 */

static int parse_params(struct script_parser *p, struct params *all) {
    int rc = script_parse_expect(p, '(', "\"(\" behind the function's name");
    while (rc == 0 && p->lex.token != ')') {
        if (all->n == PARAMS_MAX)
            return script_lex_fail(&p->lex, "more than %d parameters", PARAMS_MAX);
        rc = p->lex.token == '*' ? script_lex(&p->lex) : add_param(p, all);
        if (rc == 0 && p->lex.token != ')')
            rc = script_parse_expect(p, ',', "a comma or \")\"");
    }
    return rc ? rc : script_lex(&p->lex);
}

static int keep_params(struct script_parser *p, const struct params *all,
                       struct script_function *f) {
    struct script_param *const copy = ckpt_arena_array(p->arena, all->n, sizeof *copy);
    if (!copy)
        return script_parse_fail_memory(p);
    if (all->n)
        memcpy(copy, all->param, all->n * sizeof *copy);
    f->param = copy;
    f->nparams = (uint32_t)all->n;
    return 0;
}

static int parse_signature(struct script_parser *p, struct script_function *f) {
    struct params all = {0};
    int rc = parse_params(p, &all);
    if (rc == 0)
        rc = keep_params(p, &all, f);
    free(all.param);
    if (rc == 0 && p->lex.token == SCRIPT_ARROW) {
        const struct script_expr *returned;
        rc = script_lex(&p->lex);
        if (rc == 0)
            rc = script_parse_expr(p, &returned);
    }
    return rc;
}

/* Behind "def". */
static int parse_function(struct script_parser *p, struct script_function *f) {
    struct ckpt_strmap names = {0};
    *f = (struct script_function){.name = p->lex.text, .line = p->lex.line, .file = p->file};
    p->names = &names;
    p->nslots = 0;
    int rc = script_parse_expect(p, SCRIPT_NAME, "a function's name");
    if (rc == 0)
        rc = parse_signature(p, f);
    if (rc == 0)
        rc = script_parse_block(p, &f->body);
    f->nslots = p->nslots;
    p->names = NULL;
    ckpt_strmap_fini(&names);
    return rc;
}

/* A function of the map's owner; the map gets its index. */
static int add_function(struct script_parser *p, struct ckpt_strmap *map) {
    struct script_file *const file = p->file;
    if (!ckpt_array_grow(&file->functions, file->nfunctions, &file->functions_cap,
                         sizeof *file->functions))
        return script_parse_fail_memory(p);
    int rc = count_definition(p);
    if (rc == 0)
        rc = script_lex(&p->lex);
    struct script_function *const f = &file->functions[file->nfunctions];
    if (rc == 0)
        rc = parse_function(p, f);
    if (rc)
        return rc;
    rc = ckpt_strmap_add(map, f->name, file->nfunctions++, NULL);
    if (rc == -EEXIST)
        return ckpt_fail(p->err, -EINVAL, "line %u: \"%.*s\" is defined twice", f->line,
                         CKPT_TEXT_ARGS(f->name));
    return rc ? script_parse_fail_memory(p) : 0;
}

/* A line that means nothing to us: op_version_set = 1, import X, pass. */
static int skip_line(struct script_parser *p) {
    int rc = 0;
    while (rc == 0 && p->lex.token != SCRIPT_NEWLINE && p->lex.token != SCRIPT_EOF)
        rc = script_lex(&p->lex);
    return rc ? rc : script_lex(&p->lex);
}

/* --- classes ---------------------------------------------------------------------------------- */

/* The text in __annotations__["0"], or that of a name; .s NULL: it is neither. */
static struct ckpt_text attribute_name(const struct script_expr *e) {
    if (e->kind == SCRIPT_EXPR_NAME)
        return e->text;
    const bool is_item = e->kind == SCRIPT_EXPR_INDEX && e->base->kind == SCRIPT_EXPR_NAME &&
                         ckpt_text_is(e->base->text, "__annotations__") && e->n == 1 &&
                         e->arg[0].value->kind == SCRIPT_EXPR_TEXT;
    return is_item ? e->arg[0].value->text : (struct ckpt_text){NULL, 0};
}

static int keep_attribute(struct script_parser *p, struct script_class *cls,
                          const struct script_attribute *a) {
    if (ckpt_text_is(a->name, "__parameters__"))
        cls->parameters = a->value;
    if (ckpt_text_is(a->name, "__buffers__"))
        cls->buffers = a->value;
    if (!ckpt_array_grow(&cls->attribute, cls->nattributes, &cls->attributes_cap,
                         sizeof *cls->attribute))
        return script_parse_fail_memory(p);
    int rc = count_definition(p);
    if (rc)
        return rc;
    rc = ckpt_strmap_add(&cls->by_attribute, a->name, cls->nattributes, NULL);
    if (rc)
        return rc == -EEXIST
                   ? script_lex_fail(&p->lex, "\"%.*s\" is declared twice", CKPT_TEXT_ARGS(a->name))
                   : script_parse_fail_memory(p);
    cls->attribute[cls->nattributes++] = *a;
    return 0;
}

/* NAME : TYPE = VALUE, with or without one of both. */
static int parse_member(struct script_parser *p, struct script_class *cls) {
    const struct script_expr *name;
    struct script_attribute a = {0};
    int rc = script_parse_expr(p, &name);
    if (rc == 0 && p->lex.token == ':') {
        rc = script_lex(&p->lex);
        if (rc == 0)
            rc = script_parse_expr(p, &a.type);
    }
    if (rc == 0 && p->lex.token == '=') {
        rc = script_lex(&p->lex);
        if (rc == 0)
            rc = script_parse_expr(p, &a.value);
    }
    if (rc == 0)
        a.name = attribute_name(name);
    if (rc == 0 && a.name.s)
        rc = keep_attribute(p, cls, &a);
    return rc ? rc : script_parse_expect(p, SCRIPT_NEWLINE, "the end of the line");
}

static int parse_class_body(struct script_parser *p, struct script_class *cls) {
    int rc = 0;
    while (rc == 0 && p->lex.token != SCRIPT_DEDENT && p->lex.token != SCRIPT_EOF)
        rc = script_parse_at_word(p, "def")    ? add_function(p, &cls->by_method)
             : script_parse_at_word(p, "pass") ? skip_line(p)
                                               : parse_member(p, cls);
    if (rc == 0 && p->lex.token == SCRIPT_DEDENT)
        rc = script_lex(&p->lex);
    return rc;
}

/* (BASE):, behind the class's name. */
static int parse_class_head(struct script_parser *p, struct script_class *cls) {
    int rc = script_parse_expect(p, SCRIPT_NAME, "a class's name");
    if (rc == 0 && p->lex.token == '(') {
        rc = script_lex(&p->lex);
        cls->base = p->lex.text;
        if (rc == 0)
            rc = script_parse_expect(p, SCRIPT_NAME, "the name of a base");
        if (rc == 0)
            rc = script_parse_expect(p, ')', "\")\"");
    }
    if (rc == 0)
        rc = script_parse_expect(p, ':', "a colon");
    if (rc == 0)
        rc = script_parse_expect(p, SCRIPT_NEWLINE, "the end of the line");
    return rc ? rc : script_parse_expect(p, SCRIPT_INDENT, "an indented block");
}

static int parse_class(struct script_parser *p) {
    struct script_file *const file = p->file;
    if (!ckpt_array_grow(&file->classes, file->nclasses, &file->classes_cap, sizeof *file->classes))
        return script_parse_fail_memory(p);
    int rc = count_definition(p);
    if (rc == 0)
        rc = script_lex(&p->lex);
    if (rc)
        return rc;
    struct script_class *const cls = &file->classes[file->nclasses];
    *cls = (struct script_class){.name = p->lex.text, .base = CKPT_TEXT("")};
    rc = ckpt_strmap_add(&file->by_class, cls->name, file->nclasses++, NULL);
    if (rc)
        return rc == -EEXIST ? script_lex_fail(&p->lex, "class \"%.*s\" is defined twice",
                                               CKPT_TEXT_ARGS(cls->name))
                             : script_parse_fail_memory(p);
    rc = parse_class_head(p, cls);
    return rc ? rc : parse_class_body(p, cls);
}

/* --- the file --------------------------------------------------------------------------------- */

static int parse_top(struct script_parser *p) {
    if (script_parse_at_word(p, "class"))
        return parse_class(p);
    if (script_parse_at_word(p, "def"))
        return add_function(p, &p->file->by_function);
    if (script_parse_at_word(p, "op_version_set") || script_parse_at_word(p, "import"))
        return skip_line(p);
    return script_lex_fail(&p->lex, "expected a class or a function");
}

static int parse_file(struct script_parser *p) {
    int rc = script_lex(&p->lex);
    while (rc == 0 && p->lex.token != SCRIPT_EOF)
        rc = parse_top(p);
    return rc;
}

int script_parse(struct script_file *file, struct ckpt_text name, struct ckpt_text module,
                 struct ckpt_text source, struct ckpt_arena *arena, struct ckpt_err *err) {
    struct script_parser p = {.file = file, .arena = arena, .err = err};
    *file = (struct script_file){.name = name, .module = module};
    script_lexer_init(&p.lex, source, arena, err);
    int rc = parse_file(&p);
    if (rc == -ENOMEM)
        rc = script_parse_fail_memory(&p);
    free(p.arg);
    free(p.stmt);
    if (rc)
        script_file_fini(file);
    return rc ? ckpt_fail_in(err, "%.*s", CKPT_TEXT_ARGS(name)) : 0;
}

void script_file_fini(struct script_file *file) {
    for (size_t i = 0; i < file->nclasses; i++) {
        free(file->classes[i].attribute);
        ckpt_strmap_fini(&file->classes[i].by_attribute);
        ckpt_strmap_fini(&file->classes[i].by_method);
    }
    free(file->classes);
    free(file->functions);
    ckpt_strmap_fini(&file->by_class);
    ckpt_strmap_fini(&file->by_function);
    *file = (struct script_file){0};
}
