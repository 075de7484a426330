#include "formats/torch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "formats/directory.h"
#include "formats/pickle_make.h"
#include "formats/torch_dcp_join.h"

/*
 * Directories of torch.distributed.checkpoint:
 *
 *     .metadata        a pickled Metadata object:
 *                        state_dict_metadata {name: TensorStorageMetadata | BytesStorageMetadata}
 *                        planner_data        {name: (path segment, ...)}, if names were flattened
 *                        storage_data        {MetadataIndex{fqn}: _StorageInfo{relative_path,
 *                                             offset, length}}
 *     __R_N.distcp     items one behind the other, each a complete archive of torch.save
 *
 * An item is a value or one chunk of a tensor. It is served in place, and a tensor of several
 * chunks as a grid of them (torch_dcp_join.h).
 */

#define METADATA ".metadata"
#define TRANSFORMED "is compressed or otherwise transformed in its shard"
#define NO_ITEM SIZE_MAX

struct item {
    struct ckpt_text file;
    uint64_t offset, length;
    const struct ckpt_value *at; /* of a chunk: the offsets of its first element in the tensor */
    size_t next;                 /* the next item of that name, or NO_ITEM */
    bool transformed;
};

struct shard {
    struct ckpt_file *file;
    const struct ckpt_store_file *noted; /* the same, as a grid's chunks know it */
    uint64_t unread;                     /* bytes that no item has taken yet: items don't overlap */
};

struct dcp {
    struct ckpt_checkpoint *c;
    const char *directory;
    const struct ckpt_open_options *options;
    const struct ckpt_value *planner; /* planner_data, or NULL */
    struct item *items;
    size_t n, cap;
    struct ckpt_strmap by_name; /* name -> items */
    struct shard *shards;
    size_t nshards, shards_cap;
    struct ckpt_strmap by_file; /* file name -> shards */
    struct ckpt_err *err;
};

static void dcp_fini(struct dcp *d) {
    free(d->items);
    free(d->shards);
    ckpt_strmap_fini(&d->by_name);
    ckpt_strmap_fini(&d->by_file);
}
CKPT_DEFINE_AUTO(dcp, struct dcp, dcp_fini)

static int fail_memory(struct dcp *d) {
    return ckpt_fail_memory(d->err, "reading a distributed checkpoint");
}

static bool detect(const char *source, const struct ckpt_file *file) {
    (void)file;
    CKPT_AUTO(free) char *path = ckpt_directory_path(source, METADATA);
    return path && access(path, F_OK) == 0;
}

/* --- metadata --------------------------------------------------------------------------------- */

/* An attribute of an object, or NULL. */
static struct ckpt_value *attribute(const struct ckpt_value *object, const char *name) {
    return pickle_dict_get(object->kind == CKPT_VALUE_DICT ? object : object->attributes, name);
}

static int run_metadata(struct dcp *d, struct ckpt_file *f, struct ckpt_value **root) {
    struct torch_reader r = {.c = d->c, .options = d->options, .file = f};
    struct torch_stream s = {
        .r = &r, .file = f, .bytes = f->data, .n = (size_t)f->size, .list = "items"};
    return torch_stream_pickle(&s, "the metadata", NULL, root, d->err);
}

static int read_metadata(struct dcp *d, struct ckpt_value **root) {
    struct ckpt_file *f = NULL;
    int rc = ckpt_directory_open(d->directory, METADATA, &f, d->err);
    if (rc)
        return rc;
    rc = run_metadata(d, f, root);
    ckpt_file_close(f);
    return rc ? ckpt_fail_in(d->err, METADATA) : 0;
}

static bool take_natural(const struct ckpt_value *v, uint64_t *out) {
    if (!pickle_is(v, CKPT_VALUE_INT) || v->i < 0)
        return false;
    *out = (uint64_t)v->i;
    return true;
}

