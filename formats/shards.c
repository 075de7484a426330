#include "formats/shards.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/strmap.h"
#include "formats/directory.h"
#include "formats/shard_index.h"

/*
 * A shard is a checkpoint of its own, opened by its content like any other. Of it, only the tensors
 * that the index places there count, in the index's order; what it owns goes over to the whole.
 *
 *     index.entries   k1 k2 k3 ...        each names a shard
 *                      |
 *     shards[...]     part, by_key: key -> part->tensors[...], then part->unsupported[...]
 */
struct shard {
    struct ckpt_checkpoint *part; /* NULL: it could not be read (only with keep_going) */
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
        ckpt_checkpoint_close(r->shards[i].part);
        ckpt_strmap_fini(&r->shards[i].by_key);
    }
    free(r->shards);
    ckpt_shard_index_fini(&r->index);
}
#define ckpt_auto_reader reader_fini

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading a model directory");
}

/* --- shards ----------------------------------------------------------------------------------- */

static int open_part(struct reader *r, const char *name, struct ckpt_checkpoint **part) {
    CKPT_AUTO(free) char *path = ckpt_directory_path(r->directory, name);
    if (!path)
        return fail_memory(r->err);
    const int rc = ckpt_checkpoint_open_file(path, r->options, part, r->err);
    return rc ? ckpt_fail_in(r->err, "%s", name) : 0;
}

static size_t entry_count(const struct shard *s) {
    return s->part ? s->part->ntensors + s->part->nunsupported : 0;
}

/* Both lists by key. Of a path of several segments no index speaks. */
static int map_keys(struct reader *r, struct shard *s) {
    const struct ckpt_checkpoint *part = s->part;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < part->ntensors; i++)
        rc = ckpt_strmap_add(&s->by_key, part->tensors[i].key, i, NULL);
    for (size_t i = 0; rc == 0 && i < part->nunsupported; i++) {
        const struct ckpt_path p = part->unsupported[i].path;
        if (p.n == 1 &&
            ckpt_strmap_add(&s->by_key, *p.segment, part->ntensors + i, NULL) == -ENOMEM)
            rc = -ENOMEM;
    }
    return rc ? fail_memory(r->err) : 0;
}

static int pass_on_warnings(struct reader *r, const char *name,
                            const struct ckpt_checkpoint *part) {
    for (size_t i = 0; i < part->nwarnings; i++)
        if (ckpt_checkpoint_warn(r->c, "%s: %s", name, part->warnings[i].s))
            return fail_memory(r->err);
    return 0;
}

static int read_shard(struct reader *r, const char *name, struct shard *s) {
    int rc = open_part(r, name, &s->part);
    if (rc && rc != -ENOMEM && r->options->keep_going) {
        s->fault = ckpt_arena_printf(&r->c->arena, "%s", r->err->text);
        return s->fault ? 0 : fail_memory(r->err);
    }
    if (rc)
        return rc;
    r->c->is_torch = r->c->is_torch || s->part->is_torch;
    rc = map_keys(r, s);
    if (rc == 0)
        rc = pass_on_warnings(r, name, s->part);
    if (rc == 0 && ckpt_checkpoint_absorb(r->c, s->part))
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

/* --- tensors ---------------------------------------------------------------------------------- */

static int leave_out(struct reader *r, struct ckpt_text key, struct ckpt_text reason) {
    struct ckpt_text *segment = ckpt_arena_alloc(&r->c->arena, sizeof *segment);
    if (!segment)
        return fail_memory(r->err);
    *segment = key;
    const struct ckpt_path path = {.segment = segment, .n = 1};
    return ckpt_checkpoint_add_unsupported(r->c, path, reason) ? fail_memory(r->err) : 0;
}

/* An indexed tensor that cannot be had: refuses, or goes on without it. */
static int miss(struct reader *r, struct ckpt_text key, const char *reason) {
    if (!r->options->keep_going)
        return ckpt_fail(r->err, -EINVAL, "tensor \"%.*s\": %s", CKPT_TEXT_ARGS(key), reason);
    return leave_out(r, key, ckpt_text_of(reason));
}

static int take_tensor(struct reader *r, const struct ckpt_tensor *t) {
    struct ckpt_tensor *slot = ckpt_checkpoint_add_tensor(r->c);
    if (!slot)
        return fail_memory(r->err);
    *slot = *t;
    slot->module = -1; /* a shard has no whole modules */
    return 0;
}

static int add_tensor(struct reader *r, const struct ckpt_shard_entry *e) {
    struct shard *s = &r->shards[e->shard];
    if (s->fault)
        return miss(r, e->key, s->fault);
    const size_t at = ckpt_strmap_get(&s->by_key, e->key);
    if (at != CKPT_STRMAP_ABSENT) {
        s->used++;
        return at < s->part->ntensors
                   ? take_tensor(r, &s->part->tensors[at])
                   : leave_out(r, e->key, s->part->unsupported[at - s->part->ntensors].text);
    }
    const char *reason = ckpt_arena_printf(
        &r->c->arena, "it is not in %s, where the index places it", r->index.shards[e->shard].s);
    return reason ? miss(r, e->key, reason) : fail_memory(r->err);
}

/* The shards' metadata as one: of a key that several have, the first one's value. */
static int add_metadata(struct reader *r) {
    CKPT_AUTO(strmap) struct ckpt_strmap seen = {0};
    for (size_t i = 0; i < r->nshards; i++) {
        const struct ckpt_checkpoint *part = r->shards[i].part;
        for (size_t k = 0; part && k < part->nmetadata; k++) {
            const struct ckpt_pair *pair = &part->metadata[k];
            const int rc = ckpt_strmap_add(&seen, pair->key, 0, NULL);
            if (rc == -EEXIST)
                continue;
            if (rc || ckpt_checkpoint_add_metadata(r->c, pair->key, pair->value))
                return fail_memory(r->err);
        }
    }
    return 0;
}

static void warn_unused(const struct reader *r) {
    for (size_t i = 0; i < r->nshards; i++) {
        const struct shard *s = &r->shards[i];
        if (s->used < entry_count(s))
            ckpt_checkpoint_warn(r->c,
                                 "%s: %zu of its %zu tensors are not in the index and left out",
                                 r->index.shards[i].s, entry_count(s) - s->used, entry_count(s));
    }
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

int ckpt_shards_read(struct ckpt_checkpoint *c, const char *directory, const char *index,
                     const struct ckpt_open_options *options, struct ckpt_err *err) {
    struct ckpt_err unasked = {0}; /* a shard's failure may become a tensor's reason */
    CKPT_AUTO(reader)
    struct reader r = {
        .c = c, .directory = directory, .options = options, .err = err ? err : &unasked};
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
