#ifndef CKPT_VERIFY_TOLERANCE_H
#define CKPT_VERIFY_TOLERANCE_H
/* How near outputs must be. What a model computes in float16 or bfloat16 is rounded at each step,
 * by PyTorch in an order that nobody promises; such outputs have defaults of their own. */
#include "formats/dtype.h"
#include "verify/verify.h"

struct ckpt_tolerance {
    double atol, rtol;
    enum ckpt_dtype dtype; /* whose defaults these are, F16 or BF16; NONE: given, or those of all */
};

/* For an output of this dtype; NONE: unknown. */
struct ckpt_tolerance ckpt_tolerance_of(const struct ckpt_verify_options *o, enum ckpt_dtype dtype);

#endif
