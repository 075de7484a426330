/*
 * msgpack as flax writes it. Properties: arrays lie in the input, in order and apart; an input that
 * is cut short is not accepted.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/guard.h"
#include "formats/msgpack.h"

#define SIZE_MAX_FUZZED ((size_t)1 << 16)

static void require(bool condition) {
    if (!condition)
        abort();
}

static void check(const struct ckpt_value *v, size_t size, uint64_t *end) {
    if (v->kind == CKPT_VALUE_MSGPACK_ARRAY) {
        const struct ckpt_msgpack_array *const a = v->format;
        if (a->is_number)
            return;
        require(a->offset >= *end && a->offset + a->nbytes <= size);
        *end = a->offset + a->nbytes;
    }
    if (v->kind != CKPT_VALUE_LIST && v->kind != CKPT_VALUE_DICT)
        return;
    for (size_t i = 0; i < v->seq.n; i++) {
        require(v->seq.item[i]->depth < v->depth);
        check(v->seq.item[i], size, end);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct ckpt_value *v = NULL;
    uint64_t end = 0;
    if (size == 0 || size > SIZE_MAX_FUZZED)
        return 0;
    if (ckpt_msgpack_read(data, size, &arena, &v, NULL) != 0)
        return 0;
    check(v, size, &end);
    require(ckpt_msgpack_read(data, size - 1, &arena, &v, NULL) != 0);
    return 0;
}
