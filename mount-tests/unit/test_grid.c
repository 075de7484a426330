/* Grids of chunks against the same array in one piece: random shapes, chunks, layouts in a chunk,
 * missing chunks, views, casts and ranges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/grid_gather.h"
#include "base/cleanup.h"
#include "property.h"

#define NDIM_MOST 5
#define SIZE_MOST 20000

/* An array, whole and as a grid. */
struct toy {
    struct ckpt_arena arena;
    struct ckpt_decoded_cache *cache;
    struct ckpt_chunk_grid grid;
    int64_t shape[NDIM_MOST], chunk[NDIM_MOST], count[NDIM_MOST], stride[NDIM_MOST];
    uint8_t fill[16];
    uint8_t *flat;
    uint64_t bytes, chunk_bytes;
    size_t decoded;
};

/* Fills a chunk, whose number is its value's offset, from the flat array; what lies beyond its edge
 * is junk. */
static int decode(const void *codec, const struct ckpt_stored *value, uint8_t *out,
                  const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct toy *const t = (struct toy *)(uintptr_t)codec;
    const struct ckpt_chunk_grid *const g = &t->grid;
    (void)stop;
    (void)err;
    t->decoded++;
    memset(out, 0xee, t->chunk_bytes);
    int64_t start[NDIM_MOST];
    uint64_t number = value->offset;
    for (uint32_t d = g->ndim; d-- > 0; number /= (uint64_t)t->count[d])
        start[d] = (int64_t)(number % (uint64_t)t->count[d]) * t->chunk[d];
    for (uint64_t i = 0; i < t->chunk_bytes / g->esize; i++) {
        uint64_t rest = i;
        int64_t from = 0, to = 0, dense = g->esize;
        bool inside = true;
        for (uint32_t d = g->ndim; d-- > 0; rest /= (uint64_t)t->chunk[d]) {
            const int64_t index = (int64_t)(rest % (uint64_t)t->chunk[d]);
            inside = inside && start[d] + index < t->shape[d];
            from += (start[d] + index) * dense;
            to += index * t->stride[d];
            dense *= t->shape[d];
        }
        if (inside)
            memcpy(out + to, t->flat + from, g->esize);
    }
    return 0;
}

static const struct ckpt_chunk_ops ops = {.decode = decode};

/* A random order of the axes in a chunk. */
static void lay_out(struct toy *t, uint32_t ndim, uint32_t esize) {
    uint32_t order[NDIM_MOST];
    int64_t stride = esize;
    for (uint32_t d = 0; d < ndim; d++)
        order[d] = d;
    for (uint32_t d = 0; d < ndim; d++) {
        const uint32_t other = d + (uint32_t)property_below(ndim - d), kept = order[d];
        order[d] = order[other];
        order[other] = kept;
        t->stride[order[d]] = stride;
        stride *= t->chunk[order[d]];
    }
}

static void put_fill(struct toy *t, uint64_t number) {
    const struct ckpt_chunk_grid *const g = &t->grid;
    for (uint64_t i = 0; i < t->bytes / g->esize; i++) {
        uint64_t rest = i, in = 0, step = 1;
        for (uint32_t d = g->ndim; d-- > 0; rest /= (uint64_t)t->shape[d]) {
            in += (uint64_t)((int64_t)(rest % (uint64_t)t->shape[d]) / t->chunk[d]) * step;
            step *= (uint64_t)t->count[d];
        }
        if (in == number)
            memcpy(t->flat + i * g->esize, t->fill, g->esize);
    }
}

/* The shape and the chunks' are set. One chunk of so many is missing; 0: none. */
static void fill_toy(struct toy *t, uint32_t ndim, uint32_t esize, uint64_t missing) {
    uint64_t chunks = 1;
    t->bytes = t->chunk_bytes = esize;
    for (uint32_t d = 0; d < ndim; d++) {
        t->count[d] = (t->shape[d] + t->chunk[d] - 1) / t->chunk[d];
        chunks *= (uint64_t)t->count[d];
        t->bytes *= (uint64_t)t->shape[d];
        t->chunk_bytes *= (uint64_t)t->chunk[d];
    }
    lay_out(t, ndim, esize);
    t->flat = malloc(t->bytes);
    for (uint64_t i = 0; i < t->bytes; i++)
        t->flat[i] = (uint8_t)property_u64();
    for (size_t i = 0; i < sizeof t->fill; i++)
        t->fill[i] = (uint8_t)(0x11 * (i % 4));
    struct ckpt_chunk *const list = ckpt_arena_array(&t->arena, chunks, sizeof *list);
    t->grid = (struct ckpt_chunk_grid){.ndim = ndim,
                                       .esize = esize,
                                       .shape = t->shape,
                                       .chunk = t->chunk,
                                       .count = t->count,
                                       .stride = t->stride,
                                       .fill = t->fill,
                                       .chunks = list,
                                       .ops = &ops,
                                       .codec = t};
    for (uint64_t i = 0; i < chunks; i++)
        if (missing == 0 || property_below(missing))
            list[t->grid.nchunks++] = (struct ckpt_chunk){.number = i, .value = {.offset = i}};
        else
            put_fill(t, i);
    assert_int_equal(ckpt_chunk_grid_init(&t->grid, t->chunk_bytes, false, t->cache, "toy", NULL),
                     0);
    assert_int_equal(t->grid.blob.size, t->bytes);
}

