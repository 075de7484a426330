/*
 * Bytes that are not what was written: whatever byte of a manifest, a node or a chunk with a
 * checksum changes, the checkpoint is refused, or its arrays fail with EIO, or are what they were;
 * never other numbers. (Chunks without a checksum are as good as their compression.)
 */
#include "toy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "base/guard.h"
#include "formats/checkpoint.h"

struct source {
    char path[64];
    struct ckpt_str want; /* all its arrays */
    size_t refused, failed, same;
};

static void run(const struct ckpt_str *command) {
    assert_false(command->failed);
    assert_int_equal(system(command->s), 0);
}

static void begin(struct source *s) {
    *s = (struct source){.path = "/tmp/test_flipped.XXXXXX"};
    assert_non_null(mkdtemp(s->path));
}

static void end(struct source *s) {
    CKPT_AUTO(str) struct ckpt_str command = {0};
    ckpt_str_printf(&command, "rm -r '%s'", s->path);
    run(&command);
    ckpt_str_fini(&s->want);
}

/* Key, dtype, shape and bytes of every tensor. -EIO: one can't be read. */
static int read_all(const struct ckpt_checkpoint *c, struct ckpt_str *out) {
    for (size_t i = 0; i < c->ntensors; i++) {
        const struct ckpt_tensor *const t = &c->tensors[i];
        struct ckpt_pin pin;
        struct ckpt_err err = {0};
        ckpt_str_add(out, t->key.s, t->key.n);
        ckpt_str_printf(out, ":%d", (int)t->dtype);
        for (uint32_t d = 0; d < t->ndim; d++)
            ckpt_str_printf(out, ",%lld", (long long)t->shape[d]);
        const int rc = t->blob->ops->pin(t->blob, 0, t->blob->size, &pin, NULL, &err);
        if (rc) {
            assert_int_equal(rc, -EIO);
            assert_true(err.text[0]);
            return rc;
        }
        ckpt_str_add(out, pin.data, t->blob->size);
        t->blob->ops->unpin(t->blob, &pin);
    }
    return 0;
}

/* Opens it, and compares with what was read before. */
static void look(struct source *s, const char *file, size_t at) {
    CKPT_AUTO(str) struct ckpt_str got = {0};
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    int rc = ckpt_checkpoint_open(s->path, NULL, &c, &err);
    if (rc) {
        assert_true(err.text[0]);
        s->refused++;
        return;
    }
    rc = read_all(c, &got);
    ckpt_checkpoint_close(c);
    if (rc) {
        s->failed++;
    } else if (!s->want.s) {
        s->want = got;
        got = (struct ckpt_str){0};
    } else if (!ckpt_text_eq(ckpt_str_text(&got), ckpt_str_text(&s->want))) {
        fail_msg("other values, byte %zu of %s", at, file);
    } else {
        s->same++;
    }
}

/* Changes each byte of [from, to) of the file in turn. */
static void flip(struct source *s, const char *file, size_t from, size_t to) {
    const int fd = open(file, O_RDWR);
    assert_true(fd >= 0);
    for (size_t at = from; at < to; at++) {
        uint8_t right;
        assert_int_equal(pread(fd, &right, 1, (off_t)at), 1);
        const uint8_t wrong[] = {right ^ (uint8_t)(1u << (at % 8)), (uint8_t)~right};
        for (size_t i = 0; i < sizeof wrong; i++) {
            assert_int_equal(pwrite(fd, &wrong[i], 1, (off_t)at), 1);
            look(s, file, at);
        }
        assert_int_equal(pwrite(fd, &right, 1, (off_t)at), 1);
    }
    close(fd);
}

/* All nodes and manifests in the file: they begin with their magic number and say their length. */
static void flip_envelopes(struct source *s, const char *file) {
    static uint8_t bytes[1 << 16];
    const int fd = open(file, O_RDONLY);
    const ssize_t n = read(fd, bytes, sizeof bytes);
    close(fd);
    assert_true(fd >= 0 && n > 0);
    for (size_t at = 0; at + 12 < (size_t)n; at++) {
        if (memcmp(bytes + at, "\x0c\xdb\x20\xde", 4) != 0 &&
            memcmp(bytes + at, "\x0c\xdb\x3a\x2a", 4) != 0)
            continue;
        flip(s, file, at, at + (size_t)(bytes[at + 4] | bytes[at + 5] << 8));
    }
}

