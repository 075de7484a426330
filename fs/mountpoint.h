#ifndef CKPT_FS_MOUNTPOINT_H
#define CKPT_FS_MOUNTPOINT_H
/* What is said about a mount point before and after mounting. */
#include <stdbool.h>

#include "base/err.h"

/* The absolute path of a directory on which can be mounted (malloc'ed), or one sentence why not. */
int ckpt_mountpoint_check(const char *mountpoint, char **absolute,
                          struct ckpt_err *err) CKPT_CHECKED;
/* Whether a source directory stays visible. Its files are opened by name when they are read: below
 * our own mount we would ask ourselves, and wait for the answer for good. */
int ckpt_mountpoint_check_source(const char *absolute, const char *directory,
                                 struct ckpt_err *err) CKPT_CHECKED;
/* Detaches lazily: nobody new comes in, readers finish. 0 or negative errno. */
int ckpt_mountpoint_detach(const char *absolute);
/* Waits until the mount answers, then lets the kernel ask for up to 1 MiB at a time (only root may;
 * anyone else goes without). False if there is no mount to answer. */
bool ckpt_mountpoint_set_readahead(const char *absolute);

#endif
