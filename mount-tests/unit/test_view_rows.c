/*
 * The mappings that views are for, one row each: operations from a source tensor to burn's tensor,
 * compared with index arithmetic written down for that row alone, and the kind of copy that comes
 * out of it: the source's own bytes, one run, runs, a transposition.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "adapters/gather.h"
#include "base/cleanup.h"

enum kind { IDENTITY, ONE_RUN, RUNS, TILES };

enum op_kind { END, SLICE, PERMUTE, RESHAPE, INDEX, FLIP };
struct op {
    enum op_kind kind;
    int64_t a[5]; /* SLICE: dim, start, len; INDEX: dim, at; FLIP: dim; else the list */
    uint32_t n;
};
#define SLICE_(dim, start, len)                                                                    \
    { SLICE, {dim, start, len}, 0 }
#define INDEX_(dim, at)                                                                            \
    { INDEX, {dim, at}, 0 }
#define FLIP_(dim)                                                                                 \
    { FLIP, {dim}, 0 }
#define PERMUTE2(a, b)                                                                             \
    { PERMUTE, {a, b}, 2 }
#define PERMUTE3(a, b, c)                                                                          \
    { PERMUTE, {a, b, c}, 3 }
#define PERMUTE4(a, b, c, d)                                                                       \
    { PERMUTE, {a, b, c, d}, 4 }
#define RESHAPE2(a, b)                                                                             \
    { RESHAPE, {a, b}, 2 }
#define RESHAPE4(a, b, c, d)                                                                       \
    { RESHAPE, {a, b, c, d}, 4 }

/* The source element (flat index) of an index into the result. */
typedef int64_t (*source_of)(const int64_t *i);

struct row {
    const char *name;
    uint32_t ndim;
    int64_t shape[5];
    struct op op[6];
    enum kind kind;
    uint32_t to_ndim;
    int64_t to[4];
    source_of at;
};

/* torch Linear, attention and recurrent layers; sizes: d 12, heads 3 of 4, ff 20, hidden 8, in 6.
 */
static int64_t linear(const int64_t *i) {
    return i[1] * 12 + i[0]; /* [20,12] -> [12,20] */
}
static int64_t in_proj_key(const int64_t *i) {
    return (12 + i[1]) * 12 + i[0]; /* rows 12..24 of [36,12], transposed */
}
static int64_t in_proj_bias_value(const int64_t *i) {
    return 24 + i[0];
}
static int64_t lstm_cell_gate(const int64_t *i) {
    return (16 + i[1]) * 6 + i[0]; /* the third of four gates of [32,6] */
}
static int64_t gru_new_bias(const int64_t *i) {
    return 16 + i[0];
}
static int64_t same_2d(const int64_t *i) {
    return i[0] * 20 + i[1];
}

/* flax, in burn's layout */
static int64_t flax_layer(const int64_t *i) {
    return (2 * 12 + i[0]) * 20 + i[1]; /* layer 2 of a scanned [4,12,20] */
}
static int64_t flax_query(const int64_t *i) {
    return i[0] * 12 + i[1]; /* [12,3,4] as [12,12] */
}
static int64_t flax_conv(const int64_t *i) {
    return ((i[2] * 3 + i[3]) * 5 + i[1]) * 7 + i[0]; /* HWIO [2,3,5,7] -> OIHW */
}
static int64_t flax_conv_transpose(const int64_t *i) {
    return (((1 - i[2]) * 3 + (2 - i[3])) * 5 + i[0]) * 7 + i[1]; /* -> IOHW, both axes flipped */
}
static int64_t flax_conv1d(const int64_t *i) {
    return (i[2] * 5 + i[1]) * 7 + i[0]; /* WIO [3,5,7] -> OIW */
}

