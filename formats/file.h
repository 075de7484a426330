#ifndef CKPT_FORMATS_FILE_H
#define CKPT_FORMATS_FILE_H
/*
 * A source file: opened read-only once, mapped whole (MAP_SHARED), held open until the end so that
 * replacing it by rename is harmless. The mapping is registered with the SIGBUS guard. Immutable
 * after opening; any thread may read.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"

struct ckpt_file {
    int fd;
    char *path;       /* absolute, for reopening; never shown */
    const char *name; /* base name: all that is ever shown */
    uint64_t size;
    const uint8_t *data; /* NULL when size is 0 */
    struct timespec mtime;
    dev_t dev;
    ino_t ino;
};

/* Opens and maps a regular file (symbolic links are followed). -ENOENT, -EISDIR, ... */
int ckpt_file_open(const char *path, struct ckpt_file **out, struct ckpt_err *err) CKPT_CHECKED;
/* Reads n bytes at offset into memory, without touching the mapping. Past the end: -EIO,
 * "truncated". */
int ckpt_file_read(const struct ckpt_file *f, uint64_t offset, void *out, size_t n,
                   struct ckpt_err *err) CKPT_CHECKED;
/* Whether those bytes, 64 at most, are there. Not, if they can't be read. */
bool ckpt_file_has(const struct ckpt_file *f, uint64_t offset, const void *bytes, size_t n);
/* True once size, mtime, device or inode of the open file differ from what they were. Cheap. */
bool ckpt_file_changed(const struct ckpt_file *f);
void ckpt_file_close(struct ckpt_file *f); /* NULL is fine */

#endif
