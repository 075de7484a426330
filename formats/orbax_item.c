/*
 * An item: which arrays there are, by its description or else by the names in its store, and where
 * each leaf belongs.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "formats/directory.h"
#include "formats/ocdbt.h"
#include "formats/orbax.h"

#define METADATA "_METADATA"
#define STRINGS "_strings.json"
#define PROCESS "ocdbt.process_"

static void item_fini(struct ckpt_orbax_item *it) {
    for (size_t i = 0; i < it->nnested; i++)
        ckpt_kvstore_fini(&it->nested[i].store);
    free(it->nested);
    ckpt_kvstore_fini(&it->store);
    ckpt_zarr_known_fini(&it->known);
}
CKPT_DEFINE_AUTO(item, struct ckpt_orbax_item, item_fini)

static int fail_memory(const struct ckpt_orbax_item *it) {
    return ckpt_fail_memory(it->err, "reading an Orbax checkpoint");
}

static bool exists(const char *directory, const char *name) {
    CKPT_AUTO(free) char *path = ckpt_directory_path(directory, name);
    return path && access(path, F_OK) == 0;
}

/* Whether a folder in it has one of these names, begins with `prefix`, or holds an array. */
static bool has_folder(const char *directory, const char *prefix) {
    CKPT_AUTO(dir) DIR *d = opendir(directory);
    unsigned seen = 0;
    for (const struct dirent *e; d && seen < CKPT_LIMIT_ORBAX_ITEMS && (e = readdir(d)); seen++) {
        if (e->d_name[0] == '.' && (!e->d_name[1] || strcmp(e->d_name, "..") == 0))
            continue;
        if (prefix && strncmp(e->d_name, prefix, strlen(prefix)) == 0)
            return true;
        if (prefix)
            continue;
        CKPT_AUTO(free) char *path = ckpt_directory_path(directory, e->d_name);
        if (path && (exists(path, ".zarray") || exists(path, "zarr.json")))
            return true;
    }
    return false;
}

bool ckpt_orbax_is_item(const char *directory) {
    return ckpt_ocdbt_is(directory) || exists(directory, METADATA) ||
           has_folder(directory, PROCESS) || ckpt_flax_is(directory, "checkpoint") ||
           has_folder(directory, NULL);
}

/* --- leaves ----------------------------------------------------------------------------------- */

bool ckpt_orbax_path(const struct ckpt_orbax_item *it, const struct ckpt_text *segment, uint32_t n,
                     struct ckpt_path *out) {
    const uint32_t own = it->name ? 1 : 0;
    struct ckpt_text *const all = ckpt_arena_array(&it->c->arena, n + own + 1u, sizeof *all);
    if (!all)
        return false;
    if (own)
        all[0] = ckpt_text_of(it->name);
    if (n)
        memcpy(all + own, segment, n * sizeof *all);
    *out = (struct ckpt_path){.segment = all, .n = n + own};
    return true;
}

/* The segments from `from` on, joined with dots. */
static struct ckpt_text join(struct ckpt_arena *a, struct ckpt_path path, uint32_t from) {
    CKPT_AUTO(str) struct ckpt_str text = {0};
    if (from < path.n && path.n - from == 1)
        return path.segment[from];
    for (uint32_t i = from; i < path.n; i++) {
        ckpt_str_puts(&text, i > from ? "." : "");
        ckpt_str_add(&text, path.segment[i].s, path.segment[i].n);
    }
    const struct ckpt_text whole = ckpt_str_text(&text);
    return text.failed ? (struct ckpt_text){0} : ckpt_text_copy(a, whole.s, whole.n);
}

