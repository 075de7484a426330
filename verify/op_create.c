/*
 * New tensors: of one value, of steps, of unit vectors. Values are rounded to the dtype that is
 * asked for, even where arrays hold it in a wider one.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/narrow.h"
#include "verify/op.h"

static int new_array(struct ckpt_call *c, enum ckpt_dtype dtype, const int64_t *shape,
                     uint32_t ndim, struct ckpt_err *err) {
    return ckpt_call_new(c, 0, ckpt_array_dtype(dtype), shape, ndim, err);
}

static void round_to(struct ckpt_call *c, enum ckpt_dtype dtype) {
    if (ckpt_narrow_needed(dtype))
        ckpt_narrow(c->out, dtype);
}

static int fill(struct ckpt_call *c, enum ckpt_dtype dtype, const struct ckpt_scalar *value,
                struct ckpt_err *err) {
    const struct ckpt_array one = ckpt_scalar_array(value);
    const int rc = ckpt_array_assign(c->out, &one, err);
    if (rc == 0)
        round_to(c, dtype);
    return rc;
}

/* The dtype that a number alone has as a tensor. */
static enum ckpt_dtype number_dtype(struct ckpt_scalar s) {
    return s.dtype == CKPT_DT_F64 ? CKPT_DT_F32 : s.dtype;
}

/* ---- of one value ---- */

enum origin {
    OF_SIZE, /* shape as given; float32 unless the value or the caller says otherwise */
    OF_SELF, /* shape and dtype of self */
    OF_BOTH, /* shape as given, dtype of self */
};

static const struct {
    const char *name;
    enum origin origin;
    const char *value; /* the argument that holds it; else it is `number` */
    int64_t number;
} creations[] = {
    {"zeros", OF_SIZE, NULL, 0},
    {"ones", OF_SIZE, NULL, 1},
    {"full", OF_SIZE, "fill_value", 0},
    {"empty", OF_SIZE, NULL, 0},
    {"zeros_like", OF_SELF, NULL, 0},
    {"ones_like", OF_SELF, NULL, 1},
    {"full_like", OF_SELF, "fill_value", 0},
    {"empty_like", OF_SELF, NULL, 0},
    {"new_zeros", OF_BOTH, NULL, 0},
    {"new_ones", OF_BOTH, NULL, 1},
    {"new_full", OF_BOTH, "fill_value", 0},
    {"new_empty", OF_BOTH, NULL, 0},
    {"fill", OF_SELF, "value", 0},
    {"zero", OF_SELF, NULL, 0},
};

static int create(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_array form = {.dtype = CKPT_DT_F32};
    enum ckpt_dtype dtype;
    size_t k = 0;
    int rc = 0;
    while (strcmp(creations[k].name, c->op->name) != 0)
        k++;
    struct ckpt_scalar value = {CKPT_DT_I64, creations[k].number, (double)creations[k].number};
    if (creations[k].value) {
        value = ckpt_call_scalar(c, creations[k].value);
        form.dtype = number_dtype(value);
    }
    if (value.dtype == CKPT_DT_NONE)
        return ckpt_fail(err, -EINVAL, "%s is not one number", creations[k].value);
    if (creations[k].origin != OF_SIZE)
        rc = ckpt_call_form(c, "self", &form, err);
    if (rc == 0 && creations[k].origin != OF_SELF)
        rc = ckpt_call_list(c, "size", form.shape, &form.ndim, err);
    if (rc == 0)
        rc = ckpt_narrow_argument(c, form.dtype, &dtype, err);
    if (rc == 0)
        rc = new_array(c, dtype, form.shape, form.ndim, err);
    return rc < 0 ? rc : fill(c, dtype, &value, err);
}

static int scalar_tensor(struct ckpt_call *c, struct ckpt_err *err) {
    const struct ckpt_scalar s = ckpt_call_scalar(c, "s");
    enum ckpt_dtype dtype;
    if (s.dtype == CKPT_DT_NONE)
        return ckpt_fail(err, -EINVAL, "s is not one number");
    int rc = ckpt_narrow_argument(c, CKPT_DT_F32, &dtype, err);
    if (rc == 0)
        rc = new_array(c, dtype, NULL, 0, err);
    return rc < 0 ? rc : fill(c, dtype, &s, err);
}

/* ---- of steps ---- */

struct steps {
    struct ckpt_scalar start, end, step;
};

static struct ckpt_scalar number_or(const struct ckpt_call *c, const char *name,
                                    int64_t otherwise) {
    const struct ckpt_scalar s = ckpt_call_scalar(c, name);
    return s.dtype == CKPT_DT_NONE ? (struct ckpt_scalar){CKPT_DT_I64, otherwise, (double)otherwise}
                                   : s;
}

