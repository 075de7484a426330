/*
 * The ZIP reader: archives made here byte by byte, each with one thing wrong; a sound one cut at
 * every byte and with random bytes changed; deflated entries; many threads on one entry.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "formats/decoded_cache.h"
#include "formats/zip.h"

/* What an archive says of an entry; fields that are 0 take their true values. */
struct entry {
    const char *name, *local_name, *data;
    uint16_t method, flags, local_flags;
    uint32_t crc, stored, size; /* crc 1 stands for "write 0" */
    bool at_first;              /* points to the first entry's header */
};

static void put(struct ckpt_str *s, uint64_t v, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++)
        ckpt_str_add(s, &(char){(char)(v >> (8 * i))}, 1);
}

static struct ckpt_str deflated(const char *data, size_t n) {
    struct ckpt_str out = {0};
    char buffer[4096];
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    int rc;
    do {
        z.next_out = (Bytef *)buffer;
        z.avail_out = sizeof buffer;
        rc = deflate(&z, Z_FINISH);
        ckpt_str_add(&out, buffer, sizeof buffer - z.avail_out);
    } while (rc == Z_OK);
    deflateEnd(&z);
    return out;
}

/* method, time, date, crc, sizes: the fields that both kinds of header share. */
static void put_common(struct ckpt_str *s, const struct entry *e, size_t stored) {
    const size_t n = strlen(e->data);
    const uint32_t crc = (uint32_t)crc32(0, (const Bytef *)e->data, (uInt)n);
    put(s, e->method, 2);
    put(s, 0, 4);
    put(s, e->crc == 1 ? 0 : e->crc ? e->crc : crc, 4);
    put(s, e->stored ? e->stored : stored, 4);
    put(s, e->size ? e->size : n, 4);
}

static void put_local(struct ckpt_str *s, const struct entry *e, struct ckpt_text data) {
    const char *name = e->local_name ? e->local_name : e->name;
    put(s, 0x04034b50, 4);
    put(s, 20, 2);
    put(s, e->local_flags ? e->local_flags : e->flags, 2);
    put_common(s, e, data.n);
    put(s, strlen(name), 2);
    put(s, 0, 2);
    ckpt_str_puts(s, name);
    ckpt_str_add(s, data.s, data.n);
}

static void put_central(struct ckpt_str *s, const struct entry *e, size_t stored, uint64_t header) {
    put(s, 0x02014b50, 4);
    put(s, 20, 2);
    put(s, 20, 2);
    put(s, e->flags, 2);
    put_common(s, e, stored);
    put(s, strlen(e->name), 2);
    put(s, 0, 8); /* extra, comment, disk, internal attributes */
    put(s, 0, 4); /* external attributes */
    put(s, header, 4);
    ckpt_str_puts(s, e->name);
}

static struct ckpt_str make_zip(const struct entry *entry, size_t n) {
    struct ckpt_str out = {0}, directory = {0};
    for (size_t i = 0; i < n; i++) {
        const uint64_t header = entry[i].at_first ? 0 : out.n;
        struct ckpt_str data = {0};
        if (entry[i].method == 8)
            data = deflated(entry[i].data, strlen(entry[i].data));
        else
            ckpt_str_puts(&data, entry[i].data);
        put_central(&directory, &entry[i], data.n, header);
        if (!entry[i].at_first)
            put_local(&out, &entry[i], ckpt_str_text(&data));
        ckpt_str_fini(&data);
    }
    const size_t at = out.n;
    ckpt_str_add(&out, directory.s, directory.n);
    put(&out, 0x06054b50, 4);
    put(&out, 0, 4);
    put(&out, n, 2);
    put(&out, n, 2);
    put(&out, directory.n, 4);
    put(&out, at, 4);
    put(&out, 0, 2);
    ckpt_str_fini(&directory);
    return out;
}

/* Opens bytes as an archive, checks the property that holds for every accepted one, and closes it.
 */
static int open_bytes(const char *bytes, size_t n, struct ckpt_err *err) {
    const struct ckpt_file file = {
        .fd = -1, .name = "test", .size = n, .data = (const uint8_t *)bytes};
    struct ckpt_arena arena = {0};
    CKPT_AUTO(zip) struct ckpt_zip zip = {0};
    const int rc = ckpt_zip_open(&file, &arena, &zip, err);
    for (size_t i = 0; rc == 0 && i < zip.nentries; i++) {
        const struct ckpt_zip_entry *e = &zip.entry[i];
        assert_true(e->stored <= n && e->data <= n - e->stored);
        for (size_t k = 0; k < i; k++)
            assert_true(e->stored == 0 || zip.entry[k].stored == 0 ||
                        e->header >= zip.entry[k].data + zip.entry[k].stored ||
                        zip.entry[k].header >= e->data + e->stored);
    }
    ckpt_arena_fini(&arena);
    return rc;
}

