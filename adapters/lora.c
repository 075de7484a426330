/*
 * Elements are computed by pieces of a walk along which one factor's row stays and the other's
 * elements pass by, at a distance of their own:
 *
 *     walk along n (as w lies)      a[i, k] stays      b[k, j], b[k, j + 1], ...
 *     walk along m (transposed)     b[k, j] stays      a[i, k], a[i + 1, k], ...
 *
 * So that both run over neighbours, a is kept transposed: [matrices, rank, m].
 */
#include "adapters/lora.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/gather_kernels.h"
#include "adapters/reader_compute.h"
#include "adapters/view_cut.h"
#include "base/cleanup.h"
#include "base/cpu.h"
#include "formats/decoded_cache.h"

#define CHUNK ((int64_t)1 << 16) /* elements computed at once */
#define BLOCK 256                /* of a piece, whose sums lie on the stack */

struct lora {
    struct ckpt_computed_blob computed; /* first */
    struct ckpt_lora of;
    int64_t m, n, rank;
    int64_t summed,
        inner;  /* matrices along the axis that is added up; behind each of its indices */
    int64_t nb; /* elements of b, added up */
    const struct ckpt_walk *a_walk, *b_walk; /* of a transposed; of b, the summed axis first */
    struct ckpt_decoded factors;             /* a, then b */
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* --- the factors ------------------------------------------------------------------------------ */

static int read_floats(const struct ckpt_tensor *t, const struct ckpt_walk *w, int64_t first,
                       int64_t n, float *out, const struct ckpt_stop *stop, struct ckpt_err *err) {
    const struct ckpt_part part = {.source = t, .walk = w};
    const struct ckpt_element_map map = {
        .from = t->dtype, .to = CKPT_DT_F32, .swap = t->swap, .neg = t->neg};
    return ckpt_part_compute(&part, &map, first, n, (uint8_t *)out, stop, err);
}

/* Elements [first, first + n) of b: all indices of the summed axis added up. */
static int sum_some(const struct lora *l, int64_t first, int64_t n, float *out,
                    const struct ckpt_stop *stop, struct ckpt_err *err) {
    float b[BLOCK];
    memset(out, 0, (size_t)n * sizeof *out);
    for (int64_t s = 0; s < l->summed; s++) {
        const int rc = read_floats(l->of.b, l->b_walk, s * l->nb + first, n, b, stop, err);
        if (rc < 0)
            return rc;
        for (int64_t i = 0; i < n; i++)
            out[i] += b[i];
    }
    return 0;
}

static int read_b(const struct lora *l, float *out, const struct ckpt_stop *stop,
                  struct ckpt_err *err) {
    if (l->summed == 1)
        return read_floats(l->of.b, l->b_walk, 0, l->nb, out, stop, err);
    int rc = 0;
    for (int64_t done = 0; rc == 0 && done < l->nb; done += BLOCK)
        rc = sum_some(l, done, least(l->nb - done, BLOCK), out + done, stop, err);
    return rc;
}

/* ckpt_decoded.decode */
static int read_factors(struct ckpt_decoded *d, uint8_t *out, const struct ckpt_stop *stop,
                        struct ckpt_err *err) {
    const struct lora *const l = (const struct lora *)((char *)d - offsetof(struct lora, factors));
    float *const a = (float *)out;
    const int rc = read_floats(l->of.a, l->a_walk, 0, l->a_walk->count, a, stop, err);
    return rc < 0 ? rc : read_b(l, a + l->a_walk->count, stop, err);
}

/* --- the products ----------------------------------------------------------------------------- */

/* Factors as a piece sees them: element k of each is `step` floats behind the one before. */
struct piece {
    int64_t n;           /* elements of w that share the first factor */
    const float *stays;  /* its row */
    int64_t stays_step;  /* from k to the next */
    const float *passes; /* the second factor of the first element */
    int64_t passes_step;
    int64_t stride; /* from one element's to the next one's */
};

/* The elements from `at` on, `step` apart and at most n, that are one piece. */
static struct piece next_piece(const struct lora *l, const float *factors, int64_t at, int64_t step,
                               int64_t n) {
    const int64_t matrix = at / (l->m * l->n), i = at / l->n % l->m, j = at % l->n;
    const int64_t of_b = matrix / (l->summed * l->inner) * l->inner + matrix % l->inner;
    const float *const a = factors + matrix * l->m * l->rank + i;
    const float *const b = factors + l->a_walk->count + of_b * l->rank * l->n + j;
    const int64_t down = step > 0 && step % l->n == 0 ? step / l->n : 0;
    if (down > 0 && down < l->m)
        return (struct piece){least(n, (l->m - i + down - 1) / down), b, l->n, a, l->m, down};
    const bool along = step > 0 && step < l->n;
    return (struct piece){
        along ? least(n, (l->n - j + step - 1) / step) : 1, a, l->m, b, l->n, along ? step : 0};
}

/* sum + a * b, rounded to float once (but for a double in between): a product of floats is exact in
 * double. What a processor's fused operation gives, and the same everywhere. */
static float multiply_add(float sum, float a, float b) {
    return (float)((double)sum + (double)a * (double)b);
}

/* Adds the products to n <= BLOCK elements. */
static void add_products(const struct piece *p, int64_t first, int64_t n, int64_t rank,
                         float *out) {
    float sum[BLOCK] = {0};
    for (int64_t k = 0; k < rank; k++) {
        const float stays = p->stays[k * p->stays_step];
        const float *const passes = p->passes + k * p->passes_step + first * p->stride;
        if (p->stride == 1)
            for (int64_t i = 0; i < n; i++)
                sum[i] = multiply_add(sum[i], stays, passes[i]);
        else
            for (int64_t i = 0; i < n; i++)
                sum[i] = multiply_add(sum[i], stays, passes[i * p->stride]);
    }
    for (int64_t i = 0; i < n; i++)
        out[i] += sum[i];
}

/* Adds the products to units [first, first + n) of a walk over the result, which hold w. */
static void add_to_units(const struct lora *l, const float *factors, const struct ckpt_walk *w,
                         int64_t first, int64_t n, float *out) {
    for (int64_t done = 0; done < n;) {
        struct ckpt_run run = ckpt_walk_run(w, first + done);
        run.n = least(run.n, n - done);
        int64_t at = run.at / (int64_t)sizeof(float);
        const int64_t step = run.stride / (int64_t)sizeof(float);
        while (run.n > 0) {
            const struct piece p = next_piece(l, factors, at, step, run.n);
            for (int64_t i = 0; i < p.n; i += BLOCK)
                add_products(&p, i, least(p.n - i, BLOCK), l->rank, out + done + i);
            at += p.n * step;
            run.n -= p.n;
            done += p.n;
        }
    }
}

static void convert(const float *from, enum ckpt_dtype to, int64_t n, uint8_t *out) {
    const struct ckpt_element_map map = {.from = CKPT_DT_F32, .to = to};
    const struct ckpt_strip strip = {(const uint8_t *)from, sizeof *from, out, n, &map};
    ckpt_kernel_choose(&map, sizeof *from, ckpt_cpu()->avx2).run(&strip);
}

/* The same walk over w itself, whose elements may be of another size. */
static struct ckpt_walk *walk_of_source(const struct lora *l, const struct ckpt_walk *w) {
    struct ckpt_walk *const out = malloc(sizeof *out + (w->npairs + 1) * sizeof out->pair[0]);
    if (!out)
        return NULL;
    const int64_t size = ckpt_dtype_info(l->of.w->dtype)->unit_bytes;
    *out = (struct ckpt_walk){.offset = (int64_t)l->of.w->offset +
                                        w->offset / (int64_t)sizeof(float) * size,
                              .esize = (uint32_t)size,
                              .npairs = w->npairs,
                              .count = w->count};
    for (uint32_t i = 0; i < w->npairs; i++)
        out->pair[i] =
            (struct ckpt_dim){w->pair[i].size, w->pair[i].stride / (int64_t)sizeof(float) * size};
    return out;
}

static int compute_some(struct lora *l, const float *factors, const struct ckpt_walk *w,
                        const struct ckpt_element_map *map, int64_t first, int64_t n, uint8_t *out,
                        const struct ckpt_stop *stop, struct ckpt_err *err) {
    CKPT_AUTO(free) struct ckpt_walk *source = walk_of_source(l, w);
    CKPT_AUTO(free) float *work = malloc((size_t)least(n, CHUNK) * sizeof *work);
    if (!source || !work)
        return ckpt_fail_memory(err, "merging LoRA's factors");
    for (int64_t done = 0; done < n; done += CHUNK) {
        const int64_t some = least(n - done, CHUNK);
        const int rc = read_floats(l->of.w, source, first + done, some, work, stop, err);
        if (rc < 0)
            return rc;
        add_to_units(l, factors, w, first + done, some, work);
        convert(work, map->to, some, out + done * ckpt_dtype_info(map->to)->unit_bytes);
    }
    return 0;
}

static int compute(struct ckpt_computed_blob *c, const struct ckpt_walk *w,
                   const struct ckpt_element_map *map, int64_t first, int64_t n, uint8_t *out,
                   const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct lora *const l = (struct lora *)c;
    const uint8_t *factors;
    int rc = ckpt_decoded_pin(&l->factors, &factors, stop, err);
    if (rc < 0)
        return rc;
    rc = compute_some(l, (const float *)(const void *)factors, w, map, first, n, out, stop, err);
    ckpt_decoded_unpin(&l->factors);
    return rc;
}

/* --- making and freeing ----------------------------------------------------------------------- */

static bool is_float(const struct ckpt_tensor *t) {
    return t->dtype == CKPT_DT_F16 || t->dtype == CKPT_DT_BF16 || t->dtype == CKPT_DT_F32 ||
           t->dtype == CKPT_DT_F64;
}

static int fail_shapes(const struct ckpt_lora *of, struct ckpt_err *err) {
    char w[CKPT_SHAPE_TEXT], a[CKPT_SHAPE_TEXT], b[CKPT_SHAPE_TEXT];
    return ckpt_fail(err, -EINVAL,
                     "%s and %s are no factors of a weight %s, which are [..., in, rank] and "
                     "[..., rank, out]",
                     ckpt_shape_text(a, of->a->shape, of->a->ndim),
                     ckpt_shape_text(b, of->b->shape, of->b->ndim),
                     ckpt_shape_text(w, of->w->shape, of->w->ndim));
}

static int check(const struct ckpt_lora *of, struct ckpt_err *err) {
    const struct ckpt_tensor *const w = of->w, *const a = of->a, *const b = of->b;
    const uint32_t nd = w->ndim;
    if (!is_float(w) || !is_float(a) || !is_float(b))
        return ckpt_fail(err, -EINVAL, "%s, %s and %s: factors are merged where all are floats",
                         ckpt_dtype_info(w->dtype)->name, ckpt_dtype_info(a->dtype)->name,
                         ckpt_dtype_info(b->dtype)->name);
    bool fits = nd >= 2 && a->ndim == nd && b->ndim == nd;
    for (uint32_t d = 0; fits && d < nd; d++) {
        const int64_t like_a = d + 1 == nd ? b->shape[d - 1] : w->shape[d];
        const int64_t like_b = d + 2 == nd ? a->shape[d + 1] : w->shape[d];
        fits = a->shape[d] == like_a && b->shape[d] == like_b && w->shape[d] > 0;
    }
    fits = fits && (of->sum == CKPT_LORA_NO_SUM || of->sum + 2 < nd);
    return fits ? 0 : fail_shapes(of, err);
}

static int pack(struct ckpt_arena *arena, const struct ckpt_tensor *t, const uint32_t *order,
                const struct ckpt_walk **out, struct ckpt_err *err) {
    struct ckpt_view view;
    int rc = ckpt_view_init(&view, t, err);
    if (rc == 0)
        rc = ckpt_view_permute(&view, order, t->ndim, err);
    if (rc < 0)
        return rc;
    *out = ckpt_walk_pack(arena, &view);
    return *out ? 0 : ckpt_fail_memory(err, "adapting tensors");
}

/* a with its last axes exchanged; b with the summed axis first. */
static int pack_factors(struct lora *l, struct ckpt_arena *arena, struct ckpt_err *err) {
    const uint32_t nd = l->of.w->ndim;
    uint32_t a[CKPT_NDIM_MAX], b[CKPT_NDIM_MAX], at = 0;
    for (uint32_t d = 0; d < nd; d++)
        a[d] = d;
    a[nd - 2] = nd - 1;
    a[nd - 1] = nd - 2;
    if (l->of.sum != CKPT_LORA_NO_SUM)
        b[at++] = l->of.sum;
    for (uint32_t d = 0; d < nd; d++)
        if (d != l->of.sum)
            b[at++] = d;
    const int rc = pack(arena, l->of.a, a, &l->a_walk, err);
    return rc < 0 ? rc : pack(arena, l->of.b, b, &l->b_walk, err);
}

static void measure(struct lora *l) {
    const struct ckpt_tensor *const w = l->of.w;
    const uint32_t nd = w->ndim;
    l->m = w->shape[nd - 2];
    l->n = w->shape[nd - 1];
    l->rank = l->of.a->shape[nd - 1];
    l->summed = l->inner = 1;
    if (l->of.sum != CKPT_LORA_NO_SUM) {
        l->summed = w->shape[l->of.sum];
        for (uint32_t d = l->of.sum + 1; d + 2 < nd; d++)
            l->inner *= w->shape[d];
    }
    l->nb = l->b_walk->count / l->summed;
}

/* A walk over the result is one over w only if w lies in C order, too. */
static int check_order(const struct ckpt_tensor *w, struct ckpt_err *err) {
    struct ckpt_view view;
    const int rc = ckpt_view_init(&view, w, err);
    return rc < 0 || ckpt_view_contiguous(&view)
               ? rc
               : ckpt_fail(err, -EINVAL, "the weight is not stored in C order, or not at all");
}

static void fini(struct ckpt_computed_blob *c) {
    ckpt_decoded_drop(&((struct lora *)c)->factors);
}

int ckpt_lora_new(struct ckpt_arena *arena, const struct ckpt_lora *of,
                  struct ckpt_decoded_cache *cache, struct ckpt_computed_blob **out,
                  struct ckpt_err *err) {
    struct lora *const l = ckpt_arena_alloc(arena, sizeof *l);
    if (!l)
        return ckpt_fail_memory(err, "adapting tensors");
    l->of = *of;
    int rc = check(of, err);
    if (rc == 0)
        rc = check_order(of->w, err);
    if (rc == 0)
        rc = pack_factors(l, arena, err);
    if (rc < 0)
        return rc;
    measure(l);
    ckpt_computed_blob_init(&l->computed, of->w->blob);
    l->computed.blob.size = (uint64_t)ckpt_tensor_count(of->w) * sizeof(float);
    l->computed.dtype = CKPT_DT_F32;
    l->computed.op = "lora";
    l->computed.source[0] = of->w;
    l->computed.source[1] = of->a;
    l->computed.source[2] = of->b;
    l->computed.compute = compute;
    l->computed.fini = fini;
    l->factors =
        (struct ckpt_decoded){.cache = cache,
                              .decode = read_factors,
                              .name = of->w->blob->name,
                              .size = (uint64_t)(l->a_walk->count + l->nb) * sizeof(float)};
    *out = &l->computed;
    return 0;
}

const struct ckpt_lora *ckpt_lora_of(struct ckpt_blob *b) {
    struct ckpt_computed_blob *const c = ckpt_computed_blob_of(b);
    return c && c->compute == compute ? &((struct lora *)c)->of : NULL;
}
