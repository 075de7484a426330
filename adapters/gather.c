/*
 * Copying a range of a walk. Three steps, none of which allocates (the SIGBUS guard may leave at
 * any instruction):
 *
 *   1. range -> regions    A range of a walk of p pairs is at most 2p-1 products of whole ranges:
 *                          part of a first index, whole indices, part of a last; then inwards.
 *
 *                              walk (4,..)(6,..)    range [3, 20)
 *                              . . . x x x     1 x 3   (inside the first index)
 *                              x x x x x x  \
 *                              x x x x x x  /  2 x 6   (whole indices)
 *                              x x . . . .     1 x 2   (inside the last)
 *
 *   2. region -> case      RUN, STRIDED or TILE, from the strides (gather.h)
 *   3. case -> kernels     for each index of the dims outside the kernel's own
 *
 * In a TILE the rows are all dims inside the column, stepped through once a block into a table of
 * 64 source offsets, so that a permutation of any rank is the same code as a matrix transposition.
 * Columns are then walked 8 at a time, and for each the 64 rows 8 at a time: the block's source
 * lines stay in L1 until all their columns are used.
 *
 * Not so where output rows are some 4 KiB apart, as in all networks whose width is a power of two:
 * those lines share the few places that L1 has for them, and the source's often do as well. There a
 * block goes by way of a small buffer on the stack, source lines are read once, whole, and so are
 * output lines written (measured: 1.2 to 2.5 times faster).
 */
#include "adapters/gather.h"

#include <string.h>

#include "adapters/gather_kernels.h"
#include "base/cpu.h"

#define NEAR_BYTES 32 /* strides up to this use their cache lines while in L1 */
#define BLOCK_ROWS 64 /* rows of a table of offsets */
#define LINE_BYTES 64
#define AHEAD_BYTES 128   /* source lines are fetched so much before they are needed */
#define L1_WAY_BYTES 4096 /* addresses that differ by multiples of it compete in L1 */
#define STAGE_BYTES (16 << 10)
#define STOP_BYTES (1 << 20) /* output between two questions whether to stop */
#define FAR 4096             /* bytes from one to the next, whose page may have to be read first: */
#define FAR_BYTES 2048       /* it counts as so much output */

struct job {
    const struct ckpt_element_map *map;
    const uint8_t *base; /* sources count from here */
    uint32_t esize;
    bool avx2, identity;
    int64_t out_bytes; /* of an element */
    const struct ckpt_stop *stop;
    int64_t unasked; /* output bytes since the last question */
};

/* --- stepping through dims --- */

struct odometer {
    const struct ckpt_region_dim *dim;
    uint32_t n;
    int64_t src, out; /* offsets of the current index */
    int64_t at[CKPT_WALK_MAX];
};

static void odometer_start(struct odometer *o, const struct ckpt_region_dim *dim, uint32_t n) {
    o->dim = dim;
    o->n = n;
    o->src = o->out = 0;
    memset(o->at, 0, n * sizeof *o->at);
}

/* False when the last index was passed; then it stands at the first again. */
static bool odometer_next(struct odometer *o) {
    for (uint32_t d = o->n; d-- > 0;) {
        const struct ckpt_region_dim *const dim = &o->dim[d];
        o->src += dim->src;
        o->out += dim->out;
        if (++o->at[d] < dim->size)
            return true;
        o->src -= dim->size * dim->src;
        o->out -= dim->size * dim->out;
        o->at[d] = 0;
    }
    return false;
}

/* What an element or a row of so many bytes counts. */
static int64_t weight(int64_t bytes, int64_t stride) {
    const bool is_far = stride >= FAR || stride <= -FAR;
    return is_far && bytes < FAR_BYTES ? FAR_BYTES : bytes;
}

static bool stopped(struct job *j, int64_t bytes) {
    j->unasked += bytes;
    if (j->unasked < STOP_BYTES)
        return false;
    j->unasked = 0;
    return ckpt_stop_asked(j->stop);
}

/* --- RUN and STRIDED --- */

