/*
 * The reader against arrays made element by element: every way in which a range can be read, random
 * ranges by eight threads at once with caches large and tiny, and what may go wrong: a source that
 * shrinks, a blob that fails, an interruption, a cache full of pinned bands. Built with
 * -fsanitize=thread this is the check of the band cache's locking.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "adapters/gather.h"
#include "adapters/reader.h"
#include "base/cleanup.h"
#include "base/guard.h"
#include "random.h"

#define SOURCE_BYTES (6 << 20)
#define TENSORS_MOST 32
#define READS 150 /* of each thread */

struct world {
    struct ckpt_arena arena;
    char path[64];
    struct ckpt_file *file;
    struct ckpt_blob *in_file, *owned;
    struct ckpt_adapted tensor[TENSORS_MOST];
    uint8_t *expected[TENSORS_MOST];
    size_t n;
};

/* --- tensors --- */

static void write_source(struct world *w, struct rng *r) {
    strcpy(w->path, "/tmp/ckpt-test-reader-XXXXXX");
    CKPT_AUTO(fd) const int fd = mkstemp(w->path);
    CKPT_AUTO(free) uint8_t *data = malloc(SOURCE_BYTES);
    for (size_t i = 0; i < SOURCE_BYTES; i += 8)
        memcpy(data + i, &(uint64_t){rng_next(r)}, 8);
    assert_int_equal(write(fd, data, SOURCE_BYTES), SOURCE_BYTES);
}

static struct ckpt_tensor *add_source(struct world *w, struct ckpt_blob *blob,
                                      enum ckpt_dtype dtype, const int64_t *shape, uint32_t ndim,
                                      uint64_t offset) {
    struct ckpt_tensor *const t = ckpt_arena_alloc(&w->arena, sizeof *t);
    int64_t *const own = ckpt_arena_array(&w->arena, ndim, sizeof *own);
    for (uint32_t d = 0; d < ndim; d++)
        own[d] = shape[d];
    *t = (struct ckpt_tensor){.key = CKPT_TEXT("t"),
                              .dtype = dtype,
                              .ndim = ndim,
                              .shape = own,
                              .offset = offset,
                              .blob = blob};
    return t;
}

/* A tensor of n parts, which the caller fills by set_part or leaves as zeros. */
static struct ckpt_adapted *add_tensor(struct world *w, uint32_t nparts,
                                       struct ckpt_element_map map) {
    struct ckpt_adapted *const t = &w->tensor[w->n++];
    assert_true(w->n <= TENSORS_MOST);
    t->part = ckpt_arena_array(&w->arena, nparts, sizeof *t->part);
    t->nparts = nparts;
    t->map = map;
    return t;
}

static void set_part(struct world *w, struct ckpt_adapted *t, uint32_t i,
                     const struct ckpt_tensor *source, const struct ckpt_view *v) {
    struct ckpt_walk *const walk = ckpt_walk_pack(&w->arena, v);
    t->part[i].source = source;
    t->part[i].walk = walk;
    t->part[i].nbytes = (uint64_t)walk->count * ckpt_map_out_bytes(&t->map, walk->esize);
    t->source = t->source ? t->source : source;
}

/* Parts that lie one behind the other are dealt out in turns. */
static void take_turns(const struct ckpt_adapted *t, uint8_t *bytes) {
    uint8_t *const copy = malloc(t->nbytes), *out = bytes;
    memcpy(copy, bytes, t->nbytes);
    for (uint64_t turn = 0; turn < t->turns; turn++) {
        const uint8_t *part = copy;
        for (uint32_t p = 0; p < t->nparts; part += t->part[p++].nbytes) {
            const size_t share = t->part[p].nbytes / t->turns;
            memcpy(out, part + turn * share, share);
            out += share;
        }
    }
    free(copy);
}

/* The bytes a tensor must have, one element after the other. */
static void finish_tensor(struct world *w, struct ckpt_adapted *t) {
    const uint8_t *const base = w->file->data; /* both blobs hold the same bytes */
    for (uint32_t p = 0; p < t->nparts; p++)
        t->nbytes += t->part[p].nbytes;
    uint8_t *out = w->expected[t - w->tensor] = calloc(1, t->nbytes + 1);
    for (uint32_t p = 0; p < t->nparts; out += t->part[p++].nbytes) {
        const struct ckpt_walk *const walk = t->part[p].walk;
        if (!walk)
            continue;
        const uint32_t size = ckpt_map_out_bytes(&t->map, walk->esize);
        for (int64_t i = 0; i < walk->count; i++) {
            int64_t at = walk->offset, rest = i;
            for (uint32_t d = walk->npairs; d-- > 0; rest /= walk->pair[d].size)
                at += rest % walk->pair[d].size * walk->pair[d].stride;
            ckpt_element_convert(&t->map, base + at, out + i * size);
        }
    }
    take_turns(t, w->expected[t - w->tensor]);
}

