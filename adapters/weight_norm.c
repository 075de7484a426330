/*
 * The arithmetic goes by pieces of a walk whose elements share a norm, or have neighbouring ones:
 *
 *     walk of v [3, 4] as it lies     |0 0 0 0|1 1 1 1|2 2 2 2|    which norm
 *     the same, transposed            |0 1 2|0 1 2|0 1 2|0 1 2|
 */
#include "adapters/weight_norm.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/gather_kernels.h"
#include "adapters/reader_compute.h"
#include "base/cleanup.h"
#include "base/cpu.h"
#include "formats/decoded_cache.h"

#define CHUNK ((int64_t)1 << 17) /* elements computed at once: a MiB of doubles */
#define WORK_MOST 8              /* bytes of one while it is computed */

/* How a byte of v's storage tells the index along dim: at % outer / step. */
struct axis {
    int64_t size;
    int64_t step;  /* bytes from one index to the next; nothing is as far as NEVER */
    int64_t outer; /* bytes after which indices start again */
};
#define NEVER (INT64_MAX / 4)

struct weight_norm {
    struct ckpt_computed_blob computed; /* first */
    struct ckpt_weight_norm of;
    struct axis axis;
    const struct ckpt_walk *v_walk, *g_walk;
    enum ckpt_dtype work;      /* F32, or F64 for F64 */
    struct ckpt_decoded scale; /* g/||v||, a double an index */
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* --- runs --- */

/* The units of w from `unit` on, counted from v's first byte. */
static struct ckpt_run run_at(const struct weight_norm *wn, const struct ckpt_walk *w,
                              int64_t unit) {
    struct ckpt_run r = ckpt_walk_run(w, unit);
    r.at -= (int64_t)wn->of.v->offset;
    return r;
}

/* Elements whose cells are `delta` apart: 0, they share one. */
struct piece {
    int64_t n, index, delta;
};

static struct piece first_piece(const struct axis *a, const struct ckpt_run *r) {
    const int64_t inside = r->at % a->outer, index = inside / a->step;
    int64_t end = index < a->size ? least(a->outer, a->size * a->step) : a->outer;
    if (r->stride <= 0)
        return (struct piece){r->stride == 0 ? r->n : 1, index, 0};
    const bool steps = r->stride % a->step == 0;
    if (!steps)
        end = least(end, (index + 1) * a->step);
    const int64_t n = (end - inside + r->stride - 1) / r->stride;
    return (struct piece){least(n, r->n), index, steps ? r->stride / a->step : 0};
}

/* n elements and their cells. */
typedef void each_fn(double *cell, int64_t delta, uint8_t *elements, int64_t n);

/* Calls `each` for units [first, first + n) of w, which lie densely in `elements`. Bytes between
 * v's elements have no index and are passed over. */
static void for_pieces(const struct weight_norm *wn, const struct ckpt_walk *w, int64_t first,
                       int64_t n, double *cells, uint8_t *elements, uint32_t size, each_fn *each) {
    for (int64_t done = 0; done < n;) {
        struct ckpt_run r = run_at(wn, w, first + done);
        r.n = least(r.n, n - done);
        while (r.n > 0) {
            const struct piece p = first_piece(&wn->axis, &r);
            if (p.index < wn->axis.size)
                each(&cells[p.index], p.delta, elements + done * size, p.n);
            r.n -= p.n;
            r.at += p.n * r.stride;
            done += p.n;
        }
    }
}

static void add_squares(double *sum, int64_t delta, uint8_t *elements, int64_t n) {
    const double *const x = (const double *)elements;
    for (int64_t i = 0; i < n; i++)
        sum[i * delta] += x[i] * x[i];
}

static void scale_f32(double *scale, int64_t delta, uint8_t *elements, int64_t n) {
    float *const x = (float *)elements;
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] * scale[i * delta]);
}

static void scale_f64(double *scale, int64_t delta, uint8_t *elements, int64_t n) {
    double *const x = (double *)elements;
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale[i * delta];
}

/* --- the sources --- */

static int read_as(const struct ckpt_tensor *t, const struct ckpt_walk *w, enum ckpt_dtype as,
                   int64_t first, int64_t n, uint8_t *out, const struct ckpt_stop *stop,
                   struct ckpt_err *err) {
    const struct ckpt_part part = {.source = t, .walk = w};
    const struct ckpt_element_map map = {
        .from = t->dtype, .to = as, .swap = t->swap, .neg = t->neg};
    return ckpt_part_compute(&part, &map, first, n, out, stop, err);
}

static int sum_squares(const struct weight_norm *wn, double *sum, const struct ckpt_stop *stop,
                       struct ckpt_err *err) {
    CKPT_AUTO(free) double *x = malloc(CHUNK * sizeof *x);
    if (!x)
        return ckpt_fail_memory(err, "computing the norms of a weight");
    int rc = 0;
    for (int64_t done = 0; rc == 0 && done < wn->v_walk->count; done += CHUNK) {
        const int64_t n = least(wn->v_walk->count - done, CHUNK);
        rc = read_as(wn->of.v, wn->v_walk, CKPT_DT_F64, done, n, (uint8_t *)x, stop, err);
        if (rc == 0)
            for_pieces(wn, wn->v_walk, done, n, sum, (uint8_t *)x, sizeof *x, add_squares);
    }
    return rc;
}

