/* The burnpack reader: files that burn saved, and headers put together here, each wrong in one way;
 * and the writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "formats/burnpack_header.h"
#include "formats/burnpack_write.h"
#include "formats/cbor.h"
#include "property.h"

/* --- JSON text as CBOR, all lengths indefinite ------------------------------------------------ */

static void put_byte(struct ckpt_str *out, unsigned byte) {
    const char c = (char)byte;
    ckpt_str_add(out, &c, 1);
}

static void put_number(struct ckpt_str *out, const char *s, char **end) {
    const bool is_negative = *s == '-';
    uint64_t u = strtoull(s + is_negative, end, 10);
    if (**end == '.') {
        const double d = strtod(s, end);
        memcpy(&u, &d, sizeof u);
        put_byte(out, 0xfb);
    } else {
        put_byte(out, is_negative ? 0x3b : 0x1b);
        u -= is_negative;
    }
    for (int i = 56; i >= 0; i -= 8)
        put_byte(out, u >> i & 255);
}

static void put_json(struct ckpt_str *out, const char *s) {
    while (*s) {
        const char *const quote = *s == '"' ? strchr(s + 1, '"') : NULL;
        char *end = NULL;
        if (quote)
            ckpt_cborw_text(out, (struct ckpt_text){s + 1, (size_t)(quote - s - 1)});
        else if (*s == '-' || (*s >= '0' && *s <= '9'))
            put_number(out, s, &end);
        else if (strchr("tfn", *s))
            put_byte(out, *s == 't' ? 0xf5 : *s == 'f' ? 0xf4 : 0xf6);
        else if (!strchr(" :,", *s))
            put_byte(out, *s == '{' ? 0xbf : *s == '[' ? 0x9f : 0xff);
        s = quote ? quote + 1 : end ? end : strchr("tfn", *s) ? s + strcspn(s, " ,]}") : s + 1;
    }
}

/* --- headers ---------------------------------------------------------------------------------- */

struct outcome {
    struct ckpt_arena arena;
    struct ckpt_bpk_table table;
    struct ckpt_err err;
    int rc;
};

static void outcome_fini(struct outcome *o) {
    ckpt_bpk_table_fini(&o->table);
    ckpt_arena_fini(&o->arena);
}
#define ckpt_auto_outcome outcome_fini

static void parse(struct outcome *o, const char *json, uint64_t data_size, bool keep_going) {
    CKPT_AUTO(str) struct ckpt_str cbor = {0};
    *o = (struct outcome){0};
    put_json(&cbor, json);
    o->rc = ckpt_bpk_parse(&o->table, &o->arena, cbor.s, cbor.n, data_size, keep_going, &o->err);
}

