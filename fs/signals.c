/* The queue of signals is a pipe: writing to one is among the few things that a handler may do. */
#include "fs/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static int queue[2]; /* written before the handlers are installed */

static void put(int signal) {
    const unsigned char byte = (unsigned char)signal;
    const int saved = errno;
    const ssize_t n = write(queue[1], &byte, 1);
    (void)n; /* a full pipe has signals enough */
    errno = saved;
}

int ckpt_signals_catch(struct ckpt_err *err) {
    if (pipe2(queue, O_CLOEXEC) != 0 || fcntl(queue[1], F_SETFL, O_NONBLOCK) != 0)
        return ckpt_fail(err, -EAGAIN, "no pipe: %s", strerror(errno));
    const struct sigaction action = {.sa_handler = put, .sa_flags = SA_RESTART};
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &action, NULL);
    return 0;
}

bool ckpt_signals_waiting(void) {
    struct pollfd p = {.fd = queue[0], .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

int ckpt_signals_next(void) {
    unsigned char byte = 0;
    ssize_t n;
    do {
        n = read(queue[0], &byte, 1);
    } while (n < 0 && errno == EINTR);
    return n == 1 ? byte : 0;
}

void ckpt_signals_wake(void) {
    put(0);
}

int ckpt_signals_descriptor(void) {
    return queue[1];
}
