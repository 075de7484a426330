/*
 * Statements. Those that are never run (loops that only a run can end, with, nested functions) are
 * kept by their first word, so that a file is read whose functions nobody calls.
 */
#include "base/array.h"
#include "formats/script_parse.h"

static int parse_statement(struct script_parser *p, struct script_stmt *s);

static int push_stmt(struct script_parser *p, const struct script_stmt *s) {
    if (!ckpt_array_grow(&p->stmt, p->nstmts, &p->stmts_cap, sizeof *p->stmt))
        return script_parse_fail_memory(p);
    p->stmt[p->nstmts++] = *s;
    return 0;
}

/* Gives the block what was pushed since there were `start`. */
static int take_stmts(struct script_parser *p, size_t start, struct script_block *out) {
    const size_t n = p->nstmts - start;
    struct script_stmt *const copy = ckpt_arena_array(p->arena, n, sizeof *copy);
    if (!copy)
        return script_parse_fail_memory(p);
    if (n)
        memcpy(copy, &p->stmt[start], n * sizeof *copy);
    *out = (struct script_block){copy, n};
    p->nstmts = start;
    return 0;
}

static int parse_statements(struct script_parser *p, struct script_block *out) {
    const size_t start = p->nstmts;
    int rc = 0;
    while (rc == 0 && p->lex.token != SCRIPT_DEDENT && p->lex.token != SCRIPT_EOF) {
        struct script_stmt s = {.line = p->lex.line, .text = CKPT_TEXT("")};
        const bool is_pass = script_parse_at_word(p, "pass");
        rc = is_pass ? script_lex(&p->lex) : parse_statement(p, &s);
        if (rc == 0 && is_pass)
            rc = script_parse_expect(p, SCRIPT_NEWLINE, "the end of the line");
        else if (rc == 0)
            rc = push_stmt(p, &s);
    }
    return rc ? rc : take_stmts(p, start, out);
}

int script_parse_block(struct script_parser *p, struct script_block *out) {
    int rc = script_parse_enter(p);
    if (rc == 0)
        rc = script_parse_expect(p, ':', "a colon");
    if (rc == 0)
        rc = script_parse_expect(p, SCRIPT_NEWLINE, "the end of the line");
    if (rc == 0)
        rc = script_parse_expect(p, SCRIPT_INDENT, "an indented block");
    if (rc == 0)
        rc = parse_statements(p, out);
    if (rc == 0 && p->lex.token == SCRIPT_DEDENT)
        rc = script_lex(&p->lex);
    if (rc == 0)
        script_parse_leave(p);
    return rc;
}

/* --- assignments ------------------------------------------------------------------------------ */

/* The slots of the names in `left`; *fits is false where there is anything but names. */
static int take_targets(struct script_parser *p, const struct script_expr *left,
                        struct script_stmt *s, bool *fits) {
    const bool many = left->kind == SCRIPT_EXPR_TUPLE;
    const uint32_t n = many ? left->n : 1;
    uint32_t *const target = ckpt_arena_array(p->arena, n, sizeof *target);
    if (!target)
        return script_parse_fail_memory(p);
    *fits = true;
    for (uint32_t i = 0; i < n; i++) {
        const struct script_expr *const name = many ? left->arg[i].value : left;
        *fits = *fits && name->kind == SCRIPT_EXPR_NAME;
        target[i] = *fits ? name->slot : 0;
    }
    s->target = target;
    s->ntargets = n;
    return 0;
}

static int parse_assignment(struct script_parser *p, const struct script_expr *left,
                            struct script_stmt *s) {
    bool fits = false;
    s->kind = SCRIPT_STMT_ASSIGN;
    s->unpacks = p->ended_in_comma;
    int rc = take_targets(p, left, s, &fits);
    if (rc == 0)
        rc = script_lex(&p->lex);
    if (rc == 0)
        rc = script_parse_tuple(p, &s->value);
    if (rc == 0 && !fits) {
        s->kind = SCRIPT_STMT_OTHER;
        s->text = CKPT_TEXT("an assignment to an attribute or item");
    }
    return rc;
}

