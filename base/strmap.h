#ifndef CKPT_BASE_STRMAP_H
#define CKPT_BASE_STRMAP_H
/*
 * A map from text to an index: built once, then read by any number of threads. Open addressing over
 * FNV-1a mixed with a per-process seed (keys come from files, collisions must not be plannable).
 * Keys are referenced, not copied.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

struct ckpt_strmap_slot {
    struct ckpt_text key; /* .s NULL: free */
    uint64_t hash;        /* kept, so that growing and most misses touch no key */
    size_t value;
};

struct ckpt_strmap {
    struct ckpt_strmap_slot *slots;
    size_t count, cap; /* cap is a power of two or 0 */
};

#define CKPT_STRMAP_ABSENT SIZE_MAX

/* Adds key -> value. 0; -EEXIST if the key is there (*existing, if not NULL, gets its value and the
 * map is unchanged); -ENOMEM. */
int ckpt_strmap_add(struct ckpt_strmap *m, struct ckpt_text key, size_t value, size_t *existing)
    __attribute__((warn_unused_result));
/* The value of key, or CKPT_STRMAP_ABSENT. */
size_t ckpt_strmap_get(const struct ckpt_strmap *m, struct ckpt_text key);
/* The hash, for tables that keep less than this one: another in each process. */
uint64_t ckpt_strmap_hash(struct ckpt_text key);
/* Forgets all keys; a small table is kept for reuse. */
void ckpt_strmap_clear(struct ckpt_strmap *m);
void ckpt_strmap_fini(struct ckpt_strmap *m);

#define ckpt_auto_strmap ckpt_strmap_fini

#endif
