/* Choices by truth values: one tensor's elements or another's, or only those that are meant. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/elementwise.h"
#include "verify/lookup.h"

/* ---- one or the other ---- */

/* at: result, mask, what stands where it holds, and where it does not. */
static void choose_row(void *arg, char *const *at, const int64_t *step, int64_t n) {
    const int64_t unit = *(const int64_t *)arg;
    if (unit == 4)
        for (int64_t k = 0; k < n; k++) {
            const int which = at[1][k * step[1]] ? 2 : 3;
            memcpy(at[0] + k * step[0], at[which] + k * step[which], 4);
        }
    else
        for (int64_t k = 0; k < n; k++) {
            const int which = at[1][k * step[1]] ? 2 : 3;
            memcpy(at[0] + k * step[0], at[which] + k * step[which], (size_t)unit);
        }
}

/* a in this dtype, seen in this shape. */
static int fit(struct ckpt_call *c, const struct ckpt_array *a, enum ckpt_dtype dtype,
               const int64_t *shape, uint32_t ndim, struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array cast = {0};
    const int rc = ckpt_array_cast(a, dtype, &c->exec->memory, &cast, err);
    return rc < 0 ? rc : ckpt_array_expand(&cast, shape, ndim, out, err);
}

/* c->out, in the shape that all three broadcast to. */
static int choose(struct ckpt_call *c, const struct ckpt_array *mask, const struct ckpt_array *yes,
                  const struct ckpt_array *no, enum ckpt_dtype dtype, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array truth = {0}, first = {0}, second = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX], unit = ckpt_dtype_info(dtype)->unit_bytes;
    uint32_t ndim = 0;
    int rc = ckpt_array_broadcast((const struct ckpt_array *const[]){mask, yes, no}, 3, shape,
                                  &ndim, err);
    if (rc == 0)
        rc = fit(c, mask, CKPT_DT_BOOL, shape, ndim, &truth, err);
    if (rc == 0)
        rc = fit(c, yes, dtype, shape, ndim, &first, err);
    if (rc == 0)
        rc = fit(c, no, dtype, shape, ndim, &second, err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, dtype, shape, ndim, err);
    if (rc == 0)
        ckpt_array_rows((const struct ckpt_array *const[]){c->out, &truth, &first, &second}, 4,
                        choose_row, &unit);
    return rc;
}

static int where(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(operands) struct ckpt_operands o = {0};
    CKPT_AUTO(array) struct ckpt_array mask = {0};
    int rc = ckpt_call_tensor(c, "condition", &mask, err);
    if (rc == 0)
        rc = ckpt_operands_init(c, (const char *const[]){"self", "other"}, 2, &o, err);
    return rc < 0 ? rc : choose(c, &mask, &o.at[0], &o.at[1], o.dtype, err);
}

static int masked_fill(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, mask = {0};
    const struct ckpt_scalar value = ckpt_call_scalar(c, "value");
    const struct ckpt_array one = ckpt_scalar_array(&value);
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_tensor(c, "mask", &mask, err);
    if (rc == 0 && value.dtype == CKPT_DT_NONE)
        return ckpt_fail(err, -EINVAL, "value is not one number");
    return rc < 0 ? rc : choose(c, &mask, &one, &a, a.dtype, err);
}

/* ---- those that are meant ---- */

static int nonzero(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    const int rc = ckpt_call_tensor(c, "self", &a, err);
    return rc < 0 ? rc : ckpt_nonzero(&a, c->exec, c->out, err);
}

/* The same as a list, of the indices of each dimension. A number counts as a vector. */
static int nonzero_list(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, all = {0}, wide = {0};
    int rc = ckpt_call_tensor(c, ckpt_call_arg(c, "condition") ? "condition" : "self", &a, err);
    const int64_t one = 1;
    if (rc == 0)
        rc = ckpt_array_expand(&a, a.ndim ? a.shape : &one, a.ndim ? a.ndim : 1, &wide, err);
    if (rc == 0 && wide.ndim != c->nout)
        return ckpt_fail(err, -EINVAL, "gives %u results, not the %u that are wanted", wide.ndim,
                         c->nout);
    if (rc == 0)
        rc = ckpt_nonzero(&wide, c->exec, &all, err);
    for (uint32_t d = 0; rc == 0 && d < c->nout; d++) {
        struct ckpt_array column = ckpt_array_slice(&all, 1, d, 1);
        ckpt_array_drop_dim(&column, 1);
        rc = ckpt_call_view(c, d, column, err);
    }
    return rc;
}

