#ifndef CKPT_BASE_JSON_H
#define CKPT_BASE_JSON_H
/*
 * JSON from a checkpoint, read strictly (RFC 8259, and nothing beyond it): a pull reader that keeps
 * no tree. Integers are exact to 64 bits. Refused, with the byte offset: duplicate keys, bad UTF-8,
 * lone surrogates, text after the value, leading zeros, raw control bytes in strings, a byte order
 * mark, nesting deeper than the limit, more than CKPT_JSON_KEYS_MAX keys. Not thread-safe; one
 * reader belongs to one thread.
 *
 *     struct ckpt_json j;
 *     ckpt_json_init(&j, text, n, 64, &err);
 *     for (;;) { int t = ckpt_json_next(&j); if (t < 0) return t; ... if (t == CKPT_JSON_EOF)
 * break; }
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/strmap.h"
#include "base/text.h"

enum ckpt_json_token {
    CKPT_JSON_EOF, /* the one value and trailing blanks are over */
    CKPT_JSON_OBJECT,
    CKPT_JSON_OBJECT_END,
    CKPT_JSON_ARRAY,
    CKPT_JSON_ARRAY_END,
    CKPT_JSON_KEY,    /* .text */
    CKPT_JSON_STRING, /* .text */
    CKPT_JSON_INT,    /* no fraction, no exponent, fits: .i if negative else .u (.negative tells);
                         "-0" is a NUMBER, since no integer keeps its sign */
    CKPT_JSON_NUMBER, /* any other number: .number, and .text as written */
    CKPT_JSON_TRUE,
    CKPT_JSON_FALSE,
    CKPT_JSON_NULL,
};

#define CKPT_JSON_DEPTH_MAX 512
#define CKPT_JSON_KEYS_MAX 500000u /* of all objects that are open at a time: each must be new */

struct ckpt_json_frame;

struct ckpt_json {
    /* of the last token: */
    struct ckpt_text text; /* unescaped; valid until ckpt_json_fini, in place as long as the text */
    uint64_t u;
    int64_t i;
    bool negative;
    double number;
    size_t at;   /* byte offset where the token began */
    size_t base; /* may be set after init: added to the offsets in messages */
    /* private: */
    const unsigned char *s;
    bool in_place;
    size_t nkeys; /* of all open objects */
    size_t n, pos;
    unsigned depth, max_depth, nframes;
    int expect;
    struct ckpt_json_frame *frames;
    char *pool; /* free tail of the arena's last piece, for the bytes of strings */
    size_t pool_left;
    struct ckpt_arena arena;
    struct ckpt_err *err;
};

/* The text is referenced and must outlive the reader. max_depth <= CKPT_JSON_DEPTH_MAX. */
void ckpt_json_init(struct ckpt_json *j, const void *text, size_t n, unsigned max_depth,
                    struct ckpt_err *err);
/* The same for a text that may be overwritten: strings are unescaped where they stand, and cost no
 * memory. */
void ckpt_json_init_in_place(struct ckpt_json *j, char *text, size_t n, unsigned max_depth,
                             struct ckpt_err *err);
/* The next token, or a negative errno with the sentence in err ("...at byte N"). */
int ckpt_json_next(struct ckpt_json *j) CKPT_CHECKED;
/* Reads and checks the whole value that `token` (just returned) begins. 0 or negative. */
int ckpt_json_skip(struct ckpt_json *j, int token) CKPT_CHECKED;
/* "an object", "a string", ... for messages. */
const char *ckpt_json_token_name(int token);
void ckpt_json_fini(struct ckpt_json *j);

#define ckpt_auto_json ckpt_json_fini

/*
 * JSON that we write. Our own few lines rather than cJSON, whose strings end at a NUL that keys in
 * real checkpoints do hold, and whose numbers lose digits above 2^53. The writer appends to a
 * ckpt_str and puts commas, colons and (if pretty) line breaks itself.
 */
struct ckpt_json_out {
    struct ckpt_str *out;
    bool pretty;        /* two blanks a level; arrays of scalars stay on one line */
    unsigned depth;     /* private from here on */
    uint64_t not_first; /* bit per level: something was written at this level */
    uint64_t is_array;  /* bit per level */
    uint64_t is_broken; /* bit per level: its elements stand on lines of their own */
    bool after_key;
};

#define CKPT_JSON_OUT_DEPTH_MAX 60

void ckpt_jsonw_object(struct ckpt_json_out *w);
void ckpt_jsonw_object_end(struct ckpt_json_out *w);
void ckpt_jsonw_array(struct ckpt_json_out *w);
void ckpt_jsonw_array_end(struct ckpt_json_out *w);
void ckpt_jsonw_key(struct ckpt_json_out *w, const char *key);
void ckpt_jsonw_key_text(struct ckpt_json_out *w, struct ckpt_text key);
/* Bytes that are not UTF-8 come out as the percent-encoding of each such byte. */
void ckpt_jsonw_text(struct ckpt_json_out *w, struct ckpt_text t);
void ckpt_jsonw_string(struct ckpt_json_out *w, const char *s); /* NULL writes null */
void ckpt_jsonw_i64(struct ckpt_json_out *w, int64_t v);
void ckpt_jsonw_u64(struct ckpt_json_out *w, uint64_t v);
#define CKPT_DOUBLE_TEXT 32
/* Writes the shortest text that reads back as v, laid out as Python's repr does: 0.1, 1.0, 1e-05,
 * 1e+16, and inf, -inf, nan. */
void ckpt_double_text(char out[static CKPT_DOUBLE_TEXT], double v);
/* That text; the strings "Infinity", "-Infinity", "NaN" where JSON has no number. */
void ckpt_jsonw_double(struct ckpt_json_out *w, double v);
void ckpt_jsonw_bool(struct ckpt_json_out *w, bool v);
void ckpt_jsonw_null(struct ckpt_json_out *w);
/* A number or any other JSON value that is already text. */
void ckpt_jsonw_raw(struct ckpt_json_out *w, struct ckpt_text json);
/* Only the quoted, escaped string, without commas: for headers laid out by hand. */
void ckpt_json_quote(struct ckpt_str *out, struct ckpt_text t);

#endif
