/* OCDBT: checksums, decompression, the example of a manifest and a node byte by byte, and trees
 * that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "formats/decompress.h"
#include "formats/ocdbt.h"
#include "property.h"

static void test_crc32c(void **state) {
    (void)state;
    uint8_t bytes[1000];
    assert_int_equal(ckpt_crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(ckpt_crc32c_portable(0, "123456789", 9), 0xE3069283);
    property_begin("crc32c");
    for (int i = 0; i < 2000; i++) {
        const size_t at = property_below(64), n = property_below(sizeof bytes - 64 + 1);
        const size_t cut = n ? property_below(n) : 0;
        for (size_t k = 0; k < sizeof bytes; k += 8)
            memcpy(bytes + k, &(uint64_t){property_u64()}, 8);
        const uint32_t want = ckpt_crc32c_portable(0, bytes + at, n);
        assert_int_equal(ckpt_crc32c(0, bytes + at, n), want);
        assert_int_equal(ckpt_crc32c(ckpt_crc32c(0, bytes + at, cut), bytes + at + cut, n - cut),
                         want);
    }
}

/* --- decompression ---------------------------------------------------------------------------- */

static uint8_t plain[300000];

static size_t compress_zstd(uint8_t *out, size_t room) {
    /* A stream without its size in the header, as tensorstore writes it. */
    ZSTD_CCtx *const z = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(z, ZSTD_c_contentSizeFlag, 0);
    const size_t n = ZSTD_compress2(z, out, room, plain, sizeof plain);
    ZSTD_freeCCtx(z);
    assert_false(ZSTD_isError(n));
    return n;
}

static size_t compress_zlib(uint8_t *out, size_t room) {
    uLongf n = room;
    assert_int_equal(compress(out, &n, plain, sizeof plain), Z_OK);
    return n;
}

/* Decodes to the right size, one less, one more; and what is cut short. */
static void check_decoding(enum ckpt_compression c, const uint8_t *stored, size_t n) {
    static uint8_t out[sizeof plain + 1];
    struct ckpt_err err = {0};
    struct ckpt_stored value = ckpt_stored_memory(stored, n);
    uint8_t *grown = NULL;
    size_t size = 0;
    assert_int_equal(ckpt_decompress(c, &value, out, sizeof plain, NULL, &err), 0);
    assert_memory_equal(out, plain, sizeof plain);
    assert_int_equal(ckpt_decompress(c, &value, out, sizeof plain - 1, NULL, &err), -EBADMSG);
    assert_int_equal(ckpt_decompress(c, &value, out, sizeof plain + 1, NULL, &err), -EBADMSG);
    assert_int_equal(ckpt_decompress_all(c, &value, sizeof plain, &grown, &size, NULL, &err), 0);
    assert_int_equal(size, sizeof plain);
    assert_memory_equal(grown, plain, size);
    free(grown);
    assert_int_equal(ckpt_decompress_all(c, &value, sizeof plain - 1, &grown, &size, NULL, &err),
                     -E2BIG);
    value.length--;
    assert_int_equal(ckpt_decompress(c, &value, out, sizeof plain, NULL, &err), -EBADMSG);
}

static void test_decompress(void **state) {
    (void)state;
    static uint8_t stored[sizeof plain + 1000];
    for (size_t i = 0; i < sizeof plain; i++)
        plain[i] = (uint8_t)(i * i >> 7);
    check_decoding(CKPT_COMPRESSION_NONE, plain, sizeof plain);
    check_decoding(CKPT_COMPRESSION_ZSTD, stored, compress_zstd(stored, sizeof stored));
    check_decoding(CKPT_COMPRESSION_ZLIB, stored, compress_zlib(stored, sizeof stored));
}

/* --- bytes ------------------------------------------------------------------------------------ */

struct writer {
    uint8_t b[4096];
    size_t n;
};

static void put(struct writer *w, const void *bytes, size_t n) {
    assert_true(n <= sizeof w->b - w->n);
    memcpy(w->b + w->n, bytes, n);
    w->n += n;
}

