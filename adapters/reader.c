/*
 * The reader: which way a byte range of an adapted tensor is made.
 *
 *     part            way
 *     zeros           a page of zeros, again and again
 *     identity map, one run                    the mapping, or the pinned blob
 *     identity map, runs of 8 KiB and more     the same, an iovec a run
 *     identity map, shorter runs or strided    gathered into a buffer of the reply's own: no dearer
 *                                              the second time, so not worth a cache
 *     everything else (tiles, casts, swaps,    bands
 *     computed blobs, grids of chunks)
 *
 * A reader that goes from one band to the next gets the one after that prefetched. Who it is does
 * not matter: only that the band before is still there.
 */
#include "adapters/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/computed_blob.h"
#include "adapters/prefetch.h"
#include "adapters/reader_compute.h"
#include "adapters/reply.h"
#include "base/guard.h"
#include "base/resident.h"
#include "formats/chunk_grid.h"

/* With the few MiB of the program itself 32 MiB, which fs/session.c takes off what cache= allows.
 */
#define BANDS_DEFAULT ((size_t)28 << 20)
#define BANDS_LEAST ((size_t)64 << 10)
#define BAND_SHARE 4                  /* no band takes more than this part of the cache */
#define RUN_MAPPED 8192               /* runs from here on are served from the mapping */
#define RUN_DIRECT 64                 /* shorter runs go through bands */
#define DIRECT_MOST ((size_t)1 << 20) /* of a private buffer */
#define NEAR ((int64_t)8 << 20)       /* what a private buffer is gathered from at once */
#define READ_PIECE ((size_t)4 << 20)  /* ckpt_reader_read asks for so much at once */

struct ckpt_reader {
    struct ckpt_bands *bands;
    struct ckpt_prefetch *prefetch; /* NULL: none */
    int64_t band_limit;
};

/* One request, as far as it lies in one part. */
struct request {
    struct ckpt_reader *reader;
    const struct ckpt_part *part;
    const struct ckpt_element_map *map;
    uint32_t out_bytes; /* of an element */
    uint64_t off;       /* in the part's bytes */
    size_t len;
    struct ckpt_reply *reply;
    const struct ckpt_stop *stop;
};

enum way { WAY_ZEROS, WAY_MAPPED, WAY_DIRECT, WAY_BANDS };

static enum way choose_way(const struct ckpt_part *p, const struct ckpt_element_map *map) {
    if (!p->source || !p->walk)
        return WAY_ZEROS;
    struct ckpt_blob *const blob = p->source->blob;
    if (!ckpt_map_identity(map) || ckpt_computed_blob_of(blob) || ckpt_chunk_grid_of(blob))
        return WAY_BANDS;
    if (ckpt_walk_contiguous(p->walk))
        return WAY_MAPPED;
    const struct ckpt_gather_plan plan = ckpt_gather_plan(p->walk, map);
    if (plan.how == CKPT_GATHER_RUN && plan.run_bytes >= RUN_MAPPED)
        return WAY_MAPPED;
    const bool direct = plan.how == CKPT_GATHER_STRIDED ||
                        (plan.how == CKPT_GATHER_RUN && plan.run_bytes >= RUN_DIRECT);
    return direct ? WAY_DIRECT : WAY_BANDS;
}

/* Elements that hold the bytes [off, off+len) of the part. */
static int64_t first_element(const struct request *q) {
    return (int64_t)(q->off / q->out_bytes);
}

static int64_t count_elements(const struct request *q) {
    return (int64_t)((q->off + q->len - 1) / q->out_bytes) - first_element(q) + 1;
}

/* --- from the mapping --- */

/* Where unit `unit` of the walk lies in the blob. */
static int64_t unit_offset(const struct ckpt_walk *w, int64_t unit) {
    int64_t offset = w->offset;
    for (uint32_t i = w->npairs; i-- > 0;) {
        offset += unit % w->pair[i].size * w->pair[i].stride;
        unit /= w->pair[i].size;
    }
    return offset;
}

