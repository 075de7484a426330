#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The reader is a machine of few states; `expect` says what may come next. Open arrays and objects
 * are a stack of frames, each with the set of keys seen in its object, so that nesting costs no
 * stack of ours and is bounded by max_depth. A frame is reused by the next value at its depth.
 *
 *     VALUE ----------> [ --> VALUE_OR_END          { --> KEY_OR_END
 *     after a value --> COMMA (in a frame), END_OF_TEXT (outside)
 *     COMMA ----------> , --> VALUE (array), KEY (object);   ] } close the frame
 */
enum {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END,
    EXPECT_KEY,
    EXPECT_KEY_OR_END,
    EXPECT_COMMA,
    EXPECT_END_OF_TEXT,
    EXPECT_NOTHING, /* an error was reported */
};

struct ckpt_json_frame {
    bool is_object;
    struct ckpt_strmap keys;
};

void ckpt_json_init(struct ckpt_json *j, const void *text, size_t n, unsigned max_depth,
                    struct ckpt_err *err) {
    *j = (struct ckpt_json){.s = text, .n = n, .err = err};
    j->max_depth = max_depth < CKPT_JSON_DEPTH_MAX ? max_depth : CKPT_JSON_DEPTH_MAX;
}

void ckpt_json_init_in_place(struct ckpt_json *j, char *text, size_t n, unsigned max_depth,
                             struct ckpt_err *err) {
    ckpt_json_init(j, text, n, max_depth, err);
    j->in_place = true;
}

void ckpt_json_fini(struct ckpt_json *j) {
    for (unsigned i = 0; i < j->nframes; i++)
        ckpt_strmap_fini(&j->frames[i].keys);
    free(j->frames);
    ckpt_arena_fini(&j->arena);
    *j = (struct ckpt_json){0};
}

const char *ckpt_json_token_name(int token) {
    static const char *const names[] = {
        [CKPT_JSON_EOF] = "the end",
        [CKPT_JSON_OBJECT] = "an object",
        [CKPT_JSON_OBJECT_END] = "'}'",
        [CKPT_JSON_ARRAY] = "an array",
        [CKPT_JSON_ARRAY_END] = "']'",
        [CKPT_JSON_KEY] = "a key",
        [CKPT_JSON_STRING] = "a string",
        [CKPT_JSON_INT] = "an integer",
        [CKPT_JSON_NUMBER] = "a number that is no 64-bit integer",
        [CKPT_JSON_TRUE] = "true",
        [CKPT_JSON_FALSE] = "false",
        [CKPT_JSON_NULL] = "null",
    };
    return token < 0 ? "an error" : names[token];
}

static int fail_at(struct ckpt_json *j, size_t at, const char *what) {
    j->expect = EXPECT_NOTHING;
    return ckpt_fail(j->err, -EINVAL, "malformed JSON: %s at byte %zu", what, j->base + at);
}

static int fail_memory(struct ckpt_json *j) {
    j->expect = EXPECT_NOTHING;
    return ckpt_fail_memory(j->err, "reading JSON");
}

/* "expected WHAT, found 'x'", at the reader's position. */
static int fail_expected(struct ckpt_json *j, const char *what) {
    char text[100];
    const unsigned char c = j->pos < j->n ? j->s[j->pos] : 0;
    if (j->pos == j->n)
        snprintf(text, sizeof text, "expected %s, found the end", what);
    else if (c > 0x20 && c < 0x7f)
        snprintf(text, sizeof text, "expected %s, found '%c'", what, c);
    else
        snprintf(text, sizeof text, "expected %s, found byte 0x%02x", what, c);
    return fail_at(j, j->pos, text);
}

static void skip_blanks(struct ckpt_json *j) {
    while (j->pos < j->n && (j->s[j->pos] == ' ' || j->s[j->pos] == '\n' || j->s[j->pos] == '\r' ||
                             j->s[j->pos] == '\t'))
        j->pos++;
}

#define POOL_BYTES ((size_t)4096)

/* n bytes for a text, packed without alignment: a hostile text of tiny strings must not cost many
 * times its size. */
