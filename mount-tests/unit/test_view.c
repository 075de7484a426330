/*
 * The view algebra against the naive model: after any chain of operations the walk yields the
 * model's offsets, has exactly the pairs of the fitted walk (so it is canonical and unique), and a
 * refused operation changed nothing.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "adapters/view.h"
#include "base/cleanup.h"
#include "naive_view.h"
#include "random.h"

#define CASES 30000 /* chains; some 6 operations each */

static struct ckpt_blob blob = {.size = (uint64_t)1 << 40, .name = ""};

static struct naive model;
static uint64_t operations, refused;

static struct ckpt_tensor make_tensor(enum ckpt_dtype dtype, const int64_t *shape, uint32_t ndim,
                                      const int64_t *stride, uint64_t offset) {
    return (struct ckpt_tensor){.key = CKPT_TEXT("t"),
                                .dtype = dtype,
                                .ndim = ndim,
                                .shape = shape,
                                .stride = stride,
                                .offset = offset,
                                .blob = &blob};
}

/* --- comparing --- */

static int64_t walk_offset(const struct ckpt_view *v, int64_t i) {
    int64_t offset = v->offset;
    for (uint32_t p = v->npairs; p-- > 0; i /= v->pair[p].size)
        offset += i % v->pair[p].size * v->pair[p].stride;
    return offset;
}

static void check_equal(const struct ckpt_view *v) {
    static int64_t offsets[NAIVE_MOST];
    int64_t pair[64][2];
    uint32_t n;
    const int64_t count = naive_count(&model);
    assert_int_equal(v->ndim, model.ndim);
    for (uint32_t d = 0; d < v->ndim; d++)
        assert_int_equal(v->shape[d], model.shape[d]);
    assert_int_equal(ckpt_view_count(v), count);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(walk_offset(v, i), model.offset[i]);
    memcpy(offsets, model.offset, sizeof offsets);
    assert_true(naive_fit(offsets, count, pair, &n));
    assert_int_equal(v->npairs, n);
    for (uint32_t p = 0; p < n; p++) {
        assert_int_equal(v->pair[p].size, pair[p][0]);
        assert_int_equal(v->pair[p].stride, pair[p][1]);
    }
    if (count == 0)
        assert_int_equal(v->offset, 0);
}

/* --- random tensors and operations --- */

static void random_tensor(struct rng *r, struct ckpt_view *v) {
    static const enum ckpt_dtype dtypes[] = {CKPT_DT_U8, CKPT_DT_F16, CKPT_DT_F32, CKPT_DT_F64,
                                             CKPT_DT_C128};
    int64_t shape[NAIVE_DIMS], stride[NAIVE_DIMS], dense = 1;
    const enum ckpt_dtype dtype = dtypes[rng_below(r, 5)];
    const uint32_t ndim = (uint32_t)rng_below(r, 6);
    for (uint32_t d = 0; d < ndim; d++)
        shape[d] = rng_below(r, 30) == 0 ? 0 : 1 + rng_below(r, 6);
    for (uint32_t d = ndim; d-- > 0; dense *= shape[d] ? shape[d] : 1) {
        stride[d] = dense;
        if (shape[d] == 1)
            stride[d] = rng_below(r, 1000) - 500; /* garbage, as in real files */
        else if (rng_below(r, 12) == 0)
            stride[d] = rng_below(r, 50) - 10;
    }
    const bool contiguous = rng_below(r, 3) == 0;
    const uint64_t offset = 1000000 + (uint64_t)rng_below(r, 100);
    const struct ckpt_tensor t =
        make_tensor(dtype, shape, ndim, contiguous ? NULL : stride, offset);
    assert_int_equal(ckpt_view_init(v, &t, NULL), 0);
    model.ndim = ndim;
    memcpy(model.shape, shape, sizeof shape);
    dense = 1;
    for (uint32_t d = ndim; contiguous && d-- > 0; dense *= shape[d])
        stride[d] = dense;
    naive_from_strides(&model, (int64_t)offset, stride, ckpt_dtype_info(dtype)->unit_bytes);
}

/* One random factorisation of the count, with ones strewn in. */
static uint32_t random_shape(struct rng *r, int64_t count, int64_t *shape) {
    uint32_t n = 0;
    while (n < NAIVE_DIMS - 1) {
        int64_t f = count ? 1 + rng_below(r, 12) : rng_below(r, 4);
        while (count && count % f != 0)
            f--;
        shape[n++] = f;
        count = count ? count / f : (f ? 0 : -1);
        if (count == -1)
            return n; /* a zero was put in */
        if (count == 1 && rng_below(r, 2))
            return n;
    }
    shape[n++] = count;
    return n;
}

