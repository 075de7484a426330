/*
 * All indices of a cell become one offset first; then cells are copied one after the other.
 */
#include "verify/lookup.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"

void ckpt_lookup_fini(struct ckpt_lookup *l) {
    for (uint32_t i = 0; i < l->n; i++)
        ckpt_array_fini(&l->index[i]);
    memset(l, 0, sizeof(*l));
}

int ckpt_lookup_add(struct ckpt_lookup *l, uint32_t dim, struct ckpt_array index,
                    struct ckpt_err *err) {
    const enum ckpt_dtype dtype = index.dtype;
    if (dtype == CKPT_DT_I64 && l->n < CKPT_ARRAY_NDIM_MAX) {
        l->dim[l->n] = dim;
        l->index[l->n++] = index;
        return 0;
    }
    ckpt_array_fini(&index);
    return dtype == CKPT_DT_I64
               ? ckpt_fail(err, -EOPNOTSUPP, "more than %d indices", CKPT_ARRAY_NDIM_MAX)
               : ckpt_fail(err, -EINVAL, "an index of %s, expected integers or truth values",
                           ckpt_dtype_info(dtype)->name);
}

/* The common shape, and where it stands: in place of the dimensions, if these are neighbours. */
static int plan(struct ckpt_lookup *l, struct ckpt_err *err) {
    const struct ckpt_array *all[CKPT_ARRAY_NDIM_MAX];
    l->at = l->n ? l->dim[0] : 0;
    for (uint32_t i = 0; i < l->n; i++) {
        all[i] = &l->index[i];
        l->at = l->dim[i] == l->dim[0] + i ? l->at : 0;
    }
    return ckpt_array_broadcast(all, l->n, l->shape, &l->ndim, err);
}

static bool is_replaced(const struct ckpt_lookup *l, uint32_t d) {
    for (uint32_t i = 0; i < l->n; i++)
        if (l->dim[i] == d)
            return true;
    return false;
}

/* One cell of a, at its beginning; borrowed. */
static struct ckpt_array cell_of(const struct ckpt_lookup *l, const struct ckpt_array *a) {
    struct ckpt_array cell = *a;
    cell.ndim = 0;
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (is_replaced(l, d))
            continue;
        cell.shape[cell.ndim] = a->shape[d];
        cell.stride[cell.ndim++] = a->stride[d];
    }
    return cell;
}

/* ---- offsets ---- */

struct adding {
    int64_t size, stride, wrong;
    bool wraps, failed;
};

/* at[0] are offsets, at[1] indices of one dimension. */
static void add_offsets(void *arg, char *const *at, const int64_t *step, int64_t n) {
    struct adding *const a = arg;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = *(const int64_t *)(const void *)(at[1] + k * step[1]);
        if (i < 0 ? !a->wraps || i < -a->size : i >= a->size) {
            a->wrong = i;
            a->failed = true;
            continue;
        }
        i += i < 0 ? a->size : 0;
        *(int64_t *)(void *)(at[0] + k * step[0]) += i * a->stride;
    }
}

/* Of every cell, in elements of a tensor of this shape and these strides. */
static int find_offsets(const struct ckpt_lookup *l, const int64_t *size, const int64_t *stride,
                        struct ckpt_exec *exec, struct ckpt_array *out, struct ckpt_err *err) {
    int rc = ckpt_array_new(out, &exec->memory, CKPT_DT_I64, l->shape, l->ndim, err);
    for (uint32_t i = 0; rc == 0 && i < l->n; i++) {
        CKPT_AUTO(array) struct ckpt_array index = {0};
        struct adding a = {size[l->dim[i]], stride[l->dim[i]], 0, l->wraps, false};
        rc = ckpt_array_expand(&l->index[i], l->shape, l->ndim, &index, err);
        if (rc < 0)
            return rc;
        ckpt_array_rows((const struct ckpt_array *const[]){out, &index}, 2, add_offsets, &a);
        if (a.failed)
            return ckpt_fail(err, -EINVAL, "index %lld of dimension %u, which has %lld",
                             (long long)a.wrong, l->dim[i], (long long)a.size);
    }
    return rc;
}

/* ---- results: cells one after the other, then turned ---- */

/* The shape in which cells are one after the other: the common one, then the cell's. */
static int flat_shape(const struct ckpt_lookup *l, const struct ckpt_array *cell, int64_t *shape,
                      uint32_t *ndim, struct ckpt_err *err) {
    *ndim = l->ndim + cell->ndim;
    if (*ndim > CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "a result of %u dimensions", *ndim);
    memcpy(shape, l->shape, l->ndim * sizeof(*shape));
    memcpy(shape + l->ndim, cell->shape, cell->ndim * sizeof(*shape));
    return 0;
}

