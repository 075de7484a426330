#include "formats/chunk_grid.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/guard.h"
#include "base/size.h"
#include "formats/box.h"
#include "formats/chunk_decode.h"
#include "formats/mapped.h"

/* A run of the array's bytes up to so many is put together in memory of its own; for more, the
 * whole array is, in the cache. */
#define RUN_MOST ((uint64_t)1 << 20)

static bool is_flat(const struct ckpt_chunk_grid *g);

/* --- chunks ----------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = ((const struct ckpt_chunk *)b)->number;
    return (x > y) - (x < y);
}

/* The stored chunk that the chunk is, or which part of it. NULL: it is not stored. */
static struct ckpt_chunk *find_chunk(const struct ckpt_chunk_grid *g, uint64_t number,
                                     uint64_t *part) {
    uint64_t stored = g->per ? 0 : number, step = 1, part_step = 1;
    *part = 0;
    for (uint32_t d = g->ndim; g->per && d-- > 0; number /= (uint64_t)g->count[d]) {
        const uint64_t at = number % (uint64_t)g->count[d], per = (uint64_t)g->per[d];
        stored += at / per * step;
        *part += at % per * part_step;
        step *= ((uint64_t)g->count[d] + per - 1) / per;
        part_step *= per;
    }
    return g->nchunks ? bsearch(&stored, g->chunks, g->nchunks, sizeof *g->chunks, by_number)
                      : NULL;
}

int ckpt_chunk_grid_check(const struct ckpt_chunk_grid *g, const struct ckpt_pin *pin,
                          struct ckpt_err *err) {
    if (!pin->file || !ckpt_file_changed(pin->file))
        return 0;
    return ckpt_fail(err, -EIO,
                     "array \"%s\": %s has changed since the mount: unmount and mount again",
                     g->blob.name, pin->file->name);
}

int ckpt_chunk_grid_lost(const struct ckpt_chunk_grid *g, const struct ckpt_pin *pin,
                         struct ckpt_err *err) {
    return ckpt_fail(err, -EIO, "array \"%s\": %s " CKPT_LOST, g->blob.name,
                     pin->file ? pin->file->name : "its file");
}

/* Where it lies in memory as it is: 1; 0: it doesn't, or not all of it does. */
static int pin_plain(const struct ckpt_chunk_grid *g, const struct ckpt_stored *value,
                     struct ckpt_pin *pin, struct ckpt_err *err) {
    const struct ckpt_file *const file = value->data ? NULL : value->file->mapping->file;
    if (value->length < pin->hi || (g->per && value->length != g->parts.bytes))
        return ckpt_fail(err, -EIO,
                         "array \"%s\": a chunk is damaged: it has %" PRIu64
                         " bytes, expected %" PRIu64,
                         g->blob.name, value->length, g->parts.bytes);
    if (!value->data && !file)
        return 0;
    pin->data = (value->data ? value->data : file->data + value->offset) + pin->lo;
    pin->file = file;
    const int rc = ckpt_chunk_grid_check(g, pin, err);
    return rc ? rc : 1;
}

static int pin_chunk(struct ckpt_chunk_grid *g, uint64_t number, uint64_t lo, uint64_t hi,
                     struct ckpt_pin *pin, const struct ckpt_stop *stop, struct ckpt_err *err) {
    *pin = (struct ckpt_pin){.lo = lo, .hi = hi};
    struct ckpt_chunk *const chunk = find_chunk(g, number, &pin->part);
    struct ckpt_stored value;
    if (!chunk)
        return 0;
    int rc = 1;
    if (g->per || g->is_plain)
        rc = ckpt_chunk_locate(chunk, pin->part, &value, stop, err);
    if (rc < 0 || (rc == 0 && !is_flat(g)))
        return rc;
    if (rc > 0 && g->is_plain && (rc = pin_plain(g, &value, pin, err)) != 0)
        return rc < 0 ? rc : 0;
    rc = ckpt_decoded_pin_part(&chunk->decoded, pin->part, lo, hi, &pin->data, stop, err);
    if (rc == 0)
        pin->held = &chunk->decoded;
    return rc;
}

/* An array may have a thousand chunks, which are damaged or gone together. */
static void say_first_failure(struct ckpt_chunk_grid *g, struct ckpt_err *err) {
    struct ckpt_err *first = NULL, *const mine = malloc(sizeof *mine);
    if (!mine)
        return;
    *mine = *err;
    if (atomic_compare_exchange_strong(&g->failure, &first, mine))
        return;
    free(mine);
    *err = *first;
}

