/*
 * Expressions. There are no operators but the minus of a number: TorchScript writes calls. Types
 * (List[Optional[Tensor]]) are expressions too.
 */
#include <errno.h>

#include "base/array.h"
#include "formats/limits.h"
#include "formats/script_parse.h"

int script_parse_fail_memory(const struct script_parser *p) {
    return ckpt_fail(p->err, -E2BIG,
                     "its code needs more memory than there is, or than the %u bytes that a script "
                     "may take (limit of a script's memory)",
                     CKPT_LIMIT_SCRIPT_ARENA);
}

int script_parse_enter(struct script_parser *p) {
    if (p->depth == CKPT_LIMIT_SCRIPT_NESTING)
        return ckpt_fail(p->err, -E2BIG, "line %u: nested more than %u deep (limit of nesting)",
                         p->lex.line, CKPT_LIMIT_SCRIPT_NESTING);
    p->depth++;
    return 0;
}

bool script_parse_at_word(const struct script_parser *p, const char *word) {
    return p->lex.token == SCRIPT_NAME && ckpt_text_is(p->lex.text, word);
}

int script_parse_expect(struct script_parser *p, int token, const char *what) {
    if (p->lex.token != token)
        return script_lex_fail(&p->lex, "expected %s", what);
    return script_lex(&p->lex);
}

int script_parse_slot(struct script_parser *p, struct ckpt_text name, uint32_t *slot) {
    size_t known = p->nslots;
    const int rc = ckpt_strmap_add(p->names, name, p->nslots, &known);
    if (rc && rc != -EEXIST)
        return script_parse_fail_memory(p);
    p->nslots += rc == 0;
    *slot = (uint32_t)known;
    return 0;
}

static struct script_expr *new_expr(struct script_parser *p, enum script_expr_kind kind) {
    struct script_expr *const e = ckpt_arena_alloc(p->arena, sizeof *e);
    if (e) {
        e->kind = (uint8_t)kind;
        e->line = p->lex.line;
    }
    return e;
}

/* --- lists of expressions --------------------------------------------------------------------- */

static int push_arg(struct script_parser *p, struct script_arg arg) {
    if (!ckpt_array_grow(&p->arg, p->nargs, &p->args_cap, sizeof *p->arg))
        return script_parse_fail_memory(p);
    p->arg[p->nargs++] = arg;
    return 0;
}

/* Gives e what was pushed since there were `start`. */
static int take_args(struct script_parser *p, size_t start, struct script_expr *e) {
    const size_t n = p->nargs - start;
    struct script_arg *const copy = ckpt_arena_array(p->arena, n, sizeof *copy);
    if (!copy || n > UINT32_MAX)
        return script_parse_fail_memory(p);
    if (n)
        memcpy(copy, &p->arg[start], n * sizeof *copy);
    e->arg = copy;
    e->n = (uint32_t)n;
    p->nargs = start;
    return 0;
}

/* "value", or where names are allowed "name=value". The name is parsed as an expression first. */
static int parse_argument(struct script_parser *p, bool named) {
    struct script_arg arg = {.name = CKPT_TEXT("")};
    int rc = script_parse_expr(p, &arg.value);
    if (rc == 0 && named && p->lex.token == '=' && arg.value->kind == SCRIPT_EXPR_NAME) {
        arg.name = arg.value->text;
        rc = script_lex(&p->lex);
        if (rc == 0)
            rc = script_parse_expr(p, &arg.value);
    }
    return rc ? rc : push_arg(p, arg);
}

/* Items up to the bracket that closes the list, with commas between and maybe behind. */
static int parse_items(struct script_parser *p, int close, bool named, bool *comma) {
    int rc = 0;
    *comma = false;
    while (rc == 0 && p->lex.token != close) {
        rc = parse_argument(p, named);
        *comma = p->lex.token == ',';
        if (rc == 0 && *comma)
            rc = script_lex(&p->lex);
        else if (rc == 0 && p->lex.token != close)
            rc = script_lex_fail(&p->lex, "expected a comma or \"%c\"", close);
    }
    return rc ? rc : script_lex(&p->lex);
}

/* From the opening bracket, which is the current token, to behind the closing one. */
static int parse_list(struct script_parser *p, int close, bool named, struct script_expr *e) {
    const size_t start = p->nargs;
    bool comma;
    int rc = script_lex(&p->lex);
    if (rc == 0)
        rc = parse_items(p, close, named, &comma);
    return rc ? rc : take_args(p, start, e);
}

/* (value), or a tuple. */
static int parse_parentheses(struct script_parser *p, const struct script_expr **out) {
    const size_t start = p->nargs;
    bool comma;
    struct script_expr *const e = new_expr(p, SCRIPT_EXPR_TUPLE);
    int rc = e ? script_lex(&p->lex) : script_parse_fail_memory(p);
    if (rc == 0)
        rc = parse_items(p, ')', false, &comma);
    if (rc)
        return rc;
    *out = e;
    if (p->nargs != start + 1 || comma)
        return take_args(p, start, e);
    *out = p->arg[start].value;
    p->nargs = start;
    return 0;
}

/* {key: value, ...} */
static int parse_dict(struct script_parser *p, struct script_expr *e) {
    const size_t start = p->nargs;
    int rc = script_lex(&p->lex);
    while (rc == 0 && p->lex.token != '}') {
        rc = parse_argument(p, false);
        if (rc == 0)
            rc = script_parse_expect(p, ':', "a colon behind a key");
        if (rc == 0)
            rc = parse_argument(p, false);
        if (rc == 0 && p->lex.token != '}')
            rc = script_parse_expect(p, ',', "a comma or \"}\"");
    }
    if (rc == 0)
        rc = script_lex(&p->lex);
    return rc ? rc : take_args(p, start, e);
}

