#include "adapters/regex.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define PATTERN_MAX 4096 /* bytes of a pattern or replacement */

struct ckpt_regex {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
    struct ckpt_text pattern;
    const char *where;
};

void ckpt_regex_free(struct ckpt_regex *re) {
    if (!re)
        return;
    pcre2_code_free(re->code);
    pcre2_match_data_free(re->data);
    pcre2_match_context_free(re->limits);
    free(re);
}

/* PCRE2's own sentence for a code. */
static const char *message(int code, char *buffer, size_t n) {
    if (pcre2_get_error_message(code, (PCRE2_UCHAR *)buffer, n) < 0)
        snprintf(buffer, n, "error %d", code);
    return buffer;
}

static int compile(struct ckpt_regex *re, bool whole, struct ckpt_err *err) {
    const uint32_t options = whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOTALL
                                   : PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF;
    int code;
    PCRE2_SIZE at;
    char text[256];
    re->code = pcre2_compile((PCRE2_SPTR)re->pattern.s, re->pattern.n,
                             options | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (!re->code)
        return ckpt_fail(err, -EINVAL, "%s'%.*s': the regex is wrong at byte %zu: %s", re->where,
                         CKPT_TEXT_ARGS(re->pattern), (size_t)at, message(code, text, sizeof text));
    /* Without JIT (some machines forbid executable memory) the interpreter does the same. */
    (void)pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE);
    re->data = pcre2_match_data_create_from_pattern(re->code, NULL);
    re->limits = pcre2_match_context_create(NULL);
    if (!re->data || !re->limits)
        return ckpt_fail_memory(err, "compiling a regex");
    pcre2_set_match_limit(re->limits, CKPT_REGEX_STEPS);
    pcre2_set_depth_limit(re->limits, CKPT_REGEX_STEPS);
    pcre2_set_heap_limit(re->limits, 20 * 1024); /* KiB */
    return 0;
}

int ckpt_regex_new(struct ckpt_text pattern, bool whole, const char *where, struct ckpt_regex **out,
                   struct ckpt_err *err) {
    *out = NULL;
    if (pattern.n > PATTERN_MAX)
        return ckpt_fail(err, -EINVAL, "%sa regex of %zu bytes, '%.20s...'; at most %d are allowed",
                         where, pattern.n, pattern.s, PATTERN_MAX);
    struct ckpt_regex *re = calloc(1, sizeof *re + pattern.n + 1);
    if (!re)
        return ckpt_fail_memory(err, "compiling a regex");
    memcpy(re + 1, pattern.s, pattern.n);
    re->pattern = (struct ckpt_text){(const char *)(re + 1), pattern.n};
    re->where = where;
    const int rc = compile(re, whole, err);
    if (rc) {
        ckpt_regex_free(re);
        return rc;
    }
    *out = re;
    return 0;
}

static int gave_up(const struct ckpt_regex *re, struct ckpt_text subject, int code,
                   struct ckpt_err *err) {
    char text[256];
    return ckpt_fail(err, -EINVAL, "%s'%.*s': the regex gave up on '%.*s': %s", re->where,
                     CKPT_TEXT_ARGS(re->pattern), CKPT_TEXT_ARGS(subject),
                     message(code, text, sizeof text));
}

int ckpt_regex_match(struct ckpt_regex *re, struct ckpt_text subject, struct ckpt_err *err) {
    const int rc =
        pcre2_match(re->code, (PCRE2_SPTR)subject.s, subject.n, 0, 0, re->data, re->limits);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    return rc < 0 ? gave_up(re, subject, rc, err) : 1;
}

static int substitute(struct ckpt_regex *re, struct ckpt_text subject, struct ckpt_text replacement,
                      uint32_t options, struct ckpt_arena *a, struct ckpt_text *out,
                      struct ckpt_err *err) {
    char buffer[CKPT_REGEX_RESULT_MAX + 1];
    PCRE2_SIZE n = sizeof buffer;
    const int rc = pcre2_substitute(
        re->code, (PCRE2_SPTR)subject.s, subject.n, 0, options | PCRE2_SUBSTITUTE_UNSET_EMPTY,
        re->data, re->limits, (PCRE2_SPTR)replacement.s, replacement.n, (PCRE2_UCHAR *)buffer, &n);
    if (rc == PCRE2_ERROR_NOMEMORY)
        return ckpt_fail(err, -EINVAL, "%s'%.*s': makes a key of more than %d bytes of '%.*s'",
                         re->where, CKPT_TEXT_ARGS(re->pattern), CKPT_REGEX_RESULT_MAX,
                         CKPT_TEXT_ARGS(subject));
    if (rc < 0)
        return gave_up(re, subject, rc, err);
    if (rc == 0)
        return 0;
    *out = ckpt_text_copy(a, buffer, n);
    return out->s ? rc : ckpt_fail_memory(err, "renaming keys");
}

