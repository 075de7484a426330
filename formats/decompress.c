/*
 * A decoder is a row of the table: it takes pieces from a stream and puts what they decode to into
 * a sink, which is either as large as the result must be or grows up to a limit.
 *
 *     stored value ── stream ──> pieces ──> decoder ──> room in the sink, piece by piece
 */
#include "formats/decompress.h"

#include <bzlib.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#ifdef CKPT_WITH_BLOSC
#include <blosc.h>
#endif

#include "base/cleanup.h"
#include "base/size.h"
#include "formats/unzstd.h"

#define ROOM_MOST ((size_t)1 << 20) /* libraries get so much room at once: some count in int */
#define GROW_MIN ((uint64_t)4 << 10)

struct sink {
    uint8_t *data;
    uint64_t n, cap;
    uint64_t limit; /* of a growing one; 0: it is of a fixed size */
    uint8_t spare;  /* where the byte beyond the end goes */
    bool is_over;   /* there was one */
};

/* Room for the next bytes, at least one. NULL: out of memory. */
static uint8_t *sink_room(struct sink *s, size_t *room) {
    if (s->n == s->cap && s->limit > s->cap) {
        uint64_t cap = s->cap ? 2 * s->cap : GROW_MIN;
        cap = cap < s->limit ? cap : s->limit;
        uint8_t *const bigger = realloc(s->data, (size_t)cap);
        if (!bigger)
            return NULL;
        s->data = bigger;
        s->cap = cap;
    }
    const uint64_t left = s->cap - s->n;
    *room = left < ROOM_MOST ? (size_t)left : ROOM_MOST;
    if (left > 0)
        return s->data + s->n;
    *room = 1; /* a decoder may still have to find that it is at its end */
    return &s->spare;
}

static void sink_take(struct sink *s, size_t n) {
    if (s->n == s->cap)
        s->is_over = s->is_over || n > 0;
    else
        s->n += n;
}

/* What a decoder says of a piece: it wants more, or its stream is over. */
enum progress { MORE, OVER };

static int fail_damaged(struct ckpt_err *err, const char *what) {
    return ckpt_fail(err, -EBADMSG, "is damaged (%s)", what);
}

static int fail_decoding(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "decoding stored bytes");
}

/* --- none ------------------------------------------------------------------------------------- */

static int copy_all(struct ckpt_stream *in, struct sink *out, struct ckpt_err *err) {
    const uint8_t *piece = NULL;
    ssize_t n;
    while ((n = ckpt_stream_next(in, &piece, err)) > 0)
        for (size_t done = 0, room; done < (size_t)n && !out->is_over; done += room) {
            uint8_t *const to = sink_room(out, &room);
            if (!to)
                return fail_decoding(err);
            room = room < (size_t)n - done ? room : (size_t)n - done;
            memcpy(to, piece + done, room);
            sink_take(out, room);
        }
    return (int)n;
}

/* --- zstd ------------------------------------------------------------------------------------- */

static int unzstd(struct ckpt_stream *in, struct sink *out, struct ckpt_err *err) {
    CKPT_AUTO(unzstd) struct ckpt_unzstd z;
    ssize_t n = ckpt_unzstd_init(&z, err);
    while (n >= 0 && !out->is_over) {
        size_t room;
        uint8_t *const to = sink_room(out, &room);
        if (!to)
            return fail_decoding(err);
        n = ckpt_unzstd_read(&z, in, to, room, err);
        if (n <= 0)
            break;
        sink_take(out, (size_t)n);
    }
    return n < 0 ? (int)n : 0;
}

/* --- streams of a library --------------------------------------------------------------------- */

/* What zlib and bzip2 have in common: a state that is fed pieces. */
struct codec {
    void *state;
    /* Takes from the piece [*in, *in + *n), which it moves past what it took, and writes at most
     * *room bytes, which becomes what it wrote. */
    int (*step)(void *state, const uint8_t **in, size_t *n, uint8_t *to, size_t *room,
                enum progress *progress, struct ckpt_err *err);
};

static int decode_piece(const struct codec *c, const uint8_t *piece, size_t n, struct sink *out,
                        enum progress *progress, struct ckpt_err *err) {
    size_t room, made;
    do {
        uint8_t *const to = sink_room(out, &room);
        if (!to)
            return fail_decoding(err);
        made = room;
        const int rc = c->step(c->state, &piece, &n, to, &made, progress, err);
        if (rc)
            return rc;
        sink_take(out, made);
    } while (!out->is_over && (n > 0 || (*progress == MORE && made == room)));
    return 0;
}