int ckpt_orbax_settle(struct ckpt_orbax_item *it, struct ckpt_path path, struct ckpt_tensor *t,
                      int rc) {
    if (rc == -ENOMEM)
        return rc;
    const int too_much = ckpt_checkpoint_check_memory(it->c, it->err);
    if (too_much)
        return too_much;
    t->path = path;
    t->key = join(&it->c->arena, path, 0);
    t->module = -1;
    if (!t->key.s)
        return fail_memory(it);
    const bool is_named = rc == 0; /* by what is wrong with it, then */
    if (rc == 0)
        rc = ckpt_tensor_check(t, it->err);
    if (rc == 0) {
        struct ckpt_tensor *const slot = ckpt_checkpoint_add_tensor(it->c);
        if (!slot)
            return it->c->ntensors < CKPT_LIMIT_TENSORS
                       ? fail_memory(it)
                       : ckpt_fail(it->err, -E2BIG, "more than %u arrays (limit of tensors)",
                                   CKPT_LIMIT_TENSORS);
        *slot = *t;
        return 0;
    }
    if (rc != -ENOTSUP && !it->options->keep_going)
        return is_named ? rc : ckpt_fail_in(it->err, "array \"%.*s\"", CKPT_TEXT_ARGS(t->key));
    const struct ckpt_text why =
        ckpt_text_copy(&it->c->arena, it->err->text, strlen(it->err->text));
    return !why.s || ckpt_checkpoint_add_unsupported(it->c, path, why) ? fail_memory(it) : 0;
}

int ckpt_orbax_add_value(struct ckpt_orbax_item *it, struct ckpt_path path,
                         struct ckpt_value value) {
    struct ckpt_value *const v = ckpt_arena_alloc(&it->c->arena, sizeof *v);
    if (!v)
        return fail_memory(it);
    *v = value;
    const int rc = ckpt_checkpoint_add_value(it->c, path, v) ? fail_memory(it) : 0;
    return rc ? rc : ckpt_checkpoint_check_memory(it->c, it->err);
}

/* The database in a folder below the item's, opened once; NULL: there is none. */
static int open_nested(struct ckpt_orbax_item *it, const char *folder,
                       const struct ckpt_kvstore **out) {
    CKPT_AUTO(free) char *path = ckpt_directory_path(it->directory, folder);
    *out = NULL;
    for (size_t i = 0; i < it->nnested; i++)
        if (strcmp(it->nested[i].folder, folder) == 0) {
            *out = &it->nested[i].store;
            return 0;
        }
    if (!path)
        return fail_memory(it);
    if (!ckpt_ocdbt_is(path))
        return 0;
    const char *const copy = ckpt_arena_copy(&it->c->arena, folder, strlen(folder));
    const char *const where = ckpt_arena_copy(&it->c->arena, path, strlen(path));
    if (!copy || !where ||
        !ckpt_array_grow(&it->nested, it->nnested, &it->nested_cap, sizeof *it->nested))
        return fail_memory(it);
    struct ckpt_orbax_nested *const n = &it->nested[it->nnested++];
    *n = (struct ckpt_orbax_nested){.folder = copy, .store = {.arena = &it->c->arena}};
    const int rc = ckpt_ocdbt_open(&n->store, where, it->err);
    *out = &n->store;
    return rc ? ckpt_fail_in(it->err, "%s", folder) : 0;
}

/* Orbax 0.4 made a database of its own for what a key has before its last slash. */
static int find_nested(struct ckpt_orbax_item *it, struct ckpt_text name, struct ckpt_tensor *t) {
    const char *const slash = memrchr(name.s, '/', name.n);
    const struct ckpt_kvstore *store = NULL;
    CKPT_AUTO(free) char *folder = slash ? strndup(name.s, (size_t)(slash - name.s)) : NULL;
    if (!folder || !*folder || strlen(folder) != (size_t)(slash - name.s) || *folder == '/' ||
        strstr(folder, ".."))
        return -ENOENT;
    const int rc = open_nested(it, folder, &store);
    if (rc || !store)
        return rc ? rc : -ENOENT;
    const struct ckpt_zarr_source source = {it->c, store, it->is_complete, &it->known};
    const struct ckpt_text last = {slash + 1, (size_t)(name.s + name.n - slash - 1)};
    return ckpt_zarr_tensor(&source, last, t, it->err);
}

