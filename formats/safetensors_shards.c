#include "formats/safetensors_header.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/strmap.h"
#include "formats/directory.h"
#include "formats/shard_index.h"

/*
 * A model directory: shards and their index, or a single model.safetensors. Of a shard, only the
 * tensors that the index places there count, in the index's order.
 *
 *     index.entries   k1 k2 k3 ...        each names a shard
 *                      |
 *     shards[...]     file, table, by_key: key -> table.entries[...]
 */
#define INDEX_SUFFIX ".safetensors.index.json"
#define FILE_SUFFIX ".safetensors"

struct shard {
    const struct ckpt_file *file; /* NULL: it could not be read (only with keep_going) */
    struct ckpt_st_table table;
    struct ckpt_strmap by_key;
    size_t used;       /* tensors that the index places here */
    const char *fault; /* why it could not be read */
};

struct reader {
    struct ckpt_checkpoint *c;
    const char *directory;
    const struct ckpt_open_options *options;
    struct ckpt_shard_index index;
    struct shard *shards;
    size_t nshards; /* made so far */
    struct ckpt_err *err;
};

static void reader_fini(struct reader *r) {
    for (size_t i = 0; i < r->nshards; i++) {
        ckpt_st_table_fini(&r->shards[i].table);
        ckpt_strmap_fini(&r->shards[i].by_key);
    }
    free(r->shards);
    ckpt_shard_index_fini(&r->index);
}
#define ckpt_auto_reader reader_fini

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading a model directory");
}

/* Opens a shard and reads its header. The file belongs to the checkpoint, even after a failure. */
static int read_table(struct reader *r, const char *name, struct shard *s) {
    struct ckpt_file *f = NULL;
    const int rc = ckpt_directory_open(r->directory, name, &f, r->err);
    if (rc)
        return rc;
    if (ckpt_checkpoint_add_file(r->c, f))
        return fail_memory(r->err);
    if (ckpt_st_read(&s->table, &r->c->arena, f, r->options->keep_going, r->err))
        return ckpt_fail_in(r->err, "%s", name);
    s->file = f;
    return 0;
}

static int read_shard(struct reader *r, const char *name, struct shard *s) {
    int rc = read_table(r, name, s);
    if (rc && rc != -ENOMEM && r->options->keep_going) {
        s->fault = ckpt_arena_printf(&r->c->arena, "%s", r->err->text);
        return s->fault ? 0 : fail_memory(r->err);
    }
    for (size_t i = 0; !rc && i < s->table.n; i++)
        if (ckpt_strmap_add(&s->by_key, s->table.entries[i].key, i, NULL))
            rc = fail_memory(r->err);
    return rc;
}

static int read_shards(struct reader *r) {
    r->shards = calloc(r->index.nshards + 1, sizeof *r->shards);
    if (!r->shards)
        return fail_memory(r->err);
    for (size_t i = 0; i < r->index.nshards; i++) {
        r->nshards = i + 1;
        const int rc = read_shard(r, r->index.shards[i].s, &r->shards[i]);
        if (rc)
            return rc;
    }
    return 0;
}

/* An indexed tensor that cannot be had: refuses, or goes on without it. */
static int miss(struct reader *r, struct ckpt_text key, const char *reason) {
    if (!r->options->keep_going)
        return ckpt_fail(r->err, -EINVAL, "tensor \"%.*s\": %s", CKPT_TEXT_ARGS(key), reason);
    struct ckpt_text *segment = ckpt_arena_alloc(&r->c->arena, sizeof *segment);
    if (!segment)
        return fail_memory(r->err);
    *segment = key;
    const struct ckpt_path path = {segment, 1};
    return ckpt_checkpoint_add_unsupported(r->c, path, ckpt_text_of(reason)) ? fail_memory(r->err)
                                                                             : 0;
}

static int add_tensor(struct reader *r, const struct ckpt_shard_entry *e) {
    struct shard *s = &r->shards[e->shard];
    if (s->fault)
        return miss(r, e->key, s->fault);
    const size_t at = ckpt_strmap_get(&s->by_key, e->key);
    if (at != CKPT_STRMAP_ABSENT) {
        s->used++;
        return ckpt_st_add(r->c, s->file, &s->table, &s->table.entries[at], r->err);
    }
    const char *reason = ckpt_arena_printf(
        &r->c->arena, "it is not in %s, where the index places it", r->index.shards[e->shard].s);
    return reason ? miss(r, e->key, reason) : fail_memory(r->err);
}

