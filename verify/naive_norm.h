#ifndef CKPT_VERIFY_NAIVE_NORM_H
#define CKPT_VERIFY_NAIVE_NORM_H
/*
 * g * v / ||v|| evaluated anew in float64: offsets by the naive path, norms by a compensated sum,
 * nothing taken from adapters/weight_norm.c but which tensors are v and g.
 */
#include "adapters/weight_norm.h"
#include "verify/naive.h"

struct ckpt_naive_norm {
    struct ckpt_naive v;     /* where an element of the result lies in v */
    struct ckpt_naive index; /* which norm it has, as the offset into a row of bytes */
    struct ckpt_tensor ruler;
    int64_t ruler_stride[CKPT_NDIM_MAX];
    double *scale; /* g/||v|| */
};

/* The result of operations on the weight that `of` makes. Computes the norms. -EOPNOTSUPP, -EIO,
 * -ENOMEM. A zeroed struct may be passed to fini. */
int ckpt_naive_norm_init(struct ckpt_naive_norm *n, const struct ckpt_weight_norm *of,
                         const struct ckpt_view_op *op, uint32_t nop,
                         struct ckpt_err *err) CKPT_CHECKED;
void ckpt_naive_norm_fini(struct ckpt_naive_norm *n);
#define ckpt_auto_naive_norm ckpt_naive_norm_fini

/* Elements [from, from + count) in C order, rounded to the weight's dtype. */
int ckpt_naive_norm_read(const struct ckpt_naive_norm *n, int64_t from, int64_t count, uint8_t *to,
                         struct ckpt_err *err) CKPT_CHECKED;

/* Whether a served element is as close to the expected one as rounding explains: 4 units in the
 * last place of the coarser dtype, and what a long sum of squares may lose. NaN equals NaN. */
bool ckpt_naive_norm_close(enum ckpt_dtype source, enum ckpt_dtype served, const uint8_t *expected,
                           const uint8_t *got);

#endif
