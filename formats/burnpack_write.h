#ifndef CKPT_FORMATS_BURNPACK_WRITE_H
#define CKPT_FORMATS_BURNPACK_WRITE_H
/*
 * The header of a burnpack (burnpack_header.h) that is being made, and may never exist on disk. The
 * tensors' bytes follow in the same order, each at its offset, with zeros between.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/text.h"
#include "formats/checkpoint.h"
#include "formats/header_item.h"

/* Whether the format knows the dtype. */
bool ckpt_bpk_can_hold(enum ckpt_dtype t);

/* Appends head, metadata and padding; sets every item's offset, counted from where the header
 * began. No tensor gets a param_id: burn's reader then keeps those of the model. Keys must differ.
 * Into a sink only to measure, since the length comes first. -EINVAL: a dtype that the format
 * cannot hold; -E2BIG: more metadata than its length can say. What burn itself would refuse to read
 * (limits.h) is the caller's to tell. */
int ckpt_bpk_write_header(struct ckpt_str *out, struct ckpt_header_item *items, size_t n,
                          const struct ckpt_pair *metadata, size_t nmetadata,
                          struct ckpt_err *err) CKPT_CHECKED;

#endif