static ssize_t add_mapped(const struct request *q, struct ckpt_err *err) {
    const struct ckpt_walk *const w = q->part->walk;
    struct ckpt_source_bytes source;
    int64_t lo, hi;
    struct ckpt_reply_hold *const hold = ckpt_reply_hold(q->reply, 0);
    if (!hold)
        return ckpt_fail_memory(err, "answering a read");
    ckpt_walk_bounds(w, first_element(q), count_elements(q), &lo, &hi);
    const int rc = ckpt_source_open(q->part->source->blob, lo, hi, &source, q->stop, err);
    if (rc < 0)
        return rc;
    hold->source = source;
    const uint64_t run = (uint64_t)(w->npairs > 0 ? w->pair[w->npairs - 1].size : 1) * w->esize;
    size_t added = 0;
    while (added < q->len) {
        const uint64_t at = q->off + added, inside = at % run;
        const size_t left = q->len - added;
        const size_t n = run - inside < left ? (size_t)(run - inside) : left;
        const uint8_t *const data =
            source.base + unit_offset(w, (int64_t)(at / run * (run / w->esize))) + inside;
        if (ckpt_reply_add_bytes(q->reply, data, n) == 0)
            break;
        added += n;
    }
    if (added > 0 && q->part->source->blob->in_file)
        ckpt_reply_is_in_file(q->reply, q->part->source->blob->file);
    return (ssize_t)added;
}

/* --- into a buffer of its own --- */

/* So close together that gathering them costs about as much as copying them would. */
static bool is_at_hand(const struct request *q, int64_t first, int64_t n) {
    const struct ckpt_blob *const blob = q->part->source->blob;
    int64_t lo, hi;
    ckpt_walk_bounds(q->part->walk, first, n, &lo, &hi);
    return hi - lo <= NEAR &&
           (q->stop->patience != CKPT_TAKES_FROM_MEMORY || !blob->in_file ||
            ckpt_is_resident(blob->file->data + blob->file_offset + lo, (size_t)(hi - lo)));
}

static ssize_t add_direct(const struct request *whole, struct ckpt_err *err) {
    struct request q = *whole;
    q.len = q.len < DIRECT_MOST ? q.len : DIRECT_MOST;
    const int64_t first = first_element(&q), n = count_elements(&q);
    if (!ckpt_stop_may_work(q.stop) && !is_at_hand(&q, first, n))
        return ckpt_fail_impatient(err);
    struct ckpt_reply_hold *const hold = ckpt_reply_hold(q.reply, (size_t)n * q.out_bytes);
    if (!hold)
        return ckpt_fail_memory(err, "answering a read");
    const int rc = ckpt_part_compute(q.part, q.map, first, n, hold->data, q.stop, err);
    if (rc < 0)
        return rc;
    return (ssize_t)ckpt_reply_add_bytes(q.reply, hold->data + q.off % q.out_bytes, q.len);
}

/* --- from bands --- */

/* The next band is worth computing if the reader came from the one before; in the first band, if it
 * has begun to go through it (a look at a tensor's first bytes is no such thing). */
static void prefetch_after(const struct request *q, struct ckpt_band_key key,
                           const struct ckpt_band_shape *shape) {
    if (!q->reader->prefetch)
        return;
    const int64_t bands = q->part->walk->count / shape->group * shape->per_group;
    const int64_t number = key.number;
    if (number + 1 >= bands)
        return;
    key.number = number - 1;
    const bool sequential = number == 0 ? q->off > 0 : ckpt_bands_has(q->reader->bands, &key);
    key.number = number + 1;
    if (sequential && !ckpt_bands_has(q->reader->bands, &key))
        ckpt_prefetch_add(q->reader->prefetch, &key);
}

/* A pinned band with its data, or an answer that there is none. */
static int obtain_band(const struct request *q, const struct ckpt_band_key *key,
                       const struct ckpt_band_range *range, struct ckpt_band **out,
                       struct ckpt_err *err) {
    struct ckpt_bands *const bands = q->reader->bands;
    struct ckpt_err why = {0};
    int rc = ckpt_bands_get(bands, key, (size_t)range->n * q->out_bytes, true, q->stop, out, err);
    if (rc != CKPT_BANDS_MINE)
        return rc;
    if (q->reader->prefetch)
        ckpt_prefetch_made(q->reader->prefetch);
    rc = ckpt_part_compute(q->part, q->map, range->first, range->n, ckpt_band_data(*out), q->stop,
                           &why);
    ckpt_bands_finish(bands, *out, rc, &why);
    if (rc < 0 && err)
        *err = why;
    return rc;
}

