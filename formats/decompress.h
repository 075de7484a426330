#ifndef CKPT_FORMATS_DECOMPRESS_H
#define CKPT_FORMATS_DECOMPRESS_H
/*
 * Decompressing a stored value: one interface over the libraries. All but blosc work on the pieces
 * of a stream and need no memory in proportion to the value. Any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "formats/stream.h"

enum ckpt_compression {
    CKPT_COMPRESSION_NONE,
    CKPT_COMPRESSION_ZSTD,
    CKPT_COMPRESSION_GZIP,
    CKPT_COMPRESSION_ZLIB,
    CKPT_COMPRESSION_BZ2,
    CKPT_COMPRESSION_BLOSC, /* where the build has the library */
    CKPT_COMPRESSION_COUNT
};

/* False: no such compression is known. */
bool ckpt_compression_by_name(struct ckpt_text name, enum ckpt_compression *out);
const char *ckpt_compression_name(enum ckpt_compression c);
/* Whether this build can read it. */
bool ckpt_compression_built(enum ckpt_compression c);
/* Whether so many stored bytes can decode to `decoded` ones at all: a larger claim is a lie that
 * would cost memory. */
bool ckpt_compression_can(enum ckpt_compression c, uint64_t stored, uint64_t decoded);

/* Decodes the value, all of it, to exactly n bytes of out. -EIO if it doesn't decode to that;
 * -EINTR if stopped. */
int ckpt_decompress(enum ckpt_compression c, const struct ckpt_stored *value, uint8_t *out,
                    uint64_t n, const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;
/* The same where the size is not known, up to `limit`: *out is malloc'ed. */
int ckpt_decompress_all(enum ckpt_compression c, const struct ckpt_stored *value, uint64_t limit,
                        uint8_t **out, size_t *n, const struct ckpt_stop *stop,
                        struct ckpt_err *err) CKPT_CHECKED;

#endif
