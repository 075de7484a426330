/*
 * The kernels for x86-64 processors with AVX2 and F16C, chosen at run time. A full tile is 8 x 8:
 * eight source pieces are loaded (and converted on the way), transposed in registers and stored as
 * eight output pieces. Tests hold every one of them to the scalar kernels, bit for bit.
 */
#include "adapters/gather_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,f16c")))
#define AVX2_INLINE static inline __attribute__((target("avx2,f16c"), always_inline))

/* Loops over registers must be unrolled whole, or their arrays would live in memory. */
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

/* --- transpositions in registers --- */

AVX2_INLINE void transpose_32(__m256 r[8]) {
    __m256 t[8], u[8];
    UNROLLED
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLLED
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    UNROLLED
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

AVX2_INLINE void transpose_16(__m128i r[8]) {
    __m128i t[8], u[8];
    UNROLLED
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm_unpacklo_epi16(r[i], r[i + 1]);
        t[i + 1] = _mm_unpackhi_epi16(r[i], r[i + 1]);
    }
    UNROLLED
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm_unpacklo_epi32(t[i], t[i + 2]);
        u[i + 1] = _mm_unpackhi_epi32(t[i], t[i + 2]);
        u[i + 2] = _mm_unpacklo_epi32(t[i + 1], t[i + 3]);
        u[i + 3] = _mm_unpackhi_epi32(t[i + 1], t[i + 3]);
    }
    UNROLLED
    for (int i = 0; i < 4; i++) {
        r[2 * i] = _mm_unpacklo_epi64(u[i], u[i + 4]);
        r[2 * i + 1] = _mm_unpackhi_epi64(u[i], u[i + 4]);
    }
}

/* --- eight elements of a float type as eight F32, and back --- */

AVX2_INLINE __m256 load_F32(const uint8_t *p) {
    return _mm256_loadu_ps((const float *)p);
}