/* One part: `shape` of `from`, permuted by `order` (NULL: as it is). */
static struct ckpt_adapted *add_permuted(struct world *w, struct ckpt_blob *blob,
                                         struct ckpt_element_map map, const int64_t *shape,
                                         uint32_t ndim, const uint32_t *order) {
    struct ckpt_adapted *const t = add_tensor(w, 1, map);
    const struct ckpt_tensor *const source = add_source(w, blob, map.from, shape, ndim, 4096 + 8);
    struct ckpt_view v;
    assert_int_equal(ckpt_view_init(&v, source, NULL), 0);
    if (order)
        assert_int_equal(ckpt_view_permute(&v, order, ndim, NULL), 0);
    set_part(w, t, 0, source, &v);
    finish_tensor(w, t);
    return t;
}

/* Columns [start, start+len) of a matrix: runs. */
static void add_columns(struct world *w, enum ckpt_dtype dtype, int64_t rows, int64_t columns,
                        int64_t start, int64_t len) {
    struct ckpt_adapted *const t =
        add_tensor(w, 1, (struct ckpt_element_map){dtype, dtype, 0, 0, 0});
    const struct ckpt_tensor *const source =
        add_source(w, w->in_file, dtype, (int64_t[]){rows, columns}, 2, 64);
    struct ckpt_view v;
    assert_int_equal(ckpt_view_init(&v, source, NULL), 0);
    assert_int_equal(ckpt_view_slice(&v, 1, start, len, 1, NULL), 0);
    set_part(w, t, 0, source, &v);
    finish_tensor(w, t);
}

/* A join: rows, zeros, the same transposed, zeros. */
static void add_joined(struct world *w) {
    struct ckpt_adapted *const t =
        add_tensor(w, 4, (struct ckpt_element_map){CKPT_DT_F16, CKPT_DT_F32, 0, 0, 0});
    const struct ckpt_tensor *const source =
        add_source(w, w->in_file, CKPT_DT_F16, (int64_t[]){300, 300}, 2, 6);
    struct ckpt_view v;
    assert_int_equal(ckpt_view_init(&v, source, NULL), 0);
    set_part(w, t, 0, source, &v);
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){1, 0}, 2, NULL), 0);
    set_part(w, t, 2, source, &v);
    t->part[1].nbytes = 70000;
    t->part[3].nbytes = 1;
    finish_tensor(w, t);
}

/* A join along the second axis: [rows, a], zeros, [rows, b] of which the last is transposed. */
static void add_side_by_side(struct world *w, int64_t rows, int64_t a, int64_t b) {
    struct ckpt_adapted *const t =
        add_tensor(w, 3, (struct ckpt_element_map){CKPT_DT_F32, CKPT_DT_F32, 0, 0, 0});
    const struct ckpt_tensor *const x =
        add_source(w, w->in_file, CKPT_DT_F32, (int64_t[]){rows, a}, 2, 128);
    const struct ckpt_tensor *const y =
        add_source(w, w->in_file, CKPT_DT_F32, (int64_t[]){b, rows}, 2, 4);
    struct ckpt_view v;
    assert_int_equal(ckpt_view_init(&v, x, NULL), 0);
    set_part(w, t, 0, x, &v);
    assert_int_equal(ckpt_view_init(&v, y, NULL), 0);
    assert_int_equal(ckpt_view_permute(&v, (uint32_t[]){1, 0}, 2, NULL), 0);
    set_part(w, t, 2, y, &v);
    t->part[1].nbytes = (uint64_t)rows * 12;
    t->turns = (uint64_t)rows;
    finish_tensor(w, t);
}

#define SAME(dtype) ((struct ckpt_element_map){dtype, dtype, false, false, false})
#define CAST(from, to) ((struct ckpt_element_map){from, to, false, false, false})

