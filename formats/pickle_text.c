#include "formats/pickle_vm.h"

#include <errno.h>
#include <stdlib.h>

/* Numbers and strings that protocols 0 and 1 write as text. */

#define FLOAT_TEXT_MAX 64 /* repr of a double has at most 24 characters */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static struct ckpt_text skip(struct ckpt_text t, size_t n) {
    return (struct ckpt_text){t.s + n, t.n - n};
}

/* Sign and digits; false if t is not "[+-]digits". */
static bool split_decimal(struct ckpt_text t, bool *negative, struct ckpt_text *digits) {
    *negative = t.n > 0 && t.s[0] == '-';
    *digits = t.n > 0 && (t.s[0] == '-' || t.s[0] == '+') ? skip(t, 1) : t;
    for (size_t i = 0; i < digits->n; i++)
        if (!is_digit(digits->s[i]))
            return false;
    return digits->n > 0;
}

static bool decimal_to_i64(struct ckpt_text digits, bool negative, int64_t *out) {
    int64_t v = 0;
    for (size_t i = 0; i < digits.n; i++) {
        const int64_t d = digits.s[i] - '0';
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, negative ? -d : d, &v))
            return false;
    }
    *out = v;
    return true;
}

int pickle_parse_int(struct pickle_vm *vm, struct ckpt_text t, struct ckpt_value **out) {
    bool negative;
    struct ckpt_text digits;
    int64_t i;
    if (!split_decimal(t, &negative, &digits))
        return pickle_fail(vm, "\"%.*s\" is not an integer", (int)(t.n > 80 ? 80 : t.n), t.s);
    while (digits.n > 1 && digits.s[0] == '0')
        digits = skip(digits, 1);
    if (decimal_to_i64(digits, negative, &i))
        return pickle_make_int(vm, i, out);
    const int rc = pickle_make(vm, CKPT_VALUE_BIGINT, out);
    if (rc)
        return rc;
    char *s = ckpt_arena_array(vm->arena, digits.n + 2, 1);
    if (!s)
        return pickle_fail_memory(vm);
    s[0] = '-';
    memcpy(s + negative, digits.s, digits.n);
    (*out)->text = (struct ckpt_text){s, digits.n + negative};
    return 0;
}

int pickle_parse_index(struct pickle_vm *vm, struct ckpt_text t, uint64_t *out) {
    bool negative;
    struct ckpt_text digits;
    int64_t i;
    if (!split_decimal(t, &negative, &digits) || !decimal_to_i64(digits, negative, &i) || i < 0)
        return pickle_fail(vm, "\"%.*s\" is not a memo index", (int)(t.n > 80 ? 80 : t.n), t.s);
    *out = (uint64_t)i;
    return 0;
}

/* Decimal only: strtod would take hexadecimal, too. */
static bool text_to_double(struct ckpt_text t, double *out) {
    char text[FLOAT_TEXT_MAX], *end;
    if (t.n == 0 || t.n >= sizeof text || memchr(t.s, 'x', t.n) || memchr(t.s, '\0', t.n))
        return false;
    memcpy(text, t.s, t.n);
    text[t.n] = '\0';
    *out = strtod(text, &end);
    return end == text + t.n;
}

int pickle_parse_float(struct pickle_vm *vm, struct ckpt_text t, struct ckpt_value **out) {
    double f;
    if (!text_to_double(t, &f))
        return pickle_fail(vm, "\"%.*s\" is not a number", (int)(t.n > 80 ? 80 : t.n), t.s);
    return pickle_make_float(vm, f, out);
}

int pickle_make_str2(struct pickle_vm *vm, struct ckpt_text t, struct ckpt_value **out) {
    return pickle_utf8_valid(t) ? pickle_make_str(vm, t, out) : pickle_make_bytes(vm, t, out);
}

