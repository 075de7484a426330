/*
 * Mounting and serving.
 *
 *     main thread     fuse_session_loop_mt, or the single-threaded loop
 *     workers         libfuse's, each with its own clone of /dev/fuse: answer what is there
 *     lanes           ours, as many as threads=: compute and decode what isn't (lanes.h)
 *     minder          asks the mount for its root, sets read-ahead, says that it serves; then
 *                     signals:
 *                       SIGTERM          detach lazily; the loop ends when the last reader is gone
 *                       SIGINT, SIGHUP   end the loop, unmount
 *                       SIGTERM again    likewise
 */
#include "fs/fuse_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "fs/fuse_server.h"
#include "fs/mountpoint.h"
#include "fs/notify.h"
#include "fs/refusal.h"
#include "fs/signals.h"

#define THREADS_MAX 8
#define WAKE SIGUSR2 /* interrupts the main thread's wait; does nothing else */

struct ckpt_mount {
    struct ckpt_fuse_server server;
    const char *absolute;
    struct fuse_session *fuse;
    bool mounted, has_minder;
    pthread_t main, minder;
    void (*serving)(void *arg);
    void *arg;
    atomic_bool serves;       /* it answers, and the caller is told */
    atomic_bool ending, done; /* the loop is to end, has ended */
};

static int add_options(struct fuse_args *args, const struct ckpt_options *o, const char *source) {
    char *list = NULL, *fsname = NULL;
    int rc = asprintf(&fsname, "fsname=%s", o->fsname ? o->fsname : source) < 0;
    rc = rc || fuse_opt_add_opt(&list, "ro,nosuid,nodev,noexec,noatime,default_permissions");
    rc = rc || fuse_opt_add_opt(&list, "subtype=ckpt");
    rc = rc || fuse_opt_add_opt_escaped(&list, fsname);
    if (o->allow_other)
        rc = rc || fuse_opt_add_opt(&list, "allow_other");
    if (o->allow_root)
        rc = rc || fuse_opt_add_opt(&list, "allow_root");
    rc = rc || fuse_opt_add_arg(args, "mount.ckpt") || fuse_opt_add_arg(args, "-o") ||
         fuse_opt_add_arg(args, list);
    free(list);
    free(fsname);
    return rc ? -ENOMEM : 0;
}

/* libfuse and fusermount3 write to stderr, where we promise one line of ours: so they write into a
 * file in memory. */
static int mount_quietly(struct ckpt_mount *m, struct ckpt_err *err) {
    CKPT_AUTO(fd) int said = memfd_create("mount.ckpt", MFD_CLOEXEC);
    CKPT_AUTO(fd) int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (said < 0 || saved < 0 || dup2(said, STDERR_FILENO) < 0)
        return ckpt_fail(err, -ENOMEM, "mounting: %s", strerror(errno));
    const int rc = fuse_session_mount(m->fuse, m->absolute);
    dup2(saved, STDERR_FILENO);
    m->mounted = rc == 0;
    return rc == 0 ? 0 : ckpt_refusal_of(said, m->absolute, err);
}

int ckpt_mount_new(struct ckpt_session *s, const char *source, const char *absolute,
                   struct ckpt_mount **out, struct ckpt_err *err) {
    int rc = ckpt_refusal_of_device(err);
    if (rc < 0)
        return rc;
    CKPT_AUTO(mount) struct ckpt_mount *m = calloc(1, sizeof *m);
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    if (!m || add_options(&args, s->options, source) < 0) {
        fuse_opt_free_args(&args);
        return ckpt_fail_memory(err, "mounting");
    }
    m->server.session = s;
    ckpt_backings_init(&m->server.backings);
    m->absolute = absolute;
    m->fuse = fuse_session_new(&args, &ckpt_fuse_ops, sizeof ckpt_fuse_ops, &m->server);
    fuse_opt_free_args(&args);
    if (!m->fuse)
        return ckpt_fail_memory(err, "mounting");
    rc = ckpt_signals_catch(err); /* one that ended us from here on would leave a dead mount */
    if (rc == 0)
        rc = mount_quietly(m, err);
    if (rc == 0)
        rc = ckpt_fuse_init_attach(&m->server, m->fuse, err);
    m->server.backings.device = fuse_session_fd(m->fuse);
    if (rc == 0 && ckpt_signals_waiting())
        rc = ckpt_fail(err, -EINTR, "interrupted while mounting");
    if (rc == 0)
        *out = CKPT_STEAL(m);
    return rc;
}

static void nothing(int signal) {
    (void)signal;
}

/* The loop looks at its flag only when woken, and may be about to sleep: so until it has ended. */
static void end_loop(struct ckpt_mount *m) {
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    atomic_store(&m->ending, true);
    fuse_session_exit(m->fuse);
    while (!atomic_load(&m->done)) {
        pthread_kill(m->main, WAKE);
        nanosleep(&pause, NULL);
    }
}