static void add_tensors(struct world *w) {
    struct ckpt_blob *const f = w->in_file, *const o = w->owned;
    const uint32_t t2[] = {1, 0}, hwio[] = {3, 2, 0, 1}, last[] = {0, 2, 1};
    add_permuted(w, f, SAME(CKPT_DT_F32), (int64_t[]){500, 700}, 2, NULL);
    add_permuted(w, f, SAME(CKPT_DT_F32), (int64_t[]){500, 700}, 2, t2);
    add_permuted(w, f, SAME(CKPT_DT_BF16), (int64_t[]){1031, 517}, 2, t2);
    add_permuted(w, f, SAME(CKPT_DT_U8), (int64_t[]){3, 5, 14, 33}, 4, hwio);
    add_permuted(w, f, SAME(CKPT_DT_C128), (int64_t[]){70, 90}, 2, t2);
    add_permuted(w, f, SAME(CKPT_DT_F64), (int64_t[]){60, 33, 41}, 3, last);
    add_permuted(w, f, CAST(CKPT_DT_BF16, CKPT_DT_F32), (int64_t[]){300, 401}, 2, t2);
    add_permuted(w, f, CAST(CKPT_DT_F16, CKPT_DT_F32), (int64_t[]){100003}, 1, NULL);
    add_permuted(w, f, CAST(CKPT_DT_F64, CKPT_DT_BF16), (int64_t[]){3, 3, 40, 50}, 4, hwio);
    add_permuted(w, o, SAME(CKPT_DT_F32), (int64_t[]){200, 300}, 2, NULL);
    add_permuted(w, o, SAME(CKPT_DT_F32), (int64_t[]){200, 300}, 2, t2);
    add_permuted(w, f, SAME(CKPT_DT_F4), (int64_t[]){20, 30, 8}, 3, (uint32_t[]){1, 0, 2});
    add_permuted(w, f, SAME(CKPT_DT_F32), (int64_t[]){0, 3}, 2, t2);
    add_permuted(w, f, SAME(CKPT_DT_I64), NULL, 0, NULL);
    struct ckpt_element_map big = SAME(CKPT_DT_C64);
    big.swap = big.conj = true;
    add_permuted(w, f, big, (int64_t[]){100, 130}, 2, t2);
    add_columns(w, CKPT_DT_F32, 100, 9000, 100, 3000); /* runs of 12,000 bytes: from the mapping */
    add_columns(w, CKPT_DT_F32, 900, 1500, 7, 300);    /* of 1,200: into the reply's buffer */
    add_columns(w, CKPT_DT_U8, 9000, 100, 3, 12);      /* of 12: through bands */
    add_columns(w, CKPT_DT_F16, 9000, 100, 3, 1);      /* strided */
    add_joined(w);
    add_side_by_side(w, 40, 9000, 5000); /* from the mapping and from bands */
    add_side_by_side(w, 3000, 2, 7);     /* shares too small for iovecs: copied */
}

static void open_world(struct world *w) {
    struct rng r = rng_seeded("world");
    memset(w, 0, sizeof *w);
    write_source(w, &r);
    assert_int_equal(ckpt_file_open(w->path, &w->file, NULL), 0);
    assert_int_equal(ckpt_blob_extent(&w->arena, w->file, 0, SOURCE_BYTES, "", &w->in_file, NULL),
                     0);
    void *const copy = ckpt_arena_copy(&w->arena, w->file->data, SOURCE_BYTES);
    assert_int_equal(ckpt_blob_owned(&w->arena, copy, SOURCE_BYTES, "owned", &w->owned, NULL), 0);
    add_tensors(w);
}

static void close_world(struct world *w) {
    for (size_t i = 0; i < w->n; i++)
        free(w->expected[i]);
    ckpt_file_close(w->file);
    unlink(w->path);
    ckpt_arena_fini(&w->arena);
}

static struct ckpt_reader *new_reader(size_t band_bytes, bool no_prefetch) {
    struct ckpt_reader *r;
    const struct ckpt_reader_options options = {band_bytes, no_prefetch};
    assert_int_equal(ckpt_reader_new(&options, &r, NULL), 0);
    return r;
}

/* --- reading --- */

