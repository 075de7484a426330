#ifndef CKPT_VERIFY_REDUCE_H
#define CKPT_VERIFY_REDUCE_H
/*
 * What operations over some dimensions share: the array as dense rows of what is to be reduced, one
 * row an element of the result.
 *
 *     x [2, 3, 4] over dimensions 0 and 2      3 rows of 8; results [3], or [1, 3, 1] if kept
 */
#include "verify/op.h"

struct ckpt_reduction {
    struct ckpt_array rows; /* dense, of the dtype that was asked for */
    int64_t count, width;
    uint32_t ndim; /* of the result */
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
};

void ckpt_reduction_fini(struct ckpt_reduction *r);
#define ckpt_auto_reduction ckpt_reduction_fini

/* Of x over the arguments "dim" (absent, and empty unless empty_is_none: all of them) and
 * "keepdim". */
int ckpt_reduction_init(const struct ckpt_call *c, const struct ckpt_array *x,
                        enum ckpt_dtype dtype, bool empty_is_none, struct ckpt_reduction *r,
                        struct ckpt_err *err) CKPT_CHECKED;
/* Row i. */
const void *ckpt_reduction_row(const struct ckpt_reduction *r, int64_t i);

#endif