/* Adds an entry of storage_data to those of its name. */
static int add_item(struct dcp *d, const struct ckpt_value *index, const struct ckpt_value *info) {
    const struct ckpt_value *name = attribute(index, "fqn");
    const struct ckpt_value *file = attribute(info, "relative_path");
    const struct ckpt_value *transforms = attribute(info, "transform_descriptors");
    struct item item = {.at = attribute(index, "offset"),
                        .next = NO_ITEM,
                        .transformed = transforms && transforms->kind != CKPT_VALUE_NONE};
    size_t known;
    if (!pickle_is(name, CKPT_VALUE_STR) || !pickle_is(file, CKPT_VALUE_STR) ||
        !take_natural(attribute(info, "offset"), &item.offset) ||
        !take_natural(attribute(info, "length"), &item.length))
        return ckpt_fail(d->err, -EINVAL,
                         METADATA ": an entry of storage_data does not say where "
                                  "its item lies");
    item.file = file->text;
    if (!ckpt_array_grow(&d->items, d->n, &d->cap, sizeof *d->items))
        return fail_memory(d);
    const int rc = ckpt_strmap_add(&d->by_name, name->text, d->n, &known);
    if (rc == -EEXIST) {
        item.next = d->items[known].next;
        d->items[known].next = d->n;
    } else if (rc) {
        return fail_memory(d);
    }
    d->items[d->n++] = item;
    return 0;
}

/* The dict of that attribute of the Metadata object. */
static int take_dict(struct dcp *d, const struct ckpt_value *root, const char *name,
                     const struct ckpt_value **out) {
    *out = attribute(root, name);
    return pickle_is(*out, CKPT_VALUE_DICT)
               ? 0
               : ckpt_fail(d->err, -EINVAL,
                           METADATA ": it has no %s: not a checkpoint of "
                                    "torch.distributed.checkpoint",
                           name);
}

/* What an entry's class is called, without its module. */
static bool is_of_class(const struct ckpt_value *v, const char *name) {
    return v->kind == CKPT_VALUE_OPAQUE && ckpt_text_ends(v->text, name);
}

/* --- items ------------------------------------------------------------------------------------ */

/* Where a flattened name belongs: the path that the planner kept, else the name itself. */
static int path_of(struct dcp *d, const struct ckpt_value *name, struct ckpt_path *path) {
    struct ckpt_arena *a = &d->c->arena;
    const struct ckpt_value *kept = pickle_dict_get(d->planner, name->text.s);
    const bool has =
        pickle_is_seq(kept) && kept->seq.n > 0 && kept->seq.n <= CKPT_LIMIT_PICKLE_DEPTH;
    const size_t n = has ? kept->seq.n : 1;
    struct ckpt_text *segment = ckpt_arena_array(a, n, sizeof *segment);
    for (size_t i = 0; segment && i < n; i++) {
        segment[i] = ckpt_value_path_segment(a, has ? kept->seq.item[i] : name);
        if (!segment[i].s)
            return fail_memory(d);
    }
    *path = (struct ckpt_path){.segment = segment, .n = (uint32_t)n};
    return segment ? 0 : fail_memory(d);
}

static int open_shard(struct dcp *d, struct ckpt_text name, struct shard **out) {
    const size_t known = ckpt_strmap_get(&d->by_file, name);
    if (known != CKPT_STRMAP_ABSENT) {
        *out = &d->shards[known];
        return 0;
    }
    if (!ckpt_is_plain_name(name))
        return ckpt_fail(d->err, -EINVAL,
                         METADATA ": an item lies in \"%.*s\", expected the plain name of a file "
                                  "in the directory",
                         CKPT_TEXT_ARGS(name));
    if (d->nshards == CKPT_LIMIT_SHARDS)
        return ckpt_fail(d->err, -E2BIG, "more than %u shards", CKPT_LIMIT_SHARDS);
    struct ckpt_file *f = NULL;
    const int rc = ckpt_directory_open(d->directory, name.s, &f, d->err);
    if (rc)
        return rc;
    if (ckpt_checkpoint_add_file(d->c, f) ||
        !ckpt_array_grow(&d->shards, d->nshards, &d->shards_cap, sizeof *d->shards) ||
        ckpt_strmap_add(&d->by_file, name, d->nshards, NULL))
        return fail_memory(d);
    struct ckpt_store_file *const noted = ckpt_store_file_note(&d->c->arena, d->directory, name.s);
    if (!noted)
        return fail_memory(d);
    noted->mapping->file = f;
    *out = &d->shards[d->nshards++];
    **out = (struct shard){f, noted, f->size};
    return 0;
}

