/*
 * Reads. The bytes go from where they lie to the kernel in one fuse_reply_iov. A short reply would
 * be shown as zeros, so what does not fit the iovecs (thousands of tiny tensors) is copied, and
 * anything else that is short is EIO.
 *
 * libfuse's threads answer what is there; what must be computed, decoded or waited for is handed to
 * a lane (lanes.h), and a read of verify.json waits for the report (computed.h). Either way the
 * request is kept and the thread is free for others. What lies in the source as it is may have to
 * come from a slow disk, which is waited for in the kernel: the last threads that are free answer
 * only from memory, so that a page fault there, stat and ls never wait for the disk either.
 */
#include "fs/fuse_server.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/resident.h"

/* A read that is kept, in a lane or waiting. */
struct kept {
    union {
        struct ckpt_lane_job job;
        struct ckpt_waiter waiter;
    }; /* first: either is a kept read */
    fuse_req_t req;
    struct ckpt_vfile *file;
    uint64_t off;
    size_t len;
};

/* To read(2), bytes that cannot be had are EIO, whatever is wrong with them; the log tells. */
static void reply_code(fuse_req_t req, int rc) {
    fuse_reply_err(req, rc == -EINTR || rc == -ENOMEM ? -rc : EIO);
}

static void reply_error(fuse_req_t req, int rc, const struct ckpt_err *err) {
    if (rc != -EINTR)
        ckpt_log_once(err->text, "%s", err->text);
    reply_code(req, rc);
}

/* --- who has left ----------------------------------------------------------------------------- */

/* What the kernel reads ahead is not interrupted when its reader is killed. Pages that it was
 * denied are asked for again by whoever else wants them, so nobody misses them. Past the page cache
 * a thread may end that began a read for another to collect (io_submit). */
static bool is_gone(fuse_req_t req) {
    const pid_t reader = fuse_req_ctx(req)->pid;
    return reader > 0 && !ckpt_fuse_session(req)->options->direct_io && kill(reader, 0) < 0 &&
           errno == ESRCH;
}

static bool has_left(fuse_req_t req) {
    return fuse_req_interrupted(req) || is_gone(req);
}

static bool asks_to_stop(void *req) {
    struct ckpt_lanes *const lanes = ckpt_fuse_session(req)->lanes;
    return has_left(req) || (lanes && ckpt_lanes_stopping(lanes));
}

/* --- ahead of who goes forwards --------------------------------------------------------------- */

/* Past the page cache one request of a reader is under way at a time, and he would wait for the
 * daemon's page faults, a fifth of the time. Through the cache the kernel reads ahead itself; of
 * smaller requests the faults are a small part. */
#define AHEAD_MIN (512u << 10)

/* Whether a read begins where the last one of all ended: several readers disturb one another in
 * this, and keep enough threads busy. File and offset make one mark: only speed hangs on it. */
static bool goes_forwards(fuse_req_t req, const struct ckpt_vfile *f, uint64_t off, size_t len) {
    const uint64_t file = (uint64_t)(uintptr_t)f << 16;
    return ckpt_fuse_session(req)->options->direct_io && len >= AHEAD_MIN &&
           atomic_exchange(&ckpt_fuse_server(req)->read_end, file + off + len) == file + off;
}

/* While the reader is busy with what he got. What he asks for next may be under way already in
 * another thread, so it is what comes after that. */
static void fault_ahead(const struct ckpt_reply *reply) {
    const size_t n = reply->nbytes;
    if (reply->nafter >= 2 * n)
        ckpt_fault_in(reply->after + n, n);
}

/* --- answering -------------------------------------------------------------------------------- */

static int reply_copied(fuse_req_t req, struct ckpt_vfile *f, uint64_t off, size_t len,
                        const struct ckpt_stop *stop) {
    struct ckpt_reader *const r = ckpt_fuse_session(req)->reader;
    struct ckpt_err err = {0};
    CKPT_AUTO(free) char *buf = malloc(len);
    const int rc =
        buf ? ckpt_vfile_copy(f, r, off, len, stop, buf, &err) : ckpt_fail_memory(&err, "reading");
    if (rc == -EAGAIN)
        return rc;
    if (rc < 0)
        reply_error(req, rc, &err);
    else
        fuse_reply_buf(req, buf, len);
    return rc;
}

/* -EAGAIN: not answered, since that takes more patience. Else answered, if need be with an error.
 * What the reply points into is held until the kernel has copied it, never while the reader takes
 * his time. */
static int reply_range(fuse_req_t req, struct ckpt_vfile *f, uint64_t off, size_t len,
                       enum ckpt_patience patience) {
    struct ckpt_reader *r = ckpt_fuse_session(req)->reader;
    const bool goes_on = patience == CKPT_TAKES && goes_forwards(req, f, off, len);
    struct ckpt_reply reply = {.stop = {asks_to_stop, req, patience}};
    struct ckpt_err err = {0};
    const bool from_memory = patience == CKPT_TAKES_FROM_MEMORY;
    int rc = 0;
    ckpt_vfile_hold(f);
    const ssize_t n = ckpt_vfile_add(f, r, off, len, &reply, &err);
    if (n == -EAGAIN)
        rc = -EAGAIN;
    else if (n < 0)
        reply_error(req, rc = (int)n, &err);
    else if (from_memory && ((size_t)n < len || !ckpt_reply_is_resident(&reply)))
        rc = -EAGAIN;
    else if ((size_t)n < len)
        rc = reply_copied(req, f, off, len, &reply.stop);
    else if (fuse_reply_iov(req, reply.iov, (int)reply.niov) < 0 &&
             ckpt_vfile_lost(f, off, &reply, &err)) /* else the reader was killed */
        ckpt_log_once(err.text, "%s", err.text);
    else if (goes_on)
        fault_ahead(&reply);
    ckpt_reply_done(r, &reply);
    ckpt_vfile_let_go(f);
    return rc;
}

