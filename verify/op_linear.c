/*
 * y = x W + b in the two conventions, W read in bands of rows:
 *
 *     torch  W [out, in]   a band gives some columns of y:     y[:, band]  = x Wband^T
 *     burn   W [in, out]   a band takes some columns of x:     y          += x[:, band] Wband
 */
#include <cblas.h>
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

struct linear {
    const float *x;
    float *y;
    int64_t rows, in, out;
    const struct ckpt_param *w;
};

static void multiply_band(const struct linear *l, const float *band, int64_t first, int64_t n) {
    const int rows = (int)l->rows, in = (int)l->in, out = (int)l->out, width = (int)n;
    if (l->w->in_out)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, out, width, 1, l->x + first,
                    in, band, out, 1, l->y, out);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, width, in, 1, l->x, in, band, in,
                    0, l->y + first, out);
}

static int multiply(const struct ckpt_call *c, const struct linear *l, struct ckpt_err *err) {
    const int64_t nrows = l->w->shape[0], row = l->w->shape[1];
    if (nrows == 0 || row == 0 || l->rows == 0)
        return 0;
    const int64_t height = ckpt_call_band(c, nrows, row * (int64_t)sizeof(float));
    CKPT_AUTO(array) struct ckpt_array band = {0};
    int rc = ckpt_array_new(&band, &c->exec->memory, CKPT_DT_F32, (int64_t[]){height, row}, 2, err);
    for (int64_t first = 0; rc == 0 && first < nrows; first += height) {
        const int64_t n = nrows - first < height ? nrows - first : height;
        rc = l->w->read(l->w, first * row, n * row, ckpt_array_f32(&band), err);
        if (rc == 0)
            multiply_band(l, ckpt_array_f32(&band), first, n);
        if (rc == 0)
            rc = ckpt_exec_check(c->exec, err);
    }
    return rc;
}

static void add_bias(const struct linear *l, const struct ckpt_array *bias) {
    if (!bias->store)
        return;
    const float *const b = ckpt_array_f32(bias);
    for (int64_t r = 0; r < l->rows; r++)
        for (int64_t o = 0; o < l->out; o++)
            l->y[r * l->out + o] += b[o];
}

static int check_weight(const struct ckpt_param *w, const struct ckpt_array *x, struct linear *l,
                        struct ckpt_err *err) {
    if (w->ndim != 2)
        return ckpt_fail(err, -EINVAL, "weight %.*s has %u dimensions, expected 2",
                         CKPT_TEXT_ARGS(w->name), w->ndim);
    l->in = w->shape[w->in_out ? 0 : 1];
    l->out = w->shape[w->in_out ? 1 : 0];
    if (x->ndim == 0 || x->shape[x->ndim - 1] != l->in)
        return ckpt_fail(err, -EINVAL,
                         "the input's last dimension is %lld, weight %.*s expects %lld",
                         x->ndim ? (long long)x->shape[x->ndim - 1] : 0LL, CKPT_TEXT_ARGS(w->name),
                         (long long)l->in);
    l->rows = l->in ? ckpt_array_count(x) / l->in : 0;
    for (uint32_t d = 0; l->in == 0 && d + 1 < x->ndim; d++)
        l->rows = (d ? l->rows : 1) * x->shape[d];
    if (!ckpt_blas_fits(l->rows, l->in, l->out))
        return ckpt_fail(err, -EOVERFLOW, "weight %.*s has a dimension beyond 2^31",
                         CKPT_TEXT_ARGS(w->name));
    return 0;
}

int ckpt_op_linear(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0}, hold = {0}, bias = {0};
    struct ckpt_param w = {0};
    struct linear l = {.w = &w};
    int rc = ckpt_call_input(c, "input", &x, err);
    if (rc == 0)
        rc = ckpt_call_param(c, "weight", &hold, &w, err);
    if (rc == 0)
        rc = check_weight(&w, &x, &l, err);
    if (rc == 0)
        rc = ckpt_call_vector(c, "bias", l.out, &bias, err);
    if (rc < 0)
        return rc;
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    memcpy(shape, x.shape, sizeof(shape));
    shape[x.ndim - 1] = l.out;
    rc = ckpt_call_result(c, shape, x.ndim, err);
    if (rc < 0)
        return rc;
    l.x = ckpt_array_f32(&x);
    l.y = ckpt_array_f32(c->out);
    rc = multiply(c, &l, err);
    if (rc == 0)
        add_bias(&l, &bias);
    return rc;
}
