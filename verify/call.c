/* Running one operation, and what operations use to get at their arguments. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"
#include "verify/product.h"

int ckpt_exec_check(const struct ckpt_exec *e, struct ckpt_err *err) {
    if (e->cancel && atomic_load(e->cancel))
        return ckpt_fail(err, -EINTR, "interrupted");
    return 0;
}

/* Results of an operation that computed in float32 what was given as float64. */
static int widen(struct ckpt_call *c, struct ckpt_err *err) {
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < c->nout; i++) {
        if (c->out[i].dtype != CKPT_DT_F32)
            continue;
        CKPT_AUTO(array) struct ckpt_array narrow = c->out[i];
        memset(&c->out[i], 0, sizeof(c->out[i]));
        rc = ckpt_array_cast(&narrow, CKPT_DT_F64, &c->exec->memory, &c->out[i], err);
    }
    return rc;
}

int ckpt_op_run_all(const struct ckpt_op *op, const struct ckpt_arg *arg, uint32_t nargs,
                    struct ckpt_exec *exec, struct ckpt_array *out, uint32_t nout,
                    struct ckpt_err *err) {
    struct ckpt_call c = {
        .op = op, .arg = arg, .nargs = nargs, .exec = exec, .out = out, .nout = nout};
    memset(out, 0, nout * sizeof(*out));
    int rc = ckpt_exec_check(exec, err);
    if (rc < 0)
        return rc;
    const bool narrowed = exec->narrowed; /* of an operation that runs this one */
    exec->narrowed = false;
    rc = op->run(&c, err);
    if (rc == 0 && exec->narrowed)
        rc = widen(&c, err);
    exec->narrowed = narrowed;
    if (rc == 0)
        return 0;
    for (uint32_t i = 0; i < nout; i++)
        ckpt_array_fini(&out[i]);
    return rc == -EINTR ? rc : ckpt_fail_in(err, "%s", op->name);
}

int ckpt_op_run(const struct ckpt_op *op, const struct ckpt_arg *arg, uint32_t nargs,
                struct ckpt_exec *exec, struct ckpt_array *out, struct ckpt_err *err) {
    return ckpt_op_run_all(op, arg, nargs, exec, out, 1, err);
}

const struct ckpt_arg *ckpt_call_arg(const struct ckpt_call *c, const char *name) {
    for (uint32_t i = 0; i < c->nargs; i++)
        if (strcmp(c->arg[i].name, name) == 0)
            return c->arg[i].kind == CKPT_ARG_NONE ? NULL : &c->arg[i];
    return NULL;
}

int64_t ckpt_call_int(const struct ckpt_call *c, const char *name, int64_t otherwise) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    return a && a->kind == CKPT_ARG_INT ? a->i : otherwise;
}

double ckpt_call_float(const struct ckpt_call *c, const char *name, double otherwise) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    if (a && a->kind == CKPT_ARG_INT)
        return (double)a->i;
    return a && a->kind == CKPT_ARG_FLOAT ? a->f : otherwise;
}

bool ckpt_call_bool(const struct ckpt_call *c, const char *name, bool otherwise) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    return a && a->kind == CKPT_ARG_BOOL ? a->b : otherwise;
}

int ckpt_call_ints(const struct ckpt_call *c, const char *name, uint32_t n, int64_t otherwise,
                   int64_t *out, struct ckpt_err *err) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    const bool list = a && a->kind == CKPT_ARG_INTS;
    if (a && !list && a->kind != CKPT_ARG_INT)
        return ckpt_fail(err, -EINVAL, "%s is not a number or a list of them", name);
    if (list && a->ints.n != n && a->ints.n != 1)
        return ckpt_fail(err, -EINVAL, "%s has %u numbers, expected %u", name, a->ints.n, n);
    for (uint32_t i = 0; i < n; i++)
        out[i] = !a ? otherwise : !list ? a->i : a->ints.v[a->ints.n == 1 ? 0 : i];
    return 0;
}