/* --- keeping ---------------------------------------------------------------------------------- */

/* NULL when out of memory, which the reader has been told. */
static struct kept *keep(fuse_req_t req, struct ckpt_vfile *f, uint64_t off, size_t len) {
    struct kept *const k = malloc(sizeof *k);
    if (k)
        *k = (struct kept){.req = req, .file = f, .off = off, .len = len};
    else
        fuse_reply_err(req, ENOMEM);
    return k;
}

static void refuse(struct kept *k, int rc) {
    reply_code(k->req, rc);
    free(k);
}

/* --- in a lane --- */

static int run(struct ckpt_lane_job *job, enum ckpt_patience patience) {
    struct kept *const k = (struct kept *)job;
    const int rc = reply_range(k->req, k->file, k->off, k->len, patience);
    if (rc != -EAGAIN)
        free(k);
    return rc;
}

static void drop(struct ckpt_lane_job *job, int rc) {
    refuse((struct kept *)job, rc);
}

static bool job_left(struct ckpt_lane_job *job) {
    return has_left(((struct kept *)job)->req);
}

/* libfuse keeps the request alive while this runs, and the next. Whoever takes out what was kept
 * answers it. */
static void on_interrupt_in_lanes(fuse_req_t req, void *lanes) {
    struct ckpt_lane_job *const job = ckpt_lanes_remove(lanes, req);
    if (job)
        drop(job, -EINTR);
}

static void hand_over(fuse_req_t req, struct ckpt_vfile *f, uint64_t off, size_t len) {
    struct ckpt_lanes *const lanes = ckpt_fuse_session(req)->lanes;
    struct kept *const k = keep(req, f, off, len);
    if (!k)
        return;
    k->job = (struct ckpt_lane_job){.run = run, .drop = drop, .left = job_left, .id = req};
    /* Before it is handed over, since afterwards the request may be answered and gone at any time;
     * an interrupt that comes in between is found by job_left(). So it is with the next. */
    fuse_req_interrupt_func(req, on_interrupt_in_lanes, lanes);
    const int rc = ckpt_lanes_add(lanes, &k->job);
    if (rc < 0)
        refuse(k, rc);
}

/* --- waiting for the report --- */

static void wake(struct ckpt_waiter *w, int rc) {
    struct kept *const k = (struct kept *)w;
    if (rc < 0) {
        refuse(k, rc);
        return;
    }
    (void)reply_range(k->req, k->file, k->off, k->len, CKPT_WAITS);
    free(k);
}

static bool waiter_left(struct ckpt_waiter *w) {
    return fuse_req_interrupted(((struct kept *)w)->req);
}

static void on_interrupt(fuse_req_t req, void *computed) {
    struct ckpt_waiter *w = ckpt_computed_unpark(computed, req);
    if (w)
        wake(w, -EINTR);
}

static void park(fuse_req_t req, struct ckpt_vfile *f, uint64_t off, size_t len) {
    struct kept *const k = keep(req, f, off, len);
    if (!k)
        return;
    k->waiter = (struct ckpt_waiter){.wake = wake, .left = waiter_left, .id = req};
    fuse_req_interrupt_func(req, on_interrupt, f->computed);
    const int rc = ckpt_computed_park(f->computed, &k->waiter);
    if (rc < 0)
        refuse(k, rc);
}

/* --- read ------------------------------------------------------------------------------------- */

static void answer(fuse_req_t req, struct ckpt_vfile *f, uint64_t off, size_t len) {
    struct ckpt_fuse_server *const server = ckpt_fuse_server(req);
    const unsigned others = atomic_fetch_add(&server->answering, 1);
    const bool is_spare = others + CKPT_FUSE_SPARE_WORKERS >= server->workers;
    const enum ckpt_patience patience = is_spare ? CKPT_TAKES_FROM_MEMORY : CKPT_TAKES;
    if (reply_range(req, f, off, len, patience) == -EAGAIN)
        hand_over(req, f, off, len);
    atomic_fetch_sub(&server->answering, 1);
}

static void read_range(fuse_req_t req, struct ckpt_vfile *f, uint64_t off, size_t len) {
    if (f->kind == CKPT_VFILE_COMPUTED && !ckpt_computed_text(f->computed))
        park(req, f, off, len);
    else if (ckpt_fuse_session(req)->lanes)
        answer(req, f, off, len);
    else
        (void)reply_range(req, f, off, len, CKPT_WAITS);
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
    uint64_t size_of_file;
    const int rc = ckpt_vfile_measure(f, &size_of_file, &err);
    if (rc < 0) {
        reply_error(req, rc, &err);
        return;
    }
    const uint64_t at = (uint64_t)off;
    const uint64_t left_bytes = at < size_of_file ? size_of_file - at : 0;
    const size_t len = left_bytes < size ? (size_t)left_bytes : size;
    if (len == 0)
        fuse_reply_buf(req, NULL, 0);
    else
        read_range(req, f, at, len);
}
