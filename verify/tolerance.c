/*
 * The tolerance of an output by its dtype, measured on networks of up to a dozen layers whose
 * weights, activations and outputs PyTorch has in that dtype (docs/verification.md): a few times
 * half the step between two of its numbers near 1, 2^-11 and 2^-8.
 */
#include "verify/tolerance.h"

struct ckpt_tolerance ckpt_tolerance_of(const struct ckpt_verify_options *o,
                                        enum ckpt_dtype dtype) {
    if (!o->tolerance_given && dtype == CKPT_DT_F16)
        return (struct ckpt_tolerance){2e-3, 2e-3, dtype};
    if (!o->tolerance_given && dtype == CKPT_DT_BF16)
        return (struct ckpt_tolerance){1.6e-2, 1.6e-2, dtype};
    return (struct ckpt_tolerance){o->atol, o->rtol, CKPT_DT_NONE};
}
