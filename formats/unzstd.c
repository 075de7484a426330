#include "formats/unzstd.h"

#include <errno.h>

#define CHECKSUM_FLAG 4u /* in the byte after the magic number */

int ckpt_unzstd_init(struct ckpt_unzstd *u, struct ckpt_err *err) {
    *u = (struct ckpt_unzstd){.z = ZSTD_createDStream()};
    return u->z ? 0 : ckpt_fail_memory(err, "decoding stored bytes");
}

static int fail_damaged(struct ckpt_err *err, const char *what) {
    return ckpt_fail(err, -EBADMSG, "is damaged (%s)", what);
}

/* The next piece of the stream, if the decoder needs one: 1, or 0 at the end. */
static int feed(struct ckpt_unzstd *u, struct ckpt_stream *in, struct ckpt_err *err) {
    const uint8_t *piece = NULL;
    if (u->in.pos < u->in.size || u->has_more)
        return 1;
    const ssize_t n = ckpt_stream_next(in, &piece, err);
    if (n == 0 && !u->is_whole)
        return fail_damaged(err, "the zstd frame ends early");
    if (n > 0)
        u->in = (ZSTD_inBuffer){piece, (size_t)n, 0};
    return n > 0 ? 1 : (int)n;
}

ssize_t ckpt_unzstd_read(struct ckpt_unzstd *u, struct ckpt_stream *in, uint8_t *out, size_t n,
                         struct ckpt_err *err) {
    for (;;) {
        ZSTD_outBuffer to = {out, n, 0};
        const int rc = feed(u, in, err);
        if (rc <= 0)
            return rc;
        const size_t hint = ZSTD_decompressStream(u->z, &to, &u->in);
        if (ZSTD_isError(hint))
            return fail_damaged(err, ZSTD_getErrorName(hint));
        u->is_whole = hint == 0;
        u->has_more = hint != 0 && to.pos == to.size;
        if (to.pos > 0)
            return (ssize_t)to.pos;
    }
}

size_t ckpt_unzstd_memory(const struct ckpt_unzstd *u) {
    return ZSTD_sizeof_DStream(u->z);
}

void ckpt_unzstd_fini(struct ckpt_unzstd *u) {
    ZSTD_freeDStream(u->z);
    u->z = NULL;
}

bool ckpt_unzstd_is_checked(const uint8_t head[static CKPT_UNZSTD_HEAD]) {
    const uint32_t magic = (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 |
                           (uint32_t)head[3] << 24;
    return magic == ZSTD_MAGICNUMBER && (head[4] & CHECKSUM_FLAG);
}
