/*
 * Shapes forward, indices backward:
 *
 *     source [8,4]  --permute(1,0)-->  [4,8]  --slice(0, start 2, len 2)-->  [2,8]
 *
 *     index (1,5) of the result:  slice: (2+1, 5)   permute: (5, 3)   byte 5*16 + 3*4
 *
 * Every operation but a reshape maps an index affinely, axis by axis, so that offsets along a row
 * of the result have one step; it is found by evaluating two elements.
 */
#include "verify/naive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* ---- shapes ---- */

static int64_t shape_count(const struct ckpt_naive_shape *s) {
    int64_t n = 1;
    for (uint32_t d = 0; d < s->ndim; d++)
        n *= s->size[d];
    return n;
}

static void insert_dim(struct ckpt_naive_shape *s, uint32_t dim, int64_t size) {
    memmove(&s->size[dim + 1], &s->size[dim], (s->ndim - dim) * sizeof(s->size[0]));
    s->size[dim] = size;
    s->ndim++;
}

static void remove_dim(struct ckpt_naive_shape *s, uint32_t dim) {
    memmove(&s->size[dim], &s->size[dim + 1], (s->ndim - dim - 1) * sizeof(s->size[0]));
    s->ndim--;
}

static bool permute_shape(const struct ckpt_view_op *op, struct ckpt_naive_shape *s) {
    const struct ckpt_naive_shape old = *s;
    uint64_t seen = 0;
    if (op->n != s->ndim)
        return false;
    for (uint32_t d = 0; d < op->n; d++) {
        if (op->list[d] < 0 || op->list[d] >= s->ndim || seen >> op->list[d] & 1)
            return false;
        seen |= (uint64_t)1 << op->list[d];
        s->size[d] = old.size[op->list[d]];
    }
    return true;
}

static bool reshape_shape(const struct ckpt_view_op *op, struct ckpt_naive_shape *s) {
    uint64_t count = 0;
    if (op->n > CKPT_NDIM_MAX || !ckpt_shape_count(op->list, op->n, &count) ||
        count != (uint64_t)shape_count(s))
        return false;
    s->ndim = op->n;
    memcpy(s->size, op->list, op->n * sizeof(s->size[0]));
    return true;
}

static bool slice_shape(const struct ckpt_view_op *op, struct ckpt_naive_shape *s) {
    const int64_t size = s->size[op->dim];
    if (op->start < 0 || op->len < 0 || op->step < 1 || op->start > size ||
        (op->len > 0 && (op->start >= size || (op->len - 1) > (size - 1 - op->start) / op->step)))
        return false;
    s->size[op->dim] = op->len;
    return true;
}

/* Operations on one dimension that is there. */
static bool dim_shape(const struct ckpt_view_op *op, struct ckpt_naive_shape *s) {
    if (op->dim >= s->ndim)
        return false;
    const int64_t size = s->size[op->dim];
    switch (op->kind) {
    case CKPT_VIEW_SLICE:
        return slice_shape(op, s);
    case CKPT_VIEW_INDEX:
        remove_dim(s, op->dim);
        return op->start >= 0 && op->start < size;
    case CKPT_VIEW_SQUEEZE:
        remove_dim(s, op->dim);
        return size == 1;
    case CKPT_VIEW_EXPAND:
        s->size[op->dim] = op->len;
        return size == 1 && op->len >= 0;
    default:
        return op->kind == CKPT_VIEW_FLIP;
    }
}

/* s becomes the shape after op; false if op does not apply to it. */
static bool op_shape(const struct ckpt_view_op *op, struct ckpt_naive_shape *s) {
    switch (op->kind) {
    case CKPT_VIEW_PERMUTE:
        return permute_shape(op, s);
    case CKPT_VIEW_RESHAPE:
        return reshape_shape(op, s);
    case CKPT_VIEW_UNSQUEEZE:
        if (op->dim > s->ndim || s->ndim == CKPT_NDIM_MAX)
            return false;
        insert_dim(s, op->dim, 1);
        return true;
    default:
        return dim_shape(op, s);
    }
}

/* ---- indices ---- */

