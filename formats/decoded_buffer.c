/*
 * Small buffers come from malloc; large ones are mapped, so that freeing one gives its memory back
 * and the bound of the cache is what the process really uses; in huge pages where the machine has
 * them: fresh small ones cost a third of reading a chunk (measured). A spilled one is a file
 * without a name in $TMPDIR (/var/tmp by default, which is on a disk where /tmp often is not),
 * allocated in full beforehand: a full disk is an error here, never a SIGBUS later.
 */
#include "formats/decoded_buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cleanup.h"

#define MAPPED_MIN (64u << 10)

static const char *folder(void) {
    const char *const tmpdir = getenv("TMPDIR");
    return tmpdir && tmpdir[0] == '/' ? tmpdir : "/var/tmp";
}

/* A file without a name, or negative errno. */
static int open_unlinked(const char *in) {
    int fd = open(in, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
        return fd >= 0 ? fd : -errno;
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/mount.ckpt-XXXXXX", in) >= sizeof path)
        return -ENAMETOOLONG;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    unlink(path);
    return fd;
}

static int map_spilled(uint64_t size, uint8_t **out) {
    CKPT_AUTO(fd) const int fd = open_unlinked(folder());
    if (fd < 0)
        return fd;
    const int rc = posix_fallocate(fd, 0, (off_t)size);
    if (rc)
        return -rc;
    void *const data = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return -errno;
    *out = data;
    return 0;
}

static uint8_t *allocate(uint64_t size) {
    if (size < MAPPED_MIN)
        return malloc(size ? (size_t)size : 1);
    void *const data =
        mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return NULL;
    (void)madvise(data, (size_t)size, MADV_HUGEPAGE); /* all of it is written to, at once */
    return data;
}

int ckpt_decoded_buffer_new(const char *name, uint64_t size, bool spill, uint8_t **out,
                            struct ckpt_err *err) {
    const int rc = spill && size ? map_spilled(size, out) : 0;
    if (rc)
        return ckpt_fail(err, rc,
                         "\"%s\" decodes to %" PRIu64
                         " bytes, more than -o cache= has room for, and a temporary file of that "
                         "size can't be made in %s (%s): raise cache= or set TMPDIR",
                         name, size, folder(), strerror(-rc));
    if (!(spill && size) && !(*out = allocate(size)))
        return ckpt_fail(err, -ENOMEM, "out of memory: \"%s\" decodes to %" PRIu64 " bytes", name,
                         size);
    return 0;
}

void ckpt_decoded_buffer_free(uint8_t *data, uint64_t size, bool spill) {
    if (data && size && (spill || size >= MAPPED_MIN))
        munmap(data, (size_t)size);
    else
        free(data);
}
