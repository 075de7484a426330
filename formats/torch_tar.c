#include "formats/torch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "formats/tar.h"

/*
 * The container of torch before 0.1.10 (2017), a TAR archive of these members:
 *
 *     storages   n │ n × (key, location, class), int64 count, bytes │ [(key, root key, offset,
 *                count), ...]: storages that are parts of others
 *     tensors    n │ n × (key, storage key, class), int32 dimensions, 4 unused bytes, int64 sizes,
 *                int64 strides, int64 offset
 *     pickle     the object; a persistent id is the key of a tensor or storage, or (class, source
 *                ...), which stands for the class
 *     sys_info   not needed
 *
 * What is not marked int64 or int32 is a pickle.
 */

#define MAGIC_AT 257

struct archive {
    struct torch_reader *r;
    struct torch_stream in;    /* the member being read */
    struct ckpt_strmap by_key; /* storages and tensors -> index in objects */
    struct ckpt_value **objects;
    size_t n, cap;
    struct ckpt_err *err;
};

static void archive_fini(struct archive *a) {
    ckpt_strmap_fini(&a->by_key);
    free(a->objects);
}
CKPT_DEFINE_AUTO(archive, struct archive, archive_fini)

static bool detect(const char *source, const struct ckpt_file *file) {
    (void)source;
    return file && ckpt_file_has(file, MAGIC_AT, "ustar", 5);
}

static int fail_memory(struct archive *a) {
    return ckpt_fail_memory(a->err, "reading the TAR container");
}

static void enter(struct archive *a, const struct ckpt_tar_member *m, const char *list) {
    a->in = (struct torch_stream){.r = a->r,
                                  .file = a->r->file,
                                  .bytes = a->r->file->data,
                                  .n = (size_t)(m->data + m->size),
                                  .pos = (size_t)m->data,
                                  .list = list};
}

/* --- objects by key --------------------------------------------------------------------------- */

static int add_object(struct archive *a, struct ckpt_text key, struct ckpt_value *v) {
    if (!ckpt_array_grow(&a->objects, a->n, &a->cap, sizeof(struct ckpt_value *)))
        return fail_memory(a);
    a->objects[a->n] = v;
    const int rc = ckpt_strmap_add(&a->by_key, key, a->n++, NULL);
    if (rc == -EEXIST)
        return ckpt_fail(a->err, -EINVAL, "two storages or tensors have the key \"%.*s\"",
                         CKPT_TEXT_ARGS(key));
    return rc ? fail_memory(a) : 0;
}

static int find_object(struct archive *a, const struct ckpt_value *id, struct ckpt_value **out) {
    struct ckpt_text key;
    const int rc = torch_key_text(a->r, id, &key, a->err);
    if (rc)
        return rc;
    const size_t i = ckpt_strmap_get(&a->by_key, key);
    if (i == CKPT_STRMAP_ABSENT)
        return ckpt_fail(a->err, -EINVAL, "no tensor or storage has the key \"%.*s\"",
                         CKPT_TEXT_ARGS(key));
    *out = a->objects[i];
    return 0;
}

static int find_storage(struct archive *a, const struct ckpt_value *id,
                        struct torch_storage **out) {
    struct ckpt_value *v = NULL;
    const int rc = find_object(a, id, &v);
    if (rc)
        return rc;
    if (v->kind != CKPT_PICKLE_STORAGE)
        return ckpt_fail(a->err, -EINVAL, "a tensor's key where a storage's is expected");
    *out = v->format;
    return 0;
}

/* --- lists ------------------------------------------------------------------------------------ */

static int take_tuple(struct archive *a, size_t n, struct ckpt_value *const **item) {
    struct ckpt_value *v;
    const int rc = torch_stream_pickle(&a->in, a->in.list, NULL, &v, a->err);
    if (rc)
        return rc;
    if (v->kind != CKPT_VALUE_TUPLE || v->seq.n != n)
        return ckpt_fail(a->err, -EINVAL, "the list of %s has an entry that is no tuple of %zu",
                         a->in.list, n);
    *item = v->seq.item;
    return 0;
}

