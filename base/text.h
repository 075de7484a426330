#ifndef CKPT_BASE_TEXT_H
#define CKPT_BASE_TEXT_H
/*
 * Text. Keys in checkpoints may hold any byte, NUL included, so a text carries its length; whoever
 * makes one puts a NUL behind it all the same, for printing. A `ckpt_str` is a text that grows.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

struct ckpt_text {
    const char *s; /* n bytes, then a NUL; never NULL once made */
    size_t n;
};

#define CKPT_TEXT(literal) ((struct ckpt_text){(literal), sizeof(literal) - 1})

/* printf("%.*s", CKPT_TEXT_ARGS(t)) */
#define CKPT_TEXT_ARGS(t) (int)((t).n > 1000 ? 1000 : (t).n), (t).s

struct ckpt_text ckpt_text_of(const char *s);
bool ckpt_text_eq(struct ckpt_text a, struct ckpt_text b);
bool ckpt_text_is(struct ckpt_text a, const char *s);
bool ckpt_text_starts(struct ckpt_text a, const char *prefix);
bool ckpt_text_ends(struct ckpt_text a, const char *suffix);
/* Bytes as memcmp, then length. For qsort through a wrapper. */
int ckpt_text_cmp(struct ckpt_text a, struct ckpt_text b);
/* A copy in the arena; .s is NULL when out of memory. */
struct ckpt_text ckpt_text_copy(struct ckpt_arena *a, const void *s, size_t n);
/* FNV-1a, 64 bits. */
uint64_t ckpt_text_hash(const void *s, size_t n);

/* The length of the valid UTF-8 prefix of s (n if all of it is valid). Surrogates are invalid. */
size_t ckpt_utf8_valid(const void *s, size_t n);

/* The code point that begins at s (n > 0 bytes), and its bytes; a byte that begins none counts as
 * one, with *used 1. */
uint32_t ckpt_utf8_next(const char *s, size_t n, size_t *used);

#define CKPT_SHOWN_MAX 8 /* bytes that a shown character takes at most, its NUL included */

/* The character that begins at s as people are shown it, in `shown`: as it is, or escaped (\xNN,
 * \uNNNN) if it is no UTF-8 or if a terminal would obey it: control characters, ends of lines, and
 * the marks that make text run the other way. Returns the bytes of s that it takes. */
size_t ckpt_utf8_show(char shown[CKPT_SHOWN_MAX], const char *s, size_t n);

/* Jaro similarity of two names, 0..1, for "did you mean". */
double ckpt_text_similarity(struct ckpt_text a, struct ckpt_text b);
/* The index of the candidate most like name (similarity >= 0.7), or -1. */
int ckpt_text_nearest(struct ckpt_text name, const struct ckpt_text *candidates, size_t n);

/* Takes n bytes of a text; false: it cannot. */
typedef bool ckpt_str_sink(void *arg, const char *s, size_t n);

/*
 * A growing text. Zero-initialised is empty. After a failed allocation `failed` stays set and
 * everything added later is dropped, so a caller asks once at the end.
 *
 * With a sink it is a buffer: whenever some KiB have gathered, the sink gets them, so that a long
 * text can be printed, or measured, without being held. Whoever made it flushes it at the end. Only
 * what is appended goes through; cutting back is for texts without one.
 */
struct ckpt_str {
    char *s; /* NUL behind n bytes; NULL while empty */
    size_t n, cap;
    bool failed;
    ckpt_str_sink *sink; /* NULL: all bytes are in s */
    void *arg;           /* of sink */
    uint64_t passed;     /* bytes that the sink has got */
};

void ckpt_str_fini(struct ckpt_str *s);
/* All bytes added, those that the sink has got included. */
uint64_t ckpt_str_total(const struct ckpt_str *s);
/* The sink gets what is left. Without one, nothing. */
void ckpt_str_flush(struct ckpt_str *s);
/* A sink that forgets: a text is only measured. */
bool ckpt_str_forget(void *arg, const char *s, size_t n);
void ckpt_str_add(struct ckpt_str *s, const void *data, size_t n);
void ckpt_str_puts(struct ckpt_str *s, const char *text);
void ckpt_str_printf(struct ckpt_str *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Decimal digits; many times faster than printf, and headers are made of numbers. */
void ckpt_str_u64(struct ckpt_str *s, uint64_t v);
void ckpt_str_i64(struct ckpt_str *s, int64_t v);
/* Cuts back to n bytes (n <= s->n). */
void ckpt_str_cut(struct ckpt_str *s, size_t n);
/* The text so far ("" if nothing was added). */
struct ckpt_text ckpt_str_text(const struct ckpt_str *s);

#define ckpt_auto_str ckpt_str_fini

#endif
