/*
 * The mount: open, check the mount point, mount, go to the background, start threads, serve. All
 * that can fail has failed before the caller is told that it worked.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/command.h"
#include "fs/daemon.h"
#include "fs/fuse_mount.h"
#include "fs/mountpoint.h"
#include "fs/notify.h"
#include "fs/session.h"
#include "fs/watcher.h"

static void say(const struct ckpt_session *s, const char *mountpoint) {
    const struct ckpt_model *m = s->model;
    printf("%s: %s, %zu tensors (%zu renamed, %zu transposed, %zu cast) on %s\n",
           s->checkpoint->name, s->checkpoint->format, m->ntensors, m->nrenamed, m->ntransposed,
           m->ncast, mountpoint);
}

/* What is left to do once the mount answers. */
struct arrival {
    const struct ckpt_command *command;
    const struct ckpt_session *session;
    int ready; /* for ckpt_daemon_ready; -1: in the foreground */
};

static void arrive(void *arg) {
    const struct arrival *a = arg;
    if (a->command->verbose)
        say(a->session, a->command->mountpoint);
    fflush(stdout);
    if (a->ready >= 0)
        ckpt_daemon_ready(a->ready);
    else
        ckpt_notify("READY=1\nSTATUS=%s, %zu tensors on %s", a->session->checkpoint->name,
                    a->session->model->ntensors, a->command->mountpoint);
}

static int serve(const struct ckpt_command *c, struct ckpt_session *s, struct ckpt_mount *m,
                 struct ckpt_err *err) {
    struct arrival arrival = {.command = c, .session = s, .ready = -1};
    int rc = c->foreground ? 0 : ckpt_daemon_fork(&arrival.ready, err);
    if (rc == 0)
        rc = ckpt_mount_start(m, arrive, &arrival, err);
    if (rc == 0)
        rc = ckpt_session_start(s, !c->options.single_thread, err);
    if (rc == 0)
        rc = ckpt_mount_serve(m, err);
    ckpt_notify_stopping();
    ckpt_mount_end(m); /* the minder knows `arrival` */
    return rc;
}

/* mount(8) says nothing of a missing device either where fstab has `nofail`. */
static bool is_excused(const struct ckpt_command *c) {
    return c->options.nofail && access(c->source, F_OK) != 0 && errno == ENOENT;
}

int ckpt_cmd_mount(const struct ckpt_command *c, struct ckpt_err *err) {
    if (is_excused(c))
        return CKPT_EXIT_OK;
    /* In full, as mount(8) writes it: `mount -a` and `umount SOURCE` compare it with theirs. */
    CKPT_AUTO(free) char *source = realpath(c->source, NULL);
    CKPT_AUTO(free) char *absolute = NULL;
    CKPT_AUTO(session) struct ckpt_session *s = NULL;
    CKPT_AUTO(mount) struct ckpt_mount *m = NULL; /* freed before the session that it serves */
    int rc = ckpt_session_open(c->source, &c->options, &s, err);
    if (rc == 0)
        rc = ckpt_mountpoint_check(c->mountpoint, &absolute, err);
    if (rc == 0 && s->checkpoint->directory)
        rc = ckpt_mountpoint_check_source(absolute, s->checkpoint->directory, err);
    if (rc < 0 || c->fake)
        return rc;
    if (c->options.auto_unmount)
        rc = ckpt_watcher_start(absolute, err);
    if (rc == 0)
        rc = ckpt_mount_new(s, source ? source : c->source, absolute, &m, err);
    return rc < 0 ? rc : serve(c, s, m, err);
}