/* The type in "x : Optional[Tensor] = value", which its value tells as well. */
static int skip_type(struct script_parser *p) {
    const struct script_expr *type;
    int rc = script_lex(&p->lex);
    if (rc == 0)
        rc = script_parse_expr(p, &type);
    if (rc == 0 && p->lex.token != '=')
        rc = script_lex_fail(&p->lex, "expected \"=\" behind a type");
    return rc;
}

static int parse_simple(struct script_parser *p, struct script_stmt *s) {
    const struct script_expr *left;
    s->kind = SCRIPT_STMT_EXPR;
    int rc = script_parse_tuple(p, &left);
    if (rc == 0 && p->lex.token == ':')
        rc = skip_type(p);
    if (rc == 0 && p->lex.token == '=')
        rc = parse_assignment(p, left, s);
    else
        s->value = left;
    return rc ? rc : script_parse_expect(p, SCRIPT_NEWLINE, "the end of the line");
}

/* --- compound statements ---------------------------------------------------------------------- */

static int parse_if(struct script_parser *p, struct script_stmt *s) {
    s->kind = SCRIPT_STMT_IF;
    int rc = script_lex(&p->lex);
    if (rc == 0)
        rc = script_parse_expr(p, &s->value);
    if (rc == 0)
        rc = script_parse_block(p, &s->body);
    if (rc || !script_parse_at_word(p, "else"))
        return rc;
    rc = script_lex(&p->lex);
    return rc ? rc : script_parse_block(p, &s->otherwise);
}

static int parse_for(struct script_parser *p, struct script_stmt *s) {
    uint32_t *const target = ckpt_arena_alloc(p->arena, sizeof *target);
    s->kind = SCRIPT_STMT_FOR;
    int rc = target ? script_lex(&p->lex) : script_parse_fail_memory(p);
    if (rc == 0 && p->lex.token == SCRIPT_NAME)
        rc = script_parse_slot(p, p->lex.text, target);
    s->target = target;
    s->ntargets = 1;
    if (rc == 0)
        rc = script_parse_expect(p, SCRIPT_NAME, "the name of what is counted");
    if (rc == 0 && !script_parse_at_word(p, "in"))
        rc = script_lex_fail(&p->lex, "expected \"in\"");
    if (rc == 0)
        rc = script_lex(&p->lex);
    if (rc == 0)
        rc = script_parse_expr(p, &s->value);
    return rc ? rc : script_parse_block(p, &s->body);
}

static int parse_return(struct script_parser *p, struct script_stmt *s) {
    s->kind = SCRIPT_STMT_RETURN;
    int rc = script_lex(&p->lex);
    if (rc == 0 && p->lex.token != SCRIPT_NEWLINE)
        rc = script_parse_tuple(p, &s->value);
    return rc ? rc : script_parse_expect(p, SCRIPT_NEWLINE, "the end of the line");
}

/* The rest of the line and, if one follows, an indented block. */
static int parse_other(struct script_parser *p, struct script_stmt *s) {
    unsigned blocks = 0;
    int rc = 0;
    s->kind = SCRIPT_STMT_OTHER;
    s->text = p->lex.text;
    while (rc == 0 && p->lex.token != SCRIPT_NEWLINE)
        rc = script_lex(&p->lex);
    if (rc == 0)
        rc = script_lex(&p->lex);
    if (rc || p->lex.token != SCRIPT_INDENT)
        return rc;
    do {
        blocks += p->lex.token == SCRIPT_INDENT;
        blocks -= p->lex.token == SCRIPT_DEDENT;
        rc = script_lex(&p->lex);
    } while (rc == 0 && blocks && p->lex.token != SCRIPT_EOF);
    return rc;
}

static const struct {
    const char *word;
    int (*parse)(struct script_parser *p, struct script_stmt *s);
} statements[] = {{"if", parse_if},         {"for", parse_for},      {"return", parse_return},
                  {"while", parse_other},   {"with", parse_other},   {"def", parse_other},
                  {"class", parse_other},   {"assert", parse_other}, {"raise", parse_other},
                  {"del", parse_other},     {"try", parse_other},    {"break", parse_other},
                  {"continue", parse_other}};

static int parse_statement(struct script_parser *p, struct script_stmt *s) {
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        if (script_parse_at_word(p, statements[i].word))
            return statements[i].parse(p, s);
    return parse_simple(p, s);
}
