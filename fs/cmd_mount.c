/*
 * The mount: open, check the mount point, mount, go to the background, start threads, serve. All
 * that can fail has failed before the caller is told that it worked.
 */
#include <stdio.h>

#include "base/cleanup.h"
#include "fs/command.h"
#include "fs/daemon.h"
#include "fs/fuse_mount.h"
#include "fs/mountpoint.h"
#include "fs/session.h"

static void say(const struct ckpt_session *s, const char *mountpoint) {
    const struct ckpt_model *m = s->model;
    printf("%s: %s, %zu tensors (%zu renamed, %zu transposed, %zu cast) on %s\n",
           s->checkpoint->name, s->checkpoint->format, m->ntensors, m->nrenamed, m->ntransposed,
           m->ncast, mountpoint);
}

static int serve(const struct ckpt_command *c, struct ckpt_session *s, struct ckpt_mount *m,
                 struct ckpt_err *err) {
    int ready = -1;
    int rc = c->foreground ? 0 : ckpt_daemon_fork(&ready, err);
    if (rc == 0)
        rc = ckpt_mount_start(m, err); /* before the reader's worker: it blocks signals */
    if (rc == 0)
        rc = ckpt_session_start(s, !c->options.single_thread, err);
    if (rc < 0)
        return rc;
    if (c->verbose)
        say(s, c->mountpoint);
    fflush(stdout);
    if (!c->foreground)
        ckpt_daemon_ready(ready);
    return ckpt_mount_serve(m, err);
}

int ckpt_cmd_mount(const struct ckpt_command *c, struct ckpt_err *err) {
    CKPT_AUTO(free) char *absolute = NULL;
    CKPT_AUTO(session) struct ckpt_session *s = NULL;
    CKPT_AUTO(mount) struct ckpt_mount *m = NULL; /* freed before the session that it serves */
    int rc = ckpt_session_open(c->source, &c->options, &s, err);
    if (rc == 0)
        rc = ckpt_mountpoint_check(c->mountpoint, &absolute, err);
    if (rc < 0 || c->fake)
        return rc;
    rc = ckpt_mount_new(s, c->source, absolute, &m, err);
    return rc < 0 ? rc : serve(c, s, m, err);
}