static void put_u8(struct writer *w, uint8_t v) {
    put(w, &v, 1);
}

static void put_varint(struct writer *w, uint64_t v) {
    for (; v >= 0x80; v >>= 7)
        put_u8(w, (uint8_t)(v | 0x80));
    put_u8(w, (uint8_t)v);
}

static void put_le(struct writer *w, uint64_t v, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        put_u8(w, (uint8_t)(v >> (8 * i)));
}

/* The body in its envelope, uncompressed. */
static struct writer wrap(const struct writer *body, uint32_t magic) {
    struct writer w = {.n = 0};
    for (int i = 3; i >= 0; i--)
        put_u8(&w, (uint8_t)(magic >> (8 * i)));
    put_le(&w, 12 + 2 + body->n + 4, 8);
    put_u8(&w, 0);
    put_u8(&w, 0);
    put(&w, body->b, body->n);
    put_le(&w, ckpt_crc32c(0, w.b, w.n), 4);
    return w;
}

static const char manifest_start[] = "\x05\x90\x25\x29\x79\xfd\x78\x76\x88\xcd\x1c\xef\xeb\xdb\xd8"
                                     "\xce\x00\x80\x08\x80\xc2\xd7\x2f\x04\x01\0\0\0\0";

/* The manifest of fixture e_manager_default. */
static struct writer example_manifest(void) {
    struct writer w = {.n = 0};
    put(&w, manifest_start, sizeof manifest_start - 1);
    put(&w,
        "\x01\x22\x00"
        "d/1e558d8cd81ffb8a32b23ce312a625c6",
        3 + 34);
    put(&w, "\x01\x01\x00\x00\x00\x9a\x02\x02\x9a\x02\x00\x1c\x2f\x9a\xa8\x4f\xb4\xec\x18\x00", 20);
    return w;
}

static void test_manifest(void **state) {
    (void)state;
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct ckpt_ocdbt_manifest m;
    struct ckpt_err err = {0};
    struct writer w = example_manifest();
    assert_int_equal(ckpt_ocdbt_parse_manifest(w.b, w.n, &arena, &m, &err), 0);
    assert_int_equal(m.generation, 1);
    assert_int_equal(m.keys, 2);
    assert_int_equal(m.root.length, 282);
    assert_int_equal(m.files.n, 1);
    assert_true(ckpt_text_is(m.files.file[0].path, "d/1e558d8cd81ffb8a32b23ce312a625c6"));
    for (size_t n = 0; n < w.n; n++)
        assert_int_equal(ckpt_ocdbt_parse_manifest(w.b, n, &arena, &m, &err), -EINVAL);
    put_u8(&w, 0);
    assert_int_equal(ckpt_ocdbt_parse_manifest(w.b, w.n, &arena, &m, &err), -EINVAL);
}

static void test_envelope(void **state) {
    (void)state;
    const struct writer body = example_manifest();
    struct writer w = wrap(&body, CKPT_OCDBT_MANIFEST);
    struct ckpt_err err = {0};
    CKPT_AUTO(free) uint8_t *out = NULL;
    size_t n = 0;
    assert_int_equal(ckpt_ocdbt_unwrap(w.b, w.n, CKPT_OCDBT_MANIFEST, 4096, &out, &n, &err), 0);
    assert_int_equal(n, body.n);
    assert_memory_equal(out, body.b, n);
    uint8_t *none = NULL;
    assert_int_equal(ckpt_ocdbt_unwrap(w.b, w.n, CKPT_OCDBT_NODE, 4096, &none, &n, &err), -EINVAL);
    assert_int_equal(ckpt_ocdbt_unwrap(w.b, w.n, CKPT_OCDBT_MANIFEST, 10, &none, &n, &err), -E2BIG);
    for (size_t i = 0; i < w.n; i++) { /* no bit may change */
        w.b[i] ^= 0x10;
        assert_int_equal(ckpt_ocdbt_unwrap(w.b, w.n, CKPT_OCDBT_MANIFEST, 4096, &none, &n, &err),
                         -EINVAL);
        w.b[i] ^= 0x10;
        assert_int_equal(ckpt_ocdbt_unwrap(w.b, i, CKPT_OCDBT_MANIFEST, 4096, &none, &n, &err),
                         -EINVAL);
    }
}

