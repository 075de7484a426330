#ifndef CKPT_VERIFY_LANES_H
#define CKPT_VERIFY_LANES_H
/* A dense array as vectors along one dimension, its lanes: element k of lane i is at start + k
 * step. */
#include "verify/op.h"

struct ckpt_lanes {
    int64_t count, width, step;
};

struct ckpt_lanes ckpt_lanes_of(const struct ckpt_array *a, uint32_t dim);
/* Index of the first element of lane i. */
int64_t ckpt_lanes_start(const struct ckpt_lanes *l, int64_t i);

#endif