int ckpt_regex_replace(struct ckpt_regex *re, struct ckpt_text subject,
                       struct ckpt_text replacement, struct ckpt_arena *a, struct ckpt_text *out,
                       struct ckpt_err *err) {
    /* Most rules miss most keys: a match is cheaper than a substitution's copying. */
    const int rc = ckpt_regex_match(re, subject, err);
    return rc <= 0 ? rc
                   : substitute(re, subject, replacement, PCRE2_SUBSTITUTE_GLOBAL, a, out, err);
}

int ckpt_regex_expand(struct ckpt_regex *re, struct ckpt_text subject, struct ckpt_text template,
                      struct ckpt_arena *a, struct ckpt_text *out, struct ckpt_err *err) {
    return substitute(re, subject, template, PCRE2_SUBSTITUTE_REPLACEMENT_ONLY, a, out, err);
}

int ckpt_regex_check_replacement(struct ckpt_regex *re, struct ckpt_text replacement,
                                 struct ckpt_err *err) {
    if (replacement.n > PATTERN_MAX)
        return ckpt_fail(err, -EINVAL,
                         "%s'%.*s': a replacement of %zu bytes; at most %d are allowed", re->where,
                         CKPT_TEXT_ARGS(re->pattern), replacement.n, PATTERN_MAX);
    /* PCRE2 reads a replacement only when something matched. An empty alternative in front always
     * matches and leaves the numbers and names of the groups as they are. */
    const struct ckpt_text p = re->pattern;
    CKPT_AUTO(str) struct ckpt_str text = {0};
    ckpt_str_printf(&text, "|");
    ckpt_str_add(&text, p.s, p.n);
    if (text.failed)
        return ckpt_fail_memory(err, "checking a replacement");
    int code;
    PCRE2_SIZE at, n = CKPT_REGEX_RESULT_MAX;
    pcre2_code *probe =
        pcre2_compile((PCRE2_SPTR)text.s, text.n, PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (!probe) /* (*VERB) at the start of the pattern: then the replacement shows at first use */
        return 0;
    char buffer[CKPT_REGEX_RESULT_MAX], why[256];
    code = pcre2_substitute(probe, (PCRE2_SPTR) "", 0, 0, PCRE2_SUBSTITUTE_UNSET_EMPTY, NULL, NULL,
                            (PCRE2_SPTR)replacement.s, replacement.n, (PCRE2_UCHAR *)buffer, &n);
    pcre2_code_free(probe);
    if (code >= 0)
        return 0;
    return ckpt_fail(err, -EINVAL, "%s'%.*s': the replacement '%.*s' is wrong at byte %zu: %s",
                     re->where, CKPT_TEXT_ARGS(re->pattern), CKPT_TEXT_ARGS(replacement),
                     n == PCRE2_UNSET ? (size_t)0 : (size_t)n, message(code, why, sizeof why));
}

struct ckpt_text ckpt_regex_pattern(const struct ckpt_regex *re) {
    return re->pattern;
}

struct ckpt_text ckpt_regex_literal(struct ckpt_text pattern, struct ckpt_arena *a) {
    char *out = ckpt_arena_alloc(a, pattern.n + 1);
    size_t n = 0;
    for (size_t i = 0; out && i < pattern.n; i++) {
        const char c = pattern.s[i];
        if (c == '\\' && i + 1 < pattern.n) {
            const char next = pattern.s[++i];
            if (next == '.' || next == '-' || next == '_') /* of \d, \w, \b nothing is left */
                out[n++] = next;
        } else if (!strchr("^$()[]{}*+?|", c)) {
            out[n++] = c;
        }
    }
    return out ? (struct ckpt_text){out, n} : CKPT_TEXT("");
}
