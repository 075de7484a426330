/*
 * Every kernel of the tables against the portable one of its kind, and those against the naive rule
 * and plain arithmetic, bit for bit. The tables are walked, so that a kernel that is added is
 * tested.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "adapters/gather_kernels.h"
#include "base/cpu.h"
#include "random.h"

#define SIZES 71       /* elements of a run: 0 to 70 */
#define ALIGNMENTS 32  /* of source and output: a register's */
#define ROOM (1 << 16) /* bytes of source, with specials */
#define GUARD 64

struct kind {
    const char *name;
    int64_t from, to; /* bytes of an element */
    struct ckpt_element_map map;
};

#define KIND(kind, from, to, convert) [CKPT_KERNEL_##kind] = {#kind, sizeof(from), sizeof(to), {0}},
static const struct kind kinds[CKPT_KERNEL_COUNT] = {
    CKPT_KERNEL_COPIES(KIND) CKPT_KERNEL_CASTS(KIND)[CKPT_KERNEL_MAP] = {
        "MAP", 4, 2, {.from = CKPT_DT_F32, .to = CKPT_DT_BF16, .swap = true, .neg = true}}};

static uint8_t source[ROOM], expected[ROOM], got[ROOM];

/* Quiet and signalling NaNs with payloads, infinities, zeros, denormals and halfway cases, of all
 * the float types, among random bits. */
static void fill_source(struct rng *r) {
    static const uint64_t specials[] = {
        0x7f800001,         0xff800001,         0x7fc12345,         0x7fffffff,
        0xffffffff,         0x7f800000,         0xff800000,         0x00000000,
        0x80000000,         0x00000001,         0x807fffff,         0x3f808000,
        0x3f818000,         0x477fefff,         0x477ff000,         0x33000000,
        0x33000001,         0x387fe000,         0x7c017c01,         0xfc01fe55,
        0x03ff0001,         0x7f81ff81,         0x7ff0000000000001, 0x7ff0000020000000,
        0xfff4000000000000, 0x7ff8000000000000, 0x7ff0000000000000, 0x8000000000000000,
        0x0000000000000001, 0x47efffffefffffff, 0x47effffff0000000, 0x3690000000000001,
        0x3ff0080000000001, 0x3ff0100000000001, 0x36a0000000000000, 0x380fffffffffffff};
    for (size_t i = 0; i < ROOM; i += 8) {
        const uint64_t random = rng_next(r);
        uint64_t v = random;
        if (random >> 60 < 8)
            v = specials[random % (sizeof specials / sizeof *specials)];
        if (v >> 32 == 0)
            v |= v << 32;
        memcpy(source + i, &v, sizeof v);
    }
}

/* --- each against the portable one --- */

static void check_equal(const struct kind *kind, const char *what, size_t bytes) {
    if (memcmp(expected, got, bytes) != 0)
        fail_msg("%s: %s differs from the portable kernel", kind->name, what);
}

static void run_both(const struct kind *kind, const char *what,
                     void (*reference)(const struct ckpt_strip *),
                     void (*fast)(const struct ckpt_strip *), struct ckpt_strip s, int64_t shift) {
    const size_t bytes = (size_t)(s.n * kind->to) + 2 * GUARD + ALIGNMENTS;
    memset(expected, 0xa5, bytes);
    memset(got, 0xa5, bytes);
    s.map = &kind->map;
    s.out = expected + GUARD + shift;
    reference(&s);
    s.out = got + GUARD + shift;
    fast(&s);
    check_equal(kind, what, bytes);
}

static void check_run(const struct kind *kind, void (*reference)(const struct ckpt_strip *),
                      void (*fast)(const struct ckpt_strip *), struct rng *r) {
    for (int64_t n = 0; n < SIZES; n++)
        for (int64_t shift = 0; shift < ALIGNMENTS; shift++) {
            struct ckpt_strip s = {.src = source + rng_below(r, ROOM / 2) / 32 * 32 + shift,
                                   .src_stride = kind->from,
                                   .n = n};
            run_both(kind, "run", reference, fast, s, rng_below(r, ALIGNMENTS));
            s.src = source + rng_below(r, ROOM / 2);
            run_both(kind, "run", reference, fast, s, shift);
        }
}

static void check_strided(const struct kind *kind, void (*reference)(const struct ckpt_strip *),
                          void (*fast)(const struct ckpt_strip *), struct rng *r) {
    for (int64_t n = 0; n < SIZES; n++)
        for (int64_t stride = -40; stride <= 40; stride++) {
            const struct ckpt_strip s = {
                .src = source + ROOM / 2 + rng_below(r, 64), .src_stride = stride, .n = n};
            run_both(kind, "strided", reference, fast, s, rng_below(r, ALIGNMENTS));
        }
}