/* One file with the given path; base path of base_n bytes. */
static void put_file(struct writer *w, const char *path, size_t base_n) {
    put_varint(w, 1);
    put_varint(w, strlen(path));
    put_varint(w, base_n);
    put(w, path, strlen(path));
}

static void test_paths(void **state) {
    (void)state;
    static const struct {
        const char *path;
        bool ok;
    } paths[] = {{"d/x", true},   {"ocdbt.process_0/d/x", true},
                 {"", true},      {"..a/b", true},
                 {"a..", true},   {"/etc/passwd", false},
                 {"../x", false}, {"d/../../x", false},
                 {"d/..", false}, {"..", false}};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        CKPT_AUTO(arena) struct ckpt_arena arena = {0};
        struct ckpt_ocdbt_node node;
        struct writer w = {.n = 0};
        put_u8(&w, 0);
        put_file(&w, paths[i].path, 0);
        put_varint(&w, 1); /* an entry: key "k", inline value "v" */
        put_varint(&w, 1);
        put_u8(&w, 'k');
        put_varint(&w, 1);
        put_u8(&w, 0);
        put_u8(&w, 'v');
        assert_int_equal(ckpt_ocdbt_parse_node(w.b, w.n, CKPT_TEXT(""), &arena, &node, NULL),
                         paths[i].ok ? 0 : -EINVAL);
    }
}

static void test_leaf(void **state) {
    (void)state;
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct ckpt_ocdbt_node node;
    struct writer w = {.n = 0};
    put_u8(&w, 0);
    put_file(&w, "p/d/x", 2);
    put_varint(&w, 2);
    put_varint(&w, 9); /* shared with the key before */
    put_varint(&w, 16);
    put_varint(&w, 3);
    put(&w, "params.w/.zarray0.0", 19);
    put_varint(&w, 4);
    put_varint(&w, 69);
    put_u8(&w, 0);
    put_u8(&w, 1);
    put_varint(&w, 0);
    put_varint(&w, 1000);
    put(&w, "JSON", 4);
    assert_int_equal(ckpt_ocdbt_parse_node(w.b, w.n, CKPT_TEXT("q/"), &arena, &node, NULL), 0);
    assert_int_equal(node.n, 2);
    assert_true(ckpt_text_is(node.entry[0].key, "params.w/.zarray"));
    assert_true(ckpt_text_is(node.entry[1].key, "params.w/0.0"));
    assert_memory_equal(node.entry[0].value, "JSON", 4);
    assert_null(node.entry[1].value);
    assert_int_equal(node.entry[1].ref.offset, 1000);
    assert_int_equal(node.entry[1].ref.length, 69);
    assert_true(ckpt_text_is(node.files.file[0].path, "q/p/d/x"));
    assert_int_equal(node.files.file[0].base.n, 4); /* "q/p/" */
    for (size_t n = 0; n < w.n; n++)
        assert_int_equal(ckpt_ocdbt_parse_node(w.b, n, CKPT_TEXT(""), &arena, &node, NULL),
                         -EINVAL);
}

/* A count beyond what follows must not be allocated. */
static void test_counts(void **state) {
    (void)state;
    CKPT_AUTO(arena) struct ckpt_arena arena = {.limit = 1 << 20};
    struct ckpt_ocdbt_node node;
    struct writer w = {.n = 0};
    put_u8(&w, 0);
    put_varint(&w, UINT64_MAX);
    assert_int_not_equal(ckpt_ocdbt_parse_node(w.b, w.n, CKPT_TEXT(""), &arena, &node, NULL), 0);
    w.n = 1;
    put_varint(&w, 0);
    put_varint(&w, 1000000);
    assert_int_equal(ckpt_ocdbt_parse_node(w.b, w.n, CKPT_TEXT(""), &arena, &node, NULL), -EINVAL);
    assert_false(arena.exceeded);
}

