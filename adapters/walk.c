/*
 * Walks: what is kept of a view.
 */
#include <stddef.h>
#include <string.h>

#include "adapters/view.h"

static bool contiguous(const struct ckpt_dim *pair, uint32_t npairs, uint32_t esize) {
    return npairs == 0 || (npairs == 1 && pair[0].stride == esize);
}

bool ckpt_view_contiguous(const struct ckpt_view *v) {
    return contiguous(v->pair, v->npairs, v->esize);
}

bool ckpt_walk_contiguous(const struct ckpt_walk *w) {
    return contiguous(w->pair, w->npairs, w->esize);
}

struct ckpt_walk *ckpt_walk_pack(struct ckpt_arena *a, const struct ckpt_view *v) {
    struct ckpt_walk *const w =
        ckpt_arena_alloc(a, offsetof(struct ckpt_walk, pair) + v->npairs * sizeof w->pair[0]);
    if (!w)
        return NULL;
    w->offset = v->offset;
    w->esize = v->esize;
    w->npairs = v->npairs;
    w->count = ckpt_view_count(v) / v->unit_elements;
    memcpy(w->pair, v->pair, v->npairs * sizeof w->pair[0]);
    return w;
}

void ckpt_view_unpack(struct ckpt_view *v, const struct ckpt_walk *w, const int64_t *shape,
                      uint32_t ndim) {
    v->offset = w->offset;
    v->npairs = w->npairs;
    memcpy(v->pair, w->pair, w->npairs * sizeof w->pair[0]);
    v->ndim = ndim;
    memcpy(v->shape, shape, ndim * sizeof *shape);
}

bool ckpt_walk_equal(const struct ckpt_walk *a, const struct ckpt_walk *b) {
    return a->offset == b->offset && a->esize == b->esize && a->count == b->count &&
           a->npairs == b->npairs && memcmp(a->pair, b->pair, a->npairs * sizeof a->pair[0]) == 0;
}

struct ckpt_run ckpt_walk_run(const struct ckpt_walk *w, int64_t unit) {
    struct ckpt_run r = {.at = w->offset, .stride = w->esize, .n = 1};
    for (uint32_t i = w->npairs; i-- > 0;) {
        const int64_t index = unit % w->pair[i].size;
        if (i + 1 == w->npairs) {
            r.stride = w->pair[i].stride;
            r.n = w->pair[i].size - index;
        }
        r.at += index * w->pair[i].stride;
        unit /= w->pair[i].size;
    }
    return r;
}

/* While first and last unit share an index it is fixed; from the first pair where they differ every
 * index between theirs, and further inside every index at all, may occur. The bounds of the inner
 * pairs are therefore those of the pair's whole extent: close enough, and never too narrow. */
void ckpt_walk_bounds(const struct ckpt_walk *w, int64_t first, int64_t n, int64_t *lo,
                      int64_t *hi) {
    int64_t low = w->offset, high = w->offset, inside = w->count, last = first + n - 1;
    bool fixed = true;
    for (uint32_t i = 0; i < w->npairs; i++) {
        inside /= w->pair[i].size;
        const int64_t from = fixed ? first / inside : 0;
        const int64_t to = fixed ? last / inside : w->pair[i].size - 1;
        const int64_t a = from * w->pair[i].stride, b = to * w->pair[i].stride;
        low += a < b ? a : b;
        high += a < b ? b : a;
        fixed = fixed && from == to;
        first %= inside;
        last %= inside;
    }
    *lo = low;
    *hi = high + w->esize;
}
