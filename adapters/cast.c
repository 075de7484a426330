/*
 * Element maps, one element at a time: swap, then conj and neg, then the cast. Slow and plain on
 * purpose: the byte check and the tests measure the kernels against it.
 */
#include "adapters/cast.h"

#include "adapters/gather.h"

bool ckpt_map_identity(const struct ckpt_element_map *map) {
    return map->from == map->to && !map->swap && !map->conj && !map->neg;
}

uint32_t ckpt_map_out_bytes(const struct ckpt_element_map *map, uint32_t esize) {
    return map->from == map->to ? esize : ckpt_dtype_info(map->to)->unit_bytes;
}

static void swap_component(uint8_t *p, uint32_t n) {
    for (uint32_t i = 0; i < n / 2; i++) {
        const uint8_t t = p[i];
        p[i] = p[n - 1 - i];
        p[n - 1 - i] = t;
    }
}

static void flip_sign(uint8_t *component, uint32_t n) {
    component[n - 1] ^= 0x80;
}

static float load_f32(enum ckpt_dtype t, const uint8_t *p) {
    uint16_t h;
    float f;
    double d;
    switch (t) {
    case CKPT_DT_F16:
        memcpy(&h, p, sizeof h);
        return ckpt_f32_of_f16(h);
    case CKPT_DT_BF16:
        memcpy(&h, p, sizeof h);
        return ckpt_f32_of_bf16(h);
    case CKPT_DT_F32:
        memcpy(&f, p, sizeof f);
        return f;
    default:
        memcpy(&d, p, sizeof d);
        return (float)d;
    }
}

/* Every cast that is one goes through F32: F64 to the 16-bit types by rule, F64 from the narrower
 * ones because that loses nothing. */
static void store_f32(enum ckpt_dtype t, float f, uint8_t *p) {
    const double d = (double)f;
    const uint16_t h = t == CKPT_DT_F16 ? ckpt_f16_of_f32(f) : ckpt_bf16_of_f32(f);
    switch (t) {
    case CKPT_DT_F16:
    case CKPT_DT_BF16:
        memcpy(p, &h, sizeof h);
        break;
    case CKPT_DT_F32:
        memcpy(p, &f, sizeof f);
        break;
    default:
        memcpy(p, &d, sizeof d);
    }
}

void ckpt_element_convert(const struct ckpt_element_map *map, const uint8_t *from, uint8_t *to) {
    const struct ckpt_dtype_info *const info = ckpt_dtype_info(map->from);
    const uint32_t n = info->unit_bytes, component = info->component_bytes;
    uint8_t raw[16];
    memcpy(raw, from, n);
    for (uint32_t at = 0; at < n; at += component) {
        if (map->swap)
            swap_component(raw + at, component);
        if (map->neg != (map->conj && at > 0))
            flip_sign(raw + at, component);
    }
    if (map->from == map->to)
        memcpy(to, raw, n);
    else
        store_f32(map->to, load_f32(map->from, raw), to);
}
