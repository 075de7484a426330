#ifndef CKPT_FORMATS_MAPPED_H
#define CKPT_FORMATS_MAPPED_H
/* Taking bytes out of a mapped file that may shrink meanwhile. */
#include <string.h>

#include "base/err.h"
#include "base/guard.h"

/* memcpy; -EIO with the sentence in err if the file went away. */
static inline int ckpt_mapped_copy(void *to, const void *from, size_t n, struct ckpt_err *err) {
    int rc;
    CKPT_GUARDED(rc, memcpy(to, from, n));
    return rc ? ckpt_fail(err, rc, "the file shrank while it was read") : 0;
}

#endif
