/* Extended attributes: the kernel's protocol. Size 0 asks for the length; too small is ERANGE. */
#include "fs/fuse_server.h"

#include <errno.h>

#include "base/cleanup.h"
#include "fs/xattr.h"

static void reply(fuse_req_t req, int rc, size_t size, const struct ckpt_str *value) {
    const struct ckpt_text t = ckpt_str_text(value);
    if (rc < 0 || value->failed)
        fuse_reply_err(req, rc < 0 ? -rc : ENOMEM);
    else if (size == 0)
        fuse_reply_xattr(req, t.n);
    else if (t.n > size)
        fuse_reply_err(req, ERANGE);
    else
        fuse_reply_buf(req, t.s, t.n);
}

void ckpt_fuse_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size) {
    struct ckpt_session *s = ckpt_fuse_session(req);
    const struct ckpt_dentry e = ckpt_dentry_of_inode(s, ino);
    CKPT_AUTO(str) struct ckpt_str value = {0};
    const int rc = e.tree ? ckpt_xattr_get(s, e, name, &value) : -ENOENT;
    reply(req, rc, size, &value);
}

void ckpt_fuse_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
    struct ckpt_session *s = ckpt_fuse_session(req);
    const struct ckpt_dentry e = ckpt_dentry_of_inode(s, ino);
    CKPT_AUTO(str) struct ckpt_str names = {0};
    if (e.tree)
        ckpt_xattr_list(s, e, &names);
    reply(req, 0, size, &names);
}
