#include "base/json_walk.h"

#include <errno.h>

int ckpt_json_unexpected(struct ckpt_json *j, int token, const char *what, const char *expected) {
    if (token < 0)
        return token;
    return ckpt_fail(j->err, -EINVAL, "%s is %s at byte %zu, expected %s", what,
                     ckpt_json_token_name(token), j->base + j->at, expected);
}

int ckpt_json_take_object(struct ckpt_json *j, int token, const char *what,
                          ckpt_json_member *member, void *user) {
    if (token != CKPT_JSON_OBJECT)
        return ckpt_json_unexpected(j, token, what, "an object");
    while ((token = ckpt_json_next(j)) == CKPT_JSON_KEY) {
        const int rc = member(user, j->text);
        if (rc)
            return rc;
    }
    return token < 0 ? token : 0;
}

int ckpt_json_read_object(struct ckpt_json *j, const char *what, ckpt_json_member *member,
                          void *user) {
    return ckpt_json_take_object(j, ckpt_json_next(j), what, member, user);
}

int ckpt_json_read_array(struct ckpt_json *j, const char *what, ckpt_json_element *element,
                         void *user) {
    int token = ckpt_json_next(j);
    if (token != CKPT_JSON_ARRAY)
        return ckpt_json_unexpected(j, token, what, "an array");
    while ((token = ckpt_json_next(j)) >= 0 && token != CKPT_JSON_ARRAY_END) {
        const int rc = element(user, token);
        if (rc)
            return rc;
    }
    return token < 0 ? token : 0;
}

int ckpt_json_take_int(struct ckpt_json *j, int token, const char *what, int64_t *out) {
    if (token != CKPT_JSON_INT || (!j->negative && j->u > INT64_MAX))
        return ckpt_json_unexpected(j, token, what, "a signed 64-bit integer");
    *out = j->negative ? j->i : (int64_t)j->u;
    return 0;
}

int ckpt_json_read_int(struct ckpt_json *j, const char *what, int64_t *out) {
    return ckpt_json_take_int(j, ckpt_json_next(j), what, out);
}

int ckpt_json_read_bool(struct ckpt_json *j, const char *what, bool *out) {
    const int token = ckpt_json_next(j);
    if (token != CKPT_JSON_TRUE && token != CKPT_JSON_FALSE)
        return ckpt_json_unexpected(j, token, what, "true or false");
    *out = token == CKPT_JSON_TRUE;
    return 0;
}

int ckpt_json_take_text(struct ckpt_json *j, int token, const char *what, struct ckpt_arena *a,
                        struct ckpt_text *out) {
    if (token != CKPT_JSON_STRING)
        return ckpt_json_unexpected(j, token, what, "a string");
    *out = ckpt_text_copy(a, j->text.s, j->text.n);
    return out->s ? 0 : ckpt_fail_memory(j->err, what);
}

int ckpt_json_read_text(struct ckpt_json *j, const char *what, struct ckpt_arena *a,
                        struct ckpt_text *out) {
    return ckpt_json_take_text(j, ckpt_json_next(j), what, a, out);
}

int ckpt_json_read_nothing(struct ckpt_json *j) {
    return ckpt_json_skip(j, ckpt_json_next(j));
}