int ckpt_chunk_grid_pin(struct ckpt_chunk_grid *g, uint64_t number, uint64_t lo, uint64_t hi,
                        struct ckpt_pin *pin, const struct ckpt_stop *stop, struct ckpt_err *err) {
    const int rc = pin_chunk(g, number, lo, hi, pin, stop, err);
    const bool lost = rc == -EIO || rc == -EBADMSG;
    if (lost && err)
        say_first_failure(g, err);
    return lost ? -EIO : rc;
}

void ckpt_chunk_grid_unpin(struct ckpt_pin *pin) {
    if (pin->held)
        ckpt_decoded_unpin_part(pin->held, pin->part, pin->lo, pin->hi);
    *pin = (struct ckpt_pin){0};
}

/* --- the array's bytes ------------------------------------------------------------------------ */

/* A box of the array, [from, to) along each axis, that goes to C order at `out`, which begins with
 * the array's element `base`. */
struct window {
    struct ckpt_chunk_grid *g;
    int64_t from[CKPT_NDIM_MAX], to[CKPT_NDIM_MAX];
    int64_t dense[CKPT_NDIM_MAX]; /* strides of the array in C order, bytes */
    uint64_t base;                /* byte */
    uint8_t *out;
    const struct ckpt_stop *stop;
    struct ckpt_err *err;
};

/* Not inlined: locals beside sigsetjmp would be indeterminate after the jump. */
__attribute__((noinline)) static int copy_guarded(const struct ckpt_box *box, const uint8_t *from,
                                                  uint8_t *to) {
    int rc;
    CKPT_GUARDED(rc, ckpt_box_copy(box, from, to));
    return rc;
}

/* What of the window lies in the chunk at these indices of the grid. */
static int copy_chunk(const struct window *w, const int64_t *at) {
    struct ckpt_chunk_grid *const g = w->g;
    struct ckpt_box box = {.ndim = g->ndim, .esize = g->esize};
    struct ckpt_pin pin;
    uint64_t number = 0;
    int64_t source = 0, target = 0, last = 0;
    for (uint32_t d = 0; d < g->ndim; d++) {
        const int64_t start = at[d] * g->chunk[d];
        const int64_t from = w->from[d] > start ? w->from[d] : start;
        const int64_t to = w->to[d] < start + g->chunk[d] ? w->to[d] : start + g->chunk[d];
        box.size[d] = to - from;
        box.from[d] = g->stride[d];
        box.to[d] = w->dense[d];
        source += (from - start) * g->stride[d];
        last += (to - 1 - start) * g->stride[d];
        target += from * w->dense[d];
        number = number * (uint64_t)g->count[d] + (uint64_t)at[d];
    }
    int rc = ckpt_chunk_grid_pin(g, number, (uint64_t)source, (uint64_t)last + g->esize, &pin,
                                 w->stop, w->err);
    if (rc)
        return rc;
    if (!pin.data)
        memset(box.from, 0, sizeof box.from);
    rc = copy_guarded(&box, pin.data ? pin.data : g->fill, w->out + target - w->base);
    rc = rc ? ckpt_chunk_grid_lost(g, &pin, w->err) : ckpt_chunk_grid_check(g, &pin, w->err);
    ckpt_chunk_grid_unpin(&pin);
    return rc;
}

static int copy_window(const struct window *w) {
    const struct ckpt_chunk_grid *const g = w->g;
    int64_t at[CKPT_NDIM_MAX];
    for (uint32_t d = 0; d < g->ndim; d++)
        at[d] = w->from[d] / g->chunk[d];
    for (;;) {
        const int rc = copy_chunk(w, at);
        if (rc)
            return rc;
        uint32_t d = g->ndim;
        while (d-- > 0) {
            if (++at[d] * g->chunk[d] < w->to[d])
                break;
            at[d] = w->from[d] / g->chunk[d];
        }
        if (d == UINT32_MAX)
            return 0;
    }
}

/* Elements [first, end) in C order, of which those inside one index of axis d are a run: whole
 * indices are a box, the ragged ends are runs of the next axis. */
static int copy_run(struct window *w, uint32_t d, uint64_t inside, uint64_t first, uint64_t end) {
    const struct ckpt_chunk_grid *const g = w->g;
    if (first >= end)
        return 0;
    if (d == g->ndim)
        return copy_window(w);
    const uint64_t each = inside / (uint64_t)g->shape[d];
    const uint64_t head = (first + each - 1) / each, tail = end / each;
    int rc = 0;
    for (uint32_t i = d + 1; i < g->ndim; i++) {
        w->from[i] = 0;
        w->to[i] = g->shape[i];
    }
    if (head < tail) {
        w->from[d] = (int64_t)head;
        w->to[d] = (int64_t)tail;
        rc = copy_window(w);
    }
    if (rc == 0 && first < head * each) {
        const uint64_t index = first / each, stop = end < head * each ? end : head * each;
        w->from[d] = (int64_t)index;
        w->to[d] = (int64_t)index + 1;
        rc = copy_run(w, d + 1, each, first - index * each, stop - index * each);
        if (stop == end)
            return rc;
    }
    if (rc == 0 && tail * each < end) {
        w->from[d] = (int64_t)tail;
        w->to[d] = (int64_t)tail + 1;
        rc = copy_run(w, d + 1, each, 0, end - tail * each);
    }
    return rc;
}

