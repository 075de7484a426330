#include "formats/pickle_vm.h"

#include <stdlib.h>

/*
 * The memo: index -> value. Picklers number their entries 0, 1, 2, ...: those lie in an array that
 * grows by one entry at a time. A stream may name any other index up to 2^32 (and more in text)
 * without having that many entries: those lie in a hash map with open addressing and linear
 * probing, so that no array is ever sized by an index.
 */

static size_t slot_of(const struct pickle_memo *m, uint64_t key) {
    size_t i = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (m->cap - 1);
    while (m->slot[i].key != 0 && m->slot[i].key != key + 1)
        i = (i + 1) & (m->cap - 1);
    return i;
}

static int grow_map(struct pickle_vm *vm) {
    struct pickle_memo *m = &vm->memo;
    struct pickle_memo bigger = {.cap = m->cap ? m->cap * 2 : 64};
    bigger.slot = calloc(bigger.cap, sizeof *bigger.slot);
    if (!bigger.slot)
        return pickle_fail_memory(vm);
    for (size_t i = 0; i < m->cap; i++)
        if (m->slot[i].key)
            bigger.slot[slot_of(&bigger, m->slot[i].key - 1)] = m->slot[i];
    free(m->slot);
    m->slot = bigger.slot;
    m->cap = bigger.cap;
    return 0;
}

static int put_in_map(struct pickle_vm *vm, uint64_t key, struct ckpt_value *v) {
    struct pickle_memo *m = &vm->memo;
    if (m->used + 1 > m->cap / 2) {
        const int rc = grow_map(vm);
        if (rc)
            return rc;
    }
    struct pickle_memo_slot *slot = &m->slot[slot_of(m, key)];
    m->used += slot->key == 0;
    m->count += slot->key == 0;
    *slot = (struct pickle_memo_slot){key + 1, v};
    return 0;
}

static bool is_in_map(const struct pickle_memo *m, uint64_t key) {
    return m->cap != 0 && m->slot[slot_of(m, key)].key != 0;
}

static int append(struct pickle_vm *vm, struct ckpt_value *v) {
    struct pickle_memo *m = &vm->memo;
    if (m->n == m->room) {
        const size_t room = m->room ? m->room * 2 : 64;
        struct ckpt_value **p = reallocarray(m->dense, room, sizeof *p);
        if (!p)
            return pickle_fail_memory(vm);
        m->dense = p;
        m->room = room;
    }
    m->count += !is_in_map(m, m->n);
    m->dense[m->n++] = v;
    return 0;
}

int pickle_memo_put(struct pickle_vm *vm, uint64_t key, struct ckpt_value *v) {
    struct pickle_memo *m = &vm->memo;
    if (m->count >= CKPT_LIMIT_PICKLE_OBJECTS)
        return pickle_fail(vm, "more than %u memo entries (limit of pickled objects)",
                           CKPT_LIMIT_PICKLE_OBJECTS);
    if (key == m->n)
        return append(vm, v);
    if (key > m->n)
        return put_in_map(vm, key, v);
    m->dense[key] = v;
    return 0;
}

struct ckpt_value *pickle_memo_get(const struct pickle_memo *m, uint64_t key) {
    if (key < m->n)
        return m->dense[key];
    return m->cap ? m->slot[slot_of(m, key)].value : NULL;
}

void pickle_memo_fini(struct pickle_memo *m) {
    free(m->dense);
    free(m->slot);
    *m = (struct pickle_memo){0};
}