static bool has_chunks(const struct ckpt_orbax_item *it, struct ckpt_text name) {
    const size_t at = ckpt_kvstore_from(&it->store, name);
    return at < it->store.n && it->store.entries[at].key.n > name.n + 1 &&
           memcmp(it->store.entries[at].key.s, name.s, name.n) == 0 &&
           it->store.entries[at].key.s[name.n] == '/';
}

int ckpt_orbax_add_array(struct ckpt_orbax_item *it, struct ckpt_path path, struct ckpt_text name) {
    struct ckpt_tensor t = {0};
    const struct ckpt_zarr_source source = {it->c, &it->store, it->is_complete, &it->known};
    int rc = ckpt_zarr_tensor(&source, name, &t, it->err);
    if (rc == -ENOENT)
        rc = find_nested(it, name, &t);
    if (rc == -ENOENT)
        rc = ckpt_fail(it->err, -EINVAL, "%s",
                       has_chunks(it, name)
                           ? "its chunks are there, but not its .zarray or zarr.json: copied by a "
                             "tool that skips dot files?"
                           : "it is described, but not in the store: an incomplete download?");
    return ckpt_orbax_settle(it, path, &t, rc);
}

/* --- by the description ----------------------------------------------------------------------- */

/* A whole small file of the item, or .s NULL if it is not there. */
static int read_file(struct ckpt_orbax_item *it, const char *name, struct ckpt_arena *a,
                     struct ckpt_text *out) {
    *out = (struct ckpt_text){0};
    const struct ckpt_store_file *const f = ckpt_store_file_note(a, it->directory, name);
    if (!f)
        return fail_memory(it);
    if (f->error == ENOENT)
        return 0;
    const struct ckpt_kv kv = {ckpt_text_of(name), {.file = f, .length = f->size}};
    const int rc =
        ckpt_kvstore_read(&kv, CKPT_LIMIT_ORBAX_METADATA, "Orbax metadata", a, out, it->err);
    return rc ? ckpt_fail_in(it->err, "%s", name) : 0;
}

static struct ckpt_value empty_value(struct ckpt_text type) {
    struct ckpt_value v = {.kind = CKPT_VALUE_NONE};
    if (ckpt_text_is(type, "Dict"))
        v.kind = CKPT_VALUE_DICT;
    if (ckpt_text_is(type, "List"))
        v.kind = CKPT_VALUE_LIST;
    if (ckpt_text_is(type, "Tuple") || ckpt_text_is(type, "NamedTuple"))
        v.kind = CKPT_VALUE_TUPLE;
    return v;
}

static int add_string(struct ckpt_orbax_item *it, struct ckpt_path path, struct ckpt_text name,
                      const struct ckpt_orbax_strings *strings) {
    const size_t at = ckpt_strmap_get(&strings->map, name);
    struct ckpt_tensor none = {0};
    if (at != CKPT_STRMAP_ABSENT)
        return ckpt_orbax_add_value(
            it, path, (struct ckpt_value){.kind = CKPT_VALUE_STR, .text = strings->text[at]});
    return ckpt_orbax_settle(it, path, &none,
                             ckpt_fail(it->err, -EINVAL, "its text is not in " STRINGS));
}

static int add_leaf(struct ckpt_orbax_item *it, const struct ckpt_orbax_leaf *leaf,
                    const struct ckpt_orbax_strings *strings) {
    struct ckpt_path path;
    if (!ckpt_orbax_path(it, leaf->path.segment, leaf->path.n, &path))
        return fail_memory(it);
    if (leaf->is_empty)
        return ckpt_orbax_add_value(it, path, empty_value(leaf->type));
    const struct ckpt_text name = join(&it->c->arena, leaf->path, 0);
    if (!name.s)
        return fail_memory(it);
    return ckpt_text_is(leaf->type, "string") ? add_string(it, path, name, strings)
                                              : ckpt_orbax_add_array(it, path, name);
}

