#ifndef CKPT_FS_FUSE_MOUNT_H
#define CKPT_FS_FUSE_MOUNT_H
/* Mounting a session and serving it. The header is free of libfuse. */
#include "fs/session.h"

struct ckpt_mount;

/* Mounts; nothing is served yet. absolute: the checked mount point, which must outlive the mount;
 * source: what /proc/mounts shows unless -o fsname= says otherwise. */
int ckpt_mount_new(struct ckpt_session *s, const char *source, const char *absolute,
                   struct ckpt_mount **out, struct ckpt_err *err) CKPT_CHECKED;
/* Starts the thread that minds the mount: it calls serving(arg) once the mount answers, then waits
 * for signals, which are blocked in all other threads from now on. */
int ckpt_mount_start(struct ckpt_mount *m, void (*serving)(void *arg), void *arg,
                     struct ckpt_err *err) CKPT_CHECKED;
/* Serves until unmounted or told to end. 0 or negative errno. */
int ckpt_mount_serve(struct ckpt_mount *m, struct ckpt_err *err) CKPT_CHECKED;
/* Unmounts unless that has happened already, and joins the thread. */
void ckpt_mount_end(struct ckpt_mount *m);
void ckpt_mount_free(struct ckpt_mount *m); /* ends it first; NULL is fine */

static inline void ckpt_auto_mount(struct ckpt_mount **m) {
    ckpt_mount_free(*m);
}

#endif
