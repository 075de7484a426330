#include "verify/blas.h"

#include <assert.h>
#include <cblas.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LIBRARY "libopenblas.so.0" /* of whichever flavour the system has chosen */
#define ROOM ((size_t)224 << 20)

/* What was found; written once. */
static struct {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(cblas_dgemm) *dgemm;
    __typeof__(openblas_get_corename) *core;
    __typeof__(openblas_get_config) *config;
    bool loaded;
    char why[256]; /* not loaded */
} blas;

void ckpt_blas_one_thread(void) {
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

static bool find(void *library, const char *name, void *function) {
    void *const found = dlsym(library, name);
    memcpy(function, &found, sizeof found); /* ISO C has no cast from object to function */
    return found != NULL;
}

static void load(void) {
    void *const library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    blas.loaded = library && find(library, "cblas_sgemm", &blas.sgemm) &&
                  find(library, "cblas_dgemm", &blas.dgemm) &&
                  find(library, "openblas_get_corename", &blas.core) &&
                  find(library, "openblas_get_config", &blas.config);
    if (!blas.loaded)
        snprintf(blas.why, sizeof blas.why, "%s", dlerror());
}

static void load_once(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
}

/* Without room for its work buffer OpenBLAS asks for it again and again, and never gives up. */
static int check_room(struct ckpt_err *err) {
    void *const room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return ckpt_fail(err, -ENOMEM,
                         "the limit on address space (ulimit -v) leaves no room for the %zu MiB in "
                         "which OpenBLAS multiplies: raise it",
                         ROOM >> 20);
    munmap(room, ROOM);
    return 0;
}

int ckpt_blas_load(struct ckpt_err *err) {
    const int rc = check_room(err);
    if (rc < 0)
        return rc;
    load_once();
    if (!blas.loaded)
        return ckpt_fail(err, -ENOENT, "OpenBLAS cannot be loaded: %s; install libopenblas0",
                         blas.why);
    return 0;
}

static const CBLAS_TRANSPOSE transpose[] = {CblasNoTrans, CblasTrans};

void ckpt_blas_sgemm(enum ckpt_blas_order oa, enum ckpt_blas_order ob, int m, int n, int k,
                     float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                     float *c, int ldc) {
    load_once();
    assert(blas.loaded);
    blas.sgemm(CblasRowMajor, transpose[oa], transpose[ob], m, n, k, alpha, a, lda, b, ldb, beta, c,
               ldc);
}

void ckpt_blas_dgemm(enum ckpt_blas_order oa, enum ckpt_blas_order ob, int m, int n, int k,
                     double alpha, const double *a, int lda, const double *b, int ldb, double beta,
                     double *c, int ldc) {
    load_once();
    assert(blas.loaded);
    blas.dgemm(CblasRowMajor, transpose[oa], transpose[ob], m, n, k, alpha, a, lda, b, ldb, beta, c,
               ldc);
}

const char *ckpt_blas_core(void) {
    load_once();
    assert(blas.loaded);
    return blas.core();
}

const char *ckpt_blas_config(void) {
    load_once();
    assert(blas.loaded);
    return blas.config();
}