#define TENSOR(name, dtype, shape, offsets)                                                        \
    "\"" name "\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define TENSORS(text) "{\"tensors\":{" text "}}" /* no commas between: none is needed */
#define A TENSOR("a", "\"F32\"", "[2]", "[0,8]")

static void dtypes(void **state) {
    (void)state;
    static const struct {
        const char *json;
        enum ckpt_dtype dtype;
    } cases[] = {
        {TENSORS(TENSOR("a", "\"F64\"", "[1]", "[0,8]")), CKPT_DT_F64},
        {TENSORS(TENSOR("a", "\"F32\"", "[1]", "[0,4]")), CKPT_DT_F32},
        {TENSORS(TENSOR("a", "\"Flex32\"", "[1]", "[0,4]")), CKPT_DT_F32},
        {TENSORS(TENSOR("a", "\"F16\"", "[1]", "[0,2]")), CKPT_DT_F16},
        {TENSORS(TENSOR("a", "\"BF16\"", "[1]", "[0,2]")), CKPT_DT_BF16},
        {TENSORS(TENSOR("a", "\"I64\"", "[1]", "[0,8]")), CKPT_DT_I64},
        {TENSORS(TENSOR("a", "\"I32\"", "[1]", "[0,4]")), CKPT_DT_I32},
        {TENSORS(TENSOR("a", "\"I16\"", "[1]", "[0,2]")), CKPT_DT_I16},
        {TENSORS(TENSOR("a", "\"I8\"", "[1]", "[0,1]")), CKPT_DT_I8},
        {TENSORS(TENSOR("a", "\"U64\"", "[1]", "[0,8]")), CKPT_DT_U64},
        {TENSORS(TENSOR("a", "\"U32\"", "[1]", "[0,4]")), CKPT_DT_U32},
        {TENSORS(TENSOR("a", "\"U16\"", "[1]", "[0,2]")), CKPT_DT_U16},
        {TENSORS(TENSOR("a", "\"U8\"", "[1]", "[0,1]")), CKPT_DT_U8},
        {TENSORS(TENSOR("a", "{\"Bool\":\"Native\"}", "[1]", "[0,1]")), CKPT_DT_BOOL},
        {TENSORS(TENSOR("a", "{\"Bool\":\"U8\"}", "[1]", "[0,1]")), CKPT_DT_BOOL},
        {TENSORS(TENSOR("a", "{\"Bool\":\"U32\"}", "[1]", "[0,4]")), CKPT_DT_U32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CKPT_AUTO(outcome) struct outcome o;
        parse(&o, cases[i].json, 8, false);
        if (o.rc)
            fail_msg("%s: %s", cases[i].json, o.err.text);
        assert_int_equal(o.table.n, 1);
        assert_int_equal(o.table.entries[0].dtype, cases[i].dtype);
        assert_null(o.table.entries[0].fault);
    }
}

/* Offsets need no order, no alignment and no tiling; an empty tensor may lie anywhere. */
static void accepted(void **state) {
    (void)state;
    static const char *const cases[] = {
        TENSORS(""),
        "{\"tensors\":{},\"of_later\":{\"a\":[1,null,{\"b\":-2}]}}",
        TENSORS(A TENSOR("b", "\"U8\"", "[3]", "[13,16]") TENSOR("c", "\"U8\"", "[]", "[9,10]")),
        TENSORS(A TENSOR("b", "\"F32\"", "[0,7]", "[4,4]")),
        TENSORS("\"a\":{\"dtype\":\"F32\",\"param_id\":17,\"new\":{\"x\":[1]},\"shape\":[2],"
                "\"data_offsets\":[0,8]}"),
        TENSORS("\"a\":{\"dtype\":\"F32\",\"param_id\":null,\"shape\":[2],\"data_offsets\":[0,8]}"),
        TENSORS(TENSOR("", "\"F32\"", "[2]", "[0,8]")),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CKPT_AUTO(outcome) struct outcome o;
        parse(&o, cases[i], 16, false);
        if (o.rc)
            fail_msg("%s: %s", cases[i], o.err.text);
    }
}

/* What refuses the file, and a part of the sentence. */
static const struct {
    const char *json, *sentence;
    bool of_one_tensor; /* keep_going leaves out the tensor */
} wrong[] = {
    {"[]", "the metadata is an array, expected a map", false},
    {"{}", "no \"tensors\"", false},
    {"{\"metadata\":{}}", "no \"tensors\"", false},
    {"{\"tensors\":{},\"tensors\":{}}", "holds \"tensors\" twice", false},
    {"{\"tensors\":{}}0", "something follows", false},
    {"{1:2,\"tensors\":{}}", "a key of the metadata is a number", false},
    {"{\"tensors\":[]}", "\"tensors\" is an array", false},
    {"{\"tensors\":{1:{}}}", "is a number, expected a text", false},
    {"{\"tensors\":{\"a\":1}}", "a tensor is a number", false},
    {TENSORS(A A), "holds \"a\" twice", false},
    {"{\"tensors\":{},\"metadata\":{\"a\":1}}", "is a number, expected a text", false},
    {"{\"tensors\":{},\"metadata\":{\"a\":\"x\",\"a\":\"y\"}}", "holds \"a\" twice", false},
    {"{\"tensors\":{},\"scalars\":{\"a\":1}}", "a scalar is a number", false},
    {"{\"tensors\":{},\"scalars\":{\"a\":{}}}", "\"a\" is not an Int, UInt, Float", false},
    {"{\"tensors\":{},\"scalars\":{\"a\":{\"Int\":true}}}", "is not an Int", false},
    {"{\"tensors\":{},\"scalars\":{\"a\":{\"UInt\":-1}}}", "is not an Int", false},
    {"{\"tensors\":{},\"scalars\":{\"a\":{\"Int\":9223372036854775808}}}", "is not an Int", false},
    {"{\"tensors\":{},\"scalars\":{\"a\":{\"Float\":1}}}", "is not an Int", false},
    {"{\"tensors\":{},\"scalars\":{\"a\":{\"Word\":1}}}", "is not an Int", false},
    {"{\"tensors\":{},\"scalars\":{\"a\":{\"Int\":1,\"Int\":1}}}", "what follows a scalar", false},
    {TENSORS(TENSOR("a", "{}", "[1]", "[0,4]")), "an empty map", false},
    {TENSORS(TENSOR("a", "{\"Bool\":1}", "[1]", "[0,4]")), "how booleans are stored", false},
    {TENSORS("\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}"), "holds \"dtype\" twice", false},
    {TENSORS(TENSOR("a", "\"F31\"", "[1]", "[0,4]")), "unknown dtype \"F31\"", true},
    {TENSORS(TENSOR("a", "\"BOOL\"", "[1]", "[0,4]")), "unknown dtype \"BOOL\"", true},
    {TENSORS(TENSOR("a", "{\"Bool\":\"U16\"}", "[1]", "[0,4]")), "unknown dtype Bool(U16)", true},
    {TENSORS(TENSOR("a", "{\"Foo\":[1]}", "[1]", "[0,4]")), "unknown dtype \"Foo\"", true},
    {TENSORS(TENSOR("a", "1", "[1]", "[0,4]")), "its dtype is a number", true},
    {TENSORS("\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}"), "has no dtype", true},
    {TENSORS("\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}"), "has no shape", true},
    {TENSORS("\"a\":{\"dtype\":\"F32\",\"shape\":[1]}"), "has no data_offsets", true},
    {TENSORS(TENSOR("a", "\"F32\"", "1", "[0,4]")), "its shape is a number", true},
    {TENSORS(TENSOR("a", "\"F32\"", "[-1]", "[0,4]")), "holds a negative number", true},
    {TENSORS(TENSOR("a", "\"F32\"", "[9223372036854775808]", "[0,4]")), "too large", true},
    {TENSORS(TENSOR("a", "\"F32\"", "[4294967296,4294967296]", "[0,4]")), "overflows", true},
    {TENSORS(TENSOR("a", "\"F32\"", "[4611686018427387904]", "[0,0]")), "below 2^64", true},
    {TENSORS(TENSOR("a", "\"F32\"", "[1]", "[0]")), "holds 1 numbers, expected 2", true},
    {TENSORS(TENSOR("a", "\"F32\"", "[1]", "[0,4,4]")), "more than 2 numbers", true},
    {TENSORS(TENSOR("a", "\"F32\"", "[1]", "[4,0]")), "run backwards", true},
    {TENSORS(TENSOR("a", "\"F32\"", "[1]", "[0,5]")), "needs 4 bytes", true},
    {TENSORS(TENSOR("a", "\"F32\"", "[1]", "[14,18]")), "which has 16 bytes", true},
    {TENSORS(TENSOR("a", "\"U8\"", "[1]", "[18446744073709551615,18446744073709551615]")),
     "needs 1 bytes", true},
    {TENSORS(A TENSOR("b", "\"F32\"", "[1]", "[4,8]")), "inside the tensor before it", true},
    {TENSORS(A TENSOR("b", "\"F32\"", "[2]", "[0,8]")), "inside the tensor before it", true},
    {TENSORS(A TENSOR("b", "{\"QFloat\":{}}", "[4]", "[7,9]")), "inside the tensor", true},
    {TENSORS(TENSOR("a", "{\"QFloat\":{}}", "[4]", "[0,17]")), "which has 16 bytes", true},
};

static void refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CKPT_AUTO(outcome) struct outcome strict, lenient;
        parse(&strict, wrong[i].json, 16, false);
        parse(&lenient, wrong[i].json, 16, true);
        if (strict.rc != -EINVAL || !strstr(strict.err.text, wrong[i].sentence))
            fail_msg("%s: %s", wrong[i].json, strict.err.text);
        assert_int_equal(lenient.rc, wrong[i].of_one_tensor ? 0 : -EINVAL);
        size_t faults = 0;
        for (size_t k = 0; k < lenient.table.n; k++)
            faults += lenient.table.entries[k].fault != NULL;
        assert_int_equal(faults, wrong[i].of_one_tensor);
    }
}

