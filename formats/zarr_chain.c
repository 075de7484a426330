/*
 * What a chain of codecs leads to, and decoding a chunk by it.
 *
 *     stored value ── steps, last first ──> elements in C order of the stored axes
 *                                      └──> a shard: index, then each chunk by the inner chain
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "base/size.h"
#include "formats/box.h"
#include "formats/zarr.h"

#define CRC_BYTES 4u
#define INDEX_ENTRY 16u /* offset and length */

/* --- settling --------------------------------------------------------------------------------- */

/* The order as a permutation of all axes. */
static int settle_order(struct ckpt_zarr_chain *c, struct ckpt_err *err) {
    bool seen[CKPT_ZARR_NDIM_MAX] = {false};
    if (c->norder && c->norder != c->ndim)
        return ckpt_fail(err, -EINVAL, "transpose has %u axes, the array %u", c->norder, c->ndim);
    for (uint32_t j = 0; j < c->ndim; j++) {
        if (!c->norder)
            c->order[j] = j;
        if (c->order[j] >= c->ndim || seen[c->order[j]])
            return ckpt_fail(err, -EINVAL, "transpose is no permutation of the axes");
        seen[c->order[j]] = true;
    }
    for (uint32_t j = 0; c->is_reversed && j < c->ndim / 2; j++) {
        const uint32_t kept = c->order[j];
        c->order[j] = c->order[c->ndim - 1 - j];
        c->order[c->ndim - 1 - j] = kept;
    }
    return 0;
}

static int settle_size(struct ckpt_zarr_chain *c, uint32_t esize, struct ckpt_err *err) {
    uint64_t count;
    for (uint32_t d = 0; d < c->ndim; d++)
        if (c->shape[d] <= 0)
            return ckpt_fail(err, -EINVAL, "dimension %u of its chunks is %" PRId64, d,
                             c->shape[d]);
    if (!ckpt_shape_count(c->shape, c->ndim, &count) || !ckpt_mul_u64(count, esize, &c->bytes) ||
        c->bytes > CKPT_LIMIT_INFLATED_BYTES)
        return ckpt_fail(err, -E2BIG,
                         "its chunks have more than %" PRIu64 " bytes (limit of chunk bytes)",
                         CKPT_LIMIT_INFLATED_BYTES);
    return 0;
}

/* The decoded elements lie in C order of the stored axes; a lone inner chunk as it lies itself. */
static void settle_strides(struct ckpt_zarr_chain *c) {
    int64_t stride = 1;
    for (uint32_t j = c->ndim; j-- > 0;) {
        const uint32_t axis = c->order[j];
        c->stride[axis] = c->shards && c->shards->is_one ? c->shards->inner.stride[j] : stride;
        stride *= c->shape[axis];
    }
}

static int settle_shards(struct ckpt_zarr_chain *c, uint32_t esize, unsigned depth,
                         struct ckpt_err *err) {
    struct ckpt_zarr_shards *const s = c->shards;
    int64_t inner[CKPT_ZARR_NDIM_MAX];
    if (s->inner.ndim != c->ndim)
        return ckpt_fail(err, -EINVAL, "its chunks have %u dimensions, those in its shards %u",
                         c->ndim, s->inner.ndim);
    s->count = 1;
    for (uint32_t j = 0; j < c->ndim; j++) {
        const int64_t outer = c->shape[c->order[j]];
        inner[j] = s->inner.shape[j];
        if (inner[j] <= 0 || outer % inner[j] != 0)
            return ckpt_fail(err, -EINVAL,
                             "its shards are %" PRId64 " long along axis %u, which their chunks of "
                             "%" PRId64 " don't divide",
                             outer, j, inner[j]);
        s->grid[j] = outer / inner[j];
        if (!ckpt_mul_u64(s->count, (uint64_t)s->grid[j], &s->count) ||
            s->count > CKPT_LIMIT_ZARR_SUBCHUNKS)
            return ckpt_fail(err, -E2BIG,
                             "its shards have more than %" PRIu64 " chunks (limit of subchunks)",
                             CKPT_LIMIT_ZARR_SUBCHUNKS);
    }
    s->is_one = s->count == 1;
    const int rc = ckpt_zarr_chain_settle(&s->inner, inner, c->ndim, esize, depth + 1, err);
    if (rc == 0 && !s->is_one && c->nsteps > 0 && s->inner.bytes > CKPT_LIMIT_ZARR_SUBCHUNK_BYTES)
        return ckpt_fail(
            err, -ENOTSUP,
            "the chunks in its shards have more than %u bytes (limit of subchunk bytes)",
            CKPT_LIMIT_ZARR_SUBCHUNK_BYTES);
    return rc;
}