static void reshape_index(const struct ckpt_naive_shape *before,
                          const struct ckpt_naive_shape *after, struct ckpt_naive_shape *index) {
    int64_t at = 0;
    for (uint32_t d = 0; d < after->ndim; d++)
        at = at * after->size[d] + index->size[d];
    for (uint32_t d = before->ndim; d-- > 0;) {
        index->size[d] = at % before->size[d];
        at /= before->size[d];
    }
    index->ndim = before->ndim;
}

/* index, of the shape after op, becomes the index of the shape before it. */
static void op_index(const struct ckpt_view_op *op, const struct ckpt_naive_shape *before,
                     const struct ckpt_naive_shape *after, struct ckpt_naive_shape *index) {
    int64_t old[CKPT_NDIM_MAX];
    switch (op->kind) {
    case CKPT_VIEW_PERMUTE:
        for (uint32_t d = 0; d < op->n; d++)
            old[op->list[d]] = index->size[d];
        memcpy(index->size, old, op->n * sizeof(old[0]));
        break;
    case CKPT_VIEW_RESHAPE:
        reshape_index(before, after, index);
        break;
    case CKPT_VIEW_SLICE:
        index->size[op->dim] = op->start + index->size[op->dim] * op->step;
        break;
    case CKPT_VIEW_INDEX:
        insert_dim(index, op->dim, op->start);
        break;
    case CKPT_VIEW_FLIP:
        index->size[op->dim] = before->size[op->dim] - 1 - index->size[op->dim];
        break;
    case CKPT_VIEW_SQUEEZE:
        insert_dim(index, op->dim, 0);
        break;
    case CKPT_VIEW_UNSQUEEZE:
        remove_dim(index, op->dim);
        break;
    case CKPT_VIEW_EXPAND:
        index->size[op->dim] = 0;
        break;
    }
}

static int64_t offset_of(const struct ckpt_naive *n, const struct ckpt_naive_shape *result_index) {
    struct ckpt_naive_shape index;
    int64_t offset = 0;
    index.ndim = result_index->ndim;
    memcpy(index.size, result_index->size, index.ndim * sizeof(index.size[0]));
    for (uint32_t k = n->nop; k-- > 0;)
        op_index(&n->op[k], &n->shape[k], &n->shape[k + 1], &index);
    for (uint32_t d = 0; d < index.ndim; d++)
        offset += index.size[d] * n->stride[d];
    return offset;
}

/* ---- setting up ---- */

/* Fills the shape and byte strides of the source. Packed elements count in units. */
static int source_shape(struct ckpt_naive *n, struct ckpt_err *err) {
    const struct ckpt_tensor *const t = n->source;
    const struct ckpt_dtype_info *const info = ckpt_dtype_info(t->dtype);
    struct ckpt_naive_shape *const s = &n->shape[0];
    n->unit = info->unit_bytes;
    if (info->unit_elements > 1) {
        s->ndim = 1;
        s->size[0] = (int64_t)(ckpt_tensor_count(t) / info->unit_elements);
        n->stride[0] = n->unit;
        return n->nop == 0 ? 0 : ckpt_fail(err, -EOPNOTSUPP, "operations on packed elements");
    }
    int64_t step = ckpt_tensor_count(t) > 0 ? n->unit : 0; /* without elements it may overflow */
    s->ndim = t->ndim;
    for (uint32_t d = t->ndim; d-- > 0;) {
        s->size[d] = t->shape[d];
        n->stride[d] = t->stride ? t->stride[d] * (int64_t)n->unit : step;
        step *= t->shape[d] > 0 ? t->shape[d] : 1;
    }
    return 0;
}

static bool in_order(const struct ckpt_naive *n) {
    const struct ckpt_naive_shape *const s = &n->shape[0];
    int64_t step = ckpt_tensor_count(n->source) > 0 ? n->unit : 0;
    for (uint32_t d = s->ndim; d-- > 0; step *= s->size[d])
        if (s->size[d] > 1 && n->stride[d] != step)
            return false;
    return n->nop == 0;
}

