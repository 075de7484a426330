/*
 * Products of matrices and vectors, and what is added to them. A parameter as the right matrix is
 * streamed, one of a batch of them read matrix by matrix; everywhere else it is loaded.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"
#include "verify/product.h"

/* ---- a product, whatever its operands ---- */

/* The right side, if it is a matrix that can be streamed. */
static const struct ckpt_param *streamable(const struct ckpt_call *c, const char *right) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, right);
    return a && a->kind == CKPT_ARG_PARAM && a->param->ndim == 2 ? a->param : NULL;
}

/* x [..., K] times the parameter, which is [K, N]. */
static int stream(const struct ckpt_call *c, const char *left, const struct ckpt_param *w,
                  struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0};
    const struct ckpt_param turned = ckpt_param_transpose(w);
    int64_t shape[CKPT_ARRAY_NDIM_MAX], in, n, rows = 1;
    char text[96];
    int rc = ckpt_call_input(c, left, &x, err);
    if (rc < 0)
        return rc;
    ckpt_product_sizes(&turned, &in, &n);
    if (x.ndim == 0 || x.shape[x.ndim - 1] != in)
        return ckpt_fail(err, -EINVAL, "cannot multiply %s by %.*s of [%lld, %lld]",
                         ckpt_array_shape_text(&x, text, sizeof(text)), CKPT_TEXT_ARGS(w->name),
                         (long long)in, (long long)n);
    memcpy(shape, x.shape, sizeof(shape));
    for (uint32_t d = 0; d + 1 < x.ndim; d++)
        rows *= shape[d];
    shape[x.ndim - 1] = n;
    rc = ckpt_array_new(out, &c->exec->memory, CKPT_DT_F32, shape, x.ndim, err);
    if (rc < 0)
        return rc;
    return ckpt_product_param(c, ckpt_array_f32(&x), rows, &turned, ckpt_array_f32(out), err);
}

/* A view with one more dimension of size 1, at d. */
static struct ckpt_array unsqueezed(const struct ckpt_array *a, uint32_t d) {
    struct ckpt_array out = ckpt_array_ref(a);
    for (uint32_t k = a->ndim; k > d; k--) {
        out.shape[k] = a->shape[k - 1];
        out.stride[k] = a->stride[k - 1];
    }
    out.shape[d] = 1;
    out.stride[d] = 1;
    out.ndim++;
    return out;
}

/* Drops dimension d, of size 1. */
static void squeeze(struct ckpt_array *a, uint32_t d) {
    for (uint32_t k = d; k + 1 < a->ndim; k++) {
        a->shape[k] = a->shape[k + 1];
        a->stride[k] = a->stride[k + 1];
    }
    a->ndim--;
}

/* [..., M, K] by one [K, N]: all rows in one product, if that needs no copy. */
static int fold(const struct ckpt_array *a, const struct ckpt_array *b, struct ckpt_exec *exec,
                struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array flat = {0}, product = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    if (a->ndim < 3 || b->ndim != 2 || !ckpt_array_dense(a) || ckpt_array_count(a) == 0)
        return ckpt_product(a, b, exec, out, err);
    const int64_t width = a->shape[a->ndim - 1];
    int rc = ckpt_array_reshape(a, (const int64_t[]){-1, width}, 2, NULL, &flat, err);
    if (rc == 0)
        rc = ckpt_product(&flat, b, exec, &product, err);
    if (rc < 0)
        return rc;
    memcpy(shape, a->shape, sizeof(shape));
    shape[a->ndim - 1] = b->shape[1];
    return ckpt_array_reshape(&product, shape, a->ndim, NULL, out, err);
}

/* As matmul takes them: vectors are rows on the left and columns on the right. */
static int product(const struct ckpt_array *a, const struct ckpt_array *b, struct ckpt_exec *exec,
                   struct ckpt_array *out, struct ckpt_err *err) {
    if (a->ndim == 0 || b->ndim == 0 || a->ndim + 1 > CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EINVAL, "both sides need at least one dimension");
    CKPT_AUTO(array) struct ckpt_array left = a->ndim == 1 ? unsqueezed(a, 0) : ckpt_array_ref(a);
    CKPT_AUTO(array) struct ckpt_array right = b->ndim == 1 ? unsqueezed(b, 1) : ckpt_array_ref(b);
    const int rc = fold(&left, &right, exec, out, err);
    if (rc == 0 && b->ndim == 1)
        squeeze(out, out->ndim - 1);
    if (rc == 0 && a->ndim == 1)
        squeeze(out, out->ndim - (b->ndim == 1 ? 1 : 2));
    return rc;
}

