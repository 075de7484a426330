/*
 * Lanes: the order, who is put back and tried again, who waits in a lane, leaving, stopping; and
 * jobs at random from many threads, each of which must end exactly once.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "fs/lanes.h"
#include "random.h"

#define RUNNING 1
#define PATIENCE_COMES_AFTER 8 /* TRIES in lanes.c */

/* What jobs need: as long as it is being made by another, only the patient wait for it. */
struct thing {
    atomic_bool is_there;
    atomic_int waiting, most_waiting; /* jobs in lanes */
};

struct job {
    struct ckpt_lane_job job; /* first */
    struct ckpt_lanes *lanes;
    struct thing *needs; /* NULL: nothing */
    atomic_bool left;
    atomic_int runs, ends;
    int rc; /* of its end; RUNNING before */
    atomic_int *clock;
    int ended_at;
};

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

/* Waits for a condition, which a working machine needs no time for. */
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        for (int i_ = 0; i_ < 20000 && !(condition); i_++)                                         \
            nap();                                                                                 \
        assert_true(condition);                                                                    \
    } while (0)

static void end(struct job *j, int rc) {
    j->rc = rc;
    if (j->clock)
        j->ended_at = atomic_fetch_add(j->clock, 1);
    atomic_fetch_add(&j->ends, 1);
}

static int wait_in_lane(struct job *j) {
    const int n = atomic_fetch_add(&j->needs->waiting, 1) + 1;
    if (n > atomic_load(&j->needs->most_waiting))
        atomic_store(&j->needs->most_waiting, n);
    while (!atomic_load(&j->needs->is_there) && !atomic_load(&j->left) &&
           !ckpt_lanes_stopping(j->lanes))
        nap();
    atomic_fetch_sub(&j->needs->waiting, 1);
    return atomic_load(&j->needs->is_there) ? 0 : -EINTR;
}

static int run(struct ckpt_lane_job *job, enum ckpt_patience patience) {
    struct job *const j = (struct job *)job;
    atomic_fetch_add(&j->runs, 1);
    int rc = 0;
    if (j->needs && !atomic_load(&j->needs->is_there))
        rc = patience == CKPT_WAITS ? wait_in_lane(j) : -EAGAIN;
    if (rc != -EAGAIN)
        end(j, rc);
    return rc;
}

static void drop(struct ckpt_lane_job *job, int rc) {
    end((struct job *)job, rc);
}

static bool left(struct ckpt_lane_job *job) {
    return atomic_load(&((struct job *)job)->left);
}

static void init(struct job *j, struct ckpt_lanes *l, struct thing *needs) {
    *j = (struct job){.job = {.run = run, .drop = drop, .left = left, .id = j},
                      .lanes = l,
                      .needs = needs,
                      .rc = RUNNING};
}

static int add(struct job *j) {
    return ckpt_lanes_add(j->lanes, &j->job);
}

static struct ckpt_lanes *new_lanes(unsigned n) {
    struct ckpt_lanes *l = NULL;
    struct ckpt_err err = {0};
    assert_int_equal(ckpt_lanes_new(n, &l, &err), 0);
    return l;
}

static void assert_ended(struct job *j, int rc) {
    UNTIL(atomic_load(&j->ends) > 0);
    assert_int_equal(atomic_load(&j->ends), 1);
    assert_int_equal(j->rc, rc);
}

static int run_busily(struct ckpt_lane_job *job, enum ckpt_patience patience) {
    (void)patience;
    struct job *const j = (struct job *)job;
    atomic_fetch_add(&j->runs, 1);
    const int rc = wait_in_lane(j);
    end(j, rc);
    return rc;
}

/* A job that keeps a lane until `thing` is there: as if it were computing it. */
static void occupy(struct job *j, struct ckpt_lanes *l, struct thing *thing) {
    init(j, l, thing);
    j->job.run = run_busily;
    assert_int_equal(add(j), 0);
    UNTIL(atomic_load(&j->runs) == 1);
}

static void give(struct ckpt_lanes *l, struct thing *thing) {
    atomic_store(&thing->is_there, true);
    ckpt_lanes_progress(l);
}

static void test_in_order_of_arrival(void **state) {
    (void)state;
    struct ckpt_lanes *const l = new_lanes(1);
    struct thing thing = {.is_there = false};
    struct job busy, j[20];
    atomic_int clock = 0;
    occupy(&busy, l, &thing);
    for (int i = 0; i < 20; i++) {
        init(&j[i], l, NULL);
        j[i].clock = &clock;
        assert_int_equal(add(&j[i]), 0);
    }
    assert_int_equal(atomic_load(&clock), 0); /* the one lane is taken */
    give(l, &thing);
    for (int i = 0; i < 20; i++) {
        assert_ended(&j[i], 0);
        assert_int_equal(j[i].ended_at, i);
    }
    assert_ended(&busy, 0);
    ckpt_lanes_free(l);
}

