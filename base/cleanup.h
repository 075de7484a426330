#ifndef CKPT_BASE_CLEANUP_H
#define CKPT_BASE_CLEANUP_H
/*
 * Scope-bound cleanup, so that a function of ten acquisitions has one `return` per failure and no
 * label. `CKPT_AUTO(free) char *p = ...;` frees p when it goes out of scope; `return CKPT_STEAL(p)`
 * hands it out. A type with a `_fini` that is safe on zeroed memory adds its own
 * `ckpt_auto_NAME` beside it (CKPT_DEFINE_AUTO).
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CKPT_AUTO(name) __attribute__((cleanup(ckpt_auto_##name)))

/* *(&p) is read and set to NULL in one expression. */
#define CKPT_STEAL(p)                                                                              \
    __extension__({                                                                                \
        __typeof__(p) ckpt_stolen = (p);                                                           \
        (p) = NULL;                                                                                \
        ckpt_stolen;                                                                               \
    })

#define CKPT_DEFINE_AUTO(name, type, fini)                                                         \
    static inline void ckpt_auto_##name(type *p) {                                                 \
        fini(p);                                                                                   \
    }

static inline void ckpt_auto_free(void *p) {
    free(*(void **)p);
}

static inline void ckpt_auto_fd(const int *fd) {
    const int saved = errno;
    if (*fd >= 0)
        close(*fd);
    errno = saved;
}

static inline void ckpt_auto_dir(DIR **d) {
    if (*d)
        closedir(*d);
}

static inline void ckpt_auto_fclose(FILE **f) {
    if (*f)
        fclose(*f);
}

#endif
