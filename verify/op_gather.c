/*
 * Indices along one dimension, one for each element: gathering and scattering. A view of the
 * indexed tensor in the index's shape, that does not move along that dimension, gives the place to
 * which the index is added.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

struct along {
    uint32_t dim;
    int64_t size, step; /* of the indexed dimension; step in bytes */
    enum ckpt_dtype dtype;
    int64_t wrong;
    bool failed;
};

/* The element that index k of a row means; NULL if there is none. */
static char *place(struct along *a, char *base, const char *index) {
    const int64_t i = *(const int64_t *)(const void *)index;
    if (i >= 0 && i < a->size)
        return base + i * a->step;
    a->wrong = i;
    a->failed = true;
    return NULL;
}

static int check_places(const struct along *a, struct ckpt_err *err) {
    return a->failed ? ckpt_fail(err, -EINVAL, "index %lld of dimension %u, which has %lld",
                                 (long long)a->wrong, a->dim, (long long)a->size)
                     : 0;
}

/* A number is seen as a vector of one. */
static void as_vector(struct ckpt_array *a) {
    if (a->ndim > 0)
        return;
    a->ndim = 1;
    a->shape[0] = a->stride[0] = 1;
}

static int take_index(const struct ckpt_call *c, const char *name, struct ckpt_array *index,
                      struct ckpt_err *err) {
    const int rc = ckpt_call_tensor(c, name, index, err);
    if (rc == 0 && index->dtype != CKPT_DT_I64)
        return ckpt_fail(err, -EINVAL, "%s is %s, expected I64", name,
                         ckpt_dtype_info(index->dtype)->name);
    return rc;
}

/* *base shows, in the index's shape, the elements of a to which the indices are relative. */
static int begin(const struct ckpt_array *a, const struct ckpt_array *index, uint32_t dim,
                 struct along *along, struct ckpt_array *base, struct ckpt_err *err) {
    char text[2][64];
    bool fits = a->ndim == index->ndim;
    for (uint32_t d = 0; fits && d < a->ndim; d++)
        fits = d == dim || index->shape[d] <= a->shape[d];
    if (!fits && ckpt_array_count(index) > 0)
        return ckpt_fail(err, -EINVAL, "an index %s into a tensor %s along dimension %u",
                         ckpt_array_shape_text(index, text[0], sizeof(text[0])),
                         ckpt_array_shape_text(a, text[1], sizeof(text[1])), dim);
    const int64_t unit = ckpt_dtype_info(a->dtype)->unit_bytes;
    *along = (struct along){dim, a->shape[dim], a->stride[dim] * unit, a->dtype, 0, false};
    *base = *a; /* borrowed */
    base->ndim = index->ndim;
    memcpy(base->shape, index->shape, sizeof(base->shape));
    base->stride[dim] = 0;
    return 0;
}

/* ---- gathering ---- */

/* at: result, index, base. */
static void gather_row(void *arg, char *const *at, const int64_t *step, int64_t n) {
    struct along *const a = arg;
    const size_t unit = ckpt_dtype_info(a->dtype)->unit_bytes;
    for (int64_t k = 0; k < n; k++) {
        const char *const from = place(a, at[2] + k * step[2], at[1] + k * step[1]);
        if (from)
            memcpy(at[0] + k * step[0], from, unit);
    }
}

static int gather_along(struct ckpt_call *c, const struct ckpt_array *a,
                        const struct ckpt_array *index, uint32_t dim, struct ckpt_err *err) {
    struct ckpt_array wide = *a, places = *index, base, out; /* borrowed */
    struct along along;
    int rc = ckpt_call_new(c, 0, a->dtype, index->shape, index->ndim, err);
    if (rc < 0)
        return rc;
    out = *c->out;
    as_vector(&wide);
    as_vector(&places);
    as_vector(&out);
    rc = begin(&wide, &places, dim, &along, &base, err);
    if (rc < 0)
        return rc;
    ckpt_array_rows((const struct ckpt_array *const[]){&out, &places, &base}, 3, gather_row,
                    &along);
    return check_places(&along, err);
}

