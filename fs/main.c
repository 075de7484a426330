/* mount.ckpt: parses, runs one command, says in one line what failed. The only file that prints
 * errors. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/guard.h"
#include "fs/command.h"
#include "fs/print.h"

/* Descriptors 0 to 2 must be taken, or a checkpoint would be opened as one of them. */
static void take_standard_descriptors(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDWR); /* not closed on exec: fusermount3 inherits it */
    } while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
}

static int print(const char *text, struct ckpt_err *err) {
    return ckpt_print(stdout, "stdout", text, strlen(text), err);
}

static int run(const struct ckpt_command *c, struct ckpt_err *err) {
    switch (c->action) {
    case CKPT_ACTION_MOUNT:
        return ckpt_cmd_mount(c, err);
    case CKPT_ACTION_INSPECT:
        return c->explain ? ckpt_cmd_explain(c, err) : ckpt_cmd_inspect(c, err);
    case CKPT_ACTION_VERIFY:
        return ckpt_cmd_verify(c, err);
    case CKPT_ACTION_EXPORT:
        return ckpt_cmd_export(c, err);
    case CKPT_ACTION_CAT:
        return ckpt_cmd_cat(c, err);
    case CKPT_ACTION_HELP:
        return print(ckpt_command_help, err);
    case CKPT_ACTION_VERSION:
        return print("mount.ckpt " CKPT_VERSION "\n", err);
    }
    return CKPT_EXIT_USAGE;
}

static int report(const struct ckpt_command *c, int error, struct ckpt_err *err) {
    if (c->source)
        ckpt_fail_in(err, "%s", c->source);
    fprintf(stderr, "mount.ckpt: %s\n", err->text);
    if (c->action == CKPT_ACTION_VERIFY)
        return CKPT_EXIT_SYSTEM; /* 1 would say that it ran and found a difference */
    return c->source || error != -EINVAL ? ckpt_exit_code(error) : CKPT_EXIT_USAGE;
}

/* Every shard of a model stays open; the usual soft limit of 1024 files is there for select(). */
static void raise_file_limit(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

int main(int argc, char **argv) {
    struct ckpt_command command;
    struct ckpt_err err = {0};
    take_standard_descriptors();
    raise_file_limit();
    int rc = ckpt_command_parse(&command, argc, argv, &err);
    if (rc < 0)
        command.source = NULL; /* a wrong command line is about no file */
    else if (ckpt_guard_install() < 0)
        rc = ckpt_fail(&err, -EAGAIN, "the SIGBUS handler cannot be installed");
    else
        rc = run(&command, &err);
    rc = rc < 0 ? report(&command, rc, &err) : rc;
    ckpt_options_fini(&command.options);
    return rc;
}
