#ifndef CKPT_VERIFY_BLAS_H
#define CKPT_VERIFY_BLAS_H
/*
 * The functions of OpenBLAS that the checker calls. The library is loaded when a check begins, not
 * with the program: that would be a third of the time to start, and nobody who mounts needs it.
 */
#include "base/err.h"

/* Before the process has threads: OpenBLAS will start none, whenever and in whichever of its
 * flavours it is loaded. Its idle threads spin, and more than one change the last digits. */
void ckpt_blas_one_thread(void);

/* Loads OpenBLAS once a process, from any thread. The functions below do that, too, but cannot say
 * that it failed: a check begins with this. */
int ckpt_blas_load(struct ckpt_err *err) CKPT_CHECKED;

/* A matrix as it is stored: by rows, or by columns. */
enum ckpt_blas_order { CKPT_BLAS_ROWS, CKPT_BLAS_COLUMNS };

/* c [m, n] = alpha a [m, k] b [k, n] + beta c. c is stored by rows; lda, ldb and ldc are the
 * elements from one row, or column, to the next. */
void ckpt_blas_sgemm(enum ckpt_blas_order oa, enum ckpt_blas_order ob, int m, int n, int k,
                     float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                     float *c, int ldc);
void ckpt_blas_dgemm(enum ckpt_blas_order oa, enum ckpt_blas_order ob, int m, int n, int k,
                     double alpha, const double *a, int lda, const double *b, int ldb, double beta,
                     double *c, int ldc);

/* The kernels that it chose for this CPU, and how it was built. */
const char *ckpt_blas_core(void);
const char *ckpt_blas_config(void);

#endif
