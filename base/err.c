#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Copies src to dst (cap bytes, NUL included); control bytes become \xNN so that a hostile name
 * cannot break the one line or drive the terminal. */
static void copy_one_line(char *dst, size_t cap, const char *src) {
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;
    for (; *src && n + 5 < cap; src++) {
        const unsigned char c = (unsigned char)*src;
        if (c >= 0x20 && c != 0x7f) {
            dst[n++] = (char)c;
            continue;
        }
        dst[n++] = '\\';
        dst[n++] = 'x';
        dst[n++] = hex[c >> 4];
        dst[n++] = hex[c & 15];
    }
    dst[n] = '\0';
}

int(ckpt_fail)(struct ckpt_err *err, int code, const char *fmt, ...) {
    if (!err)
        return code;
    char raw[CKPT_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    copy_one_line(err->text, sizeof err->text, raw);
    err->code = code;
    return code;
}

int ckpt_fail_in(struct ckpt_err *err, const char *fmt, ...) {
    if (!err)
        return -EINVAL;
    char raw[2 * CKPT_ERR_TEXT + 2], prefix[CKPT_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    snprintf(raw, sizeof raw, "%s: %s", prefix, err->text);
    copy_one_line(err->text, sizeof err->text, raw);
    return err->code;
}

int(ckpt_fail_memory)(struct ckpt_err *err, const char *what) {
    return ckpt_fail(err, -ENOMEM, "out of memory while %s", what);
}