static const struct entry sound[] = {
    {.name = "archive/data.pkl", .data = "N."},
    {.name = "archive/data/0", .data = "abcdefgh"},
    {.name = "archive/data/1", .data = ""},
    {.name = "archive/text", .data = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", .method = 8},
};
#define SOUND (sizeof sound / sizeof *sound)

static void test_sound(void **state) {
    CKPT_AUTO(str) struct ckpt_str bytes = make_zip(sound, SOUND);
    const struct ckpt_file file = {
        .fd = -1, .name = "test", .size = bytes.n, .data = (const uint8_t *)bytes.s};
    struct ckpt_arena arena = {0};
    CKPT_AUTO(zip) struct ckpt_zip zip;
    struct ckpt_err err = {0};
    (void)state;
    assert_int_equal(ckpt_zip_open(&file, &arena, &zip, &err), 0);
    assert_int_equal(zip.nentries, SOUND);
    for (size_t i = 0; i < SOUND; i++) {
        const struct ckpt_zip_entry *e = ckpt_zip_find(&zip, ckpt_text_of(sound[i].name));
        struct ckpt_text text;
        assert_ptr_equal(e, &zip.entry[i]);
        assert_int_equal(ckpt_zip_read(&zip, e, 100, &arena, &text, &err), 0);
        assert_true(ckpt_text_is(text, sound[i].data));
        assert_int_equal(e->deflated, sound[i].method == 8);
    }
    const struct ckpt_zip_entry *e = ckpt_zip_find(&zip, CKPT_TEXT("archive/data/0"));
    assert_memory_equal(bytes.s + e->data, "abcdefgh", 8);
    assert_null(ckpt_zip_find(&zip, CKPT_TEXT("archive/data")));
    ckpt_arena_fini(&arena);
}

static void test_rules(void **state) {
    static const struct {
        const char *what, *expected;
        struct entry second;
    } cases[] = {
        {"a name twice", "same name", {.name = "a/x", .data = "123"}},
        {"another local name", "contradict", {.name = "a/y", .local_name = "a/z", .data = "123"}},
        {"climbs", "leaves the archive", {.name = "a/../../y", .data = "123"}},
        {"climbs at the end", "leaves the archive", {.name = "a/..", .data = "123"}},
        {"absolute", "leaves the archive", {.name = "/etc/y", .data = "123"}},
        {"backslash", "leaves the archive", {.name = "a\\y", .data = "123"}},
        {"encrypted", "encrypted", {.name = "a/y", .data = "123", .flags = 1}},
        {"method 12", "method 12", {.name = "a/y", .data = "123", .method = 12}},
        {"stored in less than it says", "stored in", {.name = "a/y", .data = "123", .size = 4}},
        {"longer than the file", "", {.name = "a/y", .data = "123", .stored = 1000, .size = 1000}},
        {"another's header", "", {.name = "a/y", .data = "123456", .at_first = true}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct entry both[] = {{.name = "a/x", .data = "123456"}, cases[i].second};
        CKPT_AUTO(str) struct ckpt_str bytes = make_zip(both, 2);
        struct ckpt_err err = {0};
        if (open_bytes(bytes.s, bytes.n, &err) == 0)
            fail_msg("%s: accepted", cases[i].what);
        if (!strstr(err.text, cases[i].expected))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].what, err.text, cases[i].expected);
    }
}

/* Names that only look dangerous. */
static void test_harmless_names(void **state) {
    static const struct entry entries[] = {{.name = "a/..b", .data = "1"},
                                           {.name = "a/b..", .data = "2"},
                                           {.name = "a/.../c", .data = "3"},
                                           {.name = "a/\xc3\xbc", .data = "4"}};
    CKPT_AUTO(str) struct ckpt_str bytes = make_zip(entries, 4);
    struct ckpt_err err = {0};
    (void)state;
    assert_int_equal(open_bytes(bytes.s, bytes.n, &err), 0);
}

/* An archive between other bytes: extents are the file's, and what lies around it is out of reach.
 */
