#ifndef CKPT_FORMATS_ZIP_INFLATE_H
#define CKPT_FORMATS_ZIP_INFLATE_H
/* An entry's bytes: inflating them, and comparing them with the checksum that the archive keeps. */
#include "base/stop.h"
#include "formats/zip.h"

#define CKPT_INFLATE_PIECE ((size_t)1 << 18) /* between two questions whether to stop */

/* Inflates a deflated entry into out, which has e->size bytes. -EINVAL: it is another size or no
 * deflate stream; -EIO: the file shrank; -EINTR. */
int ckpt_zip_inflate(const struct ckpt_file *file, const struct ckpt_zip_entry *e, uint8_t *out,
                     const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;

/* Compares the entry's bytes, inflated, with its checksum: 0 right, or none is kept; -EBADMSG. The
 * bytes may be the mapping's: -EIO if it shrank. */
int ckpt_zip_check_crc(const struct ckpt_zip_entry *e, const uint8_t *bytes,
                       const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;

#endif