/* Sixty wait for what another thread makes: they keep no lane from one who needs nothing. */
static void test_who_waits_keeps_no_lane(void **state) {
    (void)state;
    struct ckpt_lanes *const l = new_lanes(1);
    struct thing thing = {.is_there = false};
    struct job j[60], other;
    for (int i = 0; i < 60; i++) {
        init(&j[i], l, &thing);
        assert_int_equal(add(&j[i]), 0);
    }
    for (int i = 0; i < 60; i++)
        UNTIL(atomic_load(&j[i].runs) > 0);
    init(&other, l, NULL);
    assert_int_equal(add(&other), 0);
    assert_ended(&other, 0);
    for (int i = 0; i < 60; i++)
        assert_int_equal(atomic_load(&j[i].runs), 1); /* nothing was finished: nobody tries again */
    give(l, &thing);
    for (int i = 0; i < 60; i++)
        assert_ended(&j[i], 0);
    ckpt_lanes_free(l);
}

/* Whoever is put back often waits in a lane: one at a time, beside those that work. */
static void test_one_waits_in_a_lane(void **state) {
    (void)state;
    struct ckpt_lanes *const l = new_lanes(1);
    struct thing thing = {.is_there = false};
    struct job j[5], other;
    for (int i = 0; i < 5; i++) {
        init(&j[i], l, &thing);
        assert_int_equal(add(&j[i]), 0);
    }
    for (int tries = 1; tries <= PATIENCE_COMES_AFTER; tries++) {
        UNTIL(atomic_load(&j[4].runs) >= tries);
        ckpt_lanes_progress(l);
    }
    UNTIL(atomic_load(&thing.waiting) == 1);
    init(&other, l, NULL);
    assert_int_equal(add(&other), 0);
    assert_ended(&other, 0);             /* there is a lane for who can work */
    atomic_store(&thing.is_there, true); /* nobody tells: only the patient one notices */
    for (int i = 0; i < 5; i++)
        assert_ended(&j[i], 0); /* and then each in its turn */
    assert_int_equal(atomic_load(&thing.most_waiting), 1);
    ckpt_lanes_free(l);
}

/* What a job needs is finished while it tries. */
static int run_and_be_overtaken(struct ckpt_lane_job *job, enum ckpt_patience patience) {
    struct job *const j = (struct job *)job;
    const bool was_there = atomic_load(&j->needs->is_there);
    (void)patience;
    if (!was_there)
        give(j->lanes, j->needs);
    atomic_fetch_add(&j->runs, 1);
    if (!was_there)
        return -EAGAIN;
    end(j, 0);
    return 0;
}

static void test_progress_during_a_try_counts(void **state) {
    (void)state;
    struct ckpt_lanes *const l = new_lanes(2);
    struct thing thing = {.is_there = false};
    struct job j;
    init(&j, l, &thing);
    j.job.run = run_and_be_overtaken;
    assert_int_equal(add(&j), 0);
    assert_ended(&j, 0);
    assert_int_equal(atomic_load(&j.runs), 2);
    ckpt_lanes_free(l);
}

static void test_leaving(void **state) {
    (void)state;
    struct ckpt_lanes *const l = new_lanes(1);
    struct thing thing = {.is_there = false};
    struct job busy, waits, leaves, late;
    occupy(&busy, l, &thing);
    init(&waits, l, NULL);
    init(&leaves, l, NULL);
    assert_int_equal(add(&waits), 0);
    assert_int_equal(add(&leaves), 0);
    assert_ptr_equal(ckpt_lanes_remove(l, &waits), &waits.job);
    assert_null(ckpt_lanes_remove(l, &waits));
    assert_null(ckpt_lanes_remove(l, &busy)); /* it is in a lane */
    atomic_store(&leaves.left, true);         /* what nobody is told is seen when its turn comes */
    init(&late, l, NULL);
    atomic_store(&late.left, true);
    assert_int_equal(add(&late), -EINTR);
    atomic_store(&busy.left, true);
    assert_ended(&busy, -EINTR);
    assert_ended(&leaves, -EINTR);
    assert_int_equal(atomic_load(&leaves.runs), 0);
    assert_int_equal(atomic_load(&waits.ends), 0);
    assert_int_equal(atomic_load(&late.ends), 0);
    ckpt_lanes_free(l);
}

