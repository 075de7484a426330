/* Virtual files: any range equals the same range of a naive copy. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/guard.h"
#include "fs/vfile.h"
#include "property.h"

#define SEGMENTS 1000 /* more than the iovecs of a reply */

static void test_ranges(void **state) {
    (void)state;
    property_begin("ranges");
    struct ckpt_arena arena = {0};
    CKPT_AUTO(str) struct ckpt_str naive = {0};
    struct ckpt_vfile *f = ckpt_vfile_new(&arena, SEGMENTS);
    assert_non_null(f);
    for (int i = 0; i < SEGMENTS; i++) {
        char *bytes = ckpt_arena_alloc(&arena, 40);
        const size_t n = property_below(40); /* empty ones take no segment */
        const bool zeros = property_below(3) == 0;
        for (size_t k = 0; k < n && !zeros; k++)
            bytes[k] = (char)property_u64();
        ckpt_str_add(&naive, bytes, n);
        if (zeros)
            ckpt_vfile_add_zeros(f, n);
        else
            ckpt_vfile_add_bytes(f, bytes, n);
    }
    assert_int_equal(ckpt_vfile_size(f), naive.n);
    CKPT_AUTO(free) char *buf = malloc(naive.n);
    for (int round = 0; round < 2000; round++) {
        const uint64_t off = property_below(naive.n + 1);
        const size_t len = property_below(round % 2 ? 64 : naive.n - off + 1);
        const size_t n = len < naive.n - off ? len : (size_t)(naive.n - off);
        struct ckpt_err err = {0};
        memset(buf, 0x55, naive.n);
        assert_int_equal(ckpt_vfile_copy(f, NULL, off, n, NULL, buf, &err), 0);
        assert_memory_equal(buf, naive.s + off, n);
        assert_true(n == naive.n || buf[n] == 0x55);
    }
    ckpt_arena_fini(&arena);
}

/* A reply takes what fits and says how much that was. */
static void test_reply_stops_at_its_iovecs(void **state) {
    (void)state;
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    struct ckpt_vfile *f = ckpt_vfile_new(&arena, SEGMENTS);
    static const char apart[] = "x-y"; /* adjacent bytes would share an iovec */
    for (int i = 0; i < SEGMENTS; i++)
        ckpt_vfile_add_bytes(f, apart + 2 * (i % 2), 1);
    struct ckpt_reply reply = {0};
    const ssize_t n = ckpt_vfile_add(f, NULL, 0, SEGMENTS, &reply, &err);
    assert_int_equal(n, CKPT_REPLY_IOV_MAX);
    assert_int_equal(reply.nbytes, n);
    ckpt_arena_fini(&arena);
}

static void test_writing(void **state) {
    (void)state;
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    struct ckpt_vfile *f = ckpt_vfile_new(&arena, 3);
    ckpt_vfile_add_bytes(f, "head", 4);
    ckpt_vfile_add_zeros(f, 100000);
    ckpt_vfile_add_bytes(f, "tail", 4);
    char path[] = "/tmp/test_vfile.XXXXXX";
    CKPT_AUTO(fd) const int fd = mkstemp(path);
    unlink(path);
    assert_int_equal(ckpt_vfile_write(f, NULL, 0, ckpt_vfile_size(f), fd, &err), 0);
    assert_int_equal(lseek(fd, 0, SEEK_END), ckpt_vfile_size(f));
    char end[8];
    assert_int_equal(pread(fd, end, 8, (off_t)ckpt_vfile_size(f) - 8), 8);
    assert_memory_equal(end, "\0\0\0\0tail", 8);
    CKPT_AUTO(fd) const int closed = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(ckpt_vfile_write(f, NULL, 0, ckpt_vfile_size(f), closed, &err), -ENOSPC);
    ckpt_arena_fini(&arena);
}

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static struct ckpt_vfile *plain(struct ckpt_arena *a, const char *path) {
    struct stat st;
    struct ckpt_plain *list = NULL;
    assert_int_equal(stat(path, &st), 0);
    return ckpt_vfile_plain(a, ckpt_plain_new(&list, a, path, &st));
}

