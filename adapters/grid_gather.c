/*
 * The array's axes, seen from its bytes in C order: a stride belongs to the axis whose own stride
 * is the largest that is not larger.
 *
 *     shape [3, 5], 4 bytes    axis 0: 20 bytes, axis 1: 4 bytes
 *     a walk's stride of 40    axis 0, two at a time
 *     a walk's (15, 4)         axis 1, but it runs over the axis' end: it is (3, 20)(5, 4)
 *
 * What can't be cut in a clean way (a slice that begins inside a row of a flattened array) is
 * halved until it can be; a single element always can.
 */
#include "adapters/grid_gather.h"

#include <string.h>

#include "adapters/reader_compute.h"
#include "base/guard.h"

struct axis {
    int64_t dense;  /* bytes from one index to the next in the array */
    int64_t size;   /* indices */
    int64_t chunk;  /* of them, in a chunk */
    int64_t stride; /* bytes from one index to the next in a chunk */
    uint64_t step;  /* from one chunk's number to the next one's */
    bool is_inside; /* not of the array but of its elements */
};

struct gather {
    struct ckpt_chunk_grid *grid;
    struct axis axis[CKPT_NDIM_MAX + 1]; /* those of more than one index, outermost first */
    uint32_t naxes;
    const struct ckpt_element_map *map;
    uint32_t esize; /* of the walk */
    const struct ckpt_stop *stop;
    struct ckpt_err *err;
    int rc;
};

/* Where a region lies along each axis. */
struct extent {
    int64_t at[CKPT_NDIM_MAX + 1]; /* of its first element */
    int64_t low[CKPT_NDIM_MAX + 1], high[CKPT_NDIM_MAX + 1];
    uint32_t axis[CKPT_WALK_MAX]; /* of each dim */
    int64_t step[CKPT_WALK_MAX];  /* indices of it */
};

/* --- axes ------------------------------------------------------------------------------------- */

static void list_axes(struct gather *ga) {
    const struct ckpt_chunk_grid *const g = ga->grid;
    struct axis all[CKPT_NDIM_MAX + 1];
    uint32_t n = 0;
    int64_t dense = g->esize;
    uint64_t step = 1;
    if (ga->esize < g->esize)
        all[n++] = (struct axis){.dense = ga->esize,
                                 .size = g->esize / ga->esize,
                                 .chunk = g->esize / ga->esize,
                                 .stride = ga->esize,
                                 .is_inside = true};
    for (uint32_t d = g->ndim; d-- > 0;) {
        if (g->shape[d] > 1)
            all[n++] = (struct axis){.dense = dense,
                                     .size = g->shape[d],
                                     .chunk = g->chunk[d],
                                     .stride = g->stride[d],
                                     .step = step};
        dense *= g->shape[d];
        step *= (uint64_t)g->count[d];
    }
    ga->naxes = n;
    for (uint32_t i = 0; i < n; i++)
        ga->axis[i] = all[n - 1 - i];
}

static int64_t magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

/* The axis that a stride other than 0 runs along; naxes: none. */
static uint32_t axis_of(const struct gather *ga, int64_t stride) {
    uint32_t a = 0;
    while (a < ga->naxes && ga->axis[a].dense > magnitude(stride))
        a++;
    return a;
}

/* Pairs that run over the end of their axis as pairs that don't, where that comes out even. The
 * walk has room for CKPT_WALK_MAX pairs. */
static void refine(const struct gather *ga, const struct ckpt_walk *w, struct ckpt_walk *out) {
    struct ckpt_dim reversed[CKPT_WALK_MAX];
    uint32_t n = 0;
    for (uint32_t i = w->npairs; i-- > 0;) {
        struct ckpt_dim p = w->pair[i];
        while (p.stride != 0 && n + i + 1 < CKPT_WALK_MAX) {
            const uint32_t a = axis_of(ga, p.stride);
            const int64_t length = a < ga->naxes ? ga->axis[a].dense * ga->axis[a].size : 0;
            const int64_t k = length / magnitude(p.stride);
            if (k < 2 || k >= p.size || p.size % k != 0 || length % magnitude(p.stride) != 0)
                break;
            reversed[n++] = (struct ckpt_dim){k, p.stride};
            p = (struct ckpt_dim){p.size / k, p.stride * k};
        }
        reversed[n++] = p;
    }
    out->offset = w->offset;
    out->esize = w->esize;
    out->count = w->count;
    out->npairs = n;
    for (uint32_t i = 0; i < n; i++)
        out->pair[i] = reversed[n - 1 - i];
}

