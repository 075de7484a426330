/*
 * Pieces: where in their item they lie, which shelf they lie on, and how they get there.
 */
#include "formats/decoded_piece.h"

#include <errno.h>
#include <stdlib.h>

#include "base/pages.h"
#include "formats/decoded_room.h"

#define MAPPED_MIN (64u << 10) /* smaller items come from malloc */

/* --- cutting ---------------------------------------------------------------------------------- */

struct ckpt_decoded_cut ckpt_decoded_cut(const struct ckpt_decoded *d) {
    const struct ckpt_decoded_parts *const p = d->parts;
    if (!p)
        return (struct ckpt_decoded_cut){1, d->size, d->size, d->size, 1};
    struct ckpt_decoded_cut cut = {p->count, p->bytes, p->bytes, p->bytes, 1};
    if (p->count > 1)
        cut.slot = ckpt_pages_round(p->bytes);
    if (p->stream && p->bytes > p->piece) {
        cut.piece = p->piece;
        cut.per_part = (p->bytes + p->piece - 1) / p->piece;
    }
    return cut;
}

uint64_t ckpt_decoded_piece_offset(const struct ckpt_decoded_cut *cut, uint64_t index) {
    return index / cut->per_part * cut->slot + index % cut->per_part * cut->piece;
}

uint64_t ckpt_decoded_piece_bytes(const struct ckpt_decoded_cut *cut, uint64_t index) {
    const uint64_t from = index % cut->per_part * cut->piece;
    return cut->part_bytes - from < cut->piece ? cut->part_bytes - from : cut->piece;
}

/* What the piece costs: of several parts each begins with a page. */
static uint64_t cost(const struct ckpt_decoded_piece *p) {
    const struct ckpt_decoded_cut cut = ckpt_decoded_cut(p->of);
    const uint64_t n = ckpt_decoded_piece_bytes(&cut, (uint64_t)(p - p->of->pieces));
    return cut.parts > 1 ? ckpt_pages_round(n) : n;
}

/* --- items ------------------------------------------------------------------------------------ */

static bool is_small(const struct ckpt_decoded_cut *cut) {
    return cut->parts == 1 && cut->part_bytes < MAPPED_MIN;
}

/* Only pieces that fill huge pages are to lie in them: one touched would bring others along. */
static bool is_huge(const struct ckpt_decoded_cut *cut) {
    return cut->parts == 1 && (cut->per_part == 1 || cut->piece % CKPT_DECODED_PIECE == 0);
}

int ckpt_decoded_item_open(struct ckpt_decoded *d, struct ckpt_err *err) {
    const struct ckpt_decoded_cut cut = ckpt_decoded_cut(d);
    const uint64_t n = cut.parts * cut.per_part;
    uint8_t *room = NULL;
    if (d->pieces)
        return 0;
    struct ckpt_decoded_piece *const pieces = calloc((size_t)n, sizeof *pieces);
    if (!pieces)
        return ckpt_fail_memory(err, "decoding");
    const int rc =
        is_small(&cut) ? 0 : ckpt_decoded_room_new(cut.parts * cut.slot, is_huge(&cut), &room, err);
    if (rc) {
        free(pieces);
        return ckpt_fail_in(err, "\"%s\"", d->name);
    }
    for (uint64_t i = 0; i < n; i++) {
        pieces[i].of = d;
        pieces[i].was_evicted = d->was_evicted;
    }
    d->pieces = pieces;
    d->data = room;
    return 0;
}

void ckpt_decoded_item_close(struct ckpt_decoded *d) {
    if (d->pins > 0 || d->present > 0 || !d->pieces)
        return;
    const struct ckpt_decoded_cut cut = ckpt_decoded_cut(d);
    ckpt_pages_free(d->data, cut.parts * cut.slot);
    free(d->pieces);
    d->data = NULL;
    d->pieces = NULL;
}

/* --- shelves ---------------------------------------------------------------------------------- */