static char *pool_take(struct ckpt_json *j, size_t n) {
    if (n > j->pool_left) {
        const size_t size = n > POOL_BYTES / 4 ? n : POOL_BYTES;
        char *p = ckpt_arena_alloc(&j->arena, size);
        if (!p || size == n)
            return p;
        j->pool = p;
        j->pool_left = size;
    }
    char *p = j->pool;
    j->pool += n;
    j->pool_left -= n;
    return p;
}

/* The value of four hexadecimal digits at p, or -1. */
static int32_t hex4(const unsigned char *p) {
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned char c = p[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        v = v << 4 | digit;
    }
    return v;
}

/* Writes code point c as UTF-8; returns the byte behind it. */
static char *put_utf8(char *out, int32_t c) {
    if (c < 0x80) {
        *out++ = (char)c;
        return out;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    *out++ = (char)(lead[more] | (c >> (6 * more)));
    for (int i = more - 1; i >= 0; i--)
        *out++ = (char)(0x80 | ((c >> (6 * i)) & 0x3f));
    return out;
}

/* Decodes \uXXXX, with its second half where it is a surrogate; *p stands at the first digit. The
 * text is known to go on to `end`, a quote. */
static int32_t unicode_escape(const unsigned char **p, const unsigned char *end) {
    const int32_t c = end - *p >= 4 ? hex4(*p) : -1;
    if (c < 0)
        return -1;
    *p += 4;
    if (c < 0xd800 || c > 0xdfff)
        return c;
    if (c > 0xdbff || end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u')
        return -2;
    const int32_t low = hex4(*p + 2);
    *p += 6;
    return low < 0xdc00 || low > 0xdfff ? -2 : 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

/* Decodes the escape whose backslash is just before *p. Code point, -1 bad escape, -2 lone
 * surrogate. */
static int32_t escape(const unsigned char **p, const unsigned char *end) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const unsigned char c = *(*p)++;
    const char *at = memchr(from, c, sizeof from - 1);
    if (at)
        return to[at - from];
    return c == 'u' ? unicode_escape(p, end) : -1;
}

/* The quote that ends the string at `from`, or NULL (an error is reported). */
static const unsigned char *string_end(struct ckpt_json *j, size_t from) {
    for (size_t i = from; i < j->n; i++) {
        const unsigned char c = j->s[i];
        if (c == '"')
            return j->s + i;
        if (c < 0x20) {
            fail_at(j, i, "a raw control byte in a string");
            return NULL;
        }
        i += c == '\\';
    }
    fail_at(j, from - 1, "a string without end begins");
    return NULL;
}

/* Reads the string whose opening quote is at the position into .text. */
static int read_string(struct ckpt_json *j) {
    const unsigned char *p = j->s + j->pos + 1;
    const unsigned char *end = string_end(j, j->pos + 1);
    if (!end)
        return -EINVAL;
    const size_t raw = (size_t)(end - p), valid = ckpt_utf8_valid(p, raw);
    if (valid < raw)
        return fail_at(j, (size_t)(p - j->s) + valid, "bytes that are not UTF-8 in a string");
    /* No text is longer than what it is written as, and the quote behind it leaves room for a NUL.
     */
    char *const text = j->in_place ? (char *)(uintptr_t)p : pool_take(j, raw + 1), *out = text;
    if (!text)
        return fail_memory(j);
    j->pos = (size_t)(end - j->s) + 1;
    while (p < end) {
        const unsigned char *backslash = memchr(p, '\\', (size_t)(end - p));
        const size_t plain = (size_t)((backslash ? backslash : end) - p);
        memmove(out, p, plain);
        out += plain;
        p += plain;
        if (p == end)
            break;
        const size_t at = (size_t)(p++ - j->s);
        const int32_t c = escape(&p, end);
        if (c < 0)
            return fail_at(j, at, c == -1 ? "an unknown escape" : "half a surrogate pair");
        out = put_utf8(out, c);
    }
    *out = '\0';
    j->text = (struct ckpt_text){text, (size_t)(out - text)};
    return 0;
}

/* The number of digits at p. */
static size_t count_digits(const struct ckpt_json *j, size_t p) {
    size_t n = 0;
    while (p + n < j->n && j->s[p + n] >= '0' && j->s[p + n] <= '9')
        n++;
    return n;
}

/* Exact value of a plain integer token of n digits; false if it does not fit, and for -0. */
static bool read_integer(struct ckpt_json *j, const unsigned char *digit, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(digit[i] - '0'), &v))
            return false;
    if (j->negative && (v == 0 || v > (uint64_t)INT64_MAX + 1))
        return false;
    j->u = j->negative ? 0 : v;
    j->i = j->negative ? (int64_t)(0 - v) : v <= INT64_MAX ? (int64_t)v : 0;
    return true;
}

