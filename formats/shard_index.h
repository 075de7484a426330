#ifndef CKPT_FORMATS_SHARD_INDEX_H
#define CKPT_FORMATS_SHARD_INDEX_H
/*
 * The index of a sharded directory, whatever its shards' format:
 *
 *     {"metadata": {...}, "weight_map": {KEY: "model-00001-of-00002.safetensors", ...}}
 */
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/strmap.h"
#include "base/text.h"
#include "formats/file.h"

struct ckpt_shard_entry {
    struct ckpt_text key;
    size_t shard; /* index in shards */
};

/* Texts are in the arena given to read; the arrays are freed by fini. */
struct ckpt_shard_index {
    struct ckpt_shard_entry *entries; /* in the index's order */
    size_t n, cap;
    struct ckpt_text *shards; /* plain file names, by first use */
    size_t nshards, shards_cap;
    struct ckpt_strmap by_name;
};

/* Refused: names that are not plain (they could lead out of the directory), over
 * CKPT_LIMIT_SHARDS. */
int ckpt_shard_index_read(struct ckpt_shard_index *x, struct ckpt_arena *a,
                          const struct ckpt_file *f, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_shard_index_parse(struct ckpt_shard_index *x, struct ckpt_arena *a, const void *json,
                           size_t n, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_shard_index_fini(struct ckpt_shard_index *x);

#define ckpt_auto_shard_index ckpt_shard_index_fini

#endif
