/*
 * Gather against a naive loop: random walks, element sizes, element maps, ranges and alignments;
 * the portable and the AVX2 kernels must both give the same bytes. Casts against values recorded
 * from PyTorch.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "adapters/gather_kernels.h"
#include "adapters/view_cut.h"
#include "base/cleanup.h"
#include "base/cpu.h"
#include "random.h"

#define SOURCE_BYTES (1 << 20)
#define COUNT_MOST 20000
#define CASES 6000

#define RESULT_BYTES (1 << 20)

static uint8_t source[SOURCE_BYTES], expected[RESULT_BYTES], got[RESULT_BYTES + 128];

/* Bytes that are often infinities, NaNs with payloads, denormals and halfway cases. */
static void fill_source(struct rng *r) {
    static const uint64_t specials[] = {
        0x7f800001, 0xff800001, 0x7fc12345, 0xffffffff, 0x7f800000, 0x00000001, 0x80008000,
        0x3f808000, 0x3f818000, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x387fe000,
        0x7c017c01, 0xfc01fe55, 0x03ff0001, 0x7f81ff81, 0x7ff00000, 0xfff00000, 0x7ff80000,
        0x47efffff, 0x36a00000, 0x38100000, 0x3ff01000, 0x3f800000, 0xc0490fdb,
    };
    for (size_t i = 0; i < SOURCE_BYTES; i += 4) {
        const uint64_t random = rng_next(r);
        const uint32_t v = random >> 60 < 6 ? (uint32_t)specials[random % 27] : (uint32_t)random;
        memcpy(source + i, &v, 4);
    }
}

/* --- random walks inside the source --- */

static int64_t random_size(struct rng *r, int64_t most) {
    const int64_t any = 2 + rng_below(r, rng_below(r, 4) ? 9 : 200);
    return any < most ? any : most;
}

/* Either the strides of some dense tensor in a random order, maybe stepped or flipped, or anything.
 */
static void random_strides(struct rng *r, struct ckpt_view *v) {
    uint32_t order[CKPT_WALK_MAX];
    for (uint32_t i = 0; i < v->npairs; i++)
        order[i] = i;
    for (uint32_t i = v->npairs; i > 1; i--) {
        const uint32_t k = (uint32_t)rng_below(r, i), t = order[k];
        order[k] = order[i - 1];
        order[i - 1] = t;
    }
    int64_t dense = v->esize * (rng_below(r, 5) ? 1 : 1 + rng_below(r, 3));
    const bool odd = rng_below(r, 8) == 0;
    for (uint32_t i = 0; i < v->npairs; i++) {
        struct ckpt_dim *const p = &v->pair[order[i]];
        p->stride = odd ? rng_below(r, 500) : dense;
        dense *= p->size;
        dense += rng_below(r, 6) ? 0 : v->esize * rng_below(r, 5);
        if (rng_below(r, 8) == 0)
            p->stride = rng_below(r, 3) ? -p->stride : 0;
    }
}

