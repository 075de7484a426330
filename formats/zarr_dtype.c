/*
 * Element types and fill values of zarr. Version 2 names types as numpy does ("<f4"), version 3 as
 * torch does ("float32"); both name the small ones alike, each of which takes a byte.
 */
#include <math.h>
#include <string.h>

#include "formats/zarr.h"

static const struct {
    const char *name;
    enum ckpt_dtype dtype;
} small[] = {
    {"int4", CKPT_DT_I4},
    {"int2", CKPT_DT_I2},
    {"uint4", CKPT_DT_U4},
    {"float4_e2m1fn", CKPT_DT_F4_E2M1},
    {"float8_e3m4", CKPT_DT_F8_E3M4},
    {"float8_e4m3", CKPT_DT_F8_E4M3_IEEE},
    {"float8_e4m3b11fnuz", CKPT_DT_F8_E4M3B11FNUZ},
};

enum ckpt_dtype ckpt_zarr_dtype_v3(struct ckpt_text name) {
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        if (ckpt_text_is(name, small[i].name))
            return small[i].dtype;
    const enum ckpt_dtype t = ckpt_dtype_by_torch(name);
    const bool is_zarr = ckpt_dtype_info(t)->numpy || t == CKPT_DT_BF16 ||
                         ckpt_dtype_info(t)->cls == CKPT_CLASS_SMALL_FLOAT;
    return is_zarr ? t : CKPT_DT_NONE;
}

enum ckpt_dtype ckpt_zarr_dtype_v2(struct ckpt_text name, bool *is_big) {
    *is_big = name.n > 0 && name.s[0] == '>';
    if (name.n < 3 || !memchr("<>|", name.s[0], 3))
        return ckpt_zarr_dtype_v3(name); /* bfloat16 and the small ones */
    for (int t = CKPT_DT_NONE + 1; t < CKPT_DT_COUNT; t++) {
        const char *const numpy = ckpt_dtype_info((enum ckpt_dtype)t)->numpy;
        if (numpy && ckpt_text_is((struct ckpt_text){name.s + 1, name.n - 1}, numpy + 1))
            return (enum ckpt_dtype)t;
    }
    return CKPT_DT_NONE;
}

/* --- fill values ------------------------------------------------------------------------------ */

/* A float of so many bits of exponent and mantissa, as IEEE 754 lays it out, to the nearest, ties
 * to even. */
static uint64_t encode_float(double v, int exponent_bits, int mantissa_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint64_t sign = (uint64_t)(signbit(v) != 0) << (exponent_bits + mantissa_bits);
    const uint64_t infinity = (((uint64_t)1 << exponent_bits) - 1) << mantissa_bits;
    if (isnan(v))
        return sign | infinity | (uint64_t)1 << (mantissa_bits - 1);
    int exponent;
    const double fraction = frexp(fabs(v), &exponent); /* 0.5 <= fraction < 1, or 0 */
    if (isinf(v) || exponent - 1 > bias)
        return sign | infinity;
    if (fraction == 0)
        return sign;
    const int least = 1 - bias; /* the exponent of subnormals */
    const int e = exponent - 1 > least ? exponent - 1 : least;
    const double scaled =
        ldexp(fabs(v), mantissa_bits - e); /* the mantissa, its first bit as well */
    const uint64_t mantissa = (uint64_t)nearbyint(scaled);
    /* Adding carries a rounding up into the exponent; a subnormal has none. */
    return sign | (((uint64_t)(e + bias - 1) << mantissa_bits) + mantissa);
}

static void put_le(uint8_t *out, uint64_t v, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        out[i] = (uint8_t)(v >> (8 * i));
}

/* One component of n bytes. */
static bool put_float(uint8_t *out, enum ckpt_dtype t, double v, unsigned n) {
    switch (t) {
    case CKPT_DT_F16:
        put_le(out, encode_float(v, 5, 10), n);
        return true;
    case CKPT_DT_BF16:
        put_le(out, encode_float(v, 8, 7), n);
        return true;
    case CKPT_DT_F32:
    case CKPT_DT_C64:
        put_le(out, encode_float(v, 8, 23), n);
        return true;
    case CKPT_DT_F64:
    case CKPT_DT_C128:
        put_le(out, encode_float(v, 11, 52), n);
        return true;
    default:
        return false;
    }
}

static bool is_integer(const struct ckpt_dtype_info *d) {
    return d->cls == CKPT_CLASS_BOOL || d->cls == CKPT_CLASS_UINT || d->cls == CKPT_CLASS_INT;
}

bool ckpt_zarr_fill_bytes(const struct ckpt_zarr_fill *fill, enum ckpt_dtype t,
                          uint8_t out[static CKPT_ZARR_ELEMENT_MAX]) {
    const struct ckpt_dtype_info *const d = ckpt_dtype_info(t);
    const unsigned n = d->component_bytes;
    memset(out, 0, CKPT_ZARR_ELEMENT_MAX);
    if (fill->kind == CKPT_ZARR_FILL_ZERO)
        return true;
    if (fill->kind == CKPT_ZARR_FILL_BITS || (fill->kind == CKPT_ZARR_FILL_INT && is_integer(d))) {
        put_le(out, fill->u, n < 8 ? n : 8);
        return d->cls != CKPT_CLASS_COMPLEX;
    }
    if (is_integer(d))
        return false;
    const double re = fill->kind == CKPT_ZARR_FILL_INT
                          ? fill->negative ? (double)(int64_t)fill->u : (double)fill->u
                          : fill->part[0];
    if (re == 0 && fill->part[1] == 0 && !signbit(re))
        return true;
    return put_float(out, t, re, n) &&
           (d->cls != CKPT_CLASS_COMPLEX || put_float(out + n, t, fill->part[1], n));
}
