/*
 * Strided arrays, seen together: rows of several arrays of one shape, broadcasting, and conversions
 * from one to another.
 *
 *     [2, 3] dense, and [3] seen as [2, 3]      2 runs of 3: steps (4, 4) bytes
 *     [2, 3] dense, twice                       1 run of 6
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/array.h"

/* ---- rows ---- */

struct rows {
    uint32_t n, ndim;
    int64_t size[CKPT_ARRAY_NDIM_MAX];
    int64_t step[CKPT_ARRAY_NDIM_MAX][CKPT_ARRAY_ROWS_MAX]; /* bytes */
    char *at[CKPT_ARRAY_ROWS_MAX];
};

/* Whether dimension d continues the one outside it, in every array. */
static bool joins(const struct rows *r, const int64_t *outer, const int64_t *inner, int64_t size) {
    for (uint32_t k = 0; k < r->n; k++)
        if (outer[k] != inner[k] * size)
            return false;
    return true;
}

static void add_dimension(struct rows *r, int64_t size, const int64_t *step) {
    const size_t bytes = r->n * sizeof(*step);
    if (size == 1)
        return;
    if (r->ndim && joins(r, r->step[r->ndim - 1], step, size)) {
        r->size[r->ndim - 1] *= size;
        memcpy(r->step[r->ndim - 1], step, bytes);
        return;
    }
    r->size[r->ndim] = size;
    memcpy(r->step[r->ndim++], step, bytes);
}

static void walk_rows(struct rows *r, uint32_t d, ckpt_row_fn *row, void *arg) {
    char *start[CKPT_ARRAY_ROWS_MAX];
    if (d + 1 >= r->ndim) {
        row(arg, r->at, r->step[d], r->ndim ? r->size[d] : 1);
        return;
    }
    memcpy(start, r->at, sizeof(start));
    for (int64_t i = 0; i < r->size[d]; i++) {
        walk_rows(r, d + 1, row, arg);
        for (uint32_t k = 0; k < r->n; k++)
            r->at[k] += r->step[d][k];
    }
    memcpy(r->at, start, sizeof(start));
}

void ckpt_array_rows(const struct ckpt_array *const *a, uint32_t n, ckpt_row_fn *row, void *arg) {
    struct rows r = {.n = n};
    if (ckpt_array_count(a[0]) == 0)
        return;
    for (uint32_t k = 0; k < n; k++)
        r.at[k] = a[k]->data;
    for (uint32_t d = 0; d < a[0]->ndim; d++) {
        int64_t step[CKPT_ARRAY_ROWS_MAX] = {0};
        for (uint32_t k = 0; k < n; k++)
            step[k] = a[k]->stride[d] * ckpt_dtype_info(a[k]->dtype)->unit_bytes;
        add_dimension(&r, a[0]->shape[d], step);
    }
    walk_rows(&r, 0, row, arg);
}

/* ---- broadcasting ---- */

static int refuse_shapes(const struct ckpt_array *a, const int64_t *shape, uint32_t ndim,
                         struct ckpt_err *err) {
    struct ckpt_array other = {.ndim = ndim};
    char text[2][96];
    if (ndim)
        memcpy(other.shape, shape, ndim * sizeof(*shape));
    return ckpt_fail(err, -EINVAL, "shapes %s and %s do not broadcast",
                     ckpt_array_shape_text(a, text[0], sizeof(text[0])),
                     ckpt_array_shape_text(&other, text[1], sizeof(text[1])));
}

int ckpt_array_broadcast(const struct ckpt_array *const *a, uint32_t n, int64_t *shape,
                         uint32_t *ndim, struct ckpt_err *err) {
    *ndim = 0;
    for (uint32_t k = 0; k < n; k++)
        *ndim = a[k]->ndim > *ndim ? a[k]->ndim : *ndim;
    for (uint32_t d = 0; d < *ndim; d++)
        shape[d] = 1;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t d = 0; d < a[k]->ndim; d++) {
            int64_t *const to = &shape[*ndim - a[k]->ndim + d];
            const int64_t size = a[k]->shape[d];
            if (*to != size && *to != 1 && size != 1)
                return refuse_shapes(a[k], shape, *ndim, err);
            *to = size == 1 ? *to : size;
        }
    return 0;
}

