/*
 * LD_PRELOAD=libscarce.so REFUSE='malloc 17': what a program asks for is refused: the 17th time,
 * counted from main on; with 'malloc 17 on' from then on. The words are those of `kinds` below.
 * REFUSE_COUNTS=FILE has how often each was asked for, as 64-bit numbers in their order: also of a
 * process that was killed, and of its forks together.
 *
 * A sanitizer has allocators of its own: this is for programs without one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { MALLOC, MMAP, MEMFD, OPEN, READ, WRITE, STAT, THREAD, FALLOCATE, SYNC, RENAME, KINDS };

static const struct {
    const char *name;
    int error;
} kinds[KINDS] = {
    {"malloc", ENOMEM},    {"mmap", ENOMEM},  {"memfd", EMFILE},  {"open", EMFILE},
    {"read", EIO},         {"write", ENOSPC}, {"stat", EIO},      {"thread", EAGAIN},
    {"fallocate", ENOSPC}, {"sync", EIO},     {"rename", EACCES},
};

static atomic_bool in_main;
static atomic_uint_least64_t own_counts[KINDS], *counts = own_counts;
static enum kind chosen = KINDS;
static uint64_t number;
static bool from_then_on;

/* --- what is refused -------------------------------------------------------------------------- */

static bool refuse(enum kind k) {
    if (!atomic_load(&in_main))
        return false;
    const uint64_t n = atomic_fetch_add(&counts[k], 1) + 1;
    const bool refused = k == chosen && (from_then_on ? n >= number : n == number);
    if (refused)
        errno = kinds[k].error;
    return refused;
}

static void read_environment(void) {
    char name[16] = "", on[4] = "";
    const char *const text = getenv("REFUSE");
    if (!text || sscanf(text, "%15s %lu %3s", name, &number, on) < 2)
        return;
    while (chosen > 0 && strcmp(kinds[chosen - 1].name, name) != 0)
        chosen--;
    if (chosen-- == 0) {
        fprintf(stderr, "scarce: unknown word in REFUSE=%s\n", text);
        _exit(99);
    }
    from_then_on = strcmp(on, "on") == 0;
}

static void share_counts(void) {
    const char *const path = getenv("REFUSE_COUNTS");
    const int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    if (ftruncate(fd, sizeof own_counts) == 0) {
        void *const p = mmap(NULL, sizeof own_counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        counts = p == MAP_FAILED ? own_counts : p;
    }
    close(fd);
}

/* --- from main on ----------------------------------------------------------------------------- */

typedef int main_function(int argc, char **argv, char **environment);

static main_function *real_main;

static int begin(int argc, char **argv, char **environment) {
    read_environment();
    share_counts();
    atomic_store(&in_main, true);
    return real_main(argc, argv, environment);
}

static void *next(const char *name) {
    void *const f = dlsym(RTLD_NEXT, name);
    if (!f)
        abort();
    return f;
}

int __libc_start_main(main_function *program, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end);
int __libc_start_main(main_function *program, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end) {
    int (*const real)(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void),
                      void *) = next("__libc_start_main");
    real_main = program;
    return real(begin, argc, argv, init, fini, rtld_fini, stack_end);
}

/* --- memory: by glibc's own names, since looking one up allocates ------------------------------
 */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

void *malloc(size_t n) {
    return refuse(MALLOC) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    return refuse(MALLOC) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
    return refuse(MALLOC) ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t alignment, size_t n) {
    return refuse(MALLOC) ? NULL : __libc_memalign(alignment, n);
}

int posix_memalign(void **out, size_t alignment, size_t n) {
    void *const p = refuse(MALLOC) ? NULL : __libc_memalign(alignment, n);
    if (p)
        *out = p;
    return p ? 0 : ENOMEM;
}

/* --- all else --------------------------------------------------------------------------------- */

#define WRAP(kind, failed, type, name, parameters, ...)                                            \
    type name parameters;                                                                          \
    type name parameters {                                                                         \
        static type(*real) parameters;                                                             \
        if (refuse(kind))                                                                          \
            return failed;                                                                         \
        if (!real)                                                                                 \
            real = next(#name);                                                                    \
        return real(__VA_ARGS__);                                                                  \
    }

#define WRAP_OPEN(name)                                                                            \
    int name(const char *path, int flags, ...) {                                                   \
        static int (*real)(const char *, int, ...);                                                \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        const mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;              \
        va_end(ap);                                                                                \
        if (refuse(OPEN))                                                                          \
            return -1;                                                                             \
        if (!real)                                                                                 \
            real = next(#name);                                                                    \
        return real(path, flags, mode);                                                            \
    }

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP(OPEN, -1, int, __open_2, (const char *path, int flags), path, flags)
WRAP(OPEN, -1, int, __open64_2, (const char *path, int flags), path, flags)
WRAP(OPEN, -1, int, mkostemp, (char *path, int flags), path, flags)
WRAP(OPEN, -1, int, mkostemp64, (char *path, int flags), path, flags)
WRAP(OPEN, -1, int, pipe2, (int fd[2], int flags), fd, flags)
WRAP(MEMFD, -1, int, memfd_create, (const char *name, unsigned flags), name, flags)
WRAP(MMAP, MAP_FAILED, void *, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t off), p,
     n, prot, flags, fd, off)
WRAP(MMAP, MAP_FAILED, void *, mmap64,
     (void *p, size_t n, int prot, int flags, int fd, off64_t off), p, n, prot, flags, fd, off)
WRAP(READ, -1, ssize_t, pread, (int fd, void *p, size_t n, off_t off), fd, p, n, off)
WRAP(READ, -1, ssize_t, pread64, (int fd, void *p, size_t n, off64_t off), fd, p, n, off)
WRAP(READ, -1, ssize_t, __pread_chk, (int fd, void *p, size_t n, off_t off, size_t room), fd, p, n,
     off, room)
WRAP(READ, -1, ssize_t, __pread64_chk, (int fd, void *p, size_t n, off64_t off, size_t room), fd, p,
     n, off, room)
WRAP(WRITE, -1, ssize_t, write, (int fd, const void *p, size_t n), fd, p, n)
WRAP(WRITE, -1, ssize_t, writev, (int fd, const struct iovec *iov, int n), fd, iov, n)
WRAP(WRITE, -1, ssize_t, pwrite64, (int fd, const void *p, size_t n, off64_t off), fd, p, n, off)
WRAP(STAT, -1, int, stat, (const char *path, struct stat *st), path, st)
WRAP(STAT, -1, int, stat64, (const char *path, struct stat64 *st), path, st)
WRAP(STAT, -1, int, fstat, (int fd, struct stat *st), fd, st)
WRAP(STAT, -1, int, fstat64, (int fd, struct stat64 *st), fd, st)
WRAP(FALLOCATE, ENOSPC, int, posix_fallocate, (int fd, off_t off, off_t n), fd, off, n)
WRAP(FALLOCATE, ENOSPC, int, posix_fallocate64, (int fd, off64_t off, off64_t n), fd, off, n)
WRAP(SYNC, -1, int, fsync, (int fd), fd)
WRAP(RENAME, -1, int, rename, (const char *from, const char *to), from, to)
WRAP(THREAD, EAGAIN, int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg),
     thread, attributes, start, arg)