int ckpt_zarr_chain_settle(struct ckpt_zarr_chain *c, const int64_t *shape, uint32_t ndim,
                           uint32_t esize, unsigned depth, struct ckpt_err *err) {
    c->ndim = ndim;
    memcpy(c->shape, shape, ndim * sizeof *shape);
    int rc = settle_order(c, err);
    if (rc == 0)
        rc = settle_size(c, esize, err);
    if (rc == 0 && c->shards)
        rc = settle_shards(c, esize, depth, err);
    if (rc == 0)
        settle_strides(c);
    return rc;
}

/* --- what a stored value can be --------------------------------------------------------------- */

static uint64_t index_bytes(const struct ckpt_zarr_shards *s) {
    return s->count * INDEX_ENTRY + (s->has_crc32c ? CRC_BYTES : 0);
}

int ckpt_zarr_chain_can(const struct ckpt_zarr_chain *c, uint64_t stored, struct ckpt_err *err) {
    const uint64_t wanted = c->shards ? index_bytes(c->shards) : c->bytes;
    uint64_t most = stored;
    for (uint32_t i = c->nsteps; i-- > 0;) {
        if (c->step[i].is_crc32c)
            continue;
        if (!ckpt_compression_built(c->step[i].compression))
            return ckpt_fail(err, -ENOTSUP, "it is compressed with %s, which this build can't read",
                             ckpt_compression_name(c->step[i].compression));
        if (i > 0) /* what it decodes to is compressed again */
            return 0;
        if (!ckpt_compression_can(c->step[i].compression, most, wanted))
            return ckpt_fail(err, -EINVAL,
                             "%" PRIu64 " stored bytes can't be %s of %" PRIu64 " bytes", stored,
                             ckpt_compression_name(c->step[i].compression), wanted);
        return 0;
    }
    if (c->shards ? stored < wanted : stored != wanted + c->nsteps * CRC_BYTES)
        return ckpt_fail(err, -EINVAL, "%" PRIu64 " bytes are stored, expected %" PRIu64, stored,
                         wanted + c->nsteps * CRC_BYTES);
    return 0;
}

/* --- decoding --------------------------------------------------------------------------------- */

struct decoder {
    const uint8_t *fill;
    uint32_t esize;
    const struct ckpt_stop *stop;
    struct ckpt_err *err;
};

static int fail_memory(struct decoder *d) {
    return ckpt_fail_memory(d->err, "decoding a chunk");
}

/* Checks the checksum at the end and cuts it off. */
static int check_crc32c(struct decoder *d, struct ckpt_stored *value) {
    CKPT_AUTO(stream) struct ckpt_stream in = {.fd = -1};
    if (value->length < CRC_BYTES)
        return ckpt_fail(d->err, -EBADMSG, "is damaged: it is shorter than its checksum");
    uint8_t stored[CRC_BYTES];
    const struct ckpt_stored body = ckpt_stored_part(value, 0, value->length - CRC_BYTES);
    const struct ckpt_stored tail = ckpt_stored_part(value, body.length, CRC_BYTES);
    const uint8_t *piece = NULL;
    uint32_t crc = 0;
    int rc = ckpt_stored_read(&tail, stored, d->stop, d->err);
    if (rc == 0)
        rc = ckpt_stream_open(&in, &body, d->stop, d->err);
    ssize_t n = rc;
    while (n >= 0 && (n = ckpt_stream_next(&in, &piece, d->err)) > 0)
        crc = ckpt_crc32c(crc, piece, (size_t)n);
    if (n < 0)
        return (int)n;
    const uint32_t said = (uint32_t)stored[0] | (uint32_t)stored[1] << 8 |
                          (uint32_t)stored[2] << 16 | (uint32_t)stored[3] << 24;
    *value = body;
    return crc == said ? 0
                       : ckpt_fail(d->err, -EBADMSG,
                                   "is damaged: its checksum (CRC-32C) is %08" PRIx32
                                   ", it says %08" PRIx32,
                                   crc, said);
}