/* Reads through the iovecs, and compares them; false if a byte is wrong. */
static bool read_reply(struct ckpt_reader *r, const struct ckpt_adapted *t, const uint8_t *expected,
                       uint64_t off, size_t len) {
    struct ckpt_reply reply = {0};
    bool right = true;
    while (len > 0 && right) {
        const ssize_t n = ckpt_reader_add(r, t, off, len, &reply, NULL);
        right = n > 0 && (size_t)n <= len && reply.nbytes == (size_t)n;
        size_t at = 0;
        for (uint32_t i = 0; right && i < reply.niov; at += reply.iov[i++].iov_len)
            right = memcmp(reply.iov[i].iov_base, expected + off + at, reply.iov[i].iov_len) == 0;
        right = right && at == (size_t)n;
        off += (size_t)n;
        len -= (size_t)n;
        ckpt_reply_done(r, &reply);
    }
    return right;
}

struct job {
    const struct world *w;
    struct ckpt_reader *r;
    struct rng rng;
    size_t wrong; /* index of a tensor that read wrong, plus 1 */
};

static void *read_at_random(void *arg) {
    struct job *const j = arg;
    CKPT_AUTO(free) uint8_t *buf = malloc(SOURCE_BYTES);
    for (int i = 0; i < READS && !j->wrong; i++) {
        const size_t k = (size_t)rng_below(&j->rng, (int64_t)j->w->n);
        const struct ckpt_adapted *const t = &j->w->tensor[k];
        const uint64_t off = (uint64_t)rng_below(&j->rng, (int64_t)t->nbytes + 1);
        const int64_t most = rng_below(&j->rng, 3) ? 3000 : 400000;
        size_t len = (size_t)rng_below(&j->rng, most);
        len = len < t->nbytes - off ? len : (size_t)(t->nbytes - off);
        const bool right = rng_below(&j->rng, 2)
                               ? read_reply(j->r, t, j->w->expected[k], off, len)
                               : ckpt_reader_read(j->r, t, off, len, buf, NULL) == 0 &&
                                     memcmp(buf, j->w->expected[k] + off, len) == 0;
        j->wrong = right ? 0 : k + 1;
    }
    return NULL;
}

static void run_threads(const struct world *w, size_t band_bytes) {
    struct rng seeds = rng_seeded("run_threads");
    struct ckpt_reader *const r = new_reader(band_bytes, false);
    struct job job[8];
    pthread_t thread[8];
    for (int i = 0; i < 8; i++) {
        job[i] = (struct job){w, r, {rng_next(&seeds)}, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, read_at_random, &job[i]), 0);
    }
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    ckpt_reader_free(r);
    for (int i = 0; i < 8; i++)
        assert_int_equal(job[i].wrong, 0);
}

static void test_whole_tensors(void **state) {
    const struct world *const w = *state;
    struct ckpt_reader *const r = new_reader(0, true);
    for (size_t k = 0; k < w->n; k++) {
        if (!read_reply(r, &w->tensor[k], w->expected[k], 0, w->tensor[k].nbytes))
            fail_msg("tensor %zu", k);
    }
    ckpt_reader_free(r);
}

static void test_eight_threads(void **state) {
    run_threads(*state, 0);
    run_threads(*state, 1 << 20);
    run_threads(*state, 64 << 10);
}

/* As a buffered reader does; the prefetcher works ahead of it. */
static void test_sequential_small_reads(void **state) {
    const struct world *const w = *state;
    struct ckpt_reader *const r = new_reader(256 << 10, false);
    for (size_t k = 0; k < w->n; k++) {
        for (uint64_t off = 0; off < w->tensor[k].nbytes; off += 5001) {
            const uint64_t left = w->tensor[k].nbytes - off;
            assert_true(read_reply(r, &w->tensor[k], w->expected[k], off,
                                   left < 5001 ? (size_t)left : 5001));
        }
    }
    ckpt_reader_free(r);
}

/* One reply pins more bands than the cache holds; others go on reading. */
static void test_all_pinned(void **state) {
    const struct world *const w = *state;
    struct ckpt_reader *const r = new_reader(64 << 10, false);
    struct ckpt_reply reply = {0};
    const struct ckpt_adapted *const t = &w->tensor[1];
    uint64_t off = 0;
    while (off < t->nbytes && reply.niov < 100) {
        const uint64_t left = t->nbytes - off;
        const ssize_t n = ckpt_reader_add(r, t, off, left < 9000 ? left : 9000, &reply, NULL);
        assert_true(n > 0);
        off += (uint64_t)n;
    }
    for (uint32_t i = 0, at = 0; i < reply.niov; at += (uint32_t)reply.iov[i++].iov_len)
        assert_memory_equal(reply.iov[i].iov_base, w->expected[1] + at, reply.iov[i].iov_len);
    assert_true(read_reply(r, &w->tensor[2], w->expected[2], 0, w->tensor[2].nbytes));
    ckpt_reply_done(r, &reply);
    ckpt_reader_free(r);
}

