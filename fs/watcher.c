#include "fs/watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/mountpoint.h"

/* Nothing of the daemon's stays open: neither its terminal nor the source nor, in time, FUSE. */
static void leave(int pipe_fd) {
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    dup2(pipe_fd, STDIN_FILENO);
    close_range(STDERR_FILENO + 1, UINT_MAX, 0);
    setsid();
    if (chdir("/") != 0)
        _exit(1);
}

/* What ends a whole group of processes is for the daemon to obey. */
static void ignore_signals(void) {
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &ignore, NULL);
}

static _Noreturn void watch(const char *absolute, int pipe_fd) {
    prctl(PR_SET_NAME, "ckpt-watcher"); /* another name than whom one might kill by name */
    ignore_signals();
    leave(pipe_fd);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR)
        continue;
    struct statx stx; /* the kernel would answer stat(2) from what it remembers */
    if (statx(AT_FDCWD, absolute, AT_STATX_FORCE_SYNC, STATX_INO, &stx) != 0 && errno == ENOTCONN)
        ckpt_mountpoint_detach(absolute);
    _exit(0);
}

int ckpt_watcher_start(const char *absolute, struct ckpt_err *err) {
    int fd[2]; /* fd[1] stays open as long as we live */
    if (pipe2(fd, O_CLOEXEC) != 0)
        return ckpt_fail(err, -EAGAIN, "no pipe: %s", strerror(errno));
    const pid_t child = fork();
    if (child < 0) {
        close(fd[0]);
        close(fd[1]);
        return ckpt_fail(err, -EAGAIN, "no process for auto_unmount: %s", strerror(errno));
    }
    if (child == 0)
        watch(absolute, fd[0]);
    close(fd[0]);
    return 0;
}
