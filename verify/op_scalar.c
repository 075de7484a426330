/*
 * Between tensors and plain numbers: sizes, items, and what a graph asserts about them. Numbers are
 * 0-d arrays.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

static int give_int(struct ckpt_call *c, int64_t i, struct ckpt_err *err) {
    return ckpt_call_give(c, (struct ckpt_scalar){CKPT_DT_I64, i, (double)i}, err);
}

/* The only element of a tensor, or a number. */
static int take(const struct ckpt_call *c, const char *name, struct ckpt_scalar *s,
                struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    const struct ckpt_arg *const arg = ckpt_call_arg(c, name);
    *s = ckpt_call_scalar(c, name);
    if (arg && arg->kind == CKPT_ARG_PARAM && ckpt_param_count(arg->param) == 1) {
        const int rc = ckpt_call_tensor(c, name, &a, err);
        if (rc < 0)
            return rc;
        *s = (struct ckpt_scalar){CKPT_DT_F64, 0, ckpt_array_get(&a, 0)};
    }
    return s->dtype == CKPT_DT_NONE ? ckpt_fail(err, -EINVAL, "%s is not one number", name) : 0;
}

/* ---- items ---- */

/* The argument is called self in operations of tensors, a in those of TorchScript. */
static int take_item(const struct ckpt_call *c, struct ckpt_scalar *s, struct ckpt_err *err) {
    return take(c, ckpt_call_arg(c, "self") ? "self" : "a", s, err);
}

static int item(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar s;
    const int rc = take_item(c, &s, err);
    return rc < 0 ? rc : ckpt_call_give(c, s, err);
}

static int to_int(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar s;
    const int rc = take_item(c, &s, err);
    if (rc == 0 && s.dtype == CKPT_DT_F64 && !(s.f > -0x1p63 && s.f < 0x1p63))
        return ckpt_fail(err, -EINVAL, "%g is no integer of 64 bits", s.f);
    return rc < 0 ? rc : give_int(c, s.dtype == CKPT_DT_F64 ? (int64_t)s.f : s.i, err);
}

static int to_float(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar s;
    const int rc = take_item(c, &s, err);
    return rc < 0 ? rc : ckpt_call_give(c, (struct ckpt_scalar){CKPT_DT_F64, 0, s.f}, err);
}

static bool holds(struct ckpt_scalar s) {
    return s.dtype == CKPT_DT_F64 ? s.f != 0 : s.i != 0;
}

static int to_bool(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar s;
    const int rc = take_item(c, &s, err);
    return rc < 0 ? rc
                  : ckpt_call_give(c, (struct ckpt_scalar){CKPT_DT_BOOL, holds(s), holds(s)}, err);
}

/* ---- sizes: no parameter is loaded for them ---- */

static int size(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_array form;
    uint32_t dim = 0;
    int rc = ckpt_call_form(c, "self", &form, err);
    if (rc == 0)
        rc = ckpt_call_real_dim(c, "dim", form.ndim, &dim, err);
    return rc < 0 ? rc : give_int(c, form.shape[dim], err);
}

/* In C order, as PyTorch's mostly are. */
static int stride(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_array form;
    uint32_t dim = 0;
    int64_t step = 1;
    int rc = ckpt_call_form(c, "self", &form, err);
    if (rc == 0)
        rc = ckpt_call_real_dim(c, "dim", form.ndim, &dim, err);
    for (uint32_t d = dim + 1; rc == 0 && d < form.ndim; d++)
        step *= form.shape[d] > 0 ? form.shape[d] : 1;
    return rc < 0 ? rc : give_int(c, step, err);
}

static int numel(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_array form;
    const int rc = ckpt_call_form(c, "self", &form, err);
    return rc < 0 ? rc : give_int(c, ckpt_array_count(&form), err);
}

static int dim(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_array form;
    const int rc = ckpt_call_form(c, "self", &form, err);
    return rc < 0 ? rc : give_int(c, form.ndim, err);
}

/* ---- assertions: most have no result ---- */

static int assertion(struct ckpt_call *c, struct ckpt_err *err) {
    const struct ckpt_arg *const text = ckpt_call_arg(c, "assert_msg");
    struct ckpt_scalar s;
    const int rc = take(c, "self", &s, err);
    if (rc < 0 || holds(s))
        return rc;
    return ckpt_fail(err, -EINVAL, "what the graph asserts is not so: %s",
                     text && text->kind == CKPT_ARG_STRING ? text->string : "no reason given");
}

/* The token that ties assertions to the results after them. */
static int token(struct ckpt_call *c, struct ckpt_err *err) {
    return ckpt_call_arg(c, "dep_token") ? ckpt_call_tensor(c, "dep_token", c->out, err)
                                         : ckpt_call_new(c, 0, CKPT_DT_F32, NULL, 0, err);
}

static int assertion_token(struct ckpt_call *c, struct ckpt_err *err) {
    const int rc = assertion(c, err);
    return rc < 0 ? rc : token(c, err);
}