/* The shards' metadata as one: of a key that several have, the first one's value. */
static int add_metadata(struct reader *r) {
    CKPT_AUTO(strmap) struct ckpt_strmap seen = {0};
    for (size_t i = 0; i < r->nshards; i++)
        for (size_t k = 0; k < r->shards[i].table.nmetadata; k++) {
            const struct ckpt_pair *pair = &r->shards[i].table.metadata[k];
            const int rc = ckpt_strmap_add(&seen, pair->key, 0, NULL);
            if (rc == -EEXIST)
                continue;
            if (rc || ckpt_checkpoint_add_metadata(r->c, pair->key, pair->value))
                return fail_memory(r->err);
        }
    return 0;
}

static void warn_unused(const struct reader *r) {
    for (size_t i = 0; i < r->nshards; i++)
        if (r->shards[i].used < r->shards[i].table.n)
            ckpt_checkpoint_warn(r->c,
                                 "%s: %zu of its %zu tensors are not in the index and left out",
                                 r->index.shards[i].s, r->shards[i].table.n - r->shards[i].used,
                                 r->shards[i].table.n);
}

static int read_index(struct reader *r, const char *name) {
    struct ckpt_file *f = NULL;
    int rc = ckpt_directory_open(r->directory, name, &f, r->err);
    if (rc)
        return rc;
    if (ckpt_shard_index_read(&r->index, &r->c->arena, f, r->err))
        rc = ckpt_fail_in(r->err, "%s", name);
    ckpt_file_close(f);
    return rc;
}

static int read_sharded(struct ckpt_checkpoint *c, const char *directory, const char *index,
                        const struct ckpt_open_options *options, struct ckpt_err *err) {
    struct ckpt_err unasked = {0}; /* a shard's failure may become a tensor's reason */
    CKPT_AUTO(reader)
    struct reader r = {
        .c = c, .directory = directory, .options = options, .err = err ? err : &unasked};
    c->format = "safetensors-sharded";
    int rc = read_index(&r, index);
    if (!rc)
        rc = read_shards(&r);
    for (size_t i = 0; !rc && i < r.index.n; i++)
        rc = add_tensor(&r, &r.index.entries[i]);
    if (!rc)
        rc = add_metadata(&r);
    if (!rc)
        warn_unused(&r);
    return rc;
}

static int read_single(struct ckpt_checkpoint *c, const char *directory, const char *name,
                       const struct ckpt_open_options *options, struct ckpt_err *err) {
    struct ckpt_file *f = NULL;
    const int rc = ckpt_directory_open(directory, name, &f, err);
    if (rc)
        return rc;
    if (ckpt_checkpoint_add_file(c, f))
        return fail_memory(err);
    return ckpt_format_safetensors.read(c, directory, options, err) ? ckpt_fail_in(err, "%s", name)
                                                                    : 0;
}

static int read_directory(struct ckpt_checkpoint *c, const char *source,
                          const struct ckpt_open_options *options, struct ckpt_err *err) {
    const char *index = NULL, *single = NULL;
    int rc = ckpt_directory_fill(c, source, err);
    if (!rc)
        rc =
            ckpt_directory_pick(&c->arena, source, "model" INDEX_SUFFIX, INDEX_SUFFIX, &index, err);
    if (!rc && !index)
        rc = ckpt_directory_pick(&c->arena, source, "model" FILE_SUFFIX, FILE_SUFFIX, &single, err);
    if (!rc && !index && !single)
        rc = ckpt_fail(err, -ENOENT, "no " FILE_SUFFIX " file in it");
    if (rc)
        return rc;
    return index ? read_sharded(c, source, index, options, err)
                 : read_single(c, source, single, options, err);
}

static bool detect(const char *source, const struct ckpt_file *file) {
    (void)file;
    return ckpt_directory_has(source, INDEX_SUFFIX) || ckpt_directory_has(source, FILE_SUFFIX);
}

const struct ckpt_format ckpt_format_safetensors_shards = {"safetensors-sharded", true, detect,
                                                           read_directory};
