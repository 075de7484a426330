/* OpenBLAS is loaded on demand, and never has threads. */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "verify/blas.h"

static int count_threads(void) {
    DIR *const tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    int n = 0;
    for (const struct dirent *e; (e = readdir(tasks));)
        n += e->d_name[0] != '.';
    closedir(tasks);
    return n;
}

/* A thread that was joined may still be on its way out. */
static int settled_threads(int wanted) {
    int n = count_threads();
    for (int i = 0; n != wanted && i < 1000; i++, n = count_threads())
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return n;
}

static void *nothing(void *arg) {
    return arg;
}

static void *load(void *rc) {
    *(int *)rc = ckpt_blas_load(NULL);
    return NULL;
}

static void starts_no_threads(void **state) {
    (void)state;
    ckpt_blas_one_thread();
    pthread_t thread[4];
    assert_int_equal(pthread_create(&thread[0], NULL, nothing, NULL), 0);
    pthread_join(thread[0], NULL); /* with the first, a sanitizer starts one of its own */
    const int before = settled_threads(1);
    int rc[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, load, &rc[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(rc[i], 0);
    }
    struct ckpt_err err = {0};
    assert_int_equal(ckpt_blas_load(&err), 0);
    assert_int_equal(settled_threads(before), before);
    assert_true(ckpt_blas_core()[0] && ckpt_blas_config()[0]);
}

/* [2, 3] of a transposed matrix times [3, 2], added to what is there. */
static void multiplies_rows(void **state) {
    (void)state;
    const float a[6] = {1, 4, 2, 5, 3, 6}, b[6] = {1, 0, 0, 1, 1, 1};
    const double da[6] = {1, 2, 3, 4, 5, 6}, db[6] = {1, 0, 1, 0, 1, 1};
    const double wanted[4] = {4, 5, 10, 11};
    float c[4] = {1, 0, 0, 0};
    double d[4];
    ckpt_blas_sgemm(CKPT_BLAS_COLUMNS, CKPT_BLAS_ROWS, 2, 2, 3, 1, a, 2, b, 2, 1, c, 2);
    ckpt_blas_dgemm(CKPT_BLAS_ROWS, CKPT_BLAS_COLUMNS, 2, 2, 3, 1, da, 3, db, 3, 0, d, 2);
    for (int i = 0; i < 4; i++) {
        assert_true((double)c[i] == wanted[i] + (i == 0));
        assert_true(d[i] == wanted[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_no_threads),
        cmocka_unit_test(multiplies_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
