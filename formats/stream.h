#ifndef CKPT_FORMATS_STREAM_H
#define CKPT_FORMATS_STREAM_H
/*
 * Stored bytes, and reading them forwards in pieces: a decoder needs no more of a chunk in memory
 * than the piece that it works on. A value is immutable; a stream belongs to one thread.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/stop.h"
#include "formats/store_file.h"

/* A run of bytes in memory, or of a file. */
struct ckpt_stored {
    const uint8_t *data; /* NULL: in the file */
    const struct ckpt_store_file *file;
    uint64_t offset, length;
};

static inline struct ckpt_stored ckpt_stored_memory(const void *data, uint64_t n) {
    return (struct ckpt_stored){.data = data, .length = n};
}
/* Its bytes [from, from + n), which it has. */
struct ckpt_stored ckpt_stored_part(const struct ckpt_stored *s, uint64_t from, uint64_t n);
/* Whether the bytes are there, as far as the file's size tells. */
int ckpt_stored_check(const struct ckpt_stored *s, struct ckpt_err *err) CKPT_CHECKED;
/* All of them, which must be n, to out. */
int ckpt_stored_read(const struct ckpt_stored *s, void *out, const struct ckpt_stop *stop,
                     struct ckpt_err *err) CKPT_CHECKED;

struct ckpt_stream {
    struct ckpt_stored stored;
    uint64_t at;
    int fd;          /* -1: in memory */
    uint8_t *window; /* of a file */
    const struct ckpt_stop *stop;
};

int ckpt_stream_open(struct ckpt_stream *s, const struct ckpt_stored *stored,
                     const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;
/* The next piece, valid until the next call: its size, 0 at the end, or negative (-EINTR: stopped).
 */
ssize_t ckpt_stream_next(struct ckpt_stream *s, const uint8_t **data,
                         struct ckpt_err *err) CKPT_CHECKED;
size_t ckpt_stream_memory(const struct ckpt_stream *s); /* of its window */
void ckpt_stream_close(struct ckpt_stream *s);

#define ckpt_auto_stream ckpt_stream_close

#endif