/* Tensors beyond what burn itself would read. */
static void limits(void **state) {
    (void)state;
    CKPT_AUTO(outcome) struct outcome most, more;
    parse(&most, TENSORS(TENSOR("a", "\"U8\"", "[10737418240]", "[0,10737418240]")), UINT64_MAX / 2,
          false);
    assert_int_equal(most.rc, 0);
    parse(&more, TENSORS(TENSOR("a", "\"U8\"", "[10737418241]", "[0,10737418241]")), UINT64_MAX / 2,
          false);
    assert_int_equal(more.rc, -EINVAL);
    assert_non_null(strstr(more.err.text, "10737418240"));
}

static void quantised_and_scalars(void **state) {
    (void)state;
    CKPT_AUTO(outcome) struct outcome o;
    parse(&o,
          "{\"tensors\":{" A "," TENSOR(
              "q", "{\"QFloat\":{\"value\":\"Q8S\",\"x\":[{}]}}", "[4]",
              "[8,16]") "},"
                        "\"metadata\":{\"producer\":\"burn\",\"x\":\"\"},"
                        "\"scalars\":{\"i\":{\"Int\":-5},\"u\":{\"UInt\":18446744073709551615},"
                        "\"f\":{\"Float\":1.5},\"b\":{\"Bool\":true},\"least\":{\"Int\":-"
                        "9223372036854775808}}}",
          300, false);
    assert_int_equal(o.rc, 0);
    const struct ckpt_bpk_table *t = &o.table;
    assert_int_equal(t->n, 2);
    assert_null(t->entries[0].fault);
    assert_non_null(strstr(t->entries[1].fault, "QFloat"));
    assert_int_equal(t->nmetadata, 2);
    assert_string_equal(t->metadata[0].value.s, "burn");
    assert_int_equal(t->nscalars, 5);
    assert_int_equal(t->scalars[0].value.i, -5);
    assert_string_equal(t->scalars[1].value.text.s, "18446744073709551615");
    assert_true(t->scalars[2].value.f == 1.5);
    assert_true(t->scalars[3].value.b);
    assert_true(t->scalars[4].value.i == INT64_MIN);
    assert_int_equal(t->unclaimed, 300 - 16);
}

