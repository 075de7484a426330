#ifndef CKPT_TESTS_PROPERTY_H
#define CKPT_TESTS_PROPERTY_H
/* Random numbers for property tests: reproducible from a printed seed, which the environment
 * variable CKPT_SEED overrides. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t property_state;

/* Picks and prints the seed; call it first in each property test. */
static inline void property_begin(const char *name) {
    const char *wish = getenv("CKPT_SEED");
    property_state = wish ? strtoull(wish, NULL, 0) : (uint64_t)time(NULL);
    printf("%s: CKPT_SEED=%llu\n", name, (unsigned long long)property_state);
}

/* splitmix64 */
static inline uint64_t property_u64(void) {
    uint64_t z = property_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 <= result < n */
static inline uint64_t property_below(uint64_t n) {
    return property_u64() % n;
}

#endif