static int range(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_scalar s;
    const int rc = take(c, "size", &s, err);
    const int64_t min = ckpt_call_int(c, "min", INT64_MIN),
                  max = ckpt_call_int(c, "max", INT64_MAX);
    if (rc < 0 || (s.i >= min && s.i <= max))
        return rc;
    return ckpt_fail(err, -EINVAL, "%lld is not from %lld to %lld, as the graph says",
                     (long long)s.i, (long long)min, (long long)max);
}

static int range_token(struct ckpt_call *c, struct ckpt_err *err) {
    const int rc = range(c, err);
    return rc < 0 ? rc : token(c, err);
}

/* The shape of the tensor; its dtype is wider here than PyTorch's, its device another. */
static int assert_metadata(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_array form;
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim = 0;
    char text[64];
    int rc = ckpt_call_form(c, "a", &form, err);
    if (rc == 0)
        rc = ckpt_call_list(c, "size", shape, &ndim, err);
    if (rc < 0 || !ckpt_call_arg(c, "size"))
        return rc;
    bool same = ndim == form.ndim;
    for (uint32_t d = 0; same && d < ndim; d++)
        same = shape[d] == form.shape[d];
    return same ? 0
                : ckpt_fail(err, -EINVAL, "a tensor of shape %s is not what the graph asserts",
                            ckpt_array_shape_text(&form, text, sizeof(text)));
}

static const struct ckpt_op ops[] = {
    {"item", "item(Tensor self) -> Scalar", item},
    {"_local_scalar_dense", "_local_scalar_dense(Tensor self) -> Scalar", item},
    {"ScalarImplicit", "ScalarImplicit(Tensor a) -> Scalar", item},
    {"IntImplicit", "IntImplicit(Tensor a) -> int", to_int},
    {"FloatImplicit", "FloatImplicit(Tensor a) -> float", to_float},
    {"Int", "Int.Tensor(Tensor a) -> int", to_int},
    {"Int", "Int.Scalar(Scalar a) -> int", to_int},
    {"Int", "Int.float(float a) -> int", to_int},
    {"Int", "Int.bool(bool a) -> int", to_int},
    {"Float", "Float.Tensor(Tensor a) -> float", to_float},
    {"Float", "Float.Scalar(Scalar a) -> float", to_float},
    {"Float", "Float.int(int a) -> float", to_float},
    {"Float", "Float.bool(bool a) -> float", to_float},
    {"Bool", "Bool.Tensor(Tensor a) -> bool", to_bool},
    {"Bool", "Bool.int(int a) -> bool", to_bool},
    {"Bool", "Bool.float(float a) -> bool", to_bool},
    {"is_nonzero", "is_nonzero(Tensor self) -> bool", to_bool},
    {"sym_size", "sym_size.int(Tensor self, int dim) -> SymInt", size},
    {"size", "size.int(Tensor self, int dim) -> int", size},
    {"sym_stride", "sym_stride.int(Tensor self, int dim) -> SymInt", stride},
    {"stride", "stride.int(Tensor self, int dim) -> int", stride},
    {"sym_numel", "sym_numel(Tensor self) -> SymInt", numel},
    {"numel", "numel(Tensor self) -> int", numel},
    {"dim", "dim(Tensor self) -> int", dim},
    {"_assert_scalar", "_assert_scalar(Scalar self, str assert_msg) -> ()", assertion},
    {"_assert_async", "_assert_async(Tensor self) -> ()", assertion},
    {"_assert_async", "_assert_async.msg(Tensor self, str assert_msg) -> ()", assertion},
    {"_functional_assert_scalar",
     "_functional_assert_scalar(Scalar self, str assert_msg, Tensor dep_token) -> Tensor",
     assertion_token},
    {"_functional_assert_async",
     "_functional_assert_async.msg(Tensor self, str assert_msg, Tensor dep_token) -> Tensor",
     assertion_token},
    {"_make_dep_token",
     "_make_dep_token(*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? "
     "pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
     token},
    {"sym_constrain_range",
     "sym_constrain_range(Scalar size, *, int? min=None, int? max=None) -> ()", range},
    {"sym_constrain_range_for_size",
     "sym_constrain_range_for_size(Scalar size, *, int? min=None, int? max=None) -> ()", range},
    {"_functional_sym_constrain_range",
     "_functional_sym_constrain_range(Scalar size, int? min, int? max, Tensor dep_token) -> Tensor",
     range_token},
    {"_assert_tensor_metadata",
     "_assert_tensor_metadata(Tensor a, SymInt[]? size=None, SymInt[]? stride=None, ScalarType? "
     "dtype=None, *, Device? device=None, Layout? layout=None) -> ()",
     assert_metadata},
    {"NumToTensor", "NumToTensor.Scalar(Scalar a) -> Tensor", item},
};

const struct ckpt_op_family ckpt_family_scalar = CKPT_OP_FAMILY(ops);
