/*
 * The same values in another dtype or in other memory. Devices and layouts say nothing here.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/narrow.h"
#include "verify/op.h"

/* c->out is new memory that holds a's values, converted. */
static int copy_as(struct ckpt_call *c, const struct ckpt_array *a, enum ckpt_dtype dtype,
                   struct ckpt_err *err) {
    const int rc = ckpt_call_new(c, 0, ckpt_array_dtype(dtype), a->shape, a->ndim, err);
    return rc < 0 ? rc : ckpt_array_assign(c->out, a, err);
}

/* PyTorch's rule: the same memory if nothing changes, and nobody asks for a copy. */
static int convert(struct ckpt_call *c, enum ckpt_dtype dtype, bool copies, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    const bool narrow = dtype != CKPT_DT_NONE && ckpt_narrow_needed(dtype);
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc < 0)
        return rc;
    if (!narrow && !copies && (dtype == CKPT_DT_NONE || dtype == a.dtype))
        return ckpt_call_view(c, 0, ckpt_array_ref(&a), err);
    rc = copy_as(c, &a, dtype == CKPT_DT_NONE ? a.dtype : dtype, err);
    if (rc == 0 && narrow)
        ckpt_narrow(c->out, dtype);
    return rc;
}

static int to(struct ckpt_call *c, struct ckpt_err *err) {
    const bool copies = strcmp(c->op->name, "_to_copy") == 0 || ckpt_call_bool(c, "copy", false);
    enum ckpt_dtype dtype;
    const int rc = ckpt_narrow_argument(c, CKPT_DT_NONE, &dtype, err);
    return rc < 0 ? rc : convert(c, dtype, copies, err);
}

static int to_other(struct ckpt_call *c, struct ckpt_err *err) {
    struct ckpt_array form;
    const int rc = ckpt_call_form(c, "other", &form, err);
    return rc < 0 ? rc : convert(c, form.dtype, ckpt_call_bool(c, "copy", false), err);
}

/* self as it is. */
static int same(struct ckpt_call *c, struct ckpt_err *err) {
    return convert(c, CKPT_DT_NONE, false, err);
}

static int contiguous(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    const int rc = ckpt_call_tensor(c, "self", &a, err);
    return rc < 0 ? rc : ckpt_array_contiguous(&a, &c->exec->memory, c->out, err);
}

static int clone(struct ckpt_call *c, struct ckpt_err *err) {
    return convert(c, CKPT_DT_NONE, true, err);
}

/* src's values in self's shape and dtype. */
static int copy(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array src = {0};
    struct ckpt_array form;
    int rc = ckpt_call_form(c, "self", &form, err);
    if (rc == 0)
        rc = ckpt_call_tensor(c, "src", &src, err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, form.dtype, form.shape, form.ndim, err);
    return rc < 0 ? rc : ckpt_array_assign(c->out, &src, err);
}

static const struct ckpt_op ops[] = {
    {"to",
     "to.dtype(Tensor self, ScalarType dtype, bool non_blocking=False, bool copy=False, "
     "MemoryFormat? memory_format=None) -> Tensor",
     to},
    {"to",
     "to.dtype_layout(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
     "device=None, bool? pin_memory=None, bool non_blocking=False, bool copy=False, MemoryFormat? "
     "memory_format=None) -> Tensor",
     to},
    {"to",
     "to.device(Tensor self, Device device, ScalarType dtype, bool non_blocking=False, bool "
     "copy=False, MemoryFormat? memory_format=None) -> Tensor",
     to},
    {"to",
     "to.prim_Device(Tensor self, Device? device, int? dtype=None, bool non_blocking=False, bool "
     "copy=False) -> Tensor",
     to},
    {"to",
     "to.prim_dtype(Tensor self, int? dtype=None, bool non_blocking=False, bool copy=False) -> "
     "Tensor",
     to},
    {"to",
     "to.other(Tensor self, Tensor other, bool non_blocking=False, bool copy=False, MemoryFormat? "
     "memory_format=None) -> Tensor",
     to_other},
    {"type_as", "type_as(Tensor self, Tensor other) -> Tensor", to_other},
    {"_to_copy",
     "_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
     "bool? pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
     to},
    {"contiguous", "contiguous(Tensor self, *, MemoryFormat memory_format=0) -> Tensor",
     contiguous},
    {"clone", "clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", clone},
    {"alias", "alias(Tensor self) -> Tensor", same},
    {"detach", "detach(Tensor self) -> Tensor", same},
    {"lift_fresh", "lift_fresh(Tensor self) -> Tensor", same},
    {"lift_fresh_copy", "lift_fresh_copy(Tensor self) -> Tensor", clone},
    {"resolve_conj", "resolve_conj(Tensor self) -> Tensor", same},
    {"resolve_neg", "resolve_neg(Tensor self) -> Tensor", same},
    {"copy", "copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor", copy},
};

const struct ckpt_op_family ckpt_family_cast = CKPT_OP_FAMILY(ops);
