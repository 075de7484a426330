#ifndef CKPT_BASE_SIZE_H
#define CKPT_BASE_SIZE_H
/* Arithmetic on sizes that come from a file: true means it fits, and *out holds the result. */
#include <stdbool.h>
#include <stdint.h>

static inline bool ckpt_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool ckpt_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

static inline bool ckpt_mul_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool ckpt_add_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

#endif