/* As many entries as the list says it has. */
static int read_entries(struct archive *a, int (*read_entry)(struct archive *a)) {
    struct ckpt_value *count;
    int rc = torch_stream_pickle(&a->in, a->in.list, NULL, &count, a->err);
    if (rc)
        return rc;
    if (count->kind != CKPT_VALUE_INT || count->i < 0)
        return ckpt_fail(a->err, -EINVAL, "the list of %s begins with no count", a->in.list);
    for (int64_t i = 0; rc == 0 && i < count->i; i++)
        rc = read_entry(a);
    return rc;
}

/* torch_reader.locate: its bytes come next. */
static int locate_here(struct torch_reader *r, struct torch_record *record, struct ckpt_err *err) {
    struct archive *a = r->container;
    return torch_stream_blob(&a->in, record, err);
}

static int read_storage(struct archive *a) {
    struct ckpt_value *const *item = NULL, *storage = NULL, count = {.kind = CKPT_VALUE_INT};
    struct ckpt_text key;
    uint64_t n = 0;
    int rc = take_tuple(a, 3, &item);
    if (rc == 0)
        rc = torch_stream_int(&a->in, 8, &n, a->err);
    if (rc == 0)
        rc = torch_key_text(a->r, item[0], &key, a->err);
    count.i = (int64_t)n;
    if (rc == 0)
        rc = torch_storage_new(a->r, key, item[2], &count, &storage, a->err);
    if (rc)
        return rc;
    const char *error = ((struct torch_storage *)storage->format)->error;
    if (error) /* how many bytes to pass over is unknown */
        return ckpt_fail(a->err, -EINVAL, "storage \"%.*s\": %s", CKPT_TEXT_ARGS(key), error);
    return add_object(a, key, storage);
}

/* (key, root key, offset, count) */
static int add_view(struct archive *a, const struct ckpt_value *view) {
    struct torch_storage *root, *s = ckpt_arena_alloc(&a->r->c->arena, sizeof *s);
    struct ckpt_value *v = s ? torch_value_new(a->r, CKPT_PICKLE_STORAGE, s) : NULL;
    struct ckpt_text key;
    if (!v)
        return fail_memory(a);
    if (view->kind != CKPT_VALUE_TUPLE || view->seq.n != 4)
        return ckpt_fail(a->err, -EINVAL, "a view of a storage that is no tuple of 4");
    int rc = torch_key_text(a->r, view->seq.item[0], &key, a->err);
    if (rc == 0)
        rc = find_storage(a, view->seq.item[1], &root);
    if (rc)
        return rc;
    *s = *root;
    if (!torch_storage_narrow(s, view->seq.item[2], view->seq.item[3]))
        return ckpt_fail(a->err, -EINVAL, "storage \"%.*s\" is a view that leaves its storage",
                         CKPT_TEXT_ARGS(key));
    return add_object(a, key, v);
}

static int read_storages(struct archive *a) {
    struct ckpt_value *views;
    int rc = read_entries(a, read_storage);
    if (rc == 0)
        rc = torch_stream_pickle(&a->in, "the list of views", NULL, &views, a->err);
    if (rc)
        return rc;
    if (views->kind != CKPT_VALUE_LIST)
        return ckpt_fail(a->err, -EINVAL, "what should be the list of views is not a list");
    for (size_t i = 0; rc == 0 && i < views->seq.n; i++)
        rc = add_view(a, views->seq.item[i]);
    return rc;
}

static int take_sizes(struct archive *a, uint32_t n, const int64_t **out) {
    int64_t *v = ckpt_arena_array(&a->r->c->arena, n, sizeof *v);
    if (!v)
        return fail_memory(a);
    *out = v;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        uint64_t value = 0;
        rc = torch_stream_int(&a->in, 8, &value, a->err);
        v[i] = (int64_t)value;
    }
    return rc;
}