/* Places the walk at random where all of it lies in the source; false if it is too wide. */
static bool place(struct rng *r, struct ckpt_view *v) {
    int64_t low = 0, high = v->esize;
    for (uint32_t i = 0; i < v->npairs; i++) {
        const int64_t reach = (v->pair[i].size - 1) * v->pair[i].stride;
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    if (high - low > SOURCE_BYTES)
        return false;
    v->offset = rng_below(r, SOURCE_BYTES - (high - low) + 1) - low;
    return true;
}

static struct ckpt_walk *random_walk(struct rng *r, struct ckpt_arena *a, uint32_t esize) {
    for (;;) {
        struct ckpt_view v = {.esize = esize, .unit_elements = 1, .ndim = 1};
        int64_t count = 1;
        const int64_t pairs = rng_below(r, 6);
        for (int64_t i = 0; i < pairs && COUNT_MOST / count >= 2; i++) {
            v.pair[v.npairs].size = random_size(r, COUNT_MOST / count);
            count *= v.pair[v.npairs++].size;
        }
        random_strides(r, &v);
        ckpt_view_set_pairs(&v, v.pair, v.npairs);
        v.shape[0] = count;
        if (place(r, &v))
            return ckpt_walk_pack(a, &v);
    }
}

/* --- random maps --- */

static struct ckpt_element_map random_map(struct rng *r, uint32_t *esize) {
    static const enum ckpt_dtype floats[] = {CKPT_DT_F16, CKPT_DT_BF16, CKPT_DT_F32, CKPT_DT_F64};
    static const enum ckpt_dtype any[] = {
        CKPT_DT_U8,  CKPT_DT_F8_E4M3, CKPT_DT_I16,  CKPT_DT_F16, CKPT_DT_F32,    CKPT_DT_I64,
        CKPT_DT_C32, CKPT_DT_C64,     CKPT_DT_C128, CKPT_DT_F64, CKPT_DT_F6_E2M3};
    struct ckpt_element_map m = {0};
    if (rng_below(r, 2)) {
        m.from = floats[rng_below(r, 4)];
        m.to = floats[rng_below(r, 4)];
    } else {
        m.from = m.to = any[rng_below(r, 11)];
    }
    const enum ckpt_dtype_class cls = ckpt_dtype_info(m.from)->cls;
    if (rng_below(r, 4) == 0) {
        m.swap = rng_below(r, 2);
        m.neg = (cls == CKPT_CLASS_FLOAT || cls == CKPT_CLASS_COMPLEX) && rng_below(r, 2);
        m.conj = cls == CKPT_CLASS_COMPLEX && rng_below(r, 2);
    }
    *esize = ckpt_dtype_info(m.from)->unit_bytes;
    return m;
}

static const uint8_t *element_at(const struct ckpt_walk *w, int64_t i) {
    int64_t offset = w->offset;
    for (uint32_t p = w->npairs; p-- > 0; i /= w->pair[p].size)
        offset += i % w->pair[p].size * w->pair[p].stride;
    return source + offset;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void check_range(const struct ckpt_walk *w, const struct ckpt_element_map *map,
                        int64_t first, int64_t n, bool avx2, size_t shift) {
    const uint32_t size = ckpt_map_out_bytes(map, w->esize);
    uint8_t *const out = got + 32 + shift;
    for (int64_t i = 0; i < n; i++)
        ckpt_element_convert(map, element_at(w, first + i), expected + i * size);
    memset(got, 0xa5, 32 + shift);
    memset(out + n * size, 0xa5, 32);
    assert_true(ckpt_gather_with(avx2, w, map, source, first, n, out, NULL));
    if (memcmp(out, expected, (size_t)(n * size)) != 0)
        fail_msg("avx2=%d range [%lld, +%lld) of %lld, %u pairs, from %s to %s", avx2,
                 (long long)first, (long long)n, (long long)w->count, w->npairs,
                 ckpt_dtype_info(map->from)->name, ckpt_dtype_info(map->to)->name);
    for (size_t i = 0; i < 32; i++)
        assert_true(got[i + shift] == 0xa5 && out[(size_t)(n * size) + i] == 0xa5);
}

static void test_random_walks(void **state) {
    (void)state;
    struct rng r = rng_seeded("test_random_walks");
    fill_source(&r);
    for (int i = 0; i < CASES; i++) {
        CKPT_AUTO(arena) struct ckpt_arena a = {0};
        uint32_t esize;
        const struct ckpt_element_map map = random_map(&r, &esize);
        const struct ckpt_walk *const w = random_walk(&r, &a, esize);
        for (int k = 0; k < 3; k++) {
            const int64_t first = k == 0 ? 0 : rng_below(&r, w->count);
            const int64_t n = k == 0 ? w->count : 1 + rng_below(&r, w->count - first);
            check_range(w, &map, first, n, false, (size_t)rng_below(&r, 32));
            if (ckpt_cpu()->avx2)
                check_range(w, &map, first, n, true, (size_t)rng_below(&r, 32));
        }
    }
}

/* Output rows a multiple of 4 KiB apart, which go by way of a buffer: every pair of types, odd
 * numbers of columns, rows that lie forwards and backwards, more rows than blocks hold. */
static void test_rows_of_pages(void **state) {
    (void)state;
    static const enum ckpt_dtype types[] = {CKPT_DT_U8,  CKPT_DT_F16,  CKPT_DT_BF16,   CKPT_DT_F32,
                                            CKPT_DT_F64, CKPT_DT_C128, CKPT_DT_F6_E2M3};
    struct rng r = rng_seeded("test_rows_of_pages");
    fill_source(&r);
    for (int i = 0; i < 49 * 3; i++) {
        const enum ckpt_dtype from = types[i % 7], to = types[i / 7 % 7];
        const bool floats = i % 7 >= 1 && i % 7 <= 4 && i / 7 % 7 >= 1 && i / 7 % 7 <= 4;
        const struct ckpt_element_map map = {.from = from, .to = floats ? to : from};
        const uint32_t esize = ckpt_dtype_info(from)->unit_bytes;
        const int64_t pages = esize == 3 ? 3 : 1 + rng_below(&r, 2);
        const int64_t rows = 4096 * pages / ckpt_map_out_bytes(&map, esize);
        const int64_t cols = 1 + rng_below(&r, least(80, SOURCE_BYTES / esize / rows));
        struct ckpt_view v = {.esize = esize, .unit_elements = 1, .ndim = 1, .npairs = 2};
        const int64_t size = esize;
        v.pair[0] = (struct ckpt_dim){cols, rng_below(&r, 4) ? size : -size};
        v.pair[1] = (struct ckpt_dim){rows, rng_below(&r, 2) ? cols * size : -cols * size};
        v.shape[0] = cols * rows;
        CKPT_AUTO(arena) struct ckpt_arena a = {0};
        assert_true(place(&r, &v));
        const struct ckpt_walk *const w = ckpt_walk_pack(&a, &v);
        for (int avx2 = 0; avx2 <= (ckpt_cpu()->avx2 ? 1 : 0); avx2++)
            check_range(w, &map, 0, w->count, avx2, (size_t)rng_below(&r, 32));
    }
}

/* All 65536 16-bit patterns, and as many of the wider types, through every cast: the SIMD runs
 * equal the naive rule. */
static void test_casts_every_kernel(void **state) {
    (void)state;
    static const enum ckpt_dtype floats[] = {CKPT_DT_F16, CKPT_DT_BF16, CKPT_DT_F32, CKPT_DT_F64};
    struct rng r = rng_seeded("test_casts_every_kernel");
    fill_source(&r);
    for (uint32_t i = 0; i < 65536; i++)
        memcpy(source + 2 * i, &(uint16_t){(uint16_t)i}, 2);
    for (int k = 0; k < 16; k++) {
        const struct ckpt_element_map map = {.from = floats[k / 4], .to = floats[k % 4]};
        const uint32_t esize = ckpt_dtype_info(map.from)->unit_bytes;
        CKPT_AUTO(arena) struct ckpt_arena a = {0};
        struct ckpt_view v = {.esize = esize,
                              .unit_elements = 1,
                              .ndim = 1,
                              .npairs = 1,
                              .shape = {65536},
                              .pair = {{65536, esize}}};
        const struct ckpt_walk *const w = ckpt_walk_pack(&a, &v);
        for (int64_t first = 0; first < 65536; first += 16384) {
            check_range(w, &map, first, 16384, false, 0);
            if (ckpt_cpu()->avx2)
                check_range(w, &map, first, 16384, true, 0);
        }
    }
}

/* --- casts as PyTorch 2 does them (recorded on x86-64) --- */

struct cast_case {
    enum ckpt_dtype from, to;
    uint64_t in, out;
};

static const struct cast_case torch_casts[] = {
    /* nearest even, overflow, denormals */
    {CKPT_DT_F32, CKPT_DT_BF16, 0x3f808000, 0x3f80},
    {CKPT_DT_F32, CKPT_DT_BF16, 0x3f818000, 0x3f82},
    {CKPT_DT_F32, CKPT_DT_BF16, 0x3f808001, 0x3f81},
    {CKPT_DT_F32, CKPT_DT_BF16, 0x7f7fffff, 0x7f80},
    {CKPT_DT_F32, CKPT_DT_BF16, 0x00008000, 0x0000},
    {CKPT_DT_F32, CKPT_DT_BF16, 0x80018000, 0x8002},
    {CKPT_DT_F32, CKPT_DT_F16, 0x477fefff, 0x7bff},
    {CKPT_DT_F32, CKPT_DT_F16, 0x477ff000, 0x7c00},
    {CKPT_DT_F32, CKPT_DT_F16, 0x33000000, 0x0000},
    {CKPT_DT_F32, CKPT_DT_F16, 0x33000001, 0x0001},
    {CKPT_DT_F32, CKPT_DT_F16, 0x38800000, 0x0400},
    {CKPT_DT_F32, CKPT_DT_F16, 0x387fe000, 0x0400},
    {CKPT_DT_F64, CKPT_DT_F32, 0x47efffffefffffff, 0x7f7fffff},
    {CKPT_DT_F64, CKPT_DT_F32, 0x47effffff0000000, 0x7f800000},
    {CKPT_DT_F64, CKPT_DT_F32, 0x3690000000000000, 0x00000000},
    {CKPT_DT_F64, CKPT_DT_F32, 0x3690000000000001, 0x00000001},
    /* twice rounded: through F32 */
    {CKPT_DT_F64, CKPT_DT_F16, 0x3ff0080000000001, 0x3c02},
    {CKPT_DT_F64, CKPT_DT_BF16, 0x3ff0100000000001, 0x3f80},
    {CKPT_DT_F64, CKPT_DT_F16, 0x7fefffffffffffff, 0x7c00},
    {CKPT_DT_F64, CKPT_DT_BF16, 0x47efffffefffffff, 0x7f80},
    /* NaN */
    {CKPT_DT_F32, CKPT_DT_F16, 0xff800001, 0xfe00},
    {CKPT_DT_F32, CKPT_DT_F16, 0xffc12345, 0xfe09},
    {CKPT_DT_F64, CKPT_DT_F32, 0xfff0000020000000, 0xffc00001},
    {CKPT_DT_F16, CKPT_DT_F32, 0x7c01, 0x7fc02000},
    {CKPT_DT_F16, CKPT_DT_F64, 0xfc01, 0xfff8040000000000},
    {CKPT_DT_BF16, CKPT_DT_F32, 0x7f81, 0x7f810000},
    {CKPT_DT_BF16, CKPT_DT_F64, 0xff81, 0xfff8200000000000},
    /* Not torch's: it writes one NaN (0x7fc0 or 0xffff, by code path); burn's `half` keeps the sign
     * and the payload, and so do we. */
    {CKPT_DT_F32, CKPT_DT_BF16, 0xff800001, 0xffc0},
    {CKPT_DT_F32, CKPT_DT_BF16, 0x7fe12345, 0x7fe1},
    {CKPT_DT_F64, CKPT_DT_BF16, 0xfff0000020000000, 0xffc0},
};

static void test_torch_casts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof torch_casts / sizeof *torch_casts; i++) {
        const struct cast_case *const c = &torch_casts[i];
        const struct ckpt_element_map map = {.from = c->from, .to = c->to};
        uint64_t out = 0;
        ckpt_element_convert(&map, (const uint8_t *)&c->in, (uint8_t *)&out);
        if (out != c->out)
            fail_msg("case %zu: %llx became %llx, expected %llx", i, (unsigned long long)c->in,
                     (unsigned long long)out, (unsigned long long)c->out);
    }
}

