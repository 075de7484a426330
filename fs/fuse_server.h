#ifndef CKPT_FS_FUSE_SERVER_H
#define CKPT_FS_FUSE_SERVER_H
/* What the fuse_*.c share: the kernel's view of a session. Nobody else includes libfuse. */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdatomic.h>

#include "fs/dentry.h"
#include "fs/fuse_backing.h"

/* What is there never changes: the kernel may keep what it knows. */
#define CKPT_FUSE_FOREVER 1e9 /* seconds */
/* Threads that receive requests, beside as many as threads= says, and don't wait for a disk. */
#define CKPT_FUSE_SPARE_WORKERS 2

/* What a mount's requests share: libfuse's userdata. */
struct ckpt_fuse_server {
    struct ckpt_session *session;
    struct ckpt_backings backings;
    /* fuse_init.c: */
    uint64_t init_unique, offered; /* of the INIT request */
    uint64_t features;             /* CKPT_INIT_..., as agreed with the kernel */
    bool no_opendir;               /* the kernel opens folders by itself */
    atomic_bool has_begun;         /* INIT is answered, and all of this immutable */
    /* fuse_read.c: */
    unsigned workers;          /* libfuse's threads, at most; 0: one, which does all */
    atomic_uint answering;     /* of these, those that answer reads */
    _Atomic uint64_t read_end; /* a mark of where the last large read ended */
};

static inline struct ckpt_fuse_server *ckpt_fuse_server(fuse_req_t req) {
    return fuse_req_userdata(req);
}

static inline struct ckpt_session *ckpt_fuse_session(fuse_req_t req) {
    return ckpt_fuse_server(req)->session;
}

/* After fuse_session_mount, before the loop; the server is the session's userdata. */
int ckpt_fuse_init_attach(struct ckpt_fuse_server *server, struct fuse_session *fuse,
                          struct ckpt_err *err) CKPT_CHECKED;
void ckpt_fuse_init(void *userdata, struct fuse_conn_info *conn);

/* From here on what libfuse says is left out, since the mount may yet fail with a sentence of ours;
 * and from there on, by any thread, it is logged. */
void ckpt_fuse_log_start(void);
void ckpt_fuse_log_serves(void);

extern const struct fuse_lowlevel_ops ckpt_fuse_ops;

void ckpt_fuse_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ckpt_fuse_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ckpt_fuse_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi);
void ckpt_fuse_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void ckpt_fuse_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);

#endif
