/* Waiting that can be given up. */
#include "base/stop.h"

#include <errno.h>
#include <time.h>

#define SECOND 1000000000
#define WAIT_NANOSECONDS 20000000 /* between two questions */

int ckpt_fail_stopped(struct ckpt_err *err) {
    return ckpt_fail(err, -EINTR, "interrupted");
}

int ckpt_fail_impatient(struct ckpt_err *err) {
    return ckpt_fail(err, -EAGAIN, "not there yet");
}

/* Its timeouts are not to follow the wall clock, which may be set. */
void ckpt_stop_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

bool ckpt_stop_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t nanoseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    nanoseconds += until.tv_nsec;
    until.tv_nsec = nanoseconds % SECOND;
    until.tv_sec += nanoseconds / SECOND;
    return pthread_cond_timedwait(cond, mu, &until) == 0;
}

bool ckpt_stop_wait(pthread_cond_t *cond, pthread_mutex_t *mu, const struct ckpt_stop *stop) {
    (void)ckpt_stop_cond_wait(cond, mu, WAIT_NANOSECONDS);
    if (!stop)
        return false;
    pthread_mutex_unlock(mu);
    const bool yes = ckpt_stop_asked(stop);
    pthread_mutex_lock(mu);
    return yes;
}
