/*
 * Where an array's bytes come from:
 *
 *     no element, or no chunk stored      the fill value, with strides of 0
 *     one chunk for the whole array       that chunk, decoded: a flat blob
 *     several                             a grid of chunks (formats/chunk_grid.h)
 */
#include "formats/zarr_array.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/size.h"
#include "formats/chunk_grid.h"

struct array {
    const struct ckpt_zarr_source *s;
    const struct ckpt_zarr *z;
    struct ckpt_text prefix; /* NAME/ */
    const char *name;
    struct ckpt_chunk *chunks; /* stored ones; malloc'ed */
    size_t nchunks, cap;
    struct ckpt_err *err;
};

static void array_fini(struct array *a) {
    free(a->chunks);
}
CKPT_DEFINE_AUTO(array, struct array, array_fini)

static struct ckpt_arena *arena(const struct array *a) {
    return &a->s->c->arena;
}

static int fail_memory(const struct array *a) {
    return ckpt_fail_memory(a->err, "reading an array");
}

static uint32_t element_bytes(const struct array *a) {
    return ckpt_dtype_info(a->z->dtype)->unit_bytes;
}

/* --- metadata --------------------------------------------------------------------------------- */

static const char *metadata_name(int version) {
    return version == 2 ? ".zarray" : "zarr.json";
}

static int find_metadata(const struct array *a, const struct ckpt_kv **out, int *version) {
    for (*version = 2; *version <= 3; ++*version) {
        CKPT_AUTO(str) struct ckpt_str key = {0};
        ckpt_str_add(&key, a->prefix.s, a->prefix.n);
        ckpt_str_puts(&key, metadata_name(*version));
        if (key.failed)
            return fail_memory(a);
        *out = ckpt_kvstore_get(a->s->store, ckpt_str_text(&key));
        if (*out)
            return 0;
    }
    return ckpt_fail(a->err, -ENOENT, "neither .zarray nor zarr.json is there");
}

static int read_metadata(struct array *a) {
    CKPT_AUTO(arena) struct ckpt_arena scratch = {0};
    const struct ckpt_kv *kv = NULL;
    struct ckpt_text json;
    int version = 0;
    int rc = find_metadata(a, &kv, &version);
    if (rc == 0)
        rc = ckpt_kvstore_read(kv, CKPT_LIMIT_ZARR_METADATA, "zarr metadata", &scratch, &json,
                               a->err);
    if (rc == 0)
        rc = ckpt_zarr_known_parse(a->s->known, json, version, arena(a), &a->z, a->err);
    const bool is_damage = rc && rc != -ENOENT && rc != -ENOTSUP && rc != -ENOMEM;
    return is_damage ? ckpt_fail_in(a->err, "%s", metadata_name(version)) : rc;
}

/* --- chunks ----------------------------------------------------------------------------------- */

static int compare_chunks(const void *a, const void *b) {
    const uint64_t x = ((const struct ckpt_chunk *)a)->number;
    const uint64_t y = ((const struct ckpt_chunk *)b)->number;
    return (x > y) - (x < y);
}

static int check_chunk(const struct array *a, const struct ckpt_kv *kv) {
    int rc = ckpt_stored_check(&kv->value, a->err);
    if (rc == 0 && kv->value.length == 0) /* whatever its codec, it has a header or elements */
        rc = ckpt_fail(a->err, -EINVAL, "it is empty: an interrupted copy?");
    if (rc == 0)
        rc = ckpt_zarr_chain_can(&a->z->chain, kv->value.length, a->err);
    return rc ? ckpt_fail_in(a->err, "chunk %.*s", (int)(kv->key.n - a->prefix.n),
                             kv->key.s + a->prefix.n)
              : 0;
}

/* The stored ones: the keys that begin with the array's prefix, as far as they name chunks. */
static int list_chunks(struct array *a) {
    const struct ckpt_kvstore *const s = a->s->store;
    for (size_t i = ckpt_kvstore_from(s, a->prefix); i < s->n; i++) {
        const struct ckpt_kv *const kv = &s->entries[i];
        uint64_t number;
        if (kv->key.n < a->prefix.n || memcmp(kv->key.s, a->prefix.s, a->prefix.n) != 0)
            break;
        const struct ckpt_text rest = {kv->key.s + a->prefix.n, kv->key.n - a->prefix.n};
        if (!ckpt_zarr_chunk_number(a->z, rest, &number))
            continue;
        const int rc = check_chunk(a, kv);
        if (rc)
            return rc;
        if (!ckpt_array_grow(&a->chunks, a->nchunks, &a->cap, sizeof *a->chunks))
            return fail_memory(a);
        a->chunks[a->nchunks++] = (struct ckpt_chunk){.number = number, .value = kv->value};
    }
    if (a->nchunks > 1)
        qsort(a->chunks, a->nchunks, sizeof *a->chunks, compare_chunks);
    return 0;
}

