#ifndef CKPT_FORMATS_MAPPED_H
#define CKPT_FORMATS_MAPPED_H
/* Taking bytes out of a mapped file that may shrink meanwhile. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/guard.h"

/* What SIGBUS says of a file whose page cannot be had. */
#define CKPT_LOST "cannot be read: it shrank meanwhile, or its disk fails"

static inline int ckpt_mapped_lost(struct ckpt_err *err) {
    return ckpt_fail(err, -EIO, "the file " CKPT_LOST);
}

/* memcpy; -EIO with the sentence in err if the file went away. */
static inline int ckpt_mapped_copy(void *to, const void *from, size_t n, struct ckpt_err *err) {
    int rc;
    if (n == 0)
        return 0; /* an empty file has no mapping */
    CKPT_GUARDED(rc, memcpy(to, from, n));
    return rc ? ckpt_mapped_lost(err) : 0;
}

/* Gives back the memory of bytes that have been copied and will not be read again; the file still
 * has them. */
static inline void ckpt_mapped_forget(const void *from, size_t n) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)from & ~(page - 1);
    (void)madvise((void *)start, (uintptr_t)from + n - start, MADV_DONTNEED);
}

#endif
