#ifndef CKPT_BASE_BUF_H
#define CKPT_BASE_BUF_H
/*
 * A bounds-checked reader over bytes in memory, the one way to parse binary input. Reading past the
 * end sets `failed`, leaves it set, and yields zeros, so that a parser reads its ten fields in a
 * row and asks once. Never dereferences outside [p, p + n).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct ckpt_buf {
    const uint8_t *p;
    size_t n, pos;
    bool failed;
};

static inline size_t ckpt_buf_left(const struct ckpt_buf *b) {
    return b->n - b->pos;
}

/* The next n bytes, or NULL (and failed). */
static inline const uint8_t *ckpt_buf_take(struct ckpt_buf *b, uint64_t n) {
    if (b->failed || n > ckpt_buf_left(b)) {
        b->failed = true;
        return NULL;
    }
    const uint8_t *p = b->p + b->pos;
    b->pos += (size_t)n;
    return p;
}

/* Little-endian unsigned integer of n <= 8 bytes; 0 past the end. */
static inline uint64_t ckpt_buf_le(struct ckpt_buf *b, unsigned n) {
    const uint8_t *p = ckpt_buf_take(b, n);
    uint64_t v = 0;
    for (unsigned i = 0; p && i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static inline uint8_t ckpt_buf_u8(struct ckpt_buf *b) {
    return (uint8_t)ckpt_buf_le(b, 1);
}

static inline uint16_t ckpt_buf_u16(struct ckpt_buf *b) {
    return (uint16_t)ckpt_buf_le(b, 2);
}

static inline uint32_t ckpt_buf_u32(struct ckpt_buf *b) {
    return (uint32_t)ckpt_buf_le(b, 4);
}

static inline uint64_t ckpt_buf_u64(struct ckpt_buf *b) {
    return ckpt_buf_le(b, 8);
}

static inline uint64_t ckpt_buf_be64(struct ckpt_buf *b) {
    return __builtin_bswap64(ckpt_buf_le(b, 8));
}

/* The bytes up to and without the next '\n', which is consumed; NULL (and failed) if there is none.
 */
static inline const uint8_t *ckpt_buf_line(struct ckpt_buf *b, size_t *len) {
    const uint8_t *start = b->p + b->pos;
    const uint8_t *end = b->failed || b->pos == b->n ? NULL : memchr(start, '\n', ckpt_buf_left(b));
    if (!end) {
        b->failed = true;
        *len = 0;
        return NULL;
    }
    *len = (size_t)(end - start);
    b->pos += *len + 1;
    return start;
}

#endif
