#ifndef CKPT_FS_LANES_H
#define CKPT_FS_LANES_H
/*
 * Lanes: threads for reads that take long, so that those that don't never wait behind them. The
 * threads that receive requests answer only what is there already, and hand over the rest:
 *
 *     receivers                          waiting, oldest first          lanes
 *
 *     is all of it there? ── no ──> [ job | job | job | job ... ] ──> work ──> reply
 *            │ yes                        ^                              │
 *            └──> reply                   └──── another is at it ────────┘
 *
 * A job that needs what another thread is making already (another lane, the prefetcher, the
 * checker) does not hold a lane meanwhile: it goes back to its place among those that wait, and is
 * tried again when something has been finished: sixty readers of one band cost one lane, and one
 * computation. So that nobody is put off for ever, whoever was put back often waits in a lane after
 * all: in one that is there for that, beside those that work.
 *
 * Waiting costs a job's memory and nothing else: no thread, no buffer, no pin. The order is that of
 * arrival. A reader who leaves is taken out at once while he waits, and asked for while a lane
 * works for him.
 *
 * Nothing here knows FUSE. Any thread may call all functions but new and free at any time.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/stop.h"

struct ckpt_lanes;

/* Part of something larger, whose owner sets the first four. */
struct ckpt_lane_job {
    /* Does it, in a lane, and ends the job, which may be freed: 0, or how it failed. Or -EAGAIN,
     * since that would take more patience: nothing has happened, and it will be called again. */
    int (*run)(struct ckpt_lane_job *job, enum ckpt_patience patience);
    /* Ends a job that will not run: -EINTR, who wanted it has left; -EIO, the lanes were stopped.
     */
    void (*drop)(struct ckpt_lane_job *job, int rc);
    /* Whether who wanted it has left. Any thread, under the lock of the lanes. */
    bool (*left)(struct ckpt_lane_job *job);
    const void *id; /* for ckpt_lanes_remove */
    /* The lanes' own. */
    struct ckpt_lane_job *next;
    uint64_t arrival, tried_at;
    unsigned tries;
};

/* n lanes that work, and the one to wait in; their threads start with the first job. */
int ckpt_lanes_new(unsigned n, struct ckpt_lanes **out, struct ckpt_err *err) CKPT_CHECKED;
/* 0: the job will be run or dropped, or has been already. Negative: neither. */
int ckpt_lanes_add(struct ckpt_lanes *l, struct ckpt_lane_job *job) CKPT_CHECKED;
/* Takes out a job that waits, and is its caller's again; NULL: there is none of that id, or a lane
 * has it. */
struct ckpt_lane_job *ckpt_lanes_remove(struct ckpt_lanes *l, const void *id);
/* Something was finished that a job may wait for, which is not what a job had begun when it said
 * -EAGAIN. May be called with any other lock held. */
void ckpt_lanes_progress(struct ckpt_lanes *l);
/* Whether work in a lane is to be given up. */
bool ckpt_lanes_stopping(struct ckpt_lanes *l);
/* Drops all that wait, refuses what comes, and returns when the lanes have ended. */
void ckpt_lanes_stop(struct ckpt_lanes *l);
void ckpt_lanes_free(struct ckpt_lanes *l); /* stops first; NULL is fine */

#endif