/* Self and mask in their common shape, in C order. */
static int take_both(struct ckpt_call *c, struct ckpt_array *a, struct ckpt_array *mask,
                     struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array self = {0}, given = {0}, wide = {0}, truth = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim = 0;
    int rc = ckpt_call_tensor(c, "self", &self, err);
    if (rc == 0)
        rc = ckpt_call_tensor(c, "mask", &given, err);
    if (rc == 0)
        rc = ckpt_array_broadcast((const struct ckpt_array *const[]){&self, &given}, 2, shape,
                                  &ndim, err);
    if (rc == 0)
        rc = fit(c, &self, self.dtype, shape, ndim, &wide, err);
    if (rc == 0)
        rc = fit(c, &given, CKPT_DT_BOOL, shape, ndim, &truth, err);
    if (rc == 0)
        rc = ckpt_array_contiguous(&wide, &c->exec->memory, a, err);
    return rc < 0 ? rc : ckpt_array_contiguous(&truth, &c->exec->memory, mask, err);
}

static int64_t count_true(const struct ckpt_array *mask) {
    int64_t n = 0;
    const int64_t count = ckpt_array_count(mask);
    for (int64_t i = 0; i < count; i++)
        n += ckpt_array_bool(mask)[i] != 0;
    return n;
}

static int masked_select(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, mask = {0};
    int rc = take_both(c, &a, &mask, err);
    if (rc < 0)
        return rc;
    const int64_t n = count_true(&mask), count = ckpt_array_count(&mask);
    const int64_t unit = ckpt_dtype_info(a.dtype)->unit_bytes;
    rc = ckpt_call_new(c, 0, a.dtype, &n, 1, err);
    char *to = c->out->data;
    for (int64_t i = 0; rc == 0 && i < count; i++)
        if (ckpt_array_bool(&mask)[i]) {
            memcpy(to, (char *)a.data + i * unit, (size_t)unit);
            to += unit;
        }
    return rc;
}

/* Where the mask holds, the source's elements in their order. */
static int masked_scatter(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, mask = {0}, source = {0}, dense = {0};
    int rc = take_both(c, &a, &mask, err);
    if (rc == 0)
        rc = ckpt_call_tensor(c, "source", &source, err);
    if (rc == 0 && source.dtype != a.dtype)
        return ckpt_fail(err, -EINVAL, "the source is %s, expected %s",
                         ckpt_dtype_info(source.dtype)->name, ckpt_dtype_info(a.dtype)->name);
    if (rc == 0)
        rc = ckpt_array_contiguous(&source, &c->exec->memory, &dense, err);
    if (rc == 0 && count_true(&mask) > ckpt_array_count(&dense))
        return ckpt_fail(err, -EINVAL, "a source of %lld elements, too few for the mask",
                         (long long)ckpt_array_count(&dense));
    if (rc == 0)
        rc = ckpt_call_new(c, 0, a.dtype, a.shape, a.ndim, err);
    const int64_t unit = rc == 0 ? ckpt_dtype_info(a.dtype)->unit_bytes : 0;
    const int64_t count = ckpt_array_count(&mask);
    const char *next = dense.data;
    for (int64_t i = 0; rc == 0 && i < count; i++) {
        const bool from_source = ckpt_array_bool(&mask)[i];
        memcpy((char *)c->out->data + i * unit, from_source ? next : (char *)a.data + i * unit,
               (size_t)unit);
        next += from_source ? unit : 0;
    }
    return rc;
}

static const struct ckpt_op ops[] = {
    {"where", "where.self(Tensor condition, Tensor self, Tensor other) -> Tensor", where},
    {"where", "where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor", where},
    {"where", "where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor", where},
    {"where", "where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor", where},
    {"where", "where(Tensor condition) -> Tensor[]", nonzero_list},
    {"nonzero", "nonzero(Tensor self) -> Tensor", nonzero},
    {"nonzero_numpy", "nonzero_numpy(Tensor self) -> Tensor[]", nonzero_list},
    {"masked_fill", "masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor",
     masked_fill},
    {"masked_fill", "masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor",
     masked_fill},
    {"masked_select", "masked_select(Tensor self, Tensor mask) -> Tensor", masked_select},
    {"masked_scatter", "masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor",
     masked_scatter},
};

const struct ckpt_op_family ckpt_family_where = CKPT_OP_FAMILY(ops);
