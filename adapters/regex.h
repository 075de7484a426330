#ifndef CKPT_ADAPTERS_REGEX_H
#define CKPT_ADAPTERS_REGEX_H
/*
 * Regular expressions over keys: PCRE2, compiled with the JIT. Every match is bounded, so that a
 * pattern cannot hang a mount. A regex carries its match data: one thread at a time.
 *
 *     anywhere   of the options: Unicode, as burn's; bytes that are not UTF-8 match nothing
 *     whole      of the rule files: must match the whole key, byte by byte, so that a rule for
 * every Linear takes every Linear, whatever its name is made of
 */
#include <stdbool.h>

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/text.h"

struct ckpt_regex;

#define CKPT_REGEX_STEPS 1000000u  /* PCRE2's match limit: backtracking steps of one match */
#define CKPT_REGEX_RESULT_MAX 8192 /* bytes of a key that a replacement may make */

/* `where` ("map=", "FILE: rule 3: ") begins messages and must outlive the regex. A pattern that
 * does not compile is -EINVAL with its position. */
int ckpt_regex_new(struct ckpt_text pattern, bool whole, const char *where, struct ckpt_regex **out,
                   struct ckpt_err *err) CKPT_CHECKED;
void ckpt_regex_free(struct ckpt_regex *re); /* NULL is fine */

/* 1 it matches, 0 it does not, negative: it gave up (the sentence names pattern and subject). */
int ckpt_regex_match(struct ckpt_regex *re, struct ckpt_text subject,
                     struct ckpt_err *err) CKPT_CHECKED;
/* Refuses a replacement that names a group the regex lacks, or that PCRE2 cannot read. */
int ckpt_regex_check_replacement(struct ckpt_regex *re, struct ckpt_text replacement,
                                 struct ckpt_err *err) CKPT_CHECKED;
/* All matches in subject replaced ($1, ${name}, $$): the number of matches, the text (in the arena)
 * in *out if there were any. */
int ckpt_regex_replace(struct ckpt_regex *re, struct ckpt_text subject,
                       struct ckpt_text replacement, struct ckpt_arena *a, struct ckpt_text *out,
                       struct ckpt_err *err) CKPT_CHECKED;
/* Only the replacement, with the groups of the first match put in. The same result otherwise. */
int ckpt_regex_expand(struct ckpt_regex *re, struct ckpt_text subject, struct ckpt_text template,
                      struct ckpt_arena *a, struct ckpt_text *out,
                      struct ckpt_err *err) CKPT_CHECKED;
struct ckpt_text ckpt_regex_pattern(const struct ckpt_regex *re);
/* The pattern without its metacharacters: what it looks for, for "did you mean". */
struct ckpt_text ckpt_regex_literal(struct ckpt_text pattern, struct ckpt_arena *a);

static inline void ckpt_auto_regex(struct ckpt_regex **re) {
    ckpt_regex_free(*re);
}

#endif