int ckpt_call_list(const struct ckpt_call *c, const char *name, int64_t *out, uint32_t *n,
                   struct ckpt_err *err) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    *n = !a ? 0 : a->kind == CKPT_ARG_INTS ? a->ints.n : 1;
    if (*n > CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "%s has %u numbers; the checker handles %d", name, *n,
                         CKPT_ARRAY_NDIM_MAX);
    return ckpt_call_ints(c, name, *n, 0, out, err);
}

/* What a number or a 0-d array says. */
static struct ckpt_scalar scalar_of(const struct ckpt_arg *a) {
    const bool array = a->kind == CKPT_ARG_ARRAY && ckpt_array_count(a->array) == 1;
    const enum ckpt_dtype dtype = array ? a->array->dtype : CKPT_DT_NONE;
    struct ckpt_scalar s = {0};
    if (a->kind == CKPT_ARG_INT)
        s = (struct ckpt_scalar){CKPT_DT_I64, a->i, (double)a->i};
    else if (a->kind == CKPT_ARG_BOOL)
        s = (struct ckpt_scalar){CKPT_DT_BOOL, a->b, a->b};
    else if (a->kind == CKPT_ARG_FLOAT)
        s = (struct ckpt_scalar){CKPT_DT_F64, 0, a->f};
    else if (dtype == CKPT_DT_I64)
        s = (struct ckpt_scalar){dtype, *ckpt_array_i64(a->array), ckpt_array_get(a->array, 0)};
    else if (dtype == CKPT_DT_BOOL)
        s = (struct ckpt_scalar){dtype, *ckpt_array_bool(a->array), ckpt_array_get(a->array, 0)};
    else if (array)
        s = (struct ckpt_scalar){CKPT_DT_F64, 0, ckpt_array_get(a->array, 0)};
    return s;
}

struct ckpt_scalar ckpt_call_scalar(const struct ckpt_call *c, const char *name) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    return a ? scalar_of(a) : (struct ckpt_scalar){0};
}

struct ckpt_array ckpt_scalar_array(const struct ckpt_scalar *s) {
    const bool is_float = s->dtype == CKPT_DT_F64;
    const void *const data = is_float ? (const void *)&s->f : &s->i;
    return (struct ckpt_array){.dtype = is_float ? CKPT_DT_F64 : CKPT_DT_I64,
                               .data = (void *)(uintptr_t)data};
}

enum ckpt_dtype ckpt_call_dtype(const struct ckpt_call *c, const char *name,
                                enum ckpt_dtype otherwise) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    return a && a->kind == CKPT_ARG_DTYPE ? ckpt_array_dtype((enum ckpt_dtype)a->i) : otherwise;
}

static int resolve_dim(int64_t dim, uint32_t ndim, uint32_t *out, struct ckpt_err *err) {
    const int64_t n = ndim ? ndim : 1;
    if (dim < -n || dim >= n)
        return ckpt_fail(err, -EINVAL, "no dimension %lld in a tensor of %u", (long long)dim, ndim);
    *out = (uint32_t)(dim < 0 ? dim + n : dim);
    return 0;
}

int ckpt_call_dim(const struct ckpt_call *c, const char *name, int64_t otherwise, uint32_t ndim,
                  uint32_t *out, struct ckpt_err *err) {
    return resolve_dim(ckpt_call_int(c, name, otherwise), ndim, out, err);
}

int ckpt_call_real_dim(const struct ckpt_call *c, const char *name, uint32_t ndim, uint32_t *out,
                       struct ckpt_err *err) {
    return ndim ? ckpt_call_dim(c, name, 0, ndim, out, err)
                : ckpt_fail(err, -EINVAL, "a tensor without dimensions");
}

