#ifndef CKPT_FORMATS_MSGPACK_H
#define CKPT_FORMATS_MSGPACK_H
/*
 * msgpack, as flax and old Orbax write it: one map, read into a tree of values. Arrays are
 * extension types whose payload is msgpack again; their bytes stay where they are:
 *
 *     ext 1, 3   [shape, dtype's name, bytes]    an array; a numpy scalar
 *     ext 2      [re, im]                        a complex number
 *
 * Bytes come from a mapping that may shrink: each is copied, under the guard. Not thread-safe.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "formats/value.h"

#define CKPT_VALUE_MSGPACK_ARRAY CKPT_VALUE_FORMAT /* .format: a ckpt_msgpack_array */

struct ckpt_msgpack_array {
    struct ckpt_text dtype;
    uint32_t ndim;
    const int64_t *shape;
    uint64_t offset, nbytes; /* in the input; not yet compared with the shape */
    bool is_number;          /* the value was a plain number, or ext 2: its bytes are here */
    uint8_t number[16];      /* little-endian */
};

/* Whether the bytes begin as such a file does: a map that is not empty, whose first key is text. */
bool ckpt_msgpack_is(const uint8_t *start, size_t n);

/* Reads the one value. Numbers are arrays without dimensions: that is what Orbax makes of them. */
int ckpt_msgpack_read(const uint8_t *bytes, size_t n, struct ckpt_arena *a, struct ckpt_value **out,
                      struct ckpt_err *err) CKPT_CHECKED;

#endif
