/*
 * Weight norm: against torch's own weights, against a naive evaluation of random shapes, strides
 * and dtypes, in random ranges through a reader with hardly any cache; what is left as it is; and
 * that the byte check, which evaluates it once more, would notice an error.
 */
#include "toy.h"

#include <math.h>
#include <pthread.h>

#include "adapters/gather.h"
#include "adapters/reader.h"
#include "adapters/weight_norm.h"
#include "base/cleanup.h"
#include "base/guard.h"
#include "random.h"
#include "verify/bytes.h"
#include "verify/naive_norm.h"

#define TINY ((size_t)64 << 10) /* the least that a reader takes */

static struct ckpt_model *build(const struct ckpt_checkpoint *c,
                                const struct ckpt_adapt_options *o) {
    struct ckpt_model *m;
    struct ckpt_err err = {0};
    if (ckpt_model_build(c, o, &m, &err))
        fail_msg("%s", err.text);
    return m;
}

static struct ckpt_checkpoint *open_fixture(const char *name) {
    const struct ckpt_open_options o = {0};
    struct ckpt_checkpoint *c;
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(name, &o, &c, &err))
        fail_msg("%s: %s", name, err.text);
    return c;
}

static const struct ckpt_adapted *find(const struct ckpt_model *m, struct ckpt_text key) {
    for (size_t i = 0; i < m->ntensors; i++)
        if (ckpt_text_eq(m->tensor[i].key, key))
            return &m->tensor[i];
    return NULL;
}

static bool has_op(const struct ckpt_adapted *t, const char *op) {
    for (const char *const *o = t->ops; *o; o++)
        if (strcmp(*o, op) == 0)
            return true;
    return false;
}

static struct ckpt_reader *new_reader(size_t bytes) {
    const struct ckpt_reader_options o = {.band_bytes = bytes};
    struct ckpt_reader *r;
    assert_int_equal(ckpt_reader_new(&o, &r, NULL), 0);
    return r;
}

static uint8_t *read_all(struct ckpt_reader *r, const struct ckpt_adapted *t) {
    uint8_t *const bytes = malloc(t->nbytes + 1);
    struct ckpt_err err = {0};
    if (ckpt_reader_read(r, t, 0, t->nbytes, bytes, &err))
        fail_msg("%s", err.text);
    return bytes;
}

/* --- torch's --- */

static void compare(struct ckpt_reader *r, const struct ckpt_adapted *ours,
                    const struct ckpt_adapted *torchs) {
    assert_int_equal(ours->dtype, torchs->dtype);
    assert_int_equal(ours->ndim, torchs->ndim);
    assert_memory_equal(ours->shape, torchs->shape, ours->ndim * sizeof *ours->shape);
    const uint32_t size = ckpt_dtype_info(ours->dtype)->unit_bytes;
    CKPT_AUTO(free) uint8_t *a = read_all(r, ours);
    CKPT_AUTO(free) uint8_t *b = read_all(r, torchs);
    for (uint64_t at = 0; at < ours->nbytes; at += size)
        if (!ckpt_naive_norm_close(ours->dtype, ours->dtype, b + at, a + at))
            fail_msg("%s: element %llu", ours->key.s, (unsigned long long)(at / size));
}

