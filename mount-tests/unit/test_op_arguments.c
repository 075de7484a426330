/* Property: whatever arguments an operation gets, of the kinds that its schema names or others, it
 * ends with a sentence or with results that can be walked, within the run's memory, and leaves
 * nothing behind. What a graph holds is a file's word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"
#include "verify/op_schema.h"

#include "random.h"

enum { CALLS = 24, MAX_ARGS = 20, MAX_ITEMS = 5, MAX_RESULTS = 4, MEMORY = 1 << 20 };

struct inputs {
    struct rng rng;
    struct ckpt_memory memory;
    uint32_t ndim; /* of most tensors of a call, so that many of them fit each other */
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    char name[MAX_ARGS][32];
    struct ckpt_arg arg[MAX_ARGS], item[MAX_ARGS][MAX_ITEMS];
    struct ckpt_array array[MAX_ARGS][MAX_ITEMS];
    struct ckpt_param param[MAX_ARGS][MAX_ITEMS];
    int64_t ints[MAX_ARGS][MAX_ITEMS];
    double floats[MAX_ARGS][MAX_ITEMS];
};

static bool chance(struct inputs *in, int64_t percent) {
    return rng_below(&in->rng, 100) < percent;
}

/* ---- numbers ---- */

static int64_t any_int(struct inputs *in) {
    static const int64_t odd[] = {INT64_MAX, INT64_MIN,        INT64_MAX - 1, (int64_t)1 << 40,
                                  -1000,     (int64_t)1 << 53, INT32_MAX,     1000};
    return chance(in, 6) ? odd[rng_below(&in->rng, 8)] : rng_below(&in->rng, 7) - 2;
}

static double any_float(struct inputs *in) {
    static const double odd[] = {0, -1, (double)NAN, (double)INFINITY, 1e300, -1e-300, 0.5, 2};
    return chance(in, 40) ? odd[rng_below(&in->rng, 8)] : (double)rng_below(&in->rng, 100) / 10 - 3;
}

static const char *any_string(struct inputs *in) {
    static const char *const known[] = {"none", "tanh", "constant", "reflect", "replicate",
                                        "mean", "sum",  "circular", "xy",      "floor",
                                        "amax", "prod", "zeros",    "trunc",   ""};
    return known[rng_below(&in->rng, (int64_t)(sizeof(known) / sizeof(known[0])))];
}

static enum ckpt_dtype any_dtype(struct inputs *in) {
    static const enum ckpt_dtype usual[] = {CKPT_DT_F32, CKPT_DT_F64, CKPT_DT_I64,  CKPT_DT_BOOL,
                                            CKPT_DT_F16, CKPT_DT_I32, CKPT_DT_BF16, CKPT_DT_U8};
    return chance(in, 90) ? usual[rng_below(&in->rng, 8)]
                          : (enum ckpt_dtype)rng_below(&in->rng, CKPT_DT_COUNT);
}

/* ---- tensors ---- */

static void any_shape(struct inputs *in, int64_t *shape, uint32_t *ndim) {
    *ndim = in->ndim;
    memcpy(shape, in->shape, sizeof(in->shape));
    if (chance(in, 25)) {
        *ndim = (uint32_t)rng_below(&in->rng, 5);
        for (uint32_t d = 0; d < *ndim; d++)
            shape[d] = rng_below(&in->rng, 5);
    }
    for (uint32_t d = 0; d < *ndim; d++)
        shape[d] = chance(in, 10) ? 1 : shape[d];
}

static void fill(struct inputs *in, const struct ckpt_array *a) {
    for (int64_t i = 0; i < ckpt_array_count(a); i++) {
        if (a->dtype == CKPT_DT_F32)
            ckpt_array_f32(a)[i] = (float)any_float(in);
        else if (a->dtype == CKPT_DT_F64)
            ckpt_array_f64(a)[i] = any_float(in);
        else if (a->dtype == CKPT_DT_I64)
            ckpt_array_i64(a)[i] = chance(in, 90) ? rng_below(&in->rng, 3) : any_int(in);
        else
            ckpt_array_bool(a)[i] = chance(in, 50);
    }
}

