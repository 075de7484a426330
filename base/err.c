#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Copies src to dst (cap bytes, NUL included); what a terminal would obey is escaped, so that a
 * hostile name cannot break the one line. */
static void copy_one_line(char *dst, size_t cap, const char *src) {
    char shown[CKPT_SHOWN_MAX];
    size_t n = 0;
    for (size_t left = strlen(src); left > 0 && n + CKPT_SHOWN_MAX < cap;) {
        const size_t used = ckpt_utf8_show(shown, src, left);
        n += (size_t)(stpcpy(dst + n, shown) - (dst + n));
        src += used;
        left -= used;
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

/* A prefix that is longer is cut, so that a hostile name leaves room for what is said of it. */
#define PREFIX_MAX 400

int ckpt_fail_in(struct ckpt_err *err, const char *fmt, ...) {
    if (!err)
        return -EINVAL;
    char raw[PREFIX_MAX + CKPT_ERR_TEXT + 8], prefix[PREFIX_MAX];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    snprintf(raw, sizeof raw, "%s%s: %s", prefix, n < PREFIX_MAX ? "" : "...", err->text);
    copy_one_line(err->text, sizeof err->text, raw);
    return err->code;
}

int(ckpt_fail_memory)(struct ckpt_err *err, const char *what) {
    return ckpt_fail(err, -ENOMEM, "out of memory while %s", what);
}