/* Rows anywhere, forwards and backwards; output rows apart, or one right behind the other. */
static void check_tile(const struct kind *kind, void (*reference)(const struct ckpt_tile *),
                       void (*fast)(const struct ckpt_tile *), int64_t rows, int64_t cols,
                       struct rng *r) {
    for (int64_t i = 0; i < 4 * ALIGNMENTS * ALIGNMENTS; i++) {
        int64_t row[CKPT_TILE];
        for (int64_t k = 0; k < rows; k++)
            row[k] = rng_below(r, ROOM / 2) - ROOM / 4;
        struct ckpt_tile t = {.src = source + ROOM / 2 + i % ALIGNMENTS,
                              .row = row,
                              .nrows = rows,
                              .ncols = cols,
                              .col_stride = kind->from,
                              .out_stride = rows * kind->to + (i % 3 ? rng_below(r, 100) : 0),
                              .map = &kind->map};
        const int64_t shift = GUARD + i / ALIGNMENTS % ALIGNMENTS;
        const size_t bytes = (size_t)(cols * t.out_stride + shift) + GUARD;
        memset(expected, 0xa5, bytes);
        memset(got, 0xa5, bytes);
        t.out = expected + shift;
        reference(&t);
        t.out = got + shift;
        fast(&t);
        check_equal(kind, "tile", bytes);
    }
}

static void check_kind(const struct kind *kind, const struct ckpt_kernel *reference,
                       const struct ckpt_kernel *fast, struct rng *r) {
    if (fast->run)
        check_run(kind, reference->run, fast->run, r);
    if (fast->strided)
        check_strided(kind, reference->strided, fast->strided, r);
    if (fast->tile)
        for (int64_t rows = 1; rows <= CKPT_TILE; rows++)
            check_tile(kind, reference->tile, fast->tile, rows, 1 + rng_below(r, CKPT_TILE), r);
    if (fast->tile_full)
        check_tile(kind, reference->tile, fast->tile_full, CKPT_TILE, CKPT_TILE, r);
}

static void avx2_equals_portable(void **state) {
    (void)state;
    if (!ckpt_cpu()->avx2)
        skip();
    struct rng r = rng_seeded("avx2_equals_portable");
    fill_source(&r);
    for (int k = 0; k < CKPT_KERNEL_COUNT; k++)
        check_kind(&kinds[k], &ckpt_kernels_scalar[k], &ckpt_kernels_avx2[k], &r);
}

/* The portable table is complete, and each of its kernels does what the naive rule says. */
static void portable_equals_the_rule(void **state) {
    (void)state;
    struct rng r = rng_seeded("portable_equals_the_rule");
    fill_source(&r);
    for (int k = 0; k < CKPT_KERNEL_COUNT; k++) {
        const struct ckpt_kernel *const kernel = &ckpt_kernels_scalar[k];
        assert_true(kinds[k].name && kernel->run && kernel->strided && kernel->tile);
        check_run(&kinds[k], kernel->strided, kernel->run, &r);
    }
}

/* --- casts against arithmetic --- */

#define BATCH 4096

/* Both tables' casts of n elements, and what they should give (NaNs, which arithmetic says nothing
 * of, by the naive rule). */
static void check_cast(enum ckpt_dtype from, enum ckpt_dtype to, const void *in, const void *want,
                       int64_t n) {
    const struct ckpt_element_map map = {.from = from, .to = to};
    const uint32_t size = ckpt_dtype_info(from)->unit_bytes,
                   to_size = ckpt_dtype_info(to)->unit_bytes;
    for (int avx2 = 0; avx2 <= (ckpt_cpu()->avx2 ? 1 : 0); avx2++) {
        const struct ckpt_kernel k = ckpt_kernel_choose(&map, size, avx2);
        k.run(&(struct ckpt_strip){in, size, got, n, &map});
        if (memcmp(got, want, (size_t)n * to_size) == 0)
            continue;
        for (int64_t i = 0; i < n; i++)
            if (memcmp(got + i * to_size, (const char *)want + i * to_size, to_size) != 0)
                fail_msg("avx2=%d %s to %s: element %lld of its batch", avx2,
                         ckpt_dtype_info(from)->name, ckpt_dtype_info(to)->name, (long long)i);
    }
}

static float f32_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void by_rule(enum ckpt_dtype from, enum ckpt_dtype to, const void *in, void *out) {
    ckpt_element_convert(&(struct ckpt_element_map){.from = from, .to = to}, in, out);
}

/* What the bits of an F16 mean. */
static float f16_by_arithmetic(uint16_t h) {
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const double size = exponent == 31  ? INFINITY
                        : exponent == 0 ? ldexp(mantissa, -24)
                                        : ldexp(1024 + mantissa, exponent - 25);
    return (float)(h & 0x8000 ? -size : size);
}

