#include "formats/dtype.h"

#include "base/size.h"

/* name, torch, numpy, class, bits, unit bytes, unit elements, component bytes, safetensors, burn */
static const struct ckpt_dtype_info table[CKPT_DT_COUNT] = {
    [CKPT_DT_NONE] = {"NONE", NULL, NULL, CKPT_CLASS_UINT, 8, 1, 1, 1, false, false},
    [CKPT_DT_BOOL] = {"BOOL", "bool", "|b1", CKPT_CLASS_BOOL, 8, 1, 1, 1, true, true},
    [CKPT_DT_U8] = {"U8", "uint8", "|u1", CKPT_CLASS_UINT, 8, 1, 1, 1, true, true},
    [CKPT_DT_I8] = {"I8", "int8", "|i1", CKPT_CLASS_INT, 8, 1, 1, 1, true, true},
    [CKPT_DT_U16] = {"U16", "uint16", "<u2", CKPT_CLASS_UINT, 16, 2, 1, 2, true, false},
    [CKPT_DT_I16] = {"I16", "int16", "<i2", CKPT_CLASS_INT, 16, 2, 1, 2, true, true},
    [CKPT_DT_U32] = {"U32", "uint32", "<u4", CKPT_CLASS_UINT, 32, 4, 1, 4, true, true},
    [CKPT_DT_I32] = {"I32", "int32", "<i4", CKPT_CLASS_INT, 32, 4, 1, 4, true, true},
    [CKPT_DT_U64] = {"U64", "uint64", "<u8", CKPT_CLASS_UINT, 64, 8, 1, 8, true, true},
    [CKPT_DT_I64] = {"I64", "int64", "<i8", CKPT_CLASS_INT, 64, 8, 1, 8, true, true},
    [CKPT_DT_F16] = {"F16", "float16", "<f2", CKPT_CLASS_FLOAT, 16, 2, 1, 2, true, true},
    [CKPT_DT_BF16] = {"BF16", "bfloat16", NULL, CKPT_CLASS_FLOAT, 16, 2, 1, 2, true, true},
    [CKPT_DT_F32] = {"F32", "float32", "<f4", CKPT_CLASS_FLOAT, 32, 4, 1, 4, true, true},
    [CKPT_DT_F64] = {"F64", "float64", "<f8", CKPT_CLASS_FLOAT, 64, 8, 1, 8, true, true},
    [CKPT_DT_C32] = {"C32", "complex32", NULL, CKPT_CLASS_COMPLEX, 32, 4, 1, 2, false, false},
    [CKPT_DT_BC32] = {"BC32", "bcomplex32", NULL, CKPT_CLASS_COMPLEX, 32, 4, 1, 2, false, false},
    [CKPT_DT_C64] = {"C64", "complex64", "<c8", CKPT_CLASS_COMPLEX, 64, 8, 1, 4, true, false},
    [CKPT_DT_C128] = {"C128", "complex128", "<c16", CKPT_CLASS_COMPLEX, 128, 16, 1, 8, false,
                      false},
    [CKPT_DT_F8_E4M3] = {"F8_E4M3", "float8_e4m3fn", NULL, CKPT_CLASS_SMALL_FLOAT, 8, 1, 1, 1, true,
                         false},
    [CKPT_DT_F8_E5M2] = {"F8_E5M2", "float8_e5m2", NULL, CKPT_CLASS_SMALL_FLOAT, 8, 1, 1, 1, true,
                         false},
    [CKPT_DT_F8_E8M0] = {"F8_E8M0", "float8_e8m0fnu", NULL, CKPT_CLASS_SMALL_FLOAT, 8, 1, 1, 1,
                         true, false},
    [CKPT_DT_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", "float8_e4m3fnuz", NULL, CKPT_CLASS_SMALL_FLOAT, 8, 1,
                             1, 1, true, false},
    [CKPT_DT_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", "float8_e5m2fnuz", NULL, CKPT_CLASS_SMALL_FLOAT, 8, 1,
                             1, 1, true, false},
    [CKPT_DT_F4] = {"F4", NULL, NULL, CKPT_CLASS_SMALL_FLOAT, 4, 1, 2, 1, true, false},
    [CKPT_DT_F4_X2] = {"F4_X2", "float4_e2m1fn_x2", NULL, CKPT_CLASS_SMALL_FLOAT, 8, 1, 1, 1, false,
                       false},
    [CKPT_DT_F6_E2M3] = {"F6_E2M3", NULL, NULL, CKPT_CLASS_SMALL_FLOAT, 6, 3, 4, 1, true, false},
    [CKPT_DT_F6_E3M2] = {"F6_E3M2", NULL, NULL, CKPT_CLASS_SMALL_FLOAT, 6, 3, 4, 1, true, false},
    [CKPT_DT_BITS8] = {"BITS8", "bits8", NULL, CKPT_CLASS_UINT, 8, 1, 1, 1, false, false},
    [CKPT_DT_BITS16] = {"BITS16", "bits16", NULL, CKPT_CLASS_UINT, 16, 2, 1, 2, false, false},
    [CKPT_DT_BITS1X8] = {"BITS1X8", "bits1x8", NULL, CKPT_CLASS_UINT, 8, 1, 1, 1, false, false},
    [CKPT_DT_BITS2X4] = {"BITS2X4", "bits2x4", NULL, CKPT_CLASS_UINT, 8, 1, 1, 1, false, false},
    [CKPT_DT_BITS4X2] = {"BITS4X2", "bits4x2", NULL, CKPT_CLASS_UINT, 8, 1, 1, 1, false, false},
    [CKPT_DT_I4] = {"I4", NULL, NULL, CKPT_CLASS_INT, 8, 1, 1, 1, false, false},
    [CKPT_DT_I2] = {"I2", NULL, NULL, CKPT_CLASS_INT, 8, 1, 1, 1, false, false},
    [CKPT_DT_U4] = {"U4", NULL, NULL, CKPT_CLASS_UINT, 8, 1, 1, 1, false, false},
    [CKPT_DT_F4_E2M1] = {"F4_E2M1", NULL, NULL, CKPT_CLASS_SMALL_FLOAT, 8, 1, 1, 1, false, false},
    [CKPT_DT_F8_E3M4] = {"F8_E3M4", NULL, NULL, CKPT_CLASS_SMALL_FLOAT, 8, 1, 1, 1, false, false},
    [CKPT_DT_F8_E4M3_IEEE] = {"F8_E4M3_IEEE", NULL, NULL, CKPT_CLASS_SMALL_FLOAT, 8, 1, 1, 1, false,
                              false},
    [CKPT_DT_F8_E4M3B11FNUZ] = {"F8_E4M3B11FNUZ", NULL, NULL, CKPT_CLASS_SMALL_FLOAT, 8, 1, 1, 1,
                                false, false},
};