/* Passes over the optional fraction and exponent at *p. NULL, or what is wrong at *p. */
static const char *scan_fraction(const struct ckpt_json *j, size_t *p) {
    if (*p < j->n && j->s[*p] == '.') {
        const size_t n = count_digits(j, ++*p);
        if (n == 0)
            return "a digit behind the decimal point";
        *p += n;
    }
    if (*p < j->n && (j->s[*p] == 'e' || j->s[*p] == 'E')) {
        ++*p;
        *p += *p < j->n && (j->s[*p] == '+' || j->s[*p] == '-');
        const size_t n = count_digits(j, *p);
        if (n == 0)
            return "a digit in the exponent";
        *p += n;
    }
    return NULL;
}

static int read_number(struct ckpt_json *j) {
    const size_t start = j->pos;
    j->negative = j->s[start] == '-';
    const size_t first = start + j->negative, n = count_digits(j, first);
    j->pos = first;
    if (n == 0)
        return fail_expected(j, "a digit");
    if (n > 1 && j->s[first] == '0')
        return fail_at(j, start, "a number with a leading zero");
    size_t p = first + n;
    const char *missing = scan_fraction(j, &p);
    j->pos = p;
    if (missing)
        return fail_expected(j, missing);
    if (p == first + n && read_integer(j, j->s + first, n))
        return CKPT_JSON_INT;
    char *text = pool_take(j, p - start + 1);
    if (!text)
        return fail_memory(j);
    memcpy(text, j->s + start, p - start);
    text[p - start] = '\0';
    j->text = (struct ckpt_text){text, p - start};
    j->number = strtod(text, NULL);
    return CKPT_JSON_NUMBER;
}

static int read_word(struct ckpt_json *j, const char *word, int token) {
    const size_t n = strlen(word);
    if (j->n - j->pos < n || memcmp(j->s + j->pos, word, n) != 0)
        return fail_expected(j, "a value");
    j->pos += n;
    return token;
}

static int open_frame(struct ckpt_json *j, bool is_object) {
    if (j->depth == j->max_depth) {
        char text[80];
        snprintf(text, sizeof text, "nested deeper than %u levels", j->max_depth);
        return fail_at(j, j->pos, text);
    }
    if (j->depth == j->nframes) {
        const unsigned n = j->nframes ? j->nframes * 2 : 8;
        struct ckpt_json_frame *f = realloc(j->frames, n * sizeof *f);
        if (!f)
            return fail_memory(j);
        memset(f + j->nframes, 0, (n - j->nframes) * sizeof *f);
        j->frames = f;
        j->nframes = n;
    }
    struct ckpt_json_frame *frame = &j->frames[j->depth++];
    frame->is_object = is_object;
    j->pos++;
    j->expect = is_object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
    return is_object ? CKPT_JSON_OBJECT : CKPT_JSON_ARRAY;
}

/* What follows a complete value. */
static void after_value(struct ckpt_json *j) {
    j->expect = j->depth ? EXPECT_COMMA : EXPECT_END_OF_TEXT;
}

static int close_frame(struct ckpt_json *j) {
    struct ckpt_json_frame *frame = &j->frames[--j->depth];
    const bool is_object = frame->is_object;
    j->nkeys -= frame->keys.count;
    ckpt_strmap_clear(&frame->keys);
    j->pos++;
    after_value(j);
    return is_object ? CKPT_JSON_OBJECT_END : CKPT_JSON_ARRAY_END;
}