static void make_toy(struct toy *t, uint32_t esize) {
    uint64_t total = 1;
    memset(t, 0, sizeof *t);
    const uint32_t ndim = (uint32_t)property_below(NDIM_MOST + 1);
    for (uint32_t d = 0; d < ndim; d++) {
        t->shape[d] = 1 + (int64_t)property_below(property_below(3) ? 12 : 60);
        if (total * (uint64_t)t->shape[d] > SIZE_MOST)
            t->shape[d] = 1;
        total *= (uint64_t)t->shape[d];
        t->chunk[d] = 1 + (int64_t)property_below((uint64_t)t->shape[d] + 2);
    }
    assert_int_equal(ckpt_decoded_cache_new((uint64_t)256 << property_below(12), &t->cache, NULL),
                     0);
    fill_toy(t, ndim, esize, 5);
}

static void free_toy(struct toy *t) {
    t->grid.blob.ops->fini(&t->grid.blob);
    ckpt_decoded_cache_free(t->cache);
    ckpt_arena_fini(&t->arena);
    free(t->flat);
}

/* --- views ------------------------------------------------------------------------------------ */

/* One random operation, which may be refused. */
static void change(struct ckpt_view *v) {
    const uint32_t n = v->ndim, d = n ? (uint32_t)property_below(n) : 0;
    uint32_t order[CKPT_NDIM_MAX];
    int64_t shape[2];
    int rc = 0;
    switch (property_below(5)) {
    case 0:
        for (uint32_t i = 0; i < n; i++)
            order[i] = (i + d) % n;
        rc = ckpt_view_permute(v, order, n, NULL);
        break;
    case 1:
        if (n) {
            const int64_t start = (int64_t)property_below((uint64_t)v->shape[d]);
            const int64_t step = 1 + (int64_t)property_below(3);
            const int64_t most = (v->shape[d] - start + step - 1) / step;
            rc = ckpt_view_slice(v, d, start, 1 + (int64_t)property_below((uint64_t)most), step,
                                 NULL);
        }
        break;
    case 2:
        rc = n ? ckpt_view_flip(v, d, NULL) : 0;
        break;
    case 3:
        shape[0] = -1;
        rc = ckpt_view_reshape(v, shape, 1, NULL);
        break;
    default:
        shape[0] = 1 + (int64_t)property_below(4);
        shape[1] = -1;
        rc = ckpt_view_reshape(v, shape, 2, NULL);
        break;
    }
    (void)rc;
}

static struct ckpt_walk *make_walk(struct toy *t, enum ckpt_dtype dtype) {
    const struct ckpt_tensor tensor = {.key = CKPT_TEXT("t"),
                                       .dtype = dtype,
                                       .ndim = t->grid.ndim,
                                       .shape = t->shape,
                                       .blob = &t->grid.blob};
    struct ckpt_view v;
    assert_int_equal(ckpt_view_init(&v, &tensor, NULL), 0);
    for (uint64_t i = property_below(6); i > 0; i--)
        change(&v);
    return ckpt_walk_pack(&t->arena, &v);
}

/* The imaginary or real parts of complex numbers. */
static void take_halves(struct ckpt_walk *w) {
    w->esize /= 2;
    w->offset += property_below(2) ? w->esize : 0;
}

static void check_walk(struct toy *t, const struct ckpt_walk *w,
                       const struct ckpt_element_map *map) {
    const uint32_t out_bytes = ckpt_map_out_bytes(map, w->esize);
    const size_t room = (size_t)w->count * out_bytes;
    CKPT_AUTO(free) uint8_t *want = malloc(room + 1);
    CKPT_AUTO(free) uint8_t *got = malloc(room + 1);
    for (int i = 0; i < 4; i++) {
        const int64_t first = (int64_t)property_below((uint64_t)w->count);
        const int64_t n = i ? 1 + (int64_t)property_below((uint64_t)(w->count - first)) : w->count;
        ckpt_gather(w, map, t->flat, i ? first : 0, n, want);
        memset(got, 0xaa, room + 1);
        assert_int_equal(ckpt_grid_gather(&t->grid, w, map, i ? first : 0, n, got, NULL, NULL), 0);
        assert_memory_equal(got, want, (size_t)n * out_bytes);
        assert_int_equal(got[(size_t)n * out_bytes], 0xaa);
    }
}

