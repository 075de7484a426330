/* Every family of operations against what PyTorch computed (fixtures/ops/FAMILY.json, written by
 * gen_FAMILY.py), twice: with dense inputs, and with inputs whose dimensions lie in memory in the
 * opposite order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/cleanup.h"
#include "formats/checkpoint.h"
#include "verify/op.h"
#include "verify/source.h"

#define MAX_ARGS 24
#define MAX_ITEMS 32
#define MAX_RESULTS 16

static struct ckpt_memory memory; /* of the case that runs */

static char *read_file(const char *path) {
    FILE *const f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const long size = ftell(f);
    assert_true(size > 0);
    rewind(f);
    char *const text = calloc(1, (size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, f), size);
    fclose(f);
    return text;
}

static const cJSON *get(const cJSON *o, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(o, key);
}

static double number(const cJSON *v) {
    if (!cJSON_IsString(v))
        return v->valuedouble;
    return !strcmp(v->valuestring, "NaN")         ? (double)NAN
           : !strcmp(v->valuestring, "-Infinity") ? -(double)INFINITY
                                                  : (double)INFINITY;
}

/* Beyond 2^53 an integer is a string. */
static int64_t integer(const cJSON *v) {
    return cJSON_IsString(v) ? strtoll(v->valuestring, NULL, 10) : (int64_t)v->valuedouble;
}

/* ---- tensors ---- */

static enum ckpt_dtype tensor_dtype(const struct ckpt_checkpoint *c, const char *key) {
    for (size_t i = 0; i < c->ntensors; i++)
        if (ckpt_text_is(c->tensors[i].key, key))
            return c->tensors[i].dtype;
    fail_msg("no tensor %s", key);
    return CKPT_DT_NONE;
}

static struct ckpt_array load(const struct ckpt_checkpoint *c, const char *key) {
    struct ckpt_array a = {0};
    struct ckpt_err err = {0};
    for (size_t i = 0; i < c->ntensors; i++)
        if (ckpt_text_is(c->tensors[i].key, key) &&
            ckpt_source_load(&c->tensors[i], true, &memory, &a, &err) < 0)
            fail_msg("%s: %s", key, err.text);
    assert_non_null(a.store);
    return a;
}

/* The same array, its dimensions in memory the other way round. */
static struct ckpt_array turned(struct ckpt_array a) {
    uint32_t order[CKPT_ARRAY_NDIM_MAX];
    for (uint32_t d = 0; d < a.ndim; d++)
        order[d] = a.ndim - 1 - d;
    CKPT_AUTO(array)
    struct ckpt_array dense = a, view = ckpt_array_permute(&dense, order), copy = {0};
    assert_int_equal(ckpt_array_contiguous(&view, &memory, &copy, NULL), 0);
    return ckpt_array_permute(&copy, order);
}

/* ---- arguments ---- */

struct bound {
    struct ckpt_arg arg[MAX_ARGS];
    struct ckpt_arg item[MAX_ARGS][MAX_ITEMS];
    struct ckpt_array array[MAX_ARGS][MAX_ITEMS];
    struct ckpt_param param[MAX_ARGS];
    int64_t ints[MAX_ARGS][MAX_ITEMS];
    double floats[MAX_ARGS][MAX_ITEMS];
    uint32_t n;
};

static void bound_fini(struct bound *b) {
    for (uint32_t i = 0; i < MAX_ARGS; i++)
        for (uint32_t k = 0; k < MAX_ITEMS; k++)
            ckpt_array_fini(&b->array[i][k]);
}
CKPT_DEFINE_AUTO(bound, struct bound, bound_fini)

static struct ckpt_arg array_arg(const struct ckpt_checkpoint *c, const char *key, bool turn,
                                 struct ckpt_array *hold) {
    *hold = load(c, key);
    if (turn)
        *hold = turned(*hold);
    struct ckpt_arg a = {.kind = CKPT_ARG_ARRAY};
    a.array = hold;
    return a;
}

static void bind_list(struct bound *b, struct ckpt_arg *a, const cJSON *list,
                      const struct ckpt_checkpoint *c, bool turn) {
    const cJSON *v;
    a->kind = CKPT_ARG_LIST;
    a->list.v = b->item[b->n];
    a->list.n = 0;
    cJSON_ArrayForEach(v, list) {
        const uint32_t k = a->list.n++;
        assert_true(k < MAX_ITEMS);
        if (cJSON_IsString(v))
            b->item[b->n][k] = array_arg(c, v->valuestring, turn, &b->array[b->n][k]);
    }
}