/* --- cutting ---------------------------------------------------------------------------------- */

/* False: a dim fits no axis, or runs over the end of its own. */
static bool find_extent(const struct gather *ga, const struct ckpt_region *r, struct extent *e) {
    for (uint32_t a = 0; a < ga->naxes; a++)
        e->at[a] = e->low[a] = e->high[a] = r->src / ga->axis[a].dense % ga->axis[a].size;
    for (uint32_t d = 0; d < r->n; d++) {
        const uint32_t a = axis_of(ga, r->dim[d].src);
        e->axis[d] = a;
        e->step[d] = 0;
        if (r->dim[d].src == 0 || r->dim[d].size == 1)
            continue;
        if (a == ga->naxes || r->dim[d].src % ga->axis[a].dense != 0)
            return false;
        e->step[d] = r->dim[d].src / ga->axis[a].dense;
        const int64_t reach = (r->dim[d].size - 1) * e->step[d];
        *(reach < 0 ? &e->low[a] : &e->high[a]) += reach;
    }
    for (uint32_t a = 0; a < ga->naxes; a++)
        if (e->low[a] < 0 || e->high[a] >= ga->axis[a].size)
            return false;
    return true;
}

static uint32_t longest_dim(const struct ckpt_region *r) {
    uint32_t longest = 0;
    for (uint32_t d = 1; d < r->n; d++)
        if (r->dim[d].size > r->dim[longest].size)
            longest = d;
    return longest;
}

/* An axis along which it lies in several chunks; naxes: there is none. */
static uint32_t crossed_axis(const struct gather *ga, const struct extent *e) {
    uint32_t a = 0;
    while (a < ga->naxes && e->low[a] / ga->axis[a].chunk == e->high[a] / ga->axis[a].chunk)
        a++;
    return a;
}

/* The dim that reaches farthest along that axis, and how many of its indices are in the chunk where
 * it begins. */
static uint32_t dim_to_cut(const struct gather *ga, const struct ckpt_region *r,
                           const struct extent *e, uint32_t axis, int64_t *count) {
    uint32_t dim = 0;
    int64_t farthest = 0;
    for (uint32_t d = 0; d < r->n; d++) {
        const int64_t reach = magnitude((r->dim[d].size - 1) * e->step[d]);
        if (e->axis[d] == axis && reach > farthest) {
            farthest = reach;
            dim = d;
        }
    }
    const int64_t chunk = ga->axis[axis].chunk, inside = e->at[axis] % chunk;
    const int64_t step = magnitude(e->step[dim]);
    const int64_t left = e->step[dim] > 0 ? chunk - 1 - inside : inside;
    *count = left / step + 1;
    if (*count >= r->dim[dim].size) /* it is another dim of the axis that leaves the chunk */
        *count = r->dim[dim].size / 2;
    return dim;
}

/* Neighbours that are one run both in the chunk and in the output. */
static void merge_dims(struct ckpt_region *r) {
    uint32_t n = 0;
    for (uint32_t d = 0; d < r->n; d++) {
        const struct ckpt_region_dim dim = r->dim[d];
        if (dim.size == 1)
            continue;
        struct ckpt_region_dim *const last = n ? &r->dim[n - 1] : NULL;
        if (last && last->src == dim.size * dim.src && last->out == dim.size * dim.out)
            *last = (struct ckpt_region_dim){last->size * dim.size, dim.src, dim.out};
        else
            r->dim[n++] = dim;
    }
    r->n = n;
}

/* The bytes of the chunk that the region lies in. */
static void find_bounds(const struct gather *ga, const struct ckpt_region *part, uint64_t *lo,
                        uint64_t *hi) {
    int64_t low = part->src, high = part->src;
    for (uint32_t d = 0; d < part->n; d++) {
        const int64_t reach = (part->dim[d].size - 1) * part->dim[d].src;
        *(reach < 0 ? &low : &high) += reach;
    }
    *lo = (uint64_t)low;
    *hi = (uint64_t)high + ga->esize;
}

