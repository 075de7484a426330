/*
 * Which kernels serve an element map.
 */
#include "adapters/gather_kernels.h"

static enum ckpt_kernel_kind copy_kind(uint32_t esize) {
    switch (esize) {
    case 1:
        return CKPT_KERNEL_COPY1;
    case 2:
        return CKPT_KERNEL_COPY2;
    case 3:
        return CKPT_KERNEL_COPY3;
    case 4:
        return CKPT_KERNEL_COPY4;
    case 8:
        return CKPT_KERNEL_COPY8;
    default:
        return CKPT_KERNEL_COPY16;
    }
}

static enum ckpt_kernel_kind cast_kind(enum ckpt_dtype from, enum ckpt_dtype to) {
#define CAST(a, b) [CKPT_DT_##a][CKPT_DT_##b] = CKPT_KERNEL_##a##_##b
    static const uint8_t kind[CKPT_DT_COUNT][CKPT_DT_COUNT] = {
        CAST(F16, BF16), CAST(F16, F32),  CAST(F16, F64),  CAST(BF16, F16),
        CAST(BF16, F32), CAST(BF16, F64), CAST(F32, F16),  CAST(F32, BF16),
        CAST(F32, F64),  CAST(F64, F16),  CAST(F64, BF16), CAST(F64, F32),
    };
#undef CAST
    return kind[from][to];
}

static enum ckpt_kernel_kind kind_of(const struct ckpt_element_map *map, uint32_t esize) {
    if (map->swap || map->conj || map->neg)
        return CKPT_KERNEL_MAP;
    return map->from == map->to ? copy_kind(esize) : cast_kind(map->from, map->to);
}

struct ckpt_kernel ckpt_kernel_choose(const struct ckpt_element_map *map, uint32_t esize,
                                      bool avx2) {
    const enum ckpt_kernel_kind kind = kind_of(map, esize);
    struct ckpt_kernel k = ckpt_kernels_scalar[kind];
    if (avx2) {
        const struct ckpt_kernel *const fast = &ckpt_kernels_avx2[kind];
        k.run = fast->run ? fast->run : k.run;
        k.strided = fast->strided ? fast->strided : k.strided;
        k.tile = fast->tile ? fast->tile : k.tile;
        k.tile_full = fast->tile_full ? fast->tile_full : k.tile_full;
    }
    return k;
}
