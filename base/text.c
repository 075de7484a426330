#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ckpt_text ckpt_text_of(const char *s) {
    return (struct ckpt_text){s, strlen(s)};
}

bool ckpt_text_eq(struct ckpt_text a, struct ckpt_text b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

/* Byte by byte: tables of names are searched with it, where most differ in one of the first. */
bool ckpt_text_is(struct ckpt_text a, const char *s) {
    size_t i = 0;
    while (i < a.n && s[i] && a.s[i] == s[i])
        i++;
    return i == a.n && !s[i];
}

bool ckpt_text_starts(struct ckpt_text a, const char *prefix) {
    const size_t n = strlen(prefix);
    return a.n >= n && memcmp(a.s, prefix, n) == 0;
}

bool ckpt_text_ends(struct ckpt_text a, const char *suffix) {
    const size_t n = strlen(suffix);
    return a.n >= n && memcmp(a.s + a.n - n, suffix, n) == 0;
}

int ckpt_text_cmp(struct ckpt_text a, struct ckpt_text b) {
    const size_t n = a.n < b.n ? a.n : b.n;
    const int c = n ? memcmp(a.s, b.s, n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

struct ckpt_text ckpt_text_copy(struct ckpt_arena *a, const void *s, size_t n) {
    return (struct ckpt_text){ckpt_arena_copy(a, s, n), n};
}

uint64_t ckpt_text_hash(const void *s, size_t n) {
    const unsigned char *p = s;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* Length of the well-formed sequence at p (Unicode 15, table 3-7), or 0. */
static size_t utf8_sequence(const unsigned char *p, size_t left) {
    const unsigned char c = p[0];
    if (c < 0x80)
        return 1;
    const size_t n = c >= 0xc2 && c <= 0xdf   ? 2
                     : (c & 0xf0) == 0xe0     ? 3
                     : c >= 0xf0 && c <= 0xf4 ? 4
                                              : 0;
    if (n == 0 || left < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    const bool overlong = (c == 0xe0 && p[1] < 0xa0) || (c == 0xf0 && p[1] < 0x90);
    const bool surrogate = c == 0xed && p[1] > 0x9f;
    const bool past_end = c == 0xf4 && p[1] > 0x8f;
    return overlong || surrogate || past_end ? 0 : n;
}

size_t ckpt_utf8_valid(const void *s, size_t n) {
    const unsigned char *p = s;
    size_t i = 0;
    while (i < n) {
        const size_t k = utf8_sequence(p + i, n - i);
        if (k == 0)
            break;
        i += k;
    }
    return i;
}

#define SIMILARITY_MAX 256 /* longer names are compared by their last bytes, which differ most */

static struct ckpt_text tail(struct ckpt_text t) {
    const size_t skip = t.n > SIMILARITY_MAX ? t.n - SIMILARITY_MAX : 0;
    return (struct ckpt_text){t.s + skip, t.n - skip};
}

/* Marks equal bytes within the window; returns how many match. */
static size_t jaro_matches(struct ckpt_text a, struct ckpt_text b, bool *in_a, bool *in_b) {
    const size_t longest = a.n > b.n ? a.n : b.n;
    const size_t window = longest / 2 > 0 ? longest / 2 - 1 : 0;
    size_t matches = 0;
    for (size_t i = 0; i < a.n; i++) {
        const size_t lo = i > window ? i - window : 0;
        const size_t hi = i + window + 1 < b.n ? i + window + 1 : b.n;
        for (size_t j = lo; j < hi; j++) {
            if (in_b[j] || a.s[i] != b.s[j])
                continue;
            in_a[i] = in_b[j] = true;
            matches++;
            break;
        }
    }
    return matches;
}

double ckpt_text_similarity(struct ckpt_text x, struct ckpt_text y) {
    const struct ckpt_text a = tail(x), b = tail(y);
    if (a.n == 0 || b.n == 0)
        return a.n == b.n ? 1.0 : 0.0;
    bool in_a[SIMILARITY_MAX] = {false}, in_b[SIMILARITY_MAX] = {false};
    const size_t m = jaro_matches(a, b, in_a, in_b);
    if (m == 0)
        return 0.0;
    size_t swapped = 0, j = 0;
    for (size_t i = 0; i < a.n; i++) {
        if (!in_a[i])
            continue;
        while (!in_b[j])
            j++;
        swapped += a.s[i] != b.s[j];
        j++;
    }
    const double dm = (double)m;
    return (dm / (double)a.n + dm / (double)b.n + (dm - (double)swapped / 2) / dm) / 3;
}

int ckpt_text_nearest(struct ckpt_text name, const struct ckpt_text *candidates, size_t n) {
    int best = -1;
    double best_similarity = 0.7;
    for (size_t i = 0; i < n; i++) {
        const double s = ckpt_text_similarity(name, candidates[i]);
        if (s < best_similarity)
            continue;
        best_similarity = s + 1e-12; /* the first of equals wins */
        best = (int)i;
    }
    return best;
}

void ckpt_str_fini(struct ckpt_str *s) {
    free(s->s);
    *s = (struct ckpt_str){0};
}

uint64_t ckpt_str_total(const struct ckpt_str *s) {
    return s->passed + s->n;
}

bool ckpt_str_forget(void *arg, const char *s, size_t n) {
    (void)arg, (void)s, (void)n;
    return true;
}

void ckpt_str_flush(struct ckpt_str *s) {
    if (!s->sink || s->n == 0)
        return;
    s->failed |= !s->sink(s->arg, s->s, s->n);
    s->passed += s->n;
    s->n = 0;
    s->s[0] = '\0';
}

#define SINK_BYTES ((size_t)32 * 1024)

static bool reserve(struct ckpt_str *s, size_t more) {
    size_t need;
    if (s->sink && s->n >= SINK_BYTES)
        ckpt_str_flush(s);
    if (s->failed || __builtin_add_overflow(s->n, more, &need) || need == SIZE_MAX)
        return !(s->failed = true);
    if (need + 1 <= s->cap)
        return true;
    size_t cap = s->cap ? s->cap : 64;
    while (cap < need + 1)
        cap = cap > SIZE_MAX / 2 ? need + 1 : cap * 2;
    char *p = realloc(s->s, cap);
    if (!p)
        return !(s->failed = true);
    s->s = p;
    s->cap = cap;
    return true;
}

void ckpt_str_add(struct ckpt_str *s, const void *data, size_t n) {
    if (s->sink && n > SINK_BYTES) { /* straight through */
        ckpt_str_flush(s);
        s->failed |= !s->sink(s->arg, data, n);
        s->passed += n;
        return;
    }
    if (!reserve(s, n))
        return;
    if (n)
        memcpy(s->s + s->n, data, n);
    s->n += n;
    s->s[s->n] = '\0';
}

void ckpt_str_puts(struct ckpt_str *s, const char *text) {
    ckpt_str_add(s, text, strlen(text));
}

void ckpt_str_printf(struct ckpt_str *s, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && reserve(s, (size_t)n)) {
        vsnprintf(s->s + s->n, (size_t)n + 1, fmt, again);
        s->n += (size_t)n;
    }
    va_end(again);
}

void ckpt_str_u64(struct ckpt_str *s, uint64_t v) {
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    ckpt_str_add(s, digits + at, sizeof digits - at);
}

void ckpt_str_i64(struct ckpt_str *s, int64_t v) {
    if (v < 0)
        ckpt_str_add(s, "-", 1);
    ckpt_str_u64(s, v < 0 ? -(uint64_t)v : (uint64_t)v);
}

void ckpt_str_cut(struct ckpt_str *s, size_t n) {
    if (!s->s || n > s->n)
        return;
    s->n = n;
    s->s[n] = '\0';
}

struct ckpt_text ckpt_str_text(const struct ckpt_str *s) {
    return s->s ? (struct ckpt_text){s->s, s->n} : CKPT_TEXT("");
}