int ckpt_array_expand(const struct ckpt_array *a, const int64_t *shape, uint32_t ndim,
                      struct ckpt_array *out, struct ckpt_err *err) {
    memset(out, 0, sizeof(*out));
    if (ndim < a->ndim || ndim > CKPT_ARRAY_NDIM_MAX)
        return refuse_shapes(a, shape, ndim, err);
    const uint32_t more = ndim - a->ndim;
    struct ckpt_array seen = *a;
    seen.ndim = ndim;
    for (uint32_t d = 0; d < ndim; d++) {
        const bool repeats = d < more || (a->shape[d - more] == 1 && shape[d] != 1);
        if (!repeats && a->shape[d - more] != shape[d])
            return refuse_shapes(a, shape, ndim, err);
        seen.shape[d] = shape[d];
        seen.stride[d] = repeats ? 0 : a->stride[d - more];
    }
    *out = ckpt_array_ref(&seen);
    return 0;
}

/* ---- conversions ---- */

static int64_t whole(double v) {
    return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN;
}

static double load(enum ckpt_dtype dtype, const char *at) {
    const struct ckpt_array one = {.dtype = dtype, .data = (void *)(uintptr_t)at};
    return ckpt_array_get(&one, 0);
}

static void store(enum ckpt_dtype dtype, char *at, double v) {
    switch (dtype) {
    case CKPT_DT_F32:
        *(float *)(void *)at = (float)v;
        break;
    case CKPT_DT_F64:
        *(double *)(void *)at = v;
        break;
    case CKPT_DT_BOOL:
        *(uint8_t *)at = v != 0; /* NaN is true, as in PyTorch */
        break;
    default:
        *(int64_t *)(void *)at = whole(v);
    }
}

struct conversion {
    enum ckpt_dtype to, from;
    int64_t unit; /* bytes of an element, if both dtypes are one */
};

/* at[0] is where to, at[1] is from. */
static void convert_row(void *arg, char *const *at, const int64_t *step, int64_t n) {
    const struct conversion *const c = arg;
    if (c->to != c->from)
        for (int64_t i = 0; i < n; i++)
            store(c->to, at[0] + i * step[0], load(c->from, at[1] + i * step[1]));
    else if (step[0] == c->unit && step[1] == c->unit)
        memmove(at[0], at[1], (size_t)(n * c->unit));
    else if (c->unit == 4)
        for (int64_t i = 0; i < n; i++)
            memcpy(at[0] + i * step[0], at[1] + i * step[1], 4);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(at[0] + i * step[0], at[1] + i * step[1], (size_t)c->unit);
}

int ckpt_array_assign(const struct ckpt_array *to, const struct ckpt_array *from,
                      struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array seen = {0};
    const int rc = ckpt_array_expand(from, to->shape, to->ndim, &seen, err);
    if (rc < 0)
        return rc;
    const struct ckpt_array *const both[] = {to, &seen};
    struct conversion c = {to->dtype, from->dtype, ckpt_dtype_info(to->dtype)->unit_bytes};
    ckpt_array_rows(both, 2, convert_row, &c);
    return 0;
}

int ckpt_array_cast(const struct ckpt_array *a, enum ckpt_dtype dtype, struct ckpt_memory *memory,
                    struct ckpt_array *out, struct ckpt_err *err) {
    if (a->dtype == dtype) {
        *out = ckpt_array_ref(a);
        return 0;
    }
    const int rc = ckpt_array_new(out, memory, dtype, a->shape, a->ndim, err);
    return rc < 0 ? rc : ckpt_array_assign(out, a, err);
}
