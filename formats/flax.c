/*
 * Trees in msgpack: whole checkpoints of flax.training, and the file `checkpoint` in items of old
 * Orbax, whose leaves may stand for arrays in the item's store:
 *
 *     "PLACEHOLDER://params.w"                                the array params.w
 *     {"driver": "zarr", "kvstore": {"path": ".../w"}, ...}   the array w          (T5X)
 *     {"__msgpack_chunked_array__": true, "shape": {"0": ...}, "chunks": {"0": array, ...}}
 *                                                             an array of more than 1 GiB, in
 *                                                             pieces
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/chunk_decode.h"
#include "formats/directory.h"
#include "formats/msgpack.h"
#include "formats/orbax.h"

#define PLACEHOLDER "PLACEHOLDER://"
#define START_BYTES 16u

struct flax {
    struct ckpt_orbax_item *it;
    struct ckpt_file *file;
    const char *directory, *name;
    struct ckpt_text segment[CKPT_LIMIT_MSGPACK_DEPTH];
};

static struct ckpt_arena *arena(const struct flax *f) {
    return &f->it->c->arena;
}

static int fail_memory(const struct flax *f) {
    return ckpt_fail_memory(f->it->err, "reading msgpack");
}

static bool is_start(const struct ckpt_file *f) {
    uint8_t start[START_BYTES];
    const size_t n = f->size < sizeof start ? (size_t)f->size : sizeof start;
    return ckpt_file_read(f, 0, start, n, NULL) == 0 && ckpt_msgpack_is(start, n);
}

bool ckpt_flax_is(const char *directory, const char *name) {
    struct ckpt_file *f = NULL;
    const bool is = ckpt_directory_open(directory, name, &f, NULL) == 0 && is_start(f);
    ckpt_file_close(f);
    return is;
}

/* --- arrays ----------------------------------------------------------------------------------- */

/* Its element type and the bytes that its shape needs, which are the ones it has. */
static int take_type(const struct flax *f, const struct ckpt_msgpack_array *a,
                     struct ckpt_tensor *t) {
    uint64_t count, bytes;
    t->dtype = ckpt_zarr_dtype_v3(a->dtype);
    t->ndim = a->ndim;
    t->shape = a->shape;
    if (t->dtype == CKPT_DT_NONE)
        return ckpt_fail(f->it->err, -ENOTSUP, "its element type \"%.*s\" is not known",
                         CKPT_TEXT_ARGS(a->dtype));
    if (!ckpt_shape_count(a->shape, a->ndim, &count) ||
        !ckpt_dtype_bytes(t->dtype, count, &bytes) || bytes != a->nbytes)
        return ckpt_fail(f->it->err, -EINVAL, "it has %" PRIu64 " bytes, which is not its shape",
                         a->nbytes);
    return 0;
}

static int add_blob(const struct flax *f, struct ckpt_tensor *t) {
    return ckpt_checkpoint_add_blob(f->it->c, t->blob) ? fail_memory(f) : 0;
}

static int add_array(struct flax *f, struct ckpt_path path, const struct ckpt_msgpack_array *a) {
    struct ckpt_tensor t = {0};
    int rc = take_type(f, a, &t);
    if (rc == 0)
        rc = a->is_number ? ckpt_blob_owned(arena(f), a->number, a->nbytes, "", &t.blob, f->it->err)
                          : ckpt_blob_extent(arena(f), f->file, a->offset, a->nbytes, "", &t.blob,
                                             f->it->err);
    if (rc == 0)
        rc = add_blob(f, &t);
    return ckpt_orbax_settle(f->it, path, &t, rc);
}

/* --- arrays in pieces ------------------------------------------------------------------------- */

/* The member of that number in a map of "0", "1", ...: an array, or NULL. */
static const struct ckpt_msgpack_array *numbered(const struct ckpt_value *map, size_t i) {
    char key[24];
    snprintf(key, sizeof key, "%zu", i);
    const struct ckpt_value *const v = ckpt_value_get(map, key);
    return v && v->kind == CKPT_VALUE_MSGPACK_ARRAY ? v->format : NULL;
}

static bool take_integer(const struct ckpt_msgpack_array *a, int64_t *out) {
    if (!a || !a->is_number || !ckpt_text_is(a->dtype, "int64"))
        return false;
    memcpy(out, a->number, sizeof *out);
    return *out >= 0;
}

static int fail_pieces(const struct flax *f) {
    return ckpt_fail(f->it->err, -EINVAL, "its pieces are not those of one array");
}

static int take_whole_shape(const struct flax *f, const struct ckpt_value *map,
                            struct ckpt_tensor *t) {
    const size_t n = map && map->kind == CKPT_VALUE_DICT ? map->seq.n / 2 : CKPT_NDIM_MAX + 1u;
    if (n > CKPT_NDIM_MAX)
        return fail_pieces(f);
    int64_t *const shape = ckpt_arena_array(arena(f), n + 1, sizeof *shape);
    if (!shape)
        return fail_memory(f);
    for (size_t i = 0; i < n; i++)
        if (!take_integer(numbered(map, i), &shape[i]))
            return fail_pieces(f);
    t->ndim = (uint32_t)n;
    t->shape = shape;
    return 0;
}

