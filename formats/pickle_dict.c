#include "formats/pickle_vm.h"

#include <pthread.h>
#include <sys/random.h>

/*
 * Dict items with Python's meaning: insertion order; a repeated key keeps its place and takes the
 * new value; 1, 1.0 and True are one key. Small dicts are searched; larger ones get a hash index.
 *
 * Tuples count as equal by content down to KEY_DEPTH and KEY_ITEMS, beyond that by identity, which
 * bounds the work of a hostile key; hashing is charged by length.
 */
#define SEARCHED_MAX 8
#define KEY_DEPTH 3
#define KEY_ITEMS 16

static uint64_t seed;

static void make_seed(void) {
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = 0x9e3779b97f4a7c15u; /* early boot: predictable collisions cost time only */
}

static uint64_t mix(uint64_t h, uint64_t v) {
    const __uint128_t p = (__uint128_t)(h ^ v) * 0xa0761d6478bd642fu;
    return (uint64_t)p ^ (uint64_t)(p >> 64) ^ seed;
}

static uint64_t hash_bytes(struct ckpt_text t) {
    uint64_t h = mix(seed, t.n);
    for (size_t i = 0; i < t.n; i += 8) {
        uint64_t v = 0;
        memcpy(&v, t.s + i, t.n - i < 8 ? t.n - i : 8);
        h = mix(h, v);
    }
    return h;
}

/* A bool, int or float as the double or integer that Python compares; false: not a number. */
static bool as_integer(const struct ckpt_value *v, int64_t *out) {
    if (v->kind == CKPT_VALUE_BOOL)
        *out = v->b;
    else if (v->kind == CKPT_VALUE_INT)
        *out = v->i;
    else if (v->kind == CKPT_VALUE_FLOAT && v->f >= -0x1p63 && v->f < 0x1p63 &&
             (double)(int64_t)v->f == v->f)
        *out = (int64_t)v->f;
    else
        return false;
    return true;
}

static bool has_text(const struct ckpt_value *v) {
    return v->kind == CKPT_VALUE_STR || v->kind == CKPT_VALUE_BYTES ||
           v->kind == CKPT_VALUE_BIGINT || v->kind == CKPT_VALUE_GLOBAL;
}

static bool is_plain_tuple(const struct ckpt_value *v, int depth) {
    return v->kind == CKPT_VALUE_TUPLE && v->seq.n <= KEY_ITEMS && depth < KEY_DEPTH;
}

static uint64_t hash_key(const struct ckpt_value *v, int depth) {
    int64_t i;
    if (as_integer(v, &i))
        return mix(seed, (uint64_t)i);
    if (has_text(v))
        return hash_bytes(v->text);
    if (v->kind == CKPT_VALUE_FLOAT && v->f == v->f) { /* a NaN equals only itself, as in Python */
        uint64_t bits;
        memcpy(&bits, &v->f, sizeof bits);
        return mix(~seed, bits);
    }
    if (!is_plain_tuple(v, depth))
        return mix(seed, v->kind == CKPT_VALUE_NONE ? 0 : (uint64_t)(uintptr_t)v);
    uint64_t h = mix(seed, v->seq.n);
    for (size_t k = 0; k < v->seq.n; k++)
        h = mix(h, hash_key(v->seq.item[k], depth + 1));
    return h;
}

static bool same_key(const struct ckpt_value *a, const struct ckpt_value *b, int depth) {
    int64_t i, j;
    if (a == b)
        return true;
    if (as_integer(a, &i) && as_integer(b, &j))
        return i == j;
    if (a->kind != b->kind)
        return false;
    if (has_text(a))
        return ckpt_text_eq(a->text, b->text);
    if (a->kind == CKPT_VALUE_FLOAT)
        return a->f == b->f;
    if (!is_plain_tuple(a, depth) || a->seq.n != b->seq.n)
        return a->kind == CKPT_VALUE_NONE;
    for (size_t k = 0; k < a->seq.n; k++)
        if (!same_key(a->seq.item[k], b->seq.item[k], depth + 1))
            return false;
    return true;
}

