/* Lanes of a dense array: those beside each other are one element apart. */
#include "verify/lanes.h"

struct ckpt_lanes ckpt_lanes_of(const struct ckpt_array *a, uint32_t dim) {
    struct ckpt_lanes l = {.count = 1, .width = a->ndim ? a->shape[dim] : 1, .step = 1};
    for (uint32_t d = 0; d < a->ndim; d++) {
        l.count *= d == dim ? 1 : a->shape[d];
        l.step *= d > dim ? a->shape[d] : 1;
    }
    return l;
}

int64_t ckpt_lanes_start(const struct ckpt_lanes *l, int64_t i) {
    return l->step ? i / l->step * l->step * l->width + i % l->step : 0;
}
