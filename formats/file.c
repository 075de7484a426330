#include "formats/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/guard.h"

static int fail_open(struct ckpt_err *err, int code) {
    switch (code) {
    case ENOENT:
        return ckpt_fail(err, -code, "no such file or directory");
    case EACCES:
        return ckpt_fail(err, -code,
                         "permission denied: the mounting user must be able to read it");
    case ENXIO:
        return ckpt_fail(err, -code,
                         "not a regular file (a socket): copy its content to a file first");
    default:
        return ckpt_fail(err, -code, "cannot open: %s", strerror(code));
    }
}

static int check_kind(const struct stat *st, struct ckpt_err *err) {
    if (S_ISREG(st->st_mode))
        return 0;
    if (S_ISDIR(st->st_mode))
        return ckpt_fail(err, -EISDIR, "is a directory, expected a file");
    return ckpt_fail(err, -EINVAL, "not a regular file (%s): copy its content to a file first",
                     S_ISFIFO(st->st_mode) ? "a pipe" : "a device");
}

/* Maps the open file and registers the mapping with the guard. */
static int map(struct ckpt_file *f, struct ckpt_err *err) {
    if (f->size == 0)
        return 0;
    if (f->size > SIZE_MAX)
        return ckpt_fail(err, -EFBIG, "too large for this machine's address space");
    void *p = mmap(NULL, (size_t)f->size, PROT_READ, MAP_SHARED, f->fd, 0);
    if (p == MAP_FAILED)
        return ckpt_fail(err, -errno, "cannot map: %s", strerror(errno));
    f->data = p;
    const int rc = ckpt_guard_add(p, (size_t)f->size);
    return rc ? ckpt_fail(err, rc, "more than %d source files are open", CKPT_GUARD_MAPPINGS) : 0;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void remember_stat(struct ckpt_file *f, const struct stat *st) {
    f->size = (uint64_t)st->st_size;
    f->mtime = st->st_mtim;
    f->dev = st->st_dev;
    f->ino = st->st_ino;
}

/* The path is resolved for reopening; the name stays the one that was asked for, since in a
 * download cache the file behind a symbolic link is named by its hash. */
static int remember_names(struct ckpt_file *f, const char *path, struct ckpt_err *err) {
    f->path = realpath(path, NULL);
    if (!f->path)
        return fail_open(err, errno);
    f->name = strdup(base_name(path));
    return f->name ? 0 : ckpt_fail_memory(err, "opening a file");
}

static void auto_close(struct ckpt_file **f) {
    ckpt_file_close(*f);
}
#define ckpt_auto_ckpt_file auto_close

int ckpt_file_open(const char *path, struct ckpt_file **out, struct ckpt_err *err) {
    CKPT_AUTO(ckpt_file) struct ckpt_file *f = calloc(1, sizeof *f);
    if (!f)
        return ckpt_fail_memory(err, "opening a file");
    /* NONBLOCK: opening a pipe must not wait for its writer. */
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f->fd < 0)
        return fail_open(err, errno);
    struct stat st;
    if (fstat(f->fd, &st))
        return fail_open(err, errno);
    remember_stat(f, &st);
    int rc = check_kind(&st, err);
    if (!rc)
        rc = remember_names(f, path, err);
    if (!rc)
        rc = map(f, err);
    if (rc)
        return rc;
    *out = CKPT_STEAL(f);
    return 0;
}

int ckpt_file_read(const struct ckpt_file *f, uint64_t offset, void *out, size_t n,
                   struct ckpt_err *err) {
    for (size_t done = 0; done < n;) {
        const ssize_t k = pread(f->fd, (char *)out + done, n - done, (off_t)(offset + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return ckpt_fail(err, -errno, "cannot read: %s", strerror(errno));
        if (k == 0)
            return ckpt_fail(err, -EIO, "ends while being read, at byte %zu: it is truncated",
                             (size_t)offset + done);
        done += (size_t)k;
    }
    return 0;
}

bool ckpt_file_has(const struct ckpt_file *f, uint64_t offset, const void *bytes, size_t n) {
    uint8_t found[64];
    return n <= sizeof found && f->size >= n && offset <= f->size - n &&
           ckpt_file_read(f, offset, found, n, NULL) == 0 && memcmp(found, bytes, n) == 0;
}

bool ckpt_file_changed(const struct ckpt_file *f) {
    struct stat st;
    return fstat(f->fd, &st) != 0 || (uint64_t)st.st_size != f->size ||
           st.st_mtim.tv_sec != f->mtime.tv_sec || st.st_mtim.tv_nsec != f->mtime.tv_nsec ||
           st.st_dev != f->dev || st.st_ino != f->ino;
}

void ckpt_file_close(struct ckpt_file *f) {
    if (!f)
        return;
    if (f->data) {
        ckpt_guard_remove(f->data);
        munmap((void *)(uintptr_t)f->data, (size_t)f->size);
    }
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free((void *)(uintptr_t)f->name);
    free(f);
}
