/* Plain loops, one a dtype, so that the compiler may vectorise them. */
#include "verify/convert.h"

#include <string.h>

bool ckpt_convert_is_float(enum ckpt_dtype t) {
    return ckpt_dtype_info(t)->cls == CKPT_CLASS_FLOAT;
}

static float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* Shifts exponent and mantissa into float32's places; the multiplication by 2^112 then corrects the
 * exponent's bias and makes subnormals right, too. Infinities and NaN get the full exponent. */
static float half_of(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = (uint32_t)(h & 0x7fffu) << 13;
    const float magnitude = float_of(rest) * 0x1p112f;
    uint32_t bits;
    memcpy(&bits, &magnitude, sizeof(bits));
    if ((h & 0x7c00u) == 0x7c00u)
        bits = rest | 0x7f800000u;
    return float_of(sign | bits);
}

#define EACH(type, expression)                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                              \
        type v;                                                                                    \
        memcpy(&v, from + i * (int64_t)sizeof(v), sizeof(v));                                      \
        to[i] = (expression);                                                                      \
    }                                                                                              \
    break

void ckpt_convert_f32(enum ckpt_dtype t, const uint8_t *from, int64_t n, float *to) {
    switch (t) {
    case CKPT_DT_F16:
        EACH(uint16_t, half_of(v));
    case CKPT_DT_BF16:
        EACH(uint16_t, float_of((uint32_t)v << 16));
    case CKPT_DT_F32:
        memcpy(to, from, (size_t)n * sizeof(*to));
        break;
    case CKPT_DT_F64:
        EACH(double, (float)v);
    default:
        memset(to, 0, (size_t)n * sizeof(*to));
    }
}

void ckpt_convert_i64(enum ckpt_dtype t, const uint8_t *from, int64_t n, int64_t *to) {
    switch (t) {
    case CKPT_DT_BOOL:
        EACH(uint8_t, v != 0);
    case CKPT_DT_U8:
        EACH(uint8_t, v);
    case CKPT_DT_I8:
        EACH(int8_t, v);
    case CKPT_DT_U16:
        EACH(uint16_t, v);
    case CKPT_DT_I16:
        EACH(int16_t, v);
    case CKPT_DT_U32:
        EACH(uint32_t, v);
    case CKPT_DT_I32:
        EACH(int32_t, v);
    case CKPT_DT_U64:
    case CKPT_DT_I64:
        EACH(int64_t, v);
    default:
        memset(to, 0, (size_t)n * sizeof(*to));
    }
}