/* Bytes of the array from element `first` on, which is where `out` begins. */
static int assemble(struct ckpt_chunk_grid *g, uint64_t first, uint64_t end, uint8_t *out,
                    const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct window w = {.g = g, .base = first * g->esize, .out = out, .stop = stop, .err = err};
    int64_t stride = g->esize;
    for (uint32_t d = g->ndim; d-- > 0; stride *= g->shape[d])
        w.dense[d] = stride;
    return copy_run(&w, 0, g->blob.size / g->esize, first, end);
}

static int decode_dense(struct ckpt_decoded *d, uint8_t *out, const struct ckpt_stop *stop,
                        struct ckpt_err *err) {
    struct ckpt_chunk_grid *const g =
        (struct ckpt_chunk_grid *)((char *)d - offsetof(struct ckpt_chunk_grid, dense));
    return assemble(g, 0, g->blob.size / g->esize, out, stop, err);
}

/* --- the blob --------------------------------------------------------------------------------- */

static int check_range(const struct ckpt_blob *b, uint64_t lo, uint64_t hi, struct ckpt_err *err) {
    if (lo <= hi && hi <= b->size)
        return 0;
    return ckpt_fail(err, -EINVAL,
                     "bytes %" PRIu64 "..%" PRIu64 " lie outside an array of %" PRIu64 " bytes", lo,
                     hi, b->size);
}

static int pin_run(struct ckpt_chunk_grid *g, uint64_t lo, uint64_t hi, struct ckpt_pin *pin,
                   const struct ckpt_stop *stop, struct ckpt_err *err) {
    const uint64_t first = lo / g->esize, end = (hi + g->esize - 1) / g->esize;
    CKPT_AUTO(free) uint8_t *bytes = malloc((size_t)((end - first) * g->esize) + 1);
    const int rc = bytes ? assemble(g, first, end, bytes, stop, err)
                         : ckpt_fail_memory(err, "putting chunks together");
    if (rc)
        return rc;
    pin->data = bytes + lo % g->esize;
    pin->held = CKPT_STEAL(bytes);
    return 0;
}

static int pin(struct ckpt_blob *b, uint64_t lo, uint64_t hi, struct ckpt_pin *out,
               const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct ckpt_chunk_grid *const g = ckpt_chunk_grid_of(b);
    *out = (struct ckpt_pin){0};
    int rc = check_range(b, lo, hi, err);
    if (rc || hi - lo <= RUN_MOST)
        return rc ? rc : pin_run(g, lo, hi, out, stop, err);
    rc = ckpt_decoded_pin(&g->dense, &out->data, stop, err);
    if (rc == 0)
        out->data += lo;
    return rc;
}

static void unpin(struct ckpt_blob *b, struct ckpt_pin *p) {
    if (p->held)
        free(p->held);
    else if (p->data)
        ckpt_decoded_unpin(&ckpt_chunk_grid_of(b)->dense);
    *p = (struct ckpt_pin){0};
}

static void fini(struct ckpt_blob *b) {
    struct ckpt_chunk_grid *const g = (struct ckpt_chunk_grid *)b;
    for (size_t i = 0; i < g->nchunks; i++) {
        ckpt_decoded_drop(&g->chunks[i].decoded);
        ckpt_decoded_drop(&g->chunks[i].index);
    }
    ckpt_decoded_drop(&g->dense);
    free(atomic_load(&g->failure));
}

static const struct ckpt_store_file *changed(struct ckpt_blob *b,
                                             const struct ckpt_store_file **last) {
    const struct ckpt_chunk_grid *const g = (const struct ckpt_chunk_grid *)b;
    for (size_t i = 0; i < g->nchunks; i++) {
        const struct ckpt_store_file *const file = g->chunks[i].value.file;
        if (file && file != *last && ckpt_store_file_changed(file))
            return file;
        *last = file;
    }
    return NULL;
}

static const struct ckpt_blob_ops ops = {
    .kind = "grid", .pin = pin, .unpin = unpin, .fini = fini, .changed = changed};

struct ckpt_chunk_grid *ckpt_chunk_grid_of(struct ckpt_blob *b) {
    return b->ops == &ops ? (struct ckpt_chunk_grid *)b : NULL;
}

