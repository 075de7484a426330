/* Rounding to the dtypes that arrays don't have. */
#include "verify/narrow.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* To the nearest float whose last `cut` bits of 23 are zero; of two, the one whose last bit is. */
static float cut_mantissa(float x, unsigned cut) {
    uint32_t bits = bits_of(x);
    bits += (1u << (cut - 1)) - 1 + (bits >> cut & 1);
    bits &= ~((1u << cut) - 1);
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static float as_bf16(float x) {
    return isnan(x) ? x : cut_mantissa(x, 16);
}

/* Below 2^-14 all steps are 2^-24; from 65520 on everything is infinite. */
static float as_f16(float x) {
    if (isnan(x))
        return x;
    if (fabsf(x) < 0x1p-14f)
        return copysignf(nearbyintf(fabsf(x) * 0x1p24f) * 0x1p-24f, x);
    return fabsf(x) >= 65520.0f ? copysignf(INFINITY, x) : cut_mantissa(x, 13);
}

static int64_t cut_integer(int64_t x, enum ckpt_dtype dtype) {
    switch (dtype) {
    case CKPT_DT_I8:
        return (int8_t)x;
    case CKPT_DT_U8:
        return (uint8_t)x;
    case CKPT_DT_I16:
        return (int16_t)x;
    case CKPT_DT_U16:
        return (uint16_t)x;
    case CKPT_DT_I32:
        return (int32_t)x;
    case CKPT_DT_U32:
        return (uint32_t)x;
    default:
        return x;
    }
}

bool ckpt_narrow_needed(enum ckpt_dtype dtype) {
    switch (dtype) {
    case CKPT_DT_F16:
    case CKPT_DT_BF16:
    case CKPT_DT_I8:
    case CKPT_DT_U8:
    case CKPT_DT_I16:
    case CKPT_DT_U16:
    case CKPT_DT_I32:
    case CKPT_DT_U32:
        return true;
    default:
        return false;
    }
}

static void narrow_floats(void *arg, char *const *at, const int64_t *step, int64_t n) {
    const bool bf16 = *(const enum ckpt_dtype *)arg == CKPT_DT_BF16;
    for (int64_t i = 0; i < n; i++) {
        float *const x = (float *)(void *)(at[0] + i * step[0]);
        *x = bf16 ? as_bf16(*x) : as_f16(*x);
    }
}

static void narrow_integers(void *arg, char *const *at, const int64_t *step, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int64_t *const x = (int64_t *)(void *)(at[0] + i * step[0]);
        *x = cut_integer(*x, *(const enum ckpt_dtype *)arg);
    }
}

void ckpt_narrow(struct ckpt_array *a, enum ckpt_dtype dtype) {
    if (a->dtype == CKPT_DT_F32)
        ckpt_array_rows((const struct ckpt_array *[]){a}, 1, narrow_floats, &dtype);
    else if (a->dtype == CKPT_DT_I64)
        ckpt_array_rows((const struct ckpt_array *[]){a}, 1, narrow_integers, &dtype);
}

/* float8's rounding is unknown here; complex numbers are. */
static bool is_known(enum ckpt_dtype dtype) {
    return ckpt_array_dtype(dtype) == dtype || ckpt_narrow_needed(dtype) || dtype == CKPT_DT_U64;
}

int ckpt_narrow_argument(const struct ckpt_call *c, enum ckpt_dtype otherwise,
                         enum ckpt_dtype *dtype, struct ckpt_err *err) {
    const struct ckpt_arg *const given = ckpt_call_arg(c, "dtype");
    *dtype = given ? (enum ckpt_dtype)given->i : otherwise;
    if (given && given->kind != CKPT_ARG_DTYPE)
        return ckpt_fail(err, -EINVAL, "dtype is none");
    if (*dtype != CKPT_DT_NONE && !is_known(*dtype))
        return ckpt_fail(err, -EOPNOTSUPP, "numbers of dtype %s", ckpt_dtype_info(*dtype)->name);
    return 0;
}