/* A tensor whose other chunks are not listed would be served cut short. */
static int check_whole(struct dcp *d, const struct ckpt_value *meta, const struct ckpt_value *v) {
    const struct ckpt_value *size = attribute(meta, "size");
    if (!pickle_is_seq(size) || v->kind != CKPT_PICKLE_TENSOR)
        return 0;
    const struct torch_tensor *t = v->format;
    bool same = t->error || t->unsupported || t->ndim == size->seq.n;
    for (uint32_t i = 0; same && !t->error && !t->unsupported && i < t->ndim; i++)
        same = pickle_is(size->seq.item[i], CKPT_VALUE_INT) && size->seq.item[i]->i == t->shape[i];
    return same ? 0
                : ckpt_fail(d->err, -EINVAL,
                            "its one chunk is not of the shape that the whole "
                            "tensor has");
}

/* The item's archive; the reader, which is new, is to be freed in either case. */
static int open_item(struct dcp *d, const struct item *item, struct torch_reader *r,
                     const struct ckpt_store_file **noted, struct ckpt_value **out) {
    struct shard *shard = NULL;
    const int rc = open_shard(d, item->file, &shard);
    if (rc)
        return rc;
    if (item->length > shard->unread)
        return ckpt_fail(d->err, -EINVAL,
                         "its %llu bytes at %llu of %s overlap other items or end behind the file",
                         (unsigned long long)item->length, (unsigned long long)item->offset,
                         shard->file->name);
    shard->unread -= item->length;
    *noted = shard->noted;
    *r = (struct torch_reader){.c = d->c, .options = d->options, .file = shard->file};
    return torch_zip_object(r, item->offset, item->length, out, d->err);
}

static int read_item(struct dcp *d, const struct item *item, const struct ckpt_value *meta,
                     struct ckpt_path path) {
    CKPT_AUTO(torch_reader) struct torch_reader r = {0};
    const struct ckpt_store_file *noted;
    struct ckpt_value *v = NULL;
    int rc = open_item(d, item, &r, &noted, &v);
    if (rc == 0)
        rc = check_whole(d, meta, v);
    return rc ? rc : torch_tree_add(&r, path, v, d->err);
}

/* --- tensors of several chunks ---------------------------------------------------------------- */

static int read_chunk(struct dcp *d, const struct item *item, struct ckpt_path path,
                      struct torch_chunk *out) {
    CKPT_AUTO(torch_reader) struct torch_reader r = {0};
    struct ckpt_value *v = NULL;
    int rc = open_item(d, item, &r, &out->file, &v);
    if (rc)
        return rc;
    if (v->kind != CKPT_PICKLE_TENSOR)
        return ckpt_fail(d->err, -EINVAL, "a chunk of it is no tensor");
    const struct torch_tensor *const t = v->format;
    if (t->unsupported && !t->error)
        return ckpt_fail(d->err, -ENOTSUP, "%s", t->unsupported);
    out->at = item->at;
    return torch_tensor_describe(&r, path, t, &out->tensor, d->err);
}

/* Ranks for which nothing was left have chunks without elements, which are passed over. */
static int read_chunks(struct dcp *d, size_t first, const struct ckpt_value *meta,
                       struct ckpt_path path) {
    size_t n = 0, cap = 0;
    CKPT_AUTO(free) struct torch_chunk *chunk = NULL;
    for (size_t i = first; i != NO_ITEM; i = d->items[i].next) {
        if (!ckpt_array_grow(&chunk, n, &cap, sizeof *chunk))
            return fail_memory(d);
        const int rc = d->items[i].transformed ? ckpt_fail(d->err, -ENOTSUP, TRANSFORMED)
                                               : read_chunk(d, &d->items[i], path, &chunk[n]);
        if (rc)
            return rc;
        n += ckpt_tensor_count(&chunk[n].tensor) > 0;
    }
    struct ckpt_tensor whole = {.path = path, .module = -1, .key = chunk[0].tensor.key};
    const int rc = torch_dcp_join(d->c, chunk, n, attribute(meta, "size"), &whole, d->err);
    return rc ? rc : torch_tensor_enter(d->c, &whole, d->err);
}

