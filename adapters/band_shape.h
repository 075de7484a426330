#ifndef CKPT_ADAPTERS_BAND_SHAPE_H
#define CKPT_ADAPTERS_BAND_SHAPE_H
/*
 * How a walk is cut into bands. A band is what is computed and kept at once: one run of output
 * elements. Bands restart at each index outside the pair that is cut into them:
 *
 *     walk (3, ..)(10, 4)(600, ..)     cut at the pair of 10, 4 columns a band:
 *     number  0 1 2 | 3 4 5 | 6 7 8    columns 0-3, 4-7, 8-9 of each of the three indices outside
 *             a group holds 10 x 600 elements, a band 4 x 600, the last of a group 2 x 600
 */
#include <stdint.h>

#include "adapters/gather.h"

struct ckpt_band_shape {
    int64_t group, band; /* elements */
    int64_t per_group;   /* bands */
};

/* No band is larger than `limit` bytes. */
struct ckpt_band_shape ckpt_band_shape(const struct ckpt_walk *w,
                                       const struct ckpt_element_map *map, int64_t limit);

/* The elements [first, first + n) of a band. */
struct ckpt_band_range {
    int64_t number, first, n;
};
struct ckpt_band_range ckpt_band_at(const struct ckpt_band_shape *s, int64_t element);
struct ckpt_band_range ckpt_band_numbered(const struct ckpt_band_shape *s, int64_t number);

#endif
