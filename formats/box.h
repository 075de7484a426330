#ifndef CKPT_FORMATS_BOX_H
#define CKPT_FORMATS_BOX_H
/* Copying an n-dimensional box of elements between two layouts. Strides are in bytes. */
#include <stdint.h>

#include "formats/tensor.h"

struct ckpt_box {
    uint32_t ndim;
    uint32_t esize;
    int64_t size[CKPT_NDIM_MAX]; /* all > 0 */
    int64_t from[CKPT_NDIM_MAX], to[CKPT_NDIM_MAX];
};

void ckpt_box_copy(const struct ckpt_box *box, const uint8_t *from, uint8_t *to);

#endif