/* openpi: q_einsum [layers, N, D, H] -> burn [D, N*H] */
static int64_t q_einsum(const int64_t *i) {
    return ((1 * 3 + i[1] / 4) * 12 + i[0]) * 4 + i[1] % 4;
}
/* kv_einsum [layers, 2, 1, D, H]: the value of layer 1 */
static int64_t kv_einsum_value(const int64_t *i) {
    return ((1 * 2 + 1) * 12 + i[0]) * 4 + i[1];
}
/* gating [layers, 2, D, F]: up of layer 0 */
static int64_t gating_up(const int64_t *i) {
    return (12 + i[0]) * 20 + i[1];
}

/* GPT-2 c_attn [12, 36], Conv1D: the key's columns; NeoX [3*3*4, 12]: q of each head; Llama's
 * rotary permutation of rows */
static int64_t gpt2_key(const int64_t *i) {
    return i[0] * 36 + 12 + i[1];
}
static int64_t neox_query(const int64_t *i) {
    return ((i[1] / 4 * 3 + 0) * 4 + i[1] % 4) * 12 + i[0]; /* transposed to burn */
}
static int64_t rotary_rows(const int64_t *i) {
    const int64_t head = i[0] / 4, within = i[0] % 4;
    return (head * 4 + within % 2 * 2 + within / 2) * 12 + i[1]; /* (2,2) swapped in each head */
}

static const struct row rows[] = {
    {"torch Linear", 2, {20, 12}, {PERMUTE2(1, 0)}, TILES, 2, {12, 20}, linear},
    {"torch Embedding", 2, {12, 20}, {{END, {0}, 0}}, IDENTITY, 2, {12, 20}, same_2d},
    {"torch Linear twice",
     2,
     {12, 20},
     {PERMUTE2(1, 0), PERMUTE2(1, 0)},
     IDENTITY,
     2,
     {12, 20},
     same_2d},
    {"MHA in_proj key",
     2,
     {36, 12},
     {SLICE_(0, 12, 12), PERMUTE2(1, 0)},
     TILES,
     2,
     {12, 12},
     in_proj_key},
    {"MHA in_proj bias value", 1, {36}, {SLICE_(0, 24, 12)}, ONE_RUN, 1, {12}, in_proj_bias_value},
    {"LSTM cell gate",
     2,
     {32, 6},
     {SLICE_(0, 16, 8), PERMUTE2(1, 0)},
     TILES,
     2,
     {6, 8},
     lstm_cell_gate},
    {"GRU new gate bias", 1, {24}, {SLICE_(0, 16, 8)}, ONE_RUN, 1, {8}, gru_new_bias},
    {"flax Dense", 2, {12, 20}, {PERMUTE2(1, 0), PERMUTE2(1, 0)}, IDENTITY, 2, {12, 20}, same_2d},
    {"flax scanned Dense", 3, {4, 12, 20}, {INDEX_(0, 2)}, ONE_RUN, 2, {12, 20}, flax_layer},
    {"flax MHA query", 3, {12, 3, 4}, {RESHAPE2(12, 12)}, IDENTITY, 2, {12, 12}, flax_query},
    {"flax Conv 2d", 4, {2, 3, 5, 7}, {PERMUTE4(3, 2, 0, 1)}, TILES, 4, {7, 5, 2, 3}, flax_conv},
    {"flax ConvTranspose 2d",
     4,
     {2, 3, 5, 7},
     {PERMUTE4(2, 3, 0, 1), FLIP_(2), FLIP_(3)},
     TILES,
     4,
     {5, 7, 2, 3},
     flax_conv_transpose},
    {"flax Conv 1d", 3, {3, 5, 7}, {PERMUTE3(2, 1, 0)}, TILES, 3, {7, 5, 3}, flax_conv1d},
    {"openpi q_einsum",
     4,
     {2, 3, 12, 4},
     {INDEX_(0, 1), PERMUTE3(1, 0, 2), RESHAPE2(12, 12)},
     RUNS,
     2,
     {12, 12},
     q_einsum},
    {"openpi kv_einsum value",
     5,
     {2, 2, 1, 12, 4},
     {INDEX_(0, 1), INDEX_(0, 1), PERMUTE3(1, 0, 2), RESHAPE2(12, 4)},
     ONE_RUN,
     2,
     {12, 4},
     kv_einsum_value},
    {"openpi gating up",
     4,
     {2, 2, 12, 20},
     {INDEX_(0, 0), INDEX_(0, 1)},
     ONE_RUN,
     2,
     {12, 20},
     gating_up},
    {"GPT-2 key columns", 2, {12, 36}, {SLICE_(1, 12, 12)}, RUNS, 2, {12, 12}, gpt2_key},
    {"NeoX query",
     2,
     {36, 12},
     {RESHAPE4(3, 3, 4, 12), INDEX_(1, 0), RESHAPE2(12, 12), PERMUTE2(1, 0)},
     TILES,
     2,
     {12, 12},
     neox_query},
    {"Llama rotary rows",
     2,
     {12, 12},
     {RESHAPE4(3, 2, 2, 12), PERMUTE4(0, 2, 1, 3), RESHAPE2(12, 12)},
     RUNS,
     2,
     {12, 12},
     rotary_rows},
};

