/*
 * The tolerance of an output by its dtype: two steps between neighbouring numbers of that dtype
 * near 1, 2^-10 and 2^-7. Rounding in another order gives one or two such steps in the networks
 * that docs/verification.md names.
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