static int do_reshape(struct rng *r, struct ckpt_view *v) {
    int64_t shape[NAIVE_DIMS];
    const int64_t count = naive_count(&model);
    const uint32_t n = random_shape(r, count, shape);
    model.ndim = n;
    memcpy(model.shape, shape, sizeof shape);
    if (count > 0 && rng_below(r, 3) == 0)
        shape[rng_below(r, n)] = -1;
    return ckpt_view_reshape(v, shape, n, NULL);
}

static int do_permute(struct rng *r, struct ckpt_view *v) {
    uint32_t order[NAIVE_DIMS];
    for (uint32_t i = 0; i < model.ndim; i++)
        order[i] = i;
    for (uint32_t i = model.ndim; i > 1; i--) {
        const uint32_t k = (uint32_t)rng_below(r, i), t = order[k];
        order[k] = order[i - 1];
        order[i - 1] = t;
    }
    const int rc = ckpt_view_permute(v, order, model.ndim, NULL);
    if (rc == 0)
        naive_permute(&model, order);
    return rc;
}

static int do_slice(struct rng *r, struct ckpt_view *v) {
    const uint32_t d = (uint32_t)rng_below(r, model.ndim);
    const int64_t size = model.shape[d], start = rng_below(r, size + 1);
    const int64_t step = rng_below(r, 2) ? 1 : 1 + rng_below(r, 4);
    const int64_t most = (size - start + step - 1) / step;
    const int64_t len = rng_below(r, 20) == 0 ? 0 : rng_below(r, most + 1);
    const int rc = ckpt_view_slice(v, d, start, len, step, NULL);
    if (rc == 0)
        naive_take(&model, d, start, len, step);
    return rc;
}

static int do_index(struct rng *r, struct ckpt_view *v) {
    const uint32_t d = (uint32_t)rng_below(r, model.ndim);
    if (model.shape[d] == 0)
        return 0;
    const int64_t at = rng_below(r, model.shape[d]);
    const int rc = ckpt_view_index(v, d, at, NULL);
    if (rc == 0) {
        naive_take(&model, d, at, 1, 1);
        naive_drop_dim(&model, d);
    }
    return rc;
}

static int do_flip(struct rng *r, struct ckpt_view *v) {
    const uint32_t d = (uint32_t)rng_below(r, model.ndim);
    const int rc = ckpt_view_flip(v, d, NULL);
    if (rc == 0)
        naive_take(&model, d, model.shape[d] - 1, model.shape[d], -1);
    return rc;
}

static int do_squeeze(struct rng *r, struct ckpt_view *v) {
    const uint32_t d = (uint32_t)rng_below(r, model.ndim);
    if (model.shape[d] != 1) {
        assert_int_equal(ckpt_view_squeeze(v, d, NULL), -EINVAL);
        return 0;
    }
    naive_drop_dim(&model, d);
    return ckpt_view_squeeze(v, d, NULL);
}

static int do_unsqueeze(struct rng *r, struct ckpt_view *v) {
    if (model.ndim == NAIVE_DIMS)
        return 0;
    const uint32_t d = (uint32_t)rng_below(r, model.ndim + 1);
    naive_add_dim(&model, d);
    return ckpt_view_unsqueeze(v, d, NULL);
}

static int do_expand(struct rng *r, struct ckpt_view *v) {
    const uint32_t d = (uint32_t)rng_below(r, model.ndim);
    const int64_t size = rng_below(r, 5);
    if (model.shape[d] != 1 || naive_count(&model) * size > NAIVE_MOST)
        return 0;
    const int rc = ckpt_view_expand(v, d, size, NULL);
    if (rc == 0)
        naive_take(&model, d, 0, size, 0);
    return rc;
}

static int do_random(struct rng *r, struct ckpt_view *v) {
    if (model.ndim == 0)
        return rng_below(r, 2) ? do_unsqueeze(r, v) : do_reshape(r, v);
    switch (rng_below(r, 10)) {
    case 0:
    case 1:
        return do_reshape(r, v);
    case 2:
    case 3:
        return do_permute(r, v);
    case 4:
    case 5:
        return do_slice(r, v);
    case 6:
        return do_flip(r, v);
    case 7:
        return rng_below(r, 3) ? do_squeeze(r, v) : do_index(r, v);
    case 8:
        return do_unsqueeze(r, v);
    default:
        return do_expand(r, v);
    }
}

static void test_random_chains(void **state) {
    (void)state;
    struct rng r = rng_seeded("test_random_chains");
    for (int i = 0; i < CASES; i++) {
        struct ckpt_view v, before;
        random_tensor(&r, &v);
        check_equal(&v);
        for (int64_t k = 1 + rng_below(&r, 10); k > 0; k--) {
            before = v;
            operations++;
            const int rc = do_random(&r, &v);
            if (rc != 0) {
                assert_int_equal(rc, -EOPNOTSUPP);
                assert_memory_equal(&v, &before, sizeof v);
                refused++;
            }
            check_equal(&v);
        }
    }
    printf("%llu operations, %llu refused\n", (unsigned long long)operations,
           (unsigned long long)refused);
    assert_true(operations > 100000 && refused > 100 && refused < operations / 10);
}

