#ifndef CKPT_BASE_GUARD_H
#define CKPT_BASE_GUARD_H
/*
 * SIGBUS guard. Source files are mapped; a file that shrinks under the mapping turns a load into
 * SIGBUS. Code that computes from a mapping runs as
 *
 *     CKPT_GUARDED(rc, { memcpy(dst, mapped, n); });      rc is 0, or -EIO if the source went away
 *
 * Only faults inside a registered mapping are caught; any other SIGBUS keeps its default effect.
 * The body must not allocate, lock or return: it may be left at any instruction. Guards are per
 * thread and do not nest.
 */
#include <errno.h>
#include <setjmp.h>
#include <stddef.h>

struct ckpt_guard {
    sigjmp_buf jump;
    volatile int active;
};

extern _Thread_local struct ckpt_guard ckpt_guard;

/* Installs the handler; once, before threads start. 0 or negative errno. */
int ckpt_guard_install(void);
/* Mappings whose faults are caught. At most CKPT_GUARD_MAPPINGS at a time; -ENOSPC beyond. */
#define CKPT_GUARD_MAPPINGS 4096
int ckpt_guard_add(const void *base, size_t n);
void ckpt_guard_remove(const void *base);

/* Reads one byte inside the guard: 0, or -EIO if it is not there. */
int ckpt_guard_touch(const void *p);

#define CKPT_GUARDED(rc, body)                                                                     \
    do {                                                                                           \
        if (sigsetjmp(ckpt_guard.jump, 0) == 0) {                                                  \
            ckpt_guard.active = 1;                                                                 \
            body;                                                                                  \
            (rc) = 0;                                                                              \
        } else {                                                                                   \
            (rc) = -EIO;                                                                           \
        }                                                                                          \
        ckpt_guard.active = 0;                                                                     \
    } while (0)

#endif
