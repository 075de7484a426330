/*
 * The arithmetic under the view algebra: canonical walks, and cutting one at the borders of a
 * label.
 *
 *     walk (12, 4)(3, 48)   label [3, 4, 3]   cut at 3 | 4 | 3:  (3, 16) | (4, 4) | (3, 48)
 *     walk (4, 4)(3, 16)    label [6, 2]      cut at 6 | 2:      none, the border is inside (3, 16)
 */
#include "adapters/view_cut.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

int64_t ckpt_view_units(const struct ckpt_view *v, uint32_t dim) {
    return dim + 1 == v->ndim ? v->shape[dim] / v->unit_elements : v->shape[dim];
}

int64_t ckpt_view_units_between(const struct ckpt_view *v, uint32_t from, uint32_t to) {
    int64_t n = 1;
    for (uint32_t d = from; d < to; d++)
        n *= ckpt_view_units(v, d);
    return n;
}

static void reverse(struct ckpt_dim *pair, uint32_t n) {
    for (uint32_t i = 0; i < n / 2; i++) {
        const struct ckpt_dim t = pair[i];
        pair[i] = pair[n - 1 - i];
        pair[n - 1 - i] = t;
    }
}

/* From the innermost pair outwards; what is left of a pair after a border goes to the next group.
 */
bool ckpt_view_cut(const struct ckpt_view *v, const int64_t *sizes, uint32_t n,
                   struct ckpt_cut *cut) {
    uint32_t made = 0, pair = v->npairs;
    struct ckpt_dim left = {1, 0};
    uint32_t inside[CKPT_NDIM_MAX + 1]; /* pieces made when group g was done */
    inside[n] = 0;
    for (uint32_t g = n; g-- > 0;) {
        for (int64_t need = sizes[g]; need > 1;) {
            if (left.size == 1)
                left = v->pair[--pair];
            const int64_t take = need < left.size ? need : left.size;
            if (need % take != 0 || left.size % take != 0)
                return false;
            cut->pair[made++] = (struct ckpt_dim){take, left.stride};
            left.size /= take;
            left.stride *= left.size > 1 ? take : 1;
            need /= take;
        }
        inside[g] = made;
    }
    reverse(cut->pair, made);
    for (uint32_t g = 0; g <= n; g++)
        cut->first[g] = made - inside[g];
    return true;
}

bool ckpt_view_cut_around(const struct ckpt_view *v, uint32_t dim, struct ckpt_cut *cut) {
    const int64_t sizes[3] = {ckpt_view_units_between(v, 0, dim), ckpt_view_units(v, dim),
                              ckpt_view_units_between(v, dim + 1, v->ndim)};
    return ckpt_view_cut(v, sizes, 3, cut);
}

void ckpt_view_set_pairs(struct ckpt_view *v, const struct ckpt_dim *pair, uint32_t n) {
    uint32_t made = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (pair[i].size == 1)
            continue;
        int64_t reach;
        struct ckpt_dim *const outer = made > 0 ? &v->pair[made - 1] : NULL;
        if (outer && ckpt_mul_i64(pair[i].size, pair[i].stride, &reach) && outer->stride == reach)
            *outer = (struct ckpt_dim){outer->size * pair[i].size, pair[i].stride};
        else
            v->pair[made++] = pair[i];
    }
    v->npairs = made;
}

void ckpt_view_set_empty(struct ckpt_view *v) {
    v->npairs = 0;
    v->offset = 0;
}

const char *ckpt_shape_text(char buf[CKPT_SHAPE_TEXT], const int64_t *shape, uint32_t ndim) {
    size_t n = (size_t)snprintf(buf, CKPT_SHAPE_TEXT, "[");
    for (uint32_t d = 0; d < ndim; d++) {
        if (n > CKPT_SHAPE_TEXT - 32) {
            n += (size_t)snprintf(buf + n, CKPT_SHAPE_TEXT - n, ", ...");
            break;
        }
        n += (size_t)snprintf(buf + n, CKPT_SHAPE_TEXT - n, "%s%" PRId64, d > 0 ? ", " : "",
                              shape[d]);
    }
    snprintf(buf + n, CKPT_SHAPE_TEXT - n, "]");
    return buf;
}

bool ckpt_view_straddles(const struct ckpt_view *v) {
    return v->unit_elements > 1 && v->ndim > 0 && v->shape[v->ndim - 1] % v->unit_elements != 0 &&
           ckpt_view_count(v) > 0;
}

int ckpt_view_check_dim(const struct ckpt_view *v, const char *operation, uint32_t dim,
                        struct ckpt_err *err) {
    char shape[CKPT_SHAPE_TEXT];
    if (dim < v->ndim)
        return ckpt_view_straddles(v) ? ckpt_view_refuse_packed(v, operation, err) : 0;
    return ckpt_fail(err, -EINVAL, "%s: dimension %u does not exist in shape %s", operation, dim,
                     ckpt_shape_text(shape, v->shape, v->ndim));
}

int ckpt_view_refuse(const struct ckpt_view *v, const char *operation, struct ckpt_err *err) {
    char shape[CKPT_SHAPE_TEXT], from[CKPT_SHAPE_TEXT], to[CKPT_SHAPE_TEXT];
    ckpt_shape_text(shape, v->shape, v->ndim);
    if (!v->reshape.done)
        return ckpt_fail(err, -EOPNOTSUPP,
                         "%s of shape %s is no strided walk over the source's bytes", operation,
                         shape);
    return ckpt_fail(err, -EOPNOTSUPP,
                     "%s of shape %s is no strided walk over the source's bytes: the reshape from "
                     "%s to %s before it put borders across strides; do it before the reshape",
                     operation, shape, ckpt_shape_text(from, v->reshape.from, v->reshape.from_ndim),
                     ckpt_shape_text(to, v->reshape.to, v->reshape.to_ndim));
}

int ckpt_view_refuse_packed(const struct ckpt_view *v, const char *operation,
                            struct ckpt_err *err) {
    char shape[CKPT_SHAPE_TEXT];
    return ckpt_fail(err, -EOPNOTSUPP,
                     "%s of shape %s would break up packed elements (%u in %u byte(s) along the "
                     "last dimension)",
                     operation, ckpt_shape_text(shape, v->shape, v->ndim), v->unit_elements,
                     v->esize);
}
