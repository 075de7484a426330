#ifndef CKPT_FS_WATCHER_H
#define CKPT_FS_WATCHER_H
/*
 * -o auto_unmount: a small process that outlives the daemon, however that ends, and takes away a
 * dead mount that it left.
 *
 *     daemon   holds the write end of a pipe and never writes; the kernel closes it in the end
 *     watcher  waits for that, looks whether the mount point says ENOTCONN, detaches it
 *
 * libfuse has this option, too, but there fusermount3 looks with root's eyes, which the kernel
 * refuses (EACCES) for somebody else's mount: 3.14.0 leaves the dead mounts of all users but root.
 */
#include "base/err.h"

/* Before the mount and before going to the background: then the watcher holds nothing open. */
int ckpt_watcher_start(const char *absolute, struct ckpt_err *err) CKPT_CHECKED;

#endif