static struct ckpt_decoded_shelf *shelf_of(const struct ckpt_decoded_piece *p) {
    struct ckpt_decoded_cache *const c = p->of->cache;
    return p->is_spilled ? &c->spilled : &c->memory;
}

void ckpt_decoded_tell_progress(struct ckpt_decoded_cache *c, int rc) {
    pthread_cond_broadcast(&c->progress);
    if (c->finished && rc != -EAGAIN)
        c->finished(c->finished_arg);
}

void ckpt_decoded_put_idle(struct ckpt_decoded_piece *p) {
    struct ckpt_decoded_shelf *const s = shelf_of(p);
    p->older = s->newest;
    p->newer = NULL;
    *(s->newest ? &s->newest->newer : &s->oldest) = p;
    s->newest = p;
    s->idle += cost(p);
}

void ckpt_decoded_take_idle(struct ckpt_decoded_piece *p) {
    struct ckpt_decoded_shelf *const s = shelf_of(p);
    *(p->older ? &p->older->newer : &s->oldest) = p->newer;
    *(p->newer ? &p->newer->older : &s->newest) = p->older;
    p->older = p->newer = NULL;
    s->idle -= cost(p);
}

static bool keep_spare(struct ckpt_decoded_cache *c, uint8_t *at, uint64_t n) {
    struct ckpt_err ignored = {0};
    if (n != CKPT_DECODED_PIECE || c->has_spare)
        return false;
    if (!c->spare && ckpt_decoded_room_new(n, true, &c->spare, &ignored) != 0)
        return false;
    c->has_spare = ckpt_decoded_room_move(at, c->spare, n);
    return c->has_spare;
}

static void release_room(struct ckpt_decoded_piece *p) {
    struct ckpt_decoded *const d = p->of;
    const struct ckpt_decoded_cut cut = ckpt_decoded_cut(d);
    const uint64_t index = (uint64_t)(p - d->pieces);
    const uint64_t n = ckpt_decoded_piece_bytes(&cut, index);
    if (!d->data)
        return;
    uint8_t *const at = d->data + ckpt_decoded_piece_offset(&cut, index);
    if (p->is_spilled)
        ckpt_decoded_spill_unmap(d->cache->spill_fd, p->spilled_at, at, n);
    else if (is_small(&cut))
        free(d->data);
    else if (!is_huge(&cut) || !keep_spare(d->cache, at, n))
        ckpt_decoded_room_empty(at, n);
    if (is_small(&cut) && p->is_spilled)
        ckpt_pages_free(d->data, n);
    if (is_small(&cut))
        d->data = NULL;
}

void ckpt_decoded_empty(struct ckpt_decoded_piece *p) {
    release_room(p);
    shelf_of(p)->bytes -= cost(p);
    p->state = CKPT_PIECE_ABSENT;
    p->is_spilled = false;
    p->of->present--;
}

void ckpt_decoded_evict_oldest(struct ckpt_decoded_shelf *s) {
    struct ckpt_decoded_piece *const p = s->oldest;
    struct ckpt_decoded *const d = p->of;
    ckpt_decoded_take_idle(p);
    ckpt_decoded_empty(p);
    p->was_evicted = true;
    d->was_evicted = d->was_evicted || d->present == 0;
    ckpt_decoded_item_close(d);
}

static bool has_room(const struct ckpt_decoded_shelf *s, uint64_t used, uint64_t size) {
    return used <= s->limit && size <= s->limit - used;
}

/* The piece that was evicted last leaves its memory to one of its size. */
static void take_spare(struct ckpt_decoded_piece *p) {
    struct ckpt_decoded *const d = p->of;
    const struct ckpt_decoded_cut cut = ckpt_decoded_cut(d);
    const uint64_t index = (uint64_t)(p - d->pieces);
    if (is_huge(&cut) && ckpt_decoded_piece_bytes(&cut, index) == CKPT_DECODED_PIECE &&
        d->cache->has_spare)
        d->cache->has_spare = !ckpt_decoded_room_move(
            d->cache->spare, d->data + ckpt_decoded_piece_offset(&cut, index), CKPT_DECODED_PIECE);
}

