/* The byte check: its naive offsets against the walks of random operations, and that it finds what
 * it is there for: a wrong walk, a wrong element map, a wrong checksum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/guard.h"
#include "random.h"
#include "verify/bytes.h"
#include "verify/naive.h"

#define OPS_MOST 5
#define ELEMENTS_MOST 4000

/* ---- naive offsets against walks ---- */

struct chain {
    struct ckpt_view view;
    struct ckpt_view_op op[OPS_MOST];
    int64_t list[OPS_MOST][CKPT_NDIM_MAX];
    uint32_t n;
};

static struct ckpt_view_op random_op(struct rng *r, struct chain *c) {
    const struct ckpt_view *const v = &c->view;
    struct ckpt_view_op op = {.kind = (enum ckpt_view_op_kind)rng_below(r, 8), .step = 1};
    int64_t *const list = c->list[c->n];
    op.dim = v->ndim ? (uint32_t)rng_below(r, v->ndim) : 0;
    const int64_t size = v->ndim ? v->shape[op.dim] : 1;
    if (op.kind == CKPT_VIEW_PERMUTE || op.kind == CKPT_VIEW_RESHAPE) {
        op.list = list;
        op.n = v->ndim;
        for (uint32_t d = 0; d < v->ndim; d++)
            list[d] = op.kind == CKPT_VIEW_PERMUTE ? d : v->shape[d];
        for (uint32_t d = v->ndim; d > 1; d--) { /* a shuffle is a shape, too */
            const int64_t other = rng_below(r, d), kept = list[d - 1];
            list[d - 1] = list[other];
            list[other] = kept;
        }
    } else if (op.kind == CKPT_VIEW_SLICE) {
        op.start = rng_below(r, size);
        op.step = 1 + rng_below(r, 2);
        op.len = 1 + rng_below(r, (size - op.start + op.step - 1) / op.step);
    } else if (op.kind == CKPT_VIEW_INDEX) {
        op.start = rng_below(r, size);
    } else if (op.kind == CKPT_VIEW_EXPAND) {
        op.len = 1 + rng_below(r, 3);
    }
    return op;
}

/* The same operation on the view; false where it does not apply or no walk can express it. */
static bool apply(struct ckpt_view *v, const struct ckpt_view_op *op) {
    uint32_t order[CKPT_NDIM_MAX];
    for (uint32_t d = 0; d < op->n && op->kind == CKPT_VIEW_PERMUTE; d++)
        order[d] = (uint32_t)op->list[d];
    if (v->ndim == 0 && op->kind != CKPT_VIEW_UNSQUEEZE)
        return false;
    switch (op->kind) {
    case CKPT_VIEW_PERMUTE:
        return ckpt_view_permute(v, order, op->n, NULL) == 0;
    case CKPT_VIEW_RESHAPE:
        return ckpt_view_reshape(v, op->list, op->n, NULL) == 0;
    case CKPT_VIEW_SLICE:
        return ckpt_view_slice(v, op->dim, op->start, op->len, op->step, NULL) == 0;
    case CKPT_VIEW_INDEX:
        return ckpt_view_index(v, op->dim, op->start, NULL) == 0;
    case CKPT_VIEW_FLIP:
        return ckpt_view_flip(v, op->dim, NULL) == 0;
    case CKPT_VIEW_SQUEEZE:
        return v->shape[op->dim] == 1 && ckpt_view_squeeze(v, op->dim, NULL) == 0;
    case CKPT_VIEW_UNSQUEEZE:
        return ckpt_view_unsqueeze(v, op->dim, NULL) == 0;
    case CKPT_VIEW_EXPAND:
        return v->shape[op->dim] == 1 && ckpt_view_expand(v, op->dim, op->len, NULL) == 0;
    }
    return false;
}

/* Byte offset of unit i of a walk. */
static int64_t walk_offset(const struct ckpt_view *v, int64_t i) {
    int64_t at = v->offset;
    for (uint32_t k = v->npairs; k-- > 0;) {
        at += i % v->pair[k].size * v->pair[k].stride;
        i /= v->pair[k].size;
    }
    return at;
}