static void as_torch(void **state) {
    (void)state;
    const struct ckpt_adapt_options burn = {0};
    struct ckpt_checkpoint *const c = open_fixture(FIXTURES "/weight_norm/state.pt");
    struct ckpt_checkpoint *const plain = open_fixture(FIXTURES "/weight_norm/plain.safetensors");
    struct ckpt_model *const m = build(c, &burn), *const expected = build(plain, &burn);
    struct ckpt_reader *const r = new_reader(0);
    size_t computed = 0;
    assert_int_equal(m->ntensors, expected->ntensors);
    assert_int_equal(m->nwarnings, expected->nwarnings); /* of the LSTM */
    for (size_t i = 0; i < m->ntensors; i++) {
        const struct ckpt_adapted *const t = &m->tensor[i], *const e = find(expected, t->key);
        if (!e)
            fail_msg("%s is not torch's", t->key.s);
        compare(r, t, e);
        assert_int_equal(has_op(t, "transpose"), has_op(e, "transpose"));
        computed += has_op(t, "weight_norm");
        assert_false(has_op(t, "weight_norm") && t->untouched);
    }
    assert_int_equal(computed, 25);     /* of 19: two are an LSTM's, four gates each */
    assert_int_equal(m->ncomputed, 18); /* two are one */
    assert_int_equal(find(m, CKPT_TEXT("shared_a.weight"))->ntied, 1);
    ckpt_reader_free(r);
    ckpt_model_free(expected);
    ckpt_model_free(m);
    ckpt_checkpoint_close(plain);
    ckpt_checkpoint_close(c);
}

static void as_it_is(void **state) {
    (void)state;
    static const struct ckpt_adapt_options options[] = {
        {.layout = CKPT_LAYOUT_TORCH}, {.layout = CKPT_LAYOUT_SOURCE}, {.modules_store = true}};
    struct ckpt_checkpoint *const c = open_fixture(FIXTURES "/weight_norm/state.pt");
    for (size_t i = 0; i < 4; i++) {
        struct ckpt_model *m = NULL;
        if (i == 3)
            assert_int_equal(ckpt_model_build_source(c, &m, NULL), 0);
        else
            m = build(c, &options[i]);
        assert_int_equal(m->ntensors, c->ntensors);
        assert_int_equal(m->ncomputed, 0);
        assert_non_null(find(m, CKPT_TEXT("conv1d.weight_g")));
        ckpt_model_free(m);
    }
    ckpt_checkpoint_close(c);
}

/* --- random ones --- */

static double as_double(enum ckpt_dtype t, const void *element) {
    const struct ckpt_element_map map = {.from = t, .to = CKPT_DT_F64};
    double d;
    ckpt_element_convert(&map, element, (uint8_t *)&d);
    return d;
}

static void put_double(enum ckpt_dtype t, double d, uint8_t *element) {
    const struct ckpt_element_map map = {.from = CKPT_DT_F64, .to = t};
    ckpt_element_convert(&map, (const uint8_t *)&d, element);
}

struct source {
    struct ckpt_tensor *v, *g;
    uint8_t *v_bytes, *g_bytes; /* the blobs' */
    int64_t stride[4];
    uint32_t dim; /* v->ndim: all */
};

static struct ckpt_tensor *add_tensor(struct ckpt_checkpoint *c, const char *key,
                                      enum ckpt_dtype dtype, const int64_t *shape, uint32_t ndim,
                                      uint64_t elements, struct rng *r, uint8_t **bytes) {
    const uint32_t size = ckpt_dtype_info(dtype)->unit_bytes;
    struct ckpt_tensor *const t = toy_tensor(c, key, dtype, "", 0);
    int64_t *const kept = ckpt_arena_array(&c->arena, ndim, sizeof *kept);
    memcpy(kept, shape, ndim * sizeof *kept);
    t->shape = kept;
    t->ndim = ndim;
    *bytes = ckpt_arena_alloc(&c->arena, elements * size);
    for (uint64_t i = 0; i < elements; i++)
        put_double(dtype, (double)rng_below(r, 2001) / 1000 - 1, *bytes + i * size);
    assert_int_equal(ckpt_blob_owned(&c->arena, *bytes, elements * size, "", &t->blob, NULL), 0);
    assert_int_equal(ckpt_checkpoint_add_blob(c, t->blob), 0);
    return t;
}

