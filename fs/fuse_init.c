/*
 * What is settled once, when the kernel says INIT: which features the mount uses.
 *
 * libfuse answers INIT itself. From 3.17 on it knows every feature that we want; before, those that
 * have their bits in flags2 are beyond its API, and FUSE_PARALLEL_DIROPS it forgets to pass on. So
 * there we stand between it and the device, where it lets us (fuse_session_custom_io), see the
 * request pass, and add to the reply:
 *
 *     /dev/fuse --INIT--> see() --> libfuse --> ckpt_fuse_init: choose
 *               <--INIT-- pass() <-- libfuse
 *
 * All other messages go through as they are. Until INIT is answered there is one request, and one
 * thread that looks at anything here: the next, which waits for a request already, finds
 * `has_begun` when it has one. So nothing here needs a lock. libfuse 3.14 goes
 * on giving each thread a clone of the device. That is not so from 3.17 on, one more reason for
 * using its own API there.
 */
#include "fs/fuse_server.h"

#include <errno.h>
#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "fs/init_flags.h"

/* What the kernel reads ahead, page faults among it, waits while so many such reads are unanswered:
 * those that lanes have must not hold up those that are answered at once. */
#define BACKGROUND 1024

#ifdef FUSE_CAP_PASSTHROUGH

int ckpt_fuse_init_attach(struct ckpt_fuse_server *server, struct fuse_session *fuse,
                          struct ckpt_err *err) {
    (void)server, (void)fuse, (void)err;
    return 0;
}

static uint64_t offered(const struct ckpt_fuse_server *server, const struct fuse_conn_info *conn) {
    (void)server;
    const uint64_t parallel = conn->capable_ext & FUSE_CAP_PARALLEL_DIROPS;
    const uint64_t mmap = conn->capable_ext & FUSE_CAP_DIRECT_IO_ALLOW_MMAP;
    const uint64_t through = conn->capable_ext & FUSE_CAP_PASSTHROUGH;
    return (parallel ? CKPT_INIT_PARALLEL : 0) | (mmap ? CKPT_INIT_ALLOW_MMAP : 0) |
           (through ? CKPT_INIT_PASSTHROUGH : 0);
}

static void want(struct fuse_conn_info *conn, uint64_t capability) {
    fuse_set_feature_flag(conn, capability); /* only if it is offered */
}

static void do_without(struct fuse_conn_info *conn, uint64_t capability) {
    fuse_unset_feature_flag(conn, capability);
}

static void ask_for(struct fuse_conn_info *conn, uint64_t flags) {
    if (flags & CKPT_INIT_PARALLEL)
        want(conn, FUSE_CAP_PARALLEL_DIROPS);
    if (flags & CKPT_INIT_ALLOW_MMAP)
        want(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
    if (flags & CKPT_INIT_PASSTHROUGH) {
        want(conn, FUSE_CAP_PASSTHROUGH);
        conn->max_backing_stack_depth = 1;
    }
}

#else

/* From the device to libfuse. */
static ssize_t see(int fd, void *buf, size_t size, void *userdata) {
    struct ckpt_fuse_server *const server = userdata;
    const ssize_t n = read(fd, buf, size);
    if (n > 0 && !atomic_load(&server->has_begun))
        ckpt_init_offered(buf, (size_t)n, &server->init_unique, &server->offered);
    return n;
}

/* What libfuse sends begins with an iovec of the header. */
static bool is_init_reply(const struct ckpt_fuse_server *server, const struct iovec *iov,
                          int count) {
    const struct fuse_out_header *const head = iov[0].iov_base;
    return !atomic_load(&server->has_begun) && count == 2 && head->unique == server->init_unique &&
           head->error == 0;
}

/* From libfuse to the device. */
static ssize_t pass(int fd, struct iovec *iov, int count, void *userdata) {
    struct ckpt_fuse_server *const server = userdata;
    if (is_init_reply(server, iov, count))
        atomic_store(&server->has_begun,
                     ckpt_init_patch(iov[1].iov_base, iov[1].iov_len, server->features));
    const ssize_t n = writev(fd, iov, count);
    if (n < 0 && errno == EFAULT)
        errno = ENOENT; /* of which libfuse prints nothing: fuse_read.c logs what is lost */
    return n;
}

int ckpt_fuse_init_attach(struct ckpt_fuse_server *server, struct fuse_session *fuse,
                          struct ckpt_err *err) {
    (void)server; /* is the session's userdata */
    const struct fuse_custom_io io = {.read = see, .writev = pass};
    const int rc = fuse_session_custom_io(fuse, &io, fuse_session_fd(fuse));
    return rc == 0 ? 0 : ckpt_fail_memory(err, "mounting");
}

static uint64_t offered(const struct ckpt_fuse_server *server, const struct fuse_conn_info *conn) {
    (void)conn;
    return server->offered;
}

static void want(struct fuse_conn_info *conn, unsigned capability) {
    conn->want |= conn->capable & capability;
}

static void do_without(struct fuse_conn_info *conn, unsigned capability) {
    conn->want &= ~capability;
}

static void ask_for(struct fuse_conn_info *conn, uint64_t flags) {
    (void)conn, (void)flags; /* pass() does */
}

#endif

static void say(const char *what) {
    if (what)
        ckpt_log("%s", what);
}

void ckpt_fuse_init(void *userdata, struct fuse_conn_info *conn) {
    struct ckpt_fuse_server *const server = userdata;
    const struct ckpt_options *const o = server->session->options;
    const struct ckpt_init_choice choice =
        ckpt_init_choose(offered(server, conn), o->direct_io, o->passthrough);
    say(choice.no_mmap);
    say(choice.no_passthrough);
    server->features = choice.flags;
    atomic_store(&server->backings.is_on, choice.flags & CKPT_INIT_PASSTHROUGH);
    ask_for(conn, choice.flags);
    want(conn, FUSE_CAP_EXPORT_SUPPORT);        /* NFS: lookup knows "." and ".." */
    do_without(conn, FUSE_CAP_AUTO_INVAL_DATA); /* what is there never changes */
    /* Attributes cost nothing here: they come with all names, or the kernel, which guesses, would
     * ask for many a file of a large folder by itself. */
    do_without(conn, FUSE_CAP_READDIRPLUS_AUTO);
    /* With allow_root it is libfuse that keeps others out, request by request: so it must be asked.
     */
    server->no_opendir = (conn->capable & FUSE_CAP_NO_OPENDIR_SUPPORT) && !o->allow_root;
    conn->max_background = BACKGROUND;
}