const struct ckpt_dtype_info *ckpt_dtype_info(enum ckpt_dtype t) {
    return &table[(unsigned)t < CKPT_DT_COUNT ? t : CKPT_DT_NONE];
}

enum ckpt_dtype ckpt_dtype_by_name(struct ckpt_text name) {
    for (int t = CKPT_DT_NONE + 1; t < CKPT_DT_COUNT; t++)
        if (ckpt_text_is(name, table[t].name))
            return (enum ckpt_dtype)t;
    return CKPT_DT_NONE;
}

enum ckpt_dtype ckpt_dtype_by_torch(struct ckpt_text name) {
    for (int t = CKPT_DT_NONE + 1; t < CKPT_DT_COUNT; t++)
        if (table[t].torch && ckpt_text_is(name, table[t].torch))
            return (enum ckpt_dtype)t;
    return CKPT_DT_NONE;
}

bool ckpt_dtype_bytes(enum ckpt_dtype t, uint64_t elements, uint64_t *bytes) {
    const struct ckpt_dtype_info *d = ckpt_dtype_info(t);
    uint64_t bits;
    if (!ckpt_mul_u64(elements, d->bits, &bits)) {
        if (d->bits % 8)
            return false;
        return ckpt_mul_u64(elements, d->bits / 8u, bytes);
    }
    *bytes = bits / 8;
    return bits % 8 == 0; /* just when the last unit is full, for 4 and for 6 bits */
}

bool ckpt_shape_count(const int64_t *shape, uint32_t ndim, uint64_t *count) {
    int64_t product = 1;
    bool is_empty = false;
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0 || !ckpt_mul_i64(product, shape[i] ? shape[i] : 1, &product))
            return false;
        is_empty = is_empty || shape[i] == 0;
    }
    *count = is_empty ? 0 : (uint64_t)product;
    return true;
}