/* Dimension d of the result is order[d] of those. */
static void result_order(const struct ckpt_lookup *l, uint32_t ndim, uint32_t *order) {
    for (uint32_t d = 0; d < ndim; d++)
        order[d] = d < l->at ? l->ndim + d : d < l->at + l->ndim ? d - l->at : d;
}

static int copy_cells(struct ckpt_call *c, const struct ckpt_array *offsets,
                      const struct ckpt_array *cell, const struct ckpt_array *flat,
                      struct ckpt_err *err) {
    const int64_t unit = ckpt_dtype_info(cell->dtype)->unit_bytes, size = ckpt_array_count(cell);
    const int64_t count = size ? ckpt_array_count(offsets) : 0;
    const bool dense = ckpt_array_dense(cell);
    struct ckpt_array from = *cell, to = *flat;
    to.ndim = cell->ndim;
    memcpy(to.shape, flat->shape + offsets->ndim, sizeof(*to.shape) * to.ndim);
    memcpy(to.stride, flat->stride + offsets->ndim, sizeof(*to.stride) * to.ndim);
    int rc = ckpt_exec_check(c->exec, err);
    for (int64_t i = 0; rc == 0 && i < count; i++) {
        from.data = (char *)cell->data + ckpt_array_i64(offsets)[i] * unit;
        to.data = (char *)flat->data + i * size * unit;
        if (dense)
            memcpy(to.data, from.data, (size_t)(size * unit));
        else
            rc = ckpt_array_assign(&to, &from, err);
    }
    return rc;
}

/* Cells of a parameter are whole runs of it. */
static int read_cells(struct ckpt_call *c, const struct ckpt_param *p,
                      const struct ckpt_array *offsets, int64_t size, const struct ckpt_array *flat,
                      struct ckpt_err *err) {
    const int64_t count = size ? ckpt_array_count(offsets) : 0;
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < count; i++) {
        rc = p->read(p, ckpt_array_i64(offsets)[i], size, ckpt_array_f32(flat) + i * size, err);
        if (rc == 0)
            rc = ckpt_exec_check(c->exec, err);
    }
    return rc;
}

/* The parameter, if its first dimensions are those that are replaced. */
static const struct ckpt_param *row_param(const struct ckpt_call *c, const struct ckpt_lookup *l) {
    const struct ckpt_arg *const self = ckpt_call_arg(c, "self");
    for (uint32_t i = 0; i < l->n; i++)
        if (l->dim[i] != i)
            return NULL;
    return self && self->kind == CKPT_ARG_PARAM && l->n > 0 ? self->param : NULL;
}

static void set_steps(struct ckpt_array *a) {
    int64_t step = 1;
    for (uint32_t d = a->ndim; d-- > 0; step *= a->shape[d])
        a->stride[d] = step;
}

int ckpt_lookup_read(struct ckpt_call *c, struct ckpt_lookup *l, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, offsets = {0}, flat = {0};
    const struct ckpt_param *const p = row_param(c, l);
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim = 0, order[CKPT_ARRAY_NDIM_MAX];
    int rc = p ? ckpt_call_form(c, "self", &a, err) : ckpt_call_tensor(c, "self", &a, err);
    if (p)
        set_steps(&a);
    if (rc == 0)
        rc = plan(l, err);
    if (rc < 0)
        return rc;
    const struct ckpt_array cell = cell_of(l, &a);
    rc = flat_shape(l, &cell, shape, &ndim, err);
    if (rc == 0)
        rc = find_offsets(l, a.shape, a.stride, c->exec, &offsets, err);
    if (rc == 0)
        rc = ckpt_array_new(&flat, &c->exec->memory, a.dtype, shape, ndim, err);
    if (rc == 0)
        rc = p ? read_cells(c, p, &offsets, ckpt_array_count(&cell), &flat, err)
               : copy_cells(c, &offsets, &cell, &flat, err);
    if (rc < 0)
        return rc;
    result_order(l, ndim, order);
    return ckpt_call_view(c, 0, ckpt_array_permute(&flat, order), err);
}

/* ---- writing ---- */

/* Adds scale times at[1] to at[0]. */
struct sum {
    enum ckpt_dtype dtype;
    double scale;
};

static void add_row(void *arg, char *const *at, const int64_t *step, int64_t n) {
    const struct sum *const s = arg;
    for (int64_t k = 0; k < n; k++) {
        void *const to = at[0] + k * step[0];
        const void *const from = at[1] + k * step[1];
        if (s->dtype == CKPT_DT_F32)
            *(float *)to += (float)s->scale * *(const float *)from;
        else if (s->dtype == CKPT_DT_F64)
            *(double *)to += s->scale * *(const double *)from;
        else if (s->dtype == CKPT_DT_I64)
            *(int64_t *)to =
                (int64_t)(*(uint64_t *)to + (uint64_t)(int64_t)s->scale * *(const uint64_t *)from);
        else
            *(uint8_t *)to |= *(const uint8_t *)from;
    }
}

