#ifndef CKPT_VERIFY_CONVERT_H
#define CKPT_VERIFY_CONVERT_H
/* Elements to numbers, written anew here rather than taken from the read path that is checked. */
#include <stdbool.h>
#include <stdint.h>

#include "formats/dtype.h"

/* F16, BF16, F32, F64: what a forward can be computed from. */
bool ckpt_convert_is_float(enum ckpt_dtype t);
/* n little-endian elements of a float dtype to float32. */
void ckpt_convert_f32(enum ckpt_dtype t, const uint8_t *from, int64_t n, float *to);
/* n little-endian elements of BOOL or any integer dtype (U64 wraps). */
void ckpt_convert_i64(enum ckpt_dtype t, const uint8_t *from, int64_t n, int64_t *to);

#endif
