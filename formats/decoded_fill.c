/*
 * Decoding a piece: all of its part at once, or forwards from where a decoder is parked.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/decoded_piece.h"

#define PARKED_MOST 32
#define PARKED_SHARE 4 /* no more than this part of the cache's bound */

/* --- pieces ----------------------------------------------------------------------------------- */

static void lock(const struct ckpt_decoded *d) {
    pthread_mutex_lock(&d->cache->mu);
}

static void unlock(const struct ckpt_decoded *d) {
    pthread_mutex_unlock(&d->cache->mu);
}

/* Decoded, or not: then whoever waits for it tries himself. */
static void settle(struct ckpt_decoded_piece *p, int rc) {
    if (rc) {
        ckpt_decoded_empty(p);
    } else {
        p->state = CKPT_PIECE_READY;
        if (p->pins == 0)
            ckpt_decoded_put_idle(p);
    }
    ckpt_decoded_tell_progress(p->of->cache, rc);
}

/* --- a part at once --------------------------------------------------------------------------- */

static int decode_part(struct ckpt_decoded *d, uint64_t part, uint8_t *out,
                       const struct ckpt_stop *stop, struct ckpt_err *err) {
    return d->parts ? d->parts->decode(d, part, out, stop, err) : d->decode(d, out, stop, err);
}

static int fill_part(struct ckpt_decoded *d, uint64_t index, const struct ckpt_stop *stop,
                     struct ckpt_err *err) {
    struct ckpt_decoded_piece *const p = &d->pieces[index];
    uint8_t *out = NULL;
    ckpt_decoded_reserve(p);
    unlock(d);
    int rc = ckpt_decoded_obtain(p, &out, err);
    if (rc == 0)
        rc = decode_part(d, index, out, stop, err);
    lock(d);
    d->cache->decoded++;
    if (!d->data)
        d->data = out;
    settle(p, rc);
    return rc;
}

/* --- parked decoders -------------------------------------------------------------------------- */

static void auto_close(struct ckpt_decoded_parked **k) {
    if (*k && (*k)->decoder)
        (*k)->stream->close((*k)->decoder);
    free(*k);
}
#define ckpt_auto_parked auto_close

/* Idle bytes make room for decoders, too. */
static void count_memory(struct ckpt_decoded_cache *c, struct ckpt_decoded_parked *k, size_t n) {
    c->memory.bytes = c->memory.bytes - k->memory + n;
    k->memory = n;
    while (c->memory.bytes > c->memory.limit && c->memory.oldest)
        ckpt_decoded_evict_oldest(&c->memory);
}

static void close_parked(struct ckpt_decoded_cache *c, struct ckpt_decoded_parked *k) {
    count_memory(c, k, 0);
    auto_close(&k);
}

/* The part's own, or NULL. */
static struct ckpt_decoded_parked *take_parked(struct ckpt_decoded *d, uint64_t part) {
    for (struct ckpt_decoded_parked **at = &d->cache->parked; *at; at = &(*at)->older) {
        struct ckpt_decoded_parked *const k = *at;
        if (k->of == d && k->part == part) {
            *at = k->older;
            return k;
        }
    }
    return NULL;
}

/* Those parked longest go when they are too many, or need too much memory together. */
static void park(struct ckpt_decoded_cache *c, struct ckpt_decoded_parked *k) {
    k->older = c->parked;
    c->parked = k;
    uint64_t n = 1, memory = k->memory;
    for (struct ckpt_decoded_parked **at = &k->older; *at;) {
        memory += (*at)->memory;
        if (++n <= PARKED_MOST && memory <= c->memory.limit / PARKED_SHARE) {
            at = &(*at)->older;
            continue;
        }
        struct ckpt_decoded_parked *const gone = *at;
        *at = gone->older;
        close_parked(c, gone);
    }
}

void ckpt_decoded_unpark(struct ckpt_decoded_cache *c, const struct ckpt_decoded *d) {
    for (struct ckpt_decoded_parked **at = &c->parked; *at;) {
        struct ckpt_decoded_parked *const k = *at;
        if (d && k->of != d) {
            at = &k->older;
            continue;
        }
        *at = k->older;
        close_parked(c, k);
    }
}

/* --- forwards --------------------------------------------------------------------------------- */

/* A decoder at the beginning of the part. */
static int open_decoder(struct ckpt_decoded *d, uint64_t part, struct ckpt_decoded_parked **out,
                        const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct ckpt_decoded_parked *const k = calloc(1, sizeof *k);
    if (!k)
        return ckpt_fail_memory(err, "decoding");
    k->of = d;
    k->part = part;
    k->stream = d->parts->stream;
    unlock(d);
    const int rc = k->stream->open(d, part, &k->decoder, stop, err);
    lock(d);
    d->cache->decoded++;
    *out = k;
    return rc;
}

