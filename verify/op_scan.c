/* What runs along a dimension: cumulative sums and products, differences of neighbours. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/lanes.h"

/* ---- cumulative ---- */

/* Floats are accumulated in double. */
static void scan_lane(const struct ckpt_array *x, const struct ckpt_array *out, int64_t at,
                      const struct ckpt_lanes *l, bool multiply) {
    double f = multiply;
    uint64_t u = multiply;
    for (int64_t k = 0; k < l->width; k++, at += l->step) {
        if (x->dtype == CKPT_DT_I64) {
            const uint64_t v = (uint64_t)ckpt_array_i64(x)[at];
            u = multiply ? u * v : u + v;
            ckpt_array_i64(out)[at] = (int64_t)u;
            continue;
        }
        const double v = ckpt_array_get(x, at);
        f = multiply ? f * v : f + v;
        if (x->dtype == CKPT_DT_F64)
            ckpt_array_f64(out)[at] = f;
        else
            ckpt_array_f32(out)[at] = (float)f;
    }
}

static int scan(struct ckpt_call *c, bool multiply, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = {0}, cast = {0}, x = {0};
    uint32_t dim = 0;
    int rc = ckpt_call_tensor(c, "self", &given, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dim", 0, given.ndim, &dim, err);
    if (rc < 0)
        return rc;
    enum ckpt_dtype dtype = ckpt_call_dtype(c, "dtype", given.dtype);
    dtype = dtype == CKPT_DT_BOOL ? CKPT_DT_I64 : dtype;
    rc = ckpt_array_cast(&given, dtype, &c->exec->memory, &cast, err);
    if (rc == 0)
        rc = ckpt_array_contiguous(&cast, &c->exec->memory, &x, err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, dtype, x.shape, x.ndim, err);
    if (rc < 0)
        return rc;
    const struct ckpt_lanes l = ckpt_lanes_of(&x, dim);
    for (int64_t i = 0; i < l.count; i++)
        scan_lane(&x, c->out, ckpt_lanes_start(&l, i), &l, multiply);
    return 0;
}

static int op_cumsum(struct ckpt_call *c, struct ckpt_err *err) {
    return scan(c, false, err);
}

static int op_cumprod(struct ckpt_call *c, struct ckpt_err *err) {
    return scan(c, true, err);
}

/* ---- differences ---- */

/* Puts `more` before or behind *x, in x's dtype. */
static int join(struct ckpt_array *x, const struct ckpt_array *more, uint32_t dim, bool before,
                struct ckpt_exec *exec, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array whole = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    if (more->ndim != x->ndim)
        return ckpt_fail(err, -EINVAL, "prepend and append need as many dimensions as self");
    memcpy(shape, x->shape, sizeof(shape));
    shape[dim] += more->shape[dim];
    int rc = ckpt_array_new(&whole, &exec->memory, x->dtype, shape, x->ndim, err);
    if (rc < 0)
        return rc;
    const int64_t first = before ? more->shape[dim] : x->shape[dim];
    CKPT_AUTO(array) struct ckpt_array head = ckpt_array_slice(&whole, dim, 0, first);
    CKPT_AUTO(array)
    struct ckpt_array tail = ckpt_array_slice(&whole, dim, first, shape[dim] - first);
    rc = ckpt_array_assign(before ? &tail : &head, x, err);
    if (rc == 0)
        rc = ckpt_array_assign(before ? &head : &tail, more, err);
    ckpt_array_fini(x);
    *x = ckpt_array_ref(&whole);
    return rc;
}

static int join_argument(struct ckpt_call *c, const char *name, struct ckpt_array *x, uint32_t dim,
                         bool before, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array more = {0};
    const int rc = ckpt_call_optional(c, name, &more, err);
    return rc < 0 || !more.store ? rc : join(x, &more, dim, before, c->exec, err);
}

/* *x becomes the differences of its neighbours; of truth values, whether they differ. */
static int difference(struct ckpt_array *x, uint32_t dim, struct ckpt_exec *exec,
                      struct ckpt_err *err) {
    const int64_t n = x->shape[dim] > 0 ? x->shape[dim] - 1 : 0;
    CKPT_AUTO(array) struct ckpt_array left = ckpt_array_slice(x, dim, x->shape[dim] - n, n);
    CKPT_AUTO(array) struct ckpt_array right = ckpt_array_slice(x, dim, 0, n);
    const struct ckpt_arg arg[] = {{.name = "self", .kind = CKPT_ARG_ARRAY, .array = &left},
                                   {.name = "other", .kind = CKPT_ARG_ARRAY, .array = &right}};
    const struct ckpt_text name =
        x->dtype == CKPT_DT_BOOL ? CKPT_TEXT("logical_xor") : CKPT_TEXT("sub");
    struct ckpt_array out;
    const int rc = ckpt_op_run(ckpt_op_find(name), arg, 2, exec, &out, err);
    ckpt_array_fini(x);
    *x = out;
    return rc;
}

static int op_diff(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0};
    uint32_t dim = 0;
    int64_t times = ckpt_call_int(c, "n", 1);
    int rc = ckpt_call_tensor(c, "self", &x, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dim", -1, x.ndim, &dim, err);
    if (rc == 0 && (x.ndim == 0 || times < 0))
        rc = ckpt_fail(err, -EINVAL, "needs at least one dimension, and n of at least 0");
    if (rc == 0)
        rc = join_argument(c, "prepend", &x, dim, true, err);
    if (rc == 0)
        rc = join_argument(c, "append", &x, dim, false, err);
    for (; rc == 0 && times > 0 && x.shape[dim] > 0; times--)
        rc = difference(&x, dim, c->exec, err);
    if (rc == 0)
        *c->out = ckpt_array_ref(&x);
    return rc;
}

static const struct ckpt_op ops[] = {
    {"cumsum", "cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", op_cumsum},
    {"cumprod", "cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", op_cumprod},
    {"diff",
     "diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor",
     op_diff},
};

const struct ckpt_op_family ckpt_family_scan = CKPT_OP_FAMILY(ops);
