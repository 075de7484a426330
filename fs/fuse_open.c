/*
 * Opening: which way an open file is read.
 *
 *     the kernel's page cache, kept between opens   by default: what is there never changes
 *     past it, each read a request                  -o direct_io; verify.json until it is computed
 *     past us, from the source file                 -o passthrough, where the file is one
 *
 * In the first two, maps work as well (with direct_io, if the kernel allows it: fs/init_flags.h).
 */
#include "fs/fuse_server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>

#include "base/log.h"

#ifndef FOPEN_PASSTHROUGH
#define FOPEN_PASSTHROUGH (1 << 7) /* since protocol 7.40 */
#endif

/* fuse_open_out, whose last word has this meaning since protocol 7.40. */
struct open_out {
    uint64_t fh;
    uint32_t open_flags;
    int32_t backing_id;
};

/* The file with this number; NULL if there is none. */
static struct ckpt_vfile *file_of(fuse_req_t req, fuse_ino_t ino) {
    struct ckpt_session *s = ckpt_fuse_session(req);
    const struct ckpt_dentry e = ckpt_dentry_of_inode(s, ino);
    struct ckpt_vfile *file = NULL;
    struct ckpt_err err = {0};
    if (e.tree && ckpt_dentry_file(s, e, &file, &err) < 0)
        ckpt_log_once(err.text, "%s", err.text);
    return file;
}

/* The kernel reads ahead in requests that nobody can interrupt: a reader that was killed would keep
 * the check running. Past the page cache each reader waits for a request of its own. */
static bool is_yet_to_compute(const struct ckpt_vfile *f) {
    return f->kind == CKPT_VFILE_COMPUTED && !ckpt_computed_text(f->computed);
}

static struct ckpt_backing *backing_of(const struct fuse_file_info *fi) {
    return (struct ckpt_backing *)(uintptr_t)fi->fh; /* of no other use to us */
}

/* libfuse before 3.17 has no words for a backing file; the bytes are the same with any. */
static int reply_backed(fuse_req_t req, const struct fuse_file_info *fi) {
    const struct open_out out = {.fh = fi->fh,
                                 .open_flags = FOPEN_PASSTHROUGH | FOPEN_NOFLUSH,
                                 .backing_id = backing_of(fi)->id};
    return fuse_reply_buf(req, (const char *)&out, sizeof out);
}

static int reply(fuse_req_t req, const struct ckpt_vfile *file, struct fuse_file_info *fi) {
    if (backing_of(fi) && backing_of(fi)->id)
        return reply_backed(req, fi);
    fi->direct_io = ckpt_fuse_session(req)->options->direct_io || is_yet_to_compute(file);
    fi->keep_cache = !fi->direct_io;
    fi->noflush = 1;
    return fuse_reply_open(req, fi);
}

void ckpt_fuse_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    struct ckpt_vfile *const file = file_of(req, ino);
    if (!file) {
        fuse_reply_err(req, EISDIR);
        return;
    }
    if ((fi->flags & O_ACCMODE) != O_RDONLY) {
        fuse_reply_err(req, EROFS);
        return;
    }
    struct ckpt_err err = {0};
    const int rc = ckpt_vfile_open(file, &err);
    if (rc < 0) {
        ckpt_log_once(err.text, "%s", err.text);
        fuse_reply_err(req, -rc);
        return;
    }
    struct ckpt_fuse_server *const server = ckpt_fuse_server(req);
    fi->fh = (uintptr_t)ckpt_backing_get(&server->backings, ino, file);
    if (reply(req, file, fi) == -ENOENT) { /* the opener was interrupted: no release follows */
        ckpt_backing_put(&server->backings, backing_of(fi));
        ckpt_vfile_close(file);
    }
}

void ckpt_fuse_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
    struct ckpt_vfile *const file = file_of(req, ino);
    ckpt_backing_put(&ckpt_fuse_server(req)->backings, backing_of(fi));
    if (file)
        ckpt_vfile_close(file);
    fuse_reply_err(req, 0);
}