static int decode_chain(struct decoder *d, const struct ckpt_zarr_chain *c,
                        struct ckpt_stored value, uint8_t *out);

/* Elements of the fill value. */
static void fill(const struct decoder *d, uint8_t *out, uint64_t n) {
    for (uint64_t at = 0; at < n; at += d->esize)
        memcpy(out + at, d->fill, d->esize);
}

static int read_index(struct decoder *d, const struct ckpt_zarr_shards *s,
                      const struct ckpt_stored *value, uint64_t **index) {
    const uint64_t n = index_bytes(s);
    if (value->length < n)
        return ckpt_fail(d->err, -EBADMSG, "is damaged: it is shorter than its index");
    struct ckpt_stored part = ckpt_stored_part(value, s->at_start ? 0 : value->length - n, n);
    int rc = s->has_crc32c ? check_crc32c(d, &part) : 0;
    *index = rc == 0 ? malloc((size_t)part.length) : NULL;
    if (rc == 0 && !*index)
        rc = fail_memory(d);
    if (rc == 0)
        rc = ckpt_stored_read(&part, *index, d->stop, d->err);
    for (uint64_t i = 0; rc == 0 && i < 2 * s->count; i++) {
        uint8_t b[8];
        uint64_t v = 0;
        memcpy(b, &(*index)[i], sizeof b);
        for (unsigned k = 0; k < sizeof b; k++)
            v |= (uint64_t)b[s->index_is_big ? 7 - k : k] << (8 * k);
        (*index)[i] = v;
    }
    return rc;
}

/* One chunk of the shard, to out as it lies; absent is the fill value. */
static int decode_inner(struct decoder *d, const struct ckpt_zarr_shards *s,
                        const struct ckpt_stored *value, const uint64_t *entry, uint8_t *out) {
    uint64_t end;
    if (entry[0] == UINT64_MAX && entry[1] == UINT64_MAX) {
        fill(d, out, s->inner.bytes);
        return 0;
    }
    if (!ckpt_add_u64(entry[0], entry[1], &end) || end > value->length)
        return ckpt_fail(d->err, -EBADMSG, "is damaged: its index leads outside it");
    return decode_chain(d, &s->inner, ckpt_stored_part(value, entry[0], entry[1]), out);
}

/* Chunks one after the other, each put where it belongs. */
static int decode_many(struct decoder *d, const struct ckpt_zarr_chain *c,
                       const struct ckpt_stored *value, const uint64_t *index, uint8_t *out) {
    const struct ckpt_zarr_shards *const s = c->shards;
    const uint32_t es = d->esize;
    struct ckpt_box box = {.ndim = c->ndim, .esize = es};
    CKPT_AUTO(free) uint8_t *chunk = malloc((size_t)s->inner.bytes);
    if (!chunk)
        return fail_memory(d);
    for (uint32_t j = 0; j < c->ndim; j++) {
        box.size[j] = s->inner.shape[j];
        box.from[j] = s->inner.stride[j] * es;
        box.to[j] = c->stride[c->order[j]] * es;
    }
    for (uint64_t i = 0; i < s->count; i++) {
        uint64_t rest = i;
        int64_t at = 0;
        for (uint32_t j = c->ndim; j-- > 0; rest /= (uint64_t)s->grid[j])
            at += (int64_t)(rest % (uint64_t)s->grid[j]) * box.size[j] * box.to[j];
        const int rc = decode_inner(d, s, value, index + 2 * i, chunk);
        if (rc)
            return rc;
        ckpt_box_copy(&box, chunk, out + at);
    }
    return 0;
}

