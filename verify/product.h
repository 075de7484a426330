#ifndef CKPT_VERIFY_PRODUCT_H
#define CKPT_VERIFY_PRODUCT_H
/* Matrix products for operations: of arrays, and of an array and a parameter that is read in bands.
 */
#include "verify/op.h"

/* out = a b for a [..., M, K] and b [..., K, N], whose dimensions in front broadcast. Both have one
 * dtype, F32, F64 or I64, and at least two dimensions. */
int ckpt_product(const struct ckpt_array *a, const struct ckpt_array *b, struct ckpt_exec *exec,
                 struct ckpt_array *out, struct ckpt_err *err) CKPT_CHECKED;

/* y += x w^T, w being [out, in] whichever way it is stored, x [rows, in] and y [rows, out] dense
 * and y zero; the weight is never held whole. */
int ckpt_product_param(const struct ckpt_call *c, const float *x, int64_t rows,
                       const struct ckpt_param *w, float *y, struct ckpt_err *err) CKPT_CHECKED;
/* Columns of a parameter of two dimensions: how many numbers x w^T takes and gives. */
void ckpt_product_sizes(const struct ckpt_param *w, int64_t *in, int64_t *out);

#endif
