#include "formats/zarr_known.h"

#include <stdlib.h>

#include "base/array.h"

/* What is worth remembering: texts are kept, and files may hold any number of different ones. */
#define KNOWN_MOST 1024u
#define JSON_MOST 4096u

/* A description, and the place for what is derived from it. */
struct shared {
    struct ckpt_zarr zarr;
    void *derived;
};

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading the metadata of an array");
}

static int remember(struct ckpt_zarr_known *k, struct ckpt_text json, int version,
                    const struct ckpt_zarr *z, struct ckpt_arena *a, struct ckpt_err *err) {
    if (k->n >= KNOWN_MOST || json.n > JSON_MOST)
        return 0;
    const struct ckpt_text key = ckpt_text_copy(a, json.s, json.n);
    if (!key.s || !ckpt_array_grow(&k->entries, k->n, &k->cap, sizeof *k->entries) ||
        ckpt_strmap_add(&k->by_json, key, k->n, NULL))
        return fail_memory(err);
    k->entries[k->n].zarr = z;
    k->entries[k->n++].version = version;
    return 0;
}

int ckpt_zarr_known_parse(struct ckpt_zarr_known *k, struct ckpt_text json, int version,
                          struct ckpt_arena *a, const struct ckpt_zarr **out,
                          struct ckpt_err *err) {
    const size_t at = ckpt_strmap_get(&k->by_json, json);
    if (at != CKPT_STRMAP_ABSENT && k->entries[at].version == version) {
        *out = k->entries[at].zarr;
        return 0;
    }
    struct ckpt_zarr z;
    const int rc = ckpt_zarr_parse(json.s, json.n, version, a, &z, err);
    if (rc)
        return rc;
    struct shared *const copy = ckpt_arena_alloc(a, sizeof *copy);
    if (!copy)
        return fail_memory(err);
    copy->zarr = z;
    copy->zarr.derived = &copy->derived;
    *out = &copy->zarr;
    return remember(k, json, version, &copy->zarr, a, err);
}

void ckpt_zarr_known_fini(struct ckpt_zarr_known *k) {
    ckpt_strmap_fini(&k->by_json);
    free(k->entries);
    *k = (struct ckpt_zarr_known){0};
}
