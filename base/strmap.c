#include "base/strmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <pthread.h>

static uint64_t seed;

static void make_seed(void) {
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = 0x9e3779b97f4a7c15u; /* early boot: predictable collisions cost time only */
}

uint64_t ckpt_strmap_hash(struct ckpt_text key) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_seed);
    uint64_t h = ckpt_text_hash(key.s, key.n) ^ seed;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    return h ^ (h >> 31);
}

/* The slot that holds the key, or the free one where it belongs. */
static struct ckpt_strmap_slot *slot_of(const struct ckpt_strmap *m, struct ckpt_text key,
                                        uint64_t hash) {
    size_t i = (size_t)hash & (m->cap - 1);
    while (m->slots[i].key.s && !(m->slots[i].hash == hash && ckpt_text_eq(m->slots[i].key, key)))
        i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

static int grow(struct ckpt_strmap *m) {
    struct ckpt_strmap bigger = {.cap = m->cap ? m->cap * 2 : 16, .count = m->count};
    bigger.slots = calloc(bigger.cap, sizeof *bigger.slots);
    if (!bigger.slots)
        return -ENOMEM;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].key.s)
            *slot_of(&bigger, m->slots[i].key, m->slots[i].hash) = m->slots[i];
    free(m->slots);
    *m = bigger;
    return 0;
}

int ckpt_strmap_add(struct ckpt_strmap *m, struct ckpt_text key, size_t value, size_t *existing) {
    if (m->count + 1 > m->cap - m->cap / 4 && grow(m) != 0)
        return -ENOMEM;
    const uint64_t hash = ckpt_strmap_hash(key);
    struct ckpt_strmap_slot *slot = slot_of(m, key, hash);
    if (slot->key.s) {
        if (existing)
            *existing = slot->value;
        return -EEXIST;
    }
    *slot = (struct ckpt_strmap_slot){key, hash, value};
    m->count++;
    return 0;
}

size_t ckpt_strmap_get(const struct ckpt_strmap *m, struct ckpt_text key) {
    if (m->cap == 0)
        return CKPT_STRMAP_ABSENT;
    const struct ckpt_strmap_slot *slot = slot_of(m, key, ckpt_strmap_hash(key));
    return slot->key.s ? slot->value : CKPT_STRMAP_ABSENT;
}

#define KEEP_SLOTS 16 /* clearing more than this for every little object would cost */

void ckpt_strmap_clear(struct ckpt_strmap *m) {
    if (m->cap > KEEP_SLOTS) {
        ckpt_strmap_fini(m);
    } else if (m->count > 0) {
        memset(m->slots, 0, m->cap * sizeof *m->slots);
        m->count = 0;
    }
}

void ckpt_strmap_fini(struct ckpt_strmap *m) {
    free(m->slots);
    *m = (struct ckpt_strmap){0};
}