/* The pieces as the chunks of a grid of one axis: all of one size, but the last. */
static int fill_grid(const struct flax *f, struct ckpt_chunk_grid *g, const struct ckpt_value *map,
                     int64_t *numbers, struct ckpt_text dtype) {
    const struct ckpt_store_file *const file =
        ckpt_store_file_note(arena(f), f->directory, f->name);
    uint64_t total = 0, each = 0;
    if (!file)
        return fail_memory(f);
    file->mapping->file = f->file;
    for (size_t i = 0; i < g->nchunks; i++) {
        const struct ckpt_msgpack_array *const a = numbered(map, i);
        if (!a || a->is_number || !ckpt_text_eq(a->dtype, dtype) || a->nbytes == 0 ||
            a->nbytes % g->esize || (i && a->nbytes > each) ||
            (a->nbytes != each && i && i + 1 < g->nchunks))
            return fail_pieces(f);
        each = i ? each : a->nbytes;
        total += a->nbytes;
        g->chunks[i] = (struct ckpt_chunk){
            .number = i, .value = {.file = file, .offset = a->offset, .length = a->nbytes}};
    }
    numbers[0] = (int64_t)(total / g->esize); /* shape, chunk, count, stride */
    numbers[1] = (int64_t)(each / g->esize);
    numbers[2] = (int64_t)g->nchunks;
    numbers[3] = g->esize;
    return 0;
}

static int make_grid(const struct flax *f, const struct ckpt_value *map, struct ckpt_text dtype,
                     struct ckpt_tensor *t) {
    static const uint8_t fill[CKPT_ZARR_ELEMENT_MAX];
    if (map->seq.n / 2 > CKPT_LIMIT_MSGPACK_PIECES)
        return ckpt_fail(f->it->err, -E2BIG, "it is in more than %u pieces (limit of pieces)",
                         CKPT_LIMIT_MSGPACK_PIECES);
    struct ckpt_chunk_grid *const g = ckpt_arena_alloc(arena(f), sizeof *g);
    int64_t *const numbers = ckpt_arena_array(arena(f), 4, sizeof *numbers);
    struct ckpt_chunk *const chunks =
        ckpt_arena_array(arena(f), map->seq.n / 2 + 1, sizeof *chunks);
    if (!g || !numbers || !chunks)
        return fail_memory(f);
    *g = (struct ckpt_chunk_grid){.ndim = 1,
                                  .esize = ckpt_dtype_info(t->dtype)->unit_bytes,
                                  .shape = numbers,
                                  .chunk = numbers + 1,
                                  .count = numbers + 2,
                                  .stride = numbers + 3,
                                  .fill = fill,
                                  .chunks = chunks,
                                  .nchunks = map->seq.n / 2,
                                  .ops = &ckpt_chunk_plain_ops,
                                  .is_plain = true};
    int rc = fill_grid(f, g, map, numbers, dtype);
    if (rc == 0)
        rc = ckpt_chunk_grid_init(g, (uint64_t)numbers[1] * g->esize, false, f->it->c->decoded,
                                  f->name, f->it->err);
    if (rc == 0 && ckpt_tensor_count(t) != (uint64_t)numbers[0])
        rc = fail_pieces(f);
    t->blob = &g->blob;
    return rc;
}

static int add_pieces(struct flax *f, struct ckpt_path path, const struct ckpt_value *v) {
    const struct ckpt_value *const map = ckpt_value_get(v, "chunks");
    const struct ckpt_msgpack_array *const first =
        map && map->kind == CKPT_VALUE_DICT ? numbered(map, 0) : NULL;
    struct ckpt_tensor t = {0};
    int rc = first ? take_whole_shape(f, ckpt_value_get(v, "shape"), &t) : fail_pieces(f);
    if (rc == 0) {
        t.dtype = ckpt_zarr_dtype_v3(first->dtype);
        rc = t.dtype ? make_grid(f, map, first->dtype, &t)
                     : ckpt_fail(f->it->err, -ENOTSUP, "its element type \"%.*s\" is not known",
                                 CKPT_TEXT_ARGS(first->dtype));
    }
    if (rc == 0)
        rc = add_blob(f, &t);
    return ckpt_orbax_settle(f->it, path, &t, rc);
}

/* --- the tree --------------------------------------------------------------------------------- */

/* The last component of T5X's path of an array. False: the map is none of those. */
static bool take_t5x(const struct ckpt_value *v, struct ckpt_text *name) {
    const struct ckpt_value *const driver = ckpt_value_get(v, "driver");
    const struct ckpt_value *const store = ckpt_value_get(v, "kvstore");
    const struct ckpt_value *const path = store ? ckpt_value_get(store, "path") : NULL;
    if (!driver || driver->kind != CKPT_VALUE_STR || !ckpt_text_is(driver->text, "zarr") || !path ||
        path->kind != CKPT_VALUE_STR)
        return false;
    size_t end = path->text.n;
    while (end > 0 && path->text.s[end - 1] == '/')
        end--;
    const char *const slash = memrchr(path->text.s, '/', end);
    const char *const start = slash ? slash + 1 : path->text.s;
    *name = (struct ckpt_text){start, (size_t)(path->text.s + end - start)};
    return name->n > 0;
}