static int decode_stream(const struct codec *c, struct ckpt_stream *in, struct sink *out,
                         struct ckpt_err *err) {
    enum progress progress = MORE;
    const uint8_t *piece = NULL;
    ssize_t n;
    while ((n = ckpt_stream_next(in, &piece, err)) > 0 && !out->is_over) {
        const int rc = decode_piece(c, piece, (size_t)n, out, &progress, err);
        if (rc)
            return rc;
    }
    if (n == 0 && progress != OVER && !out->is_over)
        return fail_damaged(err, "the stream ends early");
    return n < 0 ? (int)n : 0;
}

/* --- gzip and zlib ---------------------------------------------------------------------------- */

static void end_inflate(z_stream *z) {
    inflateEnd(z);
}
#define ckpt_auto_inflate end_inflate

static int inflate_step(void *state, const uint8_t **in, size_t *n, uint8_t *to, size_t *room,
                        enum progress *progress, struct ckpt_err *err) {
    z_stream *const z = state;
    z->next_in = (Bytef *)(uintptr_t)*in;
    z->avail_in = (uInt)*n;
    z->next_out = to;
    z->avail_out = (uInt)*room;
    const int rc = inflate(z, Z_NO_FLUSH);
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return fail_damaged(err, z->msg ? z->msg : "not a stream that inflates");
    if (rc == Z_BUF_ERROR && z->avail_in > 0 && z->avail_out == *room)
        return fail_damaged(err, "no progress");
    /* An archive of gzip may have several members. */
    if (rc == Z_STREAM_END && z->avail_in > 0 && inflateReset(z) != Z_OK)
        return fail_damaged(err, "a second member");
    *progress = rc == Z_STREAM_END ? OVER : MORE;
    *in = z->next_in;
    *n = z->avail_in;
    *room -= z->avail_out;
    return 0;
}

static int inflate_all(struct ckpt_stream *in, struct sink *out, int bits, struct ckpt_err *err) {
    CKPT_AUTO(inflate) z_stream z = {0};
    if (inflateInit2(&z, bits) != Z_OK)
        return fail_decoding(err);
    return decode_stream(&(struct codec){&z, inflate_step}, in, out, err);
}

static int ungzip(struct ckpt_stream *in, struct sink *out, struct ckpt_err *err) {
    return inflate_all(in, out, MAX_WBITS + 16, err);
}

static int unzlib(struct ckpt_stream *in, struct sink *out, struct ckpt_err *err) {
    return inflate_all(in, out, MAX_WBITS, err);
}

/* --- bzip2 ------------------------------------------------------------------------------------ */

static void end_bz2(bz_stream *z) {
    BZ2_bzDecompressEnd(z);
}
#define ckpt_auto_bz2 end_bz2

static int bz2_step(void *state, const uint8_t **in, size_t *n, uint8_t *to, size_t *room,
                    enum progress *progress, struct ckpt_err *err) {
    bz_stream *const z = state;
    if (*progress == OVER)
        return fail_damaged(err, "bytes follow the end of the bzip2 stream");
    z->next_in = (char *)(uintptr_t)*in;
    z->avail_in = (unsigned)*n;
    z->next_out = (char *)to;
    z->avail_out = (unsigned)*room;
    const int rc = BZ2_bzDecompress(z);
    if (rc != BZ_OK && rc != BZ_STREAM_END)
        return fail_damaged(err, "not a stream of bzip2");
    *progress = rc == BZ_STREAM_END ? OVER : MORE;
    *in = (const uint8_t *)z->next_in;
    *n = z->avail_in;
    *room -= z->avail_out;
    return 0;
}

static int unbz2(struct ckpt_stream *in, struct sink *out, struct ckpt_err *err) {
    CKPT_AUTO(bz2) bz_stream z = {0};
    if (BZ2_bzDecompressInit(&z, 0, 0) != BZ_OK)
        return fail_decoding(err);
    return decode_stream(&(struct codec){&z, bz2_step}, in, out, err);
}

/* --- blosc ------------------------------------------------------------------------------------ */