static int64_t truncated(struct ckpt_scalar s) {
    return s.dtype != CKPT_DT_F64 ? s.i : s.f > -0x1p62 && s.f < 0x1p62 ? (int64_t)s.f : 0;
}

/* How many steps there are from start to end, the latter excluded: counted in integers if `whole`.
 */
static int count_steps(const struct steps *s, bool whole, int64_t *n, struct ckpt_err *err) {
    const int64_t step = truncated(s->step);
    int64_t way = 0;
    double exact = ceil((s->end.f - s->start.f) / s->step.f);
    if (whole && !__builtin_sub_overflow(truncated(s->end), truncated(s->start), &way) &&
        step != 0 && step != -1)
        exact = (double)(way / step + (way % step != 0 && (way < 0) == (step < 0)));
    if (!(s->step.f > 0 || s->step.f < 0) || !(exact >= 0 && exact < 0x1p62))
        return ckpt_fail(err, -EINVAL, "from %g to %g in steps of %g", s->start.f, s->end.f,
                         s->step.f);
    *n = (int64_t)exact;
    return 0;
}

static int arange(struct ckpt_call *c, struct ckpt_err *err) {
    const struct steps s = {number_or(c, "start", 0), number_or(c, "end", 0),
                            number_or(c, "step", 1)};
    const bool floats =
        s.start.dtype == CKPT_DT_F64 || s.end.dtype == CKPT_DT_F64 || s.step.dtype == CKPT_DT_F64;
    enum ckpt_dtype dtype;
    int64_t n = 0;
    int rc = ckpt_narrow_argument(c, floats ? CKPT_DT_F32 : CKPT_DT_I64, &dtype, err);
    if (rc == 0)
        rc = count_steps(&s, dtype == CKPT_DT_I64, &n, err);
    if (rc == 0)
        rc = new_array(c, dtype, &n, 1, err);
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        if (c->out->dtype == CKPT_DT_F32)
            ckpt_array_f32(c->out)[i] = (float)(s.start.f + (double)i * s.step.f);
        else if (c->out->dtype == CKPT_DT_F64)
            ckpt_array_f64(c->out)[i] = s.start.f + (double)i * s.step.f;
        else if (c->out->dtype == CKPT_DT_I64)
            ckpt_array_i64(c->out)[i] =
                (int64_t)((uint64_t)truncated(s.start) + (uint64_t)i * (uint64_t)truncated(s.step));
        else
            return ckpt_fail(err, -EINVAL, "steps of truth values");
    }
    if (rc == 0)
        round_to(c, dtype);
    return rc;
}

/* Counted from the nearer end, so that both are met. */
static int linspace(struct ckpt_call *c, struct ckpt_err *err) {
    const struct ckpt_scalar start = ckpt_call_scalar(c, "start"), end = ckpt_call_scalar(c, "end");
    const int64_t n = ckpt_call_int(c, "steps", -1);
    enum ckpt_dtype dtype;
    CKPT_AUTO(array) struct ckpt_array exact = {0};
    if (n < 0 || start.dtype == CKPT_DT_NONE || end.dtype == CKPT_DT_NONE)
        return ckpt_fail(err, -EINVAL, "start, end or steps is missing");
    int rc = ckpt_narrow_argument(c, CKPT_DT_F32, &dtype, err);
    if (rc == 0)
        rc = new_array(c, dtype, &n, 1, err);
    if (rc == 0)
        rc = ckpt_array_new(&exact, &c->exec->memory, CKPT_DT_F64, &n, 1, err);
    const double step = n > 1 ? (end.f - start.f) / (double)(n - 1) : 0;
    for (int64_t i = 0; rc == 0 && i < n; i++)
        ckpt_array_f64(&exact)[i] =
            i < n / 2 || n == 1 ? start.f + (double)i * step : end.f - (double)(n - 1 - i) * step;
    if (rc == 0)
        rc = ckpt_array_assign(c->out, &exact, err);
    if (rc == 0)
        round_to(c, dtype);
    return rc;
}

/* ---- of unit vectors ---- */