/* What is read in turns with more than memory holds does not drive out what will be wanted before
 * it is wanted again: nor does what comes back. */
void ckpt_decoded_reserve(struct ckpt_decoded_piece *p) {
    struct ckpt_decoded *const d = p->of;
    struct ckpt_decoded_cache *const c = d->cache;
    const uint64_t size = cost(p);
    d->comes_back = d->comes_back || p->was_evicted;
    const bool in_turns = d->comes_back || d->turns > c->memory.limit;
    const uint64_t used = c->memory.bytes - (in_turns ? 0 : c->memory.idle);
    p->is_spilled = !has_room(&c->memory, used, size);
    struct ckpt_decoded_shelf *const shelf = shelf_of(p);
    while (shelf->oldest && !has_room(shelf, shelf->bytes, size))
        ckpt_decoded_evict_oldest(shelf);
    if (p->is_spilled) {
        p->spilled_at = c->spilled.bytes > 0 ? c->spill_end : 0;
        c->spill_end = p->spilled_at + ckpt_pages_round(size);
    }
    if (!p->is_spilled && d->data)
        take_spare(p);
    shelf->bytes += size;
    p->state = CKPT_PIECE_DECODING;
    d->present++;
}

/* --- room ------------------------------------------------------------------------------------- */

/* Whether there were idle temporary bytes that could be given up. */
static bool free_disk(struct ckpt_decoded_cache *c) {
    pthread_mutex_lock(&c->mu);
    const bool any = c->spilled.oldest;
    while (c->spilled.oldest)
        ckpt_decoded_evict_oldest(&c->spilled);
    pthread_mutex_unlock(&c->mu);
    return any;
}

static int spill_fd(struct ckpt_decoded_cache *c) {
    pthread_mutex_lock(&c->mu);
    if (c->spill_fd < 0)
        c->spill_fd = ckpt_decoded_spill_open(&c->spill_folder);
    const int fd = c->spill_fd;
    pthread_mutex_unlock(&c->mu);
    return fd;
}

static int spill(struct ckpt_decoded_piece *p, uint8_t *at, uint64_t n, struct ckpt_err *err) {
    struct ckpt_decoded_cache *const c = p->of->cache;
    const int fd = spill_fd(c);
    int rc = fd < 0 ? fd : ckpt_decoded_spill_map(fd, p->spilled_at, at, n);
    if ((rc == -ENOSPC || rc == -ENOMEM) && free_disk(c))
        rc = ckpt_decoded_spill_map(fd, p->spilled_at, at, n);
    return rc ? ckpt_decoded_spill_fail(err, rc, c->spill_folder, p->of->name, n) : 0;
}

static int obtain_small(struct ckpt_decoded_piece *p, uint64_t n, uint8_t **out,
                        struct ckpt_err *err) {
    if (!p->is_spilled || n == 0) {
        *out = malloc(n ? (size_t)n : 1);
        return *out ? 0 : ckpt_fail_memory(err, "decoding");
    }
    int rc = ckpt_decoded_room_new(n, false, out, err);
    if (rc == 0 && (rc = spill(p, *out, n, err)) != 0) {
        ckpt_pages_free(*out, n);
        *out = NULL;
    }
    return rc;
}

int ckpt_decoded_obtain(struct ckpt_decoded_piece *p, uint8_t **out, struct ckpt_err *err) {
    struct ckpt_decoded *const d = p->of;
    const struct ckpt_decoded_cut cut = ckpt_decoded_cut(d);
    const uint64_t index = (uint64_t)(p - d->pieces);
    const uint64_t n = ckpt_decoded_piece_bytes(&cut, index);
    if (is_small(&cut))
        return obtain_small(p, n, out, err);
    *out = d->data + ckpt_decoded_piece_offset(&cut, index);
    return p->is_spilled ? spill(p, *out, n, err) : 0;
}
