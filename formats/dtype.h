#ifndef CKPT_FORMATS_DTYPE_H
#define CKPT_FORMATS_DTYPE_H
/*
 * Element types: one table. Names: safetensors' where it has one (which index.json uses), else
 * ours.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

enum ckpt_dtype {
    CKPT_DT_NONE,
    CKPT_DT_BOOL,
    CKPT_DT_U8,
    CKPT_DT_I8,
    CKPT_DT_U16,
    CKPT_DT_I16,
    CKPT_DT_U32,
    CKPT_DT_I32,
    CKPT_DT_U64,
    CKPT_DT_I64,
    CKPT_DT_F16,
    CKPT_DT_BF16,
    CKPT_DT_F32,
    CKPT_DT_F64,
    CKPT_DT_C32,  /* two F16 */
    CKPT_DT_BC32, /* two BF16 */
    CKPT_DT_C64,
    CKPT_DT_C128,
    CKPT_DT_F8_E4M3,
    CKPT_DT_F8_E5M2,
    CKPT_DT_F8_E8M0,
    CKPT_DT_F8_E4M3FNUZ,
    CKPT_DT_F8_E5M2FNUZ,
    CKPT_DT_F4,      /* two elements a byte */
    CKPT_DT_F4_X2,   /* torch's float4_e2m1fn_x2: a byte is the element */
    CKPT_DT_F6_E2M3, /* four elements in three bytes */
    CKPT_DT_F6_E3M2,
    CKPT_DT_BITS8, /* torch's bits without a meaning; the packed ones count bytes */
    CKPT_DT_BITS16,
    CKPT_DT_BITS1X8,
    CKPT_DT_BITS2X4,
    CKPT_DT_BITS4X2,
    CKPT_DT_I4, /* zarr's, with a byte for each element */
    CKPT_DT_I2,
    CKPT_DT_U4,
    CKPT_DT_F4_E2M1,
    CKPT_DT_F8_E3M4,
    CKPT_DT_F8_E4M3_IEEE,
    CKPT_DT_F8_E4M3B11FNUZ,
    CKPT_DT_COUNT
};

enum ckpt_dtype_class {
    CKPT_CLASS_BOOL,
    CKPT_CLASS_UINT,
    CKPT_CLASS_INT,
    CKPT_CLASS_FLOAT, /* F16, BF16, F32, F64: what casts touch */
    CKPT_CLASS_COMPLEX,
    CKPT_CLASS_SMALL_FLOAT, /* F8, F6, F4: never cast */
};

struct ckpt_dtype_info {
    const char *name;  /* "F32" */
    const char *torch; /* "float32"; NULL if torch lacks it */
    const char *numpy; /* "<f4" as in a .npy header; NULL if numpy lacks it */
    enum ckpt_dtype_class cls;
    uint8_t bits;          /* an element's bits: 4, 6, 8 .. 128 */
    uint8_t unit_bytes;    /* smallest addressable unit: bits/8, or the packed group (F4 1, F6 3) */
    uint8_t unit_elements; /* elements in a unit: 1, F4 2, F6 4 */
    uint8_t component_bytes; /* what a byte swap swaps: unit_bytes, complex half of it */
    bool in_safetensors;
    bool in_burn; /* burn's SafetensorsStore reads it */
};

/* Never NULL for a dtype of the enum. */
const struct ckpt_dtype_info *ckpt_dtype_info(enum ckpt_dtype t);
/* CKPT_DT_NONE if unknown. Case counts. */
enum ckpt_dtype ckpt_dtype_by_name(struct ckpt_text name);
enum ckpt_dtype ckpt_dtype_by_torch(struct ckpt_text name);
/* Bytes of so many elements, false on overflow or when sub-byte elements do not fill their last
 * unit. */
bool ckpt_dtype_bytes(enum ckpt_dtype t, uint64_t elements, uint64_t *bytes);
/* The product of ndim dimensions, each >= 0; false on overflow of int64 (a zero counts as one for
 * the overflow check, as in torch and numpy). */
bool ckpt_shape_count(const int64_t *shape, uint32_t ndim, uint64_t *count);

#endif
