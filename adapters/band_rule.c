#include "adapters/band_rule.h"

#define AIM_BYTES (INT64_C(4) << 20)   /* of output */
#define LEAST_BYTES (INT64_C(1) << 20) /* less is not worth a lock */
#define MOST_BYTES (INT64_C(16) << 20) /* before columns are cut to two lines */
#define COLUMNS_AIM 256
#define LINE_BYTES 64 /* a source cache line */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

/* How many columns, of so many output bytes each, make a band. Counted in source cache lines: rows
 * of a band that start off a line cost more than a short band does. */
static int64_t columns_of(int64_t column_bytes, int64_t esize, int64_t limit) {
    int64_t k = most(least(AIM_BYTES / column_bytes, COLUMNS_AIM), 8 * LINE_BYTES / esize);
    if (k * column_bytes > MOST_BYTES)
        k = most(2 * LINE_BYTES / esize, MOST_BYTES / column_bytes);
    if (k * column_bytes < LEAST_BYTES)
        k = LEAST_BYTES / column_bytes;
    k = round_up(most(k, 1), most(LINE_BYTES / esize, 1));
    return k * column_bytes > limit ? limit / column_bytes : k;
}

/* Bands of a plain number of units, restarting nowhere. */
static struct ckpt_band_rule flat(const struct ckpt_walk *w, int64_t out_bytes, int64_t limit) {
    const int64_t units = most(least(AIM_BYTES, limit) / out_bytes, 1);
    return (struct ckpt_band_rule){w->count, w->count, least(units, w->count)};
}

struct ckpt_band_rule ckpt_band_rule(const struct ckpt_walk *w, const struct ckpt_element_map *map,
                                     int64_t limit) {
    const struct ckpt_gather_plan plan = ckpt_gather_plan(w, map);
    const int64_t out_bytes = ckpt_map_out_bytes(map, w->esize);
    if (plan.how != CKPT_GATHER_TILE || w->count == 0)
        return flat(w, out_bytes, limit);
    int64_t inner = 1; /* units inside the column */
    for (uint32_t i = plan.column + 1; i < w->npairs; i++)
        inner *= w->pair[i].size;
    if (inner > limit / out_bytes)
        return flat(w, out_bytes, limit);
    uint32_t level = plan.column;
    int64_t k = columns_of(inner * out_bytes, w->esize, limit);
    /* Short columns: all of them, and several indices of the pair outside. */
    while (k >= w->pair[level].size && level > 0) {
        inner *= w->pair[level--].size;
        k = most(least(AIM_BYTES, limit) / (inner * out_bytes), 1);
    }
    const int64_t n = w->pair[level].size;
    return (struct ckpt_band_rule){w->count, n * inner, least(most(k, 1), n) * inner};
}

static int64_t bands_a_period(const struct ckpt_band_rule *r) {
    return (r->period + r->band - 1) / r->band;
}

int64_t ckpt_band_of(const struct ckpt_band_rule *r, int64_t unit) {
    return unit / r->period * bands_a_period(r) + unit % r->period / r->band;
}

void ckpt_band_range(const struct ckpt_band_rule *r, int64_t band, int64_t *first, int64_t *n) {
    const int64_t part = band % bands_a_period(r) * r->band;
    *first = band / bands_a_period(r) * r->period + part;
    *n = least(r->band, r->period - part);
}

int64_t ckpt_band_count(const struct ckpt_band_rule *r) {
    return r->band == 0 ? 0 : r->count / r->period * bands_a_period(r);
}
