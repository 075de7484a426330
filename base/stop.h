#ifndef CKPT_BASE_STOP_H
#define CKPT_BASE_STOP_H
/*
 * Whether whoever wants a result has given up on it: long work asks between its pieces, waiters ask
 * while they wait. And how much he is ready for: what would take more says -EAGAIN. A NULL stop
 * never gives up and is ready for all.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum ckpt_patience {
    CKPT_WAITS, /* whatever it takes */
    CKPT_WORKS, /* to work, but not to wait for what another thread is making already */
    CKPT_TAKES, /* neither: takes what is there, on a disk perhaps */
    CKPT_TAKES_FROM_MEMORY,
};

struct ckpt_stop {
    bool (*ask)(void *arg); /* any thread; may lock. NULL: never gives up */
    void *arg;
    enum ckpt_patience patience;
};

static inline bool ckpt_stop_asked(const struct ckpt_stop *stop) {
    return stop && stop->ask && stop->ask(stop->arg);
}

static inline bool ckpt_stop_may_work(const struct ckpt_stop *stop) {
    return !stop || stop->patience < CKPT_TAKES;
}

static inline bool ckpt_stop_may_wait(const struct ckpt_stop *stop) {
    return !stop || stop->patience == CKPT_WAITS;
}

/* -EINTR with its sentence. */
int ckpt_fail_stopped(struct ckpt_err *err);
/* -EAGAIN with its sentence: it would take more patience. */
int ckpt_fail_impatient(struct ckpt_err *err);

/* A condition that ckpt_stop_wait can wait for. */
void ckpt_stop_cond_init(pthread_cond_t *cond);
/* Waits, with the mutex held, until the condition is signalled (true) or so long. */
bool ckpt_stop_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t nanoseconds);
/* Waits, with the mutex held, until the condition is signalled or a few milliseconds have passed,
 * then asks, without the mutex: the answer may need a lock of its caller's. True: give up. */
bool ckpt_stop_wait(pthread_cond_t *cond, pthread_mutex_t *mu, const struct ckpt_stop *stop);

#endif
