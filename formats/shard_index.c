#include "formats/shard_index.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "formats/directory.h"
#include "formats/limits.h"

struct parser {
    struct ckpt_json json;
    struct ckpt_shard_index *index;
    struct ckpt_arena *arena;
    struct ckpt_err *err;
};

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading a shard index");
}

/* The shard's index, added if it is new; negative on errors. */
static int64_t find_shard(struct parser *p, struct ckpt_text name) {
    struct ckpt_shard_index *x = p->index;
    const size_t known = ckpt_strmap_get(&x->by_name, name);
    if (known != CKPT_STRMAP_ABSENT)
        return (int64_t)known;
    if (x->nshards == CKPT_LIMIT_SHARDS)
        return ckpt_fail(p->err, -E2BIG, "more than %u shards (limit of shards)",
                         CKPT_LIMIT_SHARDS);
    const struct ckpt_text copy = ckpt_text_copy(p->arena, name.s, name.n);
    if (!copy.s || !ckpt_array_grow(&x->shards, x->nshards, &x->shards_cap, sizeof *x->shards) ||
        ckpt_strmap_add(&x->by_name, copy, x->nshards, NULL))
        return fail_memory(p->err);
    x->shards[x->nshards] = copy;
    return (int64_t)x->nshards++;
}

static int read_entry(struct parser *p) {
    struct ckpt_shard_index *x = p->index;
    const struct ckpt_text key = p->json.text;
    const int t = ckpt_json_next(&p->json);
    if (t < 0)
        return t;
    if (t != CKPT_JSON_STRING)
        return ckpt_fail(p->err, -EINVAL, "weight_map: tensor \"%.*s\" lies in %s, expected a name",
                         CKPT_TEXT_ARGS(key), ckpt_json_token_name(t));
    if (!ckpt_is_plain_name(p->json.text))
        return ckpt_fail(p->err, -EINVAL,
                         "weight_map: tensor \"%.*s\" lies in \"%.*s\", expected the plain name of "
                         "a file in the directory",
                         CKPT_TEXT_ARGS(key), CKPT_TEXT_ARGS(p->json.text));
    const int64_t shard = find_shard(p, p->json.text);
    if (shard < 0)
        return (int)shard;
    if (x->n == CKPT_LIMIT_TENSORS)
        return ckpt_fail(p->err, -E2BIG, "more than %u tensors (limit of tensors)",
                         CKPT_LIMIT_TENSORS);
    const struct ckpt_text copy = ckpt_text_copy(p->arena, key.s, key.n);
    if (!copy.s || !ckpt_array_grow(&x->entries, x->n, &x->cap, sizeof *x->entries))
        return fail_memory(p->err);
    x->entries[x->n++] = (struct ckpt_shard_entry){copy, (size_t)shard};
    return 0;
}

static int read_weight_map(struct parser *p) {
    int t = ckpt_json_next(&p->json);
    if (t < 0)
        return t;
    if (t != CKPT_JSON_OBJECT)
        return ckpt_fail(p->err, -EINVAL, "weight_map is %s, expected an object",
                         ckpt_json_token_name(t));
    while ((t = ckpt_json_next(&p->json)) == CKPT_JSON_KEY) {
        const int rc = read_entry(p);
        if (rc)
            return rc;
    }
    return t < 0 ? t : 0;
}

static int read_index(struct parser *p) {
    struct ckpt_json *j = &p->json;
    bool has_map = false;
    int t = ckpt_json_next(j);
    if (t < 0)
        return t;
    if (t != CKPT_JSON_OBJECT)
        return ckpt_fail(p->err, -EINVAL, "the index is %s, expected an object",
                         ckpt_json_token_name(t));
    while ((t = ckpt_json_next(j)) == CKPT_JSON_KEY) {
        const bool is_map = ckpt_text_is(j->text, "weight_map");
        has_map = has_map || is_map;
        const int rc = is_map ? read_weight_map(p) : ckpt_json_skip(j, ckpt_json_next(j));
        if (rc)
            return rc;
    }
    if (t >= 0)
        t = ckpt_json_next(j);
    if (t >= 0 && !has_map)
        return ckpt_fail(p->err, -EINVAL, "the index has no weight_map");
    return t;
}

/* The JSON reader is at its start. */
static int parse(struct parser *p) {
    *p->index = (struct ckpt_shard_index){0};
    const int rc = read_index(p);
    ckpt_json_fini(&p->json);
    if (rc)
        ckpt_shard_index_fini(p->index);
    return rc;
}

int ckpt_shard_index_parse(struct ckpt_shard_index *x, struct ckpt_arena *a, const void *json,
                           size_t n, struct ckpt_err *err) {
    struct parser p = {.index = x, .arena = a, .err = err};
    ckpt_json_init(&p.json, json, n, CKPT_LIMIT_JSON_DEPTH, err);
    return parse(&p);
}

int ckpt_shard_index_read(struct ckpt_shard_index *x, struct ckpt_arena *a,
                          const struct ckpt_file *f, struct ckpt_err *err) {
    *x = (struct ckpt_shard_index){0};
    if (f->size > CKPT_LIMIT_HEADER_BYTES)
        return ckpt_fail(err, -E2BIG, "a shard index of %" PRIu64 " bytes, the limit is %u",
                         f->size, CKPT_LIMIT_HEADER_BYTES);
    CKPT_AUTO(free) char *json = malloc((size_t)f->size + 1);
    if (!json)
        return fail_memory(err);
    const int rc = ckpt_file_read(f, 0, json, (size_t)f->size, err);
    if (rc)
        return rc;
    struct parser p = {.index = x, .arena = a, .err = err};
    ckpt_json_init_in_place(&p.json, json, (size_t)f->size, CKPT_LIMIT_JSON_DEPTH, err);
    return parse(&p);
}

void ckpt_shard_index_fini(struct ckpt_shard_index *x) {
    free(x->entries);
    free(x->shards);
    ckpt_strmap_fini(&x->by_name);
    *x = (struct ckpt_shard_index){0};
}
