#ifndef CKPT_FS_FUSE_BACKING_H
#define CKPT_FS_FUSE_BACKING_H
/*
 * -o passthrough: a file that is a source file byte for byte (fs/identity.h) is opened so that the
 * kernel reads and maps the source file itself, its *backing file*; we hear of its reads no more.
 *
 *     inode --> backing: the kernel's id of the source file, how many have it open
 *
 * The kernel wants all who have an inode open to read it in the same way, so what the first decides
 * (also: that it could not be done) holds until the last has closed. All functions may be called
 * from any thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct ckpt_vfile;

struct ckpt_backing {
    uint64_t inode;
    int32_t id;       /* 0: the kernel would not have it */
    unsigned openers; /* guarded by ckpt_backings.mu */
};

struct ckpt_backings {
    atomic_bool is_on; /* asked for, and as far as we know possible */
    int device;        /* of the mount */
    pthread_mutex_t mu;
    void *tree; /* of struct ckpt_backing, by inode; guarded by mu */
};

void ckpt_backings_init(struct ckpt_backings *b);
void ckpt_backings_fini(struct ckpt_backings *b);
/* Once the mount answers: asks the kernel whether we may. If not, the log tells, and it is off. */
void ckpt_backings_try(struct ckpt_backings *b);

/* For each open of f, which is open: NULL if its reads come to us; else a backing, to be given back
 * when it is closed. */
struct ckpt_backing *ckpt_backing_get(struct ckpt_backings *b, uint64_t inode,
                                      struct ckpt_vfile *f);
void ckpt_backing_put(struct ckpt_backings *b, struct ckpt_backing *backing); /* NULL is fine */

#endif
