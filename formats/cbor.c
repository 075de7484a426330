#include "formats/cbor.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"

/*
 * An item begins with a byte of two fields, and up to 8 bytes that continue the second:
 *
 *      7   5 4          0
 *     ┌─────┬────────────┐   additional: 0..23 the argument itself; 24..27 it is in the 1, 2, 4, 8
 *     │major│ additional │   bytes that follow; 31 no argument: the length is indefinite, or the
 *     └─────┴────────────┘   break that ends such an item; 28..30 do not exist
 */
enum major {
    MAJOR_UINT,
    MAJOR_NEGATIVE,
    MAJOR_BYTES,
    MAJOR_TEXT,
    MAJOR_ARRAY,
    MAJOR_MAP,
    MAJOR_TAG,
    MAJOR_SIMPLE, /* and floats, and the break */
};

enum { ADDITIONAL_1 = 24, ADDITIONAL_2, ADDITIONAL_4, ADDITIONAL_8, ADDITIONAL_INDEFINITE = 31 };

struct head {
    enum major major;
    uint8_t additional;
    uint64_t argument; /* 0 where the length is indefinite */
};

static bool is_indefinite(struct head h) {
    return h.additional == ADDITIONAL_INDEFINITE;
}

static bool is_break(struct head h) {
    return h.major == MAJOR_SIMPLE && is_indefinite(h);
}

#define fail(c, fmt, ...)                                                                          \
    ckpt_fail((c)->err, -EINVAL, "CBOR: " fmt " at byte %zu", ##__VA_ARGS__, (c)->at)

static int fail_end(struct ckpt_cbor *c) {
    return ckpt_fail(c->err, -EINVAL, "CBOR: the bytes end inside the item that begins at byte %zu",
                     c->at);
}

void ckpt_cbor_init(struct ckpt_cbor *c, const void *bytes, size_t n, size_t base,
                    struct ckpt_err *err) {
    *c = (struct ckpt_cbor){.buf = {.p = bytes, .n = n}, .base = base, .err = err};
}

void ckpt_cbor_fini(struct ckpt_cbor *c) {
    ckpt_str_fini(&c->pieces);
}

static uint64_t big_endian(struct ckpt_buf *b, unsigned n) {
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++)
        v = v << 8 | ckpt_buf_u8(b);
    return v;
}

static int read_head(struct ckpt_cbor *c, struct head *h) {
    c->at = c->base + c->buf.pos;
    const uint8_t first = ckpt_buf_u8(&c->buf);
    *h = (struct head){.major = first >> 5, .additional = first & 31, .argument = first & 31};
    if (h->additional >= ADDITIONAL_1 && h->additional <= ADDITIONAL_8)
        h->argument = big_endian(&c->buf, 1u << (h->additional - ADDITIONAL_1));
    else if (is_indefinite(*h))
        h->argument = 0;
    else if (h->additional > ADDITIONAL_8)
        return fail(c, "0x%02x begins no item", first);
    return c->buf.failed ? fail_end(c) : 0;
}

/* --- the containers that are open ------------------------------------------------------------ */

static struct ckpt_cbor_frame *innermost(struct ckpt_cbor *c) {
    return c->depth ? &c->frame[c->depth - 1] : NULL;
}

/* An item that is not a tag is about to begin in the innermost container. */
static void count_item(struct ckpt_cbor *c) {
    struct ckpt_cbor_frame *f = innermost(c);
    c->begun = true;
    if (f && f->is_indefinite)
        f->left++;
    else if (f)
        f->left--;
}

static int open_container(struct ckpt_cbor *c, struct head h) {
    const bool is_map = h.major == MAJOR_MAP;
    if (c->depth == CKPT_CBOR_DEPTH_MAX)
        return fail(c, "nested deeper than %d levels", CKPT_CBOR_DEPTH_MAX);
    if (h.argument > ckpt_buf_left(&c->buf) / (is_map ? 2 : 1)) /* an item takes a byte or more */
        return fail(c, "%s of %" PRIu64 " is longer than the %zu bytes that remain",
                    is_map ? "a map" : "an array", h.argument, ckpt_buf_left(&c->buf));
    c->frame[c->depth++] =
        (struct ckpt_cbor_frame){is_map ? 2 * h.argument : h.argument, is_map, is_indefinite(h)};
    return is_map ? CKPT_CBOR_MAP : CKPT_CBOR_ARRAY;
}

static int close_container(struct ckpt_cbor *c) {
    return c->frame[--c->depth].is_map ? CKPT_CBOR_MAP_END : CKPT_CBOR_ARRAY_END;
}

