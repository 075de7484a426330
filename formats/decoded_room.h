#ifndef CKPT_FORMATS_DECODED_ROOM_H
#define CKPT_FORMATS_DECODED_ROOM_H
/*
 * Where decoded bytes lie: address space for a whole item, of which only pieces are there, in
 * anonymous memory or in an unlinked temporary file:
 *
 *     room      | memory | nothing | memory | file   | nothing ...
 *     spill file                              [....]
 *
 * so that a range of pieces is one run of bytes, wherever each lies.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Address space for n bytes (base/pages.h), nothing of which costs memory before it is written to.
 * Huge pages only where all of it will be there at once, or in huge pieces. */
int ckpt_decoded_room_new(uint64_t n, bool huge, uint8_t **out, struct ckpt_err *err) CKPT_CHECKED;
/* Gives back the memory of a piece. */
void ckpt_decoded_room_empty(uint8_t *piece, uint64_t n);

/* Gives the memory of one piece to another, `to`, which has none, and leaves the first as if it had
 * been emptied: both of n bytes, all of them huge pages. False: it can't be done here, and nothing
 * has changed. */
bool ckpt_decoded_room_move(uint8_t *from, uint8_t *to, uint64_t n);

/* The temporary file, without a name in *folder: $TMPDIR, or /var/tmp, which is on a disk where
 * /tmp often is not. Where none can be made there it is made elsewhere, which is logged: what is
 * read does not depend on it. Negative errno if it can be made nowhere. */
int ckpt_decoded_spill_open(const char **folder);
/* The piece is bytes [at, at + n) of the file from now on, which are allocated: a full disk is an
 * error here, never a SIGBUS later. Negative errno. */
int ckpt_decoded_spill_map(int fd, uint64_t at, uint8_t *piece, uint64_t n);
void ckpt_decoded_spill_unmap(int fd, uint64_t at, uint8_t *piece, uint64_t n);
/* rc as a sentence. */
int ckpt_decoded_spill_fail(struct ckpt_err *err, int rc, const char *folder, const char *name,
                            uint64_t size);

#endif