static int take_geometry(struct archive *a, struct torch_tensor *t) {
    uint64_t ndim, unused, offset;
    int rc = torch_stream_int(&a->in, 4, &ndim, a->err);
    if (rc == 0)
        rc = torch_stream_int(&a->in, 4, &unused, a->err);
    if (rc)
        return rc;
    if (ndim > CKPT_NDIM_MAX)
        return ckpt_fail(a->err, -EINVAL,
                         "a tensor of %llu dimensions at byte %zu, at most %d are "
                         "supported",
                         (unsigned long long)ndim, a->in.pos - 8, CKPT_NDIM_MAX);
    t->ndim = (uint32_t)ndim;
    rc = take_sizes(a, t->ndim, &t->shape);
    if (rc == 0)
        rc = take_sizes(a, t->ndim, &t->stride);
    if (rc == 0)
        rc = torch_stream_int(&a->in, 8, &offset, a->err);
    if (rc)
        return rc;
    t->offset = (int64_t)offset;
    for (uint32_t i = 0; i < t->ndim; i++)
        if (t->shape[i] < 0 || t->stride[i] < 0)
            t->error = "one of its sizes or strides is negative";
    if (t->offset < 0)
        t->error = "its storage offset is negative";
    return 0;
}

static int read_tensor(struct archive *a) {
    struct torch_tensor *t = ckpt_arena_alloc(&a->r->c->arena, sizeof *t);
    struct ckpt_value *v = t ? torch_value_new(a->r, CKPT_PICKLE_TENSOR, t) : NULL;
    struct ckpt_value *const *item = NULL;
    struct torch_storage *storage = NULL;
    struct ckpt_text key;
    if (!v)
        return fail_memory(a);
    int rc = take_tuple(a, 3, &item);
    if (rc == 0)
        rc = torch_key_text(a->r, item[0], &key, a->err);
    if (rc == 0)
        rc = find_storage(a, item[1], &storage);
    if (rc == 0)
        rc = take_geometry(a, t);
    if (rc)
        return rc;
    t->storage = storage;
    t->dtype = storage->dtype;
    return add_object(a, key, v);
}

static int persistent_id(void *user, const struct ckpt_value *id, struct ckpt_value **out,
                         struct ckpt_err *err) {
    struct torch_reader *r = user;
    struct archive *a = r->container;
    (void)err; /* the archive's own */
    if (id->kind != CKPT_VALUE_TUPLE || id->seq.n == 0)
        return find_object(a, id, out);
    *out = id->seq.item[0];
    return 0;
}

static int read_object(struct archive *a, struct ckpt_value **root) {
    const struct ckpt_pickle_hooks hooks = {.user = a->r,
                                            .persistent_id = persistent_id,
                                            .nested_storage = torch_legacy_nested,
                                            .globals = &a->r->c->globals};
    return torch_stream_pickle(&a->in, "the object", &hooks, root, a->err);
}

static int read_members(struct archive *a, const struct ckpt_tar_member *member,
                        struct ckpt_value **root) {
    enter(a, &member[0], "storages");
    int rc = read_storages(a);
    if (rc)
        return rc;
    enter(a, &member[1], "tensors");
    rc = read_entries(a, read_tensor);
    if (rc)
        return rc;
    enter(a, &member[2], "objects");
    return read_object(a, root);
}

static int read_file(struct ckpt_checkpoint *c, const char *source,
                     const struct ckpt_open_options *options, struct ckpt_err *err) {
    struct ckpt_tar_member member[] = {{"storages", 0, 0}, {"tensors", 0, 0}, {"pickle", 0, 0}};
    const size_t n = sizeof member / sizeof *member;
    CKPT_AUTO(torch_reader)
    struct torch_reader r = {
        .c = c, .options = options, .file = c->files[0], .locate = locate_here};
    CKPT_AUTO(archive) struct archive a = {.r = &r, .err = err};
    struct ckpt_value *root;
    (void)source;
    r.container = &a;
    c->format = ckpt_format_torch_tar.name;
    c->is_torch = true;
    int rc = ckpt_tar_find(r.file, member, n, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (!member[i].data)
            rc = ckpt_fail(err, -EINVAL,
                           "not a checkpoint: a TAR archive without the member \"%s\"; if it is "
                           "the checkpoint's packing, unpack it first",
                           member[i].name);
    if (rc == 0)
        rc = read_members(&a, member, &root);
    return rc ? rc : torch_tree_read(&r, root, err);
}

const struct ckpt_format ckpt_format_torch_tar = {
    .name = "torch-tar", .detect = detect, .read = read_file};