/* Both texts are freed before arrays are looked at; until then what is made of them must fit beside
 * them. */
static int read_metadata(struct ckpt_orbax_item *it, struct ckpt_orbax_metadata *out,
                         bool *is_there) {
    CKPT_AUTO(arena) struct ckpt_arena scratch = {0};
    struct ckpt_text json;
    int rc = read_file(it, METADATA, &scratch, &json);
    *is_there = rc == 0 && json.s;
    if (!*is_there)
        return rc;
    it->c->arena.limit -= json.n;
    rc = ckpt_orbax_parse_metadata((char *)(uintptr_t)json.s, json.n, &it->c->arena, out, it->err);
    it->c->arena.limit += json.n;
    return rc ? ckpt_fail_in(it->err, METADATA) : 0;
}

static int read_strings(struct ckpt_orbax_item *it, struct ckpt_orbax_strings *out) {
    CKPT_AUTO(arena) struct ckpt_arena scratch = {0};
    struct ckpt_text json;
    int rc = read_file(it, STRINGS, &scratch, &json);
    if (rc || !json.s)
        return rc;
    it->c->arena.limit -= json.n;
    rc = ckpt_orbax_parse_strings((char *)(uintptr_t)json.s, json.n, &it->c->arena, out, it->err);
    it->c->arena.limit += json.n;
    return rc ? ckpt_fail_in(it->err, STRINGS) : 0;
}

static int read_described(struct ckpt_orbax_item *it, const struct ckpt_orbax_metadata *m) {
    struct ckpt_orbax_strings strings = {0};
    int rc = read_strings(it, &strings);
    it->is_complete = m->is_complete;
    for (size_t i = 0; rc == 0 && i < m->n; i++)
        rc = add_leaf(it, &m->leaf[i], &strings);
    ckpt_strmap_fini(&strings.map);
    return rc;
}

/* --- by the store ----------------------------------------------------------------------------- */

/* The path that a name most likely stands for: it was joined with dots. */
static int add_named(struct ckpt_orbax_item *it, struct ckpt_text name) {
    size_t n = 1;
    for (size_t i = 0; i < name.n; i++)
        n += name.s[i] == '.';
    if (n > UINT16_MAX)
        return ckpt_fail(it->err, -E2BIG, "an array's name has more than %u dots", UINT16_MAX);
    struct ckpt_text *const segment = ckpt_arena_array(&it->c->arena, n, sizeof *segment);
    struct ckpt_path path;
    if (!segment)
        return fail_memory(it);
    for (size_t i = 0, at = 0; i < n; i++) {
        const char *const dot = memchr(name.s + at, '.', name.n - at);
        const size_t end = dot ? (size_t)(dot - name.s) : name.n;
        segment[i] = ckpt_text_copy(&it->c->arena, name.s + at, end - at);
        if (!segment[i].s)
            return fail_memory(it);
        at = end + 1;
    }
    return ckpt_orbax_path(it, segment, (uint32_t)n, &path) ? ckpt_orbax_add_array(it, path, name)
                                                            : fail_memory(it);
}

static int read_by_names(struct ckpt_orbax_item *it) {
    size_t found = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < it->store.n; i++) {
        const struct ckpt_text key = it->store.entries[i].key;
        const char *const slash = memrchr(key.s, '/', key.n);
        int version;
        if (!slash || !ckpt_zarr_is_metadata(key, &version))
            continue;
        const struct ckpt_text name = ckpt_text_copy(&it->c->arena, key.s, (size_t)(slash - key.s));
        rc = name.s ? add_named(it, name) : fail_memory(it);
        found++;
    }
    if (rc == 0 && found == 0)
        return ckpt_fail(it->err, -EINVAL,
                         "no " METADATA " in it, and no array in its store: an incomplete "
                         "download?");
    if (rc == 0 && ckpt_checkpoint_warn(it->c,
                                        "%s%sno " METADATA " in it: keys are taken from the names "
                                        "of the arrays, where a dot in a key can't be told from a "
                                        "folder",
                                        it->name ? it->name : "", it->name ? ": " : ""))
        return fail_memory(it);
    return rc;
}