static int apply(struct ckpt_view *v, const struct op *op) {
    uint32_t order[5];
    for (uint32_t i = 0; i < op->n; i++)
        order[i] = (uint32_t)op->a[i];
    switch (op->kind) {
    case SLICE:
        return ckpt_view_slice(v, (uint32_t)op->a[0], op->a[1], op->a[2], 1, NULL);
    case INDEX:
        return ckpt_view_index(v, (uint32_t)op->a[0], op->a[1], NULL);
    case FLIP:
        return ckpt_view_flip(v, (uint32_t)op->a[0], NULL);
    case PERMUTE:
        return ckpt_view_permute(v, order, op->n, NULL);
    default:
        return ckpt_view_reshape(v, op->a, op->n, NULL);
    }
}

static enum kind kind_of(const struct ckpt_walk *w, const struct ckpt_element_map *map,
                         int64_t source_count) {
    if (ckpt_walk_contiguous(w))
        return w->count == source_count ? IDENTITY : ONE_RUN;
    return ckpt_gather_plan(w, map).how == CKPT_GATHER_RUN ? RUNS : TILES;
}

static void check_row(const struct row *row) {
    CKPT_AUTO(arena) struct ckpt_arena a = {0};
    static uint8_t source[4 * 20 * 12 * 8], out[sizeof source];
    struct ckpt_blob blob = {.size = sizeof source, .name = ""};
    const struct ckpt_element_map map = {.from = CKPT_DT_F64, .to = CKPT_DT_F64};
    struct ckpt_tensor t = {.key = ckpt_text_of(row->name),
                            .dtype = CKPT_DT_F64,
                            .ndim = row->ndim,
                            .shape = row->shape,
                            .blob = &blob};
    for (uint64_t i = 0; i < sizeof source / 8; i++)
        memcpy(source + i * 8, &i, 8);
    struct ckpt_view v;
    assert_int_equal(ckpt_view_init(&v, &t, NULL), 0);
    for (const struct op *op = row->op; op->kind != END; op++)
        assert_int_equal(apply(&v, op), 0);
    assert_int_equal(v.ndim, row->to_ndim);
    for (uint32_t d = 0; d < v.ndim; d++)
        assert_int_equal(v.shape[d], row->to[d]);
    const struct ckpt_walk *const w = ckpt_walk_pack(&a, &v);
    assert_int_equal(kind_of(w, &map, (int64_t)ckpt_tensor_count(&t)), row->kind);
    ckpt_gather(w, &map, source, 0, w->count, out);
    for (int64_t i = 0; i < w->count; i++) {
        int64_t index[4], rest = i, got;
        for (uint32_t d = row->to_ndim; d-- > 0; rest /= row->to[d])
            index[d] = rest % row->to[d];
        memcpy(&got, out + i * 8, 8);
        if (got != row->at(index))
            fail_msg("element %lld is %lld, expected %lld", (long long)i, (long long)got,
                     (long long)row->at(index));
    }
}

static void test_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        print_message("%s\n", rows[i].name);
        check_row(&rows[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
