#ifndef CKPT_FORMATS_SCRIPT_LEX_H
#define CKPT_FORMATS_SCRIPT_LEX_H
/*
 * The tokens of TorchScript's Python (private to script_*.c). Lines and their indentation are
 * tokens, as in Python; inside brackets neither counts.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text.h"

#define SCRIPT_INDENTS_MAX 64

enum script_token {
    SCRIPT_EOF,
    SCRIPT_NEWLINE,
    SCRIPT_INDENT,
    SCRIPT_DEDENT,
    SCRIPT_NAME,   /* .text */
    SCRIPT_INT,    /* .u */
    SCRIPT_FLOAT,  /* .f */
    SCRIPT_STRING, /* .text, unescaped, in the arena */
    SCRIPT_ARROW,  /* -> */
    /* any other character is its own token */
};

struct script_lexer {
    /* of the last token: */
    int token;
    uint32_t line;
    struct ckpt_text text;
    uint64_t u;
    double f;
    /* private: */
    struct ckpt_text source;
    size_t pos;
    uint32_t now; /* line at pos */
    unsigned brackets, nindents, dedents;
    size_t indent[SCRIPT_INDENTS_MAX];
    bool at_line_start;
    struct ckpt_arena *arena;
    struct ckpt_err *err;
};

/* The source is referenced and must outlive the tokens. */
void script_lexer_init(struct script_lexer *l, struct ckpt_text source, struct ckpt_arena *arena,
                       struct ckpt_err *err);
/* Reads the next token into l->token. */
int script_lex(struct script_lexer *l) CKPT_CHECKED;
/* "line 12: ..." */
int script_lex_fail(const struct script_lexer *l, const char *fmt, ...) CKPT_PRINTF(2, 3);

#endif
