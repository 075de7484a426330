/* Pages in memory and pages mapped: what is faulted in beforehand is read without faults, and
 * nothing is fetched for it. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/guard.h"
#include "base/resident.h"

#define BYTES ((size_t)8 << 20)
#define PIECE 4096

struct file {
    int fd;
    uint8_t *data;
};

/* On a disk where there is one: a file in memory cannot leave it. */
static int make(void **state) {
    static struct file f;
    static const uint8_t piece[PIECE] = {1};
    char path[] = "/var/tmp/ckpt-test-resident-XXXXXX";
    f.fd = mkstemp(path);
    assert_true(f.fd >= 0);
    unlink(path);
    for (size_t i = 0; i < BYTES; i += PIECE)
        assert_int_equal(write(f.fd, piece, PIECE), PIECE);
    assert_int_equal(fsync(f.fd), 0);
    f.data = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, f.fd, 0);
    assert_ptr_not_equal(f.data, MAP_FAILED);
    *state = &f;
    return 0;
}

static int drop(void **state) {
    struct file *const f = *state;
    munmap(f->data, BYTES);
    close(f->fd);
    return 0;
}

static long faults(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_minflt + u.ru_majflt;
}

/* A sanitizer's shadow would have faults of its own. */
__attribute__((no_sanitize("address", "thread"))) static long faults_of_reading(const uint8_t *data,
                                                                                size_t n) {
    const long before = faults();
    for (size_t i = 0; i < n; i += PIECE)
        (void)*(const volatile uint8_t *)(data + i);
    return faults() - before;
}

/* From any byte on. Reading takes a fault for each 64 KiB where nothing was done before. */
static void test_faulted_in(void **state) {
    const struct file *const f = *state;
    const size_t from = 12345, n = BYTES / 2;
    ckpt_fault_in(f->data + from, n);
    const long then = faults_of_reading(f->data + from, n);
    const long otherwise = faults_of_reading(f->data + from + n + (64 << 10), n - (128 << 10));
    print_message("faults: %ld, else %ld\n", then, otherwise);
    assert_true(otherwise >= 8);
    assert_true(then <= otherwise / 8);
}

static void test_nothing_is_fetched(void **state) {
    const struct file *const f = *state;
    assert_true(ckpt_is_resident(f->data, BYTES));
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
    if (ckpt_is_resident(f->data + BYTES / 2, PIECE)) {
        print_message("skipped: this filesystem keeps its pages in memory\n");
        skip();
    }
    ckpt_fault_in(f->data, BYTES);
    assert_false(ckpt_is_resident(f->data, PIECE));
    assert_false(ckpt_is_resident(f->data + BYTES / 2, PIECE));
}

static void test_shrunk(void **state) {
    const struct file *const f = *state;
    assert_int_equal(ckpt_guard_install(), 0); /* here, since cmocka catches SIGBUS in each test */
    assert_int_equal(ckpt_guard_add(f->data, BYTES), 0);
    assert_int_equal(ftruncate(f->fd, 100), 0);
    ckpt_fault_in(f->data, BYTES);
    ckpt_guard_remove(f->data);
    ckpt_fault_in(f->data, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_faulted_in, make, drop),
        cmocka_unit_test_setup_teardown(test_nothing_is_fetched, make, drop),
        cmocka_unit_test_setup_teardown(test_shrunk, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
