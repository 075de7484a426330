#include "formats/torch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/torch_script.h"
#include "formats/pt2.h"
#include "formats/zip.h"

/*
 * The ZIP container of torch.save since 1.6: one folder ("root", any name) with
 *
 *     data.pkl        the object, with storages as persistent ids
 *     data/KEY        the bytes of a storage
 *     byteorder       "little" or "big"; little if absent
 *     version, .data/..., .format_version ...   not needed to read it
 *
 * torch.jit.save adds constants.pkl and code/ (torch_script.h).
 */

struct container {
    struct ckpt_zip zip;
    struct ckpt_text root; /* "archive" */
    const char *name;      /* of what is read: "data" */
    bool is_script;        /* torch.jit.save wrote it */
};

static void container_fini(struct container *z) {
    ckpt_zip_fini(&z->zip);
}
CKPT_DEFINE_AUTO(container, struct container, container_fini)

static bool detect(const char *source, const struct ckpt_file *file) {
    (void)source;
    return file && ckpt_file_has(file, 0, "PK\3\4", 4);
}

/* --- entries ---------------------------------------------------------------------------------- */

/* The entry ROOT/a/b, or NULL. b may hold any byte; "" leaves out its slash. */
static const struct ckpt_zip_entry *find(struct torch_reader *r, const struct container *z,
                                         const char *a, struct ckpt_text b) {
    const size_t n = strlen(a);
    char *name = ckpt_arena_alloc(&r->c->arena, z->root.n + n + b.n + 3);
    if (!name)
        return NULL;
    memcpy(name, z->root.s, z->root.n);
    name[z->root.n] = '/';
    memcpy(name + z->root.n + 1, a, n);
    size_t end = z->root.n + 1 + n;
    if (b.n) {
        name[end++] = '/';
        memcpy(name + end, b.s, b.n);
    }
    return ckpt_zip_find(&z->zip, (struct ckpt_text){name, end + b.n});
}

/* What macOS puts beside every file that its Finder zips. */
static bool is_finder_litter(struct ckpt_text name) {
    return ckpt_text_starts(name, "__MACOSX/") || ckpt_text_ends(name, ".DS_Store");
}

static bool is_below(struct ckpt_text name, struct ckpt_text root) {
    return name.n > root.n && memcmp(name.s, root.s, root.n) == 0 && name.s[root.n] == '/';
}

/* The folder in which data.pkl lies; nothing else may lie outside it. */
static int find_root(struct container *z, struct ckpt_err *err) {
    static const char object[] = "/data.pkl";
    const size_t n = sizeof object - 1;
    for (size_t i = 0; i < z->zip.nentries; i++) {
        const struct ckpt_text name = z->zip.entry[i].name;
        if (!ckpt_text_ends(name, object) || memchr(name.s, '/', name.n - n) || name.n == n)
            continue;
        if (z->root.s)
            return ckpt_fail(
                err, -EINVAL,
                "two folders of the ZIP archive hold a data.pkl (\"%.*s\" and \"%.*s\"): "
                "which one counts is ambiguous",
                CKPT_TEXT_ARGS(z->root), (int)(name.n - n), name.s);
        z->root = (struct ckpt_text){name.s, name.n - n};
    }
    for (size_t i = 0; z->root.s && i < z->zip.nentries; i++) {
        const struct ckpt_text name = z->zip.entry[i].name;
        if (!is_below(name, z->root) && !is_finder_litter(name))
            return ckpt_fail(err, -EINVAL,
                             "ZIP entry \"%.*s\" lies outside the checkpoint's folder \"%.*s\"",
                             CKPT_TEXT_ARGS(name), CKPT_TEXT_ARGS(z->root));
    }
    return 0;
}

/* What the archive is that is no checkpoint of torch.save. */
static int fail_kind(struct ckpt_err *err) {
    return ckpt_fail(
        err, -EINVAL,
        "not a checkpoint: the ZIP archive has no FOLDER/data.pkl, which torch.save writes");
}

static int check_kind(struct torch_reader *r, struct container *z, struct ckpt_err *err) {
    if (!z->root.s)
        return fail_kind(err);
    z->is_script = find(r, z, "constants.pkl", CKPT_TEXT(""));
    if (z->is_script)
        r->c->format = "torchscript";
    return 0;
}

/* --- storages --------------------------------------------------------------------------------- */

/* torch_reader.locate: storage KEY is the entry NAME/KEY. What is wrong is kept for the tensors
 * that use it. */
static int locate(struct torch_reader *r, struct torch_record *record, struct ckpt_err *err) {
    struct container *z = r->container;
    struct ckpt_arena *a = &r->c->arena;
    const struct ckpt_text key = record->key;
    if (key.n == 0 || memchr(key.s, '/', key.n)) {
        record->error = ckpt_arena_printf(a, "its storage key \"%.*s\" is not a plain name",
                                          CKPT_TEXT_ARGS(key));
        return record->error ? 0 : ckpt_fail_memory(err, "listing storages");
    }
    const char *name = ckpt_arena_printf(a, "%s/%.*s", z->name, CKPT_TEXT_ARGS(key));
    const struct ckpt_zip_entry *e = find(r, z, z->name, key);
    if (!name)
        return ckpt_fail_memory(err, "listing storages");
    if (!e)
        record->error = ckpt_arena_printf(a, "its storage, ZIP entry \"%s\", is missing", name);
    else if (e->size != record->nbytes)
        record->error = ckpt_arena_printf(
            a, "its storage, ZIP entry \"%s\", has %llu bytes where the pickle says %llu", name,
            (unsigned long long)e->size, (unsigned long long)record->nbytes);
    else
        return ckpt_zip_blob(&z->zip, e, r->c->decoded, a, name, &record->blob, err);
    return record->error ? 0 : ckpt_fail_memory(err, "listing storages");
}

