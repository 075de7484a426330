#ifndef CKPT_FORMATS_SAFETENSORS_WRITE_H
#define CKPT_FORMATS_SAFETENSORS_WRITE_H
/*
 * The header of a safetensors file that is being made (and may never exist on disk). The tensors'
 * bytes follow it, dense and in the same order.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/text.h"
#include "formats/checkpoint.h"
#include "formats/header_item.h"

/* Whether the format knows the dtype. */
bool ckpt_st_can_hold(enum ckpt_dtype t);

/* Appends the 8-byte length and the JSON header, compact, in the order given, padded with blanks
 * to a multiple of 8; sets every item's offset, counted from where the header began. Keys must
 * differ. Into a sink only to measure, since the length comes first. -EINVAL: a key, dtype or size
 * that the format cannot hold; -E2BIG: over its limit. */
int ckpt_st_write_header(struct ckpt_str *out, struct ckpt_header_item *items, size_t n,
                         const struct ckpt_pair *metadata, size_t nmetadata,
                         struct ckpt_err *err) CKPT_CHECKED;

#endif
