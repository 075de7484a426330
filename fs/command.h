#ifndef CKPT_FS_COMMAND_H
#define CKPT_FS_COMMAND_H
/* The command line, and the commands. */
#include <stdbool.h>

#include "base/err.h"
#include "fs/options.h"

/* mount(8)'s */
enum {
    CKPT_EXIT_OK = 0,
    CKPT_EXIT_USAGE = 1,  /* or permission */
    CKPT_EXIT_SYSTEM = 2, /* out of memory, no /dev/fuse */
    CKPT_EXIT_MOUNT = 32, /* the checkpoint or the mount failed */
};

enum ckpt_action {
    CKPT_ACTION_MOUNT,
    CKPT_ACTION_INSPECT,
    CKPT_ACTION_VERIFY,
    CKPT_ACTION_EXPORT,
    CKPT_ACTION_CAT,
    CKPT_ACTION_HELP,
    CKPT_ACTION_VERSION,
};

struct ckpt_command {
    enum ckpt_action action;
    const char *source, *mountpoint;
    const char *path;    /* of --export: OUT; of --cat: the file of the tree */
    const char *explain; /* of --inspect: the key to explain; NULL: none */
    bool json, sloppy, fake, verbose, foreground;
    struct ckpt_options options;
};

/* Fills *c from the arguments. -EINVAL with the sentence. c->options is the caller's to fini in any
 * case. */
int ckpt_command_parse(struct ckpt_command *c, int argc, char **argv,
                       struct ckpt_err *err) CKPT_CHECKED;
extern const char ckpt_command_help[];

/* The exit code of a mount, --inspect, --export or --cat that failed with this negative errno. */
int ckpt_exit_code(int error);

/* Each does its work and returns an exit code, or a negative errno with the sentence in err. */
int ckpt_cmd_mount(const struct ckpt_command *c, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_cmd_inspect(const struct ckpt_command *c, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_cmd_explain(const struct ckpt_command *c, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_cmd_verify(const struct ckpt_command *c, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_cmd_export(const struct ckpt_command *c, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_cmd_cat(const struct ckpt_command *c, struct ckpt_err *err) CKPT_CHECKED;

#endif