static void check_pins(struct toy *t) {
    struct ckpt_blob *const b = &t->grid.blob;
    for (int i = 0; i < 4; i++) {
        struct ckpt_pin pin;
        const uint64_t lo = i ? property_below(t->bytes) : 0;
        const uint64_t hi = i ? lo + property_below(t->bytes - lo + 1) : t->bytes;
        assert_int_equal(b->ops->pin(b, lo, hi, &pin, NULL, NULL), 0);
        assert_memory_equal(pin.data, t->flat + lo, hi - lo);
        b->ops->unpin(b, &pin);
    }
    struct ckpt_pin none;
    assert_int_equal(b->ops->pin(b, 0, t->bytes + 1, &none, NULL, NULL), -EINVAL);
}

static void test_random(void **state) {
    static const struct {
        enum ckpt_dtype from, to;
    } casts[] = {{CKPT_DT_U8, CKPT_DT_U8},   {CKPT_DT_BF16, CKPT_DT_BF16},
                 {CKPT_DT_I32, CKPT_DT_I32}, {CKPT_DT_F64, CKPT_DT_F64},
                 {CKPT_DT_C64, CKPT_DT_C64}, {CKPT_DT_C128, CKPT_DT_C128},
                 {CKPT_DT_F32, CKPT_DT_F16}, {CKPT_DT_BF16, CKPT_DT_F32}};
    (void)state;
    property_begin("grid");
    for (int i = 0; i < 200; i++) {
        struct toy t;
        const size_t c = property_below(sizeof casts / sizeof *casts);
        const bool swaps = property_below(4) == 0;
        struct ckpt_element_map map = {.from = casts[c].from, .to = casts[c].to, .swap = swaps};
        make_toy(&t, ckpt_dtype_info(map.from)->unit_bytes);
        struct ckpt_walk *const w = make_walk(&t, map.from);
        if (map.from == CKPT_DT_C64 && property_below(2)) {
            take_halves(w);
            map.from = map.to = CKPT_DT_F32;
        }
        assert_true(ckpt_grid_gather_can(&t.grid, w));
        check_walk(&t, w, &map);
        check_pins(&t);
        free_toy(&t);
    }
}

/* With room for it, no chunk is decoded twice, however it is read. */
static void test_decoded_once(void **state) {
    (void)state;
    property_begin("decoded once");
    for (int i = 0; i < 20; i++) {
        struct toy t;
        const struct ckpt_element_map map = {.from = CKPT_DT_F32, .to = CKPT_DT_F32};
        make_toy(&t, 4);
        ckpt_decoded_cache_limit(t.cache, (uint64_t)1 << 30);
        for (int k = 0; k < 5; k++)
            check_walk(&t, make_walk(&t, CKPT_DT_F32), &map);
        assert_true(t.decoded <= t.grid.nchunks);
        free_toy(&t);
    }
}

/* Rows that go through all chunks, of which memory holds one: each is decoded once all the same.
 * Chunks one after the other need no temporary file. */
static void test_in_turns(void **state) {
    (void)state;
    property_begin("in turns");
    for (int across = 0; across < 2; across++) {
        struct toy t = {.shape = {64, 64}};
        const struct ckpt_element_map map = {.from = CKPT_DT_F32, .to = CKPT_DT_F32};
        t.chunk[0] = across ? 64 : 16;
        t.chunk[1] = across ? 16 : 64;
        assert_int_equal(ckpt_decoded_cache_new(5000, &t.cache, NULL), 0); /* a chunk has 4096 */
        fill_toy(&t, 2, 4, 0);
        struct ckpt_walk *const w = ckpt_arena_alloc(&t.arena, sizeof *w + sizeof w->pair[0]);
        *w = (struct ckpt_walk){.esize = 4, .npairs = 1, .count = 64 * 64};
        w->pair[0] = (struct ckpt_dim){64 * 64, 4};
        for (int64_t row = 0; row < 64; row++) {
            float got[64];
            assert_int_equal(
                ckpt_grid_gather(&t.grid, w, &map, row * 64, 64, (uint8_t *)got, NULL, NULL), 0);
            assert_memory_equal(got, t.flat + row * 256, sizeof got);
        }
        const struct ckpt_decoded_usage usage = ckpt_decoded_cache_usage(t.cache);
        assert_int_equal(t.decoded, 4);
        assert_int_equal(usage.spilled, across ? 3 * 4096 : 0);
        assert_true(usage.memory <= 5000);
        free_toy(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),
                                       cmocka_unit_test(test_decoded_once),
                                       cmocka_unit_test(test_in_turns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
