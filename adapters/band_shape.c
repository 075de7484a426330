/*
 * How long bands are (measured; docs/performance.md). A band of a transposition takes whole source
 * cache lines of as many columns as make about 4 MiB: with fewer columns each line of the source is
 * fetched again for the next band, with more the output leaves the cache.
 */
#include "adapters/band_shape.h"

#define MIB ((int64_t)1 << 20)
#define BAND_AIM (4 * MIB)   /* output bytes of a band */
#define BAND_LEAST MIB       /* below this, per-band costs show */
#define BAND_MOST (16 * MIB) /* for rows so long that the aim holds few columns */
#define COLUMNS_AIM 256
#define COLUMNS_BYTES 512      /* at least so many source bytes of a row */
#define COLUMNS_BYTES_LONG 128 /* the same where rows are very long */
#define LINE_BYTES 64          /* columns are counted in whole source lines */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static struct ckpt_band_shape shape_of(int64_t group, int64_t band) {
    band = most(1, least(band, group));
    return (struct ckpt_band_shape){group, band, group > 0 ? (group + band - 1) / band : 0};
}

/* Columns of `row` output bytes each, read from elements of esize bytes. 0 if not even one fits. */
static int64_t columns_of_band(int64_t row, int64_t esize, int64_t limit) {
    const int64_t line = most(1, LINE_BYTES / esize);
    int64_t k = most(least(BAND_AIM / row, COLUMNS_AIM), COLUMNS_BYTES / esize);
    if (k > BAND_MOST / row)
        k = most(COLUMNS_BYTES_LONG / esize, BAND_MOST / row);
    k = most(k, BAND_LEAST / row);
    k = (k + line - 1) / line * line;
    if (k > limit / row)
        k = limit / row < line ? limit / row : limit / row / line * line;
    return k;
}

static struct ckpt_band_shape shape_of_tiles(const struct ckpt_walk *w, uint32_t column,
                                             int64_t out_bytes, int64_t limit) {
    int64_t inside = 1; /* elements in one index of the pair */
    for (uint32_t i = column + 1; i < w->npairs; i++)
        inside *= w->pair[i].size;
    if (inside > limit / out_bytes) /* a single row is too long: cut through it */
        return shape_of(inside, limit / out_bytes);
    int64_t k = columns_of_band(inside * out_bytes, w->esize, limit);
    for (; k >= w->pair[column].size && column > 0; column--) {
        inside *= w->pair[column].size;
        k = most(1, least(BAND_AIM, limit) / (inside * out_bytes));
    }
    return shape_of(inside * w->pair[column].size, inside * least(k, w->pair[column].size));
}

struct ckpt_band_shape ckpt_band_shape(const struct ckpt_walk *w,
                                       const struct ckpt_element_map *map, int64_t limit) {
    const int64_t out_bytes = ckpt_map_out_bytes(map, w->esize);
    const struct ckpt_gather_plan plan = ckpt_gather_plan(w, map);
    if (plan.how == CKPT_GATHER_TILE)
        return shape_of_tiles(w, plan.column, out_bytes, limit);
    return shape_of(w->count, least(BAND_LEAST, limit) / out_bytes);
}

struct ckpt_band_range ckpt_band_numbered(const struct ckpt_band_shape *s, int64_t number) {
    const int64_t start = number % s->per_group * s->band;
    return (struct ckpt_band_range){number, number / s->per_group * s->group + start,
                                    least(s->band, s->group - start)};
}

struct ckpt_band_range ckpt_band_at(const struct ckpt_band_shape *s, int64_t element) {
    const int64_t inside = element % s->group;
    return ckpt_band_numbered(s, element / s->group * s->per_group + inside / s->band);
}
