#ifndef CKPT_FORMATS_ZARR_ARRAY_H
#define CKPT_FORMATS_ZARR_ARRAY_H
/* From a zarr array in a store to a tensor of the checkpoint. */
#include "formats/checkpoint.h"
#include "formats/zarr_known.h"

struct ckpt_zarr_source {
    struct ckpt_checkpoint *c;
    const struct ckpt_kvstore *store;
    bool is_complete; /* a chunk that is not stored is damage, not the fill value */
    struct ckpt_zarr_known *known;
};

/* Sets dtype, shape, strides, blob and swap of the tensor. `name` is that of the array: its keys
 * begin with NAME/. -ENOENT: there is no such array; -ENOTSUP: a kind that can't be served, with
 * the reason; all else is damage. */
int ckpt_zarr_tensor(const struct ckpt_zarr_source *s, struct ckpt_text name, struct ckpt_tensor *t,
                     struct ckpt_err *err) CKPT_CHECKED;

#endif
