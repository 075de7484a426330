/*
 * The levels of an Orbax checkpoint. Which one a folder is shows in what is in it:
 *
 *     item    a manifest.ocdbt, _METADATA, arrays...    (ckpt_orbax_is_item)
 *     step    _CHECKPOINT_METADATA, or folders that are items and not all named as steps are
 *     run     folders named as steps are, which are items or hold items; or files of flax named so
 *
 * Of a run the newest step is shown that was committed. Nothing is ever taken from a folder with
 * the name of a temporary one.
 */
#include "formats/orbax.h"

#include <ctype.h>
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

#define TEMPORARY ".orbax-checkpoint-tmp"
#define COMMITTED "_CHECKPOINT_METADATA"
#define DIGITS_MAX 18 /* of a step's number */

/* --- names in a folder ------------------------------------------------------------------------ */

struct names {
    char **name; /* sorted */
    size_t n, cap;
};

static void names_fini(struct names *l) {
    for (size_t i = 0; i < l->n; i++)
        free(l->name[i]);
    free(l->name);
    *l = (struct names){0};
}
CKPT_DEFINE_AUTO(names, struct names, names_fini)

static bool is_kind(const char *directory, const char *name, mode_t kind) {
    CKPT_AUTO(free) char *path = ckpt_directory_path(directory, name);
    struct stat st;
    return path && stat(path, &st) == 0 && (st.st_mode & S_IFMT) == kind;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Folders (S_IFDIR) or files (S_IFREG) in it. False: out of memory. */
static bool list(struct names *l, const char *directory, mode_t kind) {
    CKPT_AUTO(dir) DIR *d = opendir(directory);
    for (const struct dirent *e; d && l->n < CKPT_LIMIT_ORBAX_ITEMS && (e = readdir(d));) {
        if (e->d_name[0] == '.' || !is_kind(directory, e->d_name, kind))
            continue;
        char *const copy = strdup(e->d_name);
        if (!copy || !ckpt_array_grow(&l->name, l->n, &l->cap, sizeof *l->name)) {
            free(copy);
            return false;
        }
        l->name[l->n++] = copy;
    }
    if (l->n > 1)
        qsort(l->name, l->n, sizeof *l->name, by_name);
    return true;
}

static bool is_temporary(const char *name) {
    return strstr(name, TEMPORARY) != NULL;
}

/* "20", "ckpt_00000005": the number that it ends with, alone or behind "_". */
static bool take_step(const char *name, uint64_t *step) {
    const size_t n = strlen(name);
    size_t at = n;
    while (at > 0 && isdigit((unsigned char)name[at - 1]))
        at--;
    if (at == n || n - at > DIGITS_MAX || (at > 0 && name[at - 1] != '_') || is_temporary(name))
        return false;
    *step = strtoull(name + at, NULL, 10);
    return true;
}

/* Keeps only the names for which keep() is true. */
static void filter(struct names *l, const char *directory,
                   bool (*keep)(const char *directory, const char *name)) {
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        if (keep(directory, l->name[i]))
            l->name[n++] = l->name[i];
        else
            free(l->name[i]);
    l->n = n;
}

static bool is_item(const char *directory, const char *name) {
    CKPT_AUTO(free) char *path = ckpt_directory_path(directory, name);
    return path && !is_temporary(name) && ckpt_orbax_is_item(path);
}

static bool list_items(struct names *l, const char *directory) {
    const bool ok = list(l, directory, S_IFDIR);
    filter(l, directory, is_item);
    return ok;
}

static bool is_step(const char *directory, const char *name) {
    CKPT_AUTO(free) char *path = ckpt_directory_path(directory, name);
    CKPT_AUTO(names) struct names items = {0};
    uint64_t step;
    if (!path || !take_step(name, &step))
        return false;
    return ckpt_orbax_is_item(path) || (list_items(&items, path) && items.n > 0);
}

static bool is_unfinished_step(const char *directory, const char *name) {
    (void)directory;
    return is_temporary(name);
}

static bool is_flax_step(const char *directory, const char *name) {
    uint64_t step;
    return take_step(name, &step) && ckpt_flax_is(directory, name);
}

/* --- which level ------------------------------------------------------------------------------ */

enum level { NOT_ORBAX, ITEM, STEP, RUN, FLAX_RUN, UNFINISHED_RUN };

static bool all_are_steps(const struct names *l) {
    uint64_t step;
    for (size_t i = 0; i < l->n; i++)
        if (!take_step(l->name[i], &step))
            return false;
    return true;
}

/* `found` gets the names that make it that level. */
static enum level level_of(const char *directory, struct names *found) {
    if (ckpt_orbax_is_item(directory))
        return ITEM;
    if (list_items(found, directory) && found->n > 0 &&
        (is_kind(directory, COMMITTED, S_IFREG) || !all_are_steps(found)))
        return STEP;
    names_fini(found);
    if (list(found, directory, S_IFDIR)) {
        filter(found, directory, is_step);
        if (found->n > 0)
            return RUN;
    }
    names_fini(found);
    if (list(found, directory, S_IFREG)) {
        filter(found, directory, is_flax_step);
        if (found->n > 0)
            return FLAX_RUN;
    }
    names_fini(found);
    if (list(found, directory, S_IFDIR)) {
        filter(found, directory, is_unfinished_step);
        if (found->n > 0)
            return UNFINISHED_RUN;
    }
    return NOT_ORBAX;
}

/* --- whether it was committed ----------------------------------------------------------------- */

static bool is_unfinished(const char *directory) {
    CKPT_AUTO(arena) struct ckpt_arena scratch = {0};
    struct ckpt_text json;
    const struct ckpt_store_file *const f = ckpt_store_file_note(&scratch, directory, COMMITTED);
    if (!f || f->error)
        return false;
    const struct ckpt_kv kv = {CKPT_TEXT(COMMITTED), {.file = f, .length = f->size}};
    return ckpt_kvstore_read(&kv, CKPT_LIMIT_ORBAX_METADATA, "", &scratch, &json, NULL) == 0 &&
           ckpt_orbax_is_unfinished(json.s, json.n);
}

/* --- reading ---------------------------------------------------------------------------------- */

struct reader {
    struct ckpt_checkpoint *c;
    const struct ckpt_open_options *options;
    struct ckpt_err *err;
};

static int fail_memory(const struct reader *r) {
    return ckpt_fail_memory(r->err, "reading an Orbax checkpoint");
}

static int check_committed(const struct reader *r, const char *directory) {
    const char *const slash = strrchr(directory, '/');
    const bool is_named = slash && is_temporary(slash + 1);
    if (!is_named && !is_unfinished(directory))
        return 0;
    if (!r->options->keep_going)
        return ckpt_fail(r->err, -EINVAL,
                         "saving it was never finished: %s; -o keep_going shows what can be read",
                         is_named ? "it has the name of a temporary folder"
                                  : "its " COMMITTED " has no time of a commit");
    return ckpt_checkpoint_warn(r->c, "saving it was never finished") ? fail_memory(r) : 0;
}

/* Files and folders in a step or an item that are Orbax' own. */
static bool is_internal(const char *name) {
    static const char *const names[] = {
        COMMITTED,         "_METADATA",  "_sharding",          "_strings.json",
        "array_metadatas", "checkpoint", "commit_success.txt", "d",
        "manifest.ocdbt",  "ocdbt_data", "ocdbt_meta",         "orbax.checkpoint"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strncmp(name, "ocdbt.process_", 14) == 0 || strncmp(name, "manifest.", 9) == 0 ||
           is_temporary(name);
}

/* What else is in the folder is shown as it is: all but Orbax' own files and the items. */
static int show_others(const struct reader *r, const char *directory, const struct names *items) {
    CKPT_AUTO(names) struct names all = {0};
    struct ckpt_checkpoint *const c = r->c;
    if (!list(&all, directory, S_IFDIR) || !list(&all, directory, S_IFREG))
        return fail_memory(r);
    c->weight_files = ckpt_arena_array(&c->arena, all.n + 1, sizeof *c->weight_files);
    c->directory = ckpt_arena_copy(&c->arena, directory, strlen(directory));
    if (!c->weight_files || !c->directory)
        return fail_memory(r);
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) {
        bool hidden = is_internal(all.name[i]);
        for (size_t k = 0; !hidden && k < items->n; k++)
            hidden = strcmp(items->name[k], all.name[i]) == 0;
        if (hidden &&
            !(c->weight_files[n++] = ckpt_arena_copy(&c->arena, all.name[i], strlen(all.name[i]))))
            return fail_memory(r);
    }
    return 0;
}

/* The file whose change tells that the item was saved anew. */
static int keep_file(const struct reader *r, const char *directory) {
    static const char *const names[] = {"manifest.ocdbt", "_METADATA"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct ckpt_file *f = NULL;
        if (ckpt_directory_open(directory, names[i], &f, NULL) == 0)
            return ckpt_checkpoint_add_file(r->c, f) ? fail_memory(r) : 0;
    }
    return 0;
}

static int read_item(const struct reader *r, const char *directory, const char *name) {
    const int rc = ckpt_orbax_read_item(r->c, r->options, directory, name, r->err);
    return rc ? rc : keep_file(r, directory);
}

static int read_lone_item(const struct reader *r, const char *directory) {
    const struct names none = {0};
    int rc = check_committed(r, directory);
    if (rc == 0)
        rc = read_item(r, directory, NULL);
    /* Where arrays are folders, everything in it is the store. */
    return rc == 0 && ckpt_ocdbt_is(directory) ? show_others(r, directory, &none) : rc;
}

static int read_step(const struct reader *r, const char *directory, const struct names *items) {
    int rc = check_committed(r, directory);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        const char *const path =
            ckpt_arena_printf(&r->c->arena, "%s/%s", directory, items->name[i]);
        const char *const name =
            ckpt_arena_copy(&r->c->arena, items->name[i], strlen(items->name[i]));
        if (!path || !name)
            return fail_memory(r);
        rc = read_item(r, path, items->n > 1 ? name : NULL);
        rc = rc ? ckpt_fail_in(r->err, "item \"%s\"", name) : 0;
    }
    return rc ? rc : show_others(r, directory, items);
}