/* The grid's chunks, saturating. */
static uint64_t count_grid(const struct ckpt_zarr *z) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < z->ndim; d++) {
        const int64_t chunk = z->chain.shape[d];
        const uint64_t count = (uint64_t)(z->shape[d] / chunk + (z->shape[d] % chunk != 0));
        if (__builtin_mul_overflow(n, count, &n))
            return UINT64_MAX;
    }
    return n;
}

/* The index of the first chunk that is not stored, as in its key. */
static int fail_missing(const struct array *a, uint64_t wanted) {
    uint64_t number = 0, at[CKPT_ZARR_NDIM_MAX];
    CKPT_AUTO(str) struct ckpt_str text = {0};
    while (number < a->nchunks && a->chunks[number].number == number)
        number++;
    for (uint32_t d = a->z->ndim; d-- > 0;) {
        const int64_t chunk = a->z->chain.shape[d];
        const uint64_t n = (uint64_t)(a->z->shape[d] / chunk + (a->z->shape[d] % chunk != 0));
        at[d] = number % n;
        number /= n;
    }
    for (uint32_t d = 0; d < a->z->ndim; d++)
        ckpt_str_printf(&text, "%s%" PRIu64, d ? "." : "", at[d]);
    return ckpt_fail(a->err, -EINVAL,
                     "%" PRIu64 " of its %" PRIu64
                     " chunks are missing, the first at %s: an incomplete download?",
                     wanted - a->nchunks, wanted, text.n ? text.s : "0");
}

static int check_missing(const struct array *a) {
    const uint64_t wanted = count_grid(a->z);
    if (a->nchunks >= wanted)
        return 0;
    if (a->s->is_complete)
        return fail_missing(a, wanted);
    return a->z->fill_unknown
               ? ckpt_fail(a->err, -ENOTSUP, "its fill value can't be had in its element type")
               : 0;
}

/* --- blobs ------------------------------------------------------------------------------------ */

/* The codec of a grid's chunks. */
struct codec {
    struct ckpt_zarr_leaf leaf;
    const struct ckpt_zarr *zarr;
    uint32_t esize;
    int64_t count[CKPT_ZARR_NDIM_MAX], stride[CKPT_ZARR_NDIM_MAX]; /* of the grid; bytes */
};

static int decode_chunk(const void *codec, const struct ckpt_stored *value, uint8_t *out,
                        const struct ckpt_stop *stop, struct ckpt_err *err) {
    const struct codec *const k = codec;
    return ckpt_zarr_decode_chain(k->leaf.chain, value, k->zarr->fill, k->esize, out, stop, err);
}

static int unwrap_chunk(const void *codec, struct ckpt_stored *value, const struct ckpt_stop *stop,
                        struct ckpt_err *err) {
    return ckpt_zarr_unwrap(((const struct codec *)codec)->leaf.chain, value, stop, err);
}

static int read_index(const void *codec, const struct ckpt_stored *shard, uint64_t (*index)[2],
                      const struct ckpt_stop *stop, struct ckpt_err *err) {
    const struct codec *const k = codec;
    return ckpt_zarr_flat_index(&k->zarr->chain, &k->leaf, shard, index, stop, err);
}

static const struct ckpt_chunk_ops zstd_ops = {decode_chunk, unwrap_chunk, read_index};
static const struct ckpt_chunk_ops other_ops = {decode_chunk, NULL, read_index};

static int64_t chunks_along(int64_t size, int64_t chunk) {
    return size / chunk + (size % chunk != 0);
}

/* The same for all arrays with this metadata. */
static const struct codec *make_codec(const struct array *a) {
    const struct ckpt_zarr *const z = a->z;
    if (*z->derived)
        return *z->derived;
    struct codec *const k = ckpt_arena_alloc(arena(a), sizeof *k);
    if (!k)
        return NULL;
    ckpt_zarr_leaf(&z->chain, &k->leaf);
    k->zarr = z;
    k->esize = element_bytes(a);
    for (uint32_t d = 0; d < z->ndim; d++) {
        k->count[d] = chunks_along(z->shape[d], z->chain.shape[d]) * k->leaf.per[d];
        k->stride[d] = k->leaf.stride[d] * k->esize;
    }
    *z->derived = k;
    return k;
}

/* Files in which elements lie as they are. */
static void map_files(const struct array *a) {
    const struct ckpt_store_file *last = NULL;
    for (size_t i = 0; i < a->nchunks; i++) {
        const struct ckpt_store_file *const file = a->chunks[i].value.file;
        if (file && file != last)
            ckpt_checkpoint_map(a->s->c, file);
        last = file;
    }
}