/* --- files ------------------------------------------------------------------------------------ */

static struct ckpt_checkpoint *open_file(const char *path) {
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(path, NULL, &c, &err))
        fail_msg("%s: %s", path, err.text);
    assert_string_equal(c->format, "burnpack");
    assert_int_equal(c->nwarnings, 0);
    return c;
}

static void saved_by_burn(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = open_file(FIXTURES "/burnpack/a1.bpk");
    static const struct {
        const char *key;
        uint32_t ndim;
        int64_t shape[2];
        uint64_t offset;
    } want[] = {{"fc1.bias", 1, {8, 0}, 512 + 256},
                {"fc1.weight", 2, {4, 8}, 512},
                {"fc2.bias", 1, {3, 0}, 512 + 768},
                {"fc2.weight", 2, {8, 3}, 512 + 512}};
    assert_int_equal(c->ntensors, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct ckpt_tensor *t = &c->tensors[i];
        assert_string_equal(t->key.s, want[i].key);
        assert_int_equal(t->dtype, CKPT_DT_F32);
        assert_int_equal(t->ndim, want[i].ndim);
        assert_memory_equal(t->shape, want[i].shape, want[i].ndim * sizeof(int64_t));
        assert_int_equal(t->blob->file_offset + t->offset, want[i].offset);
        assert_int_equal(t->path.n, 1);
    }
    assert_int_equal(c->nmetadata, 3);
    assert_string_equal(c->metadata[1].key.s, "producer");
    assert_string_equal(c->metadata[1].value.s, "burn");
    ckpt_checkpoint_close(c);
}

