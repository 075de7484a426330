#include "formats/pickle_vm.h"

#include <inttypes.h>
#include <stdio.h>

/*
 * LONG1 and LONG4: integers of any length. What fits 64 bits becomes an int; longer ones become
 * decimal digits, which takes time quadratic in their length, so it is charged, and beyond
 * LONG_BYTES_MAX (a 4096-bit integer) the value is kept as an opaque "int".
 */
#define LONG_BYTES_MAX 512
#define DIGIT_BASE 1000000000u

static bool is_negative(struct ckpt_text t) {
    return t.n > 0 && (t.s[t.n - 1] & 0x80);
}

static int64_t short_value(struct ckpt_text t) {
    uint64_t u = is_negative(t) ? UINT64_MAX : 0;
    for (size_t i = t.n; i-- > 0;)
        u = u << 8 | (unsigned char)t.s[i];
    int64_t i;
    memcpy(&i, &u, sizeof i);
    return i;
}

/* Absolute value as little-endian 32-bit words; returns how many. */
static size_t magnitude(struct ckpt_text t, uint32_t *word) {
    const bool negative = is_negative(t);
    const size_t n = (t.n + 3) / 4;
    uint64_t carry = negative;
    for (size_t w = 0; w < n; w++) {
        uint32_t u = 0;
        for (size_t k = 0; k < 4; k++) {
            const size_t i = 4 * w + k;
            const uint32_t byte = i < t.n ? (unsigned char)t.s[i] : negative ? 0xff : 0;
            u |= byte << (8 * k);
        }
        const uint64_t sum = (uint64_t)(negative ? ~u : u) + carry;
        word[w] = (uint32_t)sum;
        carry = sum >> 32;
    }
    return n;
}

/* Divides in place; returns the remainder. */
static uint32_t divide(uint32_t *word, size_t n, uint32_t by) {
    uint64_t rest = 0;
    for (size_t i = n; i-- > 0;) {
        const uint64_t v = rest << 32 | word[i];
        word[i] = (uint32_t)(v / by);
        rest = v % by;
    }
    return (uint32_t)rest;
}

/* Decimal digits of the value, in the arena. */
static struct ckpt_text decimal(struct ckpt_arena *a, struct ckpt_text t) {
    uint32_t word[LONG_BYTES_MAX / 4];
    char text[LONG_BYTES_MAX * 3 + 16]; /* 2.41 digits a byte, filled from the end */
    size_t n = magnitude(t, word), at = sizeof text;
    while (n > 0) {
        char nine[10];
        const uint32_t part = divide(word, n, DIGIT_BASE);
        while (n > 0 && word[n - 1] == 0)
            n--;
        snprintf(nine, sizeof nine, "%09" PRIu32, part);
        at -= 9;
        memcpy(text + at, nine, 9);
    }
    while (at < sizeof text - 1 && text[at] == '0')
        at++;
    if (is_negative(t))
        text[--at] = '-';
    return ckpt_text_copy(a, text + at, sizeof text - at);
}

int pickle_make_long(struct pickle_vm *vm, struct ckpt_text t, struct ckpt_value **out) {
    if (t.n <= 8)
        return pickle_make_int(vm, short_value(t), out);
    if (t.n > LONG_BYTES_MAX)
        return pickle_make_opaque(vm, CKPT_TEXT("int"), out);
    int rc = pickle_charge(vm, t.n * t.n / 64);
    if (rc == 0)
        rc = pickle_make(vm, CKPT_VALUE_BIGINT, out);
    if (rc)
        return rc;
    (*out)->text = decimal(vm->arena, t);
    return (*out)->text.s ? 0 : pickle_fail_memory(vm);
}