static int gather_guarded(struct gather *ga, struct ckpt_region *part, const uint8_t *base,
                          const struct ckpt_pin *pin) {
    volatile bool done = false;
    int rc;
    CKPT_GUARDED(rc, done = ckpt_gather_region(part, ga->map, ga->esize, base, ga->stop));
    if (rc)
        return ckpt_chunk_grid_lost(ga->grid, pin, ga->err);
    return done ? 0 : ckpt_fail_stopped(ga->err);
}

/* The region as one of a chunk's bytes; or of the fill value, which has no axes but those inside an
 * element. */
static void place_in_chunk(const struct gather *ga, const struct ckpt_region *r,
                           const struct extent *e, bool is_stored, struct ckpt_region *out) {
    *out = *r;
    out->src = 0;
    for (uint32_t a = 0; a < ga->naxes; a++)
        if (is_stored || ga->axis[a].is_inside)
            out->src += e->at[a] % ga->axis[a].chunk * ga->axis[a].stride;
    for (uint32_t d = 0; d < out->n; d++) {
        const struct axis *const axis = e->step[d] ? &ga->axis[e->axis[d]] : NULL;
        const bool moves = axis && (is_stored || axis->is_inside);
        out->dim[d].src = moves ? e->step[d] * axis->stride : 0;
    }
}

/* A region that lies in one chunk. */
static int copy_from_chunk(struct gather *ga, const struct ckpt_region *r, const struct extent *e) {
    struct ckpt_region part;
    struct ckpt_pin pin;
    uint64_t number = 0, lo, hi;
    for (uint32_t a = 0; a < ga->naxes; a++)
        number += (uint64_t)(e->at[a] / ga->axis[a].chunk) * ga->axis[a].step;
    place_in_chunk(ga, r, e, true, &part);
    find_bounds(ga, &part, &lo, &hi);
    int rc = ckpt_chunk_grid_pin(ga->grid, number, lo, hi, &pin, ga->stop, ga->err);
    if (rc)
        return rc;
    if (pin.data)
        part.src -= (int64_t)lo;
    else
        place_in_chunk(ga, r, e, false, &part);
    merge_dims(&part);
    rc = gather_guarded(ga, &part, pin.data ? pin.data : ga->grid->fill, &pin);
    if (rc == 0)
        rc = ckpt_chunk_grid_check(ga->grid, &pin, ga->err);
    ckpt_chunk_grid_unpin(&pin);
    return rc;
}

/* Each turn cuts off a part, which has less of a dim, and goes on with the rest. */
static int copy_region(struct gather *ga, struct ckpt_region *r) {
    struct extent e;
    for (;;) {
        int64_t count;
        uint32_t dim;
        if (!find_extent(ga, r, &e)) {
            dim = longest_dim(r);
            count = r->dim[dim].size / 2;
        } else {
            const uint32_t axis = crossed_axis(ga, &e);
            if (axis == ga->naxes)
                return copy_from_chunk(ga, r, &e);
            dim = dim_to_cut(ga, r, &e, axis, &count);
        }
        struct ckpt_region part = *r;
        part.dim[dim].size = count;
        const int rc = copy_region(ga, &part);
        if (rc)
            return rc;
        r->src += count * r->dim[dim].src;
        r->out += count * r->dim[dim].out;
        r->dim[dim].size -= count;
    }
}

static bool take_region(void *arg, struct ckpt_region *r) {
    struct gather *const ga = arg;
    ga->rc = copy_region(ga, r);
    return ga->rc == 0;
}

bool ckpt_grid_gather_can(const struct ckpt_chunk_grid *g, const struct ckpt_walk *w) {
    return g->esize % w->esize == 0;
}

int ckpt_grid_gather(struct ckpt_chunk_grid *g, const struct ckpt_walk *w,
                     const struct ckpt_element_map *map, int64_t first, int64_t n, uint8_t *out,
                     const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct gather ga = {.grid = g, .map = map, .esize = w->esize, .stop = stop, .err = err};
    union {
        struct ckpt_walk walk;
        uint8_t room[sizeof(struct ckpt_walk) + CKPT_WALK_MAX * sizeof(struct ckpt_dim)];
    } refined;
    list_axes(&ga);
    refine(&ga, w, &refined.walk);
    (void)ckpt_walk_regions(&refined.walk, ckpt_map_out_bytes(map, w->esize), first, n, out,
                            take_region, &ga);
    return ga.rc;
}