static int eye(struct ckpt_call *c, struct ckpt_err *err) {
    const struct ckpt_scalar one = {CKPT_DT_I64, 1, 1};
    const struct ckpt_array value = ckpt_scalar_array(&one);
    const int64_t rows = ckpt_call_int(c, "n", -1), columns = ckpt_call_int(c, "m", rows);
    enum ckpt_dtype dtype;
    int rc = ckpt_narrow_argument(c, CKPT_DT_F32, &dtype, err);
    if (rc == 0)
        rc = new_array(c, dtype, (int64_t[]){rows, columns}, 2, err);
    if (rc < 0)
        return rc;
    struct ckpt_array diagonal = *c->out; /* borrowed */
    diagonal.ndim = 1;
    diagonal.shape[0] = rows < columns ? rows : columns;
    diagonal.stride[0] = diagonal.shape[0] > 1 ? columns + 1 : 1;
    return ckpt_array_assign(&diagonal, &value, err);
}

static int one_hot(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, ids = {0};
    int64_t classes = ckpt_call_int(c, "num_classes", -1), most = -1;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0 && a.dtype != CKPT_DT_I64)
        return ckpt_fail(err, -EINVAL, "self is %s, expected I64", ckpt_dtype_info(a.dtype)->name);
    if (rc == 0)
        rc = ckpt_array_contiguous(&a, &c->exec->memory, &ids, err);
    const int64_t count = ckpt_array_count(&ids);
    for (int64_t i = 0; rc == 0 && i < count; i++) {
        const int64_t id = ckpt_array_i64(&ids)[i];
        most = id > most ? id : most;
        if (id < 0 || (classes >= 0 && id >= classes))
            return ckpt_fail(err, -EINVAL, "class %lld of %lld", (long long)id, (long long)classes);
    }
    classes = classes < 0 && most < INT64_MAX ? most + 1 : classes;
    if (rc == 0 && (classes <= 0 || a.ndim == CKPT_ARRAY_NDIM_MAX))
        return ckpt_fail(err, -EINVAL, "no classes, or too many dimensions");
    ids.shape[ids.ndim] = classes;
    if (rc == 0)
        rc = ckpt_call_new(c, 0, CKPT_DT_I64, ids.shape, ids.ndim + 1, err);
    for (int64_t i = 0; rc == 0 && i < count; i++)
        ckpt_array_i64(c->out)[i * classes + ckpt_array_i64(&ids)[i]] = 1;
    return rc;
}

static const struct ckpt_op ops[] = {
    {"zeros",
     "zeros(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
     "bool? pin_memory=None) -> Tensor",
     create},
    {"ones",
     "ones(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
     "bool? pin_memory=None) -> Tensor",
     create},
    {"full",
     "full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, "
     "Device? device=None, bool? pin_memory=None) -> Tensor",
     create},
    {"empty",
     "empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? "
     "device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
     create},
    {"zeros_like",
     "zeros_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
     "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
     create},
    {"ones_like",
     "ones_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
     "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
     create},
    {"full_like",
     "full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, "
     "Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
     create},
    {"empty_like",
     "empty_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
     "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
     create},
    {"new_zeros",
     "new_zeros(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, "
     "Device? device=None, bool? pin_memory=None) -> Tensor",
     create},
    {"new_ones",
     "new_ones(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? "
     "device=None, bool? pin_memory=None) -> Tensor",
     create},
    {"new_full",
     "new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? "
     "layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
     create},
    {"new_empty",
     "new_empty(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, "
     "Device? device=None, bool? pin_memory=None) -> Tensor",
     create},
    {"fill", "fill.Scalar(Tensor self, Scalar value) -> Tensor", create},
    {"fill", "fill.Tensor(Tensor self, Tensor value) -> Tensor", create},
    {"zero", "zero(Tensor self) -> Tensor", create},
    {"scalar_tensor",
     "scalar_tensor(Scalar s, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
     "bool? pin_memory=None) -> Tensor",
     scalar_tensor},
    {"arange",
     "arange(Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
     "bool? pin_memory=None) -> Tensor",
     arange},
    {"arange",
     "arange.start(Scalar start, Scalar end, *, ScalarType? dtype=None, Layout? layout=None, "
     "Device? device=None, bool? pin_memory=None) -> Tensor",
     arange},
    {"arange",
     "arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, "
     "Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
     arange},
    {"linspace",
     "linspace(Scalar start, Scalar end, int steps, *, ScalarType? dtype=None, Layout? "
     "layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
     linspace},
    {"eye",
     "eye(SymInt n, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? "
     "pin_memory=None) -> Tensor",
     eye},
    {"eye",
     "eye.m(SymInt n, SymInt m, *, ScalarType? dtype=None, Layout? layout=None, Device? "
     "device=None, bool? pin_memory=None) -> Tensor",
     eye},
    {"one_hot", "one_hot(Tensor self, int num_classes=-1) -> Tensor", one_hot},
};

const struct ckpt_op_family ckpt_family_create = CKPT_OP_FAMILY(ops);
