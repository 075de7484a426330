/* zarr metadata as it is accepted and refused, fill values, keys of chunks; msgpack trees of flax,
 * with pieces; odd folders. What arrays hold is tested by mount/test_orbax.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "formats/orbax.h"
#include "formats/zarr_known.h"

static struct ckpt_arena arena;
static struct ckpt_err err;

static int parse(const char *json, int version, struct ckpt_zarr *z) {
    err = (struct ckpt_err){0};
    return ckpt_zarr_parse(json, strlen(json), version, &arena, z, &err);
}

static int free_arena(void **state) {
    (void)state;
    ckpt_arena_fini(&arena);
    return 0;
}

/* --- metadata --------------------------------------------------------------------------------- */

#define V2(rest) "{\"zarr_format\":2,\"shape\":[5,7],\"chunks\":[3,4]," rest "}"
#define V2_REST "\"dtype\":\"<f4\",\"compressor\":null,\"fill_value\":null,\"order\":\"C\","
#define V3(shape, codecs)                                                                          \
    "{\"zarr_format\":3,\"node_type\":\"array\",\"data_type\":\"float32\",\"shape\":" shape        \
    ",\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":" shape              \
    "}},\"chunk_key_encoding\":\"default\",\"fill_value\":0,\"codecs\":" codecs "}"
#define BYTES "{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}"
#define INDEX "\"index_codecs\":[" BYTES ",\"crc32c\"]"
#define SHARD(inner, more)                                                                         \
    "{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":" inner more "}}"

