#ifndef CKPT_FORMATS_SHARDS_H
#define CKPT_FORMATS_SHARDS_H
/* A checkpoint that lies in several files of one directory, whatever their format. */
#include "formats/checkpoint.h"

/* Fills c with the tensors that the index (a file name in the directory) lists, in its order. The
 * index is the authority: a shard that is absent and a tensor that is not in its shard are errors
 * that name them, and with keep_going are listed as unsupported. */
int ckpt_shards_read(struct ckpt_checkpoint *c, const char *directory, const char *index,
                     const struct ckpt_open_options *options, struct ckpt_err *err) CKPT_CHECKED;

#endif
