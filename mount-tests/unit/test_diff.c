/* The metrics against fixtures/verify/diff_cases.json (an independent numpy implementation). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/cleanup.h"
#include "verify/diff.h"

#include "property.h"

static char *read_file(const char *path) {
    FILE *const f = fopen(path, "rb");
    assert_non_null(f);
    char *const text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

static const cJSON *get(const cJSON *o, const char *key) {
    const cJSON *const v = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!v)
        fail_msg("no key %s", key);
    return v;
}

static double number(const cJSON *v) {
    if (!cJSON_IsString(v))
        return v->valuedouble;
    return !strcmp(v->valuestring, "NaN")         ? (double)NAN
           : !strcmp(v->valuestring, "-Infinity") ? -(double)INFINITY
                                                  : (double)INFINITY;
}

static struct ckpt_array array_of(const cJSON *o, const char *key, const char *shape_key) {
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim = 0;
    const cJSON *v;
    cJSON_ArrayForEach(v, get(o, shape_key)) {
        shape[ndim++] = (int64_t)v->valuedouble;
    }
    struct ckpt_array a;
    assert_int_equal(ckpt_array_new(&a, NULL, CKPT_DT_F64, shape, ndim, NULL), 0);
    double *to = a.data;
    cJSON_ArrayForEach(v, get(o, key)) {
        *to++ = number(v);
    }
    return a;
}

static void check(const char *name, const char *key, double expected, double got) {
    const bool same =
        isinf(expected) ? expected == got : fabs(expected - got) <= 1e-9 * fabs(expected);
    if (!same)
        fail_msg("%s: %s is %.17g, expected %.17g", name, key, got, expected);
}

static void check_numbers(const char *name, const cJSON *e, const struct ckpt_diff *d) {
    const struct {
        const char *key;
        double value;
    } fields[] = {
        {"size", (double)d->size},
        {"ref_size", (double)d->ref_size},
        {"out_size", (double)d->out_size},
        {"atol", d->atol},
        {"rtol", d->rtol},
        {"max_abs", d->max_abs},
        {"mean_abs", d->mean_abs},
        {"max_rel", d->max_rel},
        {"p50", d->p50},
        {"p95", d->p95},
        {"p99", d->p99},
        {"n_invalid", (double)d->ninvalid},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        check(name, fields[i].key, number(get(e, fields[i].key)), fields[i].value);
}

static void check_shape(const cJSON *e, const int64_t *shape, uint32_t ndim) {
    assert_int_equal(cJSON_GetArraySize(e), ndim);
    for (uint32_t d = 0; d < ndim; d++)
        assert_int_equal(cJSON_GetArrayItem(e, (int)d)->valuedouble, shape[d]);
}

static void check_case(const cJSON *c) {
    const char *const name = get(c, "name")->valuestring;
    const cJSON *const e = get(c, "expect");
    CKPT_AUTO(array) struct ckpt_array ref = array_of(c, "ref", "ref_shape");
    CKPT_AUTO(array) struct ckpt_array out = array_of(c, "out", "out_shape");
    struct ckpt_diff d;
    assert_int_equal(
        ckpt_diff(&ref, &out, get(e, "atol")->valuedouble, get(e, "rtol")->valuedouble, &d, NULL),
        0);
    check_numbers(name, e, &d);
    check_shape(get(e, "ref_shape"), d.ref_shape, d.ref_ndim);
    check_shape(get(e, "out_shape"), d.out_shape, d.out_ndim);
    assert_int_equal(cJSON_IsTrue(get(e, "size_match")), d.size_match);
    assert_int_equal(cJSON_IsTrue(get(e, "shape_match")), d.shape_match);
    assert_int_equal(cJSON_IsTrue(get(e, "allclose")), d.allclose);
    const cJSON *const top = get(e, "top_mismatch");
    assert_int_equal(cJSON_GetArraySize(top), d.ntop);
    for (uint32_t i = 0; i < d.ntop; i++) {
        const cJSON *const pair = cJSON_GetArrayItem(top, (int)i);
        assert_int_equal(cJSON_GetArrayItem(pair, 0)->valuedouble, d.top[i].index);
        check(name, "top_mismatch", number(cJSON_GetArrayItem(pair, 1)), d.top[i].error);
    }
}

static void recorded_cases(void **state) {
    (void)state;
    CKPT_AUTO(free) char *text = read_file(FIXTURES "/verify/diff_cases.json");
    cJSON *const cases = cJSON_Parse(text);
    assert_non_null(cases);
    assert_int_equal(cJSON_GetArraySize(cases), 23);
    const cJSON *c;
    cJSON_ArrayForEach(c, cases) {
        check_case(c);
    }
    cJSON_Delete(cases);
}

/* A transposed view is compared in its own order, not in memory order. */
static void strided_arrays(void **state) {
    (void)state;
    CKPT_AUTO(array) struct ckpt_array a = {0}, t = {0}, b = {0};
    assert_int_equal(ckpt_array_new(&a, NULL, CKPT_DT_F32, (int64_t[]){2, 3}, 2, NULL), 0);
    assert_int_equal(ckpt_array_new(&b, NULL, CKPT_DT_F32, (int64_t[]){3, 2}, 2, NULL), 0);
    for (int i = 0; i < 6; i++) {
        ckpt_array_f32(&a)[i] = (float)i;
        ckpt_array_f32(&b)[i % 3 * 2 + i / 3] = (float)i;
    }
    t = ckpt_array_permute(&a, (uint32_t[]){1, 0});
    struct ckpt_diff d;
    assert_int_equal(ckpt_diff(&t, &b, 0, 0, &d, NULL), 0);
    assert_true(d.allclose);
    assert_true(d.max_abs == 0);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sorted_percentile(const double *sorted, int64_t n, double q) {
    const double at = (double)(n - 1) * q;
    const int64_t lo = (int64_t)at, hi = lo + 1 < n ? lo + 1 : n - 1;
    return sorted[lo] + (sorted[hi] - sorted[lo]) * (at - (double)lo);
}

/* Percentiles are those of the sorted errors, to the bit; errors of every size, many of them equal.
 */
static void percentiles(void **state) {
    enum { MOST = 400 };
    (void)state;
    property_begin("percentiles");
    for (int round = 0; round < 200; round++) {
        CKPT_AUTO(array) struct ckpt_array a = {0}, b = {0};
        const int64_t n = 1 + (int64_t)property_below(MOST);
        double errors[MOST];
        struct ckpt_diff d;
        assert_int_equal(ckpt_array_new(&a, NULL, CKPT_DT_F64, &n, 1, NULL), 0);
        assert_int_equal(ckpt_array_new(&b, NULL, CKPT_DT_F64, &n, 1, NULL), 0);
        for (int64_t i = 0; i < n; i++) {
            const uint64_t what = property_below(4);
            errors[i] =
                what == 0 ? 0
                          : ldexp((double)property_below(1 << 20), (int)property_below(600) - 300);
            errors[i] = what == 1 ? 0.25 : errors[i];
            ckpt_array_f64(&a)[i] = errors[i];
        }
        assert_int_equal(ckpt_diff(&a, &b, 0, 0, &d, NULL), 0);
        qsort(errors, (size_t)n, sizeof(*errors), by_value);
        assert_true(d.p50 == sorted_percentile(errors, n, 0.50));
        assert_true(d.p95 == sorted_percentile(errors, n, 0.95));
        assert_true(d.p99 == sorted_percentile(errors, n, 0.99));
        int64_t counted = 0;
        for (int i = 0; i < CKPT_DIFF_DECADES; i++)
            counted += d.decade[i];
        assert_int_equal(counted, n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_cases),
        cmocka_unit_test(strided_arrays),
        cmocka_unit_test(percentiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