static void test_inside_a_file(void **state) {
    CKPT_AUTO(str) struct ckpt_str archive = make_zip(sound, SOUND);
    CKPT_AUTO(str) struct ckpt_str bytes = {0};
    struct ckpt_arena arena = {0};
    CKPT_AUTO(zip) struct ckpt_zip zip;
    struct ckpt_err err = {0};
    struct ckpt_text text;
    (void)state;
    ckpt_str_puts(&bytes, "PK in front");
    const size_t begin = bytes.n;
    ckpt_str_add(&bytes, archive.s, archive.n);
    ckpt_str_puts(&bytes, "PK behind");
    const struct ckpt_file file = {
        .fd = -1, .name = "test", .size = bytes.n, .data = (const uint8_t *)bytes.s};
    assert_int_equal(ckpt_zip_open_range(&file, begin, archive.n, &arena, &zip, &err), 0);
    const struct ckpt_zip_entry *e = ckpt_zip_find(&zip, CKPT_TEXT("archive/data/0"));
    assert_memory_equal(bytes.s + e->data, "abcdefgh", 8);
    e = ckpt_zip_find(&zip, CKPT_TEXT("archive/text"));
    assert_int_equal(ckpt_zip_read(&zip, e, 100, &arena, &text, &err), 0);
    assert_true(ckpt_text_is(text, sound[3].data));
    ckpt_zip_fini(&zip);
    assert_int_equal(ckpt_zip_open_range(&file, begin, archive.n - 1, &arena, &zip, &err), -EINVAL);
    assert_int_equal(ckpt_zip_open_range(&file, begin, bytes.n, &arena, &zip, &err), -EINVAL);
    assert_int_equal(ckpt_zip_open_range(&file, bytes.n + 1, 0, &arena, &zip, &err), -EINVAL);
    ckpt_arena_fini(&arena);
}

static void test_cut_anywhere(void **state) {
    CKPT_AUTO(str) struct ckpt_str bytes = make_zip(sound, SOUND);
    (void)state;
    for (size_t n = 0; n < bytes.n; n++) {
        struct ckpt_err err = {0};
        CKPT_AUTO(free) char *exact = malloc(n + 1); /* its end is seen by the sanitizer */
        memcpy(exact, bytes.s, n);
        assert_int_not_equal(open_bytes(exact, n, &err), 0);
        assert_true(err.text[0] != '\0');
    }
}

static void test_bytes_changed(void **state) {
    const char *given = getenv("CKPT_SEED");
    const unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : 20261130u;
    CKPT_AUTO(str) struct ckpt_str bytes = make_zip(sound, SOUND);
    size_t accepted = 0;
    (void)state;
    print_message("CKPT_SEED=%u\n", seed);
    srandom(seed);
    for (int round = 0; round < 5000; round++) {
        CKPT_AUTO(free) char *copy = malloc(bytes.n);
        struct ckpt_err err = {0};
        memcpy(copy, bytes.s, bytes.n);
        for (long i = random() % 3; i >= 0; i--)
            copy[(size_t)random() % bytes.n] = (char)random();
        accepted += open_bytes(copy, bytes.n, &err) == 0;
    }
    assert_true(accepted > 0 && accepted < 5000);
}

static struct ckpt_decoded_cache *new_cache(void) {
    struct ckpt_decoded_cache *cache = NULL;
    assert_int_equal(ckpt_decoded_cache_new(1 << 20, &cache, NULL), 0);
    return cache;
}

static void test_checksums(void **state) {
    static const struct entry entries[] = {
        {.name = "a/right", .data = "123"},
        {.name = "a/wrong", .data = "123", .crc = 5},
        {.name = "a/none", .data = "123", .crc = 1},
        {.name = "a/deflated", .data = "123", .method = 8, .crc = 5}};
    static const int want[] = {0, -EBADMSG, 0, -EBADMSG};
    CKPT_AUTO(str) struct ckpt_str bytes = make_zip(entries, 4);
    const struct ckpt_file file = {
        .fd = -1, .name = "test", .size = bytes.n, .data = (const uint8_t *)bytes.s};
    struct ckpt_arena arena = {0};
    CKPT_AUTO(zip) struct ckpt_zip zip;
    struct ckpt_decoded_cache *const cache = new_cache();
    (void)state;
    assert_int_equal(ckpt_zip_open(&file, &arena, &zip, NULL), 0);
    for (size_t i = 0; i < 4; i++) {
        struct ckpt_text text;
        struct ckpt_blob *blob;
        assert_int_equal(ckpt_zip_read(&zip, &zip.entry[i], 10, &arena, &text, NULL), want[i]);
        assert_int_equal(ckpt_zip_blob(&zip, &zip.entry[i], cache, &arena, "x", &blob, NULL), 0);
        assert_int_equal(blob->ops->check(blob, NULL, NULL), want[i]);
        assert_int_equal(blob->in_file, entries[i].method == 0);
        if (blob->ops->fini)
            blob->ops->fini(blob);
    }
    ckpt_decoded_cache_free(cache);
    ckpt_arena_fini(&arena);
}

