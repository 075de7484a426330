/* A plain file of the source directory, opened and mapped by its first reader. */
#include "fs/plain.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct ckpt_plain *ckpt_plain_new(struct ckpt_plain **list, struct ckpt_arena *a, const char *path,
                                  const struct stat *st) {
    struct ckpt_plain *p = ckpt_arena_alloc(a, sizeof *p);
    if (!p)
        return NULL;
    p->path = ckpt_arena_copy(a, path, strlen(path));
    p->size = (uint64_t)st->st_size;
    p->mtime = st->st_mtim;
    p->dev = st->st_dev;
    p->ino = st->st_ino;
    pthread_mutex_init(&p->mu, NULL);
    if (!p->path)
        return NULL;
    p->next = *list;
    *list = p;
    return p;
}

void ckpt_plain_close_list(struct ckpt_plain *list) {
    for (struct ckpt_plain *p = list; p; p = p->next) {
        ckpt_file_close(p->file);
        pthread_mutex_destroy(&p->mu);
    }
}

static bool same(const struct ckpt_plain *p, const struct ckpt_file *f) {
    return f->dev == p->dev && f->ino == p->ino && f->size == p->size &&
           f->mtime.tv_sec == p->mtime.tv_sec && f->mtime.tv_nsec == p->mtime.tv_nsec &&
           !ckpt_file_changed(f);
}

static int fail_changed(const struct ckpt_plain *p, struct ckpt_err *err) {
    return ckpt_fail(err, -ESTALE, "%s has changed since the mount", p->path);
}

static int open_locked(struct ckpt_plain *p, struct ckpt_err *err) {
    if (!p->file) {
        const int rc = ckpt_file_open(p->path, &p->file, err);
        if (rc < 0)
            return rc == -ENOENT ? ckpt_fail(err, -ESTALE, "%s is gone", p->path) : rc;
    }
    if (same(p, p->file)) {
        p->readers++;
        return 0;
    }
    if (p->readers == 0) {
        ckpt_file_close(p->file);
        p->file = NULL;
    }
    return fail_changed(p, err);
}

int ckpt_plain_check(const struct ckpt_plain *p, struct ckpt_err *err) {
    return ckpt_file_changed(p->file) ? fail_changed(p, err) : 0;
}

int ckpt_plain_open(struct ckpt_plain *p, struct ckpt_err *err) {
    pthread_mutex_lock(&p->mu);
    const int rc = open_locked(p, err);
    pthread_mutex_unlock(&p->mu);
    return rc;
}

void ckpt_plain_hold(struct ckpt_plain *p) {
    pthread_mutex_lock(&p->mu);
    p->readers++;
    pthread_mutex_unlock(&p->mu);
}

void ckpt_plain_close(struct ckpt_plain *p) {
    pthread_mutex_lock(&p->mu);
    if (--p->readers == 0) {
        ckpt_file_close(p->file);
        p->file = NULL;
    }
    pthread_mutex_unlock(&p->mu);
}
