#ifndef CKPT_FORMATS_UNZSTD_H
#define CKPT_FORMATS_UNZSTD_H
/* Decoding zstd forwards, as far as is wanted. Belongs to one thread at a time. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <zstd.h>

#include "formats/stream.h"

struct ckpt_unzstd {
    ZSTD_DStream *z;
    ZSTD_inBuffer in; /* a piece of the stream */
    bool has_more;    /* to give without another piece */
    bool is_whole;    /* at the end of a frame */
};

int ckpt_unzstd_init(struct ckpt_unzstd *u, struct ckpt_err *err) CKPT_CHECKED;
/* Up to n bytes, at least one; 0 at the end of the stream. -EIO: damaged. */
ssize_t ckpt_unzstd_read(struct ckpt_unzstd *u, struct ckpt_stream *in, uint8_t *out, size_t n,
                         struct ckpt_err *err) CKPT_CHECKED;
size_t ckpt_unzstd_memory(const struct ckpt_unzstd *u);
void ckpt_unzstd_fini(struct ckpt_unzstd *u);
/* Whether a checksum follows the bytes of the first frame, of which these are the first; false
 * also for what is no frame. */
#define CKPT_UNZSTD_HEAD 5u
bool ckpt_unzstd_is_checked(const uint8_t head[static CKPT_UNZSTD_HEAD]);

#define ckpt_auto_unzstd ckpt_unzstd_fini

#endif