int ckpt_call_dims(const struct ckpt_call *c, const char *name, uint32_t ndim, uint32_t *out,
                   uint32_t *n, struct ckpt_err *err) {
    int64_t dim[CKPT_ARRAY_NDIM_MAX];
    uint32_t seen = 0;
    int rc = ckpt_call_list(c, name, dim, n, err);
    for (uint32_t i = 0; rc == 0 && i < *n; i++) {
        rc = resolve_dim(dim[i], ndim, &out[i], err);
        if (rc == 0 && (seen & 1u << out[i]))
            return ckpt_fail(err, -EINVAL, "%s names dimension %u twice", name, out[i]);
        seen |= rc == 0 ? 1u << out[i] : 0;
    }
    return rc;
}

int ckpt_call_form(const struct ckpt_call *c, const char *name, struct ckpt_array *out,
                   struct ckpt_err *err) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    const bool param = a && a->kind == CKPT_ARG_PARAM;
    memset(out, 0, sizeof(*out));
    if (!param && (!a || a->kind != CKPT_ARG_ARRAY))
        return ckpt_fail(err, -EINVAL, "%s is %s", name, a ? "not a tensor" : "missing");
    out->dtype = param ? CKPT_DT_F32 : a->array->dtype;
    out->ndim = param ? a->param->ndim : a->array->ndim;
    memcpy(out->shape, param ? a->param->shape : a->array->shape, sizeof(out->shape));
    if (param && a->param->in_out && out->ndim == 2)
        ckpt_product_sizes(a->param, &out->shape[1], &out->shape[0]);
    return 0;
}

static int take_tensor(const struct ckpt_call *c, const struct ckpt_arg *a, const char *name,
                       struct ckpt_array *out, struct ckpt_err *err) {
    if (a->kind == CKPT_ARG_PARAM)
        return ckpt_param_array(a->param, &c->exec->memory, out, err);
    if (a->kind != CKPT_ARG_ARRAY)
        return ckpt_fail(err, -EINVAL, "%s is not a tensor", name);
    *out = ckpt_array_ref(a->array);
    return 0;
}

int ckpt_call_optional(const struct ckpt_call *c, const char *name, struct ckpt_array *out,
                       struct ckpt_err *err) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    memset(out, 0, sizeof(*out));
    return a ? take_tensor(c, a, name, out, err) : 0;
}

int ckpt_call_tensor(const struct ckpt_call *c, const char *name, struct ckpt_array *out,
                     struct ckpt_err *err) {
    const int rc = ckpt_call_optional(c, name, out, err);
    return rc == 0 && !out->store ? ckpt_fail(err, -EINVAL, "%s is missing", name) : rc;
}

int ckpt_call_item(const struct ckpt_call *c, const char *name, uint32_t i, struct ckpt_array *out,
                   struct ckpt_err *err) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    memset(out, 0, sizeof(*out));
    if (!a || a->kind != CKPT_ARG_LIST || i >= a->list.n)
        return ckpt_fail(err, -EINVAL, "%s is no list of more than %u tensors", name, i);
    return take_tensor(c, &a->list.v[i], name, out, err);
}

int ckpt_call_array(const struct ckpt_call *c, const char *name, struct ckpt_array *out,
                    struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = {0};
    memset(out, 0, sizeof(*out));
    int rc = ckpt_call_optional(c, name, &given, err);
    if (rc < 0 || !given.store)
        return rc;
    if (given.dtype == CKPT_DT_F64) {
        c->exec->narrowed = true;
        CKPT_AUTO(array) struct ckpt_array wide = given;
        memset(&given, 0, sizeof(given));
        rc = ckpt_array_cast(&wide, CKPT_DT_F32, &c->exec->memory, &given, err);
    } else if (given.dtype != CKPT_DT_F32) {
        rc = ckpt_fail(err, -EINVAL, "%s is %s, expected F32", name,
                       ckpt_dtype_info(given.dtype)->name);
    }
    return rc < 0 ? rc : ckpt_array_contiguous(&given, &c->exec->memory, out, err);
}

int ckpt_call_input(const struct ckpt_call *c, const char *name, struct ckpt_array *out,
                    struct ckpt_err *err) {
    const int rc = ckpt_call_array(c, name, out, err);
    return rc == 0 && !out->store ? ckpt_fail(err, -EINVAL, "%s is missing", name) : rc;
}

