#ifndef CKPT_ADAPTERS_GATHER_H
#define CKPT_ADAPTERS_GATHER_H
/*
 * Copying a range of a walk: the inner loops. `base` is the byte of the blob that walk offsets
 * count from. out receives units [first, first + n) of the walk, converted by `map`. One pass:
 * tiles, casts, swaps and sign bits together. Runs inside the SIGBUS guard: allocates nothing.
 */
#include "adapters/model.h"
#include "base/stop.h"

/* Bytes of an output element for a walk's unit under this map. */
uint32_t ckpt_map_out_bytes(const struct ckpt_element_map *map, uint32_t esize);
/* True if elements pass as they are. */
bool ckpt_map_identity(const struct ckpt_element_map *map);

void ckpt_gather(const struct ckpt_walk *w, const struct ckpt_element_map *map, const uint8_t *base,
                 int64_t first, int64_t n, uint8_t *out);

/* The same; false if it was stopped, and then `out` is not complete. `stop` (or NULL) is asked
 * about once a MiB of output, inside the guard: it may lock, since it touches no mapping and so is
 * never left halfway, but must not read the source. */
bool ckpt_gather_until(const struct ckpt_walk *w, const struct ckpt_element_map *map,
                       const uint8_t *base, int64_t first, int64_t n, uint8_t *out,
                       const struct ckpt_stop *stop);

/*
 * A range of a walk as products of ranges, at most twice as many as it has pairs: what is copied
 * at once, or cut further where the source lies in several places (adapters/grid_gather.h).
 */
struct ckpt_region {
    int64_t src; /* byte of the blob */
    uint8_t *out;
    uint32_t n;
    struct ckpt_region_dim {
        int64_t size, src, out; /* strides in bytes */
    } dim[CKPT_WALK_MAX];       /* outermost first */
};
/* May change the region. False: go no further. */
typedef bool ckpt_region_fn(void *arg, struct ckpt_region *r);
bool ckpt_walk_regions(const struct ckpt_walk *w, uint32_t out_bytes, int64_t first, int64_t n,
                       uint8_t *out, ckpt_region_fn *each, void *arg);
/* Copies one, whose output need not be dense and whose dims get another order; src counts from
 * base. False if it was stopped. */
bool ckpt_gather_region(struct ckpt_region *r, const struct ckpt_element_map *map, uint32_t esize,
                        const uint8_t *base, const struct ckpt_stop *stop);

/*
 * How a walk is read, decided by the strides alone:
 *
 *     RUN      the innermost elements touch: runs of them are copied
 *     TILE     another pair (`column`) is the one whose elements touch or nearly do: a
 * transposition STRIDED  everything else, one element after the other
 */
enum ckpt_gather_case { CKPT_GATHER_RUN, CKPT_GATHER_STRIDED, CKPT_GATHER_TILE };
struct ckpt_gather_plan {
    enum ckpt_gather_case how;
    uint32_t column;   /* TILE: index of the pair */
    int64_t run_bytes; /* of the source, that lie together; 0 if it is no RUN */
};
struct ckpt_gather_plan ckpt_gather_plan(const struct ckpt_walk *w,
                                         const struct ckpt_element_map *map);

/* One element by the naive scalar rules, for the byte check and the tests: from and to are sizes of
 * map->from and map->to. */
void ckpt_element_convert(const struct ckpt_element_map *map, const uint8_t *from, uint8_t *to);

#endif