static int make_grid(const struct array *a, const struct codec *k, const int64_t *shape,
                     bool is_flat, struct ckpt_blob **out) {
    struct ckpt_chunk_grid *const g = ckpt_arena_alloc(arena(a), sizeof *g);
    struct ckpt_chunk *const chunks = ckpt_arena_array(arena(a), a->nchunks + 1, sizeof *a->chunks);
    if (!g || !chunks)
        return fail_memory(a);
    if (a->nchunks)
        memcpy(chunks, a->chunks, a->nchunks * sizeof *chunks);
    *g = (struct ckpt_chunk_grid){.ndim = a->z->ndim,
                                  .esize = k->esize,
                                  .shape = shape,
                                  .chunk = k->leaf.shape,
                                  .count = k->count,
                                  .stride = k->stride,
                                  .per = k->leaf.is_sharded ? k->leaf.per : NULL,
                                  .fill = a->z->fill,
                                  .chunks = chunks,
                                  .nchunks = a->nchunks,
                                  .ops = ckpt_zarr_is_zstd(k->leaf.chain) ? &zstd_ops : &other_ops,
                                  .codec = k,
                                  .is_plain = ckpt_zarr_is_plain(k->leaf.chain)};
    *out = &g->blob;
    return ckpt_chunk_grid_init(g, k->leaf.chain->bytes, is_flat, a->s->c->decoded, a->name,
                                a->err);
}

/* --- the tensor ------------------------------------------------------------------------------- */

static int64_t *copy_numbers(const struct array *a, const int64_t *numbers) {
    int64_t *const copy = ckpt_arena_array(arena(a), a->z->ndim + 1u, sizeof *copy);
    if (copy)
        memcpy(copy, numbers, a->z->ndim * sizeof *copy);
    return copy;
}

static bool is_c_order(const struct array *a, const struct codec *k) {
    int64_t stride = 1;
    for (uint32_t d = a->z->ndim; d-- > 0; stride *= a->z->shape[d])
        if (a->z->shape[d] > 1 && k->leaf.stride[d] != stride)
            return false;
    return true;
}

/* The whole array is one chunk. */
static int make_lone(const struct array *a, const struct codec *k, struct ckpt_tensor *t) {
    const struct ckpt_stored *const value = &a->chunks[0].value;
    const struct ckpt_file *const file = value->data ? NULL : value->file->mapping->file;
    t->stride = is_c_order(a, k) ? NULL : copy_numbers(a, k->leaf.stride);
    if (!k->leaf.is_sharded && ckpt_zarr_is_plain(k->leaf.chain) && file)
        return ckpt_blob_extent(arena(a), file, value->offset, value->length, a->name, &t->blob,
                                a->err);
    return make_grid(a, k, t->shape, true, &t->blob);
}

static int make_blob(const struct array *a, struct ckpt_tensor *t, uint64_t count) {
    static const int64_t zeros[CKPT_ZARR_NDIM_MAX];
    if (a->nchunks == 0 || count == 0) {
        t->stride = copy_numbers(a, zeros);
        return t->stride ? ckpt_blob_owned(arena(a), a->z->fill, element_bytes(a), a->name,
                                           &t->blob, a->err)
                         : fail_memory(a);
    }
    const struct codec *const k = make_codec(a);
    if (!k)
        return fail_memory(a);
    if (ckpt_zarr_is_plain(k->leaf.chain))
        map_files(a);
    uint64_t chunks = 1;
    for (uint32_t d = 0; d < a->z->ndim; d++)
        if (!ckpt_mul_u64(chunks, (uint64_t)k->count[d], &chunks))
            return ckpt_fail(a->err, -E2BIG, "it has more than 2^64 chunks");
    return chunks > 1 ? make_grid(a, k, t->shape, false, &t->blob) : make_lone(a, k, t);
}

static int fill_tensor(struct array *a, struct ckpt_tensor *t) {
    uint64_t count = 0;
    int rc = read_metadata(a);
    if (rc == 0)
        rc = list_chunks(a);
    if (rc == 0)
        rc = check_missing(a);
    if (rc)
        return rc;
    t->dtype = a->z->dtype;
    t->ndim = a->z->ndim;
    t->shape = copy_numbers(a, a->z->shape);
    t->swap = a->z->swap;
    (void)ckpt_shape_count(a->z->shape, a->z->ndim, &count); /* checked by the parser */
    rc = t->shape ? make_blob(a, t, count) : fail_memory(a);
    if (rc == 0 && ckpt_checkpoint_add_blob(a->s->c, t->blob))
        rc = fail_memory(a);
    return rc;
}

int ckpt_zarr_tensor(const struct ckpt_zarr_source *s, struct ckpt_text name, struct ckpt_tensor *t,
                     struct ckpt_err *err) {
    struct ckpt_arena *const memory = &s->c->arena;
    char *const prefix = ckpt_arena_alloc(memory, name.n + 1);
    const struct ckpt_text copy = ckpt_text_copy(memory, name.s, name.n);
    CKPT_AUTO(array)
    struct array a = {.s = s, .name = copy.s, .err = err};
    if (!prefix || !copy.s)
        return ckpt_fail_memory(err, "reading an array");
    memcpy(prefix, name.s, name.n); /* which may hold NULs */
    prefix[name.n] = '/';
    a.prefix = (struct ckpt_text){prefix, name.n + 1};
    return fill_tensor(&a, t);
}
