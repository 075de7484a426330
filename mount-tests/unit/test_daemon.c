/*
 * The parent that waits for the daemon: it keeps nothing open of what it does not need, but hands
 * on the signals that only it is sent.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "fs/daemon.h"
#include "fs/signals.h"

#define EXIT_AS_TOLD 7

/* A program that goes to the background; the daemon waits for a signal. */
static _Noreturn void go_to_the_background(void) {
    struct ckpt_err err = {0};
    int ready;
    alarm(20); /* this process; the daemon sets its own */
    if (ckpt_signals_catch(&err) < 0 || ckpt_daemon_fork(&ready, &err) < 0)
        _exit(1);
    alarm(20);
    _exit(ckpt_signals_next() == SIGINT ? EXIT_AS_TOLD : 1);
}

static void wait_until_closed(pid_t process, int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)process, fd);
    for (int i = 0; i < 20000 && access(path, F_OK) == 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_parent_hands_on_signals(void **state) {
    (void)state;
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* of no use to who waits */
    assert_true(fd > STDERR_FILENO);
    const pid_t parent = fork();
    assert_true(parent >= 0);
    if (parent == 0)
        go_to_the_background();
    wait_until_closed(parent, fd);
    int status = 0;
    assert_int_equal(kill(parent, SIGINT), 0);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_AS_TOLD); /* the daemon's */
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parent_hands_on_signals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
