/*
 * The limits of stores, their databases and arrays, of msgpack, burnpack and Orbax at their edges:
 * what lies just at one is accepted, one more is refused in a sentence that names it. Inputs are
 * made here.
 */
#include "toy.h"

#include <unistd.h>

#include "base/cleanup.h"
#include "base/guard.h"
#include "formats/burnpack_header.h"
#include "formats/limits.h"
#include "formats/msgpack.h"
#include "formats/ocdbt.h"
#include "formats/orbax.h"
#include "formats/zarr.h"

/* expected NULL: must succeed; else the sentence that the refusal must hold. */
static void check(int rc, const struct ckpt_err *err, const char *expected) {
    if (expected ? rc == 0 || !strstr(err->text, expected) : rc != 0)
        fail_msg("rc %d \"%s\", expected \"%s\"", rc, err->text, expected ? expected : "success");
}

static void repeat(struct ckpt_str *s, const char *unit, size_t n) {
    const size_t length = strlen(unit);
    for (size_t i = 0; i < n; i++)
        ckpt_str_add(s, unit, length);
}

static void put_be(struct ckpt_str *s, uint64_t v, unsigned bytes) {
    while (bytes-- > 0)
        ckpt_str_add(s, &(char){(char)(v >> (8 * bytes))}, 1);
}

static void put_varint(struct ckpt_str *s, uint64_t v) {
    for (; v >= 128; v >>= 7)
        ckpt_str_add(s, &(char){(char)(v | 128)}, 1);
    ckpt_str_add(s, &(char){(char)v}, 1);
}

/* --- key-value stores ------------------------------------------------------------------------- */

/* n keys of so many bytes, all but the last four of which are zeros. */
static void check_keys(size_t n, size_t bytes, const char *expected) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    CKPT_AUTO(kvstore) struct ckpt_kvstore s = {.arena = &arena};
    CKPT_AUTO(free) char *key = calloc(1, bytes + 1);
    struct ckpt_err err = {0};
    int rc = 0;
    assert_non_null(key);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        for (unsigned k = 0; k < 4; k++)
            key[bytes - 4 + k] = (char)(i >> (24 - 8 * k));
        rc = ckpt_kvstore_add(&s, (struct ckpt_text){key, bytes}, (struct ckpt_stored){0}, &err);
    }
    check(rc, &err, expected);
}

static void test_keys(void **state) {
    (void)state;
    check_keys(CKPT_LIMIT_KV_KEYS, 4, NULL);
    check_keys(CKPT_LIMIT_KV_KEYS + 1, 4, "(limit of keys)");
    check_keys(CKPT_LIMIT_KV_KEY_BYTES / 65536, 65536, NULL);
    check_keys(CKPT_LIMIT_KV_KEY_BYTES / 65536 + 1, 65536, "(limit of key bytes)");
}

/* What memory small values take is not known to the byte. */
static void test_store_memory(void **state) {
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        CKPT_AUTO(arena) struct ckpt_arena arena = {0};
        CKPT_AUTO(kvstore) struct ckpt_kvstore s = {.arena = &arena};
        struct ckpt_err err = {0};
        assert_int_equal(ckpt_kvstore_add(&s, CKPT_TEXT("a"), (struct ckpt_stored){0}, &err), 0);
        assert_non_null(ckpt_arena_alloc(&arena, CKPT_LIMIT_MEMORY - 1024 + more * 1024));
        check(ckpt_kvstore_add(&s, CKPT_TEXT("b"), (struct ckpt_stored){0}, &err), &err,
              more ? "(limit of memory)" : NULL);
    }
}

/* --- the database ----------------------------------------------------------------------------- */

static void check_node(const struct ckpt_str *body, const char *expected) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct ckpt_ocdbt_node node;
    struct ckpt_err err = {0};
    assert_false(body->failed);
    check(ckpt_ocdbt_parse_node(body->s, body->n, CKPT_TEXT(""), &arena, &node, &err), &err,
          expected);
}

/* A leaf of n empty values, whose keys are numbers. */
static void check_entries(size_t n, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str body = {0};
    ckpt_str_add(&body, "\0\0", 2); /* height, files */
    put_varint(&body, n);
    for (size_t i = 1; i < n; i++)
        put_varint(&body, 0);
    for (size_t i = 0; i < n; i++)
        put_varint(&body, 4);
    for (size_t i = 0; i < n; i++)
        put_be(&body, i, 4);
    for (size_t i = 0; i < 2 * n; i++) /* lengths, kinds */
        put_varint(&body, 0);
    check_node(&body, expected);
}

