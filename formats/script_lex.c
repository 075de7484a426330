#include "formats/script_lex.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX 64 /* characters */

void script_lexer_init(struct script_lexer *l, struct ckpt_text source, struct ckpt_arena *arena,
                       struct ckpt_err *err) {
    *l = (struct script_lexer){.source = source,
                               .now = 1,
                               .line = 1,
                               .nindents = 1,
                               .at_line_start = true,
                               .arena = arena,
                               .err = err};
}

int script_lex_fail(const struct script_lexer *l, const char *fmt, ...) {
    char what[CKPT_ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return ckpt_fail(l->err, -EINVAL, "line %u: %s", l->now, what);
}

/* The character so many behind the current one; NUL beyond the end. */
static char peek(const struct script_lexer *l, size_t ahead) {
    return l->source.n - l->pos > ahead ? l->source.s[l->pos + ahead] : '\0';
}

static bool at_end(const struct script_lexer *l) {
    return l->pos >= l->source.n;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_name(char c) {
    return is_name_start(c) || is_digit(c);
}

/* --- lines and indentation -------------------------------------------------------------------- */

/* Passes over blanks and a comment, and inside brackets over line ends. */
static void skip_blanks(struct script_lexer *l) {
    for (; !at_end(l); l->pos++) {
        const char c = peek(l, 0);
        if (c == '#') {
            const char *const from = l->source.s + l->pos;
            const char *const end = memchr(from, '\n', l->source.n - l->pos);
            l->pos = end ? (size_t)(end - l->source.s) - 1 : l->source.n - 1;
        } else if (c == '\n' && l->brackets) {
            l->now++;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return;
        }
    }
}

/* Goes to the first character of the next line that has any. Returns its column. */
static size_t next_line(struct script_lexer *l) {
    for (;;) {
        const size_t start = l->pos;
        skip_blanks(l);
        if (at_end(l))
            return 0;
        if (peek(l, 0) != '\n')
            return l->pos - start;
        l->pos++;
        l->now++;
    }
}

/* At a line's start: sets how many blocks end there. Returns whether one begins. */
static int take_indentation(struct script_lexer *l, bool *begins) {
    const size_t column = next_line(l);
    l->at_line_start = false;
    *begins = column > l->indent[l->nindents - 1];
    if (*begins && l->nindents == SCRIPT_INDENTS_MAX)
        return script_lex_fail(l, "blocks nested more than %u deep", SCRIPT_INDENTS_MAX - 1);
    if (*begins)
        l->indent[l->nindents++] = column;
    while (column < l->indent[l->nindents - 1]) {
        l->nindents--;
        l->dedents++;
    }
    if (column != l->indent[l->nindents - 1])
        return script_lex_fail(l, "its indentation fits no block");
    return 0;
}

/* --- numbers, names, strings ------------------------------------------------------------------ */

static size_t count_digits(const struct script_lexer *l, size_t from) {
    size_t n = 0;
    while (is_digit(peek(l, from + n)))
        n++;
    return n;
}

/* The length of the number here: 12, 1., .5, 1.5e-05. *whole: it is an integer. */
static size_t number_length(const struct script_lexer *l, bool *whole) {
    size_t n = count_digits(l, 0);
    *whole = true;
    if (peek(l, n) == '.') {
        n += 1 + count_digits(l, n + 1);
        *whole = false;
    }
    if (peek(l, n) == 'e' || peek(l, n) == 'E') {
        const size_t sign = peek(l, n + 1) == '-' || peek(l, n + 1) == '+';
        n += 1 + sign + count_digits(l, n + 1 + sign);
        *whole = false;
    }
    return n;
}

static int lex_number(struct script_lexer *l) {
    char number[NUMBER_MAX], *end;
    bool whole;
    const size_t n = number_length(l, &whole);
    if (n >= sizeof number)
        return script_lex_fail(l, "a number of %zu characters", n);
    memcpy(number, l->source.s + l->pos, n);
    number[n] = '\0';
    errno = 0;
    if (whole)
        l->u = strtoull(number, &end, 10);
    else
        l->f = strtod(number, &end);
    if (*end || is_name(peek(l, n)))
        return script_lex_fail(l, "\"%s%c\" is no number that this version reads", number,
                               is_name(peek(l, n)) ? peek(l, n) : ' ');
    if (whole && errno)
        return script_lex_fail(l, "the integer %s has more than 64 bits", number);
    l->pos += n;
    l->token = whole ? SCRIPT_INT : SCRIPT_FLOAT;
    return 0;
}

static int lex_name(struct script_lexer *l) {
    size_t n = 0;
    while (is_name(peek(l, n)))
        n++;
    l->text = (struct ckpt_text){l->source.s + l->pos, n};
    l->pos += n;
    l->token = SCRIPT_NAME;
    return 0;
}

/* Up to three octal digits, or two hexadecimal ones behind an x. Returns how many characters. */
static size_t number_escape(const struct script_lexer *l, char *out) {
    const bool hex = peek(l, 0) == 'x';
    char digits[4] = "";
    size_t n = 0;
    for (; n < (hex ? 2 : 3); n++) {
        const char c = peek(l, n + hex);
        const bool is =
            hex ? memchr("0123456789abcdefABCDEF", c, 22) != NULL : c >= '0' && c <= '7';
        if (!is)
            break;
        digits[n] = c;
    }
    *out = (char)strtoul(digits, NULL, hex ? 16 : 8);
    return n ? n + hex : 0;
}

/* Behind a backslash. */
static int lex_escape(struct script_lexer *l, char *out) {
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char c = peek(l, 0);
    const char *const known = c ? strchr(from, c) : NULL;
    const size_t n = known ? 1 : number_escape(l, out);
    if (n == 0)
        return script_lex_fail(l, "an unknown escape in a string");
    if (known)
        *out = to[known - from];
    l->pos += n;
    return 0;
}

/* The place of the quote that ends the string, or the end of its line. */
static size_t string_length(const struct script_lexer *l, char quote) {
    size_t n = 0;
    while (l->pos + n < l->source.n && peek(l, n) != quote && peek(l, n) != '\n')
        n += peek(l, n) == '\\' ? 2 : 1;
    return n;
}

static int lex_string(struct script_lexer *l) {
    const char quote = peek(l, 0);
    l->pos++;
    char *const out = ckpt_arena_alloc(l->arena, string_length(l, quote) + 1);
    size_t n = 0;
    if (!out)
        return -ENOMEM;
    while (!at_end(l) && peek(l, 0) != quote && peek(l, 0) != '\n') {
        const bool escaped = peek(l, 0) == '\\';
        out[n] = peek(l, 0);
        l->pos++;
        const int rc = escaped ? lex_escape(l, &out[n]) : 0;
        if (rc)
            return rc;
        n++;
    }
    if (at_end(l) || peek(l, 0) != quote)
        return script_lex_fail(l, "a string does not end on its line");
    l->pos++;
    l->text = (struct ckpt_text){out, n};
    l->token = SCRIPT_STRING;
    return 0;
}

/* ---------------------------------------------------------------------------------------------- */

static int lex_mark(struct script_lexer *l) {
    const char c = peek(l, 0);
    l->token = (unsigned char)c;
    l->pos++;
    if (c == '-' && peek(l, 0) == '>') {
        l->token = SCRIPT_ARROW;
        l->pos++;
    } else if (strchr("([{", c)) {
        l->brackets++;
    } else if (strchr(")]}", c)) {
        if (l->brackets == 0)
            return script_lex_fail(l, "\"%c\" closes no bracket", c);
        l->brackets--;
    } else if (!strchr(".,:=-+*@", c)) {
        return script_lex_fail(l, "\"%c\" is nothing that this version reads", c);
    }
    return 0;
}

static int lex_end(struct script_lexer *l) {
    if (l->brackets)
        return script_lex_fail(l, "a bracket is open where the source ends");
    const bool in_line = l->token != SCRIPT_NEWLINE && l->token != SCRIPT_DEDENT &&
                         l->token != SCRIPT_EOF; /* the last line may lack its end */
    l->token = in_line ? SCRIPT_NEWLINE : SCRIPT_EOF;
    if (in_line)
        l->at_line_start = true;
    return 0;
}

static int lex_in_line(struct script_lexer *l) {
    skip_blanks(l);
    l->line = l->now;
    if (at_end(l))
        return lex_end(l);
    const char c = peek(l, 0);
    if (c == '\n') {
        l->pos++;
        l->now++;
        l->at_line_start = true;
        l->token = SCRIPT_NEWLINE;
        return 0;
    }
    if (c == '\0')
        return script_lex_fail(l, "a NUL character");
    if (is_digit(c) || (c == '.' && is_digit(peek(l, 1))))
        return lex_number(l);
    if (is_name_start(c))
        return lex_name(l);
    return c == '"' || c == '\'' ? lex_string(l) : lex_mark(l);
}

int script_lex(struct script_lexer *l) {
    bool begins = false;
    const int rc = l->at_line_start ? take_indentation(l, &begins) : 0;
    if (rc)
        return rc;
    if (!begins && !l->dedents)
        return lex_in_line(l);
    l->line = l->now;
    l->token = begins ? SCRIPT_INDENT : SCRIPT_DEDENT;
    l->dedents -= begins ? 0 : 1;
    return 0;
}