static int read_directory_at(const struct reader *r, const char *directory);

/* The newest step first. */
static int by_step(const void *a, const void *b) {
    uint64_t x = 0, y = 0;
    take_step(*(char *const *)a, &x);
    take_step(*(char *const *)b, &y);
    return (x < y) - (x > y);
}

/* Which step is shown, and what else there is. */
static int say_which(const struct reader *r, const struct names *steps, size_t chosen,
                     const char *directory) {
    CKPT_AUTO(names) struct names all = {0};
    CKPT_AUTO(str) struct ckpt_str left = {0};
    const char *const none = steps->n == 1 ? "the only one" : "the newest of";
    if (!list(&all, directory, S_IFDIR))
        return fail_memory(r);
    for (size_t i = 0; i < chosen; i++)
        ckpt_str_printf(&left, "%s%s", left.n ? ", " : "", steps->name[i]);
    for (size_t i = 0; i < all.n; i++)
        if (is_temporary(all.name[i]))
            ckpt_str_printf(&left, "%s%s", left.n ? ", " : "", all.name[i]);
    CKPT_AUTO(str) struct ckpt_str text = {0};
    ckpt_str_printf(&text, "step %s is shown, %s", steps->name[chosen], none);
    if (steps->n > 1)
        ckpt_str_printf(&text, " %zu", steps->n);
    if (left.n)
        ckpt_str_printf(&text, "; never committed: %s", left.s);
    return left.failed || text.failed || ckpt_checkpoint_warn(r->c, "%s", text.s) ? fail_memory(r)
                                                                                  : 0;
}

