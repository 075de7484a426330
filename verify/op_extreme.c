/* Where the largest and the smallest elements are. Of equals the first; NaN is beyond everything.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/reduce.h"

static double item(const struct ckpt_reduction *r, const void *row, int64_t i) {
    return r->rows.dtype == CKPT_DT_F64 ? ((const double *)row)[i]
                                        : (double)((const float *)row)[i];
}

static int64_t find_float(const struct ckpt_reduction *r, const void *row, bool largest) {
    int64_t at = 0;
    for (int64_t i = 0; i < r->width; i++) {
        const double x = item(r, row, i), best = item(r, row, at);
        if (isnan(x))
            return i;
        if (largest ? x > best : x < best)
            at = i;
    }
    return at;
}

static int64_t find_int(const struct ckpt_reduction *r, const int64_t *row, bool largest) {
    int64_t at = 0;
    for (int64_t i = 0; i < r->width; i++)
        if (largest ? row[i] > row[at] : row[i] < row[at])
            at = i;
    return at;
}

/* Fills indices, and values unless NULL. */
static void find_all(const struct ckpt_reduction *r, bool largest, int64_t *indices,
                     const struct ckpt_array *values) {
    const int64_t size = ckpt_dtype_info(r->rows.dtype)->unit_bytes;
    for (int64_t i = 0; i < r->count; i++) {
        const void *const row = ckpt_reduction_row(r, i);
        const int64_t at =
            r->rows.dtype == CKPT_DT_I64 ? find_int(r, row, largest) : find_float(r, row, largest);
        indices[i] = at;
        if (values)
            memcpy((char *)values->data + i * size, (const char *)row + at * size, (size_t)size);
    }
}

static int begin(struct ckpt_call *c, struct ckpt_array *x, struct ckpt_reduction *r,
                 struct ckpt_err *err) {
    int rc = ckpt_call_tensor(c, "self", x, err);
    if (rc == 0)
        rc = ckpt_reduction_init(c, x, x->dtype == CKPT_DT_BOOL ? CKPT_DT_I64 : x->dtype, false, r,
                                 err);
    if (rc == 0 && r->width == 0 && r->count > 0)
        return ckpt_fail(err, -EINVAL, "has no elements to choose from");
    return rc;
}

static int find_arguments(struct ckpt_call *c, bool largest, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0};
    CKPT_AUTO(reduction) struct ckpt_reduction r = {0};
    int rc = begin(c, &x, &r, err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, CKPT_DT_I64, r.shape, r.ndim, err);
    if (rc == 0)
        find_all(&r, largest, ckpt_array_i64(c->out), NULL);
    return rc;
}

/* Values and, if they are wanted, indices. */
static int find_both(struct ckpt_call *c, bool largest, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0}, values = {0}, indices = {0};
    CKPT_AUTO(reduction) struct ckpt_reduction r = {0};
    int rc = begin(c, &x, &r, err);
    if (rc == 0)
        rc = ckpt_array_new(&values, &c->exec->memory, r.rows.dtype, r.shape, r.ndim, err);
    if (rc == 0)
        rc = ckpt_array_new(&indices, &c->exec->memory, CKPT_DT_I64, r.shape, r.ndim, err);
    if (rc < 0)
        return rc;
    find_all(&r, largest, ckpt_array_i64(&indices), &values);
    if (c->nout > 1)
        c->out[1] = ckpt_array_ref(&indices);
    return ckpt_array_cast(&values, x.dtype, &c->exec->memory, c->out, err);
}

static int op_max_dim(struct ckpt_call *c, struct ckpt_err *err) {
    return find_both(c, true, err);
}

static int op_min_dim(struct ckpt_call *c, struct ckpt_err *err) {
    return find_both(c, false, err);
}

static int op_argmax(struct ckpt_call *c, struct ckpt_err *err) {
    return find_arguments(c, true, err);
}

static int op_argmin(struct ckpt_call *c, struct ckpt_err *err) {
    return find_arguments(c, false, err);
}

static const struct ckpt_op ops[] = {
    {"max", "max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
     op_max_dim},
    {"min", "min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
     op_min_dim},
    {"argmax", "argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", op_argmax},
    {"argmin", "argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", op_argmin},
};

const struct ckpt_op_family ckpt_family_extreme = CKPT_OP_FAMILY(ops);
