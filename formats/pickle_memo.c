#include "formats/pickle_vm.h"

#include <stdlib.h>

/*
 * The memo: index -> value. A hash map, because a stream may name any index up to 2^32 (and more in
 * text) without having that many entries. Open addressing with linear probing.
 */

static size_t slot_of(const struct pickle_memo *m, uint64_t key) {
    size_t i = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (m->cap - 1);
    while (m->slot[i].key != 0 && m->slot[i].key != key + 1)
        i = (i + 1) & (m->cap - 1);
    return i;
}

static int grow(struct pickle_vm *vm) {
    struct pickle_memo *m = &vm->memo;
    struct pickle_memo bigger = {.count = m->count, .cap = m->cap ? m->cap * 2 : 64};
    if (m->count >= CKPT_LIMIT_PICKLE_OBJECTS)
        return pickle_fail(vm, "more than %u memo entries (limit of pickled objects)",
                           CKPT_LIMIT_PICKLE_OBJECTS);
    bigger.slot = calloc(bigger.cap, sizeof *bigger.slot);
    if (!bigger.slot)
        return pickle_fail_memory(vm);
    for (size_t i = 0; i < m->cap; i++)
        if (m->slot[i].key)
            bigger.slot[slot_of(&bigger, m->slot[i].key - 1)] = m->slot[i];
    free(m->slot);
    *m = bigger;
    return 0;
}

int pickle_memo_put(struct pickle_vm *vm, uint64_t key, struct ckpt_value *v) {
    struct pickle_memo *m = &vm->memo;
    if (m->count + 1 > m->cap / 2) {
        const int rc = grow(vm);
        if (rc)
            return rc;
    }
    struct pickle_memo_slot *slot = &m->slot[slot_of(m, key)];
    m->count += slot->key == 0;
    *slot = (struct pickle_memo_slot){key + 1, v};
    return 0;
}

struct ckpt_value *pickle_memo_get(const struct pickle_memo *m, uint64_t key) {
    if (m->cap == 0)
        return NULL;
    const struct pickle_memo_slot *slot = &m->slot[slot_of(m, key)];
    return slot->key ? slot->value : NULL;
}

void pickle_memo_fini(struct pickle_memo *m) {
    free(m->slot);
    *m = (struct pickle_memo){0};
}