/* How many dimensions either side must have; 0: any. */
struct sides {
    const char *left, *right;
    uint32_t left_ndim, right_ndim;
};

static int check_ndim(const struct ckpt_call *c, const char *name, uint32_t ndim,
                      struct ckpt_err *err) {
    struct ckpt_array form;
    const int rc = ckpt_call_form(c, name, &form, err);
    if (rc < 0 || ndim == 0 || form.ndim == ndim)
        return rc;
    return ckpt_fail(err, -EINVAL, "%s has %u dimensions, expected %u", name, form.ndim, ndim);
}

static int multiply(const struct ckpt_call *c, const struct sides *s, struct ckpt_array *out,
                    struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, b = {0};
    int rc = check_ndim(c, s->left, s->left_ndim, err);
    if (rc == 0)
        rc = check_ndim(c, s->right, s->right_ndim, err);
    if (rc < 0)
        return rc;
    const struct ckpt_param *const w = streamable(c, s->right);
    if (w)
        return stream(c, s->left, w, out, err);
    rc = ckpt_call_tensor(c, s->left, &a, err);
    if (rc == 0)
        rc = ckpt_call_tensor(c, s->right, &b, err);
    if (rc < 0)
        return rc;
    if (s->left_ndim == 3 && a.shape[0] != b.shape[0])
        return ckpt_fail(err, -EINVAL, "%s has %lld matrices, %s has %lld", s->left,
                         (long long)a.shape[0], s->right, (long long)b.shape[0]);
    return product(&a, &b, c->exec, out, err);
}

/* ---- something added ---- */

/* y = alpha y + beta x; at[0] is y, at[1] is x. */
struct weights {
    struct ckpt_scalar alpha, beta;
    enum ckpt_dtype dtype;
};

static void combine_row(void *arg, char *const *at, const int64_t *step, int64_t n) {
    const struct weights *const w = arg;
    for (int64_t k = 0; k < n; k++) {
        void *const y = at[0] + k * step[0];
        const void *const x = at[1] + k * step[1];
        if (w->dtype == CKPT_DT_I64)
            *(int64_t *)y = (int64_t)((uint64_t)w->alpha.i * *(const uint64_t *)y +
                                      (uint64_t)w->beta.i * *(const uint64_t *)x);
        else if (w->dtype == CKPT_DT_F64)
            *(double *)y = w->alpha.f * *(const double *)y + w->beta.f * *(const double *)x;
        else
            *(float *)y = (float)(w->alpha.f * (double)*(const float *)y +
                                  w->beta.f * (double)*(const float *)x);
    }
}

static struct ckpt_scalar factor(const struct ckpt_call *c, const char *name) {
    const struct ckpt_scalar s = ckpt_call_scalar(c, name);
    return s.dtype == CKPT_DT_NONE ? (struct ckpt_scalar){CKPT_DT_I64, 1, 1} : s;
}

/* *y becomes the result, with beta self added; a beta of 0 ignores self, whatever it holds. */
static int add_self(struct ckpt_call *c, struct ckpt_array *y, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array self = {0}, seen = {0};
    struct weights w = {factor(c, "alpha"), factor(c, "beta"), y->dtype};
    const bool ignored = w.beta.f == 0;
    int rc = ckpt_call_tensor(c, "self", &self, err);
    if (rc == 0 && self.dtype != y->dtype)
        rc = ckpt_fail(err, -EINVAL, "self is %s, the product %s",
                       ckpt_dtype_info(self.dtype)->name, ckpt_dtype_info(y->dtype)->name);
    if (rc == 0)
        rc = ckpt_array_expand(&self, y->shape, y->ndim, &seen, err);
    if (rc < 0)
        return rc;
    if (!ignored || w.alpha.f != 1)
        ckpt_array_rows((const struct ckpt_array *const[]){y, ignored ? y : &seen}, 2, combine_row,
                        &w);
    *c->out = *y;
    memset(y, 0, sizeof(*y));
    return 0;
}

static int multiply_add(struct ckpt_call *c, const struct sides *s, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array y = {0};
    const int rc = multiply(c, s, &y, err);
    return rc < 0 ? rc : add_self(c, &y, err);
}

