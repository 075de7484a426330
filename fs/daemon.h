#ifndef CKPT_FS_DAEMON_H
#define CKPT_FS_DAEMON_H
/*
 * Going to the background so that whoever called us knows how it went:
 *
 *     parent                              child
 *     ckpt_daemon_fork ----fork---------> returns 0; stderr is still the terminal
 *       waits                             starts threads ...
 *       exits 0 <-----------one byte----- ckpt_daemon_ready: leaves the terminal
 *         (and tells a service manager who serves from now on)
 *       or exits with the child's code <- main prints the error and exits
 */
#include "base/err.h"

/* Returns in the child only, with the descriptor for ckpt_daemon_ready. */
int ckpt_daemon_fork(int *ready_fd, struct ckpt_err *err) CKPT_CHECKED;
/* Lets the parent exit with 0. stdin, stdout and stderr become /dev/null, log lines go to syslog.
 */
void ckpt_daemon_ready(int ready_fd);

#endif
