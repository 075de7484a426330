#ifndef CKPT_ADAPTERS_BAND_RULE_H
#define CKPT_ADAPTERS_BAND_RULE_H
/*
 * How a walk is cut into bands. A band is what is computed and cached at once: always one run of
 * *output*, so that a reply can point into it.
 *
 *     walk    (2, ..)(11008, 4)(4096, 44032)     a stack of two transposed matrices
 *                    `column`   `rows`
 *     bands   256 columns x 4096 rows = 4 MiB of output each; the last of a matrix is short, and
 *             bands begin anew at the next matrix:
 *
 *             |--256--|--256--| ... |short|--256--|--256--| ... |short|
 *             ^ period 0                  ^ period 1
 *
 * Long enough that whole source cache lines are used, short enough to stay in the cache until they
 * are copied out (measured: docs/performance.md).
 */
#include <stdint.h>

#include "adapters/gather.h"

struct ckpt_band_rule {
    int64_t count;  /* units in the walk */
    int64_t period; /* units after which bands begin anew; >= band */
    int64_t band;   /* units in a band but the last of a period; 0 for an empty walk */
};

/* limit: bytes of the largest band allowed. */
struct ckpt_band_rule ckpt_band_rule(const struct ckpt_walk *w, const struct ckpt_element_map *map,
                                     int64_t limit);
/* The band that holds a unit. */
int64_t ckpt_band_of(const struct ckpt_band_rule *r, int64_t unit);
/* Its units [*first, *first + *n). band < ckpt_band_count. */
void ckpt_band_range(const struct ckpt_band_rule *r, int64_t band, int64_t *first, int64_t *n);
int64_t ckpt_band_count(const struct ckpt_band_rule *r);

#endif