int ckpt_call_vector(const struct ckpt_call *c, const char *name, int64_t n, struct ckpt_array *out,
                     struct ckpt_err *err) {
    char shape[64];
    const int rc = ckpt_call_array(c, name, out, err);
    if (rc < 0 || !out->store || (out->ndim == 1 && out->shape[0] == n))
        return rc;
    ckpt_array_shape_text(out, shape, sizeof(shape));
    ckpt_array_fini(out);
    return ckpt_fail(err, -EINVAL, "%s has shape %s, expected [%lld]", name, shape, (long long)n);
}

int ckpt_call_param(const struct ckpt_call *c, const char *name, struct ckpt_array *hold,
                    struct ckpt_param *out, struct ckpt_err *err) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    memset(hold, 0, sizeof(*hold));
    if (a && a->kind == CKPT_ARG_PARAM) {
        *out = *a->param;
        return 0;
    }
    const int rc = ckpt_call_input(c, name, hold, err);
    if (rc == 0)
        *out = ckpt_param_of_array(hold, ckpt_text_of(name));
    return rc;
}

int ckpt_call_result(struct ckpt_call *c, const int64_t *shape, uint32_t ndim,
                     struct ckpt_err *err) {
    return ckpt_array_new(c->out, &c->exec->memory, CKPT_DT_F32, shape, ndim, err);
}

int ckpt_call_new(struct ckpt_call *c, uint32_t i, enum ckpt_dtype dtype, const int64_t *shape,
                  uint32_t ndim, struct ckpt_err *err) {
    if (i >= c->nout)
        return ckpt_fail(err, -EINVAL, "gives more results than the %u that are wanted", c->nout);
    return ckpt_array_new(&c->out[i], &c->exec->memory, dtype, shape, ndim, err);
}

int ckpt_call_give(struct ckpt_call *c, struct ckpt_scalar s, struct ckpt_err *err) {
    const int rc = ckpt_call_new(c, 0, s.dtype, NULL, 0, err);
    if (rc < 0)
        return rc;
    if (s.dtype == CKPT_DT_I64)
        *ckpt_array_i64(c->out) = s.i;
    else if (s.dtype == CKPT_DT_BOOL)
        *ckpt_array_bool(c->out) = s.i != 0;
    else
        *ckpt_array_f64(c->out) = s.f;
    return 0;
}

/* As ckpt_array_new refuses what has too many elements. */
static int check_view(const struct ckpt_call *c, const struct ckpt_array *view,
                      struct ckpt_err *err) {
    uint64_t count = 0, bytes = 0;
    if (!ckpt_shape_count(view->shape, view->ndim, &count) ||
        !ckpt_dtype_bytes(view->dtype, count, &bytes))
        return ckpt_fail(err, -EOVERFLOW, "a view too large for this machine");
    if (bytes > c->exec->memory.limit)
        return ckpt_fail(err, -ENOMEM, "a view of %llu elements, beyond verify_memory=%llu",
                         (unsigned long long)count, (unsigned long long)c->exec->memory.limit);
    return 0;
}

int ckpt_call_view(struct ckpt_call *c, uint32_t i, struct ckpt_array view, struct ckpt_err *err) {
    int rc = check_view(c, &view, err);
    if (rc == 0 && i >= c->nout)
        rc = ckpt_fail(err, -EINVAL, "gives more results than the %u that are wanted", c->nout);
    if (rc < 0)
        ckpt_array_fini(&view);
    else
        c->out[i] = view;
    return rc;
}

int64_t ckpt_call_band(const struct ckpt_call *c, int64_t rows, int64_t row_bytes) {
    const int64_t fit = row_bytes > 0 ? (int64_t)(c->exec->band / (uint64_t)row_bytes) : rows;
    return fit < 1 ? 1 : fit < rows ? fit : rows;
}

bool ckpt_blas_fits(int64_t a, int64_t b, int64_t c) {
    return a <= INT_MAX && b <= INT_MAX && c <= INT_MAX;
}