static void bind_numbers(struct bound *b, struct ckpt_arg *a, const cJSON *list, bool floats) {
    uint32_t n = 0;
    const cJSON *v;
    cJSON_ArrayForEach(v, list) {
        assert_true(n < MAX_ITEMS);
        b->floats[b->n][n] = number(v);
        b->ints[b->n][n] = floats ? 0 : integer(v);
        n++;
    }
    a->kind = floats ? CKPT_ARG_FLOATS : CKPT_ARG_INTS;
    if (floats) {
        a->floats.v = b->floats[b->n];
        a->floats.n = n;
    } else {
        a->ints.v = b->ints[b->n];
        a->ints.n = n;
    }
}

static void bind_param(struct bound *b, struct ckpt_arg *a, const char *key,
                       const struct ckpt_checkpoint *c) {
    b->array[b->n][0] = load(c, key);
    b->param[b->n] = ckpt_param_of_array(&b->array[b->n][0], ckpt_text_of(key));
    a->kind = CKPT_ARG_PARAM;
    a->param = &b->param[b->n];
}

static enum ckpt_dtype dtype_of(const char *name) {
    for (int t = 0; t < CKPT_DT_COUNT; t++)
        if (strcmp(ckpt_dtype_info((enum ckpt_dtype)t)->name, name) == 0)
            return (enum ckpt_dtype)t;
    fail_msg("no dtype %s", name);
    return CKPT_DT_NONE;
}

static void bind_one(struct bound *b, const cJSON *v, const struct ckpt_checkpoint *c, bool turn) {
    struct ckpt_arg a = {.name = v->string};
    const char *const kind = v->child->string, *const text = v->child->valuestring;
    assert_true(b->n < MAX_ARGS);
    if (!strcmp(kind, "tensor"))
        a = array_arg(c, text, turn, &b->array[b->n][0]);
    else if (!strcmp(kind, "param"))
        bind_param(b, &a, text, c);
    else if (!strcmp(kind, "list"))
        bind_list(b, &a, v->child, c, turn);
    else if (!strcmp(kind, "ints") || !strcmp(kind, "floats"))
        bind_numbers(b, &a, v->child, kind[0] == 'f');
    else if (!strcmp(kind, "int"))
        a.kind = CKPT_ARG_INT, a.i = integer(v->child);
    else if (!strcmp(kind, "float"))
        a.kind = CKPT_ARG_FLOAT, a.f = number(v->child);
    else if (!strcmp(kind, "bool"))
        a.kind = CKPT_ARG_BOOL, a.b = cJSON_IsTrue(v->child);
    else if (!strcmp(kind, "dtype"))
        a.kind = CKPT_ARG_DTYPE, a.i = dtype_of(text);
    else
        a.kind = CKPT_ARG_STRING, a.string = text;
    a.name = v->string;
    b->arg[b->n++] = a;
}

/* ---- comparing ---- */

static bool close_enough(double expected, double got, double atol) {
    if (isnan(expected) || isinf(expected))
        return isnan(expected) ? isnan(got) : expected == got;
    return fabs(expected - got) <= atol * (1 + fabs(expected));
}

static void compare(const cJSON *k, const char *text, const struct ckpt_checkpoint *c,
                    const char *key, const struct ckpt_array *got) {
    CKPT_AUTO(array) struct ckpt_array expected = load(c, key), dense = {0};
    char shapes[2][96];
    const enum ckpt_dtype dtype = ckpt_array_dtype(tensor_dtype(c, key));
    if (got->dtype != dtype)
        fail_msg("%s: gives %s, expected %s", text, ckpt_dtype_info(got->dtype)->name,
                 ckpt_dtype_info(dtype)->name);
    if (!ckpt_array_same_shape(&expected, got))
        fail_msg("%s: gives shape %s, expected %s", text,
                 ckpt_array_shape_text(got, shapes[0], sizeof(shapes[0])),
                 ckpt_array_shape_text(&expected, shapes[1], sizeof(shapes[1])));
    assert_int_equal(ckpt_array_contiguous(got, &memory, &dense, NULL), 0);
    const bool exact = dtype == CKPT_DT_I64 || dtype == CKPT_DT_BOOL;
    const double atol = exact ? 0 : get(k, "atol")->valuedouble;
    for (int64_t i = 0; i < ckpt_array_count(&expected); i++)
        if (!close_enough(ckpt_array_get(&expected, i), ckpt_array_get(&dense, i), atol))
            fail_msg("%s: element %lld is %.9g, expected %.9g", text, (long long)i,
                     ckpt_array_get(&dense, i), ckpt_array_get(&expected, i));
}