static ssize_t add_band(const struct request *q, struct ckpt_err *err) {
    const struct ckpt_band_shape shape =
        ckpt_band_shape(q->part->walk, q->map, q->reader->band_limit);
    const struct ckpt_band_range range = ckpt_band_at(&shape, first_element(q));
    const struct ckpt_band_key key = {q->part, q->map, range.number};
    struct ckpt_reply_hold *const hold = ckpt_reply_hold(q->reply, 0);
    if (!hold)
        return ckpt_fail_memory(err, "answering a read");
    struct ckpt_band *band;
    const int rc = obtain_band(q, &key, &range, &band, err);
    if (rc < 0)
        return rc;
    if (rc == CKPT_BANDS_FULL)
        return add_direct(q, err);
    hold->band = band;
    prefetch_after(q, key, &shape);
    const uint64_t start = (uint64_t)range.first * q->out_bytes;
    const uint64_t end = start + (uint64_t)range.n * q->out_bytes;
    const size_t n = end - q->off < q->len ? (size_t)(end - q->off) : q->len;
    return (ssize_t)ckpt_reply_add_bytes(q->reply, ckpt_band_data(band) + (q->off - start), n);
}

/* --- requests --- */

static ssize_t add_from_part(const struct request *q, struct ckpt_err *err) {
    switch (choose_way(q->part, q->map)) {
    case WAY_ZEROS:
        return (ssize_t)ckpt_reply_add_zeros(q->reply, q->len);
    case WAY_MAPPED:
        return add_mapped(q, err);
    case WAY_DIRECT:
        return add_direct(q, err);
    default:
        return add_band(q, err);
    }
}

/* A part, a byte in it, and how many of the tensor's bytes lie in it from there on. */
struct place {
    const struct ckpt_part *part;
    uint64_t off, left;
};

static struct place place_of(const struct ckpt_adapted *t, uint64_t off) {
    const uint64_t turns = t->turns > 1 ? t->turns : 1, round = t->nbytes / turns;
    uint64_t at = off % round;
    uint32_t i = 0;
    while (i + 1 < t->nparts && at >= t->part[i].nbytes / turns)
        at -= t->part[i++].nbytes / turns;
    const uint64_t share = t->part[i].nbytes / turns;
    return (struct place){&t->part[i], off / round * share + at, share - at};
}

static ssize_t add_parts(struct ckpt_reader *r, const struct ckpt_adapted *t, uint64_t off,
                         size_t len, struct ckpt_reply *reply, struct ckpt_err *err) {
    size_t added = 0;
    while (added < len && reply->niov < CKPT_REPLY_IOV_MAX) {
        const struct place place = place_of(t, off + added);
        struct request q = {.reader = r,
                            .part = place.part,
                            .map = &t->map,
                            .off = place.off,
                            .len = len - added,
                            .reply = reply,
                            .stop = &reply->stop};
        q.len = place.left < q.len ? (size_t)place.left : q.len;
        q.out_bytes = q.part->walk ? ckpt_map_out_bytes(q.map, q.part->walk->esize) : 1;
        if (ckpt_stop_asked(q.stop))
            return ckpt_fail_stopped(err);
        const ssize_t n = add_from_part(&q, err);
        if (n < 0)
            return n;
        added += (size_t)n;
    }
    return (ssize_t)added;
}

void ckpt_reply_done(struct ckpt_reader *r, struct ckpt_reply *reply) {
    while (reply->holds) {
        struct ckpt_reply_hold *const hold = reply->holds;
        reply->holds = hold->next;
        if (hold->band)
            ckpt_bands_unpin(r->bands, hold->band);
        ckpt_source_close(&hold->source);
        free(hold);
    }
    reply->niov = 0;
    reply->nbytes = 0;
    reply->nafter = 0;
}

int ckpt_reader_lost(const struct ckpt_adapted *t, uint64_t off, struct ckpt_err *err) {
    const uint64_t last = t->nbytes - 1;
    const struct ckpt_tensor *const source = place_of(t, off < last ? off : last).part->source;
    return ckpt_source_failed(source ? source->blob : t->source->blob, err);
}