/* fc.weight_g and fc.weight_v; the dimensions of v lie in memory in any order, with a gap. */
static void add_source(struct ckpt_checkpoint *c, struct rng *r, int64_t most, struct source *s) {
    static const enum ckpt_dtype dtypes[] = {CKPT_DT_F32, CKPT_DT_F32, CKPT_DT_F16, CKPT_DT_BF16,
                                             CKPT_DT_F64};
    const enum ckpt_dtype dtype = dtypes[rng_below(r, 5)];
    const uint32_t ndim = 2 + (uint32_t)rng_below(r, 3);
    int64_t shape[4], norms[4], step = 1;
    uint32_t order[4] = {3, 2, 1, 0};
    for (uint32_t d = 0; d < ndim; d++)
        shape[d] = 1 + rng_below(r, d < 2 ? most : 4);
    s->dim = (uint32_t)rng_below(r, ndim + 1);
    for (uint32_t d = 0; d < ndim; d++)
        norms[d] = d == s->dim ? shape[d] : 1;
    const uint32_t a = (uint32_t)rng_below(r, 4), b = (uint32_t)rng_below(r, 4), kept = order[a];
    order[a] = order[b];
    order[b] = kept;
    for (uint32_t k = 0; k < 4; k++) {
        if (order[k] >= ndim)
            continue;
        s->stride[order[k]] = step;
        step *= shape[order[k]] + rng_below(r, 2);
    }
    const uint64_t first = (uint64_t)rng_below(r, 3);
    s->v = add_tensor(c, "fc.weight_v", dtype, shape, ndim, (uint64_t)step + first, r, &s->v_bytes);
    s->v->stride = s->stride;
    s->v->offset = first * ckpt_dtype_info(dtype)->unit_bytes;
    s->v->neg = rng_below(r, 2);
    s->g = add_tensor(c, "fc.weight_g", dtype, norms, s->dim < ndim ? ndim : 0,
                      s->dim < ndim ? (uint64_t)shape[s->dim] : 1, r, &s->g_bytes);
}

/* Element `at` of v in C order, and its index along dim. */
static double element(const struct source *s, int64_t at, int64_t *norm) {
    const uint32_t size = ckpt_dtype_info(s->v->dtype)->unit_bytes;
    int64_t offset = 0;
    *norm = 0;
    for (uint32_t d = s->v->ndim; d-- > 0; at /= s->v->shape[d]) {
        offset += at % s->v->shape[d] * s->stride[d];
        if (d == s->dim)
            *norm = at % s->v->shape[d];
    }
    const double x = as_double(s->v->dtype, s->v_bytes + s->v->offset + offset * size);
    return s->v->neg ? -x : x;
}

/* The weight in C order, as it should be served. */
static uint8_t *naive(const struct source *s, bool transposed, enum ckpt_dtype to) {
    const int64_t count = (int64_t)ckpt_tensor_count(s->v), rows = s->v->shape[0];
    const uint32_t size = ckpt_dtype_info(to)->unit_bytes;
    const uint32_t g_size = ckpt_dtype_info(s->g->dtype)->unit_bytes;
    uint8_t *const out = calloc((size_t)count, size);
    CKPT_AUTO(free) double *sum = calloc((size_t)ckpt_tensor_count(s->g), sizeof *sum);
    int64_t norm;
    for (int64_t i = 0; i < count; i++) {
        const double x = element(s, i, &norm);
        sum[norm] += x * x;
    }
    for (int64_t i = 0; i < count; i++) {
        uint8_t rounded[8];
        const double x = element(s, i, &norm);
        const double g = as_double(s->g->dtype, s->g_bytes + norm * g_size);
        put_double(s->v->dtype, x * (g / sqrt(sum[norm])), rounded);
        const int64_t at = transposed ? i % s->v->shape[1] * rows + i / s->v->shape[1] : i;
        put_double(to, as_double(s->v->dtype, rounded), out + at * size);
    }
    return out;
}

