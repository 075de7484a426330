#ifndef CKPT_VERIFY_AXES_H
#define CKPT_VERIFY_AXES_H
/*
 * Spatial axes: what convolutions, pooling and upsampling slide along. There are one to three of
 * them, the last dimensions of [N, C, ...]; here always three, of which absent ones, in front, have
 * size 1.
 *
 *     conv2d, x [2, 5, 32, 48]       in = {1, 32, 48}
 */
#include "verify/op.h"

struct ckpt_axes {
    uint32_t spatial; /* how many there are: 1, 2 or 3 */
    int64_t in[3];
    int64_t planes; /* N * C: all that lies in front of the axes */
    bool unbatched; /* there is no N */
};

/* The axes of x, which must have `spatial` of them behind [N, C] or [C]. */
int ckpt_axes_init(struct ckpt_axes *a, const struct ckpt_array *x, uint32_t spatial,
                   struct ckpt_err *err) CKPT_CHECKED;
/* A number an axis: one for all, a list, or, where the argument is absent or an empty list,
 * `otherwise`. Absent axes have `absent`. Each must be at least `least` and below 2^31. */
int ckpt_axes_read(const struct ckpt_call *c, uint32_t spatial, const char *name,
                   const int64_t *otherwise, int64_t absent, int64_t least, int64_t *out,
                   struct ckpt_err *err) CKPT_CHECKED;
/* Result i: of x's shape but for the axes, which have `size`. */
int ckpt_axes_result(struct ckpt_call *c, uint32_t i, enum ckpt_dtype dtype,
                     const struct ckpt_array *x, uint32_t spatial, const int64_t *size,
                     struct ckpt_err *err) CKPT_CHECKED;

#endif
