#include "base/pages.h"

#include <sys/mman.h>
#include <unistd.h>

size_t ckpt_page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

size_t ckpt_pages_round(uint64_t n) {
    const size_t page = ckpt_page_bytes();
    return ((size_t)n + page - 1) / page * page;
}

static uint8_t *map(size_t n) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *const p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* More than is wanted, whose ends are cut off so that it begins with a huge page. */
static uint8_t *map_aligned(size_t n) {
    uint8_t *const all = map(n + CKPT_HUGE_PAGE);
    if (!all)
        return NULL;
    const size_t before = -(uintptr_t)all & (CKPT_HUGE_PAGE - 1);
    if (before)
        munmap(all, before);
    munmap(all + before + n, CKPT_HUGE_PAGE - before);
    return all + before;
}

uint8_t *ckpt_pages_new(uint64_t n, bool huge) {
    if (n > SIZE_MAX / 2)
        return NULL;
    const size_t bytes = ckpt_pages_round(n);
    if (!huge || n < CKPT_HUGE_PAGE)
        return map(bytes);
    uint8_t *const pages = map_aligned(bytes);
    if (pages)
        (void)madvise(pages, (size_t)n & ~(CKPT_HUGE_PAGE - 1), MADV_HUGEPAGE);
    return pages;
}

void ckpt_pages_free(uint8_t *pages, uint64_t n) {
    if (pages)
        munmap(pages, ckpt_pages_round(n));
}