/* One line of n elements, in pieces between which it may be stopped. */
static bool copy_line(struct job *j, const struct ckpt_kernel *k, struct ckpt_strip s,
                      int64_t esize, int64_t out_bytes) {
    const int64_t n = s.n, each = weight(out_bytes, s.src_stride), piece = STOP_BYTES / each;
    for (int64_t done = 0; done < n; done += s.n) {
        s.n = n - done < piece ? n - done : piece;
        if (s.src_stride == esize)
            k->run(&s);
        else
            k->strided(&s);
        if (stopped(j, s.n * each))
            return false;
        s.src += s.n * s.src_stride;
        s.out += s.n * out_bytes;
    }
    return true;
}

static bool copy_lines(struct job *j, const struct ckpt_kernel *k, const struct ckpt_region *r,
                       int64_t esize, int64_t out_bytes) {
    struct odometer o;
    const uint32_t outer = r->n > 0 ? r->n - 1 : 0;
    struct ckpt_strip s = {.src_stride = r->n > 0 ? r->dim[outer].src : esize,
                           .n = r->n > 0 ? r->dim[outer].size : 1,
                           .map = j->map};
    odometer_start(&o, r->dim, outer);
    do {
        s.src = j->base + r->src + o.src;
        s.out = r->out + o.out;
        if (!copy_line(j, k, s, esize, out_bytes))
            return false;
    } while (odometer_next(&o));
    return true;
}

/* --- TILE --- */

/* The source offsets of the next n rows, whose first lines are fetched meanwhile. */
static void fill_rows(struct odometer *rows, const uint8_t *src, int64_t *row, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        row[i] = rows->src;
        for (int line = 0; line < AHEAD_BYTES; line += LINE_BYTES)
            __builtin_prefetch(src + row[i] + line);
        odometer_next(rows);
    }
}

/* 64 rows or fewer times all columns. */
struct block {
    const struct ckpt_kernel *k;
    struct ckpt_tile all;
    bool touching; /* so that full tiles have their own kernel */
    int64_t esize, out_bytes;
};

