#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#define ONCE_MAX 1024 /* remembered events; beyond them nothing new is said once */

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
/* guarded by mu: */
static bool to_syslog;
static char *said[ONCE_MAX];
static size_t nsaid;

static void say(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));
static void say(const char *fmt, va_list ap) {
    if (to_syslog) {
        vsyslog(LOG_DAEMON | LOG_WARNING, fmt, ap);
        return;
    }
    flockfile(stderr);
    fputs("mount.ckpt: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    funlockfile(stderr);
}

/* Whether the key is new; remembers it. Out of memory or of room: better silent than flooding. */
static bool first_time(const char *key) {
    for (size_t i = 0; i < nsaid; i++)
        if (strcmp(said[i], key) == 0)
            return false;
    char *copy = nsaid < ONCE_MAX ? strdup(key) : NULL;
    if (copy)
        said[nsaid++] = copy;
    return copy;
}

void ckpt_log(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&mu);
    say(fmt, ap);
    pthread_mutex_unlock(&mu);
    va_end(ap);
}

void ckpt_log_once(const char *key, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&mu);
    if (first_time(key))
        say(fmt, ap);
    pthread_mutex_unlock(&mu);
    va_end(ap);
}

void ckpt_log_to_syslog(void) {
    pthread_mutex_lock(&mu);
    openlog("mount.ckpt", LOG_PID, LOG_DAEMON);
    to_syslog = true;
    pthread_mutex_unlock(&mu);
}
