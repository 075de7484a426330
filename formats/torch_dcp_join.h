#ifndef CKPT_FORMATS_TORCH_DCP_JOIN_H
#define CKPT_FORMATS_TORCH_DCP_JOIN_H
/*
 * A tensor that a distributed checkpoint holds in several chunks, one a rank, as one tensor: a grid
 * of chunks (chunk_grid.h), so that nothing is copied before somebody reads it.
 *
 *     FSDP: rows            tensor parallelism: columns        both
 *       rank 0                rank 0 | rank 1                    0 | 1
 *       ------                       |                          ---+---
 *       rank 1                       |                           2 | 3
 */
#include "formats/checkpoint.h"
#include "formats/store_file.h"

struct torch_chunk {
    struct ckpt_tensor tensor;   /* as it lies in its file */
    const struct ckpt_value *at; /* the sequence of offsets of its first element in the whole */
    const struct ckpt_store_file *file;
};

/* Makes `out`, whose path and key are set, of n chunks that have elements; `size` is the shape of
 * the whole, a sequence. -EINVAL: they don't make it up; -ENOTSUP: they do, but not as a grid. */
int torch_dcp_join(struct ckpt_checkpoint *c, const struct torch_chunk *chunks, size_t n,
                   const struct ckpt_value *size, struct ckpt_tensor *out,
                   struct ckpt_err *err) CKPT_CHECKED;

#endif