AVX2_INLINE __m256 load_F16(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

AVX2_INLINE __m256 load_BF16(const uint8_t *p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

AVX2_INLINE __m256 load_F64(const uint8_t *p) {
    const __m128 low = _mm256_cvtpd_ps(_mm256_loadu_pd((const double *)p));
    const __m128 high = _mm256_cvtpd_ps(_mm256_loadu_pd((const double *)(p + 32)));
    return _mm256_set_m128(high, low);
}

AVX2_INLINE __m128i pack_F16(__m256 v) {
    return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

AVX2_INLINE __m128i pack_BF16(__m256 v) {
    const __m256i bits = _mm256_castps_si256(v), top = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i word = _mm256_blendv_epi8(rounded, quiet, is_nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(word), _mm256_extracti128_si256(word, 1));
}

/* --- full tiles --- */

AVX2_INLINE void store_tile_32(const struct ckpt_tile *t, __m256 r[8]) {
    transpose_32(r);
    UNROLLED
    for (int i = 0; i < 8; i++)
        _mm256_storeu_ps((float *)(t->out + i * t->out_stride), r[i]);
}

AVX2_INLINE void store_tile_16(const struct ckpt_tile *t, __m128i r[8]) {
    transpose_16(r);
    UNROLLED
    for (int i = 0; i < 8; i++)
        _mm_storeu_si128((__m128i *)(t->out + i * t->out_stride), r[i]);
}

#define TILE_TO_F32(name, from)                                                                    \
    AVX2 static void name(const struct ckpt_tile *t) {                                             \
        __m256 r[8];                                                                               \
        UNROLLED                                                                                   \
        for (int i = 0; i < 8; i++)                                                                \
            r[i] = load_##from(t->src + t->row[i]);                                                \
        store_tile_32(t, r);                                                                       \
    }
#define TILE_TO_16(name, from, to)                                                                 \
    AVX2 static void name(const struct ckpt_tile *t) {                                             \
        __m128i r[8];                                                                              \
        UNROLLED                                                                                   \
        for (int i = 0; i < 8; i++)                                                                \
            r[i] = pack_##to(load_##from(t->src + t->row[i]));                                     \
        store_tile_16(t, r);                                                                       \
    }

TILE_TO_F32(tile_copy4, F32)
TILE_TO_F32(tile_F16_F32, F16)
TILE_TO_F32(tile_BF16_F32, BF16)
TILE_TO_F32(tile_F64_F32, F64)
TILE_TO_16(tile_F32_F16, F32, F16)
TILE_TO_16(tile_F32_BF16, F32, BF16)
TILE_TO_16(tile_F64_F16, F64, F16)
TILE_TO_16(tile_F64_BF16, F64, BF16)
TILE_TO_16(tile_F16_BF16, F16, BF16)
TILE_TO_16(tile_BF16_F16, BF16, F16)

AVX2 static void tile_copy2(const struct ckpt_tile *t) {
    __m128i r[8];
    UNROLLED
    for (int i = 0; i < 8; i++)
        r[i] = _mm_loadu_si128((const __m128i *)(t->src + t->row[i]));
    store_tile_16(t, r);
}

/* Bytes: three rounds of interleaving give two output rows in each register. */
AVX2 static void tile_copy1(const struct ckpt_tile *t) {
    __m128i r[8], pair[4], quad[4];
    UNROLLED
    for (int i = 0; i < 8; i++)
        r[i] = _mm_loadl_epi64((const __m128i *)(t->src + t->row[i]));
    UNROLLED
    for (int i = 0; i < 4; i++)
        pair[i] = _mm_unpacklo_epi8(r[2 * i], r[2 * i + 1]);
    UNROLLED
    for (int i = 0; i < 2; i++) {
        quad[2 * i] = _mm_unpacklo_epi16(pair[2 * i], pair[2 * i + 1]);
        quad[2 * i + 1] = _mm_unpackhi_epi16(pair[2 * i], pair[2 * i + 1]);
    }
    UNROLLED
    for (int i = 0; i < 2; i++) {
        const __m128i low = _mm_unpacklo_epi32(quad[i], quad[i + 2]);
        const __m128i high = _mm_unpackhi_epi32(quad[i], quad[i + 2]);
        uint8_t *const out = t->out + 4 * i * t->out_stride;
        _mm_storel_epi64((__m128i *)out, low);
        _mm_storel_epi64((__m128i *)(out + t->out_stride), _mm_unpackhi_epi64(low, low));
        _mm_storel_epi64((__m128i *)(out + 2 * t->out_stride), high);
        _mm_storel_epi64((__m128i *)(out + 3 * t->out_stride), _mm_unpackhi_epi64(high, high));
    }
}

/* Four 4 x 4 blocks. */
AVX2 static void tile_copy8(const struct ckpt_tile *t) {
    UNROLLED
    for (int block = 0; block < 4; block++) {
        const int first_row = block & 1 ? 4 : 0, first_col = block & 2 ? 4 : 0;
        __m256d r[4];
        UNROLLED
        for (int i = 0; i < 4; i++)
            r[i] =
                _mm256_loadu_pd((const double *)(t->src + t->row[first_row + i] + 8 * first_col));
        const __m256d a = _mm256_unpacklo_pd(r[0], r[1]), b = _mm256_unpackhi_pd(r[0], r[1]);
        const __m256d c = _mm256_unpacklo_pd(r[2], r[3]), d = _mm256_unpackhi_pd(r[2], r[3]);
        uint8_t *const out = t->out + first_col * t->out_stride + 8 * first_row;
        _mm256_storeu_pd((double *)out, _mm256_permute2f128_pd(a, c, 0x20));
        _mm256_storeu_pd((double *)(out + t->out_stride), _mm256_permute2f128_pd(b, d, 0x20));
        _mm256_storeu_pd((double *)(out + 2 * t->out_stride), _mm256_permute2f128_pd(a, c, 0x31));
        _mm256_storeu_pd((double *)(out + 3 * t->out_stride), _mm256_permute2f128_pd(b, d, 0x31));
    }
}

/* --- runs: whole eights here, the rest by the scalar kernel --- */

AVX2_INLINE void finish_run(const struct ckpt_strip *s, enum ckpt_kernel_kind kind, int64_t done,
                            int64_t from_bytes, int64_t to_bytes) {
    struct ckpt_strip rest = *s;
    rest.src += done * from_bytes;
    rest.out += done * to_bytes;
    rest.n -= done;
    ckpt_kernels_scalar[kind].run(&rest);
}

#define RUN_TO_F32(from, from_bytes)                                                               \
    AVX2 static void run_##from##_F32(const struct ckpt_strip *s) {                                \
        int64_t i = 0;                                                                             \
        for (; i + 8 <= s->n; i += 8)                                                              \
            _mm256_storeu_ps((float *)(s->out + i * 4), load_##from(s->src + i * from_bytes));     \
        finish_run(s, CKPT_KERNEL_##from##_F32, i, from_bytes, 4);                                 \
    }
#define RUN_TO_16(from, from_bytes, to)                                                            \
    AVX2 static void run_##from##_##to(const struct ckpt_strip *s) {                               \
        int64_t i = 0;                                                                             \
        for (; i + 8 <= s->n; i += 8)                                                              \
            _mm_storeu_si128((__m128i *)(s->out + i * 2),                                          \
                             pack_##to(load_##from(s->src + i * from_bytes)));                     \
        finish_run(s, CKPT_KERNEL_##from##_##to, i, from_bytes, 2);                                \
    }

RUN_TO_F32(F16, 2)
RUN_TO_F32(BF16, 2)
RUN_TO_F32(F64, 8)
RUN_TO_16(F32, 4, F16)
RUN_TO_16(F32, 4, BF16)
RUN_TO_16(F64, 8, F16)
RUN_TO_16(F64, 8, BF16)
RUN_TO_16(F16, 2, BF16)
RUN_TO_16(BF16, 2, F16)

#define CAST_ROW(from, to)                                                                         \
    [CKPT_KERNEL_##from##_##to] = {.run = run_##from##_##to, .tile_full = tile_##from##_##to}

const struct ckpt_kernel ckpt_kernels_avx2[CKPT_KERNEL_COUNT] = {
    [CKPT_KERNEL_COPY1] = {.tile_full = tile_copy1},
    [CKPT_KERNEL_COPY2] = {.tile_full = tile_copy2},
    [CKPT_KERNEL_COPY4] = {.tile_full = tile_copy4},
    [CKPT_KERNEL_COPY8] = {.tile_full = tile_copy8},
    CAST_ROW(F16, F32),
    CAST_ROW(BF16, F32),
    CAST_ROW(F64, F32),
    CAST_ROW(F32, F16),
    CAST_ROW(F32, BF16),
    CAST_ROW(F64, F16),
    CAST_ROW(F64, BF16),
    CAST_ROW(F16, BF16),
    CAST_ROW(BF16, F16),
};

#else /* no such processor: the table is empty */
const struct ckpt_kernel ckpt_kernels_avx2[CKPT_KERNEL_COUNT];
#endif