static int read_break(struct ckpt_cbor *c) {
    const struct ckpt_cbor_frame *f = innermost(c);
    if (!f || !f->is_indefinite || c->after_tag)
        return fail(c, "a break that ends nothing");
    if (f->is_map && f->left % 2)
        return fail(c, "a map ends after a key");
    return close_container(c);
}

/* --- items ----------------------------------------------------------------------------------- */

static int read_piece(struct ckpt_cbor *c, uint64_t n, bool is_text, struct ckpt_text *piece) {
    const size_t left = ckpt_buf_left(&c->buf);
    const uint8_t *p = ckpt_buf_take(&c->buf, n);
    if (!p)
        return fail(c, "a text of %" PRIu64 " bytes is longer than the %zu that remain", n, left);
    *piece = (struct ckpt_text){(const char *)p, (size_t)n};
    if (is_text && ckpt_utf8_valid(p, piece->n) != piece->n)
        return fail(c, "a text is not UTF-8");
    return 0;
}

/* Pieces of definite length, up to a break. */
static int read_pieces(struct ckpt_cbor *c, enum major major) {
    struct head h;
    ckpt_str_cut(&c->pieces, 0);
    for (;;) {
        struct ckpt_text piece;
        int rc = read_head(c, &h);
        if (rc)
            return rc;
        if (is_break(h))
            break;
        if (h.major != major || is_indefinite(h))
            return fail(c, "a text of indefinite length holds something else than pieces of text");
        rc = read_piece(c, h.argument, major == MAJOR_TEXT, &piece);
        if (rc)
            return rc;
        ckpt_str_add(&c->pieces, piece.s, piece.n);
    }
    c->text = ckpt_str_text(&c->pieces);
    return c->pieces.failed ? ckpt_fail_memory(c->err, "reading CBOR") : 0;
}

static int read_string(struct ckpt_cbor *c, struct head h) {
    const int rc = is_indefinite(h) ? read_pieces(c, h.major)
                                    : read_piece(c, h.argument, h.major == MAJOR_TEXT, &c->text);
    return rc ? rc : h.major == MAJOR_TEXT ? CKPT_CBOR_TEXT : CKPT_CBOR_BYTES;
}

static double half(uint64_t bits) {
    const int exponent = bits >> 10 & 31;
    const double mantissa = (double)(bits & 1023);
    const double v = exponent == 0    ? ldexp(mantissa, -24)
                     : exponent != 31 ? ldexp(mantissa + 1024, exponent - 25)
                     : mantissa == 0  ? INFINITY
                                      : NAN;
    return bits & 0x8000 ? -v : v;
}