/* --- the store -------------------------------------------------------------------------------- */

/* Adds what a process wrote and no other before it did. */
static int merge(struct ckpt_orbax_item *it, const struct ckpt_kvstore *part) {
    const size_t before = it->store.n;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < part->n; i++) {
        const struct ckpt_kvstore sorted = {.entries = it->store.entries, .n = before};
        if (!ckpt_kvstore_get(&sorted, part->entries[i].key))
            rc =
                ckpt_kvstore_add(&it->store, part->entries[i].key, part->entries[i].value, it->err);
    }
    return rc ? rc : ckpt_kvstore_sort(&it->store, it->err);
}

static int open_process(struct ckpt_orbax_item *it, const char *name) {
    CKPT_AUTO(kvstore) struct ckpt_kvstore part = {.arena = &it->c->arena};
    const char *const path = ckpt_arena_printf(&it->c->arena, "%s/%s", it->directory, name);
    if (!path)
        return fail_memory(it);
    if (!ckpt_ocdbt_is(path))
        return 0;
    int rc = ckpt_ocdbt_open(&part, path, it->err);
    if (rc == 0)
        rc = merge(it, &part);
    return rc ? ckpt_fail_in(it->err, "%s", name) : 0;
}

/* What the processes wrote, where their databases were never merged. */
static int open_unmerged(struct ckpt_orbax_item *it) {
    if (!it->options->keep_going)
        return ckpt_fail(it->err, -EINVAL,
                         "saving it was never finished: there is no manifest.ocdbt, only what each "
                         "process wrote (" PROCESS "*); -o keep_going shows what can be read of "
                         "that");
    CKPT_AUTO(dir) DIR *d = opendir(it->directory);
    int rc = 0;
    for (const struct dirent *e; rc == 0 && d && (e = readdir(d));)
        if (strncmp(e->d_name, PROCESS, strlen(PROCESS)) == 0)
            rc = open_process(it, e->d_name);
    it->is_database = true;
    if (rc == 0 && ckpt_checkpoint_warn(it->c, "saving it was never finished: what each process "
                                               "wrote is read together"))
        rc = fail_memory(it);
    return rc;
}

static int open_store(struct ckpt_orbax_item *it) {
    it->store.arena = &it->c->arena;
    it->is_database = ckpt_ocdbt_is(it->directory);
    if (it->is_database)
        return ckpt_ocdbt_open(&it->store, it->directory, it->err);
    return has_folder(it->directory, PROCESS)
               ? open_unmerged(it)
               : ckpt_kvstore_scan(&it->store, it->directory, it->err);
}

int ckpt_orbax_read_item(struct ckpt_checkpoint *c, const struct ckpt_open_options *options,
                         const char *directory, const char *name, struct ckpt_err *err) {
    CKPT_AUTO(item)
    struct ckpt_orbax_item it = {
        .c = c, .options = options, .directory = directory, .name = name, .err = err};
    struct ckpt_orbax_metadata m;
    bool is_described = false;
    int rc = open_store(&it);
    c->arena.limit = CKPT_LIMIT_MEMORY - it.store.n * sizeof *it.store.entries; /* beside it */
    if (rc == 0)
        rc = read_metadata(&it, &m, &is_described);
    if (rc)
        return rc;
    if (is_described)
        return read_described(&it, &m);
    return ckpt_flax_is(directory, "checkpoint") ? ckpt_flax_read(&it, directory, "checkpoint")
                                                 : read_by_names(&it);
}