/* A leaf that refers to n files, all of one name. */
static void check_files(size_t n, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str body = {0};
    ckpt_str_add(&body, "\0", 1);
    put_varint(&body, n);
    for (size_t i = 1; i < n; i++)
        put_varint(&body, 1);
    put_varint(&body, 1);
    for (size_t i = 1; i < 2 * n; i++) /* suffixes, bases */
        put_varint(&body, 0);
    ckpt_str_add(&body, "x\1\1k\0\0", 6); /* and an entry: its key, no bytes, inline */
    check_node(&body, expected);
}

static void test_entries(void **state) {
    (void)state;
    check_entries(CKPT_LIMIT_OCDBT_ENTRIES, NULL);
    check_entries(CKPT_LIMIT_OCDBT_ENTRIES + 1, "(limit of database entries)");
    check_files(CKPT_LIMIT_OCDBT_ENTRIES, NULL);
    check_files(CKPT_LIMIT_OCDBT_ENTRIES + 1, "(limit of database entries)");
}

/* A file, or a key, with a name of so many bytes. */
static void check_path(size_t file, size_t key, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str body = {0};
    ckpt_str_add(&body, "\0\1", 2);
    put_varint(&body, file);
    put_varint(&body, 0);
    repeat(&body, "f", file);
    ckpt_str_add(&body, "\1", 1);
    put_varint(&body, key);
    repeat(&body, "k", key);
    ckpt_str_add(&body, "\0\0", 2);
    check_node(&body, expected);
}

static void test_path(void **state) {
    (void)state;
    check_path(CKPT_LIMIT_OCDBT_PATH, 1, NULL);
    check_path(CKPT_LIMIT_OCDBT_PATH + 1, 1, "(limit of database paths)");
    check_path(1, CKPT_LIMIT_OCDBT_PATH, NULL);
    check_path(1, CKPT_LIMIT_OCDBT_PATH + 1, "(limit of database paths)");
}

/* --- arrays ----------------------------------------------------------------------------------- */

static void check_zarr(const struct ckpt_str *json, int version, const char *expected) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct ckpt_zarr z;
    struct ckpt_err err = {0};
    assert_false(json->failed);
    check(ckpt_zarr_parse(json->s, json->n, version, &arena, &z, &err), &err, expected);
}

static void check_codecs(const char *dtype, uint64_t shape, const char *codecs,
                         const char *expected) {
    CKPT_AUTO(str) struct ckpt_str json = {0};
    ckpt_str_printf(&json,
                    "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[%llu],\"data_type\":"
                    "\"%s\",\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape"
                    "\":[%llu]}},\"chunk_key_encoding\":\"default\",\"fill_value\":0,\"codecs\":[",
                    (unsigned long long)shape, dtype, (unsigned long long)shape);
    ckpt_str_puts(&json, codecs);
    ckpt_str_puts(&json, "]}");
    check_zarr(&json, 3, expected);
}

/* `behind`: codecs of whole shards, without which their chunks are read one by one. */
static void check_shards(uint64_t shape, uint64_t chunk, const char *behind, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str codecs = {0};
    ckpt_str_printf(&codecs,
                    "{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":[%llu],"
                    "\"codecs\":[\"bytes\"],\"index_codecs\":[\"bytes\"]}}%s",
                    (unsigned long long)chunk, behind);
    check_codecs("uint8", shape, codecs.s, expected);
}

static void check_nested(unsigned depth, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str codecs = {0};
    for (unsigned i = 0; i < depth; i++)
        ckpt_str_puts(&codecs, "{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":"
                               "[1],\"index_codecs\":[\"bytes\"],\"codecs\":[");
    ckpt_str_puts(&codecs, "\"bytes\"");
    repeat(&codecs, "]}}", depth);
    check_codecs("uint8", 1, codecs.s, expected);
}

static void check_steps(unsigned n, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str codecs = {0};
    ckpt_str_puts(&codecs, "\"bytes\"");
    repeat(&codecs, ",\"crc32c\"", n);
    check_codecs("uint8", 1, codecs.s, expected);
}

static void test_zarr(void **state) {
    (void)state;
    check_shards(CKPT_LIMIT_ZARR_SUBCHUNKS, 1, "", NULL);
    check_shards(CKPT_LIMIT_ZARR_SUBCHUNKS + 1, 1, "", "(limit of subchunks)");
    check_shards(2ull * CKPT_LIMIT_ZARR_SUBCHUNK_BYTES, CKPT_LIMIT_ZARR_SUBCHUNK_BYTES,
                 ",\"crc32c\"", NULL);
    check_shards(2ull * CKPT_LIMIT_ZARR_SUBCHUNK_BYTES + 2, CKPT_LIMIT_ZARR_SUBCHUNK_BYTES + 1,
                 ",\"crc32c\"", "(limit of subchunk bytes)");
    check_nested(CKPT_LIMIT_ZARR_SHARDS, NULL);
    check_nested(CKPT_LIMIT_ZARR_SHARDS + 1, "(limit of nested shards)");
    check_steps(CKPT_LIMIT_ZARR_STEPS, NULL);
    check_steps(CKPT_LIMIT_ZARR_STEPS + 1, "(limit of codecs)");
    check_codecs("uint8", CKPT_LIMIT_INFLATED_BYTES, "\"bytes\"", NULL);
    check_codecs("uint8", CKPT_LIMIT_INFLATED_BYTES + 1, "\"bytes\"", "(limit of chunk bytes)");
}

