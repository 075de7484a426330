/*
 * What libfuse has to say goes where our own lines go, each once: in the background its stderr is
 * nowhere, and a disk that fails would have it say the same at each read.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "fs/fuse_server.h"

/* Who wrote the reply says why it could not be written, unless its reader was killed, which is no
 * news; who serves says that there is no memory for it. */
static const char *const left_out[] = {"writing device", "allocate", "creating thread"};

static atomic_bool serves;

static void take(enum fuse_log_level level, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
static void take(enum fuse_log_level level, const char *fmt, va_list ap) {
    char text[512];
    (void)level;
    if (!atomic_load(&serves))
        return;
    vsnprintf(text, sizeof text, fmt, ap);
    text[strcspn(text, "\n")] = '\0';
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
        if (strstr(text, left_out[i]))
            return;
    ckpt_log_once(text, "%s", text);
}

void ckpt_fuse_log_start(void) {
    fuse_set_log_func(take);
}

void ckpt_fuse_log_serves(void) {
    atomic_store(&serves, true);
}