static void *mind(void *arg) {
    struct ckpt_mount *m = arg;
    if (ckpt_mountpoint_set_readahead(m->absolute)) {
        ckpt_backings_try(&m->server.backings);
        atomic_store(&m->serves, true); /* the first reader may come before serving() is back */
        ckpt_fuse_log_serves();
        m->serving(m->arg);
    }
    for (bool detached = false; !atomic_load(&m->done);) {
        const int signal = ckpt_signals_next();
        if (signal == 0 || atomic_load(&m->done))
            break;
        ckpt_notify_stopping();
        const bool gently = signal == SIGTERM && !detached;
        const int rc = gently ? ckpt_mountpoint_detach(m->absolute) : 0;
        if (rc < 0)
            ckpt_log("detaching %s: %s", m->absolute, strerror(-rc));
        detached = true;
        if (!gently || rc < 0)
            end_loop(m);
    }
    return NULL;
}

int ckpt_mount_start(struct ckpt_mount *m, void (*serving)(void *arg), void *arg,
                     struct ckpt_err *err) {
    m->serving = serving;
    m->arg = arg;
    const struct sigaction wake = {.sa_handler = nothing}; /* no SA_RESTART */
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(WAKE, &wake, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    m->main = pthread_self();
    const int rc = pthread_create(&m->minder, NULL, mind, m);
    m->has_minder = rc == 0;
    return rc == 0 ? 0 : ckpt_fail(err, -EAGAIN, "no thread: %s", strerror(rc));
}

static unsigned thread_count(const struct ckpt_options *o) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (o->threads)
        return o->threads;
    return cores < 2 ? 2 : cores > THREADS_MAX ? THREADS_MAX : (unsigned)cores;
}

static int serve_threads(struct ckpt_mount *m) {
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    if (!config)
        return -ENOMEM;
    fuse_loop_cfg_set_clone_fd(config, 1);
    fuse_loop_cfg_set_max_threads(config, m->server.workers);
    fuse_loop_cfg_set_idle_threads(config, m->server.workers); /* who comes and goes costs more */
    const int rc = fuse_session_loop_mt(m->fuse, config);
    fuse_loop_cfg_destroy(config);
    return rc;
}

/* libfuse ends its loop when a thread more finds no memory for its buffer. What its other threads
 * have just taken by then is lost, and the kernel tells those readers so (ECONNABORTED); all others
 * are served: once there are readers, one thread is better than no mount. */
static int serve_alone(struct ckpt_mount *m) {
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    int rc = -ENOMEM;
    ckpt_log("out of memory for threads: serving goes on with one");
    while (rc == -ENOMEM && !atomic_load(&m->ending)) {
        fuse_session_reset(m->fuse);
        rc = atomic_load(&m->ending) ? 0 : fuse_session_loop(m->fuse);
        if (rc == -ENOMEM)
            nanosleep(&pause, NULL);
    }
    return rc;
}

static int serve_together(struct ckpt_mount *m) {
    const int rc = serve_threads(m);
    const bool is_short = rc == -ENOMEM || rc == -1; /* no thread at all */
    if (is_short && !atomic_load(&m->serves))
        return -ENOMEM;
    return is_short ? serve_alone(m) : rc;
}

/* Whether the kernel has given the mount up. A read of the device that was under way then may say
 * whatever it had come to, such as ENOENT, which libfuse takes for a failure. */
static bool is_disconnected(const struct ckpt_mount *m) {
    struct pollfd device = {.fd = fuse_session_fd(m->fuse), .events = POLLIN};
    return poll(&device, 1, 0) == 1 && (device.revents & POLLERR);
}

int ckpt_mount_serve(struct ckpt_mount *m, struct ckpt_err *err) {
    struct ckpt_session *const s = m->server.session;
    const bool alone = s->options->single_thread;
    const unsigned threads = thread_count(s->options);
    int rc = alone ? 0 : ckpt_session_start_lanes(s, threads, err);
    if (rc < 0)
        return rc;
    m->server.workers = alone ? 0 : threads + CKPT_FUSE_SPARE_WORKERS;
    ckpt_fuse_log_start();
    rc = alone ? fuse_session_loop(m->fuse) : serve_together(m);
    if (rc < 0 && is_disconnected(m))
        rc = 0;
    atomic_store(&m->done, true);
    /* Reads that are kept hold requests: they must be answered while the session is there. */
    ckpt_session_end_lanes(s);
    ckpt_computed_stop(s->report);
    return rc < 0 ? ckpt_fail(err, rc, "serving ended: %s", strerror(-rc)) : 0;
}

void ckpt_mount_end(struct ckpt_mount *m) {
    atomic_store(&m->done, true);
    if (m->mounted)
        fuse_session_unmount(m->fuse); /* closes the device first: who waits for us gets ENOTCONN */
    m->mounted = false;
    if (!m->has_minder)
        return;
    ckpt_signals_wake();
    pthread_join(m->minder, NULL);
    m->has_minder = false;
}

void ckpt_mount_free(struct ckpt_mount *m) {
    if (!m)
        return;
    ckpt_mount_end(m);
    if (m->fuse)
        fuse_session_destroy(m->fuse);
    ckpt_backings_fini(&m->server.backings);
    free(m);
}