/* --- single cases --- */

static struct ckpt_view view_of(enum ckpt_dtype dtype, const int64_t *shape, uint32_t ndim) {
    struct ckpt_view v;
    const struct ckpt_tensor t = make_tensor(dtype, shape, ndim, NULL, 0);
    assert_int_equal(ckpt_view_init(&v, &t, NULL), 0);
    return v;
}

static void test_two_transposes_cancel(void **state) {
    (void)state;
    struct ckpt_view v = view_of(CKPT_DT_F32, (int64_t[]){8, 4}, 2);
    assert_true(ckpt_view_contiguous(&v));
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){1, 0}, 2, NULL), 0);
    assert_false(ckpt_view_contiguous(&v));
    assert_int_equal(v.npairs, 2);
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){1, 0}, 2, NULL), 0);
    assert_true(ckpt_view_contiguous(&v));
    assert_int_equal(v.pair[0].size, 32);
}

static void test_refusal_names_the_reshape(void **state) {
    (void)state;
    struct ckpt_err err = {0};
    struct ckpt_view v = view_of(CKPT_DT_F32, (int64_t[]){3, 4}, 2);
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){1, 0}, 2, &err), 0);
    assert_int_equal(ckpt_view_reshape(&v, (int64_t[]){6, -1}, 2, &err), 0);
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){1, 0}, 2, &err), -EOPNOTSUPP);
    assert_non_null(strstr(err.text, "permute"));
    assert_non_null(strstr(err.text, "reshape from [4, 3] to [6, 2]"));
}

static void test_huge_broadcast(void **state) {
    (void)state;
    struct ckpt_view v = view_of(CKPT_DT_U8, (int64_t[]){1, 1}, 2);
    assert_int_equal(ckpt_view_expand(&v, 0, (int64_t)1 << 40, NULL), 0);
    assert_int_equal(ckpt_view_expand(&v, 1, (int64_t)1 << 20, NULL), 0);
    assert_int_equal(v.npairs, 1);
    assert_int_equal(v.pair[0].size, (int64_t)1 << 60);
    assert_int_equal(ckpt_view_unsqueeze(&v, 0, NULL), 0);
    assert_int_equal(ckpt_view_expand(&v, 0, 16, NULL), -EINVAL);
}

static void test_wrong_arguments(void **state) {
    (void)state;
    struct ckpt_view v = view_of(CKPT_DT_F32, (int64_t[]){3, 4}, 2);
    const struct ckpt_view before = v;
    assert_int_equal(ckpt_view_reshape(&v, (int64_t[]){5, -1}, 2, NULL), -EINVAL);
    assert_int_equal(ckpt_view_reshape(&v, (int64_t[]){-1, -1}, 2, NULL), -EINVAL);
    assert_int_equal(ckpt_view_reshape(&v, (int64_t[]){0, -1}, 2, NULL), -EINVAL);
    assert_int_equal(ckpt_view_reshape(&v, (int64_t[]){INT64_MAX, INT64_MAX}, 2, NULL), -EINVAL);
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){0, 0}, 2, NULL), -EINVAL);
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){0}, 1, NULL), -EINVAL);
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){0, 7}, 2, NULL), -EINVAL);
    assert_int_equal(ckpt_view_slice(&v, 0, 1, 3, 1, NULL), -EINVAL);
    assert_int_equal(ckpt_view_slice(&v, 0, 0, 2, INT64_MAX, NULL), -EINVAL);
    assert_int_equal(ckpt_view_slice(&v, 0, -1, 1, 1, NULL), -EINVAL);
    assert_int_equal(ckpt_view_slice(&v, 0, 0, 1, 0, NULL), -EINVAL);
    assert_int_equal(ckpt_view_index(&v, 1, 4, NULL), -EINVAL);
    assert_int_equal(ckpt_view_index(&v, 2, 0, NULL), -EINVAL);
    assert_int_equal(ckpt_view_flip(&v, 2, NULL), -EINVAL);
    assert_int_equal(ckpt_view_expand(&v, 0, 6, NULL), -EINVAL);
    assert_int_equal(ckpt_view_unsqueeze(&v, 3, NULL), -EINVAL);
    assert_memory_equal(&v, &before, sizeof v);
}