/* The iovecs may point into a mapping. */
static int copy_out(const struct ckpt_adapted *t, uint64_t off, const struct ckpt_reply *reply,
                    uint8_t *buf, struct ckpt_err *err) {
    const int rc = ckpt_reply_copy(reply, buf);
    return rc ? ckpt_reader_lost(t, off + ckpt_reply_find_lost(reply), err) : 0;
}

/* --- parts that take turns --- */

/* With shares this small the iovecs of a reply would hold little: they are copied together. */
static bool in_small_shares(const struct ckpt_adapted *t) {
    return t->turns > 1 && t->nbytes / t->turns / t->nparts < RUN_MAPPED;
}

static ssize_t add_copied(struct ckpt_reader *r, const struct ckpt_adapted *t, uint64_t off,
                          size_t len, struct ckpt_reply *reply, struct ckpt_err *err) {
    const size_t n = len < DIRECT_MOST ? len : DIRECT_MOST;
    struct ckpt_reply_hold *const hold = ckpt_reply_hold(reply, n);
    if (!hold)
        return ckpt_fail_memory(err, "answering a read");
    for (size_t done = 0; done < n;) {
        struct ckpt_reply pieces = {.stop = reply->stop};
        const ssize_t more = add_parts(r, t, off + done, n - done, &pieces, err);
        const int rc =
            more < 0 ? (int)more : copy_out(t, off + done, &pieces, hold->data + done, err);
        ckpt_reply_done(r, &pieces);
        if (rc < 0)
            return rc;
        done += (size_t)more;
    }
    return (ssize_t)ckpt_reply_add_bytes(reply, hold->data, n);
}

ssize_t ckpt_reader_add(struct ckpt_reader *r, const struct ckpt_adapted *t, uint64_t off,
                        size_t len, struct ckpt_reply *reply, struct ckpt_err *err) {
    if (!in_small_shares(t))
        return add_parts(r, t, off, len, reply, err);
    size_t added = 0;
    while (added < len && reply->niov < CKPT_REPLY_IOV_MAX) {
        const ssize_t n = add_copied(r, t, off + added, len - added, reply, err);
        if (n < 0)
            return n;
        added += (size_t)n;
    }
    return (ssize_t)added;
}

int ckpt_reader_read(struct ckpt_reader *r, const struct ckpt_adapted *t, uint64_t off, size_t len,
                     void *buf, struct ckpt_err *err) {
    struct ckpt_reply reply;
    reply.niov = 0;
    reply.nbytes = 0;
    reply.holds = NULL;
    reply.stop = (struct ckpt_stop){.ask = NULL};
    size_t done = 0;
    while (done < len) {
        const size_t want = len - done < READ_PIECE ? len - done : READ_PIECE;
        const ssize_t n = ckpt_reader_add(r, t, off + done, want, &reply, err);
        const int rc = n < 0 ? (int)n : copy_out(t, off + done, &reply, (uint8_t *)buf + done, err);
        ckpt_reply_done(r, &reply);
        if (rc < 0)
            return rc;
        done += (size_t)n;
    }
    return 0;
}

/* --- making and freeing --- */

int ckpt_reader_new(const struct ckpt_reader_options *options, struct ckpt_reader **out,
                    struct ckpt_err *err) {
    struct ckpt_reader *const r = calloc(1, sizeof *r);
    if (!r)
        return ckpt_fail_memory(err, "making the reader");
    size_t bytes = options && options->band_bytes ? options->band_bytes : BANDS_DEFAULT;
    bytes = bytes < BANDS_LEAST ? BANDS_LEAST : bytes;
    r->band_limit = (int64_t)(bytes / BAND_SHARE);
    int rc = ckpt_bands_new(bytes, &r->bands, err);
    if (rc == 0 && !(options && options->no_prefetch))
        rc = ckpt_prefetch_new(r->bands, r->band_limit, &r->prefetch, err);
    if (rc < 0) {
        ckpt_reader_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void ckpt_reader_watch(struct ckpt_reader *r, void (*finished)(void *arg), void *arg) {
    ckpt_bands_watch(r->bands, finished, arg);
}

void ckpt_reader_free(struct ckpt_reader *r) {
    if (!r)
        return;
    ckpt_prefetch_free(r->prefetch);
    ckpt_bands_free(r->bands);
    free(r);
}
