/*
 * Opening a database: the manifest, then the tree of its newest version, leaves from left to right,
 * which is the order of keys. A hostile tree may share nodes or lead in circles: heights must fall
 * by one a level, keys must rise throughout, and nodes and their bytes are counted.
 */
#include "formats/ocdbt.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/strmap.h"
#include "formats/limits.h"

#define MANIFEST "manifest.ocdbt"
#define NUMBERED "manifest."
#define NUMBER_DIGITS 16

struct reader {
    struct ckpt_kvstore *store;
    const char *directory;
    struct ckpt_strmap by_path; /* -> files: each is looked at once */
    struct ckpt_store_file **files;
    size_t nfiles, files_cap;
    uint64_t bytes, nodes; /* so far */
    struct ckpt_err *err;
};

static void reader_fini(struct reader *r) {
    ckpt_strmap_fini(&r->by_path);
    free(r->files);
}
CKPT_DEFINE_AUTO(reader, struct reader, reader_fini)

static int fail_memory(struct reader *r) {
    return ckpt_fail_memory(r->err, "reading the database");
}

static int file_of(struct reader *r, struct ckpt_text path, struct ckpt_store_file **out) {
    const size_t known = ckpt_strmap_get(&r->by_path, path);
    if (known != CKPT_STRMAP_ABSENT) {
        *out = r->files[known];
        return 0;
    }
    CKPT_AUTO(free) char *name = strndup(path.s, path.n);
    *out = name ? ckpt_store_file_note(r->store->arena, r->directory, name) : NULL;
    if (!*out || !ckpt_array_grow(&r->files, r->nfiles, &r->files_cap, sizeof *r->files) ||
        ckpt_strmap_add(&r->by_path, ckpt_text_of((*out)->name), r->nfiles, NULL))
        return fail_memory(r);
    r->files[r->nfiles++] = *out;
    return 0;
}

/* The body of the envelope at that place. */
static int unwrap(struct reader *r, const struct ckpt_stored *at, enum ckpt_ocdbt_magic magic,
                  uint64_t limit, uint8_t **body, size_t *n) {
    int rc = ckpt_stored_check(at, r->err);
    if (rc == 0 && at->length > limit)
        rc = ckpt_fail(r->err, -E2BIG,
                       "has %" PRIu64 " bytes, the limit is %" PRIu64
                       " (limit of a database's node or manifest)",
                       at->length, limit);
    const uint64_t room = ckpt_kvstore_room(r->store);
    if (rc == 0 && at->length >= room)
        rc = ckpt_kvstore_fail_room(r->store, r->err);
    if (rc)
        return rc;
    CKPT_AUTO(free) uint8_t *bytes = malloc((size_t)at->length + 1);
    if (!bytes)
        return fail_memory(r);
    const uint64_t most = room - at->length < limit ? room - at->length : limit;
    rc = ckpt_stored_read(at, bytes, NULL, r->err);
    return rc ? rc : ckpt_ocdbt_unwrap(bytes, (size_t)at->length, magic, most, body, n, r->err);
}

/* --- the tree --------------------------------------------------------------------------------- */

/* Where a node lies, and what it inherits from the way to it. */
struct place {
    struct ckpt_text path, base; /* of its file */
    uint64_t offset, length;
    unsigned height;
    struct ckpt_text prefix; /* of its keys */
};

static struct ckpt_text full_key(struct ckpt_str *text, struct ckpt_text prefix,
                                 struct ckpt_text key) {
    ckpt_str_cut(text, 0);
    ckpt_str_add(text, prefix.s, prefix.n);
    ckpt_str_add(text, key.s, key.n);
    return ckpt_str_text(text);
}