/* --- msgpack ---------------------------------------------------------------------------------- */

static void check_msgpack(const struct ckpt_str *s, const char *expected) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct ckpt_value *v = NULL;
    struct ckpt_err err = {0};
    assert_false(s->failed);
    check(ckpt_msgpack_read((const uint8_t *)s->s, s->n, &arena, &v, &err), &err, expected);
}

static void check_msgpack_depth(unsigned n, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    repeat(&s, "\x91", n); /* lists in lists, around a number */
    ckpt_str_puts(&s, "\1");
    check_msgpack(&s, expected);
}

static void check_msgpack_objects(size_t n, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    ckpt_str_puts(&s, "\xdd");
    put_be(&s, n - 1, 4); /* the list is one, too */
    repeat(&s, "\xc0", n - 1);
    check_msgpack(&s, expected);
}

static void check_msgpack_texts(size_t n, size_t bytes, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    ckpt_str_puts(&s, "\xdd");
    put_be(&s, n, 4);
    for (size_t i = 0; i < n; i++) {
        ckpt_str_puts(&s, "\xdb");
        put_be(&s, bytes, 4);
        repeat(&s, "x", bytes);
    }
    check_msgpack(&s, expected);
}

static void test_msgpack(void **state) {
    const size_t most = CKPT_LIMIT_MSGPACK_TEXTS / CKPT_LIMIT_MSGPACK_TEXT;
    (void)state;
    check_msgpack_depth(CKPT_LIMIT_MSGPACK_DEPTH, NULL);
    check_msgpack_depth(CKPT_LIMIT_MSGPACK_DEPTH + 1, "(limit of msgpack depth)");
    check_msgpack_objects(CKPT_LIMIT_MSGPACK_OBJECTS, NULL);
    check_msgpack_objects(CKPT_LIMIT_MSGPACK_OBJECTS + 1, "(limit of msgpack values)");
    check_msgpack_texts(1, CKPT_LIMIT_MSGPACK_TEXT, NULL);
    check_msgpack_texts(1, CKPT_LIMIT_MSGPACK_TEXT + 1, "(limit of msgpack text)");
    check_msgpack_texts(most, CKPT_LIMIT_MSGPACK_TEXT, NULL);
    check_msgpack_texts(most + 1, CKPT_LIMIT_MSGPACK_TEXT, "(limit of msgpack texts)");
}

/* --- Orbax' descriptions ---------------------------------------------------------------------- */

static void check_segments(unsigned n, unsigned bytes, const char *expected) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    CKPT_AUTO(str) struct ckpt_str json = {0};
    struct ckpt_orbax_metadata m;
    struct ckpt_err err = {0};
    ckpt_str_puts(&json, "{\"tree_metadata\":{\"x\":{\"key_metadata\":[");
    for (unsigned i = 0; i < n; i++) {
        ckpt_str_puts(&json, i ? ",{\"key\":\"" : "{\"key\":\"");
        repeat(&json, "k", bytes);
        ckpt_str_puts(&json, "\"}");
    }
    ckpt_str_puts(&json, "]}}}");
    check(ckpt_orbax_parse_metadata(json.s, json.n, &arena, &m, &err), &err, expected);
}

static void test_orbax(void **state) {
    (void)state;
    check_segments(CKPT_LIMIT_ORBAX_SEGMENTS, 1, NULL);
    check_segments(CKPT_LIMIT_ORBAX_SEGMENTS + 1, 1, "(limit of path segments)");
    check_segments(1, CKPT_LIMIT_KEY_BYTES, NULL);
    check_segments(1, CKPT_LIMIT_KEY_BYTES + 1, "(limit of key bytes)");
}

/* --- burnpack --------------------------------------------------------------------------------- */

static void put_text(struct ckpt_str *s, const char *text) {
    ckpt_str_printf(s, "%c%s", (char)(0x60 + strlen(text)), text);
}

static void put_head(struct ckpt_str *s, unsigned char kind, uint64_t n) {
    ckpt_str_add(s, &kind, 1);
    put_be(s, n, 8);
}