size_t ckpt_chunk_grid_within(const struct ckpt_chunk_grid *g, const struct ckpt_blob *extent) {
    size_t n = 0;
    for (size_t i = 0; extent->in_file && i < g->nchunks; i++) {
        const struct ckpt_stored *const value = &g->chunks[i].value;
        n += value->file && value->file->mapping->file == extent->file &&
             value->offset - extent->file_offset < extent->size;
    }
    return n;
}

/* --- a flat blob: one chunk ------------------------------------------------------------------- */

static int pin_flat(struct ckpt_blob *b, uint64_t lo, uint64_t hi, struct ckpt_pin *out,
                    const struct ckpt_stop *stop, struct ckpt_err *err) {
    const int rc = check_range(b, lo, hi, err);
    return rc ? rc : ckpt_chunk_grid_pin((struct ckpt_chunk_grid *)b, 0, lo, hi, out, stop, err);
}

static void unpin_flat(struct ckpt_blob *b, struct ckpt_pin *p) {
    (void)b;
    ckpt_chunk_grid_unpin(p);
}

static const struct ckpt_blob_ops flat_ops = {
    .kind = "chunk", .pin = pin_flat, .unpin = unpin_flat, .fini = fini, .changed = changed};

static bool is_flat(const struct ckpt_chunk_grid *g) {
    return g->blob.ops == &flat_ops;
}

/* --- making one ------------------------------------------------------------------------------- */

/* The decoded bytes of the chunks that reading the array in order goes through again and again: all
 * chunks, or if it is cut along its outermost axis those at one index of that. */
static uint64_t turn_bytes(const struct ckpt_chunk_grid *g, uint64_t bytes) {
    uint32_t outermost = 0;
    uint64_t n = 1;
    while (outermost < g->ndim && g->shape[outermost] == 1)
        outermost++;
    for (uint32_t d = outermost + 1; d < g->ndim; d++)
        if (!ckpt_mul_u64(n, (uint64_t)g->count[d], &n))
            return UINT64_MAX;
    return ckpt_mul_u64(bytes, n, &n) ? n : UINT64_MAX;
}

static uint64_t chunks_in_shard(const struct ckpt_chunk_grid *g) {
    uint64_t n = 1;
    for (uint32_t d = 0; g->per && d < g->ndim; d++)
        n *= (uint64_t)g->per[d];
    return n;
}

static bool is_c_order(const struct ckpt_chunk_grid *g) {
    int64_t stride = g->esize;
    for (uint32_t d = g->ndim; d-- > 0; stride *= g->chunk[d])
        if (g->chunk[d] > 1 && g->stride[d] != stride)
            return false;
    return true;
}

static void init_chunks(struct ckpt_chunk_grid *g, uint64_t bytes,
                        struct ckpt_decoded_cache *cache) {
    const bool forwards = g->ops->unwrap != NULL;
    g->parts = (struct ckpt_decoded_parts){.count = chunks_in_shard(g),
                                           .bytes = bytes,
                                           .decode = ckpt_chunk_decode,
                                           .stream = forwards ? &ckpt_chunk_stream : NULL,
                                           .piece = CKPT_DECODED_PIECE};
    /* Of chunks that are read forwards as the array is, a piece each is enough. */
    const bool in_pieces = forwards && is_c_order(g) && bytes > CKPT_DECODED_PIECE;
    const uint64_t turns = turn_bytes(g, in_pieces ? CKPT_DECODED_PIECE : bytes);
    for (size_t i = 0; i < g->nchunks; i++)
        ckpt_chunk_init(&g->chunks[i], g, cache, is_flat(g) ? 0 : turns);
    if (!is_flat(g))
        ckpt_decoded_cache_expect(cache, turn_bytes(g, bytes));
}

int ckpt_chunk_grid_init(struct ckpt_chunk_grid *g, uint64_t bytes, bool is_flat_blob,
                         struct ckpt_decoded_cache *cache, const char *name, struct ckpt_err *err) {
    uint64_t count, size;
    if (!ckpt_shape_count(g->shape, g->ndim, &count) || !ckpt_mul_u64(count, g->esize, &size) ||
        size > INT64_MAX)
        return ckpt_fail(err, -E2BIG, "the array has more than 2^63 bytes");
    if (is_flat_blob)
        size = bytes;
    g->blob =
        (struct ckpt_blob){.ops = is_flat_blob ? &flat_ops : &ops, .size = size, .name = name};
    if (is_flat_blob && g->is_plain && g->chunks[0].value.file)
        g->blob.file = g->chunks[0].value.file->mapping->file;
    g->dense =
        (struct ckpt_decoded){.cache = cache, .decode = decode_dense, .name = name, .size = size};
    init_chunks(g, bytes, cache);
    return 0;
}
