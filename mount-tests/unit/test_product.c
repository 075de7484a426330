/* Products with a parameter and its transpose: read in bands, however it is stored, never whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

#define ROWS 3
#define IN 40
#define OUT 30

static struct ckpt_array numbers(int64_t rows, int64_t cols) {
    struct ckpt_array a = {0};
    assert_int_equal(ckpt_array_new(&a, NULL, CKPT_DT_F32, (int64_t[]){rows, cols}, 2, NULL), 0);
    for (int64_t i = 0; i < rows * cols; i++)
        ckpt_array_f32(&a)[i] = (float)((i * 7919) % 101 - 50);
    return a;
}

static struct ckpt_array run(const char *op, const char *left, const char *right,
                             const struct ckpt_array *x, const struct ckpt_param *w,
                             struct ckpt_exec *exec) {
    const struct ckpt_arg arg[] = {{.name = left, .kind = CKPT_ARG_ARRAY, .array = x},
                                   {.name = right, .kind = CKPT_ARG_PARAM, .param = w}};
    struct ckpt_array out = {0};
    struct ckpt_err err = {0};
    if (ckpt_op_run(ckpt_op_find(ckpt_text_of(op)), arg, 2, exec, &out, &err) < 0)
        fail_msg("%s", err.text);
    return out;
}

/* x w^T as plain sums; w is [OUT, IN]. */
static void compare(const struct ckpt_array *x, const struct ckpt_array *w,
                    const struct ckpt_array *got) {
    assert_true(got->ndim == 2 && got->shape[0] == ROWS && got->shape[1] == OUT);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t o = 0; o < OUT; o++) {
            double sum = 0;
            for (int64_t i = 0; i < IN; i++)
                sum += (double)ckpt_array_f32(x)[r * IN + i] *
                       (double)ckpt_array_f32(w)[o * w->stride[0] + i * w->stride[1]];
            assert_true(sum == (double)ckpt_array_f32(got)[r * OUT + o]); /* small integers */
        }
}

/* The weight is [OUT, IN] in what it means; it is stored so, or transposed. */
static void with_stored(bool in_out) {
    CKPT_AUTO(array) struct ckpt_array x = numbers(ROWS, IN);
    CKPT_AUTO(array) struct ckpt_array stored = in_out ? numbers(IN, OUT) : numbers(OUT, IN);
    CKPT_AUTO(array)
    struct ckpt_array turned = ckpt_array_permute(&stored, (const uint32_t[]){1, 0});
    struct ckpt_param w = ckpt_param_of_array(&stored, CKPT_TEXT("w"));
    w.in_out = in_out;
    const struct ckpt_param t = ckpt_param_transpose(&w);
    /* Memory for the result and a band of a few rows, not for the weight. */
    struct ckpt_exec exec = {.memory.limit = (ROWS * OUT + 3 * IN) * sizeof(float), .band = 400};
    CKPT_AUTO(array) struct ckpt_array linear = run("linear", "input", "weight", &x, &w, &exec);
    compare(&x, in_out ? &turned : &stored, &linear);
    ckpt_array_fini(&linear);
    CKPT_AUTO(array) struct ckpt_array mm = run("mm", "self", "mat2", &x, &t, &exec);
    compare(&x, in_out ? &turned : &stored, &mm);
    ckpt_array_fini(&mm);
    CKPT_AUTO(array) struct ckpt_array matmul = run("matmul", "self", "other", &x, &t, &exec);
    compare(&x, in_out ? &turned : &stored, &matmul);
}

static void streams_as_stored(void **state) {
    (void)state;
    with_stored(false);
}

static void streams_transposed(void **state) {
    (void)state;
    with_stored(true);
}

/* Operations that don't stream see the matrix that is meant. */
static void loads_what_is_meant(void **state) {
    (void)state;
    CKPT_AUTO(array) struct ckpt_array stored = numbers(2, 3), two = {0};
    struct ckpt_param w = ckpt_param_of_array(&stored, CKPT_TEXT("w"));
    w.in_out = true;
    assert_int_equal(ckpt_array_new(&two, NULL, CKPT_DT_F32, NULL, 0, NULL), 0);
    ckpt_array_f32(&two)[0] = 2;
    struct ckpt_exec exec = {.memory.limit = 1 << 20, .band = 1};
    CKPT_AUTO(array) struct ckpt_array out = run("mul", "self", "other", &two, &w, &exec);
    assert_true(out.ndim == 2 && out.shape[0] == 3 && out.shape[1] == 2);
    for (int64_t i = 0; i < 6; i++)
        assert_true(ckpt_array_f32(&out)[i] == 2 * ckpt_array_f32(&stored)[i % 2 * 3 + i / 2]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_as_stored),
        cmocka_unit_test(streams_transposed),
        cmocka_unit_test(loads_what_is_meant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