/* 64 rows are more streams than the processor follows by itself. */
static void prefetch_rows(const struct ckpt_tile *t, int64_t from, int64_t to) {
    for (int64_t at = from; at < to; at += LINE_BYTES)
        for (int64_t r = 0; r < t->nrows; r++)
            __builtin_prefetch(t->src + t->row[r] + at);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void copy_tile(const struct block *b, const struct ckpt_tile *t) {
    if (b->touching && t->nrows == CKPT_TILE && t->ncols == CKPT_TILE)
        b->k->tile_full(t);
    else
        b->k->tile(t);
}

/* Columns first: the source's lines stay in L1 until all their columns are used. */
static void copy_block(const struct block *b) {
    const struct ckpt_tile *const all = &b->all;
    const int64_t step = CKPT_TILE * all->col_stride;
    struct ckpt_tile t = *all;
    for (int64_t c = 0; c < all->ncols; c += CKPT_TILE, t.src += step) {
        const int64_t at = t.src - all->src;
        const bool new_line = at / LINE_BYTES != (at + step) / LINE_BYTES;
        t.ncols = least(all->ncols - c, CKPT_TILE);
        t.out = all->out + c * t.out_stride;
        for (int64_t r = 0; r < all->nrows; r += CKPT_TILE) {
            t.row = all->row + r;
            t.nrows = least(all->nrows - r, CKPT_TILE);
            if (new_line)
                prefetch_rows(&t, AHEAD_BYTES, AHEAD_BYTES + LINE_BYTES);
            copy_tile(b, &t);
            t.out += CKPT_TILE * b->out_bytes;
        }
    }
}

/* Rows first: their lines are used up before others need their places. */
static void copy_block_by_rows(const struct block *b) {
    const struct ckpt_tile *const all = &b->all;
    struct ckpt_tile t = *all;
    for (int64_t r = 0; r < all->nrows; r += CKPT_TILE) {
        t.row = all->row + r;
        t.nrows = least(all->nrows - r, CKPT_TILE);
        t.src = all->src;
        t.out = all->out + r * b->out_bytes;
        prefetch_rows(&t, AHEAD_BYTES, 2 * AHEAD_BYTES);
        for (int64_t c = 0; c < all->ncols; c += CKPT_TILE) {
            t.ncols = least(all->ncols - c, CKPT_TILE);
            copy_tile(b, &t);
            t.src += CKPT_TILE * t.col_stride;
            t.out += CKPT_TILE * t.out_stride;
        }
    }
}

static void store_lines(const struct ckpt_tile *staged, uint8_t *out, int64_t out_stride) {
    for (int64_t c = 0; c < staged->ncols; c++)
        for (int64_t at = 0; at < staged->out_stride; at += LINE_BYTES)
            memcpy(out + c * out_stride + at, staged->out + c * staged->out_stride + at,
                   LINE_BYTES);
}

/* 64 rows, some columns at a time: so many as are AHEAD_BYTES of source and fit into the buffer. */
static void copy_block_staged(const struct block *b) {
    _Alignas(LINE_BYTES) uint8_t stage[STAGE_BYTES];
    struct block part = *b;
    part.all.out = stage;
    part.all.out_stride = BLOCK_ROWS * b->out_bytes;
    const int64_t width = least(AHEAD_BYTES / b->esize, STAGE_BYTES / part.all.out_stride);
    for (int64_t c = 0; c < b->all.ncols; c += width) {
        part.all.src = b->all.src + c * b->all.col_stride;
        part.all.ncols = least(width, b->all.ncols - c);
        copy_block_by_rows(&part);
        store_lines(&part.all, b->all.out + c * b->all.out_stride, b->all.out_stride);
    }
}

/* One index of the dims outside the column. */
static bool copy_plane(struct job *j, const struct ckpt_kernel *k, const struct ckpt_region *r,
                       uint32_t column, struct ckpt_tile t, bool touching, int64_t esize,
                       int64_t out_bytes) {
    int64_t row[BLOCK_ROWS], nrows = 1;
    uint8_t *const out = t.out;
    struct odometer rows;
    for (uint32_t d = column + 1; d < r->n; d++)
        nrows *= r->dim[d].size;
    odometer_start(&rows, r->dim + column + 1, r->n - column - 1);
    for (int64_t first = 0; first < nrows; first += t.nrows) {
        t.nrows = nrows - first < BLOCK_ROWS ? nrows - first : BLOCK_ROWS;
        t.row = row;
        t.out = out + first * out_bytes;
        fill_rows(&rows, t.src, row, t.nrows);
        const struct block b = {k, t, touching, esize, out_bytes};
        if (t.nrows == BLOCK_ROWS && t.out_stride % L1_WAY_BYTES == 0)
            copy_block_staged(&b);
        else
            copy_block(&b);
        const int64_t apart = t.nrows > 1 ? row[1] - row[0] : 0;
        if (stopped(j, t.nrows * weight(t.ncols * out_bytes, apart)))
            return false;
    }
    return true;
}

static bool copy_tiles(struct job *j, const struct ckpt_kernel *k, const struct ckpt_region *r,
                       uint32_t column, int64_t esize, int64_t out_bytes) {
    const struct ckpt_region_dim *const c = &r->dim[column];
    const bool touching = k->tile_full && c->src == esize;
    struct ckpt_tile t = {
        .ncols = c->size, .col_stride = c->src, .out_stride = c->out, .map = j->map};
    struct odometer o;
    odometer_start(&o, r->dim, column);
    do {
        t.src = j->base + r->src + o.src;
        t.out = r->out + o.out;
        if (!copy_plane(j, k, r, column, t, touching, esize, out_bytes))
            return false;
    } while (odometer_next(&o));
    return true;
}

/* --- choosing --- */

/* Innermost elements that touch and make 2, 4, 8 or 16 bytes are one bigger element: complex
 * numbers, rotary pairs. */
static bool folds(int64_t size, int64_t stride, int64_t esize) {
    const int64_t bytes = size * esize;
    return stride == esize && bytes <= 16 && (bytes & (bytes - 1)) == 0;
}

static struct ckpt_gather_plan plan_dims(const struct ckpt_region_dim *dim, uint32_t n,
                                         int64_t esize) {
    if (n == 0 || dim[n - 1].src == esize)
        return (struct ckpt_gather_plan){CKPT_GATHER_RUN, 0, (n ? dim[n - 1].size : 1) * esize};
    struct ckpt_gather_plan plan = {CKPT_GATHER_STRIDED, 0, 0};
    int64_t nearest = NEAR_BYTES + 1;
    for (uint32_t d = n; d-- > 0;) {
        const int64_t stride = dim[d].src < 0 ? -dim[d].src : dim[d].src;
        if (d == n - 1 && stride <= NEAR_BYTES)
            return plan;
        if (stride > 0 && stride < nearest) {
            nearest = stride;
            plan.how = CKPT_GATHER_TILE;
            plan.column = d;
        }
    }
    return plan;
}

struct ckpt_gather_plan ckpt_gather_plan(const struct ckpt_walk *w,
                                         const struct ckpt_element_map *map) {
    struct ckpt_region_dim dim[CKPT_WALK_MAX];
    uint32_t n = w->npairs;
    int64_t esize = w->esize;
    for (uint32_t i = 0; i < n; i++)
        dim[i] = (struct ckpt_region_dim){w->pair[i].size, w->pair[i].stride, 0};
    if (n > 1 && ckpt_map_identity(map) && folds(dim[n - 1].size, dim[n - 1].src, esize))
        esize *= dim[--n].size;
    return plan_dims(dim, n, esize);
}

/* The first of the innermost dims whose output is dense as a whole; n: not even that of the last.
 */
static uint32_t first_dense(const struct ckpt_region *r, int64_t out_bytes) {
    uint32_t first = r->n;
    for (int64_t dense = out_bytes; first > 0 && r->dim[first - 1].out == dense; first--)
        dense *= r->dim[first - 1].size;
    return first;
}

/* Rows, the dims inside the column, have dense output: others of them go outside it. Where even the
 * last dim has none, it is a column of one row. */
static uint32_t place_column(struct ckpt_region *r, uint32_t column, uint32_t dense) {
    if (dense == r->n)
        return r->n - 1;
    if (column + 1 >= dense)
        return column;
    const struct ckpt_region_dim kept = r->dim[column];
    memmove(&r->dim[column], &r->dim[column + 1], (dense - 1 - column) * sizeof kept);
    r->dim[dense - 1] = kept;
    return dense - 1;
}

static bool copy_region(struct job *j, struct ckpt_region *r) {
    int64_t esize = j->esize, out_bytes = j->out_bytes;
    uint32_t dense = first_dense(r, out_bytes);
    const uint32_t needed = r->n > 1 ? r->n - 2 : 0; /* its neighbour is dense over it */
    if (j->identity && r->n > 0 && dense <= needed &&
        folds(r->dim[r->n - 1].size, r->dim[r->n - 1].src, esize)) {
        out_bytes = esize *= r->dim[--r->n].size;
        dense = first_dense(r, out_bytes);
    }
    const struct ckpt_kernel k = ckpt_kernel_choose(j->map, (uint32_t)esize, j->avx2);
    const struct ckpt_gather_plan plan = plan_dims(r->dim, r->n, esize);
    const bool is_dense = r->n == 0 || dense < r->n;
    if (is_dense && plan.how != CKPT_GATHER_TILE)
        return copy_lines(j, &k, r, esize, out_bytes);
    return copy_tiles(j, &k, r, place_column(r, plan.column, dense), esize, out_bytes);
}

static struct job make_job(bool avx2, const struct ckpt_element_map *map, const uint8_t *base,
                           uint32_t esize, const struct ckpt_stop *stop) {
    return (struct job){.map = map,
                        .base = base,
                        .esize = esize,
                        .avx2 = avx2,
                        .identity = ckpt_map_identity(map),
                        .out_bytes = ckpt_map_out_bytes(map, esize),
                        .stop = stop};
}

bool ckpt_gather_region(struct ckpt_region *r, const struct ckpt_element_map *map, uint32_t esize,
                        const uint8_t *base, const struct ckpt_stop *stop) {
    struct job j = make_job(ckpt_cpu()->avx2, map, base, esize, stop);
    return copy_region(&j, r);
}

/* --- range -> regions --- */

struct range {
    const struct ckpt_walk *walk;
    int64_t out_bytes;
    ckpt_region_fn *each;
    void *arg;
};

/* `count` whole indices of a pair. */
static bool take_whole(const struct range *range, uint32_t pair, int64_t src, int64_t count,
                       uint8_t *out) {
    const struct ckpt_walk *const w = range->walk;
    struct ckpt_region r = {.src = src, .out = out, .n = 0};
    for (uint32_t i = pair; i < w->npairs; i++) {
        const int64_t size = i == pair ? count : w->pair[i].size;
        if (size > 1)
            r.dim[r.n++] = (struct ckpt_region_dim){size, w->pair[i].stride, 0};
    }
    int64_t dense = range->out_bytes;
    for (uint32_t d = r.n; d-- > 0; dense *= r.dim[d].size)
        r.dim[d].out = dense;
    return range->each(range->arg, &r);
}

/* Units [first, first+n) inside one index of the pair before `pair`; `inside` units are one index
 * of that. Each call goes on inwards with less than one index. */
static bool take_range(const struct range *range, uint32_t pair, int64_t inside, int64_t src,
                       int64_t first, int64_t n, uint8_t *out) {
    if (n == 0)
        return true;
    if (pair == range->walk->npairs)
        return take_whole(range, pair, src, 1, out);
    const struct ckpt_dim p = range->walk->pair[pair];
    inside /= p.size;
    int64_t index = first / inside;
    const int64_t skipped = first % inside;
    if (skipped > 0) {
        const int64_t part = n < inside - skipped ? n : inside - skipped;
        if (!take_range(range, pair + 1, inside, src + index * p.stride, skipped, part, out))
            return false;
        out += part * range->out_bytes;
        n -= part;
        index++;
    }
    const int64_t whole = n / inside, rest = n % inside;
    if (whole > 0 && !take_whole(range, pair, src + index * p.stride, whole, out))
        return false;
    return rest == 0 || take_range(range, pair + 1, inside, src + (index + whole) * p.stride, 0,
                                   rest, out + whole * inside * range->out_bytes);
}

bool ckpt_walk_regions(const struct ckpt_walk *w, uint32_t out_bytes, int64_t first, int64_t n,
                       uint8_t *out, ckpt_region_fn *each, void *arg) {
    const struct range range = {w, out_bytes, each, arg};
    return take_range(&range, 0, w->count, w->offset, first, n, out);
}

static bool copy_each(void *arg, struct ckpt_region *r) {
    return copy_region(arg, r);
}

bool ckpt_gather_with(bool avx2, const struct ckpt_walk *w, const struct ckpt_element_map *map,
                      const uint8_t *base, int64_t first, int64_t n, uint8_t *out,
                      const struct ckpt_stop *stop) {
    struct job j = make_job(avx2, map, base, w->esize, stop);
    return ckpt_walk_regions(w, (uint32_t)j.out_bytes, first, n, out, copy_each, &j);
}

bool ckpt_gather_until(const struct ckpt_walk *w, const struct ckpt_element_map *map,
                       const uint8_t *base, int64_t first, int64_t n, uint8_t *out,
                       const struct ckpt_stop *stop) {
    return ckpt_gather_with(ckpt_cpu()->avx2, w, map, base, first, n, out, stop);
}

void ckpt_gather(const struct ckpt_walk *w, const struct ckpt_element_map *map, const uint8_t *base,
                 int64_t first, int64_t n, uint8_t *out) {
    (void)ckpt_gather_until(w, map, base, first, n, out, NULL);
}
