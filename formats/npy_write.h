#ifndef CKPT_FORMATS_NPY_WRITE_H
#define CKPT_FORMATS_NPY_WRITE_H
/* The header of a numpy .npy file (version 1.0, C order), before a tensor's dense bytes. */
#include <stdint.h>

#include "base/err.h"
#include "base/text.h"
#include "formats/dtype.h"

/* Appends the header, padded so that the data begins at a multiple of 64. -EINVAL: numpy lacks the
 * dtype. */
int ckpt_npy_write_header(struct ckpt_str *out, enum ckpt_dtype dtype, const int64_t *shape,
                          uint32_t ndim, struct ckpt_err *err) CKPT_CHECKED;

#endif