/* --- whole databases -------------------------------------------------------------------------- */

static size_t count_keys(const char *name, struct ckpt_kvstore *s) {
    struct ckpt_err err = {0};
    CKPT_AUTO(free) char *path = realpath(name, NULL);
    assert_non_null(path);
    const int rc = ckpt_ocdbt_open(s, path, &err);
    if (rc)
        print_error("%s\n", err.text);
    assert_int_equal(rc, 0);
    return s->n;
}

static void test_fixtures(void **state) {
    (void)state;
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    static const char *const names[] = {"a_ocdbt_zarr2", "e_deep_tree", "e_deep_numbered",
                                        "e_two_processes", "f_old_ocdbt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096];
        CKPT_AUTO(kvstore) struct ckpt_kvstore s = {.arena = &arena};
        snprintf(path, sizeof path, FIXTURES "/orbax/%s", names[i]);
        assert_true(count_keys(path, &s) > 4);
        for (size_t k = 0; k < s.n; k++) {
            assert_ptr_equal(ckpt_kvstore_get(&s, s.entries[k].key), &s.entries[k]);
            assert_int_equal(ckpt_stored_check(&s.entries[k].value, NULL), 0);
            assert_true(k == 0 || ckpt_text_cmp(s.entries[k - 1].key, s.entries[k].key) < 0);
        }
        assert_null(ckpt_kvstore_get(&s, CKPT_TEXT("no such key")));
    }
}

/* A node that is its own child: the heights can't be right. */
static void test_circle(void **state) {
    (void)state;
    char folder[] = "/tmp/ckpt-ocdbt-XXXXXX";
    assert_non_null(mkdtemp(folder));
    struct writer node = {.n = 0}, manifest = {.n = 0};
    put_u8(&node, 1);
    put_file(&node, "n", 0);
    put_varint(&node, 1); /* one entry, key "", no common prefix */
    put_varint(&node, 0);
    put_varint(&node, 0);
    put_varint(&node, 0); /* file, offset, length */
    put_varint(&node, 0);
    put_varint(&node, 18 + node.n + 4); /* envelope, this byte and the three that follow */
    put(&node, "\1\0\0", 3);
    const struct writer wrapped = wrap(&node, CKPT_OCDBT_NODE);
    put(&manifest, manifest_start, sizeof manifest_start - 1);
    put_file(&manifest, "n", 0);
    put(&manifest, "\1\1\1\0\0", 5);
    put_varint(&manifest, wrapped.n);
    put(&manifest, "\1\0\0\0\0\0\0\0\0\0\0\0", 12);
    const struct writer whole = wrap(&manifest, CKPT_OCDBT_MANIFEST);
    char path[4096];
    const struct {
        const char *name;
        const struct writer *w;
    } files[] = {{"n", &wrapped}, {"manifest.ocdbt", &whole}};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        FILE *const f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(files[i].w->b, 1, files[i].w->n, f), files[i].w->n);
        fclose(f);
    }
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    CKPT_AUTO(kvstore) struct ckpt_kvstore s = {.arena = &arena};
    struct ckpt_err err = {0};
    assert_int_equal(ckpt_ocdbt_open(&s, folder, &err), -EINVAL);
    assert_non_null(strstr(err.text, "height"));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        unlink(path);
    }
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c),   cmocka_unit_test(test_decompress),
        cmocka_unit_test(test_manifest), cmocka_unit_test(test_envelope),
        cmocka_unit_test(test_paths),    cmocka_unit_test(test_leaf),
        cmocka_unit_test(test_counts),   cmocka_unit_test(test_fixtures),
        cmocka_unit_test(test_circle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
