/*
 * A directory as a key-value store. An array may well have a folder, and a file a chunk, so that
 * what is done for each counts: names are looked up in the open folder, not from the root, what
 * kind an entry is says the folder, and each file is looked at once.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "formats/kvstore.h"
#include "formats/limits.h"

struct scan {
    struct ckpt_kvstore *store;
    struct ckpt_str path; /* of what is being looked at, absolute */
    size_t root;          /* bytes of it: the directory and its slash */
    struct ckpt_err *err;
};

static void scan_fini(struct scan *s) {
    ckpt_str_fini(&s->path);
}
CKPT_DEFINE_AUTO(scan, struct scan, scan_fini)

static int fail_memory(struct scan *s) {
    return ckpt_fail_memory(s->err, "reading the names of arrays");
}

/* Not what a symbolic link to a folder leads to. */
static bool is_folder(int parent, const struct dirent *e) {
    struct stat st;
    if (e->d_type != DT_UNKNOWN)
        return e->d_type == DT_DIR;
    return fstatat(parent, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* What can't be had is added, too: whoever wants it says so. A link to a folder is passed over,
 * since it may lead back. */
static int add_file(struct scan *s, int parent, const char *name) {
    struct stat st;
    const int error = fstatat(parent, name, &st, 0) ? errno : 0;
    if (error == 0 && S_ISDIR(st.st_mode))
        return 0;
    const struct ckpt_store_file *const f =
        ckpt_store_file_noted(s->store->arena, ckpt_str_text(&s->path), s->root, &st, error);
    if (!f)
        return fail_memory(s);
    return ckpt_kvstore_add(s->store, ckpt_text_of(f->name),
                            (struct ckpt_stored){.file = f, .length = f->size}, s->err);
}

static int scan_folder(struct scan *s, int parent, const char *name, unsigned depth);

static int scan_entry(struct scan *s, int parent, const struct dirent *e, unsigned depth) {
    const size_t n = s->path.n;
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
        return 0;
    ckpt_str_puts(&s->path, e->d_name);
    if (s->path.failed)
        return fail_memory(s);
    const int rc = is_folder(parent, e) ? scan_folder(s, parent, e->d_name, depth + 1)
                                        : add_file(s, parent, e->d_name);
    ckpt_str_cut(&s->path, n);
    return rc;
}

static int fail_list(struct scan *s, int error) {
    return ckpt_fail(s->err, -error, "%s: cannot list the folder: %s",
                     s->path.n > s->root ? s->path.s + s->root : "", strerror(error));
}

static DIR *open_folder(int parent, const char *name, int flags) {
    CKPT_AUTO(fd) int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    DIR *const d = fd < 0 ? NULL : fdopendir(fd);
    if (d)
        fd = -1;
    return d;
}

static int scan_folder(struct scan *s, int parent, const char *name, unsigned depth) {
    if (depth > CKPT_LIMIT_KV_FOLDERS)
        return ckpt_fail(s->err, -E2BIG,
                         "%.200s: folders are nested deeper than %u (limit of nested folders)",
                         s->path.s + s->root, CKPT_LIMIT_KV_FOLDERS);
    CKPT_AUTO(dir) DIR *d = open_folder(parent, name, depth ? O_NOFOLLOW : 0);
    if (!d)
        return fail_list(s, errno);
    ckpt_str_puts(&s->path, "/");
    int rc = 0;
    for (const struct dirent *e; rc == 0 && (e = readdir(d));)
        rc = scan_entry(s, dirfd(d), e, depth);
    return rc;
}

int ckpt_kvstore_scan(struct ckpt_kvstore *store, const char *directory, struct ckpt_err *err) {
    CKPT_AUTO(scan)
    struct scan s = {.store = store, .root = strlen(directory) + 1, .err = err};
    ckpt_str_puts(&s.path, directory);
    const int rc = scan_folder(&s, AT_FDCWD, directory, 0);
    return rc ? rc : ckpt_kvstore_sort(store, err);
}