/* The same elements, in the opposite order of dimensions, or one that repeats. */
static void change_strides(struct inputs *in, struct ckpt_array *a) {
    uint32_t order[CKPT_ARRAY_NDIM_MAX];
    for (uint32_t d = 0; d < a->ndim; d++)
        order[d] = a->ndim - 1 - d;
    if (chance(in, 30)) {
        CKPT_AUTO(array) struct ckpt_array dense = *a;
        *a = ckpt_array_permute(&dense, order);
    } else if (chance(in, 10) && a->ndim) {
        a->stride[rng_below(&in->rng, a->ndim)] = 0;
    }
}

static void any_tensor(struct inputs *in, uint32_t at, uint32_t k, struct ckpt_arg *a) {
    static const enum ckpt_dtype dtypes[] = {CKPT_DT_F32, CKPT_DT_F32,  CKPT_DT_F32,
                                             CKPT_DT_I64, CKPT_DT_BOOL, CKPT_DT_F64};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim;
    struct ckpt_array *const array = &in->array[at][k];
    any_shape(in, shape, &ndim);
    assert_int_equal(
        ckpt_array_new(array, &in->memory, dtypes[rng_below(&in->rng, 6)], shape, ndim, NULL), 0);
    fill(in, array);
    a->kind = CKPT_ARG_ARRAY;
    a->array = array;
    if (array->dtype == CKPT_DT_F32 && chance(in, 25)) {
        in->param[at][k] = ckpt_param_of_array(array, CKPT_TEXT("p"));
        a->kind = CKPT_ARG_PARAM;
        a->param = &in->param[at][k];
    } else {
        change_strides(in, array);
    }
}

/* ---- arguments ---- */

static bool is(struct ckpt_text type, const char *prefix) {
    return ckpt_text_starts(type, prefix);
}

static void any_number(struct inputs *in, struct ckpt_arg *a) {
    a->kind = CKPT_ARG_INT;
    a->i = any_int(in);
    if (chance(in, 40)) {
        a->kind = CKPT_ARG_FLOAT;
        a->f = any_float(in);
    } else if (chance(in, 10)) {
        a->kind = CKPT_ARG_BOOL;
        a->b = chance(in, 50);
    }
}

static void any_list(struct inputs *in, struct ckpt_text type, uint32_t at, struct ckpt_arg *a) {
    const uint32_t n = (uint32_t)rng_below(&in->rng, MAX_ITEMS);
    for (uint32_t k = 0; k < n; k++) {
        in->ints[at][k] = any_int(in);
        in->floats[at][k] = any_float(in);
    }
    if (is(type, "Tensor")) {
        a->kind = CKPT_ARG_LIST;
        a->list.v = in->item[at];
        a->list.n = n;
        for (uint32_t k = 0; k < n; k++)
            if (!is(type, "Tensor?") || chance(in, 70))
                any_tensor(in, at, k, &in->item[at][k]);
    } else if (is(type, "float") || is(type, "Scalar")) {
        a->kind = CKPT_ARG_FLOATS;
        a->floats.v = in->floats[at];
        a->floats.n = n;
    } else {
        a->kind = CKPT_ARG_INTS;
        a->ints.v = in->ints[at];
        a->ints.n = n;
    }
}

static void any_of_type(struct inputs *in, struct ckpt_text type, uint32_t at, struct ckpt_arg *a) {
    if (memchr(type.s, '[', type.n)) {
        any_list(in, type, at, a);
    } else if (is(type, "Tensor")) {
        any_tensor(in, at, 0, a);
    } else if (is(type, "ScalarType")) {
        a->kind = CKPT_ARG_DTYPE;
        a->i = any_dtype(in);
    } else if (is(type, "Scalar")) {
        any_number(in, a);
    } else if (is(type, "float")) {
        a->kind = CKPT_ARG_FLOAT;
        a->f = any_float(in);
    } else if (is(type, "bool")) {
        a->kind = CKPT_ARG_BOOL;
        a->b = chance(in, 40);
    } else if (is(type, "str")) {
        a->kind = CKPT_ARG_STRING;
        a->string = any_string(in);
    } else if (is(type, "int") || is(type, "SymInt")) {
        a->kind = CKPT_ARG_INT;
        a->i = any_int(in);
    }
}