static void check_chain(struct rng *r, const struct ckpt_tensor *t) {
    struct chain c = {0};
    assert_int_equal(ckpt_view_init(&c.view, t, NULL), 0);
    for (int tries = 0; tries < 12 && c.n < OPS_MOST; tries++) {
        struct ckpt_view next = c.view;
        const struct ckpt_view_op op = random_op(r, &c);
        if (!apply(&next, &op))
            continue;
        c.view = next;
        c.op[c.n++] = op;
    }
    CKPT_AUTO(naive) struct ckpt_naive n = {0};
    struct ckpt_err err = {0};
    if (ckpt_naive_init(&n, t, c.op, c.n, &err) < 0)
        fail_msg("%s", err.text);
    const struct ckpt_naive_shape *const shape = ckpt_naive_result(&n);
    assert_int_equal(shape->ndim, c.view.ndim);
    for (uint32_t d = 0; d < shape->ndim; d++)
        assert_int_equal(shape->size[d], c.view.shape[d]);
    static int64_t offsets[ELEMENTS_MOST];
    const int64_t from = n.count ? rng_below(r, n.count) : 0;
    const int64_t count = n.count - from < ELEMENTS_MOST ? n.count - from : ELEMENTS_MOST;
    ckpt_naive_offsets(&n, from, count, offsets);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(offsets[i] + (int64_t)t->offset, walk_offset(&c.view, from + i));
}

static void random_operations(void **state) {
    (void)state;
    struct rng r = rng_seeded("naive offsets");
    for (int round = 0; round < 3000; round++) {
        int64_t shape[4], stride[4], step = 1;
        const uint32_t ndim = (uint32_t)rng_below(&r, 5);
        uint32_t order[4] = {0, 1, 2, 3};
        for (uint32_t d = ndim; d > 1; d--) {
            const uint32_t other = (uint32_t)rng_below(&r, d), kept = order[d - 1];
            order[d - 1] = order[other];
            order[other] = kept;
        }
        for (uint32_t d = 0; d < ndim; d++)
            shape[d] = 1 + rng_below(&r, 6);
        for (uint32_t d = 0; d < ndim; d++) { /* any order of the dimensions in memory */
            stride[order[d]] = step;
            step *= shape[order[d]];
        }
        struct ckpt_blob blob = {.size = 1 << 20};
        const struct ckpt_tensor t = {.dtype = CKPT_DT_F32,
                                      .ndim = ndim,
                                      .shape = shape,
                                      .stride = stride,
                                      .offset = 4 * (uint64_t)rng_below(&r, 8),
                                      .blob = &blob};
        check_chain(&r, &t);
    }
}

static void operations_that_do_not_fit(void **state) {
    (void)state;
    const int64_t shape[] = {4, 6}, once[] = {0, 0}, odd[] = {5, 5};
    struct ckpt_blob blob = {.size = 96};
    const struct ckpt_tensor t = {.dtype = CKPT_DT_F32, .ndim = 2, .shape = shape, .blob = &blob};
    const struct ckpt_view_op wrong[] = {
        {.kind = CKPT_VIEW_PERMUTE, .list = once, .n = 2},
        {.kind = CKPT_VIEW_RESHAPE, .list = odd, .n = 2},
        {.kind = CKPT_VIEW_SLICE, .dim = 1, .start = 4, .len = 3, .step = 1},
        {.kind = CKPT_VIEW_SLICE, .dim = 2, .len = 1, .step = 1},
        {.kind = CKPT_VIEW_SLICE, .dim = 0, .start = 1, .len = 2, .step = INT64_MAX},
        {.kind = CKPT_VIEW_INDEX, .dim = 0, .start = 4},
        {.kind = CKPT_VIEW_SQUEEZE, .dim = 0},
        {.kind = CKPT_VIEW_UNSQUEEZE, .dim = 3},
        {.kind = CKPT_VIEW_EXPAND, .dim = 0, .len = 2},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CKPT_AUTO(naive) struct ckpt_naive n = {0};
        assert_int_equal(ckpt_naive_init(&n, &t, &wrong[i], 1, NULL), -EINVAL);
    }
}