static void test_swap_and_signs(void **state) {
    (void)state;
    const uint8_t in[16] = {0, 1, 2, 3, 4, 5, 6, 7};
    uint8_t out[16];
    ckpt_element_convert(
        &(struct ckpt_element_map){.from = CKPT_DT_C64, .to = CKPT_DT_C64, .swap = true}, in, out);
    assert_memory_equal(out, ((uint8_t[]){3, 2, 1, 0, 7, 6, 5, 4}), 8);
    ckpt_element_convert(
        &(struct ckpt_element_map){.from = CKPT_DT_C64, .to = CKPT_DT_C64, .conj = true}, in, out);
    assert_memory_equal(out, ((uint8_t[]){0, 1, 2, 3, 4, 5, 6, 0x87}), 8);
    ckpt_element_convert(
        &(struct ckpt_element_map){
            .from = CKPT_DT_C64, .to = CKPT_DT_C64, .conj = true, .neg = true},
        in, out);
    assert_memory_equal(out, ((uint8_t[]){0, 1, 2, 0x83, 4, 5, 6, 7}), 8);
    /* big-endian 1.0 to F16, negated */
    const uint8_t one[4] = {0x3f, 0x80, 0, 0};
    ckpt_element_convert(
        &(struct ckpt_element_map){
            .from = CKPT_DT_F32, .to = CKPT_DT_F16, .swap = true, .neg = true},
        one, out);
    assert_memory_equal(out, ((uint8_t[]){0x00, 0xbc}), 2);
}

static bool stop_at_once(void *arg) {
    (*(int *)arg)++;
    return true;
}

static void test_stop(void **state) {
    (void)state;
    CKPT_AUTO(arena) struct ckpt_arena a = {0};
    struct ckpt_view v = {.esize = 4,
                          .unit_elements = 1,
                          .ndim = 1,
                          .npairs = 2,
                          .shape = {1 << 20},
                          .pair = {{1024, 4}, {1024, 256}}};
    const struct ckpt_walk *const w = ckpt_walk_pack(&a, &v);
    const struct ckpt_element_map map = {.from = CKPT_DT_F32, .to = CKPT_DT_F32};
    uint8_t *const out = malloc(4 << 20);
    int asked = 0;
    assert_false(ckpt_gather_until(w, &map, source, 0, w->count, out,
                                   &(struct ckpt_stop){.ask = stop_at_once, .arg = &asked}));
    assert_int_equal(asked, 1);
    free(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch_casts),   cmocka_unit_test(test_swap_and_signs),
        cmocka_unit_test(test_random_walks),  cmocka_unit_test(test_casts_every_kernel),
        cmocka_unit_test(test_rows_of_pages), cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
