/*
 * LoRA's factors merged into a weight: random shapes and dtypes, walked in any order and cast, in
 * random ranges, against an evaluation in float64; and shapes that are no factors.
 */
#include "toy.h"

#include "adapters/lora.h"
#include "adapters/reader_compute.h"
#include "adapters/view.h"
#include "base/cleanup.h"
#include "random.h"
#include "verify/naive_lora.h"
#include "verify/number.h"

static const struct ckpt_tensor *add_random(struct ckpt_checkpoint *c, struct rng *r,
                                            const int64_t *shape, uint32_t ndim) {
    static const enum ckpt_dtype dtypes[] = {CKPT_DT_F32, CKPT_DT_F32, CKPT_DT_BF16, CKPT_DT_F16};
    const enum ckpt_dtype dtype = dtypes[rng_below(r, 4)];
    const uint32_t size = ckpt_dtype_info(dtype)->unit_bytes;
    struct ckpt_tensor *const t = toy_tensor(c, "w", dtype, "", 0);
    int64_t *const kept = ckpt_arena_array(&c->arena, ndim, sizeof *kept);
    memcpy(kept, shape, ndim * sizeof *kept);
    t->shape = kept;
    t->ndim = ndim;
    const uint64_t count = ckpt_tensor_count(t), first = (uint64_t)rng_below(r, 3);
    uint8_t *const bytes = ckpt_arena_alloc(&c->arena, (count + first) * size);
    for (uint64_t i = 0; i < count + first; i++)
        ckpt_number_write(dtype, (double)rng_below(r, 2001) / 1000 - 1, bytes + i * size);
    t->offset = first * size;
    assert_int_equal(ckpt_blob_owned(&c->arena, bytes, (count + first) * size, "", &t->blob, NULL),
                     0);
    assert_int_equal(ckpt_checkpoint_add_blob(c, t->blob), 0);
    struct ckpt_tensor *const copy = ckpt_arena_alloc(&c->arena, sizeof *copy);
    *copy = *t; /* the list may move */
    return copy;
}

static struct ckpt_lora random_factors(struct ckpt_checkpoint *c, struct rng *r) {
    const uint32_t ndim = 2 + (uint32_t)rng_below(r, 4);
    const int64_t rank = 1 + rng_below(r, 5);
    int64_t shape[5];
    for (uint32_t d = 0; d < ndim; d++)
        shape[d] = 1 + rng_below(r, d + 2 < ndim ? 3 : rng_below(r, 10) ? 12 : 600);
    struct ckpt_lora of = {.w = add_random(c, r, shape, ndim), .sum = CKPT_LORA_NO_SUM};
    const int64_t m = shape[ndim - 2], n = shape[ndim - 1];
    shape[ndim - 1] = rank;
    of.a = add_random(c, r, shape, ndim);
    shape[ndim - 2] = rank;
    shape[ndim - 1] = n;
    of.b = add_random(c, r, shape, ndim);
    assert_int_equal(of.w->shape[ndim - 2], m);
    if (ndim > 2 && rng_below(r, 2))
        of.sum = (uint32_t)rng_below(r, ndim - 2);
    return of;
}

/* The result as a tensor, its dimensions in a random order. */
static const struct ckpt_walk *walk_in_any_order(struct ckpt_arena *a, struct rng *r,
                                                 const struct ckpt_tensor *t, int64_t *order) {
    struct ckpt_view view;
    uint32_t by[5];
    for (uint32_t d = 0; d < t->ndim; d++)
        by[d] = d;
    for (uint32_t d = t->ndim; d-- > 1;) {
        const uint32_t other = (uint32_t)rng_below(r, d + 1), kept = by[d];
        by[d] = by[other];
        by[other] = kept;
    }
    for (uint32_t d = 0; d < t->ndim; d++)
        order[d] = by[d];
    assert_int_equal(ckpt_view_init(&view, t, NULL), 0);
    assert_int_equal(ckpt_view_permute(&view, by, t->ndim, NULL), 0);
    return ckpt_walk_pack(a, &view);
}

