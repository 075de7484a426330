/*
 * Products by BLAS. A parameter W is read in bands of rows as they are stored:
 *
 *     W [out, in]   a band gives some columns of y:     y[:, band]  = x Wband^T
 *     W [in, out]   a band takes some columns of x:     y          += x[:, band] Wband
 *
 * An array goes to BLAS as it lies in memory, transposed or with gaps between its rows; only what
 * has a step in both dimensions is copied first.
 */
#include "verify/product.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/blas.h"

/* ---- a parameter ---- */

void ckpt_product_sizes(const struct ckpt_param *w, int64_t *in, int64_t *out) {
    *in = w->shape[w->in_out ? 0 : 1];
    *out = w->shape[w->in_out ? 1 : 0];
}

struct streamed {
    const float *x;
    float *y;
    int64_t rows, in, out;
    const struct ckpt_param *w;
};

static void multiply_band(const struct streamed *s, const float *band, int64_t first, int64_t n) {
    const int rows = (int)s->rows, in = (int)s->in, out = (int)s->out, width = (int)n;
    if (s->w->in_out)
        ckpt_blas_sgemm(CKPT_BLAS_ROWS, CKPT_BLAS_ROWS, rows, out, width, 1, s->x + first, in, band,
                        out, 1, s->y, out);
    else
        ckpt_blas_sgemm(CKPT_BLAS_ROWS, CKPT_BLAS_COLUMNS, rows, width, in, 1, s->x, in, band, in,
                        0, s->y + first, out);
}

int ckpt_product_param(const struct ckpt_call *c, const float *x, int64_t rows,
                       const struct ckpt_param *w, float *y, struct ckpt_err *err) {
    struct streamed s = {.x = x, .y = y, .rows = rows, .w = w};
    const int64_t nrows = w->shape[0], row = w->shape[1];
    ckpt_product_sizes(w, &s.in, &s.out);
    if (!ckpt_blas_fits(rows, s.in, s.out))
        return ckpt_fail(err, -EOVERFLOW, "weight %.*s has a dimension beyond 2^31",
                         CKPT_TEXT_ARGS(w->name));
    if (nrows == 0 || row == 0 || rows == 0)
        return 0;
    const int64_t height = ckpt_call_band(c, nrows, row * (int64_t)sizeof(float));
    CKPT_AUTO(array) struct ckpt_array band = {0};
    int rc = ckpt_array_new(&band, &c->exec->memory, CKPT_DT_F32, (int64_t[]){height, row}, 2, err);
    for (int64_t first = 0; rc == 0 && first < nrows; first += height) {
        const int64_t n = nrows - first < height ? nrows - first : height;
        rc = w->read(w, first * row, n * row, ckpt_array_f32(&band), err);
        if (rc == 0)
            multiply_band(&s, ckpt_array_f32(&band), first, n);
        if (rc == 0)
            rc = ckpt_exec_check(c->exec, err);
    }
    return rc;
}

/* ---- arrays ---- */

/* A matrix in memory, as BLAS takes it: x(i, k) = data[i * ld + k], or [k * ld + i] if transposed.
 */
struct side {
    enum ckpt_blas_order order;
    int ld;
};

static bool rows_lie_dense(int64_t rows, int64_t cols, int64_t row_step, int64_t step, int *ld) {
    const int64_t least = cols > 1 ? cols : 1, distance = rows > 1 ? row_step : least;
    *ld = (int)distance;
    return (step == 1 || cols <= 1) && distance >= least && distance <= INT_MAX;
}

static bool blas_takes(const struct ckpt_array *a, struct side *s) {
    const int64_t *const shape = &a->shape[a->ndim - 2], *const stride = &a->stride[a->ndim - 2];
    s->order = CKPT_BLAS_ROWS;
    if (rows_lie_dense(shape[0], shape[1], stride[0], stride[1], &s->ld))
        return true;
    s->order = CKPT_BLAS_COLUMNS;
    return rows_lie_dense(shape[1], shape[0], stride[1], stride[0], &s->ld);
}

/* One pair of matrices; a, b and out show a whole array, `data` where this pair begins. */
struct pair {
    const struct ckpt_array *a, *b;
    struct side sa, sb;
    int64_t m, n, k;
    const char *at_a, *at_b;
    char *to;
};

static void multiply_i64(const struct pair *p) {
    const int64_t *const sa = &p->a->stride[p->a->ndim - 2];
    const int64_t *const sb = &p->b->stride[p->b->ndim - 2];
    const int64_t *const a = (const int64_t *)(const void *)p->at_a;
    const int64_t *const b = (const int64_t *)(const void *)p->at_b;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            uint64_t sum = 0;
            for (int64_t k = 0; k < p->k; k++)
                sum += (uint64_t)a[i * sa[0] + k * sa[1]] * (uint64_t)b[k * sb[0] + j * sb[1]];
            ((int64_t *)(void *)p->to)[i * p->n + j] = (int64_t)sum;
        }
}

static void multiply_rows(const struct pair *p) {
    const int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    const void *const a = p->at_a, *const b = p->at_b;
    if (p->a->dtype == CKPT_DT_F32)
        ckpt_blas_sgemm(p->sa.order, p->sb.order, m, n, k, 1, a, p->sa.ld, b, p->sb.ld, 0,
                        (float *)(void *)p->to, n);
    else if (p->a->dtype == CKPT_DT_F64)
        ckpt_blas_dgemm(p->sa.order, p->sb.order, m, n, k, 1, a, p->sa.ld, b, p->sb.ld, 0,
                        (double *)(void *)p->to, n);
    else
        multiply_i64(p);
}

