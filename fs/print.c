#include "fs/print.h"

#include <errno.h>
#include <string.h>

int ckpt_print(FILE *to, const char *name, const char *text, size_t n, struct ckpt_err *err) {
    if (n && (fwrite(text, 1, n, to) != n || fflush(to) != 0))
        return ckpt_fail(err, -errno, "writing to %s: %s", name, strerror(errno));
    return 0;
}