static int read_run(const struct reader *r, const char *directory, struct names *steps) {
    size_t chosen = 0;
    qsort(steps->name, steps->n, sizeof *steps->name, by_step);
    for (; chosen < steps->n; chosen++) {
        CKPT_AUTO(free) char *path = ckpt_directory_path(directory, steps->name[chosen]);
        if (!path)
            return fail_memory(r);
        if (!is_unfinished(path))
            break;
    }
    if (chosen == steps->n)
        return ckpt_fail(r->err, -EINVAL, "none of its %zu steps was ever committed", steps->n);
    const char *const path =
        ckpt_arena_printf(&r->c->arena, "%s/%s", directory, steps->name[chosen]);
    int rc = path ? say_which(r, steps, chosen, directory) : fail_memory(r);
    if (rc == 0)
        rc = read_directory_at(r, path);
    return rc ? ckpt_fail_in(r->err, "step %s", steps->name[chosen]) : 0;
}

static int fail_unfinished_run(const struct reader *r, const struct names *steps) {
    return ckpt_fail(r->err, -EINVAL,
                     "saving it was never finished: there are only temporary folders, the last %s; "
                     "naming one, with -o keep_going, shows what can be read",
                     steps->name[steps->n - 1]);
}

static int read_flax_run(const struct reader *r, const char *directory, struct names *steps) {
    struct ckpt_orbax_item it = {
        .c = r->c, .options = r->options, .directory = directory, .err = r->err};
    qsort(steps->name, steps->n, sizeof *steps->name, by_step);
    const char *const name = ckpt_arena_copy(&r->c->arena, steps->name[0], strlen(steps->name[0]));
    if (!name)
        return fail_memory(r);
    int rc = say_which(r, steps, 0, directory);
    if (rc == 0)
        rc = ckpt_flax_read(&it, directory, name);
    return rc ? rc : show_others(r, directory, steps);
}