/* The slot that holds key, or the free one where it belongs. */
static uint32_t *find_slot(const struct pickle_object *d, const struct ckpt_value *key) {
    size_t s = (size_t)hash_key(key, 0) & (d->nslot - 1);
    while (d->slot[s] && !same_key(d->v.seq.item[2 * (size_t)(d->slot[s] - 1)], key, 0))
        s = (s + 1) & (d->nslot - 1);
    return &d->slot[s];
}

static struct ckpt_value **find(const struct pickle_object *d, const struct ckpt_value *key) {
    if (d->slot) {
        const uint32_t *slot = find_slot(d, key);
        return *slot ? &d->v.seq.item[2 * (size_t)(*slot - 1) + 1] : NULL;
    }
    for (size_t i = 0; i < d->v.seq.n; i += 2)
        if (same_key(d->v.seq.item[i], key, 0))
            return &d->v.seq.item[i + 1];
    return NULL;
}

struct ckpt_value *pickle_dict_get(const struct ckpt_value *dict, const char *key) {
    const struct ckpt_value text = {.kind = CKPT_VALUE_STR, .text = ckpt_text_of(key)};
    if (!pickle_is(dict, CKPT_VALUE_DICT))
        return NULL;
    struct ckpt_value **v = find((const struct pickle_object *)dict, &text);
    return v ? *v : NULL;
}

static int reindex(struct pickle_vm *vm, struct pickle_object *d, size_t nslot) {
    d->slot = ckpt_arena_array(vm->arena, nslot, sizeof *d->slot);
    if (!d->slot)
        return pickle_fail_memory(vm);
    d->nslot = nslot;
    for (size_t i = 0; i < d->v.seq.n; i += 2)
        *find_slot(d, d->v.seq.item[i]) = (uint32_t)(i / 2 + 1);
    return 0;
}

static int add_item(struct pickle_vm *vm, struct pickle_object *d, struct ckpt_value *key,
                    struct ckpt_value *value) {
    struct ckpt_value *v = &d->v;
    if (v->seq.n + 2 > v->seq.cap) {
        const size_t cap = v->seq.cap ? v->seq.cap * 2 : 8;
        struct ckpt_value **item = ckpt_arena_array(vm->arena, cap, sizeof(struct ckpt_value *));
        if (!item)
            return pickle_fail_memory(vm);
        if (v->seq.n)
            memcpy(item, v->seq.item, v->seq.n * sizeof(struct ckpt_value *));
        v->seq.item = item;
        v->seq.cap = cap;
    }
    v->seq.item[v->seq.n++] = key;
    v->seq.item[v->seq.n++] = value;
    const size_t count = v->seq.n / 2;
    if (count > SEARCHED_MAX && count > d->nslot / 2)
        return reindex(vm, d, d->nslot ? d->nslot * 2 : 4 * SEARCHED_MAX);
    if (d->slot)
        *find_slot(d, key) = (uint32_t)count;
    return 0;
}

static bool is_hashable(const struct ckpt_value *v) {
    return v->kind != CKPT_VALUE_LIST && v->kind != CKPT_VALUE_DICT;
}

int pickle_dict_set(struct pickle_vm *vm, struct ckpt_value *dict, struct ckpt_value *key,
                    struct ckpt_value *value) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_seed);
    if (!is_hashable(key))
        return pickle_fail(vm, "a %s as a dict key",
                           key->kind == CKPT_VALUE_LIST ? "list" : "dict");
    struct pickle_object *d = (struct pickle_object *)dict;
    int rc = pickle_charge(vm, 1 + (has_text(key) ? key->text.n / 64 : 0));
    if (rc == 0)
        rc = pickle_deepen(vm, dict, key);
    if (rc == 0)
        rc = pickle_deepen(vm, dict, value);
    if (rc)
        return rc;
    struct ckpt_value **old = find(d, key);
    if (!old)
        return add_item(vm, d, key, value);
    *old = value;
    return 0;
}
