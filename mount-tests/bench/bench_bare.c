/*
 * A FUSE server that does nothing but serve: its one file has the bytes of another, answered from
 * that one's mapping without a look. What reading through it costs is what FUSE costs, whoever
 * serves. With `same`, every read is answered from the same MiB, so that not even the bytes are
 * fetched.
 *
 *     bench_bare [-o direct] [-o same] FILE MOUNTPOINT     in the foreground; serves
 * MOUNTPOINT/file
 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_INODE 2
#define MOST ((size_t)1 << 20)
#define FOREVER 1e9

static struct {
    off_t size;
    const char *bytes;
    bool direct, same;
} bare;

static struct stat attributes(fuse_ino_t inode) {
    if (inode == FUSE_ROOT_ID)
        return (struct stat){.st_ino = inode, .st_mode = S_IFDIR | 0555, .st_nlink = 2};
    return (struct stat){.st_ino = inode,
                         .st_mode = S_IFREG | 0444,
                         .st_nlink = 1,
                         .st_size = bare.size,
                         .st_blksize = MOST};
}

static void bare_init(void *data, struct fuse_conn_info *connection) {
    (void)data;
    connection->want &= ~(unsigned)FUSE_CAP_SPLICE_READ;
}

static void bare_lookup(fuse_req_t request, fuse_ino_t parent, const char *name) {
    struct fuse_entry_param entry = {
        .ino = FILE_INODE, .attr_timeout = FOREVER, .entry_timeout = FOREVER};
    entry.attr = attributes(FILE_INODE);
    if (parent == FUSE_ROOT_ID && strcmp(name, "file") == 0)
        fuse_reply_entry(request, &entry);
    else
        fuse_reply_err(request, ENOENT);
}

static void bare_getattr(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *file) {
    (void)file;
    const struct stat found = attributes(inode);
    fuse_reply_attr(request, &found, FOREVER);
}

static void bare_open(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *file) {
    (void)inode;
    file->keep_cache = 1;
    file->direct_io = bare.direct;
    fuse_reply_open(request, file);
}

static void bare_read(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
                      struct fuse_file_info *file) {
    (void)inode;
    (void)file;
    const off_t left = offset < bare.size ? bare.size - offset : 0;
    const size_t n = (off_t)size < left ? size : (size_t)left;
    const struct iovec bytes = {
        .iov_base = (void *)(uintptr_t)(bare.bytes + (bare.same ? 0 : offset)), .iov_len = n};
    fuse_reply_iov(request, &bytes, n > 0);
}

static const struct fuse_lowlevel_ops operations = {
    .init = bare_init,
    .lookup = bare_lookup,
    .getattr = bare_getattr,
    .open = bare_open,
    .read = bare_read,
};

static int serve(const char *mountpoint) {
    char *arguments[] = {"bench_bare", "-oro,fsname=bench_bare,default_permissions"};
    struct fuse_args args = FUSE_ARGS_INIT(2, arguments);
    struct fuse_session *const session =
        fuse_session_new(&args, &operations, sizeof operations, NULL);
    if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, mountpoint))
        return 1;
    struct fuse_loop_config *const config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_clone_fd(config, 1);
    const int rc = fuse_session_loop_mt(session, config);
    fuse_loop_cfg_destroy(config);
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    return rc ? 1 : 0;
}

/* The mapping of all of the file; with `same` a read may be as long as MOST. */
static int map(const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat found;
    if (fd < 0 || fstat(fd, &found) < 0 || found.st_size < (off_t)MOST)
        return -1;
    bare.size = found.st_size;
    bare.bytes = mmap(NULL, (size_t)bare.size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return bare.bytes == MAP_FAILED ? -1 : 0;
}

int main(int argc, char **argv) {
    for (int option; (option = getopt(argc, argv, "o:")) == 'o';) {
        bare.direct |= strcmp(optarg, "direct") == 0;
        bare.same |= strcmp(optarg, "same") == 0;
    }
    if (argc - optind != 2 || map(argv[optind]) < 0) {
        fprintf(
            stderr,
            "usage: bench_bare [-o direct] [-o same] FILE MOUNTPOINT; FILE of at least 1 MiB\n");
        return 2;
    }
    return serve(argv[optind + 1]);
}
