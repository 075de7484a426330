/*
 * Backing files. The two ioctls are on the mount's device, need CAP_SYS_ADMIN in the first user
 * namespace, and refuse (ELOOP) a file on a filesystem that is itself stacked, such as overlayfs.
 * <linux/fuse.h> has them since protocol 7.40 (Linux 6.9); libfuse's wrappers, since 3.17, do the
 * same.
 */
#include "fs/fuse_backing.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fs/identity.h"

struct backing_map {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};

#define BACKING_OPEN _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

void ckpt_backings_init(struct ckpt_backings *b) {
    atomic_init(&b->is_on, false);
    pthread_mutex_init(&b->mu, NULL);
}

void ckpt_backings_fini(struct ckpt_backings *b) {
    tdestroy(b->tree, free); /* the kernel has dropped its own with the mount */
    pthread_mutex_destroy(&b->mu);
}

/* The kernel's id, or a negative errno. */
static int open_backing(const struct ckpt_backings *b, int fd) {
    const struct backing_map map = {.fd = fd};
    const int id = ioctl(b->device, BACKING_OPEN, &map);
    return id > 0 ? id : id < 0 ? -errno : -EIO;
}

static void close_backing(const struct ckpt_backings *b, int32_t id) {
    const uint32_t closed = (uint32_t)id;
    (void)ioctl(b->device, BACKING_CLOSE, &closed);
}

/* Any file will do: whether we may is asked first. */
void ckpt_backings_try(struct ckpt_backings *b) {
    if (!atomic_load(&b->is_on))
        return;
    CKPT_AUTO(fd) const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const int id = open_backing(b, fd);
    if (id > 0)
        close_backing(b, id);
    if (id != -EPERM)
        return;
    ckpt_log("-o passthrough: only root may (CAP_SYS_ADMIN, in no user namespace): all files are "
             "served by the daemon");
    atomic_store(&b->is_on, false);
}

static int by_inode(const void *a, const void *b) {
    const uint64_t x = ((const struct ckpt_backing *)a)->inode;
    const uint64_t y = ((const struct ckpt_backing *)b)->inode;
    return x < y ? -1 : x > y;
}

/* The one of this inode, perhaps new; NULL when out of memory. */
static struct ckpt_backing *find_locked(struct ckpt_backings *b, uint64_t inode) {
    const struct ckpt_backing key = {.inode = inode};
    struct ckpt_backing **const found = tfind(&key, &b->tree, by_inode);
    if (found)
        return *found;
    struct ckpt_backing *const made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->inode = inode;
    if (tsearch(made, &b->tree, by_inode))
        return made;
    free(made);
    return NULL;
}

/* 0: it is left to us. */
static int32_t decide(const struct ckpt_backings *b, const struct ckpt_file *source) {
    const int id = open_backing(b, source->fd);
    if (id == -ELOOP)
        ckpt_log_once("passthrough",
                      "-o passthrough: %s lies on a stacked filesystem (overlay): it "
                      "is served by the daemon",
                      source->name);
    else if (id < 0)
        ckpt_log_once("passthrough", "-o passthrough: %s: %s: it is served by the daemon",
                      source->name, strerror(-id));
    return id > 0 ? id : 0;
}

struct ckpt_backing *ckpt_backing_get(struct ckpt_backings *b, uint64_t inode,
                                      struct ckpt_vfile *f) {
    const struct ckpt_file *source = NULL;
    struct ckpt_err err = {0};
    const int same = atomic_load(&b->is_on) ? ckpt_vfile_is_source(f, &source, &err) : 0;
    if (same == 0)
        return NULL;
    pthread_mutex_lock(&b->mu);
    struct ckpt_backing *const backing = find_locked(b, inode);
    if (backing && backing->openers++ == 0 && same > 0)
        backing->id = decide(b, source);
    pthread_mutex_unlock(&b->mu);
    return backing;
}

void ckpt_backing_put(struct ckpt_backings *b, struct ckpt_backing *backing) {
    if (!backing)
        return;
    pthread_mutex_lock(&b->mu);
    if (--backing->openers == 0) {
        if (backing->id)
            close_backing(b, backing->id);
        tdelete(backing, &b->tree, by_inode);
        free(backing);
    }
    pthread_mutex_unlock(&b->mu);
}
