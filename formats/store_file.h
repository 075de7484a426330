#ifndef CKPT_FORMATS_STORE_FILE_H
#define CKPT_FORMATS_STORE_FILE_H
/*
 * A file of a checkpoint of many files (an array may well have a file a chunk): noted when the
 * checkpoint is opened, opened again for each read, so that neither descriptors nor mappings run
 * out; mapped only if arrays lie in it as they are. Immutable; any thread.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "base/text.h"

struct ckpt_file;

struct ckpt_store_mapping {
    const struct ckpt_file *file; /* NULL: it is not mapped */
};

struct ckpt_store_file {
    const char *path; /* absolute */
    const char *name; /* below the checkpoint's folder: all that is ever shown */
    int error;        /* errno of looking at it; 0: it is there */
    uint64_t size;
    struct timespec mtime;
    dev_t dev;
    ino_t ino;
    struct ckpt_store_mapping *mapping; /* set while the checkpoint is opened */
};

/* Looks at DIRECTORY/NAME. One that can't be had is noted, too. NULL: out of memory. */
struct ckpt_store_file *ckpt_store_file_note(struct ckpt_arena *a, const char *directory,
                                             const char *name);
/* The same for a path whose name begins at byte `name_at`, where stat has said already what is
 * there: `error` is its errno or 0. */
struct ckpt_store_file *ckpt_store_file_noted(struct ckpt_arena *a, struct ckpt_text path,
                                              size_t name_at, const struct stat *st, int error);
/* Whether `length` bytes at `offset` are in it: -EINVAL says how many are missing. */
int ckpt_store_file_check(const struct ckpt_store_file *f, uint64_t offset, uint64_t length,
                          struct ckpt_err *err) CKPT_CHECKED;
/* A descriptor, or negative: -EIO if it is not the file that was noted any more. */
int ckpt_store_file_open(const struct ckpt_store_file *f, struct ckpt_err *err) CKPT_CHECKED;
/* Whether at its path there is another file, or none, or it has been written to. */
bool ckpt_store_file_changed(const struct ckpt_store_file *f);
/* -EIO if the open file is not as it was noted: what has just been read of it is not to be used. */
int ckpt_store_file_check_same(const struct ckpt_store_file *f, int fd,
                               struct ckpt_err *err) CKPT_CHECKED;

#endif
