#ifndef CKPT_FS_SIGNALS_H
#define CKPT_FS_SIGNALS_H
/*
 * SIGTERM, SIGINT and SIGHUP, queued for one thread. A handler and a pipe rather than sigwait: a
 * library may start threads when it is loaded, which block nothing, and in one of them a signal
 * would have its default effect. Process-wide. After a fork both processes feed the same queue, so
 * that what reaches the waiting parent (Ctrl-C, of which the child in its own session is not told)
 * is done by the child.
 */
#include <stdbool.h>

#include "base/err.h"

/* From here on the signals are queued. */
int ckpt_signals_catch(struct ckpt_err *err) CKPT_CHECKED;
/* Whether one is in the queue. */
bool ckpt_signals_waiting(void);
/* Waits for the next; 0: ckpt_signals_wake was called. */
int ckpt_signals_next(void);
void ckpt_signals_wake(void);
/* By which this process feeds the queue: to be kept open by who closes what he doesn't need. */
int ckpt_signals_descriptor(void);

#endif
