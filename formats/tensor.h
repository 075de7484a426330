#ifndef CKPT_FORMATS_TENSOR_H
#define CKPT_FORMATS_TENSOR_H
/*
 * A tensor as the checkpoint holds it: a strided view of a blob. Nothing is adapted here.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "formats/blob.h"
#include "formats/dtype.h"

#define CKPT_NDIM_MAX 64

/* One segment a container level: a state dict's dotted key is one segment, a list index its digits.
 * A bare tensor has none. */
struct ckpt_path {
    const struct ckpt_text *segment;
    uint32_t n;
    uint32_t bare; /* bit i: segment i is no string in the source but an index or another key; of
                      the first 32, for messages */
};

struct ckpt_tensor {
    struct ckpt_path path;
    struct ckpt_text key; /* the segments joined with "."; "" for a bare tensor */
    enum ckpt_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;  /* elements; sub-byte types count elements, not bytes */
    const int64_t *stride; /* elements of the storage; NULL: contiguous in C order */
    uint64_t offset;       /* byte of the blob where element 0... lies */
    struct ckpt_blob *blob;
    bool swap;      /* stored big-endian */
    bool conj;      /* torch's conjugate bit: negate imaginary parts on reading */
    bool neg;       /* torch's negative bit */
    int32_t module; /* index in the module table of the module that registered it; -1 unknown */
};

/* Elements and bytes when dense. The reader that made the tensor has checked both. */
uint64_t ckpt_tensor_count(const struct ckpt_tensor *t);
uint64_t ckpt_tensor_bytes(const struct ckpt_tensor *t);
/* Checks rank, shape, strides and offset against the blob: every reader calls it on every tensor
 * before it enters the checkpoint. -EINVAL names the tensor and both numbers. */
int ckpt_tensor_check(const struct ckpt_tensor *t, struct ckpt_err *err) CKPT_CHECKED;

#endif
