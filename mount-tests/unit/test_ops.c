/* Operations against what PyTorch computed (fixtures/verify/make_op_cases.py), in both conventions
 * and with bands so small that every product runs in many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/cleanup.h"
#include "verify/diff.h"
#include "verify/op.h"

#define MAX_ARGS 12

static cJSON *load_cases(void) {
    FILE *const f = fopen(FIXTURES "/verify/op_cases.json", "rb");
    assert_non_null(f);
    CKPT_AUTO(free) char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    cJSON *const cases = cJSON_Parse(text);
    assert_non_null(cases);
    return cases;
}

static const cJSON *get(const cJSON *o, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(o, key);
}

static struct ckpt_array array_of(const cJSON *t) {
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim = 0;
    const cJSON *v;
    cJSON_ArrayForEach(v, get(t, "shape")) {
        shape[ndim++] = (int64_t)v->valuedouble;
    }
    const bool ints = strcmp(get(t, "dtype")->valuestring, "I64") == 0;
    struct ckpt_array a;
    assert_int_equal(ckpt_array_new(&a, NULL, ints ? CKPT_DT_I64 : CKPT_DT_F32, shape, ndim, NULL),
                     0);
    size_t i = 0;
    cJSON_ArrayForEach(v, get(t, "data")) {
        if (ints)
            ckpt_array_i64(&a)[i++] = (int64_t)v->valuedouble;
        else
            ckpt_array_f32(&a)[i++] = (float)v->valuedouble;
    }
    return a;
}

struct bound {
    struct ckpt_arg arg[MAX_ARGS];
    struct ckpt_array array[MAX_ARGS];
    struct ckpt_param param[MAX_ARGS];
    int64_t ints[MAX_ARGS][4];
    uint32_t n;
};

/* A linear's weight as burn keeps it. */
static void turn(struct bound *b, uint32_t i) {
    struct ckpt_array t = ckpt_array_permute(&b->array[i], (uint32_t[]){1, 0}), dense;
    assert_int_equal(ckpt_array_contiguous(&t, NULL, &dense, NULL), 0);
    if (dense.store == t.store) { /* one row or column: dense either way */
        ckpt_array_fini(&dense);
        dense = ckpt_array_ref(&t);
    }
    ckpt_array_fini(&b->array[i]);
    ckpt_array_fini(&t);
    b->array[i] = dense;
    b->param[i] = ckpt_param_of_array(&b->array[i], CKPT_TEXT("weight"));
    b->param[i].in_out = true;
}

static void bind_one(struct bound *b, const cJSON *v, bool as_params, bool burn) {
    const uint32_t i = b->n++;
    struct ckpt_arg *const a = &b->arg[i];
    assert_true(i < MAX_ARGS);
    a->name = v->string;
    if (cJSON_IsObject(v)) {
        b->array[i] = array_of(v);
        a->kind = CKPT_ARG_ARRAY;
        a->array = &b->array[i];
        if (!as_params || strcmp(a->name, "weight") != 0)
            return;
        a->kind = CKPT_ARG_PARAM;
        a->param = &b->param[i];
        b->param[i] = ckpt_param_of_array(&b->array[i], CKPT_TEXT("weight"));
        if (burn)
            turn(b, i);
    } else if (cJSON_IsArray(v)) {
        a->kind = CKPT_ARG_INTS;
        a->ints.v = b->ints[i];
        const cJSON *e;
        cJSON_ArrayForEach(e, v) {
            b->ints[i][a->ints.n++] = (int64_t)e->valuedouble;
        }
    } else if (cJSON_IsString(v)) {
        a->kind = CKPT_ARG_STRING;
        a->string = v->valuestring;
    } else if (cJSON_IsBool(v)) {
        a->kind = CKPT_ARG_BOOL;
        a->b = cJSON_IsTrue(v);
    } else {
        const bool whole = v->valuedouble == floor(v->valuedouble);
        a->kind = whole ? CKPT_ARG_INT : CKPT_ARG_FLOAT;
        if (whole)
            a->i = (int64_t)v->valuedouble;
        else
            a->f = v->valuedouble;
    }
}

static void bound_fini(struct bound *b) {
    for (uint32_t i = 0; i < b->n; i++)
        ckpt_array_fini(&b->array[i]);
}