static double float_of(struct head h) {
    if (h.additional == ADDITIONAL_2)
        return half(h.argument);
    if (h.additional == ADDITIONAL_4) {
        const uint32_t bits = (uint32_t)h.argument;
        float f;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
    double d;
    memcpy(&d, &h.argument, sizeof d);
    return d;
}

static int read_simple(struct ckpt_cbor *c, struct head h) {
    static const enum ckpt_cbor_token named[] = {CKPT_CBOR_FALSE, CKPT_CBOR_TRUE, CKPT_CBOR_NULL,
                                                 CKPT_CBOR_UNDEFINED};
    const uint64_t first_named = 20, first_long = 32;
    if (h.additional > ADDITIONAL_1) {
        c->number = float_of(h);
        return CKPT_CBOR_FLOAT;
    }
    if (h.additional == ADDITIONAL_1 && h.argument < first_long)
        return fail(c, "the simple value %" PRIu64 " in two bytes", h.argument);
    if (h.argument >= first_named && h.argument < first_named + sizeof named / sizeof *named)
        return (int)named[h.argument - first_named];
    return CKPT_CBOR_SIMPLE;
}

static int read_item(struct ckpt_cbor *c, struct head h) {
    c->u = h.argument;
    switch (h.major) {
    case MAJOR_BYTES:
    case MAJOR_TEXT:
        return read_string(c, h);
    case MAJOR_ARRAY:
    case MAJOR_MAP:
        return open_container(c, h);
    case MAJOR_SIMPLE:
        return read_simple(c, h);
    default:
        if (is_indefinite(h))
            return fail(c, "a number of indefinite length");
        return h.major == MAJOR_TAG        ? CKPT_CBOR_TAG
               : h.major == MAJOR_NEGATIVE ? CKPT_CBOR_NEGATIVE
                                           : CKPT_CBOR_UINT;
    }
}

int ckpt_cbor_next(struct ckpt_cbor *c) {
    const struct ckpt_cbor_frame *f = innermost(c);
    struct head h;
    c->at = c->base + c->buf.pos;
    if (!f && c->begun)
        return ckpt_buf_left(&c->buf) ? fail(c, "something follows the value") : CKPT_CBOR_EOF;
    if (f && !f->is_indefinite && f->left == 0)
        return close_container(c);
    const int rc = read_head(c, &h);
    if (rc)
        return rc;
    if (is_break(h))
        return read_break(c);
    c->after_tag = h.major == MAJOR_TAG;
    if (!c->after_tag)
        count_item(c);
    return read_item(c, h);
}

int ckpt_cbor_skip(struct ckpt_cbor *c, int token) {
    const bool opens = token == CKPT_CBOR_ARRAY || token == CKPT_CBOR_MAP;
    const unsigned outside = c->depth - opens;
    while (token == CKPT_CBOR_TAG || (token >= 0 && c->depth > outside))
        token = ckpt_cbor_next(c);
    return token < 0 ? token : 0;
}

const char *ckpt_cbor_token_name(int token) {
    static const char *const names[] = {
        [CKPT_CBOR_EOF] = "the end",
        [CKPT_CBOR_UINT] = "a number",
        [CKPT_CBOR_NEGATIVE] = "a negative number",
        [CKPT_CBOR_BYTES] = "a byte string",
        [CKPT_CBOR_TEXT] = "a text",
        [CKPT_CBOR_ARRAY] = "an array",
        [CKPT_CBOR_ARRAY_END] = "the end of an array",
        [CKPT_CBOR_MAP] = "a map",
        [CKPT_CBOR_MAP_END] = "the end of a map",
        [CKPT_CBOR_TAG] = "a tag",
        [CKPT_CBOR_FALSE] = "false",
        [CKPT_CBOR_TRUE] = "true",
        [CKPT_CBOR_NULL] = "null",
        [CKPT_CBOR_UNDEFINED] = "undefined",
        [CKPT_CBOR_SIMPLE] = "a simple value",
        [CKPT_CBOR_FLOAT] = "a float",
    };
    return names[token];
}

/* --- writing --------------------------------------------------------------------------------- */

static void write_head(struct ckpt_str *out, enum major major, uint64_t argument) {
    const unsigned log2_bytes = argument <= UINT8_MAX    ? 0
                                : argument <= UINT16_MAX ? 1
                                : argument <= UINT32_MAX ? 2
                                                         : 3;
    uint8_t bytes[9];
    if (argument < ADDITIONAL_1) {
        bytes[0] = (uint8_t)((unsigned)major << 5 | (unsigned)argument);
        ckpt_str_add(out, bytes, 1);
        return;
    }
    const unsigned n = 1u << log2_bytes;
    bytes[0] = (uint8_t)((unsigned)major << 5 | (ADDITIONAL_1 + log2_bytes));
    for (unsigned i = 0; i < n; i++)
        bytes[1 + i] = (uint8_t)(argument >> 8 * (n - 1 - i));
    ckpt_str_add(out, bytes, 1 + n);
}

void ckpt_cborw_array(struct ckpt_str *out, uint64_t n) {
    write_head(out, MAJOR_ARRAY, n);
}

void ckpt_cborw_map(struct ckpt_str *out, uint64_t n) {
    write_head(out, MAJOR_MAP, n);
}

static void write_utf8(struct ckpt_str *out, struct ckpt_text t) {
    write_head(out, MAJOR_TEXT, t.n);
    ckpt_str_add(out, t.s, t.n);
}

void ckpt_cborw_text(struct ckpt_str *out, struct ckpt_text t) {
    CKPT_AUTO(str) struct ckpt_str encoded = {0};
    if (ckpt_utf8_valid(t.s, t.n) == t.n) {
        write_utf8(out, t);
        return;
    }
    for (size_t i = 0; i < t.n;) {
        const size_t valid = ckpt_utf8_valid(t.s + i, t.n - i);
        ckpt_str_add(&encoded, t.s + i, valid);
        i += valid;
        if (i < t.n)
            ckpt_str_printf(&encoded, "%%%02X", (unsigned char)t.s[i++]);
    }
    write_utf8(out, ckpt_str_text(&encoded));
    out->failed |= encoded.failed;
}

void ckpt_cborw_u64(struct ckpt_str *out, uint64_t v) {
    write_head(out, MAJOR_UINT, v);
}