/* --- all of them ------------------------------------------------------------------------------ */

static int leave_out(struct dcp *d, struct ckpt_path path, const char *reason) {
    const struct ckpt_text text = ckpt_text_copy(&d->c->arena, reason, strlen(reason));
    return !text.s || ckpt_checkpoint_add_unsupported(d->c, path, text) ? fail_memory(d) : 0;
}

/* An item that can't be had: refuses, or goes on without it. */
static int miss(struct dcp *d, const struct ckpt_value *name, struct ckpt_path path) {
    if (d->err->code == -ENOMEM || !d->options->keep_going)
        return ckpt_fail_in(d->err, "item \"%.*s\"", CKPT_TEXT_ARGS(name->text));
    return leave_out(d, path, d->err->text);
}

static int add_entry(struct dcp *d, const struct ckpt_value *name, const struct ckpt_value *meta) {
    struct ckpt_path path;
    if (name->kind != CKPT_VALUE_STR)
        return ckpt_fail(d->err, -EINVAL, METADATA ": an item whose name is no text");
    int rc = path_of(d, name, &path);
    if (rc)
        return rc;
    const size_t at = ckpt_strmap_get(&d->by_name, name->text);
    if (at == CKPT_STRMAP_ABSENT) {
        ckpt_fail(d->err, -EINVAL, "storage_data does not say where it lies");
        return miss(d, name, path);
    }
    const struct item *item = &d->items[at];
    if (item->next != NO_ITEM && is_of_class(meta, ".TensorStorageMetadata"))
        rc = read_chunks(d, at, meta, path);
    else
        rc = item->transformed ? ckpt_fail(d->err, -ENOTSUP, TRANSFORMED)
                               : read_item(d, item, meta, path);
    if (rc == -ENOTSUP) /* sound, but not to be served */
        return leave_out(d, path, d->err->text);
    return rc ? miss(d, name, path) : 0;
}

static int read_items(struct dcp *d, const struct ckpt_value *root) {
    const struct ckpt_value *state, *storage;
    int rc = take_dict(d, root, "state_dict_metadata", &state);
    if (rc == 0)
        rc = take_dict(d, root, "storage_data", &storage);
    if (rc)
        return rc;
    d->planner = attribute(root, "planner_data");
    for (size_t i = 0; rc == 0 && i + 1 < storage->seq.n; i += 2)
        rc = add_item(d, storage->seq.item[i], storage->seq.item[i + 1]);
    for (size_t i = 0; rc == 0 && i + 1 < state->seq.n; i += 2)
        rc = add_entry(d, state->seq.item[i], state->seq.item[i + 1]);
    return rc ? rc : torch_tree_check(d->c, d->err);
}

static int read_directory(struct ckpt_checkpoint *c, const char *source,
                          const struct ckpt_open_options *options, struct ckpt_err *err) {
    struct ckpt_err unasked = {0}; /* an item's failure may become its reason */
    CKPT_AUTO(dcp)
    struct dcp d = {.c = c, .directory = source, .options = options, .err = err ? err : &unasked};
    struct ckpt_value *root;
    int rc = ckpt_directory_fill(c, source, d.err);
    if (rc == 0)
        rc = read_metadata(&d, &root);
    if (rc == 0)
        rc = read_items(&d, root);
    c->format = ckpt_format_torch_dcp.name;
    c->is_torch = true;
    return rc;
}

const struct ckpt_format ckpt_format_torch_dcp = {"torch-dcp", true, detect, read_directory};