static void test_metadata(void **state) {
    static const struct {
        int version, rc;
        const char *json, *text; /* in the message */
    } cases[] = {
        {2, 0, V2(V2_REST "\"filters\":null"), ""},
        {2, 0, V2(V2_REST "\"filters\":[],\"unknown\":{\"a\":[1]}"), ""},
        {2, -ENOTSUP, V2(V2_REST "\"filters\":[{\"id\":\"delta\"}]"), "filters"},
        {2, -ENOTSUP, V2("\"dtype\":\"<U8\",\"order\":\"C\""), "<U8"},
        {2, -ENOTSUP, V2("\"dtype\":[[\"a\",\"<f4\"]]"), "records"},
        {2, -ENOTSUP, V2("\"dtype\":\"<f4\",\"compressor\":{\"id\":\"lzma\"}"), "lzma"},
        {2, -EINVAL, V2("\"order\":\"K\",\"dtype\":\"<f4\""), "order"},
        {2, -EINVAL, V2("\"dimension_separator\":\"-\",\"dtype\":\"<f4\""), "separator"},
        {2, -EINVAL, V2("\"order\":\"C\""), "element type"},
        {2, -EINVAL, "{\"zarr_format\":2,\"shape\":[5],\"chunks\":[0],\"dtype\":\"<f4\"}",
         "dimension 0 of its chunks"},
        {2, -EINVAL, "{\"zarr_format\":2,\"shape\":[-1],\"chunks\":[1],\"dtype\":\"<f4\"}",
         "shape"},
        {2, -EINVAL, "{\"zarr_format\":2,\"shape\":[5],\"chunks\":[1,1],\"dtype\":\"<f4\"}", "2"},
        {2, -EINVAL, "{\"zarr_format\":3,\"shape\":[5],\"chunks\":[1],\"dtype\":\"<f4\"}",
         "zarr_format"},
        {2, -E2BIG,
         "{\"zarr_format\":2,\"shape\":[1],\"chunks\":[4611686018427387904],\"dtype\":\"<f4\"}",
         "chunks"},
        {3, 0, V3("[4,6]", "[" BYTES "]"), ""},
        {3, 0,
         V3("[4,6]", "[{\"name\":\"transpose\",\"configuration\":{\"order\":[1,0]}}," BYTES
                     ",{\"name\":\"zstd\",\"configuration\":{\"level\":3}},\"crc32c\"]"),
         ""},
        {3, 0, V3("[4,6]", "[" SHARD("[2,6]", ",\"codecs\":[" BYTES "]," INDEX) "]"), ""},
        {3, -EINVAL, V3("[4,6]", "[" SHARD("[3,6]", ",\"codecs\":[" BYTES "]," INDEX) "]"),
         "don't divide"},
        {3, -EINVAL, V3("[4,6]", "[" SHARD("[2,6]", ",\"codecs\":[" BYTES "]") "]"), "index"},
        {3, -EINVAL, V3("[4,6]", "[\"crc32c\"," BYTES "]"), "wrong place"},
        {3, -EINVAL, V3("[4,6]", "[" BYTES "," BYTES "]"), "wrong place"},
        {3, -EINVAL, V3("[4,6]", "[]"), "none that makes bytes"},
        {3, -EINVAL,
         V3("[4,6]", "[{\"name\":\"transpose\",\"configuration\":{\"order\":[0,0]}}," BYTES "]"),
         "permutation"},
        {3, -EINVAL,
         V3("[4,6]", "[{\"name\":\"transpose\",\"configuration\":{\"order\":[0]}}," BYTES "]"),
         "axes"},
        {3, -ENOTSUP, V3("[4,6]", "[\"vlen-utf8\"]"), "vlen-utf8"},
        {3, -EINVAL, "{\"zarr_format\":3,\"node_type\":\"group\"}", "group"},
        {3, -ENOTSUP, "{\"zarr_format\":3,\"node_type\":\"array\",\"extra\":{\"name\":\"x\"}}",
         "extra"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ckpt_zarr z;
        const int rc = parse(cases[i].json, cases[i].version, &z);
        if (rc != cases[i].rc || !strstr(err.text, cases[i].text))
            print_error("%zu: %d %s\n", i, rc, err.text);
        assert_int_equal(rc, cases[i].rc);
        assert_non_null(strstr(err.text, cases[i].text));
    }
}

/* The same text is the same description, of the same version only; any number of others is read
 * all the same. */
static void test_known(void **state) {
    struct ckpt_zarr_known known = {0};
    const struct ckpt_text json = CKPT_TEXT(V2(V2_REST "\"filters\":null"));
    const struct ckpt_zarr *first = NULL, *second = NULL, *other = NULL;
    char text[300];
    (void)state;
    assert_int_equal(ckpt_zarr_known_parse(&known, json, 2, &arena, &first, &err), 0);
    const char copy[] = V2(V2_REST "\"filters\":null");
    assert_int_equal(ckpt_zarr_known_parse(&known, ckpt_text_of(copy), 2, &arena, &second, &err),
                     0);
    assert_ptr_equal(first, second);
    assert_int_equal(ckpt_zarr_known_parse(&known, json, 3, &arena, &second, &err), -ENOTSUP);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 1; i < 3000; i++) {
            snprintf(
                text, sizeof text,
                "{\"zarr_format\":2,\"shape\":[%d],\"chunks\":[1]," V2_REST "\"filters\":null}", i);
            assert_int_equal(
                ckpt_zarr_known_parse(&known, ckpt_text_of(text), 2, &arena, &other, &err), 0);
            assert_int_equal(other->shape[0], i);
        }
    ckpt_zarr_known_fini(&known);
}

static void test_layout(void **state) {
    struct ckpt_zarr z;
    (void)state;
    assert_int_equal(parse(V2(V2_REST "\"filters\":null"), 2, &z), 0);
    assert_int_equal(z.chain.stride[0], 4);
    assert_int_equal(z.chain.stride[1], 1);
    assert_int_equal(parse(V2("\"dtype\":\">i2\",\"order\":\"F\",\"fill_value\":258"), 2, &z), 0);
    assert_int_equal(z.chain.stride[0], 1);
    assert_int_equal(z.chain.stride[1], 3);
    assert_true(z.swap);
    assert_memory_equal(z.fill, "\1\2", 2);
    assert_int_equal(parse(V3("[4,6]", "[{\"name\":\"transpose\",\"configuration\":{\"order\":"
                                       "[1,0]}}," BYTES "]"),
                           3, &z),
                     0);
    assert_int_equal(z.chain.stride[0], 1);
    assert_int_equal(z.chain.stride[1], 4);
}

