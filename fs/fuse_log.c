/*
 * What libfuse has to say goes where our own lines go, each once: in the background its stderr is
 * nowhere, and a disk that fails would have it say the same at each read. That a reply could not be
 * written is left out: who wrote it says why, and a reader that was killed is no news.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "fs/fuse_server.h"

static void take(enum fuse_log_level level, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
static void take(enum fuse_log_level level, const char *fmt, va_list ap) {
    char text[512];
    (void)level;
    vsnprintf(text, sizeof text, fmt, ap);
    text[strcspn(text, "\n")] = '\0';
    if (!strstr(text, "writing device"))
        ckpt_log_once(text, "%s", text);
}

void ckpt_fuse_log_start(void) {
    fuse_set_log_func(take);
}