/* The value of n digits of a base up to 16, or -1. */
static int64_t digits_value(struct ckpt_text t, size_t n, int64_t base) {
    int64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        const char c = i < t.n ? t.s[i] : '\0';
        const int64_t d = is_digit(c)            ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : base;
        if (d >= base)
            return -1;
        v = v * base + d;
    }
    return v;
}

/* The byte that the escape at t (behind the backslash) stands for, -1 if it is none; *used bytes of
 * t. "\<newline>" stands for nothing (-2). */
static int64_t unescape(struct ckpt_text t, size_t *used) {
    static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    const char c = t.n ? t.s[0] : '\0';
    *used = 1;
    for (size_t i = 0; i + 1 < sizeof plain; i += 2)
        if (c == plain[i])
            return (unsigned char)plain[i + 1];
    if (c == '\n')
        return -2;
    if (c == 'x') {
        *used = 3;
        return digits_value(skip(t, 1), 2, 16);
    }
    size_t octal = 0;
    while (octal < 3 && octal < t.n && t.s[octal] >= '0' && t.s[octal] <= '7')
        octal++;
    *used = octal;
    return octal ? digits_value(t, octal, 8) & 0xff : -1;
}

int pickle_parse_quoted(struct pickle_vm *vm, struct ckpt_text t, struct ckpt_value **out) {
    if (t.n < 2 || t.s[0] != t.s[t.n - 1] || (t.s[0] != '\'' && t.s[0] != '"'))
        return pickle_fail(vm, "a string without its quotes");
    char *s = ckpt_arena_alloc(vm->arena, t.n);
    if (!s)
        return pickle_fail_memory(vm);
    size_t n = 0;
    for (struct ckpt_text in = {t.s + 1, t.n - 2}; in.n > 0;) {
        int64_t c = (unsigned char)in.s[0];
        size_t used = 0;
        in = skip(in, 1);
        if (c == '\\') {
            c = unescape(in, &used);
            if (c == -1)
                used = 0, c = '\\'; /* Python keeps an escape that it does not know */
        }
        in = skip(in, used < in.n ? used : in.n);
        if (c >= 0)
            s[n++] = (char)c;
    }
    return pickle_make_str2(vm, (struct ckpt_text){s, n}, out);
}

static size_t put_utf8(char *s, uint32_t c) {
    if (c < 0x80) {
        s[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        s[0] = (char)(0xc0 | c >> 6);
        s[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        s[0] = (char)(0xe0 | c >> 12);
        s[1] = (char)(0x80 | (c >> 6 & 0x3f));
        s[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    s[0] = (char)(0xf0 | c >> 18);
    s[1] = (char)(0x80 | (c >> 12 & 0x3f));
    s[2] = (char)(0x80 | (c >> 6 & 0x3f));
    s[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* The code point of an escape \uXXXX or \UXXXXXXXX at t (at its backslash), or -1. */
static int64_t unicode_escape(struct ckpt_text t, size_t *used) {
    if (t.n < 2 || t.s[0] != '\\' || (t.s[1] != 'u' && t.s[1] != 'U'))
        return -1;
    const size_t digits = t.s[1] == 'u' ? 4 : 8;
    const int64_t c = digits_value(skip(t, 2), digits, 16);
    *used = 2 + digits;
    return c > 0x10ffff ? -1 : c;
}

/* raw-unicode-escape: Latin-1, but for \uXXXX and \UXXXXXXXX. */
int pickle_parse_raw_unicode(struct pickle_vm *vm, struct ckpt_text t, struct ckpt_value **out) {
    char *s = ckpt_arena_array(vm->arena, t.n + 1, 2); /* a byte becomes at most two */
    if (!s)
        return pickle_fail_memory(vm);
    size_t n = 0;
    while (t.n > 0) {
        size_t used = 1;
        int64_t c = unicode_escape(t, &used);
        if (c < 0) {
            c = (unsigned char)t.s[0];
            used = 1;
        }
        n += put_utf8(s + n, (uint32_t)c);
        t = skip(t, used);
    }
    return pickle_make_str(vm, (struct ckpt_text){s, n}, out);
}