static int read_directory_at(const struct reader *r, const char *directory) {
    CKPT_AUTO(names) struct names found = {0};
    switch (level_of(directory, &found)) {
    case ITEM:
        return read_lone_item(r, directory);
    case STEP:
        return read_step(r, directory, &found);
    case RUN:
        return read_run(r, directory, &found);
    case FLAX_RUN:
        return read_flax_run(r, directory, &found);
    case UNFINISHED_RUN:
        return fail_unfinished_run(r, &found);
    case NOT_ORBAX:
        break;
    }
    return ckpt_fail(r->err, -EINVAL, "not an Orbax checkpoint");
}

/* --- the format ------------------------------------------------------------------------------- */

static bool detect(const char *source, const struct ckpt_file *file) {
    CKPT_AUTO(names) struct names found = {0};
    (void)file;
    return level_of(source, &found) != NOT_ORBAX;
}

static int read_directory(struct ckpt_checkpoint *c, const char *source,
                          const struct ckpt_open_options *options, struct ckpt_err *err) {
    struct ckpt_err unasked = {0}; /* an array's failure may become its reason */
    const struct reader r = {c, options, err ? err : &unasked};
    CKPT_AUTO(free) char *resolved = realpath(source, NULL);
    const char *const directory =
        resolved ? ckpt_arena_copy(&c->arena, resolved, strlen(resolved)) : NULL;
    if (!directory)
        return resolved ? fail_memory(&r)
                        : ckpt_fail(r.err, -errno, "cannot find it: %s", strerror(errno));
    c->format = ckpt_format_orbax.name;
    c->arena.limit = CKPT_LIMIT_MEMORY;
    return ckpt_checkpoint_end_limit(c, read_directory_at(&r, directory), r.err);
}

const struct ckpt_format ckpt_format_orbax = {"orbax", true, detect, read_directory};