static void all_16_bit_patterns(void **state) {
    (void)state;
    static uint16_t in[BATCH];
    static float from_f16[BATCH], from_bf16[BATCH];
    for (uint32_t first = 0; first < 65536; first += BATCH) {
        for (uint32_t i = 0; i < BATCH; i++) {
            const uint16_t h = (uint16_t)(first + i);
            in[i] = h;
            from_f16[i] = f16_by_arithmetic(h);
            from_bf16[i] = f32_of_bits((uint32_t)h << 16);
            if ((h & 0x7c00) == 0x7c00 && h & 0x3ff)
                by_rule(CKPT_DT_F16, CKPT_DT_F32, &h, &from_f16[i]);
        }
        check_cast(CKPT_DT_F16, CKPT_DT_F32, in, from_f16, BATCH);
        check_cast(CKPT_DT_BF16, CKPT_DT_F32, in, from_bf16, BATCH);
    }
}

/* The nearest F16, ties to the even one: rint in units of the last place. */
static uint16_t nearest_f16(float f) {
    const uint16_t sign = signbit(f) ? 0x8000 : 0;
    const double size = fabs((double)f);
    if (size == 0 || size >= 65520)
        return size > 0 ? sign | 0x7c00 : sign;
    int exponent;
    frexp(size, &exponent); /* size < 2^exponent */
    const int unit = exponent < -13 ? -24 : exponent - 11;
    const double n = rint(ldexp(size, -unit));
    return (uint16_t)(sign | (unit == -24 ? (int)n : (unit + 24) * 1024 + (int)n));
}

static uint16_t nearest_bf16(float f) {
    const uint16_t sign = signbit(f) ? 0x8000 : 0;
    const double size = fabs((double)f);
    if (size == 0 || isinf(f))
        return size > 0 ? sign | 0x7f80 : sign;
    int exponent;
    frexp(size, &exponent);
    const int unit = exponent < -125 ? -133 : exponent - 8;
    const double n = rint(ldexp(size, -unit));
    return (uint16_t)(sign | (unit == -133 ? (int)n : (unit + 133) * 128 + (int)n));
}

/* All exponents and signs, all upper mantissas of F16, and below them what decides the rounding. */
static void f32_to_16_bits(void **state) {
    (void)state;
    static const uint32_t below[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x8000, 0x17fff};
    static uint32_t in[BATCH];
    static uint16_t f16[BATCH], bf16[BATCH];
    int64_t n = 0;
    for (uint32_t top = 0; top < 1u << 19; top += 3)
        for (size_t b = 0; b < sizeof below / sizeof *below; b++) {
            const uint32_t bits = (top << 13) ^ below[b];
            const float f = f32_of_bits(bits);
            in[n] = bits;
            f16[n] = isnan(f) ? 0 : nearest_f16(f);
            bf16[n] = isnan(f) ? 0 : nearest_bf16(f);
            if (isnan(f)) {
                by_rule(CKPT_DT_F32, CKPT_DT_F16, &bits, &f16[n]);
                by_rule(CKPT_DT_F32, CKPT_DT_BF16, &bits, &bf16[n]);
            }
            if (++n < BATCH)
                continue;
            check_cast(CKPT_DT_F32, CKPT_DT_F16, in, f16, n);
            check_cast(CKPT_DT_F32, CKPT_DT_BF16, in, bf16, n);
            n = 0;
        }
}

/* All exponents of F64, with mantissas at random and at ties of F32. */
static void f64_to_the_others(void **state) {
    (void)state;
    struct rng r = rng_seeded("f64_to_the_others");
    static const enum ckpt_dtype to[] = {CKPT_DT_F32, CKPT_DT_F16, CKPT_DT_BF16};
    static uint64_t in[BATCH];
    static uint8_t want[BATCH * 4];
    for (uint64_t top = 0; top < 4096; top += BATCH / 16) {
        for (uint64_t i = 0; i < BATCH; i++) {
            const uint64_t random = rng_next(&r) >> 12;
            in[i] =
                (top + i / 16) << 52 | (i % 4 == 0   ? random & ~UINT64_C(0xfffffff)
                                        : i % 4 == 1 ? random | 0xfffffff
                                        : i % 4 == 2 ? (random & ~UINT64_C(0x1fffffff)) | 0x10000000
                                                     : random);
        }
        for (int t = 0; t < 3; t++) {
            const uint32_t size = ckpt_dtype_info(to[t])->unit_bytes;
            for (uint32_t i = 0; i < BATCH; i++)
                by_rule(CKPT_DT_F64, to[t], &in[i], want + i * size);
            check_cast(CKPT_DT_F64, to[t], in, want, BATCH);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(avx2_equals_portable), cmocka_unit_test(portable_equals_the_rule),
        cmocka_unit_test(all_16_bit_patterns),  cmocka_unit_test(f32_to_16_bits),
        cmocka_unit_test(f64_to_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