static void run_case(const cJSON *c, uint64_t band, bool as_params, bool burn) {
    const char *const op_name = get(c, "op")->valuestring;
    const struct ckpt_op *const op = ckpt_op_find(ckpt_text_of(op_name));
    if (!op)
        fail_msg("no operation %s", op_name);
    struct bound b = {0};
    const cJSON *v;
    cJSON_ArrayForEach(v, get(c, "args")) {
        bind_one(&b, v, as_params, burn && strcmp(op_name, "linear") == 0);
    }
    struct ckpt_exec exec = {.memory.limit = 1 << 24, .band = band};
    struct ckpt_err err = {0};
    struct ckpt_array out, expected = array_of(get(c, "out"));
    if (ckpt_op_run(op, b.arg, b.n, &exec, &out, &err) < 0)
        fail_msg("%s: %s", get(c, "name")->valuestring, err.text);
    struct ckpt_diff d;
    assert_int_equal(ckpt_diff(&expected, &out, 2e-6, 2e-6, &d, NULL), 0);
    if (!d.allclose)
        fail_msg("%s: max_abs %g, shapes %s", get(c, "name")->valuestring, d.max_abs,
                 d.shape_match ? "match" : "differ");
    ckpt_array_fini(&out);
    ckpt_array_fini(&expected);
    bound_fini(&b);
    assert_int_equal(exec.memory.used, 0);
}

static void run_all(uint64_t band, bool as_params, bool burn) {
    cJSON *const cases = load_cases();
    assert_true(cJSON_GetArraySize(cases) >= 60);
    const cJSON *c;
    cJSON_ArrayForEach(c, cases) {
        run_case(c, band, as_params, burn);
    }
    cJSON_Delete(cases);
}

static void arrays_in_one_band(void **state) {
    (void)state;
    run_all(1 << 20, false, false);
}

static void parameters_in_many_bands(void **state) {
    (void)state;
    run_all(1, true, false);
    run_all(50, true, false);
}

static void burn_convention(void **state) {
    (void)state;
    run_all(1 << 20, true, true);
    run_all(1, true, true);
    run_all(60, true, true);
}

static void refuse(const char *op, const struct ckpt_arg *arg, uint32_t n, const char *word,
                   struct ckpt_exec *exec) {
    struct ckpt_err err = {0};
    struct ckpt_array out;
    assert_true(ckpt_op_run(ckpt_op_find(ckpt_text_of(op)), arg, n, exec, &out, &err) < 0);
    assert_null(out.store);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not say \"%s\"", err.text, word);
}

/* Impossible shapes are errors that say what does not fit. */
static void wrong_shapes(void **state) {
    (void)state;
    CKPT_AUTO(array) struct ckpt_array x = {0}, w = {0}, b = {0}, ids = {0};
    assert_int_equal(ckpt_array_new(&x, NULL, CKPT_DT_F32, (int64_t[]){2, 3}, 2, NULL), 0);
    assert_int_equal(ckpt_array_new(&w, NULL, CKPT_DT_F32, (int64_t[]){4, 5}, 2, NULL), 0);
    assert_int_equal(ckpt_array_new(&b, NULL, CKPT_DT_F32, (int64_t[]){3}, 1, NULL), 0);
    assert_int_equal(ckpt_array_new(&ids, NULL, CKPT_DT_I64, (int64_t[]){1}, 1, NULL), 0);
    ckpt_array_i64(&ids)[0] = 4;
    struct ckpt_arg args[] = {
        {.name = "input", .kind = CKPT_ARG_ARRAY, .array = &x},
        {.name = "weight", .kind = CKPT_ARG_ARRAY, .array = &w},
        {.name = "bias", .kind = CKPT_ARG_ARRAY, .array = &b},
        {.name = "indices", .kind = CKPT_ARG_ARRAY, .array = &ids},
    };
    struct ckpt_exec exec = {.memory.limit = 1 << 20, .band = 1 << 20};
    refuse("linear", args, 2, "expects 5", &exec);
    refuse("linear", args, 1, "weight is missing", &exec);
    refuse("conv1d", args, 2, "expected 3", &exec);
    refuse("layer_norm", args, 2, "does not end with", &exec);
    refuse("embedding", args, 4, "outside the table", &exec);
    refuse("batch_norm", (struct ckpt_arg[]){args[0]}, 1, "running_mean", &exec);
    args[1].array = &x;
    refuse("linear", args, 3, "bias has shape [3], expected [2]", &exec);
    exec.memory.limit = 8;
    refuse("linear", args, 2, "verify_memory", &exec);
    atomic_bool cancel = true;
    exec.cancel = &cancel;
    refuse("linear", args, 2, "interrupted", &exec);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_in_one_band),
        cmocka_unit_test(parameters_in_many_bands),
        cmocka_unit_test(burn_convention),
        cmocka_unit_test(wrong_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
