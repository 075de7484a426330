/* A text computed once for all readers: parking, leaving, cancelling, stopping. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "fs/computed.h"

#define SIZE 100

/* What the maker does: spins until it may go on or is cancelled. */
struct job {
    atomic_bool go;
    atomic_int runs;
    int rc;
};

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

static int make(void *arg, const atomic_bool *cancel, struct ckpt_str *out, struct ckpt_err *err) {
    struct job *job = arg;
    atomic_fetch_add(&job->runs, 1);
    while (!atomic_load(&job->go)) {
        if (cancel && atomic_load(cancel))
            return ckpt_fail(err, -EINTR, "cancelled");
        nap();
    }
    if (job->rc < 0)
        return ckpt_fail(err, job->rc, "the test wants it so");
    ckpt_str_puts(out, "{}\n");
    return 0;
}

struct reader {
    struct ckpt_waiter waiter;
    atomic_int rc; /* 1: not woken yet */
    bool left;
};

static void wake(struct ckpt_waiter *w, int rc) {
    struct reader *r = (struct reader *)w;
    assert_int_equal(atomic_exchange(&r->rc, rc), 1);
}

static bool left(struct ckpt_waiter *w) {
    return ((struct reader *)w)->left;
}

static void init_reader(struct reader *r) {
    *r = (struct reader){.waiter = {.wake = wake, .left = left, .id = r}};
    atomic_store(&r->rc, 1);
}

static int woken(struct reader *r) {
    for (int i = 0; i < 5000 && atomic_load(&r->rc) == 1; i++)
        nap();
    return atomic_load(&r->rc);
}

static struct ckpt_computed *new_computed(struct job *job) {
    struct ckpt_computed *c = NULL;
    struct ckpt_err err = {0};
    assert_int_equal(ckpt_computed_new(make, job, SIZE, &c, &err), 0);
    return c;
}

static void assert_text(struct ckpt_computed *c) {
    const char *text = ckpt_computed_text(c);
    assert_non_null(text);
    assert_memory_equal(text, "{}\n ", 4);
    assert_int_equal(text[SIZE - 2], ' ');
    assert_int_equal(text[SIZE - 1], '\n');
}

static void test_once_for_all(void **state) {
    (void)state;
    struct job job = {.rc = 0};
    struct reader r[8];
    struct ckpt_computed *c = new_computed(&job);
    for (int i = 0; i < 8; i++) {
        init_reader(&r[i]);
        assert_int_equal(ckpt_computed_park(c, &r[i].waiter), 0);
    }
    assert_null(ckpt_computed_text(c));
    atomic_store(&job.go, true);
    for (int i = 0; i < 8; i++)
        assert_int_equal(woken(&r[i]), 0);
    assert_int_equal(atomic_load(&job.runs), 1);
    assert_text(c);
    init_reader(&r[0]);
    assert_int_equal(ckpt_computed_park(c, &r[0].waiter), 0); /* later ones do not wait */
    assert_int_equal(atomic_load(&r[0].rc), 0);
    ckpt_computed_free(c);
}

static void test_the_last_reader_cancels(void **state) {
    (void)state;
    struct job job = {.rc = 0};
    struct reader a, b;
    struct ckpt_computed *c = new_computed(&job);
    init_reader(&a);
    init_reader(&b);
    assert_int_equal(ckpt_computed_park(c, &a.waiter), 0);
    assert_int_equal(ckpt_computed_park(c, &b.waiter), 0);
    assert_ptr_equal(ckpt_computed_unpark(c, &a), &a.waiter);
    assert_null(ckpt_computed_unpark(c, &a));
    assert_ptr_equal(ckpt_computed_unpark(c, &b), &b.waiter);
    init_reader(&a); /* comes back while the run is being cancelled, or after */
    assert_int_equal(ckpt_computed_park(c, &a.waiter), 0);
    atomic_store(&job.go, true);
    assert_int_equal(woken(&a), 0);
    assert_int_equal(atomic_load(&b.rc), 1); /* nobody wakes who has left */
    assert_text(c);
    ckpt_computed_free(c);
}

static void test_who_has_left_is_not_parked(void **state) {
    (void)state;
    struct job job = {.rc = 0};
    struct reader r;
    struct ckpt_computed *c = new_computed(&job);
    init_reader(&r);
    r.left = true;
    assert_int_equal(ckpt_computed_park(c, &r.waiter), -EINTR);
    assert_int_equal(atomic_load(&job.runs), 0);
    ckpt_computed_free(c);
    assert_int_equal(atomic_load(&r.rc), 1);
}

static void test_failure_and_another_try(void **state) {
    (void)state;
    struct job job = {.rc = -EIO};
    struct reader r;
    struct ckpt_computed *c = new_computed(&job);
    atomic_store(&job.go, true);
    init_reader(&r);
    assert_int_equal(ckpt_computed_park(c, &r.waiter), 0);
    assert_int_equal(woken(&r), -EIO);
    assert_null(ckpt_computed_text(c));
    job.rc = 0;
    init_reader(&r);
    assert_int_equal(ckpt_computed_park(c, &r.waiter), 0);
    assert_int_equal(woken(&r), 0);
    assert_text(c);
    ckpt_computed_free(c);
}

static void test_stopping_wakes(void **state) {
    (void)state;
    struct job job = {.rc = 0};
    struct reader r;
    struct ckpt_computed *c = new_computed(&job);
    init_reader(&r);
    assert_int_equal(ckpt_computed_park(c, &r.waiter), 0);
    ckpt_computed_stop(c);
    assert_int_equal(woken(&r), -EIO);
    init_reader(&r);
    assert_int_equal(ckpt_computed_park(c, &r.waiter), -EIO);
    ckpt_computed_free(c);
}

static void test_tools_wait(void **state) {
    (void)state;
    struct job job = {.rc = 0};
    struct ckpt_err err = {0};
    struct ckpt_computed *c = new_computed(&job);
    atomic_store(&job.go, true);
    assert_int_equal(ckpt_computed_wait(c, &err), 0);
    assert_int_equal(ckpt_computed_wait(c, &err), 0);
    assert_int_equal(atomic_load(&job.runs), 1);
    assert_text(c);
    ckpt_computed_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once_for_all),
        cmocka_unit_test(test_the_last_reader_cancels),
        cmocka_unit_test(test_who_has_left_is_not_parked),
        cmocka_unit_test(test_failure_and_another_try),
        cmocka_unit_test(test_stopping_wakes),
        cmocka_unit_test(test_tools_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
