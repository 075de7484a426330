/*
 * Room is mapped, so that what is given up goes back to the system and the bound of the cache is
 * what the process really uses; in huge pages where the machine has them: fresh small ones cost a
 * third of reading a chunk (measured).
 */
#include "formats/decoded_room.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

size_t ckpt_decoded_page(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t whole_pages(uint64_t n) {
    const size_t page = ckpt_decoded_page();
    return ((size_t)n + page - 1) / page * page;
}

/* --- memory --- */

static int fail_room(struct ckpt_err *err, uint64_t n) {
    return ckpt_fail(err, -ENOMEM, "out of memory: no room for %" PRIu64 " bytes", n);
}

/* More than is wanted, whose ends are cut off so that it begins with a huge page. */
static uint8_t *map_aligned(size_t n) {
    uint8_t *const all = mmap(NULL, n + HUGE_PAGE, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return MAP_FAILED;
    const size_t before = -(uintptr_t)all & (HUGE_PAGE - 1);
    if (before)
        munmap(all, before);
    munmap(all + before + n, HUGE_PAGE - before);
    return all + before;
}

int ckpt_decoded_room_new(uint64_t n, bool huge, uint8_t **out, struct ckpt_err *err) {
    if (n > SIZE_MAX / 2)
        return fail_room(err, n);
    const size_t pages = whole_pages(n);
    huge = huge && n >= HUGE_PAGE;
    uint8_t *const room =
        huge ? map_aligned(pages) : mmap(NULL, pages, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return fail_room(err, n);
    if (huge)
        (void)madvise(room, (size_t)n & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
    *out = room;
    return 0;
}

void ckpt_decoded_room_free(uint8_t *room, uint64_t n) {
    if (room)
        munmap(room, whole_pages(n));
}

void ckpt_decoded_room_empty(uint8_t *piece, uint64_t n) {
    (void)madvise(piece, whole_pages(n), MADV_DONTNEED);
}

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 0 /* before Linux 5.7: never moved, since that would leave a hole */
#endif

static bool is_huge(const uint8_t *p, uint64_t n) {
    return n > 0 && n % HUGE_PAGE == 0 && (uintptr_t)p % HUGE_PAGE == 0;
}

bool ckpt_decoded_room_move(uint8_t *from, uint8_t *to, uint64_t n) {
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    return MREMAP_DONTUNMAP && is_huge(from, n) && is_huge(to, n) &&
           mremap(from, (size_t)n, (size_t)n, flags, to) != MAP_FAILED;
}

/* --- the temporary file --- */

static const char *folder(void) {
    const char *const tmpdir = getenv("TMPDIR");
    return tmpdir && tmpdir[0] == '/' ? tmpdir : "/var/tmp";
}

int ckpt_decoded_spill_open(void) {
    int fd = open(folder(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
        return fd >= 0 ? fd : -errno;
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/mount.ckpt-XXXXXX", folder()) >= sizeof path)
        return -ENAMETOOLONG;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    unlink(path);
    return fd;
}

int ckpt_decoded_spill_map(int fd, uint64_t at, uint8_t *piece, uint64_t n) {
    const size_t pages = whole_pages(n);
    const int rc = posix_fallocate(fd, (off_t)at, (off_t)pages);
    if (rc)
        return -rc;
    const int flags = MAP_SHARED | MAP_FIXED;
    if (mmap(piece, pages, PROT_READ | PROT_WRITE, flags, fd, (off_t)at) != MAP_FAILED)
        return 0;
    const int code = -errno;
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)pages);
    return code;
}

void ckpt_decoded_spill_unmap(int fd, uint64_t at, uint8_t *piece, uint64_t n) {
    const size_t pages = whole_pages(n);
    (void)mmap(piece, pages, PROT_READ | PROT_WRITE, ANONYMOUS | MAP_FIXED, -1, 0);
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)pages);
}

int ckpt_decoded_spill_fail(struct ckpt_err *err, int rc, const char *name, uint64_t size) {
    return ckpt_fail(err, rc,
                     "\"%s\" decodes to %" PRIu64
                     " bytes, more than -o cache= has room for, and a temporary file of that "
                     "size can't be made in %s (%s): raise cache= or set TMPDIR",
                     name, size, folder(), strerror(-rc));
}