/* Packed elements: a unit is never split or moved from the end. */
static void test_packed(void **state) {
    (void)state;
    struct ckpt_err err = {0};
    struct ckpt_view v = view_of(CKPT_DT_F4, (int64_t[]){2, 3, 8}, 3);
    assert_int_equal(v.pair[0].size, 24);
    assert_int_equal(v.pair[0].stride, 1);
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){0, 2, 1}, 3, &err), -EOPNOTSUPP);
    assert_non_null(strstr(err.text, "packed"));
    assert_int_equal(ckpt_view_flip(&v, 2, NULL), -EOPNOTSUPP);
    assert_int_equal(ckpt_view_slice(&v, 2, 1, 2, 1, NULL), -EOPNOTSUPP);
    assert_int_equal(ckpt_view_index(&v, 2, 0, NULL), -EOPNOTSUPP);
    assert_int_equal(ckpt_view_reshape(&v, (int64_t[]){16, 3}, 2, NULL), -EOPNOTSUPP);
    assert_int_equal(ckpt_view_unsqueeze(&v, 3, NULL), -EOPNOTSUPP);
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){1, 0, 2}, 3, NULL), 0);
    assert_int_equal(ckpt_view_slice(&v, 2, 2, 4, 1, NULL), 0);
    assert_int_equal(v.offset, 1);
    assert_int_equal(v.npairs, 3); /* (3, 4)(2, 12)(2, 1) */
    assert_int_equal(v.pair[2].size, 2);
    assert_int_equal(ckpt_view_index(&v, 0, 2, NULL), 0);
    assert_int_equal(v.offset, 9);
    CKPT_AUTO(arena) struct ckpt_arena a = {0};
    assert_int_equal(ckpt_walk_pack(&a, &v)->count, 4);

    struct ckpt_view six = view_of(CKPT_DT_F6_E2M3, (int64_t[]){2, 8}, 2);
    assert_int_equal(six.pair[0].size, 4);
    assert_int_equal(six.pair[0].stride, 3);
}

/* Units that reach over the ends of rows: served as they lie, and nothing but the label can change.
 */
static void test_packed_over_rows(void **state) {
    (void)state;
    struct ckpt_view v = view_of(CKPT_DT_F6_E2M3, (int64_t[]){4, 2}, 2);
    assert_true(ckpt_view_contiguous(&v));
    assert_int_equal(v.pair[0].size, 2);
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){1, 0}, 2, NULL), -EOPNOTSUPP);
    assert_int_equal(ckpt_view_slice(&v, 0, 0, 2, 1, NULL), -EOPNOTSUPP);
    assert_int_equal(ckpt_view_flip(&v, 0, NULL), -EOPNOTSUPP);
    assert_int_equal(ckpt_view_reshape(&v, (int64_t[]){8}, 1, NULL), 0);
    assert_int_equal(ckpt_view_slice(&v, 0, 4, 4, 1, NULL), 0);
    assert_int_equal(v.offset, 3);
    const struct ckpt_tensor odd = make_tensor(CKPT_DT_F4, (int64_t[]){3}, 1, NULL, 0);
    assert_int_equal(ckpt_view_init(&v, &odd, NULL), -EINVAL);
}

static void test_outside_the_blob(void **state) {
    (void)state;
    struct ckpt_view v;
    struct ckpt_blob small = {.size = 40, .name = ""};
    struct ckpt_tensor t = make_tensor(CKPT_DT_F32, (int64_t[]){2, 5}, 2, NULL, 0);
    t.blob = &small;
    assert_int_equal(ckpt_view_init(&v, &t, NULL), 0);
    t.offset = 1;
    assert_int_equal(ckpt_view_init(&v, &t, NULL), -EINVAL);
}

static void test_bounds(void **state) {
    (void)state;
    CKPT_AUTO(arena) struct ckpt_arena a = {0};
    struct ckpt_view v = view_of(CKPT_DT_F32, (int64_t[]){8, 6}, 2);
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){1, 0}, 2, NULL), 0);
    assert_int_equal(ckpt_view_flip(&v, 0, NULL), 0);
    const struct ckpt_walk *const w = ckpt_walk_pack(&a, &v);
    for (int64_t first = 0; first < w->count; first++) {
        for (int64_t n = 1; n <= w->count - first; n++) {
            int64_t lo, hi, low = INT64_MAX, high = 0;
            for (int64_t i = first; i < first + n; i++) {
                const int64_t at = walk_offset(&v, i);
                low = at < low ? at : low;
                high = at + 4 > high ? at + 4 : high;
            }
            ckpt_walk_bounds(w, first, n, &lo, &hi);
            assert_true(lo <= low && hi >= high && lo >= 0 && hi <= 8 * 6 * 4);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_transposes_cancel),
        cmocka_unit_test(test_refusal_names_the_reshape),
        cmocka_unit_test(test_huge_broadcast),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_packed_over_rows),
        cmocka_unit_test(test_outside_the_blob),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_random_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
