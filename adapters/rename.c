#include "adapters/rename.h"

#include <errno.h>

#include "adapters/build.h"

static int rename_by(const struct ckpt_mapping *map, struct ckpt_text *key, size_t nkeys,
                     size_t *hits, struct ckpt_arena *a, struct ckpt_err *err) {
    CKPT_AUTO(regex) struct ckpt_regex *re = NULL;
    int rc = ckpt_regex_new(map->pattern, false, map->where, &re, err);
    if (rc == 0)
        rc = ckpt_regex_check_replacement(re, map->value, err);
    *hits = 0;
    for (size_t i = 0; rc >= 0 && i < nkeys; i++) {
        struct ckpt_text renamed;
        rc = ckpt_regex_replace(re, key[i], map->value, a, &renamed, err);
        if (rc <= 0 || ckpt_text_eq(renamed, key[i]))
            continue;
        key[i] = renamed;
        ++*hits;
    }
    return rc < 0 ? rc : 0;
}

int ckpt_rename_keys(const struct ckpt_mapping *map, size_t nmap, struct ckpt_text *key,
                     size_t nkeys, size_t *hits, struct ckpt_arena *a, struct ckpt_err *err) {
    for (size_t i = 0; i < nmap; i++) {
        size_t changed;
        const int rc = rename_by(&map[i], key, nkeys, &changed, a, err);
        if (rc)
            return rc;
        if (hits)
            hits[i] = changed;
    }
    return 0;
}

static int warn_unused(struct ckpt_build *b, const struct ckpt_mapping *map,
                       const struct ckpt_text *key, size_t n) {
    const struct ckpt_text literal = ckpt_regex_literal(map->pattern, &b->model->arena);
    return ckpt_build_warn(b, "%s'%.*s' renames no key%s", map->where, CKPT_TEXT_ARGS(map->pattern),
                           ckpt_build_did_you_mean(b, literal, key, n));
}

int ckpt_rename_items(struct ckpt_build *b) {
    const struct ckpt_adapt_options *o = b->options;
    struct ckpt_arena *a = &b->model->arena;
    struct ckpt_text *key = ckpt_arena_array(&b->scratch, b->nitems, sizeof *key);
    size_t *hits = ckpt_arena_array(&b->scratch, o->nmap, sizeof *hits), n = 0;
    if (!key || !hits)
        return ckpt_fail_memory(b->err, "renaming keys");
    for (size_t i = 0; i < b->nitems; i++)
        if (b->item[i].in_model)
            key[n++] = b->item[i].key;
    int rc = ckpt_rename_keys(o->map, o->nmap, key, n, hits, a, b->err);
    for (size_t i = 0; rc == 0 && i < o->nmap; i++)
        if (hits[i] == 0)
            rc = warn_unused(b, &o->map[i], key, n);
    n = 0;
    for (size_t i = 0; rc == 0 && i < b->nitems; i++) {
        struct ckpt_item *item = &b->item[i];
        if (!item->in_model)
            continue;
        item->mapped = !ckpt_text_eq(item->key, key[n]);
        item->renamed |= item->mapped;
        item->key = key[n++];
    }
    return rc;
}