static int read_scalar(struct ckpt_json *j) {
    switch (j->s[j->pos]) {
    case '"':
        return read_string(j) ? -EINVAL : CKPT_JSON_STRING;
    case 't':
        return read_word(j, "true", CKPT_JSON_TRUE);
    case 'f':
        return read_word(j, "false", CKPT_JSON_FALSE);
    case 'n':
        return read_word(j, "null", CKPT_JSON_NULL);
    case '-':
    case '0' ... '9':
        return read_number(j);
    default:
        return fail_expected(j, "a value");
    }
}

static int read_value(struct ckpt_json *j) {
    if (j->pos == j->n)
        return fail_expected(j, "a value");
    const unsigned char c = j->s[j->pos];
    if (c == '{' || c == '[')
        return open_frame(j, c == '{');
    const int token = read_scalar(j);
    if (token >= 0)
        after_value(j);
    return token;
}

static int fail_too_many(struct ckpt_json *j) {
    char text[100];
    snprintf(text, sizeof text, "more than %u keys (limit of JSON keys)", CKPT_JSON_KEYS_MAX);
    return fail_at(j, j->at, text);
}

static int read_key(struct ckpt_json *j) {
    if (j->pos == j->n || j->s[j->pos] != '"')
        return fail_expected(j, "a key in quotes");
    int rc = read_string(j);
    if (rc)
        return rc;
    if (++j->nkeys > CKPT_JSON_KEYS_MAX)
        return fail_too_many(j);
    rc = ckpt_strmap_add(&j->frames[j->depth - 1].keys, j->text, 0, NULL);
    if (rc == -ENOMEM)
        return fail_memory(j);
    if (rc) {
        j->expect = EXPECT_NOTHING;
        return ckpt_fail(j->err, -EINVAL,
                         "malformed JSON: the key \"%.*s\" at byte %zu is there twice",
                         CKPT_TEXT_ARGS(j->text), j->base + j->at);
    }
    skip_blanks(j);
    if (j->pos == j->n || j->s[j->pos] != ':')
        return fail_expected(j, "':' behind a key");
    j->pos++;
    j->expect = EXPECT_VALUE;
    return CKPT_JSON_KEY;
}

static bool at_frame_end(const struct ckpt_json *j) {
    return j->pos < j->n && j->s[j->pos] == (j->frames[j->depth - 1].is_object ? '}' : ']');
}

/* Passes over the comma between two members; or closes the frame. */
static int read_comma(struct ckpt_json *j) {
    const bool in_object = j->frames[j->depth - 1].is_object;
    if (at_frame_end(j))
        return close_frame(j);
    if (j->pos == j->n || j->s[j->pos] != ',')
        return fail_expected(j, in_object ? "',' or '}'" : "',' or ']'");
    j->pos++;
    skip_blanks(j);
    j->at = j->pos;
    return in_object ? read_key(j) : read_value(j);
}

int ckpt_json_next(struct ckpt_json *j) {
    skip_blanks(j);
    j->at = j->pos;
    switch (j->expect) {
    case EXPECT_VALUE_OR_END:
        return at_frame_end(j) ? close_frame(j) : read_value(j);
    case EXPECT_VALUE:
        return read_value(j);
    case EXPECT_KEY_OR_END:
        return at_frame_end(j) ? close_frame(j) : read_key(j);
    case EXPECT_KEY:
        return read_key(j);
    case EXPECT_COMMA:
        return read_comma(j);
    case EXPECT_END_OF_TEXT:
        return j->pos == j->n ? CKPT_JSON_EOF : fail_expected(j, "nothing behind the value");
    default:
        return -EINVAL; /* already reported */
    }
}

int ckpt_json_skip(struct ckpt_json *j, int token) {
    if (token != CKPT_JSON_OBJECT && token != CKPT_JSON_ARRAY)
        return token < 0 ? token : 0;
    const unsigned outside = j->depth - 1;
    while (j->depth > outside) {
        const int t = ckpt_json_next(j);
        if (t < 0)
            return t;
    }
    return 0;
}
