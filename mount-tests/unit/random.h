#ifndef CKPT_TESTS_RANDOM_H
#define CKPT_TESTS_RANDOM_H
/* Random cases that can be repeated: the seed is printed, and CKPT_SEED sets it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *r) {
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 0 .. n-1 */
static inline int64_t rng_below(struct rng *r, int64_t n) {
    return (int64_t)(rng_next(r) % (uint64_t)n);
}

static inline struct rng rng_seeded(const char *test) {
    const char *const given = getenv("CKPT_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed =
        given ? strtoull(given, NULL, 10) : (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20;
    printf("%s: CKPT_SEED=%llu\n", test, (unsigned long long)seed);
    return (struct rng){seed};
}

#endif
