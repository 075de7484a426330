/* Indexing by tensors: integers, or truth values that say which elements are meant. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/lookup.h"

/* A mask stands for as many dimensions as it has: the indices of what is true in it. */
static int add_mask(struct ckpt_call *c, struct ckpt_lookup *l, const struct ckpt_array *self,
                    uint32_t *dim, const struct ckpt_array *mask, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array where = {0};
    char text[2][64];
    bool fits = mask->ndim > 0 && mask->ndim <= self->ndim - *dim;
    for (uint32_t d = 0; fits && d < mask->ndim; d++)
        fits = mask->shape[d] == self->shape[*dim + d];
    if (!fits)
        return ckpt_fail(err, -EINVAL, "a mask %s for a tensor %s from dimension %u on",
                         ckpt_array_shape_text(mask, text[0], sizeof(text[0])),
                         ckpt_array_shape_text(self, text[1], sizeof(text[1])), *dim);
    int rc = ckpt_nonzero(mask, c->exec, &where, err);
    for (uint32_t d = 0; rc == 0 && d < mask->ndim; d++) {
        struct ckpt_array column = ckpt_array_slice(&where, 1, d, 1);
        ckpt_array_drop_dim(&column, 1);
        rc = ckpt_lookup_add(l, (*dim)++, column, err);
    }
    return rc;
}

static int add_index(struct ckpt_call *c, struct ckpt_lookup *l, const struct ckpt_array *self,
                     uint32_t *dim, uint32_t item, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array index = {0};
    const struct ckpt_arg *const list = ckpt_call_arg(c, "indices");
    const bool none = list->list.v[item].kind == CKPT_ARG_NONE;
    if (*dim >= self->ndim)
        return ckpt_fail(err, -EINVAL, "more indices than the %u dimensions", self->ndim);
    const int rc = none ? 0 : ckpt_call_item(c, "indices", item, &index, err);
    if (rc < 0)
        return rc;
    if (index.dtype == CKPT_DT_BOOL)
        return add_mask(c, l, self, dim, &index, err);
    return none ? ((*dim)++, 0) : ckpt_lookup_add(l, (*dim)++, ckpt_array_ref(&index), err);
}

static int take_indices(struct ckpt_call *c, struct ckpt_lookup *l, struct ckpt_err *err) {
    const struct ckpt_arg *const list = ckpt_call_arg(c, "indices");
    struct ckpt_array self;
    uint32_t dim = 0;
    int rc = ckpt_call_form(c, "self", &self, err);
    if (rc == 0 && (!list || list->kind != CKPT_ARG_LIST))
        return ckpt_fail(err, -EINVAL, "indices are missing or no list");
    l->wraps = true;
    for (uint32_t i = 0; rc == 0 && i < list->list.n; i++)
        rc = add_index(c, l, &self, &dim, i, err);
    return rc;
}

static int index_tensor(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(lookup) struct ckpt_lookup l = {0};
    const int rc = take_indices(c, &l, err);
    return rc < 0 ? rc : ckpt_lookup_read(c, &l, err);
}

static int index_put(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(lookup) struct ckpt_lookup l = {0};
    CKPT_AUTO(array) struct ckpt_array values = {0};
    int rc = take_indices(c, &l, err);
    if (rc == 0)
        rc = ckpt_call_tensor(c, "values", &values, err);
    const double once = 1;
    const bool adds = ckpt_call_bool(c, "accumulate", false);
    return rc < 0 ? rc : ckpt_lookup_write(c, &l, &values, adds ? &once : NULL, err);
}

/* ---- along one dimension, by a vector ---- */

static int take_vector(struct ckpt_call *c, struct ckpt_lookup *l, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array index = {0}, vector = {0};
    struct ckpt_array self;
    uint32_t dim = 0;
    int rc = ckpt_call_form(c, "self", &self, err);
    if (rc == 0)
        rc = ckpt_call_real_dim(c, "dim", self.ndim, &dim, err);
    if (rc == 0)
        rc = ckpt_call_tensor(c, "index", &index, err);
    if (rc == 0 && index.ndim > 1)
        return ckpt_fail(err, -EINVAL, "an index of %u dimensions, expected 1", index.ndim);
    const int64_t count = ckpt_array_count(&index);
    if (rc == 0)
        rc = ckpt_array_reshape(&index, &count, 1, &c->exec->memory, &vector, err);
    return rc < 0 ? rc : ckpt_lookup_add(l, dim, ckpt_array_ref(&vector), err);
}

static int index_select(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(lookup) struct ckpt_lookup l = {0};
    const int rc = take_vector(c, &l, err);
    return rc < 0 ? rc : ckpt_lookup_read(c, &l, err);
}

static int write_vector(struct ckpt_call *c, const char *values, const double *scale,
                        struct ckpt_err *err) {
    CKPT_AUTO(lookup) struct ckpt_lookup l = {0};
    CKPT_AUTO(array) struct ckpt_array source = {0};
    const struct ckpt_scalar number = ckpt_call_scalar(c, values);
    int rc = take_vector(c, &l, err);
    if (rc == 0 && number.dtype != CKPT_DT_NONE)
        source = ckpt_scalar_array(&number);
    else if (rc == 0)
        rc = ckpt_call_tensor(c, values, &source, err);
    return rc < 0 ? rc : ckpt_lookup_write(c, &l, &source, scale, err);
}

static int index_add(struct ckpt_call *c, struct ckpt_err *err) {
    const struct ckpt_scalar alpha = ckpt_call_scalar(c, "alpha");
    const double scale = alpha.dtype == CKPT_DT_NONE ? 1 : alpha.f;
    return write_vector(c, "source", &scale, err);
}

static int index_copy(struct ckpt_call *c, struct ckpt_err *err) {
    return write_vector(c, "source", NULL, err);
}

static int index_fill(struct ckpt_call *c, struct ckpt_err *err) {
    return write_vector(c, "value", NULL, err);
}

static const struct ckpt_op ops[] = {
    {"index", "index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", index_tensor},
    {"index", "index.Tensor_hacked_twin(Tensor self, Tensor[] indices) -> Tensor", index_tensor},
    {"_unsafe_index", "_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
     index_tensor},
    {"_unsafe_index", "_unsafe_index.Tensor_hacked_twin(Tensor self, Tensor[] indices) -> Tensor",
     index_tensor},
    {"index_put",
     "index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
     index_put},
    {"index_put",
     "index_put.hacked_twin(Tensor self, Tensor[] indices, Tensor values, bool accumulate=False) "
     "-> Tensor",
     index_put},
    {"_unsafe_index_put",
     "_unsafe_index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> "
     "Tensor",
     index_put},
    {"_unsafe_index_put",
     "_unsafe_index_put.hacked_twin(Tensor self, Tensor[] indices, Tensor values, bool "
     "accumulate=False) -> Tensor",
     index_put},
    {"index_select", "index_select(Tensor self, int dim, Tensor index) -> Tensor", index_select},
    {"index_add",
     "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
     index_add},
    {"index_copy", "index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor",
     index_copy},
    {"index_fill",
     "index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor",
     index_fill},
    {"index_fill",
     "index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
     index_fill},
};

const struct ckpt_op_family ckpt_family_index = CKPT_OP_FAMILY(ops);
