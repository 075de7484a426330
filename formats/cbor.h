#ifndef CKPT_FORMATS_CBOR_H
#define CKPT_FORMATS_CBOR_H
/*
 * CBOR (RFC 8949) read strictly: a pull reader that keeps no tree. Refused, with the byte offset:
 * encodings that are not well-formed, text that is not UTF-8, a length or count beyond the bytes
 * that remain, nesting deeper than the limit, bytes after the value. Longer encodings of a number
 * than it needs are read, as by other readers. One reader belongs to one thread.
 *
 *     {"shape": [2, 3]}   a1 65 "shape" 82 02 03   ->  MAP TEXT ARRAY UINT UINT ARRAY_END MAP_END
 *
 * A map's keys and values come in turn, as items of their own. Indefinite lengths look as definite
 * ones do.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"

enum ckpt_cbor_token {
    CKPT_CBOR_EOF, /* the one value is over */
    CKPT_CBOR_UINT,
    CKPT_CBOR_NEGATIVE, /* the number -1 - .u */
    CKPT_CBOR_BYTES,    /* .text */
    CKPT_CBOR_TEXT,     /* .text */
    CKPT_CBOR_ARRAY,
    CKPT_CBOR_ARRAY_END,
    CKPT_CBOR_MAP,
    CKPT_CBOR_MAP_END,
    CKPT_CBOR_TAG, /* .u: its number; the item that it is about follows */
    CKPT_CBOR_FALSE,
    CKPT_CBOR_TRUE,
    CKPT_CBOR_NULL,
    CKPT_CBOR_UNDEFINED,
    CKPT_CBOR_SIMPLE, /* .u: a simple value that has no meaning yet */
    CKPT_CBOR_FLOAT,  /* .number */
};

#define CKPT_CBOR_DEPTH_MAX 128

struct ckpt_cbor_frame {
    uint64_t left; /* items until the end; counted up from 0 where the length is indefinite */
    bool is_map, is_indefinite;
};

struct ckpt_cbor {
    /* of the last token: */
    struct ckpt_text text; /* of the input, without a NUL; or of the reader: until the next token */
    uint64_t u;
    double number;
    size_t at; /* byte offset where the token began, base added */
    /* private: */
    struct ckpt_buf buf;
    size_t base;
    unsigned depth;
    bool begun, after_tag;
    struct ckpt_cbor_frame frame[CKPT_CBOR_DEPTH_MAX];
    struct ckpt_str pieces; /* of a text of indefinite length */
    struct ckpt_err *err;
};

/* The bytes are referenced and must outlive the reader. base: added to offsets in messages. */
void ckpt_cbor_init(struct ckpt_cbor *c, const void *bytes, size_t n, size_t base,
                    struct ckpt_err *err);
/* The next token, or a negative errno with the sentence in err ("...at byte N"). */
int ckpt_cbor_next(struct ckpt_cbor *c) CKPT_CHECKED;
/* Reads and checks the whole item that `token` (just returned) begins. 0 or negative; a negative
 * token is passed on. */
int ckpt_cbor_skip(struct ckpt_cbor *c, int token) CKPT_CHECKED;
/* "a map", "a text", ... for messages. */
const char *ckpt_cbor_token_name(int token);
void ckpt_cbor_fini(struct ckpt_cbor *c);

#define ckpt_auto_cbor ckpt_cbor_fini

/*
 * CBOR that we write: heads in their shortest form, appended to a ckpt_str.
 */
void ckpt_cborw_array(struct ckpt_str *out, uint64_t n);
void ckpt_cborw_map(struct ckpt_str *out, uint64_t n); /* of n keys and n values, in turn */
/* As JSON's writer: bytes that are not UTF-8 come out as the percent-encoding of each. */
void ckpt_cborw_text(struct ckpt_str *out, struct ckpt_text t);
void ckpt_cborw_u64(struct ckpt_str *out, uint64_t v);

#endif
