#ifndef CKPT_ADAPTERS_CAST_H
#define CKPT_ADAPTERS_CAST_H
/*
 * Casts between the float types, one element at a time: the scalar rules that the SIMD kernels must
 * equal bit for bit. To nearest even, overflow to infinity, subnormals kept. A NaN stays a NaN with
 * its sign and the top of its payload; narrowing makes it quiet, as the processor's own conversions
 * do. F64 reaches F16 and BF16 through F32 (rounding twice, as torch and burn do).
 */
#include <stdint.h>
#include <string.h>

static inline uint32_t ckpt_bits_of_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float ckpt_f32_of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float ckpt_f32_of_bf16(uint16_t h) {
    return ckpt_f32_of_bits((uint32_t)h << 16);
}

static inline uint16_t ckpt_bf16_of_f32(float f) {
    const uint32_t u = ckpt_bits_of_f32(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float ckpt_f32_of_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31,
                   mantissa = h & 0x3ff;
    if (exponent == 31)
        return ckpt_f32_of_bits(sign | (mantissa ? 0x7fc00000 : 0x7f800000) | mantissa << 13);
    if (exponent == 0)
        return ckpt_f32_of_bits(sign | ckpt_bits_of_f32((float)mantissa * 0x1p-24f));
    return ckpt_f32_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t ckpt_f16_of_f32(float f) {
    const uint32_t u = ckpt_bits_of_f32(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000) /* 65520: halfway between the largest finite one and infinity */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) /* subnormal: a float near 0.5 has the same spacing, so let it round */
        return (uint16_t)(sign | (ckpt_bits_of_f32(ckpt_f32_of_bits(a) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (a + 0xfff + (a >> 13 & 1) - (112u << 23)) >> 13);
}

#endif
