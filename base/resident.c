/* The system is asked, some pages at a time. */
#include "base/resident.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/guard.h"

#define PAGES 512 /* asked for at once */
/* With a page the kernel maps those around it that are in memory, too: so many bytes, aligned. */
#define FAULT_AROUND (64u << 10)

static bool all_resident(const unsigned char *page, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!(page[i] & 1))
            return false;
    return true;
}

void ckpt_fault_in(const void *p, size_t n) {
    const uint8_t *const from = p;
    for (size_t i = 0; i < n; i += FAULT_AROUND)
        if (!ckpt_is_resident(from + i, 1) || ckpt_guard_touch(from + i) < 0)
            return;
}

bool ckpt_is_resident(const void *p, size_t n) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)p % page;
    uint8_t *at = (uint8_t *)(uintptr_t)p - before; /* never written to */
    unsigned char state[PAGES];
    for (size_t left = n ? n + before : 0; left > 0;) {
        const size_t some = left < PAGES * page ? left : PAGES * page;
        if (mincore(at, some, state) == 0 && !all_resident(state, (some + page - 1) / page))
            return false;
        at += some;
        left -= some;
    }
    return true;
}
