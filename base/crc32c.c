/*
 * CRC-32C by the processor's own instruction where it has one (SSE4.2), else by a table, a byte at
 * a time: what is checked with it is small, but for a few whole chunks.
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#include "base/cpu.h"

#define POLYNOMIAL 0x82F63B78u

static uint32_t table[256];

static void fill_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? POLYNOMIAL : 0);
        table[i] = c;
    }
}

uint32_t ckpt_crc32c_portable(uint32_t crc, const void *data, size_t n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint8_t *p = data;
    pthread_once(&once, fill_table);
    crc = ~crc;
    for (size_t i = 0; i < n; i++)
        crc = crc >> 8 ^ table[(crc ^ p[i]) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const uint8_t *p,
                                                               size_t n) {
    uint64_t c = (uint32_t)~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        c = __builtin_ia32_crc32di(c, word);
    }
    uint32_t rest = (uint32_t)c;
    for (; n > 0; n--, p++)
        rest = __builtin_ia32_crc32qi(rest, *p);
    return ~rest;
}
#endif

uint32_t ckpt_crc32c(uint32_t crc, const void *data, size_t n) {
#if defined(__x86_64__)
    if (ckpt_cpu()->sse42)
        return crc32c_sse42(crc, data, n);
#endif
    return ckpt_crc32c_portable(crc, data, n);
}
