#include "formats/kvstore.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "formats/limits.h"

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading the names of arrays");
}

int ckpt_kvstore_add(struct ckpt_kvstore *s, struct ckpt_text key, struct ckpt_stored value,
                     struct ckpt_err *err) {
    if (s->n >= CKPT_LIMIT_KV_KEYS)
        return ckpt_fail(err, -E2BIG, "more than %u keys", CKPT_LIMIT_KV_KEYS);
    s->key_bytes += key.n;
    if (s->key_bytes > CKPT_LIMIT_KV_KEY_BYTES)
        return ckpt_fail(err, -E2BIG, "its keys have more than %u bytes", CKPT_LIMIT_KV_KEY_BYTES);
    const struct ckpt_text copy = ckpt_text_copy(s->arena, key.s, key.n);
    if (!copy.s || !ckpt_array_grow(&s->entries, s->n, &s->cap, sizeof *s->entries))
        return fail_memory(err);
    s->entries[s->n++] = (struct ckpt_kv){copy, value};
    return 0;
}

static int compare(const void *a, const void *b) {
    return ckpt_text_cmp(((const struct ckpt_kv *)a)->key, ((const struct ckpt_kv *)b)->key);
}

int ckpt_kvstore_sort(struct ckpt_kvstore *s, struct ckpt_err *err) {
    if (s->n > 1)
        qsort(s->entries, s->n, sizeof *s->entries, compare);
    for (size_t i = 1; i < s->n; i++)
        if (compare(&s->entries[i - 1], &s->entries[i]) == 0)
            return ckpt_fail(err, -EINVAL, "the key \"%.*s\" is there twice",
                             CKPT_TEXT_ARGS(s->entries[i].key));
    return 0;
}

void ckpt_kvstore_fini(struct ckpt_kvstore *s) {
    free(s->entries);
    *s = (struct ckpt_kvstore){0};
}

size_t ckpt_kvstore_from(const struct ckpt_kvstore *s, struct ckpt_text key) {
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        const size_t middle = lo + (hi - lo) / 2;
        if (ckpt_text_cmp(s->entries[middle].key, key) < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

const struct ckpt_kv *ckpt_kvstore_get(const struct ckpt_kvstore *s, struct ckpt_text key) {
    const size_t at = ckpt_kvstore_from(s, key);
    return at < s->n && ckpt_text_eq(s->entries[at].key, key) ? &s->entries[at] : NULL;
}

int ckpt_kvstore_read(const struct ckpt_kv *kv, uint64_t most, struct ckpt_arena *a,
                      struct ckpt_text *out, struct ckpt_err *err) {
    if (kv->value.length > most)
        return ckpt_fail(err, -E2BIG, "%" PRIu64 " bytes, the limit is %" PRIu64, kv->value.length,
                         most);
    int rc = ckpt_stored_check(&kv->value, err);
    if (rc)
        return rc;
    char *const text = ckpt_arena_alloc(a, (size_t)kv->value.length + 1);
    if (!text)
        return fail_memory(err);
    rc = ckpt_stored_read(&kv->value, text, NULL, err);
    *out = (struct ckpt_text){text, (size_t)kv->value.length};
    return rc;
}

/* --- directories ------------------------------------------------------------------------------ */

static void close_dir(DIR **d) {
    if (*d)
        closedir(*d);
}
#define ckpt_auto_dir close_dir

struct scan {
    struct ckpt_kvstore *store;
    const char *root;
    struct ckpt_err *err;
};

static int scan_folder(struct scan *s, const char *below, unsigned depth);

/* What it leads to says whether it is a file; a link to a folder is passed over, since it may lead
 * back. */
static int scan_entry(struct scan *s, const char *name, unsigned depth) {
    CKPT_AUTO(free) char *path = NULL;
    struct stat st;
    if (asprintf(&path, "%s/%s", s->root, name) < 0)
        return fail_memory(s->err);
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return scan_folder(s, name, depth + 1);
    if (stat(path, &st) || !S_ISREG(st.st_mode))
        return 0;
    const struct ckpt_store_file *const f = ckpt_store_file_note(s->store->arena, s->root, name);
    if (!f)
        return fail_memory(s->err);
    return ckpt_kvstore_add(s->store, ckpt_text_of(f->name),
                            (struct ckpt_stored){.file = f, .length = f->size}, s->err);
}

static int scan_folder(struct scan *s, const char *below, unsigned depth) {
    CKPT_AUTO(free) char *path = NULL;
    if (depth > CKPT_LIMIT_KV_FOLDERS)
        return ckpt_fail(s->err, -E2BIG, "folders are nested deeper than %u",
                         CKPT_LIMIT_KV_FOLDERS);
    if (asprintf(&path, "%s/%s", s->root, below) < 0)
        return fail_memory(s->err);
    CKPT_AUTO(dir) DIR *d = opendir(path);
    if (!d)
        return ckpt_fail(s->err, -errno, "%s: cannot list the folder: %s", below, strerror(errno));
    int rc = 0;
    for (const struct dirent *e; rc == 0 && (e = readdir(d));) {
        CKPT_AUTO(free) char *name = NULL;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (asprintf(&name, "%s%s%s", below, *below ? "/" : "", e->d_name) < 0)
            return fail_memory(s->err);
        rc = scan_entry(s, name, depth);
    }
    return rc;
}

int ckpt_kvstore_scan(struct ckpt_kvstore *s, const char *directory, struct ckpt_err *err) {
    struct scan scan = {s, directory, err};
    const int rc = scan_folder(&scan, "", 0);
    return rc ? rc : ckpt_kvstore_sort(s, err);
}
