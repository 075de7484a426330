/* Source files: what opens, what is refused, and what happens when one shrinks under its mapping.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/guard.h"
#include "formats/blob.h"
#include "formats/file.h"

#define PAGES 4

static char path[] = "/tmp/test_file_guard.XXXXXX";
static long page;

/* PAGES pages: of 'a', of 'b', ... */
static int fill(int fd) {
    for (int i = 0; i < PAGES; i++) {
        char *block = malloc((size_t)page);
        memset(block, 'a' + i, (size_t)page);
        const ssize_t n = pwrite(fd, block, (size_t)page, i * page);
        free(block);
        if (n != page)
            return -1;
    }
    return 0;
}

static void shrink(int pages) {
    assert_int_equal(truncate(path, pages * page), 0);
}

static void restore(void) {
    const int fd = open(path, O_WRONLY);
    assert_int_equal(fill(fd), 0);
    close(fd);
}

static int make_file(void **state) {
    (void)state;
    page = sysconf(_SC_PAGESIZE);
    const int fd = mkstemp(path);
    return fd < 0 || fill(fd) ? -1 : close(fd);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

static void open_and_read(void **state) {
    (void)state;
    struct ckpt_file *f = NULL;
    char bytes[4];
    assert_int_equal(ckpt_file_open(path, &f, NULL), 0);
    assert_int_equal(f->size, PAGES * page);
    assert_string_equal(f->name, strrchr(path, '/') + 1);
    assert_int_equal(f->path[0], '/');
    assert_int_equal(f->data[page], 'b');
    assert_int_equal(ckpt_file_read(f, (uint64_t)page - 2, bytes, 4, NULL), 0);
    assert_memory_equal(bytes, "aabb", 4);
    assert_int_equal(ckpt_file_read(f, f->size - 2, bytes, 4, NULL), -EIO);
    assert_false(ckpt_file_changed(f));
    shrink(3);
    assert_true(ckpt_file_changed(f));
    restore();
    ckpt_file_close(f);
    ckpt_file_close(NULL);
}

static void refusals(void **state) {
    (void)state;
    struct ckpt_file *f = NULL;
    struct ckpt_err err;
    assert_int_equal(ckpt_file_open("/nowhere/x", &f, &err), -ENOENT);
    assert_int_equal(ckpt_file_open("/tmp", &f, &err), -EISDIR);
    assert_int_equal(ckpt_file_open("/dev/zero", &f, &err), -EINVAL);
    assert_non_null(strstr(err.text, "a device"));
    char fifo[sizeof path + 8];
    snprintf(fifo, sizeof fifo, "%s.fifo", path);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(ckpt_file_open(fifo, &f, &err), -EINVAL); /* and does not wait for a writer */
    assert_non_null(strstr(err.text, "a pipe"));
    unlink(fifo);
    const int sock = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", fifo);
    assert_int_equal(bind(sock, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(ckpt_file_open(fifo, &f, &err), -ENXIO);
    assert_non_null(strstr(err.text, "a socket"));
    close(sock);
    unlink(fifo);
    assert_null(f);
}

static void blobs(void **state) {
    (void)state;
    struct ckpt_arena a = {0};
    struct ckpt_file *f = NULL;
    struct ckpt_blob *b = NULL;
    struct ckpt_err err;
    struct ckpt_pin pin;
    assert_int_equal(ckpt_file_open(path, &f, NULL), 0);
    assert_int_equal(ckpt_blob_extent(&a, f, f->size - 4, 5, "", &b, &err), -EINVAL);
    assert_int_equal(ckpt_blob_extent(&a, f, UINT64_MAX, 5, "", &b, &err), -EINVAL);
    assert_int_equal(ckpt_blob_extent(&a, f, f->size + 1, 0, "", &b, &err), -EINVAL);
    assert_int_equal(ckpt_blob_extent(&a, f, (uint64_t)page - 1, 2, "", &b, &err), 0);
    assert_int_equal(b->ops->pin(b, 1, 2, &pin, NULL, &err), 0);
    assert_int_equal(pin.data[0], 'b');
    b->ops->unpin(b, &pin);
    assert_int_equal(b->ops->pin(b, 1, 3, &pin, NULL, &err), -EINVAL);
    assert_int_equal(b->ops->pin(b, 2, 1, &pin, NULL, &err), -EINVAL);
    assert_int_equal(ckpt_blob_owned(&a, NULL, 0, NULL, &b, &err), 0);
    assert_int_equal(b->ops->pin(b, 0, 0, &pin, NULL, &err), 0);
    assert_non_null(pin.data);
    assert_false(b->in_file);
    ckpt_file_close(f);
    ckpt_arena_fini(&a);
}

/* Copies a page of the mapping; a function of its own, so that no local lives across the jump. */
static int guarded_copy(char *to, const uint8_t *from) {
    int rc;
    CKPT_GUARDED(rc, { memcpy(to, from, (size_t)page); });
    return rc;
}

/* No assertion in here: cmocka knows its own thread only. */
static int copy_page(const struct ckpt_file *f, int i) {
    char *copy = malloc((size_t)page);
    const int rc = guarded_copy(copy, f->data + i * page);
    const bool right = rc || copy[page - 1] == 'a' + i;
    free(copy);
    return right ? rc : -EBADMSG;
}

/* cmocka puts a handler of its own in place before each test. */
static void install(void) {
    assert_int_equal(ckpt_guard_install(), 0);
}

static void shrunken_file_is_an_error(void **state) {
    (void)state;
    struct ckpt_file *f = NULL;
    install();
    assert_int_equal(ckpt_file_open(path, &f, NULL), 0);
    assert_int_equal(copy_page(f, 3), 0);
    shrink(3);
    for (int i = 0; i < 10; i++) { /* again and again: nothing stays blocked */
        assert_int_equal(copy_page(f, 3), -EIO);
        assert_int_equal(copy_page(f, 2), 0);
    }
    ckpt_file_close(f);
    restore();
}

static void *copy_often(void *arg) {
    size_t failures = 0;
    for (int i = 0; i < 2000; i++)
        failures += copy_page(arg, i % 2 ? 3 : 1) != 0;
    return (void *)failures;
}

static void every_thread_has_its_guard(void **state) {
    (void)state;
    struct ckpt_file *f = NULL;
    pthread_t threads[4];
    install();
    assert_int_equal(ckpt_file_open(path, &f, NULL), 0);
    shrink(3);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, copy_often, f), 0);
    for (int i = 0; i < 4; i++) {
        void *failures;
        assert_int_equal(pthread_join(threads[i], &failures), 0);
        assert_int_equal((size_t)failures, 1000);
    }
    ckpt_file_close(f);
    restore();
}

/* How a child dies that runs `what`. */
static int signal_of_child(void (*what)(void)) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
        what();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void fault_without_guard(void) {
    struct ckpt_file *f = NULL;
    if (ckpt_file_open(path, &f, NULL) || truncate(path, page))
        _exit(1);
    _exit(((volatile const uint8_t *)f->data)[2 * page]);
}

static void fault_elsewhere(void) {
    const int fd = open(path, O_RDONLY);
    const uint8_t *p = mmap(NULL, (size_t)(2 * page), PROT_READ, MAP_SHARED, fd, 0);
    char *copy = malloc((size_t)page);
    if (truncate(path, page))
        _exit(1);
    guarded_copy(copy, p + page);
    _exit(0);
}

static void sent_by_kill(void) {
    ckpt_guard.active = 1;
    kill(getpid(), SIGBUS);
}

static void other_faults_keep_their_effect(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* the default effect is then the sanitizer's report */
#endif
    install();
    assert_int_equal(signal_of_child(fault_without_guard), SIGBUS);
    assert_int_equal(signal_of_child(fault_elsewhere), SIGBUS);
    assert_int_equal(signal_of_child(sent_by_kill), SIGBUS);
}

static void table_is_bounded(void **state) {
    (void)state;
    static char bytes[CKPT_GUARD_MAPPINGS + 1];
    size_t n = 0;
    while (n < sizeof bytes && ckpt_guard_add(bytes + n, 1) == 0)
        n++;
    assert_int_equal(n, CKPT_GUARD_MAPPINGS);
    assert_int_equal(ckpt_guard_add(bytes + n, 1), -ENOSPC);
    ckpt_guard_remove(bytes + 7);
    assert_int_equal(ckpt_guard_add(bytes + n, 1), 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        ckpt_guard_remove(bytes + i);
    assert_int_equal(ckpt_guard_add(bytes, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_and_read),
        cmocka_unit_test(refusals),
        cmocka_unit_test(blobs),
        cmocka_unit_test(shrunken_file_is_an_error),
        cmocka_unit_test(every_thread_has_its_guard),
        cmocka_unit_test(other_faults_keep_their_effect),
        cmocka_unit_test(table_is_bounded),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