/* --- atoms ------------------------------------------------------------------------------------ */

static int parse_name(struct script_parser *p, struct script_expr *e) {
    static const struct {
        const char *word;
        enum script_expr_kind kind;
        bool b;
    } words[] = {{"None", SCRIPT_EXPR_NONE, false},
                 {"True", SCRIPT_EXPR_BOOL, true},
                 {"False", SCRIPT_EXPR_BOOL, false}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (ckpt_text_is(p->lex.text, words[i].word)) {
            e->kind = (uint8_t)words[i].kind;
            e->b = words[i].b;
            return script_lex(&p->lex);
        }
    e->kind = SCRIPT_EXPR_NAME;
    e->text = p->lex.text;
    e->slot = UINT32_MAX;
    const int rc = p->names ? script_parse_slot(p, e->text, &e->slot) : 0;
    return rc ? rc : script_lex(&p->lex);
}

static int parse_integer(struct script_parser *p, struct script_expr *e, bool negative) {
    const uint64_t most = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    if (p->lex.u > most)
        return script_lex_fail(&p->lex, "the integer %s%llu does not fit into 64 bits",
                               negative ? "-" : "", (unsigned long long)p->lex.u);
    e->kind = SCRIPT_EXPR_INT;
    e->i = negative ? (int64_t)(0 - p->lex.u) : (int64_t)p->lex.u;
    return script_lex(&p->lex);
}

/* Behind a minus. */
static int parse_negated(struct script_parser *p, struct script_expr *e) {
    int rc = script_lex(&p->lex);
    if (rc == 0 && p->lex.token == SCRIPT_INT)
        return parse_integer(p, e, true);
    e->kind = SCRIPT_EXPR_NEGATED;
    return rc ? rc : script_parse_expr(p, &e->base);
}

static int parse_atom(struct script_parser *p, const struct script_expr **out) {
    if (p->lex.token == '(')
        return parse_parentheses(p, out);
    struct script_expr *const e = new_expr(p, SCRIPT_EXPR_NONE);
    *out = e;
    if (!e)
        return script_parse_fail_memory(p);
    switch (p->lex.token) {
    case SCRIPT_NAME:
        return parse_name(p, e);
    case SCRIPT_INT:
        return parse_integer(p, e, false);
    case SCRIPT_FLOAT:
        e->kind = SCRIPT_EXPR_FLOAT;
        e->f = p->lex.f;
        return script_lex(&p->lex);
    case SCRIPT_STRING:
        e->kind = SCRIPT_EXPR_TEXT;
        e->text = p->lex.text;
        return script_lex(&p->lex);
    case '-':
        return parse_negated(p, e);
    case '[':
        e->kind = SCRIPT_EXPR_LIST;
        return parse_list(p, ']', false, e);
    case '{':
        e->kind = SCRIPT_EXPR_DICT;
        return parse_dict(p, e);
    default:
        return script_lex_fail(&p->lex, "expected an expression");
    }
}

/* --- what follows an atom --------------------------------------------------------------------- */

static int parse_attribute(struct script_parser *p, struct script_expr *e) {
    const int rc = script_lex(&p->lex);
    if (rc)
        return rc;
    e->kind = SCRIPT_EXPR_ATTRIBUTE;
    e->text = p->lex.text;
    return script_parse_expect(p, SCRIPT_NAME, "a name behind the dot");
}

static int parse_postfix(struct script_parser *p, struct script_expr *e) {
    if (p->lex.token == '.')
        return parse_attribute(p, e);
    const bool call = p->lex.token == '(';
    e->kind = call ? SCRIPT_EXPR_CALL : SCRIPT_EXPR_INDEX;
    return parse_list(p, call ? ')' : ']', call, e);
}

static bool is_postfix(int token) {
    return token == '.' || token == '(' || token == '[';
}

/* Each of a chain's links counts as a level: whoever walks the tree goes as deep. */
static int parse_chain(struct script_parser *p, const struct script_expr **out) {
    const unsigned depth = p->depth;
    int rc = parse_atom(p, out);
    while (rc == 0 && is_postfix(p->lex.token)) {
        struct script_expr *const e = new_expr(p, SCRIPT_EXPR_CALL);
        rc = e ? script_parse_enter(p) : script_parse_fail_memory(p);
        if (rc)
            break;
        e->base = *out;
        rc = parse_postfix(p, e);
        *out = e;
    }
    p->depth = depth;
    return rc;
}

int script_parse_expr(struct script_parser *p, const struct script_expr **out) {
    int rc = script_parse_enter(p);
    if (rc)
        return rc;
    rc = parse_chain(p, out);
    script_parse_leave(p);
    return rc;
}

int script_parse_tuple(struct script_parser *p, const struct script_expr **out) {
    const size_t start = p->nargs;
    const uint32_t line = p->lex.line;
    int rc = parse_argument(p, false);
    p->ended_in_comma = false;
    if (rc == 0 && p->lex.token != ',') {
        *out = p->arg[start].value;
        p->nargs = start;
        return 0;
    }
    while (rc == 0 && p->lex.token == ',') {
        rc = script_lex(&p->lex);
        p->ended_in_comma = p->lex.token == '=' || p->lex.token == SCRIPT_NEWLINE;
        if (rc == 0 && !p->ended_in_comma)
            rc = parse_argument(p, false);
    }
    struct script_expr *const e = rc ? NULL : new_expr(p, SCRIPT_EXPR_TUPLE);
    *out = e;
    if (!e)
        return rc ? rc : script_parse_fail_memory(p);
    e->line = line;
    return take_args(p, start, e);
}