int ckpt_naive_init(struct ckpt_naive *n, const struct ckpt_tensor *source,
                    const struct ckpt_view_op *op, uint32_t nop, struct ckpt_err *err) {
    *n = (struct ckpt_naive){.source = source, .op = op, .nop = nop};
    n->shape = calloc((size_t)nop + 1, sizeof(*n->shape));
    if (!n->shape)
        return ckpt_fail_memory(err, "checking bytes");
    const int rc = source_shape(n, err);
    if (rc < 0)
        return rc;
    for (uint32_t k = 0; k < nop; k++) {
        n->shape[k + 1] = n->shape[k];
        if (!op_shape(&op[k], &n->shape[k + 1]))
            return ckpt_fail(err, -EINVAL, "operation %u does not fit the shape before it", k);
        n->per_element = n->per_element || op[k].kind == CKPT_VIEW_RESHAPE;
    }
    n->count = shape_count(&n->shape[nop]);
    n->dense = in_order(n);
    return 0;
}

/* The bytes around element 0 that the source's strides reach. ckpt_tensor_check has bounded them.
 */
static void source_extent(const struct ckpt_naive *n, uint64_t *lo, uint64_t *hi) {
    const struct ckpt_naive_shape *const s = &n->shape[0];
    int64_t below = 0, above = n->unit;
    for (uint32_t d = 0; d < s->ndim; d++) {
        const int64_t reach = s->size[d] > 1 ? (s->size[d] - 1) * n->stride[d] : 0;
        *(reach < 0 ? &below : &above) += reach;
    }
    *lo = n->source->offset - (uint64_t)-below;
    *hi = n->source->offset + (uint64_t)above;
}

int ckpt_naive_pin(struct ckpt_naive *n, struct ckpt_err *err) {
    uint64_t lo = 0, hi = 0;
    if (n->first || n->count == 0 || shape_count(&n->shape[0]) == 0)
        return 0;
    source_extent(n, &lo, &hi);
    struct ckpt_blob *const blob = n->source->blob;
    const int rc = blob->ops->pin(blob, lo, hi, &n->pin, NULL, err);
    if (rc == 0)
        n->first = n->pin.data + (n->source->offset - lo);
    return rc;
}

void ckpt_naive_fini(struct ckpt_naive *n) {
    if (n->first)
        n->source->blob->ops->unpin(n->source->blob, &n->pin);
    free(n->shape);
    *n = (struct ckpt_naive){0};
}

const struct ckpt_naive_shape *ckpt_naive_result(const struct ckpt_naive *n) {
    return &n->shape[n->nop];
}

/* ---- offsets ---- */

static void unravel(const struct ckpt_naive_shape *shape, int64_t at,
                    struct ckpt_naive_shape *index) {
    index->ndim = shape->ndim;
    for (uint32_t d = shape->ndim; d-- > 0;) {
        index->size[d] = at % shape->size[d];
        at /= shape->size[d];
    }
}

/* To the next element, or with `dims` less than all, to the next row, plane... */
static void advance(const struct ckpt_naive_shape *shape, uint32_t dims,
                    struct ckpt_naive_shape *index) {
    for (uint32_t d = dims; d-- > 0;) {
        if (++index->size[d] < shape->size[d])
            return;
        index->size[d] = 0;
    }
}

/* Offsets of the rest of a row, at most n, from `index` on. The number written. */
static int64_t row_offsets(const struct ckpt_naive *n, struct ckpt_naive_shape *index,
                           int64_t limit, int64_t *offsets) {
    const struct ckpt_naive_shape *const shape = ckpt_naive_result(n);
    const uint32_t last = shape->ndim - 1;
    const int64_t left = shape->size[last] - index->size[last];
    const int64_t count = left < limit ? left : limit;
    const int64_t start = offset_of(n, index);
    int64_t step = 0;
    if (count > 1) {
        index->size[last]++;
        step = offset_of(n, index) - start;
    }
    for (int64_t i = 0; i < count; i++)
        offsets[i] = start + i * step;
    index->size[last] = 0;
    advance(shape, last, index);
    return count;
}

void ckpt_naive_offsets(const struct ckpt_naive *n, int64_t from, int64_t count, int64_t *offsets) {
    const struct ckpt_naive_shape *const shape = ckpt_naive_result(n);
    struct ckpt_naive_shape index;
    if (count == 0)
        return;
    unravel(shape, from, &index);
    if (!n->per_element && shape->ndim > 0) {
        for (int64_t done = 0; done < count;)
            done += row_offsets(n, &index, count - done, offsets + done);
        return;
    }
    for (int64_t i = 0; i < count; i++, advance(shape, shape->ndim, &index))
        offsets[i] = offset_of(n, &index);
}