/* ---- the whole check on a real model ---- */

struct opened {
    struct ckpt_checkpoint *checkpoint;
    struct ckpt_model *model;
    struct ckpt_reader *reader;
};

static struct opened open_model(const char *path, enum ckpt_dtype cast) {
    const struct ckpt_open_options plain = {0};
    const struct ckpt_adapt_options adapt = {.cast = cast};
    const struct ckpt_reader_options reader = {.no_prefetch = true};
    struct opened o = {0};
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(path, &plain, &o.checkpoint, &err) < 0 ||
        ckpt_model_build(o.checkpoint, &adapt, &o.model, &err) < 0 ||
        ckpt_reader_new(&reader, &o.reader, &err) < 0)
        fail_msg("%s: %s", path, err.text);
    return o;
}

static void close_model(struct opened *o) {
    ckpt_reader_free(o->reader);
    ckpt_model_free(o->model);
    ckpt_checkpoint_close(o->checkpoint);
}

static struct ckpt_bytes_result check(const struct opened *o) {
    const struct ckpt_exec exec = {.memory.limit = 1 << 24, .band = 1 << 20};
    struct ckpt_bytes_result result;
    assert_int_equal(ckpt_bytes_check(o->reader, o->model, &exec, &result, NULL), 0);
    return result;
}

static struct ckpt_adapted *find(const struct opened *o, const char *key) {
    for (size_t i = 0; i < o->model->ntensors; i++)
        if (ckpt_text_is(o->model->tensor[i].key, key))
            return &o->model->tensor[i];
    fail_msg("no tensor %s", key);
    return NULL;
}

static void expect_status(const struct opened *o, enum ckpt_status status, uint64_t mismatches) {
    struct ckpt_bytes_result r = check(o);
    assert_string_equal(ckpt_status_name(r.status), ckpt_status_name(status));
    assert_int_equal(r.mismatches, mismatches);
    ckpt_bytes_fini(&r);
}

static void right_bytes(void **state) {
    (void)state;
    static const char *const files[] = {"a1_full.pt", "a1.safetensors",    "a1_ckpt.pt",
                                        "sq.pt",      "a1_f16.pt",         "a1_bf16.pt",
                                        "a1_f64.pt",  "a1_full_legacy.pt", "a1_seq.pt"};
    static const enum ckpt_dtype casts[] = {CKPT_DT_NONE, CKPT_DT_F32, CKPT_DT_F16, CKPT_DT_BF16,
                                            CKPT_DT_F64};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        for (size_t k = 0; k < sizeof(casts) / sizeof(casts[0]); k++) {
            CKPT_AUTO(str) struct ckpt_str path = {0};
            ckpt_str_printf(&path, "%s/a1/%s", FIXTURES, files[i]);
            struct opened o = open_model(path.s, casts[k]);
            expect_status(&o, CKPT_STATUS_PASS, 0);
            close_model(&o);
        }
}

/* The transposed fc1.weight [4,8] of [8,4], served as if nobody had transposed it. */
static void wrong_walk(void **state) {
    (void)state;
    struct opened o = open_model(FIXTURES "/a1/a1_full.pt", CKPT_DT_NONE);
    struct ckpt_adapted *const t = find(&o, "fc1.weight");
    struct ckpt_view plain;
    assert_int_equal(ckpt_view_init(&plain, t->part[0].source, NULL), 0);
    t->part[0].walk = ckpt_walk_pack(&o.model->arena, &plain);
    struct ckpt_bytes_result r = check(&o);
    assert_int_equal(r.status, CKPT_STATUS_DIFF);
    assert_int_equal(r.mismatches, 30); /* all but the first and the last */
    assert_int_equal(r.nmismatch, CKPT_MISMATCHES_PER_TENSOR);
    assert_true(r.truncated);
    assert_true(ckpt_text_is(r.mismatch[0].key, "fc1.weight"));
    assert_int_equal(r.mismatch[0].index, 1);
    assert_string_not_equal(r.mismatch[0].source, r.mismatch[0].served);
    ckpt_bytes_fini(&r);
    close_model(&o);
}

