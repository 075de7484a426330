/*
 * A FUSE server that does nothing: one file, whose every read is answered from the same bytes in
 * memory. What reading through it costs is what FUSE costs, whoever serves.
 *
 *     bench_null [-o direct] BYTES MOUNTPOINT      in the foreground; its file is MOUNTPOINT/file
 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_INODE 2
#define MOST ((size_t)1 << 20)
#define FOREVER 1e9

static struct {
    off_t size;
    bool direct;
    char bytes[MOST];
} null;

static struct stat attributes(fuse_ino_t inode) {
    if (inode == FUSE_ROOT_ID)
        return (struct stat){.st_ino = inode, .st_mode = S_IFDIR | 0555, .st_nlink = 2};
    return (struct stat){.st_ino = inode,
                         .st_mode = S_IFREG | 0444,
                         .st_nlink = 1,
                         .st_size = null.size,
                         .st_blksize = MOST};
}

static void null_init(void *data, struct fuse_conn_info *connection) {
    (void)data;
    connection->want &= ~(unsigned)FUSE_CAP_SPLICE_READ;
}

static void null_lookup(fuse_req_t request, fuse_ino_t parent, const char *name) {
    struct fuse_entry_param entry = {
        .ino = FILE_INODE, .attr_timeout = FOREVER, .entry_timeout = FOREVER};
    entry.attr = attributes(FILE_INODE);
    if (parent == FUSE_ROOT_ID && strcmp(name, "file") == 0)
        fuse_reply_entry(request, &entry);
    else
        fuse_reply_err(request, ENOENT);
}

static void null_getattr(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *file) {
    (void)file;
    const struct stat found = attributes(inode);
    fuse_reply_attr(request, &found, FOREVER);
}

static void null_open(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *file) {
    (void)inode;
    file->keep_cache = 1;
    file->direct_io = null.direct;
    fuse_reply_open(request, file);
}

static void null_read(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
                      struct fuse_file_info *file) {
    (void)inode;
    (void)file;
    const off_t left = offset < null.size ? null.size - offset : 0;
    const size_t most = size < MOST ? size : MOST;
    fuse_reply_buf(request, null.bytes, (off_t)most < left ? most : (size_t)left);
}

static const struct fuse_lowlevel_ops operations = {
    .init = null_init,
    .lookup = null_lookup,
    .getattr = null_getattr,
    .open = null_open,
    .read = null_read,
};

static int serve(const char *mountpoint) {
    char *arguments[] = {"bench_null", "-oro,fsname=bench_null,default_permissions"};
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

int main(int argc, char **argv) {
    null.direct = argc > 2 && strcmp(argv[1], "-o") == 0 && strcmp(argv[2], "direct") == 0;
    if (argc != (null.direct ? 5 : 3)) {
        fprintf(stderr, "usage: bench_null [-o direct] BYTES MOUNTPOINT\n");
        return 2;
    }
    memset(null.bytes, 1, sizeof null.bytes);
    null.size = atoll(argv[argc - 2]);
    return serve(argv[argc - 1]);
}
