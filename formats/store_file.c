#include "formats/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/size.h"

struct ckpt_store_file *ckpt_store_file_noted(struct ckpt_arena *a, struct ckpt_text path,
                                              size_t name_at, const struct stat *st, int error) {
    struct ckpt_store_file *const f = ckpt_arena_alloc(a, sizeof *f);
    struct ckpt_store_mapping *const mapping = ckpt_arena_alloc(a, sizeof *mapping);
    if (!f || !mapping || !(f->path = ckpt_arena_copy(a, path.s, path.n)))
        return NULL;
    f->mapping = mapping;
    f->name = f->path + name_at;
    f->error = error ? error : S_ISREG(st->st_mode) ? 0 : EINVAL;
    if (f->error == 0) {
        f->size = (uint64_t)st->st_size;
        f->mtime = st->st_mtim;
        f->dev = st->st_dev;
        f->ino = st->st_ino;
    }
    return f;
}

struct ckpt_store_file *ckpt_store_file_note(struct ckpt_arena *a, const char *directory,
                                             const char *name) {
    CKPT_AUTO(str) struct ckpt_str path = {0};
    struct stat st;
    ckpt_str_puts(&path, directory);
    ckpt_str_puts(&path, "/");
    ckpt_str_puts(&path, name);
    if (path.failed)
        return NULL;
    const int error = stat(path.s, &st) ? errno : 0;
    return ckpt_store_file_noted(a, ckpt_str_text(&path), strlen(directory) + 1, &st, error);
}

int ckpt_store_file_check(const struct ckpt_store_file *f, uint64_t offset, uint64_t length,
                          struct ckpt_err *err) {
    uint64_t end;
    if (f->error)
        return f->error == ENOENT
                   ? ckpt_fail(err, -EINVAL, "its file %.200s is absent: an incomplete download?",
                               f->name)
                   : ckpt_fail(err, -EINVAL, "its file %.200s cannot be read: %s", f->name,
                               f->error == EINVAL ? "no regular file" : strerror(f->error));
    if (!ckpt_add_u64(offset, length, &end))
        return ckpt_fail(err, -EINVAL, "bytes %" PRIu64 " and on of %.200s: no file is as long",
                         offset, f->name);
    if (end > f->size)
        return ckpt_fail(err, -EINVAL,
                         "%" PRIu64 " of its %" PRIu64 " bytes are missing: %.200s ends at byte "
                         "%" PRIu64 ", expected %" PRIu64 " at least: an incomplete download?",
                         end - f->size < length ? end - f->size : length, length, f->name, f->size,
                         end);
    return 0;
}

static bool is_same(const struct ckpt_store_file *f, const struct stat *st) {
    return (uint64_t)st->st_size == f->size && st->st_mtim.tv_sec == f->mtime.tv_sec &&
           st->st_mtim.tv_nsec == f->mtime.tv_nsec && st->st_dev == f->dev && st->st_ino == f->ino;
}

bool ckpt_store_file_changed(const struct ckpt_store_file *f) {
    struct stat st;
    return stat(f->path, &st) != 0 || !is_same(f, &st);
}

int ckpt_store_file_check_same(const struct ckpt_store_file *f, int fd, struct ckpt_err *err) {
    struct stat st;
    if (fstat(fd, &st) || !is_same(f, &st))
        return ckpt_fail(err, -EIO, "%s has changed since the mount: unmount and mount again",
                         f->name);
    return 0;
}

int ckpt_store_file_open(const struct ckpt_store_file *f, struct ckpt_err *err) {
    CKPT_AUTO(fd) int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return ckpt_fail(err, -EIO, "%s: cannot open: %s", f->name, strerror(errno));
    const int rc = ckpt_store_file_check_same(f, fd, err);
    if (rc)
        return rc;
    const int out = fd;
    fd = -1;
    return out;
}
