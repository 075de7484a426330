/* Streams of stored bytes: a file that changes while a stream reads it is an error, however early
 * the stream looked at it. */
#include "formats/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE ((size_t)1 << 20) /* of several pieces */

struct folder {
    char path[32], file[48];
    struct ckpt_arena arena;
    struct ckpt_stored stored;
};

static void write_at(const char *path, off_t at, const void *bytes, size_t n) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
    /* Said outright: a clock's tick may be longer than this test. */
    if (at > 0)
        assert_int_equal(futimens(fd, (const struct timespec[2]){{1, 0}, {1, 0}}), 0);
    close(fd);
}

static void make(struct folder *f) {
    *f = (struct folder){.path = "/tmp/ckpt-stream-XXXXXX"};
    char *const bytes = calloc(1, SIZE);
    assert_non_null(bytes);
    assert_non_null(mkdtemp(f->path));
    (void)snprintf(f->file, sizeof f->file, "%s/chunk", f->path);
    write_at(f->file, 0, bytes, SIZE);
    free(bytes);
    f->stored.file = ckpt_store_file_note(&f->arena, f->path, "chunk");
    f->stored.length = SIZE;
    assert_non_null(f->stored.file);
}

static void clean(struct folder *f) {
    ckpt_arena_fini(&f->arena);
    unlink(f->file);
    rmdir(f->path);
}

/* All pieces; changes the last byte of the file once the first has been read, if that is wanted.
 * The bytes read, or what went wrong. */
static ssize_t read_pieces(struct folder *f, bool changes, struct ckpt_err *err) {
    struct ckpt_stream s;
    const uint8_t *piece;
    ssize_t n, total = 0;
    assert_int_equal(ckpt_stream_open(&s, &f->stored, NULL, err), 0);
    while ((n = ckpt_stream_next(&s, &piece, err)) > 0) {
        total += n;
        if (changes)
            write_at(f->file, SIZE - 1, "x", 1);
    }
    ckpt_stream_close(&s);
    return n < 0 ? n : total;
}

static void test_untouched(void **state) {
    (void)state;
    struct folder f;
    struct ckpt_err err = {0};
    make(&f);
    assert_int_equal(read_pieces(&f, false, &err), SIZE);
    clean(&f);
}

static void test_changed_while_it_is_read(void **state) {
    (void)state;
    struct folder f;
    struct ckpt_err err = {0};
    make(&f);
    assert_int_equal(read_pieces(&f, true, &err), -EIO);
    assert_non_null(strstr(err.text, "chunk has changed since the mount"));
    clean(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_untouched),
        cmocka_unit_test(test_changed_while_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
