/*
 * A chunk's bytes: where its value is stored, and decoding it, at once or forwards.
 *
 *     number ──> stored chunk ──> a shard's index ──> value ──> plain: in the mapping
 *                                                          ──> decoded cache, a part a chunk
 */
#include "formats/chunk_decode.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/unzstd.h"

#define SKIP_BYTES ((size_t)64 << 10)

static struct ckpt_chunk *chunk_of(struct ckpt_decoded *d) {
    return (struct ckpt_chunk *)((char *)d - offsetof(struct ckpt_chunk, decoded));
}

static int fail_in_chunk(const struct ckpt_chunk *c, uint64_t part, struct ckpt_err *err) {
    if (ckpt_chunk_grid_of(&c->grid->blob) == NULL)
        return ckpt_fail_in(err, "array \"%s\"", c->grid->blob.name);
    if (!c->grid->per)
        return ckpt_fail_in(err, "array \"%s\", chunk %" PRIu64, c->grid->blob.name, c->number);
    return ckpt_fail_in(err, "array \"%s\", shard %" PRIu64 ", chunk %" PRIu64 " of it",
                        c->grid->blob.name, c->number, part);
}

/* --- where it is stored ----------------------------------------------------------------------- */

static int read_index(struct ckpt_decoded *d, uint8_t *out, const struct ckpt_stop *stop,
                      struct ckpt_err *err) {
    const struct ckpt_chunk *const c =
        (struct ckpt_chunk *)((char *)d - offsetof(struct ckpt_chunk, index));
    const struct ckpt_chunk_grid *const g = c->grid;
    const int rc = g->ops->read_index(g->codec, &c->value, (uint64_t(*)[2])out, stop, err);
    return rc ? ckpt_fail_in(err, "array \"%s\", shard %" PRIu64, g->blob.name, c->number) : 0;
}

void ckpt_chunk_init(struct ckpt_chunk *c, struct ckpt_chunk_grid *g,
                     struct ckpt_decoded_cache *cache, uint64_t turns) {
    c->grid = g;
    c->decoded = (struct ckpt_decoded){.cache = cache,
                                       .parts = &g->parts,
                                       .name = g->blob.name,
                                       .size = g->parts.count * g->parts.bytes,
                                       .turns = turns};
    if (g->per)
        c->index = (struct ckpt_decoded){.cache = cache,
                                         .decode = read_index,
                                         .name = g->blob.name,
                                         .size = g->parts.count * sizeof(uint64_t[2])};
}

int ckpt_chunk_locate(struct ckpt_chunk *c, uint64_t part, struct ckpt_stored *out,
                      const struct ckpt_stop *stop, struct ckpt_err *err) {
    *out = c->value;
    if (!c->grid->per)
        return 1;
    const uint8_t *data = NULL;
    uint64_t entry[2];
    const int rc = ckpt_decoded_pin(&c->index, &data, stop, err);
    if (rc)
        return rc;
    memcpy(entry, data + part * sizeof entry, sizeof entry);
    ckpt_decoded_unpin(&c->index);
    if (entry[0] == UINT64_MAX && entry[1] == UINT64_MAX)
        return 0;
    if (entry[0] > c->value.length || entry[1] > c->value.length - entry[0]) {
        (void)ckpt_fail(err, -EBADMSG, "is damaged: its index leads outside it");
        return fail_in_chunk(c, part, err);
    }
    *out = ckpt_stored_part(&c->value, entry[0], entry[1]);
    return 1;
}

/* --- at once ---------------------------------------------------------------------------------- */

/* Elements of the fill value. */
static void fill(const struct ckpt_chunk_grid *g, uint8_t *out, uint64_t n) {
    for (uint64_t at = 0; at < n; at += g->esize)
        memcpy(out + at, g->fill, g->esize);
}

int ckpt_chunk_decode(struct ckpt_decoded *d, uint64_t part, uint8_t *out,
                      const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct ckpt_chunk *const c = chunk_of(d);
    const struct ckpt_chunk_grid *const g = c->grid;
    struct ckpt_stored value;
    int rc = ckpt_chunk_locate(c, part, &value, stop, err);
    if (rc == 0)
        fill(g, out, g->parts.bytes);
    if (rc <= 0)
        return rc;
    rc = g->ops->decode(g->codec, &value, out, stop, err);
    return rc ? fail_in_chunk(c, part, err) : 0;
}

static int read_plain(const void *codec, const struct ckpt_stored *value, uint8_t *out,
                      const struct ckpt_stop *stop, struct ckpt_err *err) {
    (void)codec;
    return ckpt_stored_read(value, out, stop, err);
}

const struct ckpt_chunk_ops ckpt_chunk_plain_ops = {.decode = read_plain};

/* --- forwards --------------------------------------------------------------------------------- */

