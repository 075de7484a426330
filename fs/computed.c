/*
 * A text made once for all readers. The lock guards the state and the list of waiters; nothing is
 * computed and nobody is woken while it is held.
 */
#include "fs/computed.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"

struct ckpt_computed {
    ckpt_computed_make *make;
    void *arg;
    size_t size;
    atomic_bool cancel;
    pthread_mutex_t mu;
    bool done, running, has_thread, stopped; /* guarded by mu */
    pthread_t thread;                        /* guarded by mu */
    struct ckpt_waiter *waiters;             /* guarded by mu */
    struct ckpt_str text;                    /* immutable once done */
};

int ckpt_computed_new(ckpt_computed_make *make, void *arg, size_t size, struct ckpt_computed **out,
                      struct ckpt_err *err) {
    struct ckpt_computed *c = calloc(1, sizeof *c);
    if (!c)
        return ckpt_fail_memory(err, "preparing a computed file");
    c->make = make;
    c->arg = arg;
    c->size = size;
    pthread_mutex_init(&c->mu, NULL);
    *out = c;
    return 0;
}

size_t ckpt_computed_size(const struct ckpt_computed *c) {
    return c->size;
}

const char *ckpt_computed_text(struct ckpt_computed *c) {
    pthread_mutex_lock(&c->mu);
    const char *text = c->done ? c->text.s : NULL;
    pthread_mutex_unlock(&c->mu);
    return text;
}

/* Blanks up to the size, the last byte a newline. */
static int pad(struct ckpt_str *s, size_t size, struct ckpt_err *err) {
    if (s->n > size)
        return ckpt_fail(err, -EOVERFLOW, "the text has %zu bytes, its bound is %zu", s->n, size);
    static const char blanks[257] =
        "                                                                "
        "                                                                "
        "                                                                "
        "                                                                ";
    while (s->n < size && !s->failed)
        ckpt_str_add(s, blanks, size - s->n < 256 ? size - s->n : 256);
    if (s->failed)
        return ckpt_fail_memory(err, "padding a computed file");
    if (size > 0)
        s->s[size - 1] = '\n';
    return 0;
}

/* One attempt, without the lock. On success the text is in *out. */
static int compute(struct ckpt_computed *c, struct ckpt_str *out, struct ckpt_err *err) {
    const int rc = c->make(c->arg, &c->cancel, out, err);
    return rc < 0 ? rc : pad(out, c->size, err);
}

/* Keeps the text and hands out the waiters to wake. */
static struct ckpt_waiter *finish(struct ckpt_computed *c, struct ckpt_str *text, int rc) {
    if (rc == 0) {
        c->text = *text;
        c->done = true;
    } else {
        ckpt_str_fini(text);
    }
    return CKPT_STEAL(c->waiters);
}

static void wake_all(struct ckpt_waiter *w, int rc) {
    while (w) {
        struct ckpt_waiter *next = w->next;
        w->wake(w, rc);
        w = next;
    }
}

/* Computes as long as somebody waits: a cancelled run starts again for who came meanwhile. */
static void *run(void *arg) {
    struct ckpt_computed *c = arg;
    for (;;) {
        struct ckpt_str text = {0};
        struct ckpt_err err = {0};
        const int rc = compute(c, &text, &err);
        pthread_mutex_lock(&c->mu);
        const bool again = rc == -EINTR && c->waiters && !c->stopped;
        struct ckpt_waiter *w = again ? NULL : finish(c, &text, rc);
        atomic_store(&c->cancel, c->stopped);
        c->running = again;
        pthread_mutex_unlock(&c->mu);
        if (again) {
            ckpt_str_fini(&text);
            continue;
        }
        if (rc < 0 && rc != -EINTR)
            ckpt_log("%s", err.text);
        wake_all(w, rc == -EINTR ? -EIO : rc);
        return NULL;
    }
}

/* With the lock held. */
static int start(struct ckpt_computed *c) {
    if (c->has_thread)
        pthread_join(c->thread, NULL); /* it has left its last critical section */
    c->has_thread = pthread_create(&c->thread, NULL, run, c) == 0;
    c->running = c->has_thread;
    return c->has_thread ? 0 : -EAGAIN;
}

static int park_locked(struct ckpt_computed *c, struct ckpt_waiter *w) {
    if (c->stopped)
        return -EIO;
    if (w->left && w->left(w))
        return -EINTR;
    const int rc = c->running ? 0 : start(c);
    if (rc < 0)
        return rc;
    w->next = c->waiters;
    c->waiters = w;
    return 0;
}

int ckpt_computed_park(struct ckpt_computed *c, struct ckpt_waiter *w) {
    pthread_mutex_lock(&c->mu);
    const bool done = c->done;
    const int rc = done ? 0 : park_locked(c, w);
    pthread_mutex_unlock(&c->mu);
    if (done)
        w->wake(w, 0);
    return rc;
}

struct ckpt_waiter *ckpt_computed_unpark(struct ckpt_computed *c, const void *id) {
    pthread_mutex_lock(&c->mu);
    struct ckpt_waiter **at = &c->waiters;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    struct ckpt_waiter *w = *at;
    if (w) {
        *at = w->next;
        if (!c->waiters)
            atomic_store(&c->cancel, true);
    }
    pthread_mutex_unlock(&c->mu);
    return w;
}

int ckpt_computed_wait(struct ckpt_computed *c, struct ckpt_err *err) {
    if (ckpt_computed_text(c))
        return 0;
    struct ckpt_str text = {0};
    const int rc = compute(c, &text, err);
    pthread_mutex_lock(&c->mu);
    finish(c, &text, rc);
    pthread_mutex_unlock(&c->mu);
    return rc;
}

void ckpt_computed_stop(struct ckpt_computed *c) {
    pthread_mutex_lock(&c->mu);
    c->stopped = true;
    atomic_store(&c->cancel, true);
    struct ckpt_waiter *w = CKPT_STEAL(c->waiters);
    const bool join = c->has_thread;
    c->has_thread = false;
    pthread_mutex_unlock(&c->mu);
    if (join)
        pthread_join(c->thread, NULL);
    wake_all(w, -EIO);
}

void ckpt_computed_free(struct ckpt_computed *c) {
    if (!c)
        return;
    ckpt_computed_stop(c);
    ckpt_str_fini(&c->text);
    pthread_mutex_destroy(&c->mu);
    free(c);
}
