/* Going to the background. After the mount and before any thread. */
#include "fs/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "fs/notify.h"
#include "fs/signals.h"

#define EXIT_SYSTEM 2

static int null = -1; /* opened while somebody can still be told that it fails */

/* All but the terminal, fd and what hands on signals are the child's. Had we the device, too, a
 * child that fails could not end the mount by closing it, and would wait for itself. */
static void keep_only(int fd) {
    const unsigned a = (unsigned)fd, b = (unsigned)ckpt_signals_descriptor();
    const unsigned low = a < b ? a : b, high = a < b ? b : a;
    close_range(STDERR_FILENO + 1, low - 1, 0); /* an empty range is refused, which is fine */
    close_range(low + 1, high - 1, 0);
    close_range(high + 1, ~0u, 0);
}

/* _exit: the child owns the mount, the mappings and what is to be flushed. */
static _Noreturn void follow(pid_t child, int fd) {
    char byte;
    ssize_t n;
    keep_only(fd);
    do {
        n = read(fd, &byte, 1);
    } while (n < 0 && errno == EINTR);
    if (n == 1) {
        ckpt_notify("READY=1\nMAINPID=%ld", (long)child);
        _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFSIGNALED(status))
        fprintf(stderr, "mount.ckpt: the daemon ended on signal %d before it served\n",
                WTERMSIG(status));
    _exit(WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : EXIT_SYSTEM);
}

int ckpt_daemon_fork(int *ready_fd, struct ckpt_err *err) {
    int fd[2];
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return ckpt_fail(err, -errno, "/dev/null cannot be opened: %s", strerror(errno));
    if (pipe2(fd, O_CLOEXEC) != 0)
        return ckpt_fail(err, -EAGAIN, "no pipe: %s", strerror(errno));
    fflush(NULL); /* or both processes would write what is buffered */
    const pid_t child = fork();
    if (child < 0) {
        close(fd[0]);
        close(fd[1]);
        return ckpt_fail(err, -EAGAIN, "no process for the background: %s", strerror(errno));
    }
    if (child > 0) {
        close(fd[1]);
        follow(child, fd[0]);
    }
    close(fd[0]);
    setsid();
    *ready_fd = fd[1];
    return 0;
}

void ckpt_daemon_ready(int ready_fd) {
    fflush(NULL);
    if (chdir("/") != 0)
        ckpt_log("the daemon stays in its directory: %s", strerror(errno));
    ckpt_log_to_syslog();
    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
    const ssize_t n = write(ready_fd, "", 1);
    (void)n; /* a parent that was killed no longer cares */
    close(ready_fd);
}