#ifdef CKPT_WITH_BLOSC
/* One frame, whose header says how large it decodes to; it decodes from memory only. */
static int unblosc(struct ckpt_stream *in, struct sink *out, struct ckpt_err *err) {
    const uint64_t stored = in->stored.length;
    size_t n = 0;
    CKPT_AUTO(free) uint8_t *frame = malloc((size_t)stored + 1);
    if (!frame)
        return fail_decoding(err);
    const int rc = ckpt_stored_read(&in->stored, frame, in->stop, err);
    if (rc)
        return rc;
    if (blosc_cbuffer_validate(frame, (size_t)stored, &n) < 0 || n > INT_MAX)
        return fail_damaged(err, "not a frame of blosc");
    if (out->limit && n <= out->limit && n > out->cap) {
        uint8_t *const bigger = realloc(out->data, n);
        if (!bigger)
            return fail_decoding(err);
        out->data = bigger;
        out->cap = n;
    }
    out->is_over = n > out->cap;
    if (n > 0 && !out->is_over && blosc_decompress_ctx(frame, out->data, n, 1) != (int)n)
        return fail_damaged(err, "the blosc frame does not decode");
    out->n = out->is_over ? 0 : n;
    return 0;
}
#define BLOSC unblosc
#else
#define BLOSC NULL
#endif

/* --- the table -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*decode)(struct ckpt_stream *in, struct sink *out, struct ckpt_err *err);
    uint64_t ratio; /* the best that the format can do, rounded up */
} table[CKPT_COMPRESSION_COUNT] = {
    [CKPT_COMPRESSION_NONE] = {"none", copy_all, 1},
    [CKPT_COMPRESSION_ZSTD] = {"zstd", unzstd, (uint64_t)1 << 16},
    [CKPT_COMPRESSION_GZIP] = {"gzip", ungzip, 1032},
    [CKPT_COMPRESSION_ZLIB] = {"zlib", unzlib, 1032},
    [CKPT_COMPRESSION_BZ2] = {"bz2", unbz2, (uint64_t)1 << 16},
    [CKPT_COMPRESSION_BLOSC] = {"blosc", BLOSC, (uint64_t)1 << 31},
};

bool ckpt_compression_by_name(struct ckpt_text name, enum ckpt_compression *out) {
    for (int c = CKPT_COMPRESSION_NONE + 1; c < CKPT_COMPRESSION_COUNT; c++)
        if (ckpt_text_is(name, table[c].name)) {
            *out = (enum ckpt_compression)c;
            return true;
        }
    return false;
}

const char *ckpt_compression_name(enum ckpt_compression c) {
    return table[c].name;
}

bool ckpt_compression_built(enum ckpt_compression c) {
    return table[c].decode;
}

bool ckpt_compression_can(enum ckpt_compression c, uint64_t stored, uint64_t decoded) {
    return decoded / table[c].ratio <= stored;
}

static int decode(enum ckpt_compression c, const struct ckpt_stored *value, struct sink *out,
                  const struct ckpt_stop *stop, struct ckpt_err *err) {
    CKPT_AUTO(stream) struct ckpt_stream in = {.fd = -1};
    if (!ckpt_compression_built(c))
        return ckpt_fail(err, -ENOTSUP, "is compressed with %s, which this build can't read",
                         table[c].name);
    const int rc = ckpt_stream_open(&in, value, stop, err);
    return rc ? rc : table[c].decode(&in, out, err);
}

int ckpt_decompress(enum ckpt_compression c, const struct ckpt_stored *value, uint8_t *out,
                    uint64_t n, const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct sink sink = {.data = out, .cap = n};
    const int rc = decode(c, value, &sink, stop, err);
    if (rc)
        return rc;
    if (!sink.is_over && sink.n == n)
        return 0;
    return ckpt_fail(err, -EBADMSG,
                     "is damaged: it decodes to %s %" PRIu64 " bytes, expected %" PRIu64,
                     sink.is_over ? "more than" : "only", sink.is_over ? n : sink.n, n);
}

int ckpt_decompress_all(enum ckpt_compression c, const struct ckpt_stored *value, uint64_t limit,
                        uint8_t **out, size_t *n, const struct ckpt_stop *stop,
                        struct ckpt_err *err) {
    struct sink sink = {.limit = limit};
    int rc = decode(c, value, &sink, stop, err);
    if (rc == 0 && sink.is_over)
        rc = ckpt_fail(err, -E2BIG, "decodes to more than the limit of %" PRIu64 " bytes", limit);
    if (rc) {
        free(sink.data);
        return rc;
    }
    *out = sink.data;
    *n = (size_t)sink.n;
    return 0;
}