/* --- what may go wrong --- */

static void test_source_shrinks(void **state) {
    (void)state;
    struct world w;
    open_world(&w);
    assert_int_equal(ckpt_guard_install(), 0); /* here, since cmocka catches SIGBUS in each test */
    struct ckpt_reader *const r = new_reader(0, false);
    CKPT_AUTO(free) uint8_t *buf = malloc(SOURCE_BYTES);
    assert_int_equal(truncate(w.path, 4096), 0);
    for (size_t k = 0; k < w.n; k++) {
        struct ckpt_err err = {0};
        const struct ckpt_adapted *const t = &w.tensor[k];
        if (t->source->blob != w.in_file || t->nbytes < 20000)
            continue;
        assert_int_equal(ckpt_reader_read(r, t, 0, t->nbytes, buf, &err), -EIO);
        assert_non_null(strstr(err.text, w.file->name));
    }
    ckpt_reader_free(r);
    close_world(&w);
}

/* What a reply says of the bytes after its last ends where the file does, or is nothing. */
static void test_what_follows(void **state) {
    const struct world *const w = *state;
    struct ckpt_reader *const r = new_reader(0, false);
    const uint8_t *const end = w->file->data + w->file->size;
    struct rng rng = {11};
    for (int i = 0; i < 400; i++) {
        const size_t k = (size_t)i % w->n;
        const struct ckpt_adapted *const t = &w->tensor[k];
        if (t->nbytes == 0)
            continue;
        const uint64_t off = rng_next(&rng) % t->nbytes;
        const size_t len = 1 + (size_t)(rng_next(&rng) % (t->nbytes - off));
        struct ckpt_reply reply = {.niov = 0};
        const ssize_t n = ckpt_reader_add(r, t, off, len, &reply, NULL);
        assert_true(n > 0);
        assert_true(reply.nafter == 0 ||
                    (reply.after > w->file->data && reply.after + reply.nafter == end));
        if (k == 0) /* as it is in the file */
            assert_ptr_equal(reply.after, w->file->data + 4096 + 8 + off + (size_t)n);
        if (k == 1) /* transposed */
            assert_int_equal(reply.nafter, 0);
        if (i % 2 && reply.niov < CKPT_REPLY_IOV_MAX) {
            ckpt_reply_add_bytes(&reply, "x", 1);
            assert_int_equal(reply.nafter, 0);
        }
        ckpt_reply_done(r, &reply);
        assert_int_equal(reply.nafter, 0);
    }
    ckpt_reader_free(r);
}

static bool always(void *arg) {
    (void)arg;
    return true;
}

static void test_interrupted(void **state) {
    const struct world *const w = *state;
    struct ckpt_reader *const r = new_reader(0, true);
    struct ckpt_reply reply = {.stop = {.ask = always}};
    assert_int_equal(ckpt_reader_add(r, &w->tensor[1], 0, 1000, &reply, NULL), -EINTR);
    ckpt_reply_done(r, &reply);
    assert_true(read_reply(r, &w->tensor[1], w->expected[1], 0, w->tensor[1].nbytes));
    ckpt_reader_free(r);
}

/* A blob whose first pin waits until somebody else waits for its band, and then may fail. */
struct slow_blob {
    struct ckpt_blob blob;
    const uint8_t *data;
    pthread_barrier_t started;
    int rc; /* of the first pin */
    atomic_int pins;
};

static int slow_pin(struct ckpt_blob *b, uint64_t lo, uint64_t hi, struct ckpt_pin *pin,
                    const struct ckpt_stop *stop, struct ckpt_err *err) {
    (void)stop;
    struct slow_blob *const s = (struct slow_blob *)b;
    (void)hi;
    pin->data = s->data + lo;
    if (atomic_fetch_add(&s->pins, 1) > 0)
        return 0;
    pthread_barrier_wait(&s->started);
    usleep(30000);
    return s->rc < 0 ? ckpt_fail(err, s->rc, "the slow blob failed") : 0;
}

