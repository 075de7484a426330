#ifndef CKPT_FORMATS_SCRIPT_PARSE_H
#define CKPT_FORMATS_SCRIPT_PARSE_H
/* From tokens to the tree of script_ast.h (private to script_*.c). */
#include "formats/script_ast.h"
#include "formats/script_lex.h"

struct script_parser {
    struct script_lexer lex;
    struct script_file *file;
    struct ckpt_arena *arena;
    struct ckpt_strmap *names; /* of the function being parsed -> slot; NULL outside */
    uint32_t nslots;
    unsigned depth;
    bool ended_in_comma; /* the last script_parse_tuple */
    /* of the lists that are open; each takes from its own start: */
    struct script_arg *arg;
    size_t nargs, args_cap;
    struct script_stmt *stmt;
    size_t nstmts, stmts_cap;
    struct ckpt_err *err;
};

/* Parses a file of code/; its maps and arrays are freed by script_file_fini, all else lives in the
 * arena. The text must outlive both. */
int script_parse(struct script_file *file, struct ckpt_text name, struct ckpt_text module,
                 struct ckpt_text source, struct ckpt_arena *arena,
                 struct ckpt_err *err) CKPT_CHECKED;
void script_file_fini(struct script_file *file);

/* script_parse_expr.c */
int script_parse_expr(struct script_parser *p, const struct script_expr **out) CKPT_CHECKED;
/* One, or several with commas between, which are a tuple. */
int script_parse_tuple(struct script_parser *p, const struct script_expr **out) CKPT_CHECKED;
/* The slot of a name in the function being parsed. */
int script_parse_slot(struct script_parser *p, struct ckpt_text name, uint32_t *slot) CKPT_CHECKED;
/* Steps over the token, which must be this one; `what` names it in the message. */
int script_parse_expect(struct script_parser *p, int token, const char *what) CKPT_CHECKED;
bool script_parse_at_word(const struct script_parser *p, const char *word);
int script_parse_fail_memory(const struct script_parser *p);
/* One level of nesting deeper; script_parse_leave undoes it. */
int script_parse_enter(struct script_parser *p) CKPT_CHECKED;
static inline void script_parse_leave(struct script_parser *p) {
    p->depth--;
}

/* script_parse_block.c: the statements of an indented block, from the colon before it on. */
int script_parse_block(struct script_parser *p, struct script_block *out) CKPT_CHECKED;

#endif