static uint32_t any_arguments(struct inputs *in, const struct ckpt_op *op) {
    static const char *const types[] = {"Tensor", "int", "int[]", "Tensor[]", "float", "str"};
    struct ckpt_schema_param p;
    uint32_t n = 0;
    in->ndim = (uint32_t)rng_below(&in->rng, 5);
    for (uint32_t d = 0; d < CKPT_ARRAY_NDIM_MAX; d++)
        in->shape[d] = chance(in, 5) ? 0 : 1 + rng_below(&in->rng, 4);
    for (uint32_t i = 0; n < MAX_ARGS && ckpt_schema_param(op->schema, i, &p); i++) {
        if (chance(in, p.optional ? 40 : 2))
            continue;
        struct ckpt_arg *const a = &in->arg[n];
        assert_true(p.name.n < sizeof(in->name[n]));
        memcpy(in->name[n], p.name.s, p.name.n);
        any_of_type(in, chance(in, 3) ? ckpt_text_of(types[rng_below(&in->rng, 6)]) : p.type, n, a);
        a->name = in->name[n++];
    }
    return n;
}

static void inputs_fini(struct inputs *in) {
    for (uint32_t i = 0; i < MAX_ARGS; i++)
        for (uint32_t k = 0; k < MAX_ITEMS; k++)
            ckpt_array_fini(&in->array[i][k]);
    assert_int_equal(in->memory.used, 0);
}

/* ---- calls ---- */

/* Every element of it can be had. */
static void walk(struct ckpt_array *a) {
    CKPT_AUTO(array) struct ckpt_array copy = {0};
    if (a->store && ckpt_array_new(&copy, NULL, a->dtype, a->shape, a->ndim, NULL) == 0)
        assert_int_equal(ckpt_array_assign(&copy, a, NULL), 0);
    ckpt_array_fini(a);
}

static bool call(const struct ckpt_op *op, struct rng *rng) {
    struct inputs *const in = calloc(1, sizeof(*in));
    struct ckpt_array out[MAX_RESULTS] = {{0}};
    struct ckpt_exec exec = {.memory = {.limit = MEMORY}, .band = 64};
    struct ckpt_err err = {0};
    assert_non_null(in);
    *in = (struct inputs){.rng = *rng, .memory = {.limit = UINT64_MAX / 2}};
    const uint32_t n = any_arguments(in, op);
    const uint32_t nout = 1 + (uint32_t)rng_below(&in->rng, chance(in, 60) ? 1 : MAX_RESULTS);
    const int rc = ckpt_op_run_all(op, in->arg, n, &exec, out, nout, &err);
    if (rc < 0 && err.text[0] == '\0')
        fail_msg("%s: fails without a sentence", op->schema);
    for (uint32_t i = 0; i < nout; i++)
        walk(&out[i]);
    if (exec.memory.used != 0)
        fail_msg("%s: leaves %llu bytes", op->schema, (unsigned long long)exec.memory.used);
    *rng = in->rng;
    inputs_fini(in);
    free(in);
    return rc == 0;
}

static void any_arguments_end_well(void **state) {
    (void)state;
    struct rng rng = rng_seeded("operations");
    const struct ckpt_op *op;
    size_t nops = 0, done = 0, never = 0;
    for (; (op = ckpt_op_at(nops)); nops++) {
        size_t ran = 0;
        if (getenv("CKPT_LIST"))
            fprintf(stderr, "%s\n", op->schema); /* the last one is what crashed */
        for (int i = 0; i < CALLS; i++)
            ran += call(op, &rng);
        if (!ran && getenv("CKPT_LIST"))
            fprintf(stderr, "    gave no results\n");
        done += ran;
        never += !ran;
    }
    printf("%zu operations, %zu of %zu calls gave results; %zu operations gave none\n", nops, done,
           nops * CALLS, never);
    assert_true(done > nops * CALLS / 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_arguments_end_well)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
