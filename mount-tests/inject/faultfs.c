/*
 * faultfs FOLDER MOUNTPOINT: shows a folder, and fails where it is told to: a disk with bad
 * sectors, a full one, a server that is gone.
 *
 *     setfattr -n user.fault -v 'read EIO 4096 512' MOUNTPOINT/file     what: faultfs_rules.h
 *     setfattr -x user.fault MOUNTPOINT/file                            the fault is gone
 *     getfattr --only-values -n user.fault.waiting MOUNTPOINT/file      calls that hang
 *
 * A fault of a file holds for what has been read before, too: the kernel forgets the file's pages,
 * so that a mapping meets it (as SIGBUS). One of MOUNTPOINT itself is the whole disk's. Who hangs
 * is in a system call that only the end of the fault, or of faultfs, ends: kill -9 of faultfs is
 * the disk that was pulled out. Runs in the foreground, and prints a line once it is mounted;
 * `fusermount3 -u` or umount ends it.
 */
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "faultfs_rules.h"

#define ATTRIBUTE "user.fault"
#define OPTIONS "fsname=faultfs,subtype=faultfs"
#define THREADS_MAX 1000 /* each call that hangs keeps one */

static int root = -1; /* the folder that is shown */

static const char *below(const char *path) {
    return path[1] ? path + 1 : ".";
}

static int result(int rc) {
    return rc < 0 ? -errno : rc;
}

static int meet(const char *path, enum fault_call call) {
    size_t nothing = 0;
    return fault_meet(path, call, 0, &nothing);
}

/* --- names ------------------------------------------------------------------------------------ */

static int get_attributes(const char *path, struct stat *st, struct fuse_file_info *fi) {
    (void)fi;
    const int rc = meet(path, FAULT_STAT);
    return rc ? rc : result(fstatat(root, below(path), st, AT_SYMLINK_NOFOLLOW));
}