static void slow_unpin(struct ckpt_blob *b, struct ckpt_pin *pin) {
    (void)b;
    pin->data = NULL;
}

struct slow_reader {
    struct ckpt_reader *r;
    const struct ckpt_adapted *t;
    struct ckpt_err err;
    int rc;
    uint8_t byte;
};

static void *read_slowly(void *arg) {
    struct slow_reader *const s = arg;
    s->rc = ckpt_reader_read(s->r, s->t, 7, 1, &s->byte, &s->err);
    return NULL;
}

/* Two readers of one band, of which the first computes and gets `rc`. */
static void read_twice(const struct world *w, int rc, struct slow_reader *one,
                       struct slow_reader *two, int *pins) {
    static const struct ckpt_blob_ops ops = {
        .kind = "slow", .pin = slow_pin, .unpin = slow_unpin, .check = NULL, .fini = NULL};
    struct slow_blob slow = {.blob = {.ops = &ops, .size = SOURCE_BYTES, .name = "slow"},
                             .data = w->file->data,
                             .rc = rc};
    pthread_barrier_init(&slow.started, NULL, 2);
    struct ckpt_tensor source = *w->tensor[1].source;
    source.blob = &slow.blob;
    struct ckpt_part part = w->tensor[1].part[0];
    part.source = &source;
    struct ckpt_adapted t = w->tensor[1];
    t.part = &part;
    t.source = &source;
    struct ckpt_reader *const r = new_reader(0, true);
    *one = *two = (struct slow_reader){.r = r, .t = &t};
    pthread_t first, second;
    assert_int_equal(pthread_create(&first, NULL, read_slowly, one), 0);
    pthread_barrier_wait(&slow.started); /* the first is computing */
    assert_int_equal(pthread_create(&second, NULL, read_slowly, two), 0);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    *pins = atomic_load(&slow.pins);
    ckpt_reader_free(r);
    pthread_barrier_destroy(&slow.started);
}

static void test_second_reader_waits(void **state) {
    const struct world *const w = *state;
    struct slow_reader one, two;
    int pins;
    read_twice(w, 0, &one, &two, &pins);
    assert_int_equal(one.rc, 0);
    assert_int_equal(two.rc, 0);
    assert_int_equal(one.byte, w->expected[1][7]);
    assert_int_equal(two.byte, w->expected[1][7]);
    assert_int_equal(pins, 1); /* computed once */
}

static void test_waiter_gets_the_error(void **state) {
    struct slow_reader one, two;
    int pins;
    read_twice(*state, -EBADMSG, &one, &two, &pins);
    assert_int_equal(one.rc, -EBADMSG);
    assert_int_equal(two.rc, -EBADMSG);
    assert_string_equal(two.err.text, "the slow blob failed");
    assert_int_equal(pins, 1);
}

static void test_waiter_outlives_an_interruption(void **state) {
    const struct world *const w = *state;
    struct slow_reader one, two;
    int pins;
    read_twice(w, -EINTR, &one, &two, &pins);
    assert_int_equal(one.rc, -EINTR);
    assert_int_equal(two.rc, 0);
    assert_int_equal(two.byte, w->expected[1][7]);
    assert_int_equal(pins, 2);
}

static void test_zeros_fill_iovecs(void **state) {
    (void)state;
    struct ckpt_reply reply = {0};
    const size_t n = ckpt_reply_add_zeros(&reply, (size_t)1 << 40);
    assert_int_equal(reply.niov, CKPT_REPLY_IOV_MAX);
    assert_int_equal(reply.nbytes, n);
    assert_int_equal(ckpt_reply_add_bytes(&reply, "x", 1), 0);
}

static struct world world;

static int setup(void **state) {
    *state = &world;
    open_world(&world);
    return 0;
}

static int teardown(void **state) {
    close_world(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_tensors),
        cmocka_unit_test(test_sequential_small_reads),
        cmocka_unit_test(test_eight_threads),
        cmocka_unit_test(test_all_pinned),
        cmocka_unit_test(test_source_shrinks),
        cmocka_unit_test(test_what_follows),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_second_reader_waits),
        cmocka_unit_test(test_waiter_gets_the_error),
        cmocka_unit_test(test_waiter_outlives_an_interruption),
        cmocka_unit_test(test_zeros_fill_iovecs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