/* Where PyTorch gives a view of self, so must we, of the same strides. */
static void compare_view(const cJSON *strides, const char *text, const struct bound *b,
                         const struct ckpt_array *got) {
    if (!cJSON_IsArray(strides) || ckpt_array_count(got) == 0)
        return;
    if (got->store != b->array[0][0].store)
        fail_msg("%s: is no view", text);
    for (uint32_t d = 0; d < got->ndim; d++)
        if (got->shape[d] > 1 && got->stride[d] != integer(cJSON_GetArrayItem(strides, (int)d)))
            fail_msg("%s: dimension %u has stride %lld", text, d, (long long)got->stride[d]);
}

static void run_case(const cJSON *k, const char *text, const struct ckpt_checkpoint *c, bool turn) {
    const char *const name = get(k, "op")->valuestring;
    const struct ckpt_op *const op =
        ckpt_op_find_overload(ckpt_text_of(name), ckpt_text_of(get(k, "overload")->valuestring));
    struct ckpt_array out[MAX_RESULTS] = {{0}};
    struct ckpt_err err = {0};
    CKPT_AUTO(bound) struct bound b = {0};
    struct ckpt_exec exec = {.memory = {.limit = UINT64_MAX / 2}, .band = 64};
    const cJSON *v;
    if (!op)
        fail_msg("%s: no such operation", text);
    cJSON_ArrayForEach(v, get(k, "args")) {
        bind_one(&b, v, c, turn);
    }
    const uint32_t nout = (uint32_t)cJSON_GetArraySize(get(k, "out"));
    assert_in_range(nout, 1, MAX_RESULTS);
    if (ckpt_op_run_all(op, b.arg, b.n, &exec, out, nout, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    for (uint32_t i = 0; i < nout; i++) {
        compare(k, text, c, cJSON_GetArrayItem(get(k, "out"), (int)i)->valuestring, &out[i]);
        if (!turn)
            compare_view(cJSON_GetArrayItem(get(k, "views"), (int)i), text, &b, &out[i]);
        ckpt_array_fini(&out[i]);
    }
    assert_int_equal(exec.memory.used, 0);
}

static void run_family(const char *path) {
    char tensors[4096];
    struct ckpt_err err = {0};
    CKPT_AUTO(free) char *text = read_file(path);
    snprintf(tensors, sizeof(tensors), "%.*s.safetensors", (int)(strrchr(path, '.') - path), path);
    struct ckpt_checkpoint *c = NULL;
    const struct ckpt_open_options options = {0};
    if (ckpt_checkpoint_open(tensors, &options, &c, &err) < 0)
        fail_msg("%s: %s", tensors, err.text);
    cJSON *const cases = cJSON_Parse(text);
    assert_non_null(cases);
    const cJSON *k;
    cJSON_ArrayForEach(k, cases) {
        memory = (struct ckpt_memory){.limit = UINT64_MAX / 2};
        char *const line = cJSON_PrintUnformatted(k);
        run_case(k, line, c, false);
        if (!cJSON_IsTrue(get(k, "dense")))
            run_case(k, line, c, true);
        cJSON_free(line);
        assert_int_equal(memory.used, 0);
    }
    printf("%s: %d cases\n", strrchr(path, '/') + 1, cJSON_GetArraySize(cases));
    cJSON_Delete(cases);
    ckpt_checkpoint_close(c);
}

static void recorded_cases(void **state) {
    (void)state;
    glob_t found;
    assert_int_equal(glob(FIXTURES "/ops/*.json", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        run_family(found.gl_pathv[i]);
    globfree(&found);
}

/* Every schema begins with its operation's name, and no two rows have the same. */
static void table_is_sound(void **state) {
    (void)state;
    const struct ckpt_op *op, *other;
    for (size_t i = 0; (op = ckpt_op_at(i)); i++) {
        const size_t n = strlen(op->name);
        assert_true(strncmp(op->schema, op->name, n) == 0 && strchr(".(", op->schema[n]));
        for (size_t k = 0; (other = ckpt_op_at(k)); k++) {
            const size_t head = strcspn(op->schema, "(");
            if (k != i && strcspn(other->schema, "(") == head &&
                strncmp(op->schema, other->schema, head) == 0)
                fail_msg("%s has two rows", op->schema);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_cases),
        cmocka_unit_test(table_is_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
