#ifndef CKPT_BASE_ERR_H
#define CKPT_BASE_ERR_H
/*
 * Errors: every fallible function returns 0 (or a count >= 0) or a negative errno, and leaves the
 * sentence for a person in a `struct ckpt_err` that its caller supplies. Only main prints; only the
 * FUSE layer replies. A sentence names what it is about (tensor, entry or byte offset), what was
 * expected, what was found and what to do; the program name and the file are put before it by main.
 */
#include <stdint.h>

#define CKPT_ERR_TEXT 1024 /* bytes of a sentence, its NUL included; longer ones are cut */

#define CKPT_CHECKED __attribute__((warn_unused_result))
#define CKPT_PRINTF(f, a) __attribute__((format(printf, f, a)))

struct ckpt_err {
    int code;                 /* negative errno; 0: no error yet */
    char text[CKPT_ERR_TEXT]; /* one line: see ckpt_utf8_show */
};

/* Fills *err (which may be NULL) and returns code, so that `return ckpt_fail(...)` is one line.
 * code is a negative errno. What a terminal would obey in the formatted text is
 * escaped. */
int ckpt_fail(struct ckpt_err *err, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/* Puts "PREFIX: " before the sentence already in *err and returns err->code. For a caller that
 * knows the file or tensor which the callee did not. */
int ckpt_fail_in(struct ckpt_err *err, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* Out of memory while doing `what`. Returns -ENOMEM. */
int ckpt_fail_memory(struct ckpt_err *err, const char *what);

#ifdef __clang_analyzer__
/* So that the static analyser knows that a failure is not 0. */
#define ckpt_fail(err, code, ...) (ckpt_fail(err, code, __VA_ARGS__), (code))
#define ckpt_fail_memory(err, what) (ckpt_fail_memory(err, what), -12)
#endif

#endif