struct decoder {
    const struct ckpt_chunk *chunk;
    uint64_t part;
    bool is_stored; /* else it is the fill value throughout */
    bool is_checked;
    struct ckpt_stream in;
    struct ckpt_unzstd z;
    uint8_t *skipped; /* room for what nobody wants */
};

static void close_decoder(void *decoder) {
    struct decoder *const k = decoder;
    ckpt_stream_close(&k->in);
    ckpt_unzstd_fini(&k->z);
    free(k->skipped);
    free(k);
}

/* Reads the first bytes for themselves. */
static int look_at_head(struct decoder *k, const struct ckpt_stored *value,
                        const struct ckpt_stop *stop, struct ckpt_err *err) {
    uint8_t head[CKPT_UNZSTD_HEAD];
    if (value->length < sizeof head)
        return 0;
    const struct ckpt_stored first = ckpt_stored_part(value, 0, sizeof head);
    const int rc = ckpt_stored_read(&first, head, stop, err);
    k->is_checked = rc == 0 && ckpt_unzstd_is_checked(head);
    return rc;
}

/* The stream is asked to stop between pieces only, by the cache: whoever goes on with it later is
 * somebody else. */
static int open_value(struct decoder *k, struct ckpt_stored *value, const struct ckpt_stop *stop,
                      struct ckpt_err *err) {
    const struct ckpt_chunk_grid *const g = k->chunk->grid;
    int rc = g->ops->unwrap(g->codec, value, stop, err);
    if (rc == 0)
        rc = look_at_head(k, value, stop, err);
    if (rc == 0)
        rc = ckpt_stream_open(&k->in, value, NULL, err);
    if (rc == 0)
        rc = ckpt_unzstd_init(&k->z, err);
    return rc ? fail_in_chunk(k->chunk, k->part, err) : 0;
}

static int open_decoder(struct ckpt_decoded *d, uint64_t part, void **decoder,
                        const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct ckpt_stored value;
    struct decoder *const k = calloc(1, sizeof *k);
    if (!k)
        return ckpt_fail_memory(err, "decoding a chunk");
    *k = (struct decoder){.chunk = chunk_of(d), .part = part, .in = {.fd = -1}};
    *decoder = k;
    const int rc = ckpt_chunk_locate(chunk_of(d), part, &value, stop, err);
    k->is_stored = rc > 0;
    return rc > 0 ? open_value(k, &value, stop, err) : rc;
}

static int fail_size(const struct decoder *k, const char *how, struct ckpt_err *err) {
    (void)ckpt_fail(err, -EBADMSG, "is damaged: it decodes to %s than %" PRIu64 " bytes", how,
                    k->chunk->grid->parts.bytes);
    return fail_in_chunk(k->chunk, k->part, err);
}

/* n bytes, or fewer at the end; negative. */
static ssize_t read_some(struct decoder *k, uint8_t *out, size_t n, struct ckpt_err *err) {
    size_t done = 0;
    while (done < n) {
        const ssize_t got = ckpt_unzstd_read(&k->z, &k->in, out + done, n - done, err);
        if (got < 0)
            return fail_in_chunk(k->chunk, k->part, err);
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

static int skip(struct decoder *k, uint64_t n, struct ckpt_err *err) {
    if (!k->skipped && !(k->skipped = malloc(SKIP_BYTES)))
        return ckpt_fail_memory(err, "decoding a chunk");
    for (uint64_t left = n; left > 0;) {
        const ssize_t got =
            read_some(k, k->skipped, left < SKIP_BYTES ? (size_t)left : SKIP_BYTES, err);
        if (got <= 0)
            return got ? (int)got : fail_size(k, "less", err);
        left -= (uint64_t)got;
    }
    return 0;
}

static int decode_next(void *decoder, uint8_t *out, uint64_t n, struct ckpt_err *err) {
    struct decoder *const k = decoder;
    if (!k->is_stored) {
        if (out)
            fill(k->chunk->grid, out, n);
        return 0;
    }
    if (!out)
        return skip(k, n, err);
    const ssize_t got = read_some(k, out, (size_t)n, err);
    return got < 0 ? (int)got : (uint64_t)got < n ? fail_size(k, "less", err) : 0;
}

static int decode_end(void *decoder, struct ckpt_err *err) {
    struct decoder *const k = decoder;
    uint8_t beyond;
    const ssize_t got = k->is_stored ? read_some(k, &beyond, 1, err) : 0;
    return got < 0 ? (int)got : got > 0 ? fail_size(k, "more", err) : 0;
}

static bool is_checked(const void *decoder) {
    return ((const struct decoder *)decoder)->is_checked;
}

static size_t memory(const void *decoder) {
    const struct decoder *const k = decoder;
    return sizeof *k + ckpt_stream_memory(&k->in) + ckpt_unzstd_memory(&k->z) +
           (k->skipped ? SKIP_BYTES : 0);
}

const struct ckpt_decoded_stream ckpt_chunk_stream = {open_decoder, decode_next, decode_end,
                                                      is_checked,   memory,      close_decoder};
