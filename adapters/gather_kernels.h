#ifndef CKPT_ADAPTERS_GATHER_KERNELS_H
#define CKPT_ADAPTERS_GATHER_KERNELS_H
/*
 * The table of kernels under ckpt_gather. A kernel moves elements of one kind; gather.c decides
 * which elements. Every kind has scalar kernels (gather_scalar.c); where the processor can, a
 * faster file replaces some of them (gather_avx2.c). To add a kind: a row in CKPT_KERNEL_KINDS. To
 * add an instruction set: a file with a table like ckpt_kernels_avx2, and a line in
 * ckpt_kernel_choose.
 */
#include <stdint.h>

#include "adapters/gather.h"

/* Elements that C has no scalar of. One byte too: uint8_t may alias everything, so the loops over
 * it would not be unrolled. */
struct ckpt_e1 {
    uint8_t byte;
};
struct ckpt_e3 {
    uint8_t byte[3];
};
struct ckpt_e16 {
    uint64_t half[2];
};

/* X(kind, element read, element written, conversion) */
#define CKPT_KERNEL_COPIES(X)                                                                      \
    X(COPY1, struct ckpt_e1, struct ckpt_e1, )                                                     \
    X(COPY2, uint16_t, uint16_t, )                                                                 \
    X(COPY3, struct ckpt_e3, struct ckpt_e3, )                                                     \
    X(COPY4, uint32_t, uint32_t, )                                                                 \
    X(COPY8, uint64_t, uint64_t, )                                                                 \
    X(COPY16, struct ckpt_e16, struct ckpt_e16, )
#define CKPT_KERNEL_CASTS(X)                                                                       \
    X(F16_BF16, uint16_t, uint16_t, ckpt_bf16_of_f16)                                              \
    X(F16_F32, uint16_t, float, ckpt_f32_of_f16)                                                   \
    X(F16_F64, uint16_t, double, ckpt_f32_of_f16)                                                  \
    X(BF16_F16, uint16_t, uint16_t, ckpt_f16_of_bf16)                                              \
    X(BF16_F32, uint16_t, float, ckpt_f32_of_bf16)                                                 \
    X(BF16_F64, uint16_t, double, ckpt_f32_of_bf16)                                                \
    X(F32_F16, float, uint16_t, ckpt_f16_of_f32)                                                   \
    X(F32_BF16, float, uint16_t, ckpt_bf16_of_f32)                                                 \
    X(F32_F64, float, double, (double))                                                            \
    X(F64_F16, double, uint16_t, ckpt_f16_of_f64)                                                  \
    X(F64_BF16, double, uint16_t, ckpt_bf16_of_f64)                                                \
    X(F64_F32, double, float, (float))

#define CKPT_KERNEL_ENUM(kind, from, to, convert) CKPT_KERNEL_##kind,
enum ckpt_kernel_kind {
    CKPT_KERNEL_COPIES(CKPT_KERNEL_ENUM) CKPT_KERNEL_CASTS(CKPT_KERNEL_ENUM)
    /* Anything with a swap or a sign bit: ckpt_element_convert for each element. */
    CKPT_KERNEL_MAP,
    CKPT_KERNEL_COUNT
};

/* Elements `src_stride` bytes apart to a dense output. */
struct ckpt_strip {
    const uint8_t *src;
    int64_t src_stride;
    uint8_t *out;
    int64_t n;
    const struct ckpt_element_map *map; /* read by CKPT_KERNEL_MAP alone */
};

/* A tile: element (r, c) lies at src + row[r] + c * col_stride and goes to row c of the output,
 * place r. That is a transposition whose rows may lie anywhere. */
struct ckpt_tile {
    const uint8_t *src;
    const int64_t *row;
    int64_t nrows, ncols, col_stride;
    uint8_t *out;
    int64_t out_stride; /* bytes from one output row to the next */
    const struct ckpt_element_map *map;
};

#define CKPT_TILE 8 /* rows and columns of a full tile */

struct ckpt_kernel {
    void (*run)(const struct ckpt_strip *s);     /* src_stride is the element size */
    void (*strided)(const struct ckpt_strip *s); /* any stride */
    void (*tile)(const struct ckpt_tile *t);     /* any size, any column stride */
    /* CKPT_TILE x CKPT_TILE with columns that touch; NULL: `tile` does it. */
    void (*tile_full)(const struct ckpt_tile *t);
};

/* Filled with what the kind has; zeros where it has nothing better. */
extern const struct ckpt_kernel ckpt_kernels_scalar[CKPT_KERNEL_COUNT];
extern const struct ckpt_kernel ckpt_kernels_avx2[CKPT_KERNEL_COUNT];

/* The kernels for a map over elements of esize bytes. */
struct ckpt_kernel ckpt_kernel_choose(const struct ckpt_element_map *map, uint32_t esize,
                                      bool avx2);
/* ckpt_gather_until with the processor's features given: for the tests. */
bool ckpt_gather_with(bool avx2, const struct ckpt_walk *w, const struct ckpt_element_map *map,
                      const uint8_t *base, int64_t first, int64_t n, uint8_t *out,
                      const struct ckpt_stop *stop);

#endif