/* ckpt_decoded.decode: the norms, then what each element is multiplied by. */
static int make_scale(struct ckpt_decoded *d, uint8_t *out, const struct ckpt_stop *stop,
                      struct ckpt_err *err) {
    const struct weight_norm *const wn =
        (const struct weight_norm *)((char *)d - offsetof(struct weight_norm, scale));
    const size_t n = (size_t)wn->axis.size;
    double *const scale = (double *)out;
    CKPT_AUTO(free) double *sum = calloc(n, sizeof *sum);
    if (!sum)
        return ckpt_fail_memory(err, "computing the norms of a weight");
    int rc = sum_squares(wn, sum, stop, err);
    if (rc == 0)
        rc = read_as(wn->of.g, wn->g_walk, CKPT_DT_F64, 0, wn->axis.size, out, stop, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        scale[i] /= sqrt(sum[i]);
    return rc;
}

/* --- the products --- */

static void convert(enum ckpt_dtype from, enum ckpt_dtype to, const uint8_t *src, int64_t n,
                    uint8_t *out) {
    const struct ckpt_element_map map = {.from = from, .to = to};
    const uint32_t size = ckpt_dtype_info(from)->unit_bytes;
    const struct ckpt_strip strip = {src, size, out, n, &map};
    ckpt_kernel_choose(&map, size, ckpt_cpu()->avx2).run(&strip);
}

static int multiply(struct weight_norm *wn, double *scale, const struct ckpt_walk *w,
                    const struct ckpt_element_map *map, int64_t first, int64_t n, uint8_t *out,
                    const struct ckpt_stop *stop, struct ckpt_err *err) {
    const enum ckpt_dtype dtype = wn->computed.dtype;
    const uint32_t size = ckpt_dtype_info(wn->work)->unit_bytes;
    const uint32_t out_size = ckpt_dtype_info(map->to)->unit_bytes;
    const int64_t most = least(n, CHUNK);
    CKPT_AUTO(free) uint8_t *work = malloc((size_t)most * 2 * WORK_MOST);
    if (!work)
        return ckpt_fail_memory(err, "computing a weight");
    uint8_t *const rounded = work + most * WORK_MOST;
    for (int64_t done = 0; done < n; done += CHUNK) {
        const int64_t some = least(n - done, CHUNK);
        const int rc = read_as(wn->of.v, w, wn->work, first + done, some, work, stop, err);
        if (rc < 0)
            return rc;
        for_pieces(wn, w, first + done, some, scale, work, size,
                   wn->work == CKPT_DT_F64 ? scale_f64 : scale_f32);
        convert(wn->work, dtype, work, some, rounded);
        convert(dtype, map->to, rounded, some, out + done * out_size);
    }
    return 0;
}

static int compute(struct ckpt_computed_blob *c, const struct ckpt_walk *w,
                   const struct ckpt_element_map *map, int64_t first, int64_t n, uint8_t *out,
                   const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct weight_norm *const wn = (struct weight_norm *)c;
    const uint8_t *scale;
    int rc = ckpt_decoded_pin(&wn->scale, &scale, stop, err);
    if (rc < 0)
        return rc;
    rc = multiply(wn, (double *)(uintptr_t)scale, w, map, first, n, out, stop, err);
    ckpt_decoded_unpin(&wn->scale);
    return rc;
}

/* --- making and freeing --- */

static bool is_float(enum ckpt_dtype t) {
    return t == CKPT_DT_F16 || t == CKPT_DT_BF16 || t == CKPT_DT_F32 || t == CKPT_DT_F64;
}

/* The dimension that g has a norm for each index of. */
static int find_dim(const struct ckpt_tensor *v, const struct ckpt_tensor *g, uint32_t *dim,
                    struct ckpt_err *err) {
    uint32_t others = 0;
    *dim = CKPT_WEIGHT_NORM_WHOLE;
    for (uint32_t d = 0; d < g->ndim; d++) {
        others += g->shape[d] != 1;
        if (g->shape[d] != 1)
            *dim = d;
    }
    const bool fits = others == 0 || (others == 1 && g->ndim == v->ndim &&
                                      g->shape[*dim] == v->shape[*dim] && g->shape[*dim] > 0);
    if (!fits || v->ndim == 0)
        return ckpt_fail(err, -EOPNOTSUPP,
                         "the shapes are not those of a weight norm, whose g has one dimension of "
                         "v's and 1 for the others");
    if (*dim != CKPT_WEIGHT_NORM_WHOLE && v->shape[*dim] > CKPT_WEIGHT_NORMS_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "%" PRId64 " norms; at most %" PRId64 " are computed",
                         v->shape[*dim], CKPT_WEIGHT_NORMS_MAX);
    return 0;
}

/* The strides, in bytes, of a dense tensor or its own. */
static int64_t stride_of(const struct ckpt_tensor *t, uint32_t dim) {
    int64_t stride = ckpt_dtype_info(t->dtype)->unit_bytes;
    if (t->stride)
        return stride * t->stride[dim];
    for (uint32_t d = dim + 1; d < t->ndim; d++)
        stride *= t->shape[d];
    return stride;
}

/* True if dimensions inside `dim` stay below its step, and those outside jump whole `outer`s. */
static bool find_axis(const struct ckpt_tensor *v, uint32_t dim, struct axis *a) {
    *a = (struct axis){1, NEVER, NEVER};
    if (dim == CKPT_WEIGHT_NORM_WHOLE || ckpt_tensor_count(v) == 0)
        return true;
    int64_t reach = 0;
    a->size = v->shape[dim];
    a->step = stride_of(v, dim);
    for (uint32_t d = 0; d < v->ndim; d++) {
        const int64_t stride = stride_of(v, d);
        if (d == dim || v->shape[d] == 1)
            continue;
        if (stride < 0)
            return false;
        if (stride < a->step)
            reach += (v->shape[d] - 1) * stride;
        else
            a->outer = stride < a->outer ? stride : a->outer;
    }
    for (uint32_t d = 0; d < v->ndim; d++)
        if (d != dim && v->shape[d] > 1 && stride_of(v, d) >= a->step &&
            stride_of(v, d) % a->outer != 0)
            return false;
    return a->step > reach && (a->size - 1) * a->step + reach < a->outer;
}

static int walk_of(struct ckpt_arena *a, const struct ckpt_tensor *t, const struct ckpt_walk **out,
                   struct ckpt_err *err) {
    struct ckpt_view view;
    const int rc = ckpt_view_init(&view, t, err);
    if (rc < 0)
        return rc;
    *out = ckpt_walk_pack(a, &view);
    return *out ? 0 : ckpt_fail_memory(err, "adapting tensors");
}

static void fini(struct ckpt_computed_blob *c) {
    ckpt_decoded_drop(&((struct weight_norm *)c)->scale);
}

static int check(struct weight_norm *wn, struct ckpt_err *err) {
    const struct ckpt_tensor *const v = wn->of.v, *const g = wn->of.g;
    if (!is_float(v->dtype) || !is_float(g->dtype))
        return ckpt_fail(err, -EOPNOTSUPP, "%s and %s: weight norm is computed from floats",
                         ckpt_dtype_info(v->dtype)->name, ckpt_dtype_info(g->dtype)->name);
    const int rc = find_dim(v, g, &wn->of.dim, err);
    /* A broadcast of few bytes may be endless to sum. */
    if (rc == 0 && (!find_axis(v, wn->of.dim, &wn->axis) || ckpt_tensor_bytes(v) > v->blob->size))
        return ckpt_fail(err, -EOPNOTSUPP, "the strides of v are those of an overlapping view");
    return rc;
}

int ckpt_weight_norm_new(struct ckpt_arena *a, const struct ckpt_tensor *v,
                         const struct ckpt_tensor *g, struct ckpt_decoded_cache *cache,
                         struct ckpt_computed_blob **out, struct ckpt_err *err) {
    struct weight_norm *const wn = ckpt_arena_alloc(a, sizeof *wn);
    if (!wn)
        return ckpt_fail_memory(err, "adapting tensors");
    wn->of.v = v;
    wn->of.g = g;
    int rc = check(wn, err);
    if (rc == 0)
        rc = walk_of(a, v, &wn->v_walk, err);
    if (rc == 0)
        rc = walk_of(a, g, &wn->g_walk, err);
    if (rc < 0)
        return rc;
    ckpt_computed_blob_init(&wn->computed, v->blob);
    wn->computed.dtype = v->dtype;
    wn->computed.phase = v->offset;
    wn->computed.in_place = true;
    wn->computed.op = "weight_norm";
    wn->computed.source[0] = v;
    wn->computed.source[1] = g;
    wn->computed.compute = compute;
    wn->computed.fini = fini;
    wn->work = v->dtype == CKPT_DT_F64 ? CKPT_DT_F64 : CKPT_DT_F32;
    wn->scale = (struct ckpt_decoded){.cache = cache,
                                      .decode = make_scale,
                                      .name = v->blob->name,
                                      .size = (uint64_t)wn->axis.size * sizeof(double)};
    *out = &wn->computed;
    return 0;
}

const struct ckpt_weight_norm *ckpt_weight_norm_of(struct ckpt_blob *b) {
    struct ckpt_computed_blob *const c = ckpt_computed_blob_of(b);
    return c && c->compute == compute ? &((struct weight_norm *)c)->of : NULL;
}
