#ifndef CKPT_FS_IDENTITY_H
#define CKPT_FS_IDENTITY_H
/*
 * Whether a virtual file is a source file: the same size, and each byte at the same place. Then the
 * kernel may read the source file in its stead.
 */
#include "fs/vfile.h"

/* 1: it is *file; 0: it is none; or a negative errno if that cannot be told now. For who has f
 * open. */
int ckpt_vfile_is_source(struct ckpt_vfile *f, const struct ckpt_file **file,
                         struct ckpt_err *err) CKPT_CHECKED;

#endif