static int persistent_id(void *user, const struct ckpt_value *id, struct ckpt_value **out,
                         struct ckpt_err *err) {
    return torch_storage_from_id(user, id, false, out, err);
}

/* --- reading ---------------------------------------------------------------------------------- */

int torch_zip_byte_order(const struct ckpt_zip *zip, const struct ckpt_zip_entry *e,
                         struct ckpt_arena *a, bool *big_endian, struct ckpt_err *err) {
    struct ckpt_text text;
    const int rc = ckpt_zip_read(zip, e, 64, a, &text, err);
    if (rc)
        return rc;
    *big_endian = ckpt_text_is(text, "big");
    if (!*big_endian && !ckpt_text_is(text, "little"))
        return ckpt_fail(err, -EINVAL, "unknown byte order \"%.*s\"", CKPT_TEXT_ARGS(text));
    return 0;
}

static int read_byte_order(struct torch_reader *r, const struct container *z,
                           struct ckpt_err *err) {
    const struct ckpt_zip_entry *e = find(r, z, "byteorder", CKPT_TEXT(""));
    return e ? torch_zip_byte_order(&z->zip, e, &r->c->arena, &r->big_endian, err) : 0;
}

static int read_pickle(struct torch_reader *r, const struct container *z, uint64_t most,
                       struct ckpt_value **root, struct ckpt_err *err) {
    const struct ckpt_pickle_hooks hooks = {.user = r,
                                            .persistent_id = persistent_id,
                                            .nested_storage = torch_legacy_nested,
                                            .globals = &r->c->globals};
    char pickle[32];
    struct ckpt_text bytes;
    size_t consumed;
    snprintf(pickle, sizeof pickle, "%s.pkl", z->name);
    const struct ckpt_zip_entry *e = find(r, z, pickle, CKPT_TEXT(""));
    if (!e)
        return ckpt_fail(err, -EINVAL, "the archive has no %s", pickle);
    int rc = ckpt_zip_read(&z->zip, e, most, &r->c->arena, &bytes, err);
    if (rc == 0)
        rc = ckpt_pickle_run((const uint8_t *)bytes.s, bytes.n, &hooks, &r->c->arena, &consumed,
                             root, err);
    return rc;
}

static int read_object(struct torch_reader *r, struct container *z, struct ckpt_value **root,
                       struct ckpt_err *err) {
    int rc = check_kind(r, z, err);
    if (rc == 0)
        rc = read_byte_order(r, z, err);
    return rc ? rc : read_pickle(r, z, CKPT_LIMIT_PICKLE_BYTES, root, err);
}

int torch_zip_pickle(struct torch_reader *r, const struct ckpt_zip *zip, struct ckpt_text folder,
                     const char *name, uint64_t most, struct ckpt_value **out,
                     struct ckpt_err *err) {
    struct container z = {.zip = *zip, .root = folder, .name = name}; /* the archive is borrowed */
    r->locate = locate;
    r->container = &z;
    const int rc = read_byte_order(r, &z, err);
    return rc ? rc : read_pickle(r, &z, most, out, err);
}

static int read_script(struct torch_reader *r, const struct container *z, struct ckpt_value *root,
                       struct ckpt_err *err) {
    CKPT_AUTO(torch_script_graph) struct torch_script_graph graph = {0};
    int rc = torch_script_graph_read(r, &z->zip, z->root, root, &graph, err);
    if (rc == 0)
        rc = torch_script_modules(r, &z->zip, z->root, root, err);
    if (rc == 0)
        rc = torch_tree_read(r, root, err);
    return rc ? rc : torch_script_graph_keep(r, &graph, err);
}

static int read_container(struct torch_reader *r, struct container *z, struct ckpt_err *err) {
    struct ckpt_value *root;
    const int rc = read_object(r, z, &root, err);
    if (rc)
        return rc;
    return z->is_script ? read_script(r, z, root, err) : torch_tree_read(r, root, err);
}

static int open_container(struct torch_reader *r, struct container *z, uint64_t offset,
                          uint64_t size, struct ckpt_err *err) {
    const int rc = ckpt_zip_open_range(r->file, offset, size, &r->c->arena, &z->zip, err);
    return rc ? rc : find_root(z, err);
}

int torch_zip_object(struct torch_reader *r, uint64_t offset, uint64_t size,
                     struct ckpt_value **root, struct ckpt_err *err) {
    CKPT_AUTO(container) struct container z = {.name = "data"};
    r->locate = locate;
    r->container = &z;
    const int rc = open_container(r, &z, offset, size, err);
    return rc ? rc : read_object(r, &z, root, err);
}

static int read_file(struct ckpt_checkpoint *c, const char *source,
                     const struct ckpt_open_options *options, struct ckpt_err *err) {
    CKPT_AUTO(container) struct container z = {.name = "data"};
    CKPT_AUTO(torch_reader)
    struct torch_reader r = {
        .c = c, .options = options, .file = c->files[0], .locate = locate, .container = &z};
    struct ckpt_text export_root;
    (void)source;
    c->format = ckpt_format_torch_zip.name;
    c->is_torch = true;
    const int rc = open_container(&r, &z, 0, r.file->size, err);
    if (rc)
        return rc;
    if (!z.root.s && ckpt_pt2_root(&z.zip, &export_root))
        return ckpt_pt2_read(c, options, &z.zip, export_root, err);
    return read_container(&r, &z, err);
}

const struct ckpt_format ckpt_format_torch_zip = {
    .name = "torch-zip", .detect = detect, .read = read_file};
