/*
 * The index of a sharded directory. Property: it is refused with a sentence, or every entry names
 * one of its shards, every shard's name is plain (it can't lead out of the directory) and used, and
 * reading it again gives the same.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/shard_index.h"

static void require(bool condition) {
    if (!condition)
        abort();
}

static void check_index(const struct ckpt_shard_index *x) {
    require(x->nshards <= x->n);
    for (size_t i = 0; i < x->n; i++)
        require(x->entries[i].shard < x->nshards);
    for (size_t i = 0; i < x->nshards; i++) {
        const struct ckpt_text name = x->shards[i];
        require(name.n > 0 && strlen(name.s) == name.n && !strchr(name.s, '/'));
        require(strcmp(name.s, ".") != 0 && strcmp(name.s, "..") != 0);
    }
}

static void compare(const struct ckpt_shard_index *x, const struct ckpt_shard_index *y) {
    require(x->n == y->n && x->nshards == y->nshards);
    for (size_t i = 0; i < x->n; i++)
        require(ckpt_text_eq(x->entries[i].key, y->entries[i].key) &&
                x->entries[i].shard == y->entries[i].shard);
    for (size_t i = 0; i < x->nshards; i++)
        require(ckpt_text_eq(x->shards[i], y->shards[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ckpt_shard_index index, again;
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    if (ckpt_shard_index_parse(&index, &a, data, size, &err) == 0) {
        check_index(&index);
        require(ckpt_shard_index_parse(&again, &a, data, size, &err) == 0);
        compare(&index, &again);
        ckpt_shard_index_fini(&again);
        ckpt_shard_index_fini(&index);
    } else {
        require(err.text[0] != '\0' && !strchr(err.text, '\n'));
    }
    ckpt_arena_fini(&a);
    return 0;
}
