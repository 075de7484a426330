#include "base/json.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The writer keeps one bit a level in each of three words; level 0 is the text as a whole. */

static uint64_t level_bit(const struct ckpt_json_out *w) {
    return (uint64_t)1 << w->depth;
}

static void new_line(struct ckpt_json_out *w) {
    char line[1 + 2 * CKPT_JSON_OUT_DEPTH_MAX] = "\n";
    memset(line + 1, ' ', 2 * w->depth);
    ckpt_str_add(w->out, line, 1 + 2 * w->depth);
}

/* Writes what stands between the previous element of this level and the next one. An array keeps
 * scalars on its own line and puts each container (and all behind it) on a line of its own. */
static void separate(struct ckpt_json_out *w, bool own_line) {
    const uint64_t bit = level_bit(w);
    if (w->depth == 0)
        return;
    const bool first = !(w->not_first & bit);
    w->not_first |= bit;
    if (own_line)
        w->is_broken |= bit;
    if (!first)
        ckpt_str_puts(w->out, ",");
    if (w->pretty && (w->is_broken & bit))
        new_line(w);
    else if (w->pretty && !first)
        ckpt_str_puts(w->out, " ");
}

/* Before any value that is not an object's key. */
static void before_value(struct ckpt_json_out *w, bool is_container) {
    if (w->after_key)
        w->after_key = false;
    else
        separate(w, is_container);
}

static void open_level(struct ckpt_json_out *w, bool is_array) {
    before_value(w, true);
    assert(w->depth < CKPT_JSON_OUT_DEPTH_MAX);
    ckpt_str_puts(w->out, is_array ? "[" : "{");
    w->depth++;
    const uint64_t bit = level_bit(w);
    w->not_first &= ~bit;
    w->is_broken &= ~bit;
    w->is_array = is_array ? w->is_array | bit : w->is_array & ~bit;
}

static void close_level(struct ckpt_json_out *w) {
    const uint64_t bit = level_bit(w);
    w->depth--;
    if (w->pretty && (w->is_broken & bit))
        new_line(w);
    ckpt_str_puts(w->out, w->is_array & bit ? "]" : "}");
}

void ckpt_jsonw_object(struct ckpt_json_out *w) {
    open_level(w, false);
}

void ckpt_jsonw_object_end(struct ckpt_json_out *w) {
    close_level(w);
}

void ckpt_jsonw_array(struct ckpt_json_out *w) {
    open_level(w, true);
}

void ckpt_jsonw_array_end(struct ckpt_json_out *w) {
    close_level(w);
}

/* Writes one ASCII byte of a string, escaped where JSON asks for it. */
static void quote_byte(struct ckpt_str *out, char c) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *at = c ? strchr(from, c) : NULL;
    if (at)
        ckpt_str_add(out, (const char[]){'\\', to[at - from]}, 2);
    else if ((unsigned char)c < 0x20)
        ckpt_str_printf(out, "\\u%04x", (unsigned)c);
    else
        ckpt_str_add(out, &c, 1);
}

static bool is_plain(char c) {
    return c != '"' && c != '\\' && (unsigned char)c >= 0x20;
}

static void quote_utf8(struct ckpt_str *out, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t run = 0;
        while (i + run < n && is_plain(s[i + run]))
            run++;
        ckpt_str_add(out, s + i, run);
        i += run;
        if (i < n)
            quote_byte(out, s[i++]);
    }
}

void ckpt_json_quote(struct ckpt_str *out, struct ckpt_text t) {
    ckpt_str_puts(out, "\"");
    for (size_t i = 0; i < t.n;) {
        const size_t valid = ckpt_utf8_valid(t.s + i, t.n - i);
        quote_utf8(out, t.s + i, valid);
        i += valid;
        if (i < t.n)
            ckpt_str_printf(out, "%%%02X", (unsigned char)t.s[i++]);
    }
    ckpt_str_puts(out, "\"");
}

void ckpt_jsonw_key_text(struct ckpt_json_out *w, struct ckpt_text key) {
    separate(w, true);
    ckpt_json_quote(w->out, key);
    ckpt_str_puts(w->out, w->pretty ? ": " : ":");
    w->after_key = true;
}

void ckpt_jsonw_key(struct ckpt_json_out *w, const char *key) {
    ckpt_jsonw_key_text(w, ckpt_text_of(key));
}

void ckpt_jsonw_raw(struct ckpt_json_out *w, struct ckpt_text json) {
    before_value(w, false);
    ckpt_str_add(w->out, json.s, json.n);
}

void ckpt_jsonw_text(struct ckpt_json_out *w, struct ckpt_text t) {
    before_value(w, false);
    ckpt_json_quote(w->out, t);
}

void ckpt_jsonw_string(struct ckpt_json_out *w, const char *s) {
    if (s)
        ckpt_jsonw_text(w, ckpt_text_of(s));
    else
        ckpt_jsonw_null(w);
}

void ckpt_jsonw_i64(struct ckpt_json_out *w, int64_t v) {
    before_value(w, false);
    ckpt_str_i64(w->out, v);
}

void ckpt_jsonw_u64(struct ckpt_json_out *w, uint64_t v) {
    before_value(w, false);
    ckpt_str_u64(w->out, v);
}

void ckpt_double_text(char out[static CKPT_DOUBLE_TEXT], double v) {
    if (!isfinite(v)) {
        strcpy(out, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return;
    }
    int digits = 0;
    do
        snprintf(out, CKPT_DOUBLE_TEXT, "%.*e", digits, v);
    while (strtod(out, NULL) != v && ++digits < 17);
    const int exponent = atoi(strchr(out, 'e') + 1);
    if (exponent >= -4 && exponent < 16) /* else it stands as it is: 1e-05 */
        snprintf(out, CKPT_DOUBLE_TEXT, "%.*f", digits > exponent ? digits - exponent : 1, v);
}

void ckpt_jsonw_double(struct ckpt_json_out *w, double v) {
    if (!isfinite(v)) {
        ckpt_jsonw_string(w, isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity");
        return;
    }
    char text[CKPT_DOUBLE_TEXT];
    ckpt_double_text(text, v);
    ckpt_jsonw_raw(w, ckpt_text_of(text));
}

void ckpt_jsonw_bool(struct ckpt_json_out *w, bool v) {
    ckpt_jsonw_raw(w, v ? CKPT_TEXT("true") : CKPT_TEXT("false"));
}

void ckpt_jsonw_null(struct ckpt_json_out *w) {
    ckpt_jsonw_raw(w, CKPT_TEXT("null"));
}
