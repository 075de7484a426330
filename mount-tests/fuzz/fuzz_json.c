/*
 * Property: an accepted text, walked and written again by our writer, is accepted and has the same
 * tokens: kinds, decoded texts, exact integers, the same doubles. Whatever is refused, is refused
 * with a sentence, and the next call refuses again.
 */
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define DEPTH 50u /* below the writer's limit */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds)
        abort();
}

static void write_scalar(struct ckpt_json_out *w, const struct ckpt_json *j, int token) {
    if (token == CKPT_JSON_STRING)
        ckpt_jsonw_text(w, j->text);
    else if (token == CKPT_JSON_INT && j->negative)
        ckpt_jsonw_i64(w, j->i);
    else if (token == CKPT_JSON_INT)
        ckpt_jsonw_u64(w, j->u);
    else if (token == CKPT_JSON_NUMBER && isfinite(j->number))
        ckpt_jsonw_double(w, j->number);
    else if (token == CKPT_JSON_NUMBER) /* 1e999 */
        ckpt_jsonw_raw(w, j->text);
    else if (token == CKPT_JSON_NULL)
        ckpt_jsonw_null(w);
    else
        ckpt_jsonw_bool(w, token == CKPT_JSON_TRUE);
}

static void write_token(struct ckpt_json_out *w, const struct ckpt_json *j, int token) {
    switch (token) {
    case CKPT_JSON_OBJECT:
        ckpt_jsonw_object(w);
        break;
    case CKPT_JSON_OBJECT_END:
        ckpt_jsonw_object_end(w);
        break;
    case CKPT_JSON_ARRAY:
        ckpt_jsonw_array(w);
        break;
    case CKPT_JSON_ARRAY_END:
        ckpt_jsonw_array_end(w);
        break;
    case CKPT_JSON_KEY:
        ckpt_jsonw_key_text(w, j->text);
        break;
    default:
        write_scalar(w, j, token);
    }
}

/* Walks a text and writes it again; the last token: EOF or an error. */
static int copy(const void *text, size_t n, bool pretty, struct ckpt_str *out) {
    struct ckpt_json_out w = {.out = out, .pretty = pretty};
    struct ckpt_err err = {0};
    struct ckpt_json j;
    int token;
    ckpt_json_init(&j, text, n, DEPTH, &err);
    while ((token = ckpt_json_next(&j)) > 0)
        write_token(&w, &j, token);
    check(token == 0 || (err.code == token && err.text[0] && ckpt_json_next(&j) < 0));
    ckpt_json_fini(&j);
    return token;
}

static bool same_token(const struct ckpt_json *a, const struct ckpt_json *b, int token) {
    if (token == CKPT_JSON_KEY || token == CKPT_JSON_STRING)
        return ckpt_text_eq(a->text, b->text) && a->text.s[a->text.n] == '\0';
    if (token == CKPT_JSON_INT)
        return a->u == b->u && a->i == b->i && a->negative == b->negative;
    return token != CKPT_JSON_NUMBER || a->number == b->number;
}

static void compare(const void *x, size_t nx, const struct ckpt_str *y) {
    struct ckpt_json a, b;
    int token;
    ckpt_json_init(&a, x, nx, DEPTH, NULL);
    ckpt_json_init(&b, y->s, y->n, DEPTH, NULL);
    do {
        token = ckpt_json_next(&a);
        check(token == ckpt_json_next(&b) && same_token(&a, &b, token));
    } while (token > 0);
    check(token == CKPT_JSON_EOF);
    ckpt_json_fini(&a);
    ckpt_json_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int pretty = 0; pretty < 2; pretty++) {
        struct ckpt_str out = {0};
        if (copy(data, size, pretty, &out) == CKPT_JSON_EOF)
            compare(data, size, &out);
        ckpt_str_fini(&out);
    }
    return 0;
}