#define SLICE_PRODUCTS ((int64_t)1 << 32) /* a tenth of a second */

/* A large product in slices of rows, between which it can be interrupted. */
static int multiply(const struct pair *p, struct ckpt_exec *exec, struct ckpt_err *err) {
    const int64_t size = ckpt_dtype_info(p->a->dtype)->unit_bytes;
    const int64_t fit = SLICE_PRODUCTS / p->n / p->k, most = fit > 64 ? fit : 64;
    struct pair part = *p;
    int rc = 0;
    for (int64_t first = 0; rc == 0 && first < p->m; first += most) {
        part.m = p->m - first < most ? p->m - first : most;
        part.at_a = p->at_a + first * p->a->stride[p->a->ndim - 2] * size;
        part.to = p->to + first * p->n * size;
        multiply_rows(&part);
        rc = ckpt_exec_check(exec, err);
    }
    return rc;
}

/* All pairs: out's dimensions in front count them, those of a and b may repeat. */
static int multiply_all(struct pair *p, const struct ckpt_array *out, uint32_t d,
                        struct ckpt_exec *exec, struct ckpt_err *err) {
    const int64_t size = ckpt_dtype_info(out->dtype)->unit_bytes;
    if (d + 2 == out->ndim)
        return multiply(p, exec, err);
    const struct pair start = *p;
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < out->shape[d]; i++) {
        rc = multiply_all(p, out, d + 1, exec, err);
        p->at_a += p->a->stride[d] * size;
        p->at_b += p->b->stride[d] * size;
        p->to += out->stride[d] * size;
    }
    *p = start;
    return rc;
}

/* The shape of the product, and both sides seen with its dimensions in front. */
static int align(const struct ckpt_array *a, const struct ckpt_array *b, struct ckpt_array *left,
                 struct ckpt_array *right, int64_t *shape, uint32_t *ndim, struct ckpt_err *err) {
    struct ckpt_array front[2] = {*a, *b};
    char text[2][96];
    front[0].ndim -= 2;
    front[1].ndim -= 2;
    const int64_t k = b->shape[b->ndim - 2], n = b->shape[b->ndim - 1];
    if (a->shape[a->ndim - 1] != k)
        return ckpt_fail(err, -EINVAL, "cannot multiply %s by %s",
                         ckpt_array_shape_text(a, text[0], sizeof(text[0])),
                         ckpt_array_shape_text(b, text[1], sizeof(text[1])));
    int rc = ckpt_array_broadcast((const struct ckpt_array *const[]){&front[0], &front[1]}, 2,
                                  shape, ndim, err);
    if (rc < 0)
        return rc;
    if (*ndim + 2 > CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "a product of %u dimensions", *ndim + 2);
    shape[*ndim] = a->shape[a->ndim - 2];
    shape[*ndim + 1] = k;
    rc = ckpt_array_expand(a, shape, *ndim + 2, left, err);
    shape[*ndim] = k;
    shape[*ndim + 1] = n;
    if (rc == 0)
        rc = ckpt_array_expand(b, shape, *ndim + 2, right, err);
    shape[*ndim] = a->shape[a->ndim - 2];
    *ndim += 2;
    return rc;
}

static int take_side(const struct ckpt_array *given, struct ckpt_exec *exec, struct side *s,
                     struct ckpt_array *out, struct ckpt_err *err) {
    *out = ckpt_array_ref(given);
    if (given->dtype == CKPT_DT_I64 || blas_takes(out, s))
        return 0;
    ckpt_array_fini(out);
    const int rc = ckpt_array_contiguous(given, &exec->memory, out, err);
    if (rc == 0 && !blas_takes(out, s))
        return ckpt_fail(err, -EOVERFLOW, "a matrix has a dimension beyond 2^31");
    return rc;
}

static int check_dtypes(const struct ckpt_array *a, const struct ckpt_array *b,
                        struct ckpt_err *err) {
    if (a->dtype != b->dtype || a->dtype == CKPT_DT_BOOL)
        return ckpt_fail(err, -EINVAL, "cannot multiply matrices of %s and %s",
                         ckpt_dtype_info(a->dtype)->name, ckpt_dtype_info(b->dtype)->name);
    return 0;
}

int ckpt_product(const struct ckpt_array *a, const struct ckpt_array *b, struct ckpt_exec *exec,
                 struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array left = {0}, right = {0}, x = {0}, y = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim = 0;
    struct pair p = {.m = a->shape[a->ndim - 2], .k = a->shape[a->ndim - 1]};
    int rc = check_dtypes(a, b, err);
    if (rc == 0)
        rc = take_side(a, exec, &p.sa, &x, err);
    if (rc == 0)
        rc = take_side(b, exec, &p.sb, &y, err);
    if (rc == 0)
        rc = align(&x, &y, &left, &right, shape, &ndim, err);
    if (rc == 0)
        rc = ckpt_array_new(out, &exec->memory, a->dtype, shape, ndim, err);
    if (rc < 0)
        return rc;
    p.n = shape[ndim - 1];
    if (!ckpt_blas_fits(p.m, p.n, p.k))
        return ckpt_fail(err, -EOVERFLOW, "a matrix has a dimension beyond 2^31");
    if (ckpt_array_count(out) == 0 || p.k == 0)
        return 0;
    p.a = &left;
    p.b = &right;
    p.at_a = left.data;
    p.at_b = right.data;
    p.to = out->data;
    return multiply_all(&p, out, 0, exec, err);
}
