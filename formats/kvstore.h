#ifndef CKPT_FORMATS_KVSTORE_H
#define CKPT_FORMATS_KVSTORE_H
/*
 * A key-value store, which is where zarr keeps its arrays: "w/.zarray" -> JSON, "w/0.1" -> a chunk.
 * It is either a database (OCDBT) or a directory, whose keys are paths below it:
 *
 *     manifest.ocdbt, d/...    -> ckpt_ocdbt_open     ┐
 *     w/.zarray, w/0.1         -> ckpt_kvstore_scan   ┴-> one sorted table of keys and values
 *
 * Opening reads no value; whether the bytes of one are there is asked where they are wanted
 * (ckpt_stored_check), so that the answer can name the array. Immutable once open; keys and values
 * are in the arena that it was given.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "formats/stream.h"

struct ckpt_kv {
    struct ckpt_text key;
    struct ckpt_stored value;
};

struct ckpt_kvstore {
    struct ckpt_kv *entries; /* ascending by key; freed by fini */
    size_t n, cap;
    uint64_t key_bytes; /* of all keys */
    uint64_t held;      /* bytes that whoever fills it has beside it */
    struct ckpt_arena *arena;
};

/* Adds a key, which is greater than those before it unless ckpt_kvstore_sort follows. The text is
 * copied, the value is not. -E2BIG: beyond the limits. */
int ckpt_kvstore_add(struct ckpt_kvstore *s, struct ckpt_text key, struct ckpt_stored value,
                     struct ckpt_err *err) CKPT_CHECKED;
/* Bytes that are left of the limit of memory, for all that is made while the store is filled. */
uint64_t ckpt_kvstore_room(const struct ckpt_kvstore *s);
/* -E2BIG: there is not enough. */
int ckpt_kvstore_fail_room(const struct ckpt_kvstore *s, struct ckpt_err *err);
/* -EINVAL names a key that is there twice. */
int ckpt_kvstore_sort(struct ckpt_kvstore *s, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_kvstore_fini(struct ckpt_kvstore *s);

/* All files below an absolute directory, but not what symbolic links to folders lead to. */
int ckpt_kvstore_scan(struct ckpt_kvstore *s, const char *directory,
                      struct ckpt_err *err) CKPT_CHECKED;

/* NULL: no such key. */
const struct ckpt_kv *ckpt_kvstore_get(const struct ckpt_kvstore *s, struct ckpt_text key);
/* The index of the first key that is not less than this one. */
size_t ckpt_kvstore_from(const struct ckpt_kvstore *s, struct ckpt_text key);
/* A whole value of at most `most` bytes, which the refusal calls by its name (limit of NAME), with
 * a NUL behind it, in the arena `a`. */
int ckpt_kvstore_read(const struct ckpt_kv *kv, uint64_t most, const char *limit,
                      struct ckpt_arena *a, struct ckpt_text *out,
                      struct ckpt_err *err) CKPT_CHECKED;

#define ckpt_auto_kvstore ckpt_kvstore_fini

#endif