/* Each beginning of the file is refused, and names what ends too early. */
static void truncated(void **state) {
    (void)state;
    uint8_t bytes[2048];
    FILE *f = fopen(FIXTURES "/burnpack/a1.bpk", "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    char path[] = "/tmp/test_burnpack.XXXXXX";
    CKPT_AUTO(fd) const int fd = mkstemp(path);
    assert_true(fd >= 0 && pwrite(fd, bytes, n, 0) == (ssize_t)n);
    for (size_t size = n; size-- > 4;) {
        struct ckpt_checkpoint *c = NULL;
        struct ckpt_err err = {0};
        assert_int_equal(ftruncate(fd, (off_t)size), 0);
        assert_true(ckpt_checkpoint_open(path, NULL, &c, &err) < 0);
        assert_non_null(strstr(err.text, "truncated"));
    }
    unlink(path);
}

/* --- what we write ---------------------------------------------------------------------------- */

/* In the order in which burn wrote the tensors of the file, they get the places that burn gave. */
static void placed_as_by_burn(void **state) {
    (void)state;
    struct ckpt_header_item items[] = {
        {CKPT_TEXT("fc1.weight"), CKPT_DT_F32, 2, (int64_t[]){4, 8}, 128, 0},
        {CKPT_TEXT("fc1.bias"), CKPT_DT_F32, 1, (int64_t[]){8}, 32, 0},
        {CKPT_TEXT("fc2.weight"), CKPT_DT_F32, 2, (int64_t[]){8, 3}, 96, 0},
        {CKPT_TEXT("fc2.bias"), CKPT_DT_F32, 1, (int64_t[]){3}, 12, 0},
    };
    CKPT_AUTO(str) struct ckpt_str s = {0};
    assert_int_equal(ckpt_bpk_write_header(&s, items, 4, NULL, 0, NULL), 0);
    assert_int_equal(s.n % 256, 0);
    struct ckpt_checkpoint *c = open_file(FIXTURES "/burnpack/a1.bpk");
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < c->ntensors; k++)
            if (ckpt_text_eq(c->tensors[k].key, items[i].key))
                assert_int_equal(c->tensors[k].blob->file_offset - 512, items[i].offset - s.n);
    ckpt_checkpoint_close(c);
}

#define ITEMS_MAX 40

static void random_item(struct ckpt_arena *a, size_t number, struct ckpt_header_item *item) {
    int64_t *shape = ckpt_arena_array(a, 4, sizeof *shape);
    uint64_t count;
    do
        item->dtype = (enum ckpt_dtype)(1 + property_below(CKPT_DT_COUNT - 1));
    while (!ckpt_bpk_can_hold(item->dtype));
    item->ndim = (uint32_t)property_below(5);
    for (uint32_t i = 0; i < item->ndim; i++)
        shape[i] = (int64_t)property_below(9);
    assert_true(ckpt_shape_count(shape, item->ndim, &count));
    assert_true(ckpt_dtype_bytes(item->dtype, count, &item->nbytes));
    item->shape = shape;
    item->key = ckpt_text_of(ckpt_arena_printf(a, "%zu.\xc3\xa9\"%llx", number,
                                               (unsigned long long)property_below(1000)));
}

