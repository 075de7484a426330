/*
 * Views: slice, index and flip.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "adapters/view_cut.h"

/* A slice of a group of pairs, as it is narrowed from the outermost pair inwards. Numbers count
 * units along the group, flattened. */
struct range {
    int64_t start, len, step;
    int64_t offset; /* bytes gathered from pairs that turned out to be fixed */
    struct ckpt_dim *out;
    uint32_t nout;
};

/* Every unit of the range has the same place inside: add it up and stop. */
static void fold_rest(struct range *r, const struct ckpt_dim *pair, uint32_t n, int64_t inside) {
    for (uint32_t i = 0; i < n; i++) {
        inside /= pair[i].size;
        r->offset += r->start / inside * pair[i].stride;
        r->start %= inside;
    }
}

/*
 * At a pair with U units inside one index of it, the range is a product of walks only if it
 *   lies in one index                      -> fold that index, go on inside
 *   steps by whole indices                 -> this pair with a longer stride, inside fixed
 *   takes the same units of every index    -> this pair, and the same range inside each
 */
static bool slice_pairs(struct range *r, const struct ckpt_dim *pair, uint32_t n) {
    int64_t inside = 1;
    for (uint32_t i = 0; i < n; i++)
        inside *= pair[i].size;
    for (uint32_t i = 0; i < n; i++) {
        inside /= pair[i].size;
        const int64_t index = r->start / inside;
        const int64_t last = (r->start + (r->len - 1) * r->step) / inside;
        r->offset += index * pair[i].stride;
        r->start %= inside;
        if (index == last)
            continue;
        if (r->step % inside == 0) {
            r->out[r->nout++] = (struct ckpt_dim){r->len, pair[i].stride * (r->step / inside)};
            fold_rest(r, pair + i + 1, n - i - 1, inside);
            return true;
        }
        const int64_t each = inside / r->step; /* units taken of one index */
        if (inside % r->step != 0 || r->start >= r->step || r->len % each != 0)
            return false;
        r->out[r->nout++] = (struct ckpt_dim){r->len / each, pair[i].stride};
        r->len = each;
    }
    return true;
}

/* With step 1 the dimension and all inside it are one flat range, so only the dimension's outer
 * border is needed. */
static bool cut_for_slice(const struct ckpt_view *v, uint32_t dim, struct range *r,
                          struct ckpt_cut *cut) {
    if (r->step != 1)
        return ckpt_view_cut_around(v, dim, cut);
    const int64_t inside = ckpt_view_units_between(v, dim + 1, v->ndim);
    const int64_t sizes[3] = {ckpt_view_units_between(v, 0, dim), ckpt_view_units(v, dim) * inside,
                              1};
    r->start *= inside;
    r->len *= inside;
    return ckpt_view_cut(v, sizes, 3, cut);
}

static bool slice_walk(struct ckpt_view *v, uint32_t dim, int64_t start, int64_t len,
                       int64_t step) {
    struct ckpt_cut cut;
    struct ckpt_dim pair[CKPT_WALK_MAX];
    struct range r = {.start = start, .len = len, .step = len == 1 ? 1 : step, .out = pair};
    if (!cut_for_slice(v, dim, &r, &cut))
        return false;
    r.nout = cut.first[1];
    memcpy(pair, cut.pair, r.nout * sizeof *pair);
    if (!slice_pairs(&r, cut.pair + cut.first[1], cut.first[2] - cut.first[1]))
        return false;
    for (uint32_t i = cut.first[2]; i < cut.first[3]; i++)
        pair[r.nout++] = cut.pair[i];
    v->offset += r.offset;
    ckpt_view_set_pairs(v, pair, r.nout);
    return true;
}

static int check_range(const struct ckpt_view *v, const char *operation, uint32_t dim,
                       int64_t start, int64_t len, int64_t step, struct ckpt_err *err) {
    const int rc = ckpt_view_check_dim(v, operation, dim, err);
    if (rc < 0)
        return rc;
    const int64_t size = v->shape[dim];
    const bool inside = start >= 0 && len >= 0 && step >= 1 && start <= size &&
                        (len == 0 || (start < size && len - 1 <= (size - 1 - start) / step));
    char shape[CKPT_SHAPE_TEXT];
    return inside ? 0
                  : ckpt_fail(err, -EINVAL, "%s is outside dimension %u of shape %s", operation,
                              dim, ckpt_shape_text(shape, v->shape, v->ndim));
}

static int slice(struct ckpt_view *v, const char *operation, uint32_t dim, int64_t start,
                 int64_t len, int64_t step, struct ckpt_err *err) {
    const int rc = check_range(v, operation, dim, start, len, step, err);
    if (rc < 0 || len == v->shape[dim])
        return rc;
    if (len == 0) {
        ckpt_view_set_empty(v);
    } else if (ckpt_view_count(v) > 0) {
        const int64_t unit = dim + 1 == v->ndim ? v->unit_elements : 1;
        if (unit > 1 && (step != 1 || start % unit != 0 || len % unit != 0))
            return ckpt_view_refuse_packed(v, operation, err);
        if (!slice_walk(v, dim, start / unit, len / unit, step))
            return ckpt_view_refuse(v, operation, err);
    }
    v->shape[dim] = len;
    return 0;
}

int ckpt_view_slice(struct ckpt_view *v, uint32_t dim, int64_t start, int64_t len, int64_t step,
                    struct ckpt_err *err) {
    char operation[128];
    snprintf(operation, sizeof operation,
             "slice of %" PRId64 " from %" PRId64 " by %" PRId64 " along dimension %u", len, start,
             step, dim);
    return slice(v, operation, dim, start, len, step, err);
}

int ckpt_view_index(struct ckpt_view *v, uint32_t dim, int64_t at, struct ckpt_err *err) {
    char operation[96];
    snprintf(operation, sizeof operation, "index %" PRId64 " of dimension %u", at, dim);
    const int rc = slice(v, operation, dim, at, 1, 1, err);
    return rc < 0 ? rc : ckpt_view_squeeze(v, dim, err);
}

int ckpt_view_flip(struct ckpt_view *v, uint32_t dim, struct ckpt_err *err) {
    const int rc = ckpt_view_check_dim(v, "flip", dim, err);
    if (rc < 0 || v->shape[dim] == 1 || ckpt_view_count(v) == 0)
        return rc;
    if (v->unit_elements > 1 && dim + 1 == v->ndim)
        return ckpt_view_refuse_packed(v, "flip of the last dimension", err);
    struct ckpt_cut cut;
    if (!ckpt_view_cut_around(v, dim, &cut))
        return ckpt_view_refuse(v, "flip", err);
    for (uint32_t i = cut.first[1]; i < cut.first[2]; i++) {
        v->offset += (cut.pair[i].size - 1) * cut.pair[i].stride;
        cut.pair[i].stride = -cut.pair[i].stride;
    }
    ckpt_view_set_pairs(v, cut.pair, cut.first[3]);
    return 0;
}
