#include "formats/kvstore.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "formats/limits.h"

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading the names of arrays");
}

uint64_t ckpt_kvstore_room(const struct ckpt_kvstore *s) {
    const uint64_t used = s->arena->used + s->n * sizeof *s->entries + s->held;
    return used < CKPT_LIMIT_MEMORY ? CKPT_LIMIT_MEMORY - used : 0;
}

int ckpt_kvstore_fail_room(const struct ckpt_kvstore *s, struct ckpt_err *err) {
    return ckpt_fail(err, -E2BIG,
                     "reading its keys, of which %zu were read, would take more than %u MiB of "
                     "memory (limit of memory)",
                     s->n, CKPT_LIMIT_MEMORY >> 20);
}

int ckpt_kvstore_add(struct ckpt_kvstore *s, struct ckpt_text key, struct ckpt_stored value,
                     struct ckpt_err *err) {
    if (s->n >= CKPT_LIMIT_KV_KEYS)
        return ckpt_fail(err, -E2BIG, "more than %u keys (limit of keys)", CKPT_LIMIT_KV_KEYS);
    s->key_bytes += key.n;
    if (s->key_bytes > CKPT_LIMIT_KV_KEY_BYTES)
        return ckpt_fail(err, -E2BIG, "its keys have more than %u bytes (limit of key bytes)",
                         CKPT_LIMIT_KV_KEY_BYTES);
    if (key.n + sizeof *s->entries >= ckpt_kvstore_room(s))
        return ckpt_kvstore_fail_room(s, err);
    const struct ckpt_text copy = ckpt_text_copy(s->arena, key.s, key.n);
    if (!copy.s || !ckpt_array_grow(&s->entries, s->n, &s->cap, sizeof *s->entries))
        return fail_memory(err);
    s->entries[s->n++] = (struct ckpt_kv){copy, value};
    return 0;
}

static int compare(const void *a, const void *b) {
    return ckpt_text_cmp(((const struct ckpt_kv *)a)->key, ((const struct ckpt_kv *)b)->key);
}

int ckpt_kvstore_sort(struct ckpt_kvstore *s, struct ckpt_err *err) {
    if (s->n > 1)
        qsort(s->entries, s->n, sizeof *s->entries, compare);
    for (size_t i = 1; i < s->n; i++)
        if (compare(&s->entries[i - 1], &s->entries[i]) == 0)
            return ckpt_fail(err, -EINVAL, "the key \"%.*s\" is there twice",
                             CKPT_TEXT_ARGS(s->entries[i].key));
    return 0;
}

void ckpt_kvstore_fini(struct ckpt_kvstore *s) {
    free(s->entries);
    *s = (struct ckpt_kvstore){0};
}

size_t ckpt_kvstore_from(const struct ckpt_kvstore *s, struct ckpt_text key) {
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        const size_t middle = lo + (hi - lo) / 2;
        if (ckpt_text_cmp(s->entries[middle].key, key) < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

const struct ckpt_kv *ckpt_kvstore_get(const struct ckpt_kvstore *s, struct ckpt_text key) {
    const size_t at = ckpt_kvstore_from(s, key);
    return at < s->n && ckpt_text_eq(s->entries[at].key, key) ? &s->entries[at] : NULL;
}

int ckpt_kvstore_read(const struct ckpt_kv *kv, uint64_t most, const char *limit,
                      struct ckpt_arena *a, struct ckpt_text *out, struct ckpt_err *err) {
    int rc = ckpt_stored_check(&kv->value, err);
    if (rc)
        return rc;
    if (kv->value.length > most)
        return ckpt_fail(err, -E2BIG,
                         "has %" PRIu64 " bytes, the limit is %" PRIu64 " (limit of %s)",
                         kv->value.length, most, limit);
    char *const text = ckpt_arena_alloc(a, (size_t)kv->value.length + 1);
    if (!text)
        return fail_memory(err);
    rc = ckpt_stored_read(&kv->value, text, NULL, err);
    *out = (struct ckpt_text){text, (size_t)kv->value.length};
    return rc;
}