static int write_cells(const struct ckpt_array *offsets, const struct ckpt_array *cell,
                       const struct ckpt_array *flat, const double *scale, struct ckpt_err *err) {
    const int64_t unit = ckpt_dtype_info(cell->dtype)->unit_bytes, size = ckpt_array_count(cell);
    const int64_t count = size ? ckpt_array_count(offsets) : 0;
    struct ckpt_array to = *cell, from = *flat;
    struct sum s = {cell->dtype, scale ? *scale : 0};
    int rc = 0;
    from.ndim = cell->ndim;
    memcpy(from.shape, flat->shape + offsets->ndim, sizeof(*from.shape) * from.ndim);
    memcpy(from.stride, flat->stride + offsets->ndim, sizeof(*from.stride) * from.ndim);
    for (int64_t i = 0; rc == 0 && i < count; i++) {
        to.data = (char *)cell->data + ckpt_array_i64(offsets)[i] * unit;
        from.data = (char *)flat->data + i * size * unit;
        if (scale)
            ckpt_array_rows((const struct ckpt_array *const[]){&to, &from}, 2, add_row, &s);
        else
            rc = ckpt_array_assign(&to, &from, err);
    }
    return rc;
}

/* *flat: the values as cells one after the other, in C order. */
static int flatten_values(struct ckpt_call *c, const struct ckpt_lookup *l,
                          const struct ckpt_array *cell, const struct ckpt_array *values,
                          struct ckpt_array *flat, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array cast = {0}, seen = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX], result[CKPT_ARRAY_NDIM_MAX];
    uint32_t ndim = 0, order[CKPT_ARRAY_NDIM_MAX], inverse[CKPT_ARRAY_NDIM_MAX];
    int rc = flat_shape(l, cell, shape, &ndim, err);
    if (rc < 0)
        return rc;
    result_order(l, ndim, order);
    for (uint32_t d = 0; d < ndim; d++) {
        result[d] = shape[order[d]];
        inverse[order[d]] = d;
    }
    rc = ckpt_array_cast(values, cell->dtype, &c->exec->memory, &cast, err);
    if (rc == 0)
        rc = ckpt_array_expand(&cast, result, ndim, &seen, err);
    if (rc == 0)
        rc = ckpt_array_new(flat, &c->exec->memory, cell->dtype, shape, ndim, err);
    if (rc < 0)
        return rc;
    CKPT_AUTO(array) struct ckpt_array turned = ckpt_array_permute(&seen, inverse);
    return ckpt_array_assign(flat, &turned, err);
}

int ckpt_lookup_write(struct ckpt_call *c, struct ckpt_lookup *l, const struct ckpt_array *values,
                      const double *scale, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, offsets = {0}, flat = {0};
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = plan(l, err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, a.dtype, a.shape, a.ndim, err);
    if (rc == 0)
        rc = ckpt_array_assign(c->out, &a, err);
    if (rc < 0)
        return rc;
    const struct ckpt_array cell = cell_of(l, c->out);
    rc = find_offsets(l, c->out->shape, c->out->stride, c->exec, &offsets, err);
    if (rc == 0)
        rc = flatten_values(c, l, &cell, values, &flat, err);
    return rc < 0 ? rc : write_cells(&offsets, &cell, &flat, scale, err);
}

/* ---- what is not zero ---- */

int ckpt_nonzero(const struct ckpt_array *a, struct ckpt_exec *exec, struct ckpt_array *out,
                 struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array truth = {0}, dense = {0};
    int64_t shape[2] = {0, a->ndim}, now[CKPT_ARRAY_NDIM_MAX] = {0};
    const int64_t count = ckpt_array_count(a);
    int rc = ckpt_array_cast(a, CKPT_DT_BOOL, &exec->memory, &truth, err);
    if (rc == 0)
        rc = ckpt_array_contiguous(&truth, &exec->memory, &dense, err);
    for (int64_t i = 0; rc == 0 && i < count; i++)
        shape[0] += ckpt_array_bool(&dense)[i] != 0;
    if (rc == 0)
        rc = ckpt_array_new(out, &exec->memory, CKPT_DT_I64, shape, 2, err);
    if (rc < 0)
        return rc;
    int64_t *to = ckpt_array_i64(out);
    for (int64_t i = 0; i < count; i++) {
        if (ckpt_array_bool(&dense)[i]) {
            if (a->ndim)
                memcpy(to, now, a->ndim * sizeof(*to));
            to += a->ndim;
        }
        for (uint32_t d = a->ndim; d-- > 0 && ++now[d] == a->shape[d];)
            now[d] = 0;
    }
    return 0;
}
