/*
 * Room is mapped, so that the bound of the cache is what the process really uses; in huge pages
 * where the machine has them: fresh small ones cost a third of reading a chunk (measured).
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

#include "base/log.h"
#include "base/pages.h"

#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

/* --- memory --- */

static int fail_room(struct ckpt_err *err, uint64_t n) {
    return ckpt_fail(err, -ENOMEM, "out of memory: no room for %" PRIu64 " bytes", n);
}

int ckpt_decoded_room_new(uint64_t n, bool huge, uint8_t **out, struct ckpt_err *err) {
    *out = ckpt_pages_new(n, huge);
    return *out ? 0 : fail_room(err, n);
}

void ckpt_decoded_room_empty(uint8_t *piece, uint64_t n) {
    (void)madvise(piece, ckpt_pages_round(n), MADV_DONTNEED);
}

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 0 /* before Linux 5.7: never moved, since that would leave a hole */
#endif

static bool is_huge(const uint8_t *p, uint64_t n) {
    return n > 0 && n % CKPT_HUGE_PAGE == 0 && (uintptr_t)p % CKPT_HUGE_PAGE == 0;
}

bool ckpt_decoded_room_move(uint8_t *from, uint8_t *to, uint64_t n) {
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    return MREMAP_DONTUNMAP && is_huge(from, n) && is_huge(to, n) &&
           mremap(from, (size_t)n, (size_t)n, flags, to) != MAP_FAILED;
}

/* --- the temporary file --- */

static int make_nameless(const char *folder) {
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd >= 0 ? fd : -errno;
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/mount.ckpt-XXXXXX", folder) >= sizeof path)
        return -ENAMETOOLONG;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    unlink(path);
    return fd;
}

int ckpt_decoded_spill_open(const char **folder) {
    static const char *const others[] = {"/var/tmp", "/tmp"};
    const char *const chosen = getenv("TMPDIR");
    *folder = chosen && chosen[0] == '/' ? chosen : others[0];
    const int first = make_nameless(*folder);
    for (size_t i = 0; first < 0 && i < sizeof others / sizeof others[0]; i++) {
        const int fd = make_nameless(others[i]);
        if (fd < 0)
            continue;
        ckpt_log_once(*folder, "no temporary file can be made in %s (%s): they are made in %s",
                      *folder, strerror(-first), others[i]);
        *folder = others[i];
        return fd;
    }
    return first;
}

int ckpt_decoded_spill_map(int fd, uint64_t at, uint8_t *piece, uint64_t n) {
    const size_t pages = ckpt_pages_round(n);
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
    const size_t pages = ckpt_pages_round(n);
    (void)mmap(piece, pages, PROT_READ | PROT_WRITE, ANONYMOUS | MAP_FIXED, -1, 0);
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)pages);
}

int ckpt_decoded_spill_fail(struct ckpt_err *err, int rc, const char *folder, const char *name,
                            uint64_t size) {
    return ckpt_fail(err, rc,
                     "\"%s\" decodes to %" PRIu64
                     " bytes, more than -o cache= has room for, and a temporary file of that "
                     "size can't be made in %s (%s): raise cache= or set TMPDIR",
                     name, size, folder, strerror(-rc));
}
