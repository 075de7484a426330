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
#define MAX_LIST 24
#define MAX_RESULTS 3

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
    const char *const name = get(t, "dtype")->valuestring;
    const enum ckpt_dtype dtype = !strcmp(name, "I64")    ? CKPT_DT_I64
                                  : !strcmp(name, "BOOL") ? CKPT_DT_BOOL
                                                          : CKPT_DT_F32;
    struct ckpt_array a;
    assert_int_equal(ckpt_array_new(&a, NULL, dtype, shape, ndim, NULL), 0);
    size_t i = 0;
    cJSON_ArrayForEach(v, get(t, "data")) {
        if (dtype == CKPT_DT_I64)
            ckpt_array_i64(&a)[i++] = (int64_t)v->valuedouble;
        else if (dtype == CKPT_DT_BOOL)
            ckpt_array_bool(&a)[i++] = (uint8_t)v->valuedouble;
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
    struct ckpt_arg list[MAX_ARGS][MAX_LIST];
    struct ckpt_array listed[MAX_ARGS][MAX_LIST];
    struct ckpt_param listed_param[MAX_ARGS][MAX_LIST];
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

static void bind_list(struct bound *b, uint32_t i, const cJSON *v, bool as_params) {
    struct ckpt_arg *const a = &b->arg[i];
    a->kind = CKPT_ARG_LIST;
    a->list.v = b->list[i];
    const cJSON *e;
    cJSON_ArrayForEach(e, v) {
        const uint32_t k = a->list.n++;
        struct ckpt_arg *const one = &b->list[i][k];
        assert_true(k < MAX_LIST);
        b->listed[i][k] = array_of(e);
        b->listed_param[i][k] = ckpt_param_of_array(&b->listed[i][k], CKPT_TEXT("param"));
        one->kind = as_params ? CKPT_ARG_PARAM : CKPT_ARG_ARRAY;
        if (as_params)
            one->param = &b->listed_param[i][k];
        else
            one->array = &b->listed[i][k];
    }
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
    } else if (cJSON_IsArray(v) && cJSON_IsObject(v->child)) {
        bind_list(b, i, v, as_params);
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
    for (uint32_t i = 0; i < b->n; i++) {
        ckpt_array_fini(&b->array[i]);
        for (uint32_t k = 0; k < MAX_LIST; k++)
            ckpt_array_fini(&b->listed[i][k]);
    }
}

static void expect(const cJSON *c, const cJSON *wanted, struct ckpt_array *out) {
    struct ckpt_array expected = array_of(wanted);
    struct ckpt_diff d;
    assert_int_equal(ckpt_diff(&expected, out, 2e-6, 2e-6, &d, NULL), 0);
    if (!d.allclose)
        fail_msg("%s: max_abs %g, shapes %s", get(c, "name")->valuestring, d.max_abs,
                 d.shape_match ? "match" : "differ");
    ckpt_array_fini(out);
    ckpt_array_fini(&expected);
}

/* Operations whose weight may be stored as the transpose: an embedding's is, tied to a Linear. */
static bool is_turned(const char *op) {
    return strcmp(op, "linear") == 0 || strcmp(op, "embedding") == 0;
}

static void run_case(const cJSON *c, uint64_t band, bool as_params, bool burn) {
    const char *const op_name = get(c, "op")->valuestring;
    const struct ckpt_op *const op = ckpt_op_find(ckpt_text_of(op_name));
    if (!op)
        fail_msg("no operation %s", op_name);
    struct bound b = {0};
    const cJSON *v;
    cJSON_ArrayForEach(v, get(c, "args")) {
        bind_one(&b, v, as_params, burn && is_turned(op_name));
    }
    struct ckpt_exec exec = {.memory.limit = 1 << 24, .band = band};
    struct ckpt_err err = {0};
    struct ckpt_array out[MAX_RESULTS];
    const uint32_t nout = 1 + (uint32_t)cJSON_GetArraySize(get(c, "more"));
    assert_true(nout <= MAX_RESULTS);
    if (ckpt_op_run_all(op, b.arg, b.n, &exec, out, nout, &err) < 0)
        fail_msg("%s: %s", get(c, "name")->valuestring, err.text);
    expect(c, get(c, "out"), &out[0]);
    for (uint32_t i = 1; i < nout; i++)
        expect(c, cJSON_GetArrayItem(get(c, "more"), (int)i - 1), &out[i]);
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
    struct ckpt_arg rnn[] = {args[0], {.name = "params", .kind = CKPT_ARG_LIST}};
    refuse("prelu",
           (struct ckpt_arg[]){{.name = "self", .kind = CKPT_ARG_ARRAY, .array = &x}, args[1]}, 2,
           "6 elements, expected 1 or 3", &exec);
    refuse("lstm", rnn, 2, "an input of 2 dimensions", &exec);
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
