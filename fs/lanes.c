/*
 * Lanes (lanes.h has the picture). One lock guards all of it; nothing is run, dropped or freed
 * while it is held.
 *
 * A job may run if anything was finished since it was last tried: `tried_at` is the number of the
 * progress that it had seen when its last try began, so that what is finished during a try counts.
 * What a try begins and gives up with -EAGAIN is no progress, or tries would follow each other for
 * nothing. Others may have been refused because of it, though: they count on its being tried again,
 * so a job that was tried and ends without success is progress.
 */
#include "fs/lanes.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/cleanup.h"

#define TRIES 8 /* before a job waits in a lane */

struct ckpt_lanes {
    pthread_mutex_t mu; /* guards all below but `stopping` */
    pthread_cond_t changed;
    struct ckpt_lane_job *waiting; /* by arrival */
    uint64_t arrivals, progress;
    unsigned working, most_working; /* jobs in lanes, but for the one that may wait */
    bool somebody_waits;            /* that one */
    atomic_bool stopping;           /* set with the lock held */
    unsigned n;
    pthread_t thread[]; /* n of most_working + 1 */
};

int ckpt_lanes_new(unsigned n, struct ckpt_lanes **out, struct ckpt_err *err) {
    struct ckpt_lanes *const l = calloc(1, sizeof *l + (n + 1) * sizeof l->thread[0]);
    if (!l)
        return ckpt_fail_memory(err, "starting threads");
    l->most_working = n;
    l->progress = 1;
    pthread_mutex_init(&l->mu, NULL);
    pthread_cond_init(&l->changed, NULL);
    *out = l;
    return 0;
}

/* --- with the lock held --- */

static void insert(struct ckpt_lanes *l, struct ckpt_lane_job *job) {
    struct ckpt_lane_job **at = &l->waiting;
    while (*at && (*at)->arrival < job->arrival)
        at = &(*at)->next;
    job->next = *at;
    *at = job;
}

/* Whether there is a lane for the job now, and for how patient a try. */
static bool may_run(const struct ckpt_lanes *l, const struct ckpt_lane_job *job,
                    enum ckpt_patience *patience) {
    const bool waits = job->tries >= TRIES && !l->somebody_waits;
    *patience = waits ? CKPT_WAITS : CKPT_WORKS;
    return waits || (job->tried_at != l->progress && l->working < l->most_working);
}

/* Takes the oldest that may run; NULL: there is none. */
static struct ckpt_lane_job *next_job(struct ckpt_lanes *l, enum ckpt_patience *patience) {
    struct ckpt_lane_job **at = &l->waiting;
    while (*at && !may_run(l, *at, patience))
        at = &(*at)->next;
    struct ckpt_lane_job *const job = *at;
    if (job)
        *at = job->next;
    return job;
}

/* A thread that goes to wait leaves to another what it would have done next. */
static void enter(struct ckpt_lanes *l, enum ckpt_patience patience) {
    l->working += patience == CKPT_WORKS;
    l->somebody_waits = l->somebody_waits || patience == CKPT_WAITS;
    if (patience == CKPT_WAITS)
        pthread_cond_signal(&l->changed);
}

static void leave(struct ckpt_lanes *l, enum ckpt_patience patience) {
    l->working -= patience == CKPT_WORKS;
    l->somebody_waits = l->somebody_waits && patience != CKPT_WAITS;
}

static void tell(struct ckpt_lanes *l) {
    l->progress++;
    if (l->waiting)
        pthread_cond_broadcast(&l->changed);
}

/* --- lanes --- */

/* The job is over, unless it says -EAGAIN. */
static int run(struct ckpt_lane_job *job, enum ckpt_patience patience) {
    if (!job->left(job))
        return job->run(job, patience);
    job->drop(job, -EINTR);
    return -EINTR;
}