/* ---- operations ---- */

static int op_mm(struct ckpt_call *c, struct ckpt_err *err) {
    return multiply(c, &(const struct sides){"self", "mat2", 2, 2}, c->out, err);
}

/* ---- a batch of matrices that is a parameter ---- */

/* One side of bmm: matrix i of it. */
struct batch {
    const struct ckpt_param *param; /* or NULL: */
    struct ckpt_array all;
    int64_t shape[3];
};

static void batch_fini(struct batch *b) {
    ckpt_array_fini(&b->all);
}
CKPT_DEFINE_AUTO(batch, struct batch, batch_fini)

static int batch_init(const struct ckpt_call *c, const char *name, struct batch *b,
                      struct ckpt_err *err) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    const bool is_param = a && a->kind == CKPT_ARG_PARAM;
    b->param = is_param ? a->param : NULL;
    const int rc = is_param ? 0 : ckpt_call_input(c, name, &b->all, err);
    const uint32_t ndim = is_param ? b->param->ndim : b->all.ndim;
    if (rc < 0)
        return rc;
    if (ndim != 3)
        return ckpt_fail(err, -EINVAL, "%s has %u dimensions, expected 3", name, ndim);
    memcpy(b->shape, is_param ? b->param->shape : b->all.shape, sizeof(b->shape));
    return 0;
}

static int batch_get(const struct batch *b, int64_t i, struct ckpt_memory *memory,
                     struct ckpt_array *out, struct ckpt_err *err) {
    const int64_t size = b->shape[1] * b->shape[2];
    if (!b->param) {
        *out = ckpt_array_slice(&b->all, 0, i, 1);
        ckpt_array_drop_dim(out, 0);
        return 0;
    }
    const int rc = ckpt_array_new(out, memory, CKPT_DT_F32, &b->shape[1], 2, err);
    return rc < 0 ? rc : b->param->read(b->param, i * size, size, ckpt_array_f32(out), err);
}

static int multiply_one(const struct batch *left, const struct batch *right, int64_t i,
                        struct ckpt_exec *exec, float *y, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, b = {0}, product = {0};
    int rc = batch_get(left, i, &exec->memory, &a, err);
    if (rc == 0)
        rc = batch_get(right, i, &exec->memory, &b, err);
    if (rc == 0)
        rc = ckpt_product(&a, &b, exec, &product, err);
    if (rc == 0)
        memcpy(y, ckpt_array_f32(&product), (size_t)ckpt_array_count(&product) * sizeof(*y));
    return rc;
}

static int bmm_param(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(batch) struct batch a = {0}, b = {0};
    int rc = batch_init(c, "self", &a, err);
    if (rc == 0)
        rc = batch_init(c, "mat2", &b, err);
    if (rc < 0)
        return rc;
    if (a.shape[0] != b.shape[0] || a.shape[2] != b.shape[1])
        return ckpt_fail(err, -EINVAL, "self and mat2 are no batches that can be multiplied");
    rc = ckpt_call_result(c, (const int64_t[]){a.shape[0], a.shape[1], b.shape[2]}, 3, err);
    const int64_t size = a.shape[1] * b.shape[2];
    for (int64_t i = 0; rc == 0 && size && i < a.shape[0]; i++)
        rc = multiply_one(&a, &b, i, c->exec, ckpt_array_f32(c->out) + i * size, err);
    return rc;
}

static bool is_param(const struct ckpt_call *c, const char *name) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    return a && a->kind == CKPT_ARG_PARAM;
}

static int op_bmm(struct ckpt_call *c, struct ckpt_err *err) {
    if (is_param(c, "self") || is_param(c, "mat2"))
        return bmm_param(c, err);
    return multiply(c, &(const struct sides){"self", "mat2", 3, 3}, c->out, err);
}

static int op_matmul(struct ckpt_call *c, struct ckpt_err *err) {
    return multiply(c, &(const struct sides){"self", "other", 0, 0}, c->out, err);
}

static int op_mv(struct ckpt_call *c, struct ckpt_err *err) {
    return multiply(c, &(const struct sides){"self", "vec", 2, 1}, c->out, err);
}

static int op_dot(struct ckpt_call *c, struct ckpt_err *err) {
    return multiply(c, &(const struct sides){"self", "tensor", 1, 1}, c->out, err);
}