static int decode_shard(struct decoder *d, const struct ckpt_zarr_chain *c,
                        const struct ckpt_stored *value, uint8_t *out) {
    CKPT_AUTO(free) uint64_t *index = NULL;
    const int rc = read_index(d, c->shards, value, &index);
    if (rc)
        return rc;
    return c->shards->is_one ? decode_inner(d, c->shards, value, index, out)
                             : decode_many(d, c, value, index, out);
}

/* Undoes the steps; where it ends with elements, the first of them fills `out` itself. What lies
 * between two compressions is in memory. */
static int decode_chain(struct decoder *d, const struct ckpt_zarr_chain *c,
                        struct ckpt_stored value, uint8_t *out) {
    CKPT_AUTO(free) uint8_t *held = NULL;
    int rc = 0;
    for (uint32_t i = c->nsteps; rc == 0 && i-- > 0;) {
        if (c->step[i].is_crc32c) {
            rc = check_crc32c(d, &value);
            continue;
        }
        if (i == 0 && !c->shards)
            return ckpt_decompress(c->step[i].compression, &value, out, c->bytes, d->stop, d->err);
        uint8_t *more = NULL;
        size_t n = 0;
        rc = ckpt_decompress_all(c->step[i].compression, &value, CKPT_LIMIT_ZARR_BETWEEN, &more, &n,
                                 d->stop, d->err);
        free(held);
        held = more;
        value = ckpt_stored_memory(held, n);
    }
    if (rc)
        return rc;
    return c->shards
               ? decode_shard(d, c, &value, out)
               : ckpt_decompress(CKPT_COMPRESSION_NONE, &value, out, c->bytes, d->stop, d->err);
}

int ckpt_zarr_decode_chain(const struct ckpt_zarr_chain *c, const struct ckpt_stored *value,
                           const uint8_t *fill_value, uint32_t esize, uint8_t *out,
                           const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct decoder d = {fill_value, esize, stop, err};
    return decode_chain(&d, c, *value, out);
}

int ckpt_zarr_decode(const struct ckpt_zarr *z, const struct ckpt_stored *value, uint8_t *out,
                     const struct ckpt_stop *stop, struct ckpt_err *err) {
    return ckpt_zarr_decode_chain(&z->chain, value, z->fill, ckpt_dtype_info(z->dtype)->unit_bytes,
                                  out, stop, err);
}

/* --- without decoding all of it --------------------------------------------------------------- */

int ckpt_zarr_read_index(const struct ckpt_zarr_shards *s, const struct ckpt_stored *shard,
                         uint64_t **index, const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct decoder d = {.stop = stop, .err = err};
    return read_index(&d, s, shard, index);
}

bool ckpt_zarr_is_plain(const struct ckpt_zarr_chain *c) {
    return !c->shards && c->nsteps == 0;
}

bool ckpt_zarr_is_zstd(const struct ckpt_zarr_chain *c) {
    if (c->shards || c->nsteps == 0 || c->step[0].is_crc32c ||
        c->step[0].compression != CKPT_COMPRESSION_ZSTD)
        return false;
    for (uint32_t i = 1; i < c->nsteps; i++)
        if (!c->step[i].is_crc32c)
            return false;
    return true;
}

int ckpt_zarr_unwrap(const struct ckpt_zarr_chain *c, struct ckpt_stored *value,
                     const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct decoder d = {.stop = stop, .err = err};
    int rc = 0;
    for (uint32_t i = c->nsteps; rc == 0 && i-- > 1;)
        rc = check_crc32c(&d, value);
    return rc;
}
