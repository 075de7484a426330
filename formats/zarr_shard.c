/*
 * Shards: grids of chunks in a chunk, by an index, and shards in those. What is served is the
 * smallest chunks, so the indices of a shard and of all shards in it are made one:
 *
 *     shard ── index ──> chunk 0: a shard ── index ──> its chunks    ┐ (offset, length) of each
 *                   ──> chunk 1: a shard ── index ──> its chunks    ┴ in the outermost shard
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "formats/zarr.h"

/* --- layout ----------------------------------------------------------------------------------- */

/* Whether the chunks in it can be had one by one. */
static bool has_shards(const struct ckpt_zarr_chain *c) {
    return c->shards && c->nsteps == 0;
}

void ckpt_zarr_leaf(const struct ckpt_zarr_chain *c, struct ckpt_zarr_leaf *out) {
    uint64_t count = 1;
    *out = (struct ckpt_zarr_leaf){.chain = c};
    for (uint32_t d = 0; d < c->ndim; d++) {
        out->axis[d] = d;
        out->per[d] = 1;
    }
    for (; has_shards(out->chain); out->chain = &out->chain->shards->inner) {
        const struct ckpt_zarr_shards *const s = out->chain->shards;
        uint32_t axis[CKPT_ZARR_NDIM_MAX];
        if (!ckpt_mul_u64(count, s->count, &count) || count > CKPT_LIMIT_ZARR_LEAVES)
            break;
        out->is_sharded = true;
        for (uint32_t j = 0; j < c->ndim; j++) {
            axis[j] = out->axis[out->chain->order[j]];
            out->per[axis[j]] *= s->grid[j];
        }
        memcpy(out->axis, axis, sizeof axis);
    }
    for (uint32_t d = 0; d < c->ndim; d++) {
        out->shape[out->axis[d]] = out->chain->shape[d];
        out->stride[out->axis[d]] = out->chain->stride[d];
    }
}

/* --- the index -------------------------------------------------------------------------------- */

struct flattening {
    const struct ckpt_zarr_leaf *leaf;
    uint64_t (*index)[2];
    const struct ckpt_stop *stop;
    struct ckpt_err *err;
};

/* A shard in the outermost one. */
struct shard {
    const struct ckpt_zarr_chain *chain;
    struct ckpt_stored value;
    uint64_t offset;                    /* of the value */
    uint32_t axis[CKPT_ZARR_NDIM_MAX];  /* of the array, of each of its own */
    int64_t origin[CKPT_ZARR_NDIM_MAX]; /* smallest chunks, by array axis */
};

static uint64_t leaf_number(const struct ckpt_zarr_leaf *leaf, const int64_t *at) {
    uint64_t number = 0;
    for (uint32_t d = 0; d < leaf->chain->ndim; d++)
        number = number * (uint64_t)leaf->per[d] + (uint64_t)at[d];
    return number;
}

/* Chunk number i of a shard, as a shard itself or the smallest chunk. */
static void enter(const struct flattening *f, const struct shard *s, uint64_t i,
                  struct shard *inner) {
    const struct ckpt_zarr_shards *const shards = s->chain->shards;
    inner->chain = &shards->inner;
    for (uint32_t j = s->chain->ndim; j-- > 0; i /= (uint64_t)shards->grid[j]) {
        const uint32_t axis = s->axis[s->chain->order[j]];
        const int64_t below = shards->inner.shape[j] / f->leaf->shape[axis];
        inner->axis[j] = axis;
        inner->origin[axis] = s->origin[axis] + (int64_t)(i % (uint64_t)shards->grid[j]) * below;
    }
}

static int flatten(const struct flattening *f, const struct shard *s) {
    CKPT_AUTO(free) uint64_t *entries = NULL;
    int rc = ckpt_zarr_read_index(s->chain->shards, &s->value, &entries, f->stop, f->err);
    for (uint64_t i = 0; rc == 0 && i < s->chain->shards->count; i++) {
        const uint64_t *const e = entries + 2 * i;
        struct shard inner;
        if (e[0] == UINT64_MAX && e[1] == UINT64_MAX)
            continue;
        if (e[0] > s->value.length || e[1] > s->value.length - e[0])
            return ckpt_fail(f->err, -EBADMSG, "is damaged: its index leads outside it");
        enter(f, s, i, &inner);
        inner.offset = s->offset + e[0];
        inner.value = ckpt_stored_part(&s->value, e[0], e[1]);
        if (inner.chain != f->leaf->chain) {
            rc = flatten(f, &inner);
            continue;
        }
        uint64_t *const out = f->index[leaf_number(f->leaf, inner.origin)];
        out[0] = inner.offset;
        out[1] = e[1];
    }
    return rc;
}

int ckpt_zarr_flat_index(const struct ckpt_zarr_chain *c, const struct ckpt_zarr_leaf *leaf,
                         const struct ckpt_stored *value, uint64_t (*index)[2],
                         const struct ckpt_stop *stop, struct ckpt_err *err) {
    const struct flattening f = {leaf, index, stop, err};
    struct shard outermost = {.chain = c, .value = *value};
    uint64_t count = 1;
    for (uint32_t d = 0; d < c->ndim; d++) {
        outermost.axis[d] = d;
        count *= (uint64_t)leaf->per[d];
    }
    memset(index, 0xff, (size_t)count * sizeof *index);
    return flatten(&f, &outermost);
}