static int add_value(struct reader *r, const struct ckpt_ocdbt_node *node,
                     const struct ckpt_ocdbt_entry *e, struct ckpt_text key) {
    struct ckpt_kvstore *const s = r->store;
    struct ckpt_stored value = {.offset = e->ref.offset, .length = e->ref.length};
    struct ckpt_store_file *file = NULL;
    if (key.n > CKPT_LIMIT_OCDBT_PATH)
        return ckpt_fail(r->err, -E2BIG,
                         "the key \"%.40s...\" has %zu bytes, the limit is %u (limit of database "
                         "paths)",
                         key.s, key.n, CKPT_LIMIT_OCDBT_PATH);
    if (s->n && ckpt_text_cmp(s->entries[s->n - 1].key, key) >= 0)
        return ckpt_fail(r->err, -EINVAL, "the key \"%.200s\" is not in order: it is damaged",
                         key.s);
    const int rc = e->value ? 0 : file_of(r, node->files.file[e->ref.file].path, &file);
    value.file = file;
    if (e->value) {
        if (value.length >= ckpt_kvstore_room(s))
            return ckpt_kvstore_fail_room(s, r->err);
        value.data = ckpt_arena_alloc(s->arena, (size_t)value.length + 1);
        if (!value.data)
            return fail_memory(r);
        memcpy((uint8_t *)(uintptr_t)value.data, e->value, (size_t)value.length);
    }
    return rc ? rc : ckpt_kvstore_add(s, key, value, r->err);
}

static int walk(struct reader *r, const struct place *at);

static int walk_entry(struct reader *r, const struct place *at, const struct ckpt_ocdbt_node *node,
                      const struct ckpt_ocdbt_entry *e) {
    CKPT_AUTO(str) struct ckpt_str text = {0};
    struct ckpt_text key = full_key(&text, at->prefix, e->key);
    if (text.failed)
        return fail_memory(r);
    if (at->height == 0)
        return add_value(r, node, e, key);
    const struct ckpt_ocdbt_file *const file = &node->files.file[e->ref.file];
    key.n = at->prefix.n + e->prefix;
    const struct place child = {file->path,    file->base,     e->ref.offset,
                                e->ref.length, at->height - 1, key};
    return walk(r, &child);
}

static int walk_node(struct reader *r, const struct place *at, const uint8_t *body, size_t n) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {.limit = ckpt_kvstore_room(r->store) + 1};
    struct ckpt_ocdbt_node node;
    int rc = ckpt_ocdbt_parse_node(body, n, at->base, &arena, &node, r->err);
    if (rc == -ENOMEM && arena.exceeded)
        rc = ckpt_kvstore_fail_room(r->store, r->err);
    if (rc == 0 && node.height != at->height)
        rc = ckpt_fail(r->err, -EINVAL, "has height %u, expected %u: it is damaged", node.height,
                       at->height);
    if (rc)
        return ckpt_fail_in(r->err, "the node at byte %" PRIu64 " of %.*s", at->offset,
                            CKPT_TEXT_ARGS(at->path));
    r->store->held += arena.used;
    for (size_t i = 0; rc == 0 && i < node.n; i++)
        rc = walk_entry(r, at, &node, &node.entry[i]);
    r->store->held -= arena.used;
    return rc;
}

static int walk(struct reader *r, const struct place *at) {
    CKPT_AUTO(free) uint8_t *body = NULL;
    struct ckpt_store_file *file = NULL;
    size_t n = 0;
    if (r->nodes++ == CKPT_LIMIT_OCDBT_NODES)
        return ckpt_fail(r->err, -E2BIG, "more than %u nodes (limit of database nodes)",
                         CKPT_LIMIT_OCDBT_NODES);
    int rc = file_of(r, at->path, &file);
    if (rc)
        return rc;
    const struct ckpt_stored stored = {.file = file, .offset = at->offset, .length = at->length};
    rc = unwrap(r, &stored, CKPT_OCDBT_NODE, CKPT_LIMIT_OCDBT_NODE_BYTES, &body, &n);
    if (rc)
        return ckpt_fail_in(r->err, "the node at byte %" PRIu64 " of %s", at->offset, file->name);
    r->bytes += n;
    if (r->bytes > CKPT_LIMIT_OCDBT_BYTES)
        return ckpt_fail(r->err, -E2BIG,
                         "its nodes have more than %u bytes (limit of database bytes)",
                         CKPT_LIMIT_OCDBT_BYTES);
    r->store->held += n;
    rc = walk_node(r, at, body, n);
    r->store->held -= n;
    return rc;
}

