/* Texts that are written when they are read: measured once, held while open, the same for all. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "fs/vfile.h"

#define SIZE 100000u

struct source {
    atomic_int runs;
    int rc;
    bool differs; /* each text is one byte longer than the one before */
};

static int write_text(const void *arg, struct ckpt_str *out, struct ckpt_err *err) {
    struct source *s = (struct source *)(uintptr_t)arg;
    const int run = atomic_fetch_add(&s->runs, 1);
    if (s->rc < 0)
        return ckpt_fail(err, s->rc, "the test wants it so");
    for (unsigned i = 0; i < SIZE + (s->differs ? (unsigned)run : 0); i++)
        ckpt_str_add(out, &"0123456789"[i % 10], 1);
    return 0;
}

static void free_list(struct ckpt_made **list) {
    ckpt_made_free_list(*list);
}
CKPT_DEFINE_AUTO(made, struct ckpt_made *, free_list)

static struct ckpt_made *new_text(struct source *s, struct ckpt_made **list) {
    struct ckpt_err err;
    assert_int_equal(ckpt_made_new(list, write_text, s, &err), 0);
    return *list;
}

static void test_measured_once_and_held_while_open(void **state) {
    (void)state;
    CKPT_AUTO(made) struct ckpt_made *list = NULL;
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct source s = {0};
    struct ckpt_err err;
    struct ckpt_vfile *f = ckpt_vfile_made(&arena, new_text(&s, &list));
    assert_int_equal(s.runs, 0);
    assert_true(ckpt_vfile_size(f) == SIZE && ckpt_vfile_size(f) == SIZE);
    assert_int_equal(s.runs, 1);
    for (int round = 1; round <= 2; round++) {
        char tail[5];
        assert_int_equal(ckpt_vfile_open(f, &err), 0);
        assert_int_equal(ckpt_vfile_open(f, &err), 0);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(ckpt_vfile_copy(f, NULL, SIZE - 5, 5, NULL, tail, &err), 0);
            assert_memory_equal(tail, "56789", 5);
            if (i == 0)
                ckpt_vfile_close(f);
        }
        ckpt_vfile_close(f);
        assert_int_equal(s.runs, 1 + round); /* written again once all had let go */
    }
}

static void test_a_first_segment(void **state) {
    (void)state;
    CKPT_AUTO(made) struct ckpt_made *list = NULL;
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct source s = {0};
    struct ckpt_err err;
    struct ckpt_vfile *f = ckpt_vfile_new(&arena, 2);
    ckpt_vfile_add_made(f, new_text(&s, &list), SIZE);
    ckpt_vfile_add_bytes(f, "end", 3);
    char tail[5];
    assert_int_equal(ckpt_vfile_open(f, &err), 0);
    assert_int_equal(ckpt_vfile_copy(f, NULL, SIZE - 2, 5, NULL, tail, &err), 0);
    assert_memory_equal(tail, "89end", 5);
    ckpt_vfile_close(f);
    assert_int_equal(s.runs, 1);
}

static void test_failures(void **state) {
    (void)state;
    CKPT_AUTO(made) struct ckpt_made *list = NULL;
    struct source broken = {.rc = -ENOMEM}, changing = {.differs = true};
    struct ckpt_made *m = new_text(&broken, &list);
    struct ckpt_err err;
    uint64_t size;
    const char *text;
    assert_int_equal(ckpt_made_size(m, &size, &err), -ENOMEM);
    broken.rc = 0;
    assert_int_equal(ckpt_made_size(m, &size, &err), 0);
    assert_true(size == SIZE);
    m = new_text(&changing, &list);
    assert_int_equal(ckpt_made_size(m, &size, &err), 0);
    ckpt_made_hold(m);
    assert_int_equal(ckpt_made_text(m, &text, &err), -EIO);
    ckpt_made_release(m);
}

static void *read_it(void *made) {
    for (int i = 0; i < 20; i++) {
        struct ckpt_err err;
        const char *text;
        uint64_t size;
        ckpt_made_hold(made);
        if (ckpt_made_text(made, &text, &err) < 0 || ckpt_made_size(made, &size, &err) < 0 ||
            size != SIZE || memcmp(text + SIZE - 5, "56789", 6) != 0)
            return NULL;
        ckpt_made_release(made);
    }
    return made;
}

static void test_many_readers(void **state) {
    (void)state;
    CKPT_AUTO(made) struct ckpt_made *list = NULL;
    struct source s = {0};
    struct ckpt_made *m = new_text(&s, &list);
    pthread_t thread[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_it, m), 0);
    for (int i = 0; i < 8; i++) {
        void *result;
        assert_int_equal(pthread_join(thread[i], &result), 0);
        assert_ptr_equal(result, m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measured_once_and_held_while_open),
        cmocka_unit_test(test_a_first_segment),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_many_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
