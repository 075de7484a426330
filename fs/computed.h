#ifndef CKPT_FS_COMPUTED_H
#define CKPT_FS_COMPUTED_H
/*
 * A text that takes long to make: made once, by one thread for all readers, at first read, and
 * kept. Its size is fixed in advance, so that `ls -l` computes nothing; the text is padded with
 * blanks.
 *
 *     IDLE --first reader--> RUNNING --made--> DONE
 *       ^                      |
 *       +--failed, or the last reader has left--
 *
 * A server's reader *parks*: it leaves a waiter and goes on with other work; the waiter is woken
 * from the computing thread. A tool's reader waits and computes in its own thread.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/text.h"

/* Appends the text. Stops soon with -EINTR once *cancel is set. */
typedef int ckpt_computed_make(void *arg, const atomic_bool *cancel, struct ckpt_str *out,
                               struct ckpt_err *err);

struct ckpt_computed;

struct ckpt_waiter {
    struct ckpt_waiter *next; /* private */
    /* Called once, without locks, unless the waiter was removed: rc 0 or a negative errno. */
    void (*wake)(struct ckpt_waiter *w, int rc);
    /* Asked once while parking, under the lock: has the reader left already? May be NULL. */
    bool (*left)(struct ckpt_waiter *w);
    const void *id; /* for ckpt_computed_unpark */
};

int ckpt_computed_new(ckpt_computed_make *make, void *arg, size_t size, struct ckpt_computed **out,
                      struct ckpt_err *err) CKPT_CHECKED;
size_t ckpt_computed_size(const struct ckpt_computed *c);
/* The padded text, size bytes, if it has been made; NULL otherwise. */
const char *ckpt_computed_text(struct ckpt_computed *c);
/* Makes the text in this thread unless it is there. Not while waiters are parked. */
int ckpt_computed_wait(struct ckpt_computed *c, struct ckpt_err *err) CKPT_CHECKED;
/* Parks w until the text is there: 0, and w->wake will be called (perhaps already has been). Or a
 * negative errno: nothing is parked and wake will not be called. */
int ckpt_computed_park(struct ckpt_computed *c, struct ckpt_waiter *w) CKPT_CHECKED;
/* Takes out the waiter with this id, or NULL if it was woken or never came. When the last one
 * leaves, the computation is cancelled. */
struct ckpt_waiter *ckpt_computed_unpark(struct ckpt_computed *c, const void *id);
/* Cancels what runs, wakes all waiters with -EIO and refuses new ones. */
void ckpt_computed_stop(struct ckpt_computed *c);
void ckpt_computed_free(struct ckpt_computed *c); /* stops first; NULL is fine */

#endif