static void test_plain_files(void **state) {
    (void)state;
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    char path[] = "/tmp/test_vfile.XXXXXX", buf[16] = "", text[] = "hello, world";
    close(mkstemp(path));
    write_file(path, text);
    struct ckpt_vfile *f = plain(&arena, path);
    assert_int_equal(ckpt_vfile_size(f), strlen(text));
    for (int readers = 0; readers < 2; readers++)
        assert_int_equal(ckpt_vfile_open(f, &err), 0);
    assert_int_equal(ckpt_vfile_copy(f, NULL, 7, 5, NULL, buf, &err), 0);
    assert_string_equal(buf, "world");
    write_file(path, "other"); /* changed while open: no new readers */
    assert_int_equal(ckpt_vfile_open(f, &err), -ESTALE);
    ckpt_vfile_close(f);
    ckpt_vfile_close(f);
    assert_int_equal(ckpt_vfile_open(f, &err), -ESTALE);
    unlink(path);
    assert_int_equal(ckpt_vfile_open(f, &err), -ESTALE);
    ckpt_arena_fini(&arena);
}

/* The kernel may take a mount away without a word about what is open. */
static void test_plain_files_left_open(void **state) {
    (void)state;
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    struct ckpt_plain *list = NULL, *p[3];
    char path[] = "/tmp/test_vfile.XXXXXX";
    struct stat st;
    close(mkstemp(path));
    write_file(path, "hello");
    assert_int_equal(stat(path, &st), 0);
    for (int i = 0; i < 3; i++)
        assert_non_null(p[i] = ckpt_plain_new(&list, &arena, path, &st));
    assert_int_equal(ckpt_plain_open(p[1], &err), 0);
    assert_int_equal(ckpt_plain_open(p[2], &err), 0);
    const int fd = p[1]->file->fd;
    ckpt_plain_close(p[2]);
    ckpt_plain_close_list(list);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    unlink(path);
    ckpt_arena_fini(&arena);
}

/* Whoever answers a read still looks at the file after its last reader has closed it. */
static void test_plain_file_that_is_held(void **state) {
    (void)state;
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    char path[] = "/tmp/test_vfile.XXXXXX", buf[16] = "", text[] = "hello, world";
    close(mkstemp(path));
    write_file(path, text);
    struct ckpt_vfile *f = plain(&arena, path);
    assert_int_equal(ckpt_vfile_open(f, &err), 0);
    ckpt_vfile_hold(f);
    ckpt_vfile_close(f);
    assert_int_equal(ckpt_vfile_copy(f, NULL, 7, 5, NULL, buf, &err), 0);
    assert_string_equal(buf, "world");
    ckpt_vfile_let_go(f);
    assert_null(f->plain->file);
    unlink(path);
    ckpt_arena_fini(&arena);
}

/* A file that shrinks between opening and copying is an error, neither zeros nor a signal. */
static void test_shrinking_is_eio(void **state) {
    (void)state;
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    char path[] = "/tmp/test_vfile.XXXXXX";
    CKPT_AUTO(fd) const int fd = mkstemp(path);
    assert_int_equal(ckpt_guard_install(), 0); /* cmocka puts its own handler before each test */
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    struct ckpt_vfile *f = plain(&arena, path);
    assert_int_equal(ckpt_vfile_open(f, &err), 0);
    assert_int_equal(ftruncate(fd, 0), 0);
    static char buf[1 << 20];
    assert_int_equal(ckpt_vfile_copy(f, NULL, 0, sizeof buf, NULL, buf, &err), -EIO);
    ckpt_vfile_close(f);
    unlink(path);
    ckpt_arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_reply_stops_at_its_iovecs),
        cmocka_unit_test(test_writing),
        cmocka_unit_test(test_plain_files),
        cmocka_unit_test(test_plain_files_left_open),
        cmocka_unit_test(test_plain_file_that_is_held),
        cmocka_unit_test(test_shrinking_is_eio),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
