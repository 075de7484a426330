#include "formats/value.h"

#include <inttypes.h>
#include <string.h>

/*
 * Names for paths. A dict key that is not a string shows as Python would print it; since such a
 * key may be a tuple of tuples, shared or even cyclic, its text ends with "..." beyond a depth and
 * a length that no real key has.
 */
#define REPR_DEPTH 16
#define REPR_BYTES 4096

struct ckpt_value *ckpt_value_get(const struct ckpt_value *dict, const char *key) {
    if (!dict || dict->kind != CKPT_VALUE_DICT)
        return NULL;
    for (size_t i = 0; i + 1 < dict->seq.n; i += 2) {
        const struct ckpt_value *k = dict->seq.item[i];
        if (k->kind == CKPT_VALUE_STR && ckpt_text_is(k->text, key))
            return dict->seq.item[i + 1];
    }
    return NULL;
}

/* Adds valid UTF-8 as it is; each other byte (of a lone surrogate) percent-encoded. */
static void add_utf8(struct ckpt_str *out, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        const size_t valid = ckpt_utf8_valid(s + i, n - i);
        ckpt_str_add(out, s + i, valid);
        i += valid;
        if (i < n)
            ckpt_str_printf(out, "%%%02X", (unsigned char)s[i++]);
    }
}

static void add_quoted_byte(struct ckpt_str *out, char c, char quote) {
    static const char from[] = "\n\r\t", to[] = "nrt";
    const char *at = c ? strchr(from, c) : NULL;
    if (at)
        ckpt_str_add(out, (const char[]){'\\', to[at - from]}, 2);
    else if (c == quote || c == '\\')
        ckpt_str_add(out, (const char[]){'\\', c}, 2);
    else
        ckpt_str_printf(out, "\\x%02x", (unsigned char)c);
}

/* A string or bytes in Python's quotes. Of bytes, all outside ASCII is escaped. */
static void repr_quoted(struct ckpt_str *out, struct ckpt_text t, bool is_bytes) {
    const bool has_single = memchr(t.s, '\'', t.n), has_double = memchr(t.s, '"', t.n);
    const char quote = has_single && !has_double ? '"' : '\'';
    ckpt_str_printf(out, "%s%c", is_bytes ? "b" : "", quote);
    for (size_t i = 0; i < t.n && out->n < REPR_BYTES;) {
        size_t run = 0;
        for (; i + run < t.n; run++) {
            const unsigned char c = (unsigned char)t.s[i + run];
            if (c < 0x20 || c == 0x7f || c == '\\' || c == (unsigned char)quote ||
                (is_bytes && c > 0x7f))
                break;
        }
        add_utf8(out, t.s + i, run);
        i += run;
        if (i < t.n)
            add_quoted_byte(out, t.s[i++], quote);
    }
    ckpt_str_printf(out, "%c", quote);
}

void ckpt_value_quote(struct ckpt_str *out, struct ckpt_text t) {
    repr_quoted(out, t, false);
}

static void repr(struct ckpt_str *out, const struct ckpt_value *v, unsigned depth);

static void repr_items(struct ckpt_str *out, const struct ckpt_value *v, unsigned depth) {
    const bool is_dict = v->kind == CKPT_VALUE_DICT;
    for (size_t i = 0; i < v->seq.n && out->n < REPR_BYTES; i++) {
        if (i)
            ckpt_str_puts(out, is_dict && i % 2 ? ": " : ", ");
        repr(out, v->seq.item[i], depth + 1);
    }
}

static void repr_container(struct ckpt_str *out, const struct ckpt_value *v, unsigned depth) {
    static const char *const open[] = {[CKPT_VALUE_LIST] = "[",
                                       [CKPT_VALUE_TUPLE] = "(",
                                       [CKPT_VALUE_SET] = "{",
                                       [CKPT_VALUE_DICT] = "{"};
    static const char *const close[] = {[CKPT_VALUE_LIST] = "]",
                                        [CKPT_VALUE_TUPLE] = ")",
                                        [CKPT_VALUE_SET] = "}",
                                        [CKPT_VALUE_DICT] = "}"};
    if (depth >= REPR_DEPTH || out->n >= REPR_BYTES) {
        ckpt_str_puts(out, "...");
    } else if (v->kind == CKPT_VALUE_SET && v->seq.n == 0) {
        ckpt_str_puts(out, "set()");
    } else {
        ckpt_str_puts(out, open[v->kind]);
        repr_items(out, v, depth);
        if (v->kind == CKPT_VALUE_TUPLE && v->seq.n == 1)
            ckpt_str_puts(out, ",");
        ckpt_str_puts(out, close[v->kind]);
    }
}

static void repr_float(struct ckpt_str *out, double f) {
    char text[CKPT_DOUBLE_TEXT];
    ckpt_double_text(text, f);
    ckpt_str_puts(out, text);
}

static void repr(struct ckpt_str *out, const struct ckpt_value *v, unsigned depth) {
    switch (v->kind) {
    case CKPT_VALUE_NONE:
        ckpt_str_puts(out, "None");
        break;
    case CKPT_VALUE_BOOL:
        ckpt_str_puts(out, v->b ? "True" : "False");
        break;
    case CKPT_VALUE_INT:
        ckpt_str_printf(out, "%" PRId64, v->i);
        break;
    case CKPT_VALUE_FLOAT:
        repr_float(out, v->f);
        break;
    case CKPT_VALUE_STR:
    case CKPT_VALUE_BYTES:
        repr_quoted(out, v->text, v->kind == CKPT_VALUE_BYTES);
        break;
    case CKPT_VALUE_LIST:
    case CKPT_VALUE_TUPLE:
    case CKPT_VALUE_SET:
    case CKPT_VALUE_DICT:
        repr_container(out, v, depth);
        break;
    case CKPT_VALUE_BIGINT:
    case CKPT_VALUE_GLOBAL:
    case CKPT_VALUE_OPAQUE:
    case CKPT_VALUE_MODULE:
        add_utf8(out, v->text.s, v->text.n);
        break;
    default:
        ckpt_str_puts(out, v->kind == CKPT_VALUE_TENSOR ? "tensor" : "object");
    }
}

static struct ckpt_text finish(struct ckpt_arena *a, struct ckpt_str *text) {
    const struct ckpt_text whole = ckpt_str_text(text);
    const struct ckpt_text copy =
        text->failed ? (struct ckpt_text){0} : ckpt_text_copy(a, whole.s, whole.n);
    ckpt_str_fini(text);
    return copy;
}

struct ckpt_text ckpt_value_call(struct ckpt_arena *a, struct ckpt_text callee,
                                 const struct ckpt_value *args) {
    struct ckpt_str text = {0};
    add_utf8(&text, callee.s, callee.n);
    ckpt_str_puts(&text, "(");
    repr_items(&text, args, 0);
    ckpt_str_puts(&text, ")");
    return finish(a, &text);
}

struct ckpt_text ckpt_value_path_segment(struct ckpt_arena *a, const struct ckpt_value *key) {
    if (key->kind == CKPT_VALUE_STR && ckpt_utf8_valid(key->text.s, key->text.n) == key->text.n)
        return key->text;
    struct ckpt_str text = {0};
    if (key->kind == CKPT_VALUE_STR)
        add_utf8(&text, key->text.s, key->text.n);
    else
        repr(&text, key, 0);
    return finish(a, &text);
}
