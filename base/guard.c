#include "base/guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/*
 * The handler may run at any instruction of any thread, so it takes no lock: the table is a row of
 * slots which it reads atomically. A slot is free while its size is 0; `base` is written before
 * `size` and read after it. Whoever removes a mapping no longer reads from it, so a stale match is
 * impossible.
 */
struct mapping {
    _Atomic uintptr_t base;
    _Atomic size_t size;
};

_Thread_local struct ckpt_guard ckpt_guard;

static struct mapping mappings[CKPT_GUARD_MAPPINGS];
static _Atomic size_t used;                            /* slots below this may be in use */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* held by writers of the above */

static bool is_ours(uintptr_t address) {
    const size_t n = atomic_load(&used);
    for (size_t i = 0; i < n; i++) {
        const size_t size = atomic_load(&mappings[i].size);
        if (address - atomic_load(&mappings[i].base) < size)
            return true;
    }
    return false;
}

/* Nothing is blocked here by ourselves (SA_NODEFER), but ThreadSanitizer runs handlers with every
 * signal blocked, which a jump out would leave so: the next fault would kill the process. */
static void unblock_sigbus(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void on_sigbus(int signal_number, siginfo_t *info, void *context) {
    (void)context;
    const bool is_fault = info->si_code > 0; /* the kernel's, not sent by kill */
    if (is_fault && ckpt_guard.active && is_ours((uintptr_t)info->si_addr)) {
        ckpt_guard.active = 0;
        unblock_sigbus();
        siglongjmp(ckpt_guard.jump, 1);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

int ckpt_guard_install(void) {
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = on_sigbus;
    /* NODEFER: the jump leaves the handler without returning, so nothing may stay blocked. */
    sa.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&sa.sa_mask);
    return sigaction(SIGBUS, &sa, NULL) ? -errno : 0;
}

int ckpt_guard_add(const void *base, size_t n) {
    if (n == 0)
        return 0;
    pthread_mutex_lock(&mu);
    size_t i = 0;
    while (i < CKPT_GUARD_MAPPINGS && atomic_load(&mappings[i].size) != 0)
        i++;
    const bool room = i < CKPT_GUARD_MAPPINGS;
    if (room) {
        atomic_store(&mappings[i].base, (uintptr_t)base);
        atomic_store(&mappings[i].size, n);
        if (i >= atomic_load(&used))
            atomic_store(&used, i + 1);
    }
    pthread_mutex_unlock(&mu);
    return room ? 0 : -ENOSPC;
}

void ckpt_guard_remove(const void *base) {
    pthread_mutex_lock(&mu);
    for (size_t i = 0; i < CKPT_GUARD_MAPPINGS; i++)
        if (atomic_load(&mappings[i].size) && atomic_load(&mappings[i].base) == (uintptr_t)base)
            atomic_store(&mappings[i].size, 0);
    pthread_mutex_unlock(&mu);
}

/* A function of its own, since sigsetjmp leaves locals of its caller indeterminate. */
int ckpt_guard_touch(const void *p) {
    int rc;
    CKPT_GUARDED(rc, (void)*(const volatile uint8_t *)p);
    return rc;
}