static int read_directory(const char *path, void *buf, fuse_fill_dir_t fill, off_t off,
                          struct fuse_file_info *fi, enum fuse_readdir_flags flags) {
    (void)off, (void)fi, (void)flags;
    const int fd = openat(root, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *const dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return -errno;
    for (const struct dirent *e; (e = readdir(dir));)
        fill(buf, e->d_name, NULL, 0, 0);
    closedir(dir);
    return 0;
}

static int make_directory(const char *path, mode_t mode) {
    return result(mkdirat(root, below(path), mode));
}

static int remove_file(const char *path) {
    return result(unlinkat(root, below(path), 0));
}

static int remove_directory(const char *path) {
    return result(unlinkat(root, below(path), AT_REMOVEDIR));
}

static int rename_file(const char *from, const char *to, unsigned flags) {
    const int rc = meet(from, FAULT_RENAME);
    if (rc || flags)
        return rc ? rc : -EINVAL;
    return result(renameat(root, below(from), root, below(to)));
}

static int change_mode(const char *path, mode_t mode, struct fuse_file_info *fi) {
    (void)fi;
    return result(fchmodat(root, below(path), mode, 0));
}

static int change_times(const char *path, const struct timespec times[2],
                        struct fuse_file_info *fi) {
    (void)fi;
    return result(utimensat(root, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int get_space(const char *path, struct statvfs *st) {
    (void)path;
    return result(fstatvfs(root, st));
}

/* --- bytes ------------------------------------------------------------------------------------ */

static int open_as(const char *path, int flags, mode_t mode, struct fuse_file_info *fi) {
    const int rc = meet(path, FAULT_OPEN);
    if (rc)
        return rc;
    const int fd = openat(root, below(path), flags | O_CLOEXEC, mode);
    fi->fh = (uint64_t)fd;
    return fd < 0 ? -errno : 0;
}

/* A page that is only partly written to is read first. */
static int readable(int flags) {
    return (flags & O_ACCMODE) == O_WRONLY ? (flags & ~O_ACCMODE) | O_RDWR : flags;
}

static int open_file(const char *path, struct fuse_file_info *fi) {
    return open_as(path, readable(fi->flags & ~(O_NOFOLLOW | O_APPEND)), 0, fi);
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *fi) {
    return open_as(path, readable(fi->flags) | O_CREAT, mode, fi);
}

static int read_file(const char *path, char *buf, size_t n, off_t off, struct fuse_file_info *fi) {
    const int rc = fault_meet(path, FAULT_READ, off, &n);
    return rc || n == 0 ? rc : result((int)pread((int)fi->fh, buf, n, off));
}

static int write_file(const char *path, const char *buf, size_t n, off_t off,
                      struct fuse_file_info *fi) {
    const int rc = fault_meet(path, FAULT_WRITE, off, &n);
    return rc || n == 0 ? rc : result((int)pwrite((int)fi->fh, buf, n, off));
}

static int allocate(const char *path, int mode, off_t off, off_t n, struct fuse_file_info *fi) {
    size_t room = (size_t)n;
    const int rc = fault_meet(path, FAULT_WRITE, off, &room);
    return rc ? rc : result(fallocate((int)fi->fh, mode, off, n));
}

static int cut(const char *path, off_t size, struct fuse_file_info *fi) {
    if (fi)
        return result(ftruncate((int)fi->fh, size));
    const int fd = openat(root, below(path), O_WRONLY | O_CLOEXEC);
    const int rc = result(fd < 0 ? fd : ftruncate(fd, size));
    if (fd >= 0)
        close(fd);
    return rc;
}

static int sync_file(const char *path, int only_data, struct fuse_file_info *fi) {
    (void)only_data;
    const int rc = meet(path, FAULT_SYNC);
    return rc ? rc : result(fsync((int)fi->fh));
}

static int close_file(const char *path, struct fuse_file_info *fi) {
    (void)path;
    return result(close((int)fi->fh));
}

/* --- what is to go wrong ---------------------------------------------------------------------- */

/* What the kernel keeps of the file goes; nobody has it in use: no matter. */
static void forget_pages(const char *path) {
    (void)fuse_invalidate_path(fuse_get_context()->fuse, path);
}

static int set_fault(const char *path, const char *name, const char *value, size_t n, int flags) {
    (void)flags;
    if (strcmp(name, ATTRIBUTE) != 0)
        return -EOPNOTSUPP;
    const int rc = fault_add(path, value, n);
    forget_pages(path);
    return rc;
}

static int end_fault(const char *path, const char *name) {
    if (strcmp(name, ATTRIBUTE) != 0)
        return -EOPNOTSUPP;
    fault_clear(path);
    return 0;
}

static int count_waiting(const char *path, const char *name, char *value, size_t n) {
    char text[16];
    if (strcmp(name, ATTRIBUTE ".waiting") != 0)
        return -ENODATA;
    const int length = snprintf(text, sizeof text, "%u", fault_waiting(path));
    if (n > 0 && n < (size_t)length)
        return -ERANGE;
    memcpy(value, text, n ? (size_t)length : 0);
    return length;
}

static void *start(struct fuse_conn_info *conn, struct fuse_config *config) {
    (void)conn;
    config->use_ino = 1;
    config->hard_remove = 1; /* an unlinked file is gone, whoever has it open */
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    puts("mounted");
    fflush(stdout);
    return NULL;
}

static const struct fuse_operations operations = {
    .init = start,
    .getattr = get_attributes,
    .readdir = read_directory,
    .mkdir = make_directory,
    .unlink = remove_file,
    .rmdir = remove_directory,
    .rename = rename_file,
    .chmod = change_mode,
    .utimens = change_times,
    .statfs = get_space,
    .open = open_file,
    .create = create_file,
    .read = read_file,
    .write = write_file,
    .fallocate = allocate,
    .truncate = cut,
    .fsync = sync_file,
    .release = close_file,
    .setxattr = set_fault,
    .removexattr = end_fault,
    .getxattr = count_waiting,
};

/* --- mounting --------------------------------------------------------------------------------- */

static int serve(struct fuse *fuse) {
    struct fuse_loop_config *const config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_max_threads(config, THREADS_MAX);
    fuse_set_signal_handlers(fuse_get_session(fuse));
    const int rc = fuse_loop_mt(fuse, config);
    fuse_loop_cfg_destroy(config);
    return rc < 0;
}

static int mount_and_serve(const char *program, const char *mountpoint) {
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    if (fuse_opt_add_arg(&args, program) || fuse_opt_add_arg(&args, "-o" OPTIONS))
        return 1;
    struct fuse *const fuse = fuse_new(&args, &operations, sizeof operations, NULL);
    fuse_opt_free_args(&args);
    if (!fuse || fuse_mount(fuse, mountpoint) != 0)
        return 1;
    const int rc = serve(fuse);
    fuse_unmount(fuse);
    fuse_destroy(fuse);
    return rc;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: faultfs FOLDER MOUNTPOINT\n");
        return 2;
    }
    root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        perror(argv[1]);
        return 1;
    }
    umask(0);
    return mount_and_serve(argv[0], argv[2]);
}