/* What a job had begun, and gave up, may be what another was refused for. */
static void test_who_was_tried_and_leaves_is_progress(void **state) {
    (void)state;
    struct ckpt_lanes *const l = new_lanes(1);
    struct thing thing = {.is_there = false};
    struct job leaves, stays;
    init(&leaves, l, &thing);
    init(&stays, l, &thing);
    assert_int_equal(add(&leaves), 0);
    assert_int_equal(add(&stays), 0);
    UNTIL(atomic_load(&leaves.runs) == 1 && atomic_load(&stays.runs) == 1);
    while (!ckpt_lanes_remove(l, &leaves)) /* it is about to be put back */
        nap();
    UNTIL(atomic_load(&stays.runs) == 2);
    give(l, &thing);
    assert_ended(&stays, 0);
    ckpt_lanes_free(l);
}

static void test_stopping(void **state) {
    (void)state;
    struct ckpt_lanes *const l = new_lanes(1);
    struct thing thing = {.is_there = false};
    struct job busy, waits, late;
    occupy(&busy, l, &thing);
    init(&waits, l, NULL);
    assert_int_equal(add(&waits), 0);
    ckpt_lanes_stop(l);
    assert_ended(&busy, -EINTR); /* it was asked to */
    assert_ended(&waits, -EIO);
    assert_int_equal(atomic_load(&waits.runs), 0);
    init(&late, l, NULL);
    assert_int_equal(add(&late), -EIO);
    ckpt_lanes_free(l);
}

/* --- at random -------------------------------------------------------------------------------- */

#define ADDERS 6
#define JOBS 300
#define THINGS 5

struct adder {
    pthread_t thread;
    struct ckpt_lanes *lanes;
    struct thing *things;
    struct rng rng;
    struct job job[JOBS];
    bool mine[JOBS]; /* refused or taken out: its end is not the lanes' */
};

static void *add_at_random(void *arg) {
    struct adder *const a = arg;
    for (int i = 0; i < JOBS; i++) {
        const int64_t which = rng_below(&a->rng, THINGS + 1);
        struct job *const j = &a->job[i];
        init(j, a->lanes, which < THINGS ? &a->things[which] : NULL);
        a->mine[i] = add(j) < 0;
        struct job *const other = &a->job[rng_below(&a->rng, i + 1)];
        if (rng_below(&a->rng, 4) == 0) {
            atomic_store(&other->left, true);
            if (ckpt_lanes_remove(a->lanes, other))
                a->mine[other - a->job] = true;
        }
        if (rng_below(&a->rng, 8) == 0)
            ckpt_lanes_progress(a->lanes);
    }
    return NULL;
}

static void assert_each_ended_once(struct adder *a) {
    for (int k = 0; k < JOBS; k++) {
        if (!a->mine[k])
            UNTIL(atomic_load(&a->job[k].ends) > 0);
        assert_int_equal(atomic_load(&a->job[k].ends), a->mine[k] ? 0 : 1);
    }
}

static void one_random_world(struct rng *rng, bool stops) {
    struct thing things[THINGS] = {{.is_there = false}};
    struct ckpt_lanes *const l = new_lanes(1 + (unsigned)rng_below(rng, 3));
    struct adder *const a = calloc(ADDERS, sizeof *a);
    assert_non_null(a);
    for (int i = 0; i < ADDERS; i++) {
        a[i].lanes = l;
        a[i].things = things;
        a[i].rng.state = rng_next(rng);
        assert_int_equal(pthread_create(&a[i].thread, NULL, add_at_random, &a[i]), 0);
    }
    for (int i = 0; i < THINGS && !stops; i++)
        give(l, &things[i]);
    if (stops)
        ckpt_lanes_stop(l);
    for (int i = 0; i < ADDERS; i++)
        pthread_join(a[i].thread, NULL);
    for (int i = 0; i < ADDERS; i++)
        assert_each_ended_once(&a[i]);
    ckpt_lanes_free(l);
    free(a);
}

static void test_at_random(void **state) {
    (void)state;
    struct rng rng = rng_seeded("lanes");
    for (int i = 0; i < 10; i++)
        one_random_world(&rng, i % 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order_of_arrival),
        cmocka_unit_test(test_who_waits_keeps_no_lane),
        cmocka_unit_test(test_one_waits_in_a_lane),
        cmocka_unit_test(test_progress_during_a_try_counts),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_who_was_tried_and_leaves_is_progress),
        cmocka_unit_test(test_stopping),
        cmocka_unit_test(test_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