static int op_vdot(struct ckpt_call *c, struct ckpt_err *err) {
    return multiply(c, &(const struct sides){"self", "other", 1, 1}, c->out, err);
}

static int op_addmm(struct ckpt_call *c, struct ckpt_err *err) {
    return multiply_add(c, &(const struct sides){"mat1", "mat2", 2, 2}, err);
}

static int op_baddbmm(struct ckpt_call *c, struct ckpt_err *err) {
    return multiply_add(c, &(const struct sides){"batch1", "batch2", 3, 3}, err);
}

static int op_addmv(struct ckpt_call *c, struct ckpt_err *err) {
    return multiply_add(c, &(const struct sides){"mat", "vec", 2, 1}, err);
}

/* The sum over the batch is a product, too: [M, B K] by [B K, N]. */
static int op_addbmm(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, b = {0}, left = {0}, right = {0}, y = {0};
    int rc = ckpt_call_tensor(c, "batch1", &a, err);
    if (rc == 0)
        rc = ckpt_call_tensor(c, "batch2", &b, err);
    if (rc < 0)
        return rc;
    if (a.ndim != 3 || b.ndim != 3 || a.shape[0] != b.shape[0] || a.shape[2] != b.shape[1])
        return ckpt_fail(err, -EINVAL, "batch1 and batch2 are no batches that can be multiplied");
    CKPT_AUTO(array) struct ckpt_array turned = ckpt_array_permute(&a, (const uint32_t[]){1, 0, 2});
    const int64_t inner = a.shape[0] * a.shape[2];
    rc = ckpt_array_reshape(&turned, (const int64_t[]){a.shape[1], inner}, 2, &c->exec->memory,
                            &left, err);
    if (rc == 0)
        rc = ckpt_array_reshape(&b, (const int64_t[]){inner, b.shape[2]}, 2, &c->exec->memory,
                                &right, err);
    if (rc == 0)
        rc = product(&left, &right, c->exec, &y, err);
    return rc < 0 ? rc : add_self(c, &y, err);
}

/* A column by a row, in the dtype that both promote to. */
static int op_outer(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, b = {0};
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_tensor(c, "vec2", &b, err);
    if (rc < 0)
        return rc;
    if (a.ndim != 1 || b.ndim != 1)
        return ckpt_fail(err, -EINVAL, "takes two vectors");
    CKPT_AUTO(array) struct ckpt_array column = unsqueezed(&a, 1), row = unsqueezed(&b, 0);
    const struct ckpt_arg arg[] = {{.name = "self", .kind = CKPT_ARG_ARRAY, .array = &column},
                                   {.name = "other", .kind = CKPT_ARG_ARRAY, .array = &row}};
    return ckpt_op_run(ckpt_op_find(CKPT_TEXT("mul")), arg, 2, c->exec, c->out, err);
}

#define FACTORS ", *, Scalar beta=1, Scalar alpha=1) -> Tensor"

static const struct ckpt_op ops[] = {
    {"mm", "mm(Tensor self, Tensor mat2) -> Tensor", op_mm},
    {"bmm", "bmm(Tensor self, Tensor mat2) -> Tensor", op_bmm},
    {"matmul", "matmul(Tensor self, Tensor other) -> Tensor", op_matmul},
    {"linalg_matmul", "linalg_matmul(Tensor self, Tensor other) -> Tensor", op_matmul},
    {"mv", "mv(Tensor self, Tensor vec) -> Tensor", op_mv},
    {"dot", "dot(Tensor self, Tensor tensor) -> Tensor", op_dot},
    {"vdot", "vdot(Tensor self, Tensor other) -> Tensor", op_vdot},
    {"addmm", "addmm(Tensor self, Tensor mat1, Tensor mat2" FACTORS, op_addmm},
    {"baddbmm", "baddbmm(Tensor self, Tensor batch1, Tensor batch2" FACTORS, op_baddbmm},
    {"addbmm", "addbmm(Tensor self, Tensor batch1, Tensor batch2" FACTORS, op_addbmm},
    {"addmv", "addmv(Tensor self, Tensor mat, Tensor vec" FACTORS, op_addmv},
    {"outer", "outer(Tensor self, Tensor vec2) -> Tensor", op_outer},
    {"ger", "ger(Tensor self, Tensor vec2) -> Tensor", op_outer},
};

const struct ckpt_op_family ckpt_family_matmul = CKPT_OP_FAMILY(ops);
