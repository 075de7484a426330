#ifndef CKPT_FS_REFUSAL_H
#define CKPT_FS_REFUSAL_H
/*
 * Why mounting failed, in a sentence that says what to do. libfuse and fusermount3 give no codes,
 * only lines on stderr: those that users meet are known to a table, others are passed on.
 */
#include "base/err.h"

/* said: a file with what they wrote; absolute: the mount point. Fails always, with -EPERM for what
 * the user may not do, -ENODEV for what the system lacks, -EBUSY for the rest. */
int ckpt_refusal_of(int said, const char *absolute, struct ckpt_err *err) CKPT_CHECKED;
/* Whether /dev/fuse can be opened. */
int ckpt_refusal_of_device(struct ckpt_err *err) CKPT_CHECKED;

#endif
