/*
 * The pickle machine on any bytes. Property: it ends within its limits; an accepted pickle lies
 * inside the input and is as long as ckpt_pickle_length says; every value that can be reached from
 * it is well-formed; its JSON can be written.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/limits.h"
#include "formats/pickle.h"

#define ARENA_BYTES ((size_t)64 << 20)
#define VALUES_MAX 200000

static void require(bool condition) {
    if (!condition)
        abort();
}

static int echo_id(void *user, const struct ckpt_value *id, struct ckpt_value **out,
                   struct ckpt_err *err) {
    (void)user;
    (void)err;
    *out = (struct ckpt_value *)id;
    return 0;
}

static void check_text(struct ckpt_text t) {
    require(t.s != NULL);
    uint64_t sum = 0; /* for the sanitizer to see a read past the end */
    for (size_t i = 0; i < t.n; i++)
        sum += (unsigned char)t.s[i];
    require(sum <= UINT64_MAX - 1);
}

static void check_value(const struct ckpt_value *v, unsigned depth, size_t *left) {
    require(v != NULL);
    require(v->depth <= CKPT_LIMIT_PICKLE_DEPTH);
    if (depth > CKPT_LIMIT_PICKLE_DEPTH || *left == 0)
        return; /* a graph may be cyclic */
    --*left;
    switch (v->kind) {
    case CKPT_VALUE_STR:
    case CKPT_VALUE_BYTES:
    case CKPT_VALUE_BIGINT:
    case CKPT_VALUE_GLOBAL:
    case CKPT_VALUE_OPAQUE:
    case CKPT_VALUE_MODULE:
        check_text(v->text);
        break;
    case CKPT_VALUE_LIST:
    case CKPT_VALUE_TUPLE:
    case CKPT_VALUE_SET:
    case CKPT_VALUE_DICT:
        require(v->seq.n <= v->seq.cap);
        require(v->kind != CKPT_VALUE_DICT || v->seq.n % 2 == 0);
        for (size_t i = 0; i < v->seq.n; i++)
            check_value(v->seq.item[i], depth + 1, left);
        break;
    default:
        require(v->kind <= CKPT_PICKLE_NUMPY_DTYPE && v->kind != CKPT_VALUE_TENSOR);
    }
    if (v->attributes)
        check_value(v->attributes, depth + 1, left);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct ckpt_pickle_hooks hooks = {.persistent_id = echo_id};
    struct ckpt_arena arena = {.limit = ARENA_BYTES};
    struct ckpt_value *v = NULL;
    struct ckpt_err err = {0};
    size_t consumed = 0, left = VALUES_MAX;
    const int rc = ckpt_pickle_run(data, size, &hooks, &arena, &consumed, &v, &err);
    require(consumed <= size);
    require(rc == 0 || err.text[0] != '\0');
    if (rc == 0) {
        CKPT_AUTO(str) struct ckpt_str json = {0};
        struct ckpt_json_out w = {.out = &json};
        require(ckpt_pickle_length(data, size) == consumed);
        check_value(v, 0, &left);
        if (left > 0)
            ckpt_value_json(&w, v);
    }
    ckpt_arena_fini(&arena);
    return 0;
}
