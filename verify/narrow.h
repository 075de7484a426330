#ifndef CKPT_VERIFY_NARROW_H
#define CKPT_VERIFY_NARROW_H
/* Values as a narrower dtype holds them, kept in the wider one that arrays have. */
#include "verify/op.h"

/* Whether arrays hold it in a wider dtype: float16, bfloat16, integers of up to 32 bits. */
bool ckpt_narrow_needed(enum ckpt_dtype dtype);
/* Rounds every element of an array, where it is, to that dtype: floats to the nearest, integers cut
 * to their low bits. */
void ckpt_narrow(struct ckpt_array *a, enum ckpt_dtype dtype);
/* The dtype argument of a call, exactly as given; refused if arrays can't hold its values. */
int ckpt_narrow_argument(const struct ckpt_call *c, enum ckpt_dtype otherwise,
                         enum ckpt_dtype *dtype, struct ckpt_err *err) CKPT_CHECKED;

#endif