static void wrong_element_map(void **state) {
    (void)state;
    struct opened o = open_model(FIXTURES "/a1/a1.safetensors", CKPT_DT_NONE);
    struct ckpt_adapted *const t = find(&o, "fc2.bias");
    t->map.swap = true;
    t->untouched = false;
    expect_status(&o, CKPT_STATUS_DIFF, 3);
    t->map.swap = false;
    t->map.neg = true;
    expect_status(&o, CKPT_STATUS_DIFF, 3);
    t->map.neg = false;
    t->part[0].source = find(&o, "fc1.bias")->part[0].source; /* 8 elements where 3 are shown */
    expect_status(&o, CKPT_STATUS_CONVERT_FAIL, 0);
    close_model(&o);
}

static void operations_give_another_shape(void **state) {
    (void)state;
    struct opened o = open_model(FIXTURES "/a1/a1_full.pt", CKPT_DT_NONE);
    find(&o, "fc1.weight")->part[0].nop = 0;
    struct ckpt_bytes_result r = check(&o);
    assert_int_equal(r.status, CKPT_STATUS_CONVERT_FAIL);
    assert_non_null(strstr(r.reason.text, "fc1.weight"));
    ckpt_bytes_fini(&r);
    close_model(&o);
}

/* 2^40 times the same three floats: checked at both ends, at once. */
static void giant_broadcast(void **state) {
    (void)state;
    struct opened o = open_model(FIXTURES "/a1/a1.safetensors", CKPT_DT_NONE);
    struct ckpt_adapted *const t = find(&o, "fc2.bias");
    static const int64_t shape[] = {(int64_t)1 << 40, 3}, stride[] = {0, 1};
    struct ckpt_tensor wide = *t->source;
    wide.ndim = 2;
    wide.shape = shape;
    wide.stride = stride;
    struct ckpt_view view;
    assert_int_equal(ckpt_view_init(&view, &wide, NULL), 0);
    t->part[0].source = &wide;
    t->part[0].walk = ckpt_walk_pack(&o.model->arena, &view);
    t->part[0].nbytes = t->nbytes = (uint64_t)12 << 40;
    t->ndim = 2;
    t->shape = shape;
    t->untouched = false;
    struct ckpt_bytes_result r = check(&o);
    assert_int_equal(r.status, CKPT_STATUS_PASS);
    assert_int_equal(r.unchecked, 1);
    assert_true(r.elements < 1 << 20);
    ckpt_bytes_fini(&r);
    close_model(&o);
}

static void cancelled(void **state) {
    (void)state;
    struct opened o = open_model(FIXTURES "/a1/a1_full.pt", CKPT_DT_NONE);
    const atomic_bool cancel = true;
    const struct ckpt_exec exec = {.memory.limit = 1 << 24, .cancel = &cancel};
    CKPT_AUTO(bytes) struct ckpt_bytes_result result = {0};
    assert_int_equal(ckpt_bytes_check(o.reader, o.model, &exec, &result, NULL), -EINTR);
    close_model(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations), cmocka_unit_test(operations_that_do_not_fit),
        cmocka_unit_test(right_bytes),       cmocka_unit_test(wrong_walk),
        cmocka_unit_test(wrong_element_map), cmocka_unit_test(operations_give_another_shape),
        cmocka_unit_test(giant_broadcast),   cmocka_unit_test(cancelled),
    };
    return ckpt_guard_install() || cmocka_run_group_tests(tests, NULL, NULL);
}