static void flip_folder(struct source *s, const char *below) {
    char path[256], file[600];
    snprintf(path, sizeof path, "%s/%s", s->path, below);
    DIR *const d = opendir(path);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        struct stat st;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        if (stat(file, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
            flip_envelopes(s, file);
    }
    closedir(d);
}

static void test_database(void **state) {
    CKPT_AUTO(str) struct ckpt_str command = {0};
    struct source s;
    char manifest[128];
    (void)state;
    begin(&s);
    ckpt_str_printf(&command, "cp -r '%s'/. '%s'", FIXTURES "/orbax/a_ocdbt_zarr2", s.path);
    run(&command);
    look(&s, "", 0);
    assert_non_null(s.want.s);
    snprintf(manifest, sizeof manifest, "%s/manifest.ocdbt", s.path);
    flip_envelopes(&s, manifest);
    flip_folder(&s, "d");
    flip_folder(&s, "ocdbt.process_0/d");
    assert_true(s.refused > 1000);
    end(&s);
}

/* --- chunks with a CRC-32C -------------------------------------------------------------------- */

static void put_crc(struct ckpt_str *s, size_t from) {
    const uint32_t crc = ckpt_crc32c(0, s->s + from, s->n - from);
    for (unsigned i = 0; i < 4; i++)
        ckpt_str_add(s, &(char){(char)(crc >> (8 * i))}, 1);
}

static void put_file(const struct source *s, const char *name, struct ckpt_text text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", s->path, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text.s, text.n), text.n);
    close(fd);
}

/* An array of 8 bytes; its chunks, by that list of codecs, are as long as the array. */
static void put_array(const struct source *s, const char *codecs, struct ckpt_text chunk) {
    CKPT_AUTO(str) struct ckpt_str json = {0};
    ckpt_str_printf(&json,
                    "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[8],\"data_type\":"
                    "\"uint8\",\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_"
                    "shape\":[8]}},\"chunk_key_encoding\":\"default\",\"fill_value\":0,"
                    "\"codecs\":[%s]}",
                    codecs);
    CKPT_AUTO(str) struct ckpt_str command = {0};
    ckpt_str_printf(&command, "mkdir -p '%s/w/c'", s->path);
    run(&command);
    put_file(s, "w/zarr.json", ckpt_str_text(&json));
    put_file(s, "w/c/0", chunk);
}

static void check_chunk(const char *codecs, const struct ckpt_str *chunk) {
    struct source s;
    char file[128];
    begin(&s);
    put_array(&s, codecs, ckpt_str_text(chunk));
    look(&s, "", 0);
    assert_non_null(s.want.s);
    snprintf(file, sizeof file, "%s/w/c/0", s.path);
    flip(&s, file, 0, chunk->n);
    assert_int_equal(s.refused + s.failed, 2 * chunk->n);
    end(&s);
}

static void test_chunk(void **state) {
    CKPT_AUTO(str) struct ckpt_str chunk = {0};
    (void)state;
    ckpt_str_puts(&chunk, "abcdefgh");
    put_crc(&chunk, 0);
    check_chunk("\"bytes\",\"crc32c\"", &chunk);
}

/* Two chunks, each with its checksum, and an index with one. */
static void test_shard(void **state) {
    CKPT_AUTO(str) struct ckpt_str shard = {0};
    (void)state;
    for (size_t at = 0; at < 8; at += 4) {
        ckpt_str_add(&shard, &"abcdefgh"[at], 4);
        put_crc(&shard, 2 * at);
    }
    for (uint64_t at = 0; at < 16; at += 8)
        for (unsigned i = 0; i < 16; i++)
            ckpt_str_add(&shard, &(char){i == 0 ? (char)at : i == 8 ? 8 : 0}, 1);
    put_crc(&shard, 16);
    check_chunk("{\"name\":\"sharding_indexed\",\"configuration\":{\"chunk_shape\":[4],\"codecs\":["
                "\"bytes\",\"crc32c\"],\"index_codecs\":[\"bytes\",\"crc32c\"]}}",
                &shard);
}

static int install_guard(void **state) {
    (void)state;
    return ckpt_guard_install();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_database),
        cmocka_unit_test(test_chunk),
        cmocka_unit_test(test_shard),
    };
    return cmocka_run_group_tests(tests, install_guard, NULL);
}