/* So many tensors of so many bytes, and pairs; a text of `blank` bytes in a section of its own. */
static struct ckpt_str make_pack(size_t tensors, uint64_t bytes, size_t pairs, size_t blank) {
    struct ckpt_str s = {0};
    char name[20];
    put_head(&s, 0xbb, 3);
    put_text(&s, "tensors");
    put_head(&s, 0xbb, tensors);
    for (size_t i = 0; i < tensors; i++) {
        snprintf(name, sizeof name, "%zu", i);
        put_text(&s, name);
        put_head(&s, 0xbb, 3);
        put_text(&s, "dtype");
        put_text(&s, "U8");
        put_text(&s, "shape");
        ckpt_str_puts(&s, "\x81");
        put_head(&s, 0x1b, bytes);
        put_text(&s, "data_offsets");
        ckpt_str_puts(&s, "\x82");
        put_head(&s, 0x1b, 0);
        put_head(&s, 0x1b, bytes);
    }
    put_text(&s, "metadata");
    put_head(&s, 0xbb, pairs);
    for (size_t i = 0; i < pairs; i++) {
        snprintf(name, sizeof name, "%zu", i);
        put_text(&s, name);
        put_text(&s, "");
    }
    put_text(&s, "later");
    put_head(&s, 0x7b, blank);
    repeat(&s, "x", blank);
    return s;
}

static void check_pack(size_t tensors, uint64_t bytes, size_t pairs, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str cbor = make_pack(tensors, bytes, pairs, 0);
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    CKPT_AUTO(bpk_table) struct ckpt_bpk_table t = {0};
    struct ckpt_err err = {0};
    assert_false(cbor.failed);
    check(ckpt_bpk_parse(&t, &arena, cbor.s, cbor.n, bytes, false, &err), &err, expected);
}

/* A file with so many bytes of metadata, and so many in all (holes, mostly). */
static void check_pack_file(size_t metadata, uint64_t size, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str least = make_pack(0, 0, 0, 0);
    CKPT_AUTO(str) struct ckpt_str cbor = make_pack(0, 0, 0, metadata - least.n);
    char path[] = "/tmp/test_limits_store.XXXXXX";
    CKPT_AUTO(str) struct ckpt_str head = {0};
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && cbor.n == metadata);
    ckpt_str_add(&head, "NRUB\1\0", 6);
    for (unsigned i = 0; i < 4; i++)
        ckpt_str_add(&head, &(char){(char)(metadata >> (8 * i))}, 1);
    ckpt_str_add(&head, cbor.s, cbor.n);
    for (size_t done = 0; done < head.n;) {
        const ssize_t n = write(fd, head.s + done, head.n - done);
        assert_true(n > 0);
        done += (size_t)n;
    }
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    close(fd);
    const int rc = ckpt_checkpoint_open(path, NULL, &c, &err);
    ckpt_checkpoint_close(c);
    unlink(path);
    check(rc, &err, expected);
}

static void test_burnpack(void **state) {
    (void)state;
    check_pack(CKPT_LIMIT_BURNPACK_TENSORS, 0, 0, NULL);
    check_pack(CKPT_LIMIT_BURNPACK_TENSORS + 1, 0, 0, "more than 100000 tensors, burn's limit");
    check_pack(1, CKPT_LIMIT_BURNPACK_TENSOR_BYTES, 0, NULL);
    check_pack(1, CKPT_LIMIT_BURNPACK_TENSOR_BYTES + 1, 0, "burn's limit of one tensor");
    check_pack(0, 0, CKPT_LIMIT_BURNPACK_PAIRS, NULL);
    check_pack(0, 0, CKPT_LIMIT_BURNPACK_PAIRS + 1, "(limit of burnpack pairs)");
    check_pack_file(CKPT_LIMIT_BURNPACK_METADATA, CKPT_LIMIT_BURNPACK_METADATA + 1000, NULL);
    check_pack_file(CKPT_LIMIT_BURNPACK_METADATA + 1, CKPT_LIMIT_BURNPACK_METADATA + 1000,
                    "bytes, burn's limit is");
    check_pack_file(1000, CKPT_LIMIT_BURNPACK_FILE_BYTES, NULL);
    check_pack_file(1000, CKPT_LIMIT_BURNPACK_FILE_BYTES + 1, "burn's limit of the file");
}

static int install_guard(void **state) {
    (void)state;
    return ckpt_guard_install();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),    cmocka_unit_test(test_store_memory),
        cmocka_unit_test(test_entries), cmocka_unit_test(test_path),
        cmocka_unit_test(test_zarr),    cmocka_unit_test(test_msgpack),
        cmocka_unit_test(test_orbax),   cmocka_unit_test(test_burnpack),
    };
    return cmocka_run_group_tests(tests, install_guard, NULL);
}