static int walk(struct flax *f, const struct ckpt_value *v, uint32_t n);

static int walk_items(struct flax *f, const struct ckpt_value *v, uint32_t n) {
    const size_t step = v->kind == CKPT_VALUE_DICT ? 2 : 1;
    int rc = 0;
    if (n == CKPT_LIMIT_MSGPACK_DEPTH)
        return ckpt_fail(f->it->err, -E2BIG, "nested deeper than %u (limit of msgpack depth)",
                         CKPT_LIMIT_MSGPACK_DEPTH);
    for (size_t i = 0; rc == 0 && i + step - 1 < v->seq.n; i += step) {
        const struct ckpt_value *const key = v->seq.item[i];
        struct ckpt_text *const segment = &f->segment[n];
        if (step == 1) {
            const char *const digits = ckpt_arena_printf(arena(f), "%zu", i);
            *segment = digits ? ckpt_text_of(digits) : (struct ckpt_text){0};
        } else if (key->kind == CKPT_VALUE_STR) {
            *segment = ckpt_value_path_segment(arena(f), key);
        } else {
            return ckpt_fail(f->it->err, -EINVAL, "msgpack has a key that is no text");
        }
        rc = segment->s ? walk(f, v->seq.item[i + step - 1], n + 1) : fail_memory(f);
    }
    return rc;
}

static int add_leaf(struct flax *f, struct ckpt_path path, const struct ckpt_value *v) {
    struct ckpt_text name;
    if (v->kind == CKPT_VALUE_MSGPACK_ARRAY)
        return add_array(f, path, v->format);
    if (v->kind == CKPT_VALUE_DICT && take_t5x(v, &name))
        return ckpt_orbax_add_array(f->it, path, name);
    if (v->kind == CKPT_VALUE_DICT && v->seq.n)
        return add_pieces(f, path, v);
    if (v->kind == CKPT_VALUE_STR && ckpt_text_starts(v->text, PLACEHOLDER)) {
        const size_t skip = strlen(PLACEHOLDER);
        return ckpt_orbax_add_array(f->it, path,
                                    (struct ckpt_text){v->text.s + skip, v->text.n - skip});
    }
    return ckpt_orbax_add_value(f->it, path, *v);
}

static int walk(struct flax *f, const struct ckpt_value *v, uint32_t n) {
    struct ckpt_text name;
    struct ckpt_path path;
    const bool is_map = v->kind == CKPT_VALUE_DICT;
    const bool is_inner =
        (is_map || v->kind == CKPT_VALUE_LIST) && v->seq.n > 0 &&
        !(is_map && (ckpt_value_get(v, "__msgpack_chunked_array__") || take_t5x(v, &name)));
    if (is_inner)
        return walk_items(f, v, n);
    return ckpt_orbax_path(f->it, f->segment, n, &path) ? add_leaf(f, path, v) : fail_memory(f);
}

static int read_open(struct flax *f) {
    struct ckpt_value *root = NULL;
    const int rc =
        ckpt_msgpack_read(f->file->data, (size_t)f->file->size, arena(f), &root, f->it->err);
    return rc ? rc : walk(f, root, 0);
}

int ckpt_flax_read(struct ckpt_orbax_item *it, const char *directory, const char *name) {
    struct flax f = {.it = it, .directory = directory, .name = name};
    int rc = ckpt_directory_open(directory, name, &f.file, it->err);
    if (rc)
        return rc;
    if (ckpt_checkpoint_add_file(it->c, f.file))
        return fail_memory(&f);
    rc = read_open(&f);
    return rc ? ckpt_fail_in(it->err, "%s", name) : 0;
}

/* --- a file alone ----------------------------------------------------------------------------- */

static bool detect(const char *source, const struct ckpt_file *file) {
    (void)source;
    return file && is_start(file);
}

static int read_file(struct ckpt_checkpoint *c, const char *source,
                     const struct ckpt_open_options *options, struct ckpt_err *err) {
    struct ckpt_err unasked = {0}; /* a leaf's failure may become its reason */
    struct ckpt_orbax_item it = {.c = c, .options = options, .err = err ? err : &unasked};
    struct flax f = {.it = &it, .file = c->files[0], .name = c->files[0]->name};
    (void)source;
    CKPT_AUTO(free) char *folder = strdup(c->files[0]->path);
    if (!folder)
        return fail_memory(&f);
    *strrchr(folder, '/') = '\0';
    f.directory = folder;
    f.name = strrchr(c->files[0]->path, '/') + 1; /* where links have led to */
    c->format = ckpt_format_flax.name;
    c->arena.limit = CKPT_LIMIT_MEMORY;
    return ckpt_checkpoint_end_limit(c, read_open(&f), it.err);
}

const struct ckpt_format ckpt_format_flax = {"flax-msgpack", false, detect, read_file};