static void read_ranges(const struct ckpt_adapted *t, const uint8_t *whole, struct rng *r) {
    struct ckpt_reader *const tiny = new_reader(TINY);
    CKPT_AUTO(free) uint8_t *some = malloc(t->nbytes + 1);
    for (int i = 0; i < 20; i++) {
        const uint64_t off = (uint64_t)rng_below(r, (int64_t)t->nbytes);
        const uint64_t n = 1 + (uint64_t)rng_below(r, (int64_t)(t->nbytes - off));
        assert_int_equal(ckpt_reader_read(tiny, t, off, n, some, NULL), 0);
        assert_memory_equal(some, whole + off, n);
    }
    ckpt_reader_free(tiny);
}

static void check_random(struct rng *r, int64_t most) {
    static const enum ckpt_dtype casts[] = {CKPT_DT_NONE, CKPT_DT_NONE, CKPT_DT_F32, CKPT_DT_F16,
                                            CKPT_DT_F64};
    struct ckpt_checkpoint *const c = toy_new();
    struct source s;
    add_source(c, r, most, &s);
    const struct ckpt_adapt_options o = {.cast = casts[rng_below(r, 5)]};
    struct ckpt_model *const m = build(c, &o);
    const struct ckpt_adapted *const t = find(m, CKPT_TEXT("fc.weight"));
    assert_non_null(t);
    assert_int_equal(m->ntensors, 1);
    assert_true(t->source != s.v && has_op(t, "weight_norm"));
    const bool transposed = has_op(t, "transpose");
    assert_int_equal(transposed, s.v->ndim == 2);
    struct ckpt_reader *const reader = new_reader(0);
    CKPT_AUTO(free) uint8_t *whole = read_all(reader, t);
    CKPT_AUTO(free) uint8_t *expected = naive(&s, transposed, t->dtype);
    const uint32_t size = ckpt_dtype_info(t->dtype)->unit_bytes;
    for (uint64_t at = 0; at < t->nbytes; at += size)
        if (!ckpt_naive_norm_close(s.v->dtype, t->dtype, expected + at, whole + at))
            fail_msg("element %llu of rank %u, dim %u", (unsigned long long)(at / size), s.v->ndim,
                     s.dim);
    read_ranges(t, whole, r);
    ckpt_reader_free(reader);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void random_weights(void **state) {
    (void)state;
    struct rng r = rng_seeded("weight norm");
    for (int i = 0; i < 300; i++)
        check_random(&r, 40);
    for (int i = 0; i < 3; i++)
        check_random(&r, 700);
}

/* --- several readers at once, the first of whom makes the norms --- */

struct job {
    struct ckpt_reader *reader;
    const struct ckpt_adapted *t;
    uint8_t *bytes;
};

static void *read_job(void *arg) {
    struct job *const j = arg;
    j->bytes = read_all(j->reader, j->t);
    return NULL;
}

static void many_readers(void **state) {
    (void)state;
    struct rng r = {7};
    struct ckpt_checkpoint *const c = toy_new();
    struct source s;
    add_source(c, &r, 200, &s);
    const struct ckpt_adapt_options o = {0};
    struct ckpt_model *const m = build(c, &o);
    struct ckpt_reader *const reader = new_reader(TINY);
    struct job job[4];
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        job[i] = (struct job){.reader = reader, .t = &m->tensor[0]};
        assert_int_equal(pthread_create(&thread[i], NULL, read_job, &job[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    for (int i = 1; i < 4; i++)
        assert_memory_equal(job[i].bytes, job[0].bytes, m->tensor[0].nbytes);
    for (int i = 0; i < 4; i++)
        free(job[i].bytes);
    ckpt_reader_free(reader);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

/* A pin, as whoever knows nothing of walks takes one. */
static void pinned(void **state) {
    (void)state;
    struct ckpt_checkpoint *const c = toy_new();
    struct rng r = {1};
    uint8_t *v_bytes, *g_bytes;
    const int64_t shape[] = {2, 2}, norms[] = {2, 1};
    add_tensor(c, "weight_g", CKPT_DT_F32, norms, 2, 2, &r, &g_bytes);
    add_tensor(c, "weight_v", CKPT_DT_F32, shape, 2, 4, &r, &v_bytes);
    memcpy(v_bytes, (const float[]){3, 4, 6, 8}, 16);
    memcpy(g_bytes, (const float[]){5, 1}, 8);
    const struct ckpt_adapt_options o = {0};
    struct ckpt_model *const m = build(c, &o);
    struct ckpt_blob *const b = m->tensor[0].source->blob;
    struct ckpt_pin pin;
    assert_string_equal(b->ops->kind, "computed");
    assert_int_equal(b->ops->pin(b, 4, 16, &pin, NULL, NULL), 0);
    const float expected[] = {4, 0.6F, 0.8F};
    float got[3];
    memcpy(got, pin.data, sizeof got);
    for (int i = 0; i < 3; i++)
        assert_true(fabsf(got[i] - expected[i]) < 1e-6F);
    b->ops->unpin(b, &pin);
    assert_int_equal(b->ops->pin(b, 5, 7, &pin, NULL, NULL), 0); /* inside an element */
    b->ops->unpin(b, &pin);
    assert_int_equal(b->ops->pin(b, 8, 17, &pin, NULL, NULL), -EINVAL);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

/* --- what stays as it is --- */

static void expect_left(struct ckpt_checkpoint *c, const char *warning) {
    const struct ckpt_adapt_options o = {0};
    struct ckpt_model *const m = build(c, &o);
    assert_int_equal(m->ntensors, c->ntensors);
    assert_int_equal(m->ncomputed, 0);
    bool found = false;
    for (size_t i = 0; i < m->nwarnings; i++)
        found |= strstr(m->warnings[i].s, warning) != NULL;
    if (!found)
        fail_msg("no warning says \"%s\"", warning);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void left_alone(void **state) {
    (void)state;
    static const struct {
        const char *v, *g;
        enum ckpt_dtype dtype;
        const char *warning;
    } cases[] = {
        {"4,6", "4,6", CKPT_DT_F32, "not those of a weight norm"},
        {"4,6", "6,1", CKPT_DT_F32, "not those of a weight norm"},
        {"4,6", "4", CKPT_DT_F32, "not those of a weight norm"},
        {"", "", CKPT_DT_F32, "not those of a weight norm"},
        {"4,6", "4,1", CKPT_DT_I32, "computed from floats"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ckpt_checkpoint *const c = toy_new();
        toy_tensor(c, "fc.weight_g", cases[i].dtype, cases[i].g, 1);
        toy_tensor(c, "fc.weight_v", cases[i].dtype, cases[i].v, 1);
        expect_left(c, cases[i].warning);
    }
    static const int64_t overlap[] = {1, 1}, endless[] = {(int64_t)1 << 40, 6}, none[] = {0, 1};
    struct ckpt_checkpoint *c = toy_new();
    toy_tensor(c, "fc.weight_g", CKPT_DT_F32, "4,1", 1);
    toy_tensor(c, "fc.weight_v", CKPT_DT_F32, "4,6", 1)->stride = overlap;
    expect_left(c, "overlapping view");
    for (int whole = 0; whole < 2; whole++) {
        c = toy_new();
        toy_tensor(c, "fc.weight_g", CKPT_DT_F32, whole ? "" : "1,6", 1);
        struct ckpt_tensor *const v = toy_tensor(c, "fc.weight_v", CKPT_DT_F32, "1,6", 1);
        v->shape = endless;
        v->stride = none;
        expect_left(c, "overlapping view");
    }
}

/* spectral_norm beside weight_norm: one is computed, of the other burn is told. */
static void spectral(void **state) {
    (void)state;
    static const struct {
        const char *file, *left;
    } cases[] = {{"weightnorm_old_full.pt", "1.weight_orig"},
                 {"weightnorm_param_state.pt", "1.parametrizations.weight.original"}};
    for (size_t i = 0; i < 2; i++) {
        char path[512];
        snprintf(path, sizeof path, FIXTURES "/pt/%s", cases[i].file);
        struct ckpt_checkpoint *const c = open_fixture(path);
        const struct ckpt_adapt_options o = {0};
        struct ckpt_model *const m = build(c, &o);
        assert_int_equal(m->ncomputed, 1);
        assert_true(has_op(find(m, CKPT_TEXT("0.weight")), "weight_norm"));
        assert_non_null(find(m, ckpt_text_of(cases[i].left)));
        assert_int_equal(m->ntensors, c->ntensors - 1);
        assert_non_null(strstr(m->warnings[0].s, cases[i].left));
        ckpt_model_free(m);
        ckpt_checkpoint_close(c);
    }
}

/* prune's original is one where its mask lies beside it, whatever it is called. */
static void pruned(void **state) {
    (void)state;
    static const struct {
        const char *keys[3], *warned;
    } cases[] = {{{"fc.weight_orig", "fc.weight_mask", "fc.bias"}, "fc.weight_orig"},
                 {{"fc.weight", "fc.bias_mask", "fc.bias_orig"}, "fc.bias_orig"},
                 {{"fc.weight_orig", "gc.weight_mask", "fc.bias"}, NULL},
                 {{"_orig", "weight_mask", "fc.bias"}, NULL}};
    for (size_t i = 0; i < 4; i++) {
        struct ckpt_checkpoint *const c = toy_new();
        for (uint32_t k = 0; k < 3; k++)
            toy_tensor(c, cases[i].keys[k], CKPT_DT_F32, "4,4", k);
        const struct ckpt_adapt_options o = {0};
        struct ckpt_model *const m = build(c, &o);
        assert_int_equal(m->ntensors, 3);
        bool found = false;
        for (size_t w = 0; w < m->nwarnings; w++)
            found = found || (strstr(m->warnings[w].s, "prune.remove") &&
                              strstr(m->warnings[w].s, cases[i].warned ? cases[i].warned : ""));
        assert_int_equal(found, cases[i].warned != NULL);
        ckpt_model_free(m);
        ckpt_checkpoint_close(c);
    }
}

/* --- the byte check --- */

static enum ckpt_status check_bytes(struct ckpt_reader *r, const struct ckpt_model *m,
                                    uint64_t *mismatches) {
    const struct ckpt_exec exec = {.memory.limit = 1 << 24, .band = 1 << 20};
    CKPT_AUTO(bytes) struct ckpt_bytes_result result = {0};
    assert_int_equal(ckpt_bytes_check(r, m, &exec, &result, NULL), 0);
    assert_int_equal(result.computed, 1);
    *mismatches = result.mismatches;
    return result.status;
}

/* The norms that the reader has kept are made wrong by changing the source under it. */
static void wrong_norm(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct rng r = {seed};
        struct ckpt_checkpoint *const c = toy_new();
        struct source s;
        uint64_t mismatches;
        add_source(c, &r, 30, &s);
        put_double(s.g->dtype, 1, s.g_bytes);
        const struct ckpt_adapt_options o = {0};
        struct ckpt_model *const m = build(c, &o);
        struct ckpt_reader *const reader = new_reader(0);
        assert_int_equal(check_bytes(reader, m, &mismatches), CKPT_STATUS_PASS);
        put_double(s.g->dtype, 1.0625, s.g_bytes);
        assert_int_equal(check_bytes(reader, m, &mismatches), CKPT_STATUS_DIFF);
        assert_true(mismatches > 0);
        ckpt_reader_free(reader);
        ckpt_model_free(m);
        ckpt_checkpoint_close(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_torch),       cmocka_unit_test(as_it_is),
        cmocka_unit_test(random_weights), cmocka_unit_test(many_readers),
        cmocka_unit_test(pinned),         cmocka_unit_test(left_alone),
        cmocka_unit_test(spectral),       cmocka_unit_test(pruned),
        cmocka_unit_test(wrong_norm),
    };
    return ckpt_guard_install() || cmocka_run_group_tests(tests, NULL, NULL);
}