static void test_keys(void **state) {
    static const struct {
        const char *key;
        uint64_t number;
    } sound[] = {{"0.0", 0}, {"0.1", 1}, {"1.0", 2}, {"1.1", 3}};
    static const char *const others[] = {"",        "0",     "0.2",   "2.0",
                                         "00.0",    "0.0.0", "0/0",   "0.-1",
                                         ".zarray", "0.0 ",  "c/0/0", "99999999999999999999.0"};
    struct ckpt_zarr z;
    uint64_t number;
    (void)state;
    assert_int_equal(parse(V2(V2_REST "\"filters\":null"), 2, &z), 0);
    for (size_t i = 0; i < sizeof sound / sizeof *sound; i++) {
        assert_true(ckpt_zarr_chunk_number(&z, ckpt_text_of(sound[i].key), &number));
        assert_int_equal(number, sound[i].number);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(ckpt_zarr_chunk_number(&z, ckpt_text_of(others[i]), &number));
    assert_int_equal(parse(V3("[]", "[" BYTES "]"), 3, &z), 0);
    assert_true(ckpt_zarr_chunk_number(&z, CKPT_TEXT("c"), &number));
    assert_false(ckpt_zarr_chunk_number(&z, CKPT_TEXT("c/0"), &number));
}

static void check_fill(const char *dtype, const char *value, const void *bytes, size_t n) {
    char json[400];
    struct ckpt_zarr z;
    snprintf(json, sizeof json,
             "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[1],\"data_type\":\"%s\","
             "\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[1]}},"
             "\"chunk_key_encoding\":{\"name\":\"v2\"},\"fill_value\":%s,\"codecs\":[\"bytes\"]}",
             dtype, value);
    assert_int_equal(parse(json, 3, &z), 0);
    assert_int_equal(z.fill_unknown, bytes == NULL);
    if (bytes && memcmp(z.fill, bytes, n) != 0)
        print_error("%s %s\n", dtype, value);
    if (bytes)
        assert_memory_equal(z.fill, bytes, n);
}

static void test_fill(void **state) {
    (void)state;
    check_fill("float32", "1.5", &(float){1.5f}, 4);
    check_fill("float32", "0.1", &(float){0.1f}, 4);
    check_fill("float32", "1e-42", &(float){1e-42f}, 4);
    check_fill("float32", "-0.0", &(float){-0.0f}, 4);
    check_fill("float32", "1e300", &(float){__builtin_inff()}, 4);
    check_fill("float32", "\"0x7fc00001\"", "\1\0\xc0\x7f", 4);
    check_fill("float64", "0.1", &(double){0.1}, 8);
    check_fill("float64", "5e-324", &(double){5e-324}, 8);
    check_fill("float64", "\"-Infinity\"", &(double){-__builtin_inf()}, 8);
    check_fill("float16", "1.0", "\x00\x3c", 2);
    check_fill("float16", "65520", "\x00\x7c", 2);
    check_fill("float16", "\"NaN\"", "\x00\x7e", 2);
    check_fill("bfloat16", "-2.5", "\x20\xc0", 2);
    check_fill("complex64", "[1.0,\"Infinity\"]", (float[]){1, __builtin_inff()}, 8);
    check_fill("int8", "-3", "\xfd", 1);
    check_fill("int64", "-9223372036854775808", &(int64_t){INT64_MIN}, 8);
    check_fill("uint64", "18446744073709551615", &(uint64_t){UINT64_MAX}, 8);
    check_fill("bool", "true", "\1", 1);
    check_fill("float8_e4m3fn", "0.0", "\0", 1);
    check_fill("float8_e4m3fn", "1.0", NULL, 0);
    check_fill("int32", "1.5", NULL, 0);
}

/* A shard whose index lies, and a checksum that is wrong. */
static void test_damaged_shard(void **state) {
    struct ckpt_zarr z;
    uint8_t out[96], shard[48 + 32] = {0};
    (void)state;
    assert_int_equal(
        parse(V3("[4,6]", "[" SHARD("[2,6]", ",\"codecs\":[" BYTES "],\"index_codecs\":[" BYTES
                                             "],\"index_location\":\"start\"") "]"),
              3, &z),
        0);
    for (int i = 0; i < 48; i++)
        shard[32 + i] = (uint8_t)i;
    const uint64_t index[4] = {32, 48, UINT64_MAX, UINT64_MAX}; /* the second one is absent */
    memcpy(shard, index, sizeof index);
    struct ckpt_stored value = ckpt_stored_memory(shard, sizeof shard);
    assert_int_equal(ckpt_zarr_decode(&z, &value, out, NULL, &err), 0);
    assert_memory_equal(out, shard + 32, 48);
    assert_memory_equal(out + 48, (uint8_t[48]){0}, 48);
    static const uint64_t wrong[][2] = {
        {33, 48}, {32, 47}, {UINT64_MAX, 48}, {0, UINT64_MAX}, {1000, 48}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(shard, wrong[i], sizeof wrong[i]);
        assert_int_equal(ckpt_zarr_decode(&z, &value, out, NULL, &err), -EBADMSG);
    }
    value.length = 20;
    assert_int_equal(ckpt_zarr_decode(&z, &value, out, NULL, &err), -EBADMSG);
}

/* --- msgpack ---------------------------------------------------------------------------------- */

static void write_file(const char *folder, const char *name, const void *bytes, size_t n) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void remove_folder(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
    rmdir(folder);
}

static void put(struct ckpt_str *s, const char *bytes, size_t n) {
    ckpt_str_add(s, bytes, n);
}
#define PUT(s, literal) put(s, literal, sizeof(literal) - 1)

/* ext 1 of int16 values from `first` on. */
static void put_piece(struct ckpt_str *s, int first, int n) {
    struct ckpt_str payload = {0};
    PUT(&payload, "\x93\x91");
    put(&payload, (char[]){(char)n}, 1);
    PUT(&payload, "\xa5int16\xc4");
    put(&payload, (char[]){(char)(2 * n)}, 1);
    for (int i = 0; i < n; i++)
        put(&payload, (char[]){(char)(first + i), 0}, 2);
    PUT(s, "\xc7");
    put(s, (char[]){(char)payload.n, 1}, 2);
    put(s, payload.s, payload.n);
    ckpt_str_fini(&payload);
}

/* {"w": {"__msgpack_chunked_array__": true, "shape": {"0": 2, "1": 5}, "chunks": ...}} */
static struct ckpt_str pieces_file(int last) {
    struct ckpt_str s = {0};
    PUT(&s, "\x81\xa1w\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x82\xa1"
            "0\x02\xa1"
            "1\x05\xa6"
            "chunks\x83\xa1"
            "0");
    put_piece(&s, 0, 4);
    PUT(&s, "\xa1"
            "1");
    put_piece(&s, 4, 4);
    PUT(&s, "\xa1"
            "2");
    put_piece(&s, 8, last);
    return s;
}

static void test_pieces(void **state) {
    char folder[] = "/tmp/ckpt-flax-XXXXXX", path[200];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/checkpoint_3", folder);
    for (int last = 1; last <= 3; last++) {
        CKPT_AUTO(str) struct ckpt_str s = pieces_file(last);
        struct ckpt_checkpoint *c = NULL;
        struct ckpt_pin pin;
        write_file(folder, "checkpoint_3", s.s, s.n);
        const int rc = ckpt_checkpoint_open(last == 2 ? path : folder, NULL, &c, &err);
        assert_int_equal(rc, last == 2 ? 0 : -EINVAL); /* 4 + 4 + 2 are what [2, 5] has */
        if (rc == 0) {
            const struct ckpt_tensor *const t = &c->tensors[0];
            assert_true(ckpt_text_is(t->key, "w"));
            assert_int_equal(t->blob->ops->pin(t->blob, 0, 20, &pin, NULL, NULL), 0);
            for (int i = 0; i < 10; i++)
                assert_int_equal(pin.data[2 * i], i);
            t->blob->ops->unpin(t->blob, &pin);
        }
        ckpt_checkpoint_close(c);
    }
    remove_folder(folder, "checkpoint_3");
}

/* T5X writes where an array is; its name is the last part of the path. */
static void test_t5x(void **state) {
    char folder[] = "/tmp/ckpt-t5x-XXXXXX", array[100];
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_pin pin;
    (void)state;
    static const char tree[] = "\x81\xa1w\x82\xa6"
                               "driver\xa4zarr\xa7kvstore\x81\xa4path\xabgs://b/x.y/";
    static const char meta[] = "{\"zarr_format\":2,\"shape\":[2],\"chunks\":[2],\"dtype\":\"|u1\","
                               "\"compressor\":null,\"fill_value\":null,\"order\":\"C\"}";
    assert_non_null(mkdtemp(folder));
    snprintf(array, sizeof array, "%s/x.y", folder);
    assert_int_equal(mkdir(array, 0700), 0);
    write_file(array, ".zarray", meta, sizeof meta - 1);
    write_file(array, "0", "\7\10", 2);
    write_file(folder, "checkpoint", tree, sizeof tree - 1);
    assert_int_equal(ckpt_checkpoint_open(folder, NULL, &c, &err), 0);
    assert_int_equal(c->ntensors, 1);
    const struct ckpt_tensor *const t = &c->tensors[0];
    assert_int_equal(t->blob->ops->pin(t->blob, 0, 2, &pin, NULL, NULL), 0);
    assert_memory_equal(pin.data, "\7\10", 2);
    t->blob->ops->unpin(t->blob, &pin);
    ckpt_checkpoint_close(c);
    unlink(strcat(array, "/.zarray"));
    strcpy(strrchr(array, '/'), "");
    remove_folder(array, "0");
    remove_folder(folder, "checkpoint");
}

/* --- folders ---------------------------------------------------------------------------------- */

static void test_lost_dot_files(void **state) {
    char folder[] = "/tmp/ckpt-lost-XXXXXX", array[100];
    struct ckpt_checkpoint *c = NULL;
    (void)state;
    static const char meta[] =
        "{\"tree_metadata\":{\"('w',)\":{\"key_metadata\":[{\"key\":\"w\",\"key_type\":2}],"
        "\"value_metadata\":{\"value_type\":\"jax.Array\",\"skip_deserialize\":false}}}}";
    assert_non_null(mkdtemp(folder));
    snprintf(array, sizeof array, "%s/w", folder);
    assert_int_equal(mkdir(array, 0700), 0);
    write_file(array, "0", "\7\10", 2);
    write_file(folder, "_METADATA", meta, sizeof meta - 1);
    assert_int_equal(ckpt_checkpoint_open(folder, NULL, &c, &err), -EINVAL);
    assert_non_null(strstr(err.text, "array \"w\": its chunks are there, but not its .zarray"));
    remove_folder(array, "0");
    assert_int_equal(ckpt_checkpoint_open(folder, NULL, &c, &err), -EINVAL);
    assert_non_null(strstr(err.text, "not in the store"));
    remove_folder(folder, "_METADATA");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_metadata, free_arena),
        cmocka_unit_test_teardown(test_known, free_arena),
        cmocka_unit_test_teardown(test_layout, free_arena),
        cmocka_unit_test_teardown(test_keys, free_arena),
        cmocka_unit_test_teardown(test_fill, free_arena),
        cmocka_unit_test_teardown(test_damaged_shard, free_arena),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_t5x),
        cmocka_unit_test(test_lost_dot_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