/* What comes next of the part, to the piece's room, or nowhere if the piece is there already. */
static int decode_next(struct ckpt_decoded_parked *k, const struct ckpt_decoded_cut *cut,
                       struct ckpt_decoded_piece *p, bool is_there, const struct ckpt_stop *stop,
                       struct ckpt_err *err) {
    const uint64_t index = k->part * cut->per_part + k->at;
    uint8_t *out = NULL;
    int rc = ckpt_stop_asked(stop) ? ckpt_fail_stopped(err) : 0;
    if (rc == 0 && !is_there)
        rc = ckpt_decoded_obtain(p, &out, err);
    if (rc)
        return rc; /* the decoder is still where it was */
    rc = k->stream->next(k->decoder, out, ckpt_decoded_piece_bytes(cut, index), err);
    if (rc == 0 && k->at + 1 == cut->per_part)
        rc = k->stream->end(k->decoder, err);
    k->at = rc ? UINT64_MAX : k->at + 1;
    return rc;
}

/* One piece on. With `shown` it can be read from then on. */
static int advance(struct ckpt_decoded *d, struct ckpt_decoded_parked *k, bool shown,
                   const struct ckpt_stop *stop, struct ckpt_err *err) {
    const struct ckpt_decoded_cut cut = ckpt_decoded_cut(d);
    struct ckpt_decoded_piece *const p = &d->pieces[k->part * cut.per_part + k->at];
    const bool is_there = p->state == CKPT_PIECE_READY;
    if (!is_there)
        ckpt_decoded_reserve(p);
    unlock(d);
    const int rc = decode_next(k, &cut, p, is_there, stop, err);
    const size_t memory = k->stream->memory(k->decoder);
    lock(d);
    count_memory(d->cache, k, memory);
    if (!is_there && (rc || shown))
        settle(p, rc);
    return rc;
}

/* To the end of the part, and only then is any of it shown. */
static int decode_checked(struct ckpt_decoded *d, struct ckpt_decoded_parked *k, uint64_t per_part,
                          const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct ckpt_decoded_piece *const first = &d->pieces[k->part * per_part];
    int rc = 0;
    while (rc == 0 && k->at < per_part)
        rc = advance(d, k, false, stop, err);
    for (uint64_t i = 0; i < per_part; i++)
        if (first[i].state == CKPT_PIECE_DECODING)
            settle(&first[i], rc);
    return rc;
}

/* What is damaged is not shown any more, none of it. What could not be read may be read later. */
static void note_failure(struct ckpt_decoded *d, const struct ckpt_err *err) {
    if (!d->failure && err && err->code == -EBADMSG && (d->failure = malloc(sizeof *err)))
        *d->failure = *err;
}

static int fill_forwards(struct ckpt_decoded *d, uint64_t index, uint64_t per_part,
                         const struct ckpt_stop *stop, struct ckpt_err *err) {
    const uint64_t part = index / per_part, wanted = index % per_part;
    CKPT_AUTO(parked) struct ckpt_decoded_parked *k = take_parked(d, part);
    struct ckpt_err why = {0};
    int rc = 0;
    if (k && k->at > wanted) {
        close_parked(d->cache, k);
        k = NULL;
    }
    if (!k)
        rc = open_decoder(d, part, &k, stop, &why);
    if (rc == 0 && k->stream->is_checked(k->decoder))
        rc = decode_checked(d, k, per_part, stop, &why);
    while (rc == 0 && k->at <= wanted)
        rc = advance(d, k, true, stop, &why);
    if (rc && err)
        *err = why;
    note_failure(d, &why);
    if (k && k->at < per_part && k->decoder)
        park(d->cache, CKPT_STEAL(k));
    else if (k)
        count_memory(d->cache, k, 0);
    return rc;
}

/* --- any -------------------------------------------------------------------------------------- */

int ckpt_decoded_fill(struct ckpt_decoded *d, uint64_t index, const struct ckpt_stop *stop,
                      struct ckpt_err *err) {
    const struct ckpt_decoded_cut cut = ckpt_decoded_cut(d);
    struct ckpt_decoded_piece *const first = &d->pieces[index / cut.per_part * cut.per_part];
    first->is_busy = true;
    const int rc = cut.per_part == 1 ? fill_part(d, index, stop, err)
                                     : fill_forwards(d, index, cut.per_part, stop, err);
    first->is_busy = false;
    ckpt_decoded_tell_progress(d->cache, rc);
    return rc;
}
