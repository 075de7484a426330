#include "formats/stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define PIECE ((size_t)256 << 10)

struct ckpt_stored ckpt_stored_part(const struct ckpt_stored *s, uint64_t from, uint64_t n) {
    struct ckpt_stored part = *s;
    if (part.data)
        part.data += from;
    else
        part.offset += from;
    part.length = n;
    return part;
}

int ckpt_stored_check(const struct ckpt_stored *s, struct ckpt_err *err) {
    return s->data ? 0 : ckpt_store_file_check(s->file, s->offset, s->length, err);
}

int ckpt_stored_read(const struct ckpt_stored *s, void *out, const struct ckpt_stop *stop,
                     struct ckpt_err *err) {
    CKPT_AUTO(stream) struct ckpt_stream in = {.fd = -1};
    const uint8_t *piece = NULL;
    ssize_t n = ckpt_stream_open(&in, s, stop, err);
    uint8_t *to = out;
    while (n >= 0 && (n = ckpt_stream_next(&in, &piece, err)) > 0) {
        memcpy(to, piece, (size_t)n);
        to += n;
    }
    return (int)n;
}

int ckpt_stream_open(struct ckpt_stream *s, const struct ckpt_stored *stored,
                     const struct ckpt_stop *stop, struct ckpt_err *err) {
    *s = (struct ckpt_stream){.stored = *stored, .fd = -1, .stop = stop};
    if (stored->data)
        return 0;
    s->fd = ckpt_store_file_open(stored->file, err);
    if (s->fd < 0)
        return s->fd;
    s->window = malloc(ckpt_stream_memory(s));
    return s->window ? 0 : ckpt_fail_memory(err, "reading stored bytes");
}

/* Fills the window from the file, and looks at the file afterwards: one that is written to while a
 * large chunk is decoded was still the same when it was opened. */
static ssize_t read_window(struct ckpt_stream *s, size_t n, struct ckpt_err *err) {
    ssize_t got;
    do
        got = pread(s->fd, s->window, n, (off_t)(s->stored.offset + s->at));
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return ckpt_fail(err, -EIO, "%s: cannot read: %s", s->stored.file->name, strerror(errno));
    if (got == 0)
        return ckpt_fail(err, -EIO,
                         "%s ends while being read, at byte %" PRIu64 ": it is truncated",
                         s->stored.file->name, s->stored.offset + s->at);
    const int rc = ckpt_store_file_check_same(s->stored.file, s->fd, err);
    return rc ? rc : got;
}

ssize_t ckpt_stream_next(struct ckpt_stream *s, const uint8_t **data, struct ckpt_err *err) {
    const uint64_t left = s->stored.length - s->at;
    const size_t n = left < PIECE ? (size_t)left : PIECE;
    if (n == 0)
        return 0;
    if (ckpt_stop_asked(s->stop))
        return ckpt_fail_stopped(err);
    const ssize_t got = s->fd < 0 ? (ssize_t)n : read_window(s, n, err);
    if (got < 0)
        return got;
    *data = s->fd < 0 ? s->stored.data + s->at : s->window;
    s->at += (uint64_t)got;
    return got;
}

size_t ckpt_stream_memory(const struct ckpt_stream *s) {
    if (s->fd < 0)
        return 0;
    return s->stored.length < PIECE ? (size_t)s->stored.length + 1 : PIECE;
}

void ckpt_stream_close(struct ckpt_stream *s) {
    if (s->fd >= 0)
        close(s->fd);
    free(s->window);
    s->fd = -1;
    s->window = NULL;
}