static void compare(const struct ckpt_part *part, const struct ckpt_naive_lora *naive,
                    enum ckpt_dtype to, int64_t first, int64_t n) {
    const struct ckpt_element_map map = {.from = CKPT_DT_F32, .to = to};
    const uint32_t size = ckpt_dtype_info(to)->unit_bytes;
    CKPT_AUTO(free) uint8_t *got = malloc((size_t)n * size);
    CKPT_AUTO(free) float *expected = malloc((size_t)n * sizeof *expected);
    CKPT_AUTO(free) float *slack = malloc((size_t)n * sizeof *slack);
    struct ckpt_err err = {0};
    if (ckpt_part_compute(part, &map, first, n, got, NULL, &err) ||
        ckpt_naive_lora_read(naive, first, n, expected, slack, &err))
        fail_msg("%s", err.text);
    for (int64_t i = 0; i < n; i++) {
        uint8_t cast[8];
        ckpt_number_write(to, (double)expected[i], cast);
        if (!ckpt_naive_lora_close(to, slack[i], cast, got + i * size))
            fail_msg("element %lld: %g, expected %g", (long long)(first + i),
                     ckpt_number_read(to, got + i * size), (double)expected[i]);
        const double off = ckpt_number_read(to, cast) + 0.25; /* an error would be noticed */
        ckpt_number_write(to, off, cast);
        assert_false(ckpt_naive_lora_close(to, slack[i], cast, got + i * size));
    }
}

static void check_random(struct rng *r) {
    static const enum ckpt_dtype casts[] = {CKPT_DT_F32, CKPT_DT_F64, CKPT_DT_BF16};
    struct ckpt_checkpoint *const c = toy_new();
    const struct ckpt_lora of = random_factors(c, r);
    struct ckpt_computed_blob *blob;
    struct ckpt_err err = {0};
    if (ckpt_lora_new(&c->arena, &of, c->decoded, &blob, &err))
        fail_msg("%s", err.text);
    struct ckpt_tensor t = *of.w;
    t.blob = &blob->blob;
    t.dtype = CKPT_DT_F32;
    t.offset = 0;
    int64_t order[5];
    const struct ckpt_part part = {.source = &t,
                                   .walk = walk_in_any_order(&c->arena, r, &t, order)};
    const struct ckpt_view_op op = {.kind = CKPT_VIEW_PERMUTE, .list = order, .n = t.ndim};
    struct ckpt_naive_lora naive;
    assert_int_equal(ckpt_naive_lora_init(&naive, &of, &op, 1, NULL), 0);
    const int64_t count = part.walk->count;
    compare(&part, &naive, CKPT_DT_F32, 0, count);
    for (int i = 0; i < 5; i++) {
        const int64_t first = rng_below(r, count);
        compare(&part, &naive, casts[rng_below(r, 3)], first, 1 + rng_below(r, count - first));
    }
    ckpt_naive_lora_fini(&naive);
    blob->fini(blob);
    ckpt_checkpoint_close(c);
}

static void random_factors_merge(void **state) {
    (void)state;
    struct rng r = rng_seeded("lora");
    for (int i = 0; i < 300; i++)
        check_random(&r);
}

static void refused(void **state) {
    (void)state;
    struct ckpt_checkpoint *const c = toy_new();
    const struct ckpt_tensor w = *toy_tensor(c, "w", CKPT_DT_F32, "2,3,4", 0);
    const struct ckpt_tensor a = *toy_tensor(c, "a", CKPT_DT_F32, "2,3,5", 0);
    const struct ckpt_tensor b = *toy_tensor(c, "b", CKPT_DT_F32, "2,5,4", 0);
    const struct ckpt_tensor i = *toy_tensor(c, "i", CKPT_DT_I32, "2,5,4", 0);
    const struct ckpt_lora of[] = {{&w, &b, &a, CKPT_LORA_NO_SUM},
                                   {&w, &a, &i, CKPT_LORA_NO_SUM},
                                   {&w, &a, &b, 1},
                                   {&a, &a, &b, CKPT_LORA_NO_SUM}};
    struct ckpt_computed_blob *blob;
    struct ckpt_err err = {0};
    for (size_t k = 0; k < sizeof of / sizeof of[0]; k++)
        assert_int_equal(ckpt_lora_new(&c->arena, &of[k], c->decoded, &blob, &err), -EINVAL);
    assert_non_null(strstr(err.text, "[2, 3, 5]"));
    ckpt_checkpoint_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_factors_merge),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