/* An entry that claims another inflated size, or more than deflate can do, or more than allowed. */
static void test_inflated_sizes(void **state) {
    static const struct entry entries[] = {
        {.name = "a/less", .data = "12345", .method = 8, .size = 4},
        {.name = "a/more", .data = "12345", .method = 8, .size = 6},
        {.name = "a/bomb", .data = "12345", .method = 8, .size = 1u << 30},
        {.name = "a/large", .data = "1234567890123", .method = 8}};
    CKPT_AUTO(str) struct ckpt_str bytes = make_zip(entries, 4);
    const struct ckpt_file file = {
        .fd = -1, .name = "test", .size = bytes.n, .data = (const uint8_t *)bytes.s};
    struct ckpt_arena arena = {0};
    CKPT_AUTO(zip) struct ckpt_zip zip;
    (void)state;
    assert_int_equal(ckpt_zip_open(&file, &arena, &zip, NULL), 0);
    for (size_t i = 0; i < 4; i++) {
        struct ckpt_text text;
        assert_int_equal(
            ckpt_zip_read(&zip, &zip.entry[i], i == 3 ? 12 : 1u << 31, &arena, &text, NULL),
            i == 3 ? -E2BIG : -EINVAL);
    }
    ckpt_arena_fini(&arena);
}

/* --- many threads want one deflated entry ------------------------------------------------------
 */

struct reader {
    struct ckpt_blob *blob;
    const uint8_t *seen;
    struct ckpt_pin pin;
    pthread_t thread;
};

static void *pin_all(void *arg) {
    struct reader *r = arg;
    if (r->blob->ops->pin(r->blob, 0, r->blob->size, &r->pin, NULL, NULL) == 0)
        r->seen = r->pin.data;
    return NULL;
}

static void test_inflate_by_threads(void **state) {
    enum { THREADS = 8, BYTES = 1 << 20 };
    CKPT_AUTO(free) char *data = malloc(BYTES + 1);
    (void)state;
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (char)('a' + i / 7 % 26);
    data[BYTES] = '\0';
    const struct entry entry = {.name = "a/x", .data = data, .method = 8};
    CKPT_AUTO(str) struct ckpt_str bytes = make_zip(&entry, 1);
    const struct ckpt_file file = {
        .fd = -1, .name = "test", .size = bytes.n, .data = (const uint8_t *)bytes.s};
    struct ckpt_arena arena = {0};
    CKPT_AUTO(zip) struct ckpt_zip zip;
    struct ckpt_decoded_cache *const cache = new_cache();
    struct reader readers[THREADS] = {0};
    struct ckpt_blob *blob;
    assert_int_equal(ckpt_zip_open(&file, &arena, &zip, NULL), 0);
    assert_int_equal(ckpt_zip_blob(&zip, &zip.entry[0], cache, &arena, "x", &blob, NULL), 0);
    for (size_t i = 0; i < THREADS; i++) {
        readers[i].blob = blob;
        assert_int_equal(pthread_create(&readers[i].thread, NULL, pin_all, &readers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_non_null(readers[i].seen);
        assert_ptr_equal(readers[i].seen, readers[0].seen); /* inflated once */
    }
    assert_memory_equal(readers[0].seen, data, BYTES);
    assert_int_equal(ckpt_decoded_cache_usage(cache).decoded, 1);
    for (size_t i = 0; i < THREADS; i++)
        blob->ops->unpin(blob, &readers[i].pin);
    blob->ops->fini(blob);
    ckpt_decoded_cache_free(cache);
    ckpt_arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_harmless_names),
        cmocka_unit_test(test_inside_a_file),
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_bytes_changed),
        cmocka_unit_test(test_checksums),
        cmocka_unit_test(test_inflated_sizes),
        cmocka_unit_test(test_inflate_by_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
