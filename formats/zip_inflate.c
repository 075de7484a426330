#include "formats/zip_inflate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "formats/mapped.h"

/* Feeds the stored bytes through a copy of a piece at a time, so that only memcpy touches the
 * mapping. */
static int inflate_into(z_stream *z, const uint8_t *from, const struct ckpt_zip_entry *e,
                        uint8_t *out, uint8_t *piece, const struct ckpt_stop *stop) {
    const size_t most = CKPT_INFLATE_PIECE;
    uint64_t fed = 0, made = 0;
    int rc = Z_OK;
    while (rc == Z_OK) {
        if (ckpt_stop_asked(stop))
            return -EINTR;
        if (z->avail_in == 0) {
            const size_t n = e->stored - fed < most ? (size_t)(e->stored - fed) : most;
            if (ckpt_mapped_copy(piece, from + fed, n, NULL) != 0)
                return -EIO;
            fed += n;
            z->next_in = piece;
            z->avail_in = (uInt)n;
        }
        const uint64_t room = e->size - made < most ? e->size - made : most;
        z->next_out = room ? out + made : piece; /* a full output only waits for the end mark */
        z->avail_out = (uInt)room;
        const uInt left = z->avail_in;
        rc = inflate(z, Z_NO_FLUSH);
        const uint64_t got = room - z->avail_out;
        made += got;
        if (rc == Z_BUF_ERROR && fed < e->stored && z->avail_in == 0)
            rc = Z_OK; /* it only wants more input */
        else if (rc == Z_OK && got == 0 && z->avail_in == left)
            break; /* no progress */
    }
    return rc == Z_STREAM_END && made == e->size && fed == e->stored && z->avail_in == 0 ? 0
                                                                                         : -EINVAL;
}

int ckpt_zip_inflate(const struct ckpt_file *file, const struct ckpt_zip_entry *e, uint8_t *out,
                     const struct ckpt_stop *stop, struct ckpt_err *err) {
    CKPT_AUTO(free) uint8_t *piece = malloc(CKPT_INFLATE_PIECE);
    z_stream z = {0};
    if (!piece || inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return ckpt_fail_memory(err, "inflating a ZIP entry");
    const int rc = inflate_into(&z, file->data + e->data, e, out, piece, stop);
    inflateEnd(&z);
    if (rc == -EINTR)
        return ckpt_fail_stopped(err);
    if (rc == -EIO)
        return ckpt_mapped_lost(err);
    if (rc)
        return ckpt_fail(err, rc,
                         "ZIP entry \"%.*s\" does not inflate to the %" PRIu64 " bytes it says",
                         CKPT_TEXT_ARGS(e->name), e->size);
    return 0;
}

/* A piece of what may be the file's own bytes, which may go away meanwhile. */
static int add_to_crc(uint32_t *crc, const uint8_t *p, size_t n) {
    volatile uint32_t result = *crc;
    int rc;
    CKPT_GUARDED(rc, result = (uint32_t)crc32_z(result, p, n));
    *crc = result;
    return rc;
}

int ckpt_zip_check_crc(const struct ckpt_zip_entry *e, const uint8_t *bytes,
                       const struct ckpt_stop *stop, struct ckpt_err *err) {
    uint32_t crc = 0;
    if (e->crc == 0)
        return 0;
    for (uint64_t done = 0, n; done < e->size; done += n) {
        n = e->size - done < CKPT_INFLATE_PIECE ? e->size - done : CKPT_INFLATE_PIECE;
        if (ckpt_stop_asked(stop))
            return ckpt_fail_stopped(err);
        if (add_to_crc(&crc, bytes + done, (size_t)n) != 0)
            return ckpt_mapped_lost(err);
    }
    if (e->crc == crc)
        return 0;
    return ckpt_fail(err, -EBADMSG,
                     "ZIP entry \"%.*s\" has checksum %08x, the archive says %08x: its bytes are "
                     "damaged",
                     CKPT_TEXT_ARGS(e->name), crc, e->crc);
}
