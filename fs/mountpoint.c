/* The mount point: checks that give better sentences than mount(2), detaching, read-ahead. */
#include "fs/mountpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

#define FUSE_MAGIC 0x65735546
#define READ_AHEAD_KIB "1024"

extern char **environ;

static int fail_stat(const char *mountpoint, int error, struct ckpt_err *err) {
    switch (error) {
    case ENOENT:
        return ckpt_fail(err, -error, "the mount point %s does not exist: make it first (mkdir)",
                         mountpoint);
    case ENOTCONN:
        return ckpt_fail(err, -error, "a dead mount is on %s: run umount %s first", mountpoint,
                         mountpoint);
    default:
        return ckpt_fail(err, -error, "the mount point %s: %s", mountpoint, strerror(error));
    }
}

/* Whether a FUSE filesystem is mounted on this very directory. Anything else may be covered, as
 * mount(8) does, but two checkpoints on one another are a mistake. */
static bool is_fuse_mount(const char *absolute, const struct stat *st) {
    struct statfs fs;
    struct stat above;
    CKPT_AUTO(free) char *parent = NULL;
    if (asprintf(&parent, "%s/..", absolute) < 0)
        return false;
    return statfs(absolute, &fs) == 0 && fs.f_type == FUSE_MAGIC && stat(parent, &above) == 0 &&
           above.st_dev != st->st_dev;
}

int ckpt_mountpoint_check(const char *mountpoint, char **absolute, struct ckpt_err *err) {
    struct stat st;
    if (stat(mountpoint, &st) != 0)
        return fail_stat(mountpoint, errno, err);
    if (!S_ISDIR(st.st_mode))
        return ckpt_fail(err, -ENOTDIR, "the mount point %s is not a directory", mountpoint);
    CKPT_AUTO(free) char *path = realpath(mountpoint, NULL);
    if (!path)
        return fail_stat(mountpoint, errno, err);
    if (is_fuse_mount(path, &st))
        return ckpt_fail(err, -EBUSY, "the mount point %s is busy: something is mounted on it",
                         mountpoint);
    *absolute = CKPT_STEAL(path);
    return 0;
}

static bool is_in(const char *path, const char *folder) {
    const size_t n = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static bool is_empty(const char *folder) {
    DIR *const dir = opendir(folder);
    size_t n = 0;
    while (dir && n <= 2 && readdir(dir)) /* "." and ".." */
        n++;
    if (dir)
        closedir(dir);
    return n <= 2;
}

int ckpt_mountpoint_check_source(const char *absolute, const char *directory,
                                 struct ckpt_err *err) {
    CKPT_AUTO(free) char *source = realpath(directory, NULL);
    if (!source)
        return ckpt_fail(err, -errno, "the directory: %s", strerror(errno));
    const bool hides = is_in(source, absolute) || (is_in(absolute, source) && !is_empty(absolute));
    return hides ? ckpt_fail(err, -EBUSY,
                             "the mount point %s would hide files of the source: mount on a "
                             "folder elsewhere, or on an empty one",
                             absolute)
                 : 0;
}

int ckpt_mountpoint_detach(const char *absolute) {
    if (umount2(absolute, MNT_DETACH) == 0)
        return 0;
    if (errno != EPERM)
        return -errno;
    const char *const argv[] = {"fusermount3", "-u", "-q", "-z", "--", absolute, NULL};
    pid_t child;
    int status;
    const int rc = posix_spawnp(&child, argv[0], NULL, NULL, (char *const *)argv, environ);
    if (rc != 0)
        return -rc;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return status == 0 ? 0 : -EBUSY;
}

static void write_readahead(unsigned major, unsigned minor) {
    char path[64];
    snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major, minor);
    CKPT_AUTO(fd) const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    const ssize_t n = write(fd, READ_AHEAD_KIB, strlen(READ_AHEAD_KIB));
    (void)n;
}

/* The question is answered by the mount itself. Not earlier: the kernel resets read-ahead while a
 * mount is being set up. Not later: it holds the mount busy for a moment. */
bool ckpt_mountpoint_set_readahead(const char *absolute) {
    struct statx stx;
    if (statx(AT_FDCWD, absolute, AT_STATX_FORCE_SYNC, STATX_INO, &stx) != 0)
        return false;
    if (stx.stx_dev_major != 0 || stx.stx_ino != 1)
        return false; /* unmounted meanwhile: this is what was below */
    write_readahead(stx.stx_dev_major, stx.stx_dev_minor);
    return true;
}
