#ifndef CKPT_FORMATS_HEADER_ITEM_H
#define CKPT_FORMATS_HEADER_ITEM_H
/* A tensor of a file that is being made, as the writer of the file's header is told of it. */
#include <stdint.h>

#include "base/text.h"
#include "formats/dtype.h"

struct ckpt_header_item {
    struct ckpt_text key;
    enum ckpt_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;
    uint64_t nbytes;
    uint64_t offset; /* set by the writer: byte of the file where its data begins */
};

#endif
