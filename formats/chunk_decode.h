#ifndef CKPT_FORMATS_CHUNK_DECODE_H
#define CKPT_FORMATS_CHUNK_DECODE_H
/* Inside a grid of chunks: a chunk's value, and decoding it. Any thread. */
#include "formats/chunk_grid.h"

/* Number and value are set, and all of the grid. */
void ckpt_chunk_init(struct ckpt_chunk *c, struct ckpt_chunk_grid *g,
                     struct ckpt_decoded_cache *cache, uint64_t turns);
/* Where chunk `part` of the shard (of one that is no shard: 0) is stored: 1; 0: it is not. */
int ckpt_chunk_locate(struct ckpt_chunk *c, uint64_t part, struct ckpt_stored *out,
                      const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;
/* ckpt_decoded_parts.decode and .stream, of `decoded` of a chunk. */
int ckpt_chunk_decode(struct ckpt_decoded *d, uint64_t part, uint8_t *out,
                      const struct ckpt_stop *stop, struct ckpt_err *err) CKPT_CHECKED;
extern const struct ckpt_decoded_stream ckpt_chunk_stream;
/* Of chunks whose stored bytes are the elements: what can't be mapped is read. */
extern const struct ckpt_chunk_ops ckpt_chunk_plain_ops;

#endif
