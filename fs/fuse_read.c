/*
 * Reads. The bytes go from where they lie to the kernel in one fuse_reply_iov. A short reply would
 * be shown as zeros, so what does not fit the iovecs (thousands of tiny tensors) is copied, and
 * anything else that is short is EIO. A read of verify.json parks: it keeps the request and frees
 * the worker until the report is there.
 */
#include "fs/fuse_server.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/log.h"

static bool interrupted(void *req) {
    return fuse_req_interrupted(req);
}

/* To read(2), bytes that cannot be had are EIO, whatever is wrong with them; the log tells. */
static void reply_code(fuse_req_t req, int rc) {
    fuse_reply_err(req, rc == -EINTR || rc == -ENOMEM ? -rc : EIO);
}

static void reply_error(fuse_req_t req, int rc, const struct ckpt_err *err) {
    if (rc != -EINTR)
        ckpt_log_once(err->text, "%s", err->text);
    reply_code(req, rc);
}

static void reply_copied(fuse_req_t req, struct ckpt_vfile *f, uint64_t off, size_t len) {
    struct ckpt_err err = {0};
    CKPT_AUTO(free) char *buf = malloc(len);
    const int rc = buf ? ckpt_vfile_copy(f, ckpt_fuse_session(req)->reader, off, len, interrupted,
                                         req, buf, &err)
                       : ckpt_fail_memory(&err, "reading");
    if (rc < 0)
        reply_error(req, rc, &err);
    else
        fuse_reply_buf(req, buf, len);
}

static void reply_range(fuse_req_t req, struct ckpt_vfile *f, uint64_t off, size_t len) {
    struct ckpt_reader *r = ckpt_fuse_session(req)->reader;
    struct ckpt_reply reply = {.interrupted = interrupted, .arg = req};
    struct ckpt_err err = {0};
    ckpt_vfile_hold(f);
    const ssize_t n = ckpt_vfile_add(f, r, off, len, &reply, &err);
    if (n < 0)
        reply_error(req, (int)n, &err);
    else if ((size_t)n < len)
        reply_copied(req, f, off, len);
    else if (fuse_reply_iov(req, reply.iov, (int)reply.niov) == -EFAULT) /* the reader has EIO */
        ckpt_log_once("EFAULT", "a source file shrank under the mount: reads of it fail");
    ckpt_reply_done(r, &reply);
    ckpt_vfile_let_go(f);
}

struct parked {
    struct ckpt_waiter waiter; /* first: a waiter is a parked read */
    fuse_req_t req;
    struct ckpt_vfile *file;
    uint64_t off;
    size_t len;
};

static void wake(struct ckpt_waiter *w, int rc) {
    struct parked *p = (struct parked *)w;
    if (rc < 0)
        reply_code(p->req, rc);
    else
        reply_range(p->req, p->file, p->off, p->len);
    free(p);
}

static bool left(struct ckpt_waiter *w) {
    return fuse_req_interrupted(((struct parked *)w)->req);
}

/* libfuse keeps the request alive while this runs. Whoever takes the waiter out answers it. */
static void on_interrupt(fuse_req_t req, void *computed) {
    struct ckpt_waiter *w = ckpt_computed_unpark(computed, req);
    if (w)
        wake(w, -EINTR);
}

static void park(fuse_req_t req, struct ckpt_vfile *f, uint64_t off, size_t len) {
    struct parked *p = malloc(sizeof *p);
    if (!p) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    *p = (struct parked){.waiter = {.wake = wake, .left = left, .id = req},
                         .req = req,
                         .file = f,
                         .off = off,
                         .len = len};
    /* Before parking, since afterwards the request may be answered and gone at any time; an
     * interrupt that comes in between is found by left(). */
    fuse_req_interrupt_func(req, on_interrupt, f->computed);
    const int rc = ckpt_computed_park(f->computed, &p->waiter);
    if (rc < 0)
        wake(&p->waiter, rc);
}

void ckpt_fuse_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi) {
    (void)fi;
    struct ckpt_session *s = ckpt_fuse_session(req);
    const struct ckpt_dentry e = ckpt_dentry_of_inode(s, ino);
    struct ckpt_err err = {0};
    struct ckpt_vfile *f = NULL;
    if (!e.tree || off < 0 || ckpt_dentry_file(s, e, &f, &err) < 0 || !f) {
        fuse_reply_err(req, err.code ? -err.code : EINVAL);
        return;
    }
    const uint64_t at = (uint64_t)off, size_of_file = ckpt_vfile_size(f);
    const uint64_t left_bytes = at < size_of_file ? size_of_file - at : 0;
    const size_t len = left_bytes < size ? (size_t)left_bytes : size;
    if (len == 0)
        fuse_reply_buf(req, NULL, 0);
    else if (f->kind == CKPT_VFILE_COMPUTED && !ckpt_computed_text(f->computed))
        park(req, f, at, len);
    else
        reply_range(req, f, at, len);
}