static void check_come_back(const struct ckpt_bpk_table *t, const struct ckpt_header_item *items) {
    for (size_t i = 0; i < t->n; i++) {
        const struct ckpt_header_entry *e = &t->entries[i];
        assert_true(ckpt_text_eq(e->key, items[i].key) && e->dtype == items[i].dtype);
        assert_int_equal(e->ndim, items[i].ndim);
        assert_memory_equal(e->shape, items[i].shape, items[i].ndim * 8);
        assert_int_equal(t->data_start + e->begin, items[i].offset);
        assert_int_equal(items[i].offset % CKPT_BPK_ALIGNMENT, 0);
        assert_int_equal(e->end - e->begin, items[i].nbytes);
        assert_null(e->fault);
    }
}

static void random_tables_come_back(void **state) {
    (void)state;
    property_begin("random_tables_come_back");
    for (unsigned round = 0; round < 300; round++) {
        CKPT_AUTO(arena) struct ckpt_arena a = {0};
        CKPT_AUTO(str) struct ckpt_str s = {0}, measured = {.sink = ckpt_str_forget};
        struct ckpt_header_item items[ITEMS_MAX];
        const size_t n = (size_t)property_below(ITEMS_MAX);
        for (size_t i = 0; i < n; i++)
            random_item(&a, i, &items[i]);
        const struct ckpt_pair pair = {CKPT_TEXT("k\0"), CKPT_TEXT("\xe2\x82\xac")};
        assert_int_equal(ckpt_bpk_write_header(&s, items, n, &pair, round % 2u, NULL), 0);
        assert_int_equal(ckpt_bpk_write_header(&measured, items, n, &pair, round % 2u, NULL), 0);
        assert_int_equal(ckpt_str_total(&measured), s.n);
        const size_t length = (size_t)((uint8_t)s.s[6] | (uint8_t)s.s[7] << 8);
        const uint64_t end = n ? items[n - 1].offset + items[n - 1].nbytes : s.n;
        struct ckpt_bpk_table t;
        struct ckpt_err err = {0};
        if (ckpt_bpk_parse(&t, &a, s.s + CKPT_BPK_HEADER, length, end - s.n, false, &err))
            fail_msg("%s", err.text);
        assert_int_equal(t.n, n);
        assert_int_equal(t.data_start, s.n);
        assert_int_equal(t.nmetadata, round % 2);
        assert_int_equal(t.unclaimed, 0);
        check_come_back(&t, items);
        ckpt_bpk_table_fini(&t);
    }
}

static void what_the_format_cannot_hold(void **state) {
    (void)state;
    static const enum ckpt_dtype none[] = {CKPT_DT_F8_E4M3, CKPT_DT_C64, CKPT_DT_F4, CKPT_DT_BITS8};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        struct ckpt_header_item item = {CKPT_TEXT("x.y"), none[i], 1, (int64_t[]){2}, 2, 0};
        CKPT_AUTO(str) struct ckpt_str s = {0};
        struct ckpt_err err = {0};
        assert_false(ckpt_bpk_can_hold(none[i]));
        assert_int_equal(ckpt_bpk_write_header(&s, &item, 1, NULL, 0, &err), -EINVAL);
        assert_non_null(strstr(err.text, "x.y"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placed_as_by_burn),
        cmocka_unit_test(random_tables_come_back),
        cmocka_unit_test(what_the_format_cannot_hold),
        cmocka_unit_test(dtypes),
        cmocka_unit_test(accepted),
        cmocka_unit_test(refused),
        cmocka_unit_test(limits),
        cmocka_unit_test(saved_by_burn),
        cmocka_unit_test(quantised_and_scalars),
        cmocka_unit_test(truncated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
