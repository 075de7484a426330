/*
 * The portable kernels: every kind, any size, any alignment. They are also the reference that the
 * SIMD kernels are tested against.
 */
#include <string.h>

#include "adapters/cast.h"
#include "adapters/gather_kernels.h"

static inline uint16_t ckpt_bf16_of_f16(uint16_t h) {
    return ckpt_bf16_of_f32(ckpt_f32_of_f16(h));
}

static inline uint16_t ckpt_f16_of_bf16(uint16_t h) {
    return ckpt_f16_of_f32(ckpt_f32_of_bf16(h));
}

static inline uint16_t ckpt_f16_of_f64(double d) {
    return ckpt_f16_of_f32((float)d);
}

static inline uint16_t ckpt_bf16_of_f64(double d) {
    return ckpt_bf16_of_f32((float)d);
}

/* `move` loads, converts and stores one element by memcpy, since neither side need be aligned. A
 * full tile gets constant bounds, so that it is unrolled. */
#define DEFINE_KERNEL(kind, from, to, convert)                                                     \
    static inline void kind##_move(const uint8_t *src, uint8_t *out) {                             \
        from element;                                                                              \
        memcpy(&element, src, sizeof element);                                                     \
        const to converted = convert(element);                                                     \
        memcpy(out, &converted, sizeof converted);                                                 \
    }                                                                                              \
    static void kind##_strided(const struct ckpt_strip *s) {                                       \
        const int64_t stride = s->src_stride;                                                      \
        for (int64_t i = 0; i < s->n; i++)                                                         \
            kind##_move(s->src + i * stride, s->out + i * (int64_t)sizeof(to));                    \
    }                                                                                              \
    static inline void kind##_tile_of(const struct ckpt_tile *t, int64_t nrows, int64_t ncols) {   \
        for (int64_t c = 0; c < ncols; c++) {                                                      \
            const uint8_t *const src = t->src + c * t->col_stride;                                 \
            uint8_t *const out = t->out + c * t->out_stride;                                       \
            for (int64_t r = 0; r < nrows; r++)                                                    \
                kind##_move(src + t->row[r], out + r * (int64_t)sizeof(to));                       \
        }                                                                                          \
    }                                                                                              \
    static void kind##_tile(const struct ckpt_tile *t) {                                           \
        if (t->nrows == CKPT_TILE && t->ncols == CKPT_TILE)                                        \
            kind##_tile_of(t, CKPT_TILE, CKPT_TILE);                                               \
        else                                                                                       \
            kind##_tile_of(t, t->nrows, t->ncols);                                                 \
    }

/* Elements that touch: the stride is a constant, so that the loop can be vectorised. */
#define DEFINE_RUN(kind, from, to, convert)                                                        \
    static void kind##_run(const struct ckpt_strip *s) {                                           \
        for (int64_t i = 0; i < s->n; i++)                                                         \
            kind##_move(s->src + i * (int64_t)sizeof(from), s->out + i * (int64_t)sizeof(to));     \
    }

CKPT_KERNEL_COPIES(DEFINE_KERNEL)
CKPT_KERNEL_CASTS(DEFINE_KERNEL)
CKPT_KERNEL_CASTS(DEFINE_RUN)

static void copy_run(const struct ckpt_strip *s) {
    memcpy(s->out, s->src, (size_t)(s->n * s->src_stride));
}

static void map_strided(const struct ckpt_strip *s) {
    const uint32_t to = ckpt_dtype_info(s->map->to)->unit_bytes;
    for (int64_t i = 0; i < s->n; i++)
        ckpt_element_convert(s->map, s->src + i * s->src_stride, s->out + i * to);
}

static void map_tile(const struct ckpt_tile *t) {
    const uint32_t to = ckpt_dtype_info(t->map->to)->unit_bytes;
    for (int64_t c = 0; c < t->ncols; c++) {
        for (int64_t r = 0; r < t->nrows; r++)
            ckpt_element_convert(t->map, t->src + t->row[r] + c * t->col_stride,
                                 t->out + c * t->out_stride + r * to);
    }
}

#define COPY_ROW(kind, from, to, convert)                                                          \
    [CKPT_KERNEL_##kind] = {copy_run, kind##_strided, kind##_tile, NULL},
#define CAST_ROW(kind, from, to, convert)                                                          \
    [CKPT_KERNEL_##kind] = {kind##_run, kind##_strided, kind##_tile, NULL},

const struct ckpt_kernel ckpt_kernels_scalar[CKPT_KERNEL_COUNT] = {
    CKPT_KERNEL_COPIES(COPY_ROW)
        CKPT_KERNEL_CASTS(CAST_ROW)[CKPT_KERNEL_MAP] = {map_strided, map_strided, map_tile, NULL}};