/* --- the manifest ----------------------------------------------------------------------------- */

static bool is_numbered(const char *name) {
    const size_t start = strlen(NUMBERED);
    return strncmp(name, NUMBERED, start) == 0 && strlen(name) == start + NUMBER_DIGITS &&
           strspn(name + start, "0123456789abcdef") == NUMBER_DIGITS;
}

/* The numbered manifest with the highest number. */
static int newest_manifest(struct reader *r, char name[static 256]) {
    CKPT_AUTO(dir) DIR *d = opendir(r->directory);
    name[0] = '\0';
    for (const struct dirent *e; d && (e = readdir(d));)
        if (is_numbered(e->d_name) && strcmp(e->d_name, name) > 0)
            snprintf(name, 256, "%s", e->d_name);
    return *name ? 0
                 : ckpt_fail(r->err, -EINVAL,
                             MANIFEST " refers to numbered manifests, but there is none");
}

static int read_manifest(struct reader *r, const char *name, struct ckpt_arena *a,
                         struct ckpt_ocdbt_manifest *m) {
    CKPT_AUTO(free) uint8_t *body = NULL;
    struct ckpt_store_file *file = NULL;
    size_t n = 0;
    int rc = file_of(r, ckpt_text_of(name), &file);
    if (rc)
        return rc;
    const struct ckpt_stored stored = {.file = file, .length = file->size};
    rc = unwrap(r, &stored, CKPT_OCDBT_MANIFEST, CKPT_LIMIT_OCDBT_MANIFEST_BYTES, &body, &n);
    if (rc == 0)
        rc = ckpt_ocdbt_parse_manifest(body, n, a, m, r->err);
    return rc ? ckpt_fail_in(r->err, "%s", name) : 0;
}

static int read_newest(struct reader *r, struct ckpt_arena *a, struct ckpt_ocdbt_manifest *m) {
    char name[256];
    int rc = read_manifest(r, MANIFEST, a, m);
    if (rc || !m->is_numbered)
        return rc;
    rc = newest_manifest(r, name);
    if (rc == 0)
        rc = read_manifest(r, name, a, m);
    if (rc == 0 && m->is_numbered)
        rc = ckpt_fail(r->err, -EINVAL, "%s: refers to numbered manifests again", name);
    return rc;
}

static int read_tree(struct reader *r, const struct ckpt_ocdbt_manifest *m) {
    if (!m->has_version || m->root.offset == CKPT_OCDBT_NOWHERE)
        return m->keys ? ckpt_fail(r->err, -EINVAL, MANIFEST ": has keys but no tree") : 0;
    if (m->root.file >= m->files.n)
        return ckpt_fail(r->err, -EINVAL, MANIFEST ": refers to file %" PRIu64 " of %zu",
                         m->root.file, m->files.n);
    const struct ckpt_ocdbt_file *const file = &m->files.file[m->root.file];
    const struct place root = {file->path,     file->base, m->root.offset,
                               m->root.length, m->height,  CKPT_TEXT("")};
    const int rc = walk(r, &root);
    if (rc == 0 && r->store->n != m->keys)
        return ckpt_fail(r->err, -EINVAL,
                         MANIFEST ": says that there are %" PRIu64 " keys, but there are %zu",
                         m->keys, r->store->n);
    return rc;
}

bool ckpt_ocdbt_is(const char *directory) {
    CKPT_AUTO(free) char *path = NULL;
    return asprintf(&path, "%s/" MANIFEST, directory) >= 0 && access(path, F_OK) == 0;
}

int ckpt_ocdbt_open(struct ckpt_kvstore *s, const char *directory, struct ckpt_err *err) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    CKPT_AUTO(reader) struct reader r = {.store = s, .directory = directory, .err = err};
    struct ckpt_ocdbt_manifest m;
    const int rc = read_newest(&r, &arena, &m);
    return rc ? rc : read_tree(&r, &m);
}