static int gather(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, index = {0};
    uint32_t dim = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = take_index(c, "index", &index, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dim", 0, a.ndim, &dim, err);
    return rc < 0 ? rc : gather_along(c, &a, &index, dim, err);
}

/* Both as vectors. */
static int take_flat(struct ckpt_call *c, struct ckpt_array *a, struct ckpt_array *index,
                     struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array flat = {0}, places = {0};
    const int64_t count = ckpt_array_count(a), n = ckpt_array_count(index);
    int rc = ckpt_array_reshape(a, &count, 1, &c->exec->memory, &flat, err);
    if (rc == 0)
        rc = ckpt_array_reshape(index, &n, 1, &c->exec->memory, &places, err);
    return rc < 0 ? rc : gather_along(c, &flat, &places, 0, err);
}

/* Both broadcast in all dimensions but the one that is indexed. */
static int take_along_dim(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, index = {0}, wide = {0}, places = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t dim = 0, ndim = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = take_index(c, "indices", &index, err);
    if (rc < 0 || !ckpt_call_arg(c, "dim"))
        return rc < 0 ? rc : take_flat(c, &a, &index, err);
    rc = ckpt_call_real_dim(c, "dim", a.ndim, &dim, err);
    if (rc == 0 && a.ndim != index.ndim)
        return ckpt_fail(err, -EINVAL, "%u dimensions, but %u of the indices", a.ndim, index.ndim);
    const int64_t size = rc == 0 ? a.shape[dim] : 0, n = rc == 0 ? index.shape[dim] : 0;
    struct ckpt_array one = a, other = index; /* borrowed */
    one.shape[dim] = other.shape[dim] = 1;
    if (rc == 0)
        rc = ckpt_array_broadcast((const struct ckpt_array *const[]){&one, &other}, 2, shape, &ndim,
                                  err);
    shape[dim] = size;
    if (rc == 0)
        rc = ckpt_array_expand(&a, shape, ndim, &wide, err);
    shape[dim] = n;
    if (rc == 0)
        rc = ckpt_array_expand(&index, shape, ndim, &places, err);
    return rc < 0 ? rc : gather_along(c, &wide, &places, dim, err);
}

/* ---- scattering ---- */

enum reduction { REPLACE, SUM, PROD, MOST, LEAST };

struct scatter {
    struct along along;
    enum reduction by;
};

static double combine(enum reduction by, double a, double b) {
    switch (by) {
    case SUM:
        return (double)((float)a + (float)b);
    case PROD:
        return a * b;
    case MOST:
        return a > b || a != a ? a : b;
    case LEAST:
        return a < b || a != a ? a : b;
    default:
        return b;
    }
}

static int64_t combine_ints(enum reduction by, int64_t a, int64_t b) {
    switch (by) {
    case SUM:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case MOST:
        return a > b ? a : b;
    case LEAST:
        return a < b ? a : b;
    default:
        return b;
    }
}

static void combine_at(const struct scatter *s, void *to, const void *from) {
    if (s->along.dtype == CKPT_DT_F32)
        *(float *)to = (float)combine(s->by, (double)*(float *)to, (double)*(const float *)from);
    else if (s->along.dtype == CKPT_DT_F64 && s->by == SUM)
        *(double *)to += *(const double *)from;
    else if (s->along.dtype == CKPT_DT_F64)
        *(double *)to = combine(s->by, *(double *)to, *(const double *)from);
    else if (s->along.dtype == CKPT_DT_I64)
        *(int64_t *)to = combine_ints(s->by, *(int64_t *)to, *(const int64_t *)from);
    else
        *(uint8_t *)to = combine_ints(s->by, *(uint8_t *)to, *(const uint8_t *)from) != 0;
}

/* at: base, index, source. */
static void scatter_row(void *arg, char *const *at, const int64_t *step, int64_t n) {
    struct scatter *const s = arg;
    for (int64_t k = 0; k < n; k++) {
        char *const to = place(&s->along, at[0] + k * step[0], at[1] + k * step[1]);
        if (to)
            combine_at(s, to, at[2] + k * step[2]);
    }
}

/* The source in the index's shape: its first elements along every dimension, or a number. */
static int fit_source(const struct ckpt_array *index, struct ckpt_array *src, bool number,
                      struct ckpt_err *err) {
    as_vector(src);
    if (!number && src->ndim != index->ndim)
        return ckpt_fail(err, -EINVAL, "a source of %u dimensions for an index of %u", src->ndim,
                         index->ndim);
    for (uint32_t d = 0; d < index->ndim; d++) {
        if (!number && src->shape[d] < index->shape[d])
            return ckpt_fail(err, -EINVAL, "a source of %lld for an index of %lld",
                             (long long)src->shape[d], (long long)index->shape[d]);
        src->shape[d] = index->shape[d];
        src->stride[d] = number ? 0 : src->stride[d];
    }
    src->ndim = index->ndim;
    return 0;
}

/* c->out: self, with the source's elements where the index says. */
static int scatter_by(struct ckpt_call *c, enum reduction by, const struct ckpt_array *source,
                      bool number, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, index = {0}, cast = {0};
    struct ckpt_array base, out, places, src; /* borrowed */
    struct scatter s = {.by = by};
    uint32_t dim = 0;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = take_index(c, "index", &index, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dim", 0, a.ndim, &dim, err);
    if (rc == 0)
        rc = ckpt_array_cast(source, a.dtype, &c->exec->memory, &cast, err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, a.dtype, a.shape, a.ndim, err);
    if (rc == 0)
        rc = ckpt_array_assign(c->out, &a, err);
    if (rc < 0 || ckpt_array_count(&index) == 0)
        return rc;
    places = index;
    out = *c->out;
    src = cast;
    as_vector(&places);
    as_vector(&out);
    rc = fit_source(&places, &src, number, err);
    if (rc == 0)
        rc = begin(&out, &places, dim, &s.along, &base, err);
    if (rc < 0)
        return rc;
    ckpt_array_rows((const struct ckpt_array *const[]){&base, &places, &src}, 3, scatter_row, &s);
    return check_places(&s.along, err);
}

static int scatter_src(struct ckpt_call *c, enum reduction by, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array src = {0};
    const int rc = ckpt_call_tensor(c, "src", &src, err);
    return rc < 0 ? rc : scatter_by(c, by, &src, false, err);
}

static int scatter(struct ckpt_call *c, struct ckpt_err *err) {
    return scatter_src(c, REPLACE, err);
}

static int scatter_add(struct ckpt_call *c, struct ckpt_err *err) {
    return scatter_src(c, SUM, err);
}

static int scatter_value(struct ckpt_call *c, struct ckpt_err *err) {
    const struct ckpt_scalar value = ckpt_call_scalar(c, "value");
    const struct ckpt_array one = ckpt_scalar_array(&value);
    if (value.dtype == CKPT_DT_NONE)
        return ckpt_fail(err, -EINVAL, "value is not one number");
    return scatter_by(c, REPLACE, &one, true, err);
}

static int scatter_reduce(struct ckpt_call *c, struct ckpt_err *err) {
    static const struct {
        const char *name;
        enum reduction by;
    } reductions[] = {{"sum", SUM}, {"prod", PROD}, {"amax", MOST}, {"amin", LEAST}};
    const struct ckpt_arg *const reduce = ckpt_call_arg(c, "reduce");
    const char *const name = reduce && reduce->kind == CKPT_ARG_STRING ? reduce->string : "none";
    if (!ckpt_call_bool(c, "include_self", true))
        return ckpt_fail(err, -EOPNOTSUPP, "include_self=False");
    for (size_t i = 0; i < sizeof(reductions) / sizeof(reductions[0]); i++)
        if (strcmp(name, reductions[i].name) == 0)
            return scatter_src(c, reductions[i].by, err);
    return ckpt_fail(err, -EOPNOTSUPP, "reduce=\"%s\"", name);
}

static const struct ckpt_op ops[] = {
    {"gather", "gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
     gather},
    {"take_along_dim", "take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor",
     take_along_dim},
    {"scatter", "scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", scatter},
    {"scatter", "scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
     scatter_value},
    {"scatter_add", "scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
     scatter_add},
    {"scatter_reduce",
     "scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool "
     "include_self=True) -> Tensor",
     scatter_reduce},
};

const struct ckpt_op_family ckpt_family_gather = CKPT_OP_FAMILY(ops);
