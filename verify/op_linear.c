/* y = x W + b; product.c has the two conventions of W. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"
#include "verify/product.h"

struct linear {
    float *y;
    int64_t rows, in, out;
};

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
    ckpt_product_sizes(w, &l->in, &l->out);
    if (x->ndim == 0 || x->shape[x->ndim - 1] != l->in)
        return ckpt_fail(err, -EINVAL,
                         "the input's last dimension is %lld, weight %.*s expects %lld",
                         x->ndim ? (long long)x->shape[x->ndim - 1] : 0LL, CKPT_TEXT_ARGS(w->name),
                         (long long)l->in);
    l->rows = l->in ? ckpt_array_count(x) / l->in : 0;
    for (uint32_t d = 0; l->in == 0 && d + 1 < x->ndim; d++)
        l->rows = (d ? l->rows : 1) * x->shape[d];
    return 0;
}

int ckpt_op_linear(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0}, hold = {0}, bias = {0};
    struct ckpt_param w = {0};
    struct linear l = {0};
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
    l.y = ckpt_array_f32(c->out);
    rc = ckpt_product_param(c, ckpt_array_f32(&x), l.rows, &w, l.y, err);
    if (rc == 0)
        add_bias(&l, &bias);
    return rc;
}