/* Lets go of the lock while a job is dropped. */
static void put_back(struct ckpt_lanes *l, struct ckpt_lane_job *job, uint64_t tried_at) {
    job->tries++;
    job->tried_at = tried_at;
    int rc = atomic_load(&l->stopping) ? -EIO : 0;
    if (rc == 0 && job->left(job))
        rc = -EINTR;
    if (rc == 0) {
        insert(l, job);
        return;
    }
    pthread_mutex_unlock(&l->mu);
    job->drop(job, rc);
    pthread_mutex_lock(&l->mu);
    tell(l);
}

/* Lets go of the lock meanwhile. */
static void serve(struct ckpt_lanes *l, struct ckpt_lane_job *job, enum ckpt_patience patience) {
    const uint64_t progress = l->progress;
    const bool was_tried = job->tries > 0;
    enter(l, patience);
    pthread_mutex_unlock(&l->mu);
    const int rc = run(job, patience);
    pthread_mutex_lock(&l->mu);
    leave(l, patience);
    if (rc == -EAGAIN)
        put_back(l, job, progress);
    else if (rc < 0 && was_tried)
        tell(l);
}

static void *lane(void *arg) {
    struct ckpt_lanes *const l = arg;
    pthread_mutex_lock(&l->mu);
    while (!atomic_load(&l->stopping)) {
        enum ckpt_patience patience;
        struct ckpt_lane_job *const job = next_job(l, &patience);
        if (job)
            serve(l, job, patience);
        else
            pthread_cond_wait(&l->changed, &l->mu);
    }
    pthread_mutex_unlock(&l->mu);
    return NULL;
}

/* With the lock held. One thread is enough to go on with. */
static int start(struct ckpt_lanes *l) {
    while (l->n < l->most_working + 1 && pthread_create(&l->thread[l->n], NULL, lane, l) == 0)
        l->n++;
    return l->n > 0 ? 0 : -EAGAIN;
}

/* --- jobs --- */

static int add_locked(struct ckpt_lanes *l, struct ckpt_lane_job *job) {
    if (atomic_load(&l->stopping))
        return -EIO;
    if (job->left(job))
        return -EINTR;
    const int rc = start(l);
    if (rc < 0)
        return rc;
    job->arrival = l->arrivals++;
    job->tried_at = 0;
    job->tries = 0;
    insert(l, job);
    pthread_cond_signal(&l->changed);
    return 0;
}

int ckpt_lanes_add(struct ckpt_lanes *l, struct ckpt_lane_job *job) {
    pthread_mutex_lock(&l->mu);
    const int rc = add_locked(l, job);
    pthread_mutex_unlock(&l->mu);
    return rc;
}

struct ckpt_lane_job *ckpt_lanes_remove(struct ckpt_lanes *l, const void *id) {
    pthread_mutex_lock(&l->mu);
    struct ckpt_lane_job **at = &l->waiting;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    struct ckpt_lane_job *const job = *at;
    if (job)
        *at = job->next;
    if (job && job->tries > 0)
        tell(l);
    pthread_mutex_unlock(&l->mu);
    return job;
}

void ckpt_lanes_progress(struct ckpt_lanes *l) {
    pthread_mutex_lock(&l->mu);
    tell(l);
    pthread_mutex_unlock(&l->mu);
}

bool ckpt_lanes_stopping(struct ckpt_lanes *l) {
    return atomic_load(&l->stopping);
}

void ckpt_lanes_stop(struct ckpt_lanes *l) {
    pthread_mutex_lock(&l->mu);
    atomic_store(&l->stopping, true);
    struct ckpt_lane_job *job = CKPT_STEAL(l->waiting);
    const unsigned n = l->n;
    l->n = 0;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mu);
    for (unsigned i = 0; i < n; i++)
        pthread_join(l->thread[i], NULL);
    while (job) {
        struct ckpt_lane_job *const next = job->next;
        job->drop(job, -EIO);
        job = next;
    }
}

void ckpt_lanes_free(struct ckpt_lanes *l) {
    if (!l)
        return;
    ckpt_lanes_stop(l);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->mu);
    free(l);
}
