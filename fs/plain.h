#ifndef CKPT_FS_PLAIN_H
#define CKPT_FS_PLAIN_H
/* A plain file of the source directory: mapped while somebody has it open. Thread-safe. */
#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/arena.h"
#include "base/err.h"
#include "formats/file.h"

struct ckpt_plain {
    struct ckpt_plain *next; /* in the list that it was made into */
    const char *path;        /* absolute */
    uint64_t size;
    struct timespec mtime;
    dev_t dev;
    ino_t ino;
    pthread_mutex_t mu;
    unsigned readers;       /* guarded by mu */
    struct ckpt_file *file; /* guarded by mu; not NULL and immutable while readers > 0 */
};

struct stat;

/* At the head of the list. NULL when out of memory. */
struct ckpt_plain *ckpt_plain_new(struct ckpt_plain **list, struct ckpt_arena *a, const char *path,
                                  const struct stat *st);
/* When nobody reads any more: what the kernel did not say was closed, since the mount was gone by
 * then, is closed. Before the arena is freed. */
void ckpt_plain_close_list(struct ckpt_plain *list);
/* -ESTALE if the file is not the one that was there when we looked. */
int ckpt_plain_open(struct ckpt_plain *p, struct ckpt_err *err) CKPT_CHECKED;
/* The same question while it is open. */
int ckpt_plain_check(const struct ckpt_plain *p, struct ckpt_err *err) CKPT_CHECKED;
/* Once more, by who has it open: it stays mapped until he has closed it twice. */
void ckpt_plain_hold(struct ckpt_plain *p);
void ckpt_plain_close(struct ckpt_plain *p);

#endif
