/*
 * The command line. The program is a mount helper, so -s -f -n -v -N -t have mount(8)'s meaning;
 * what a FUSE program means by -s and -f is -o nomt and --foreground.
 */
#include "fs/command.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "base/text.h"

enum long_option {
    OPT_INSPECT = 256,
    OPT_EXPLAIN,
    OPT_VERIFY,
    OPT_EXPORT,
    OPT_CAT,
    OPT_JSON,
    OPT_FOREGROUND
};

static const struct option long_options[] = {{"inspect", no_argument, NULL, OPT_INSPECT},
                                             {"explain", required_argument, NULL, OPT_EXPLAIN},
                                             {"verify", no_argument, NULL, OPT_VERIFY},
                                             {"export", required_argument, NULL, OPT_EXPORT},
                                             {"cat", required_argument, NULL, OPT_CAT},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             {"foreground", no_argument, NULL, OPT_FOREGROUND},
                                             {"verbose", no_argument, NULL, 'v'},
                                             {"help", no_argument, NULL, 'h'},
                                             {"version", no_argument, NULL, 'V'},
                                             {NULL, 0, NULL, 0}};

const char ckpt_command_help[] =
    "usage: mount.ckpt SOURCE MOUNTPOINT [-o OPTION[,OPTION...]]...\n"
    "       mount.ckpt --inspect [--json] [-o ...] SOURCE    what would be shown; nothing mounted\n"
    "       mount.ckpt --inspect --explain KEY [--json] [-o ...] SOURCE\n"
    "                                                        why a tensor becomes what it does\n"
    "       mount.ckpt --verify [-o ...] SOURCE              the forward check; 0 PASS, 1 DIFF\n"
    "       mount.ckpt --export OUT.safetensors|OUT.bpk [-o ...] SOURCE\n"
    "       mount.ckpt --cat PATH [-o ...] SOURCE            one file of the tree\n"
    "\n"
    "  --foreground   stay in the foreground\n"
    "  -f             check everything, mount nothing\n"
    "  -s             ignore unknown options\n"
    "  -v, --verbose  say what was mounted; of --verify: times, statistics, differences\n"
    "                 for people on stderr, and no report on a terminal\n"
    "\n"
    "options:\n"
    "  layout=burn|torch|source   whose names and layout to show (burn)\n"
    "  dialect=auto|NAME          whose conventions SOURCE follows\n"
    "  root=KEY                   the part that is the model\n"
    "  prefix=strip|keep          wrapper prefixes such as _orig_mod. (strip)\n"
    "  map=REGEX=>NEW             rename; map_file=FILE reads one a line\n"
    "  contiguous=auto|on|off     renumber list indices; contiguous_except=REGEX\n"
    "  cast=keep|f32|f16|bf16|f64 float dtype of what is shown (auto: keep, mostly)\n"
    "  lora=merge|refuse          LoRA's factors in openpi's checkpoints (merge)\n"
    "  kind=REGEX=>KIND           what a module is: linear, norm, embedding, conv1d_hf...\n"
    "  modules=nn|store           which modules are adapted (nn)\n"
    "  include=REGEX, exclude=REGEX   choose tensors\n"
    "  rules=FILE                 an adapter of your own\n"
    "  expect=FILE                a burn model's parameters to check against\n"
    "  chain=A:B:C, reference=FILE, graph=FILE, atol=, rtol=, verify_memory=SIZE,\n"
    "  device=cpu                 for verify.json\n"
    "  strict, keep_going         warnings are errors; bad tensors are left out\n"
    "  list=all                   list the hidden files too\n"
    "  direct_io                  past the page cache: copying in large pieces is faster\n"
    "  passthrough                the kernel reads files that are the source's own (root)\n"
    "  cache=SIZE, threads=N, nomt, fg, nofail, fsname=NAME, uid=, gid=, umask=,\n"
    "  allow_other, allow_root, auto_unmount   as other FUSE filesystems\n"
    "\n"
    "See mount.ckpt(8).\n";

/* The first of two commands stays; two different ones are an error. */
static int set_action(struct ckpt_command *c, enum ckpt_action action, struct ckpt_err *err) {
    if (c->action != CKPT_ACTION_MOUNT && c->action != action)
        return ckpt_fail(err, -EINVAL,
                         "--inspect, --verify, --export and --cat exclude one another");
    c->action = action;
    return 0;
}

static int fail_unknown(const char *argument, int letter, struct ckpt_err *err) {
    if (letter && letter < 256)
        return ckpt_fail(err, -EINVAL, "unknown flag -%c: see mount.ckpt --help", letter);
    struct ckpt_text names[sizeof long_options / sizeof long_options[0]];
    size_t n = 0;
    for (const struct option *o = long_options; o->name; o++)
        names[n++] = ckpt_text_of(o->name);
    const char *name = argument + strspn(argument, "-");
    const int near = ckpt_text_nearest((struct ckpt_text){name, strcspn(name, "=")}, names, n);
    if (near < 0)
        return ckpt_fail(err, -EINVAL, "unknown flag %s: see mount.ckpt --help", argument);
    return ckpt_fail(err, -EINVAL, "unknown flag %s: did you mean --%s?", argument, names[near].s);
}

/* -o values wait until -s is known, wherever it stands. */
struct pending {
    const char *list[256];
    size_t n;
};

static int take(struct ckpt_command *c, int flag, struct pending *options, const char *argument,
                struct ckpt_err *err) {
    switch (flag) {
    case 'o':
        if (options->n == sizeof options->list / sizeof options->list[0])
            return ckpt_fail(err, -EINVAL, "over %zu -o: join some with commas", options->n);
        options->list[options->n++] = optarg;
        return 0;
    case 's':
        c->sloppy = true;
        return 0;
    case 'f':
        c->fake = true;
        return 0;
    case 'v':
        c->verbose = true;
        return 0;
    case 'n': /* there is no mtab to write */
    case 'N': /* the namespace is mount(8)'s business */
    case 't': /* ckpt, fuse.ckpt: what we are anyway */
    case 'r': /* always read-only; */
    case 'w': /* mount(8) may pass the opposite */
        return 0;
    case OPT_INSPECT:
        return set_action(c, CKPT_ACTION_INSPECT, err);
    case OPT_EXPLAIN:
        c->explain = optarg;
        return set_action(c, CKPT_ACTION_INSPECT, err);
    case OPT_VERIFY:
        return set_action(c, CKPT_ACTION_VERIFY, err);
    case OPT_EXPORT:
        c->path = optarg;
        return set_action(c, CKPT_ACTION_EXPORT, err);
    case OPT_CAT:
        c->path = optarg;
        return set_action(c, CKPT_ACTION_CAT, err);
    case OPT_JSON:
        c->json = true;
        return 0;
    case OPT_FOREGROUND:
        c->foreground = true;
        return 0;
    case 'h':
        c->action = CKPT_ACTION_HELP;
        return 0;
    case 'V':
        c->action = CKPT_ACTION_VERSION;
        return 0;
    case ':':
        return ckpt_fail(err, -EINVAL, "%s needs a value: see mount.ckpt --help", argument);
    default:
        return fail_unknown(argument, optopt, err);
    }
}

static int parse_options(struct ckpt_command *c, const struct pending *options,
                         struct ckpt_err *err) {
    ckpt_options_init(&c->options);
    for (size_t i = 0; i < options->n; i++) {
        const int rc = ckpt_options_parse(&c->options, options->list[i], c->sloppy, err);
        if (rc < 0)
            return rc;
    }
    c->foreground |= c->options.foreground;
    return ckpt_options_finish(&c->options, err);
}

/* An unset variable in a script is not the current folder. */
static int check_given(const char *what, const char *text, struct ckpt_err *err) {
    return text && !*text ? ckpt_fail(err, -EINVAL, "%s is empty: see mount.ckpt --help", what) : 0;
}

static int check_all_given(const struct ckpt_command *c, struct ckpt_err *err) {
    int rc = check_given("SOURCE", c->source, err);
    if (rc == 0)
        rc = check_given("MOUNTPOINT", c->mountpoint, err);
    if (rc == 0)
        rc = check_given("KEY of --explain", c->explain, err);
    if (rc == 0)
        rc = check_given(c->action == CKPT_ACTION_CAT ? "PATH of --cat" : "OUT of --export",
                         c->path, err);
    return rc;
}

static int take_operands(struct ckpt_command *c, int n, char **operand, struct ckpt_err *err) {
    const int want = c->action == CKPT_ACTION_MOUNT ? 2 : 1;
    if (c->json && c->action != CKPT_ACTION_INSPECT)
        return ckpt_fail(err, -EINVAL, "--json goes with --inspect");
    if (n < want)
        return ckpt_fail(err, -EINVAL, "%s is missing: see mount.ckpt --help",
                         n == 0 ? "SOURCE" : "MOUNTPOINT");
    if (n > want)
        return ckpt_fail(err, -EINVAL, "%s is one argument too many: see mount.ckpt --help",
                         operand[want]);
    c->source = operand[0];
    c->mountpoint = n > 1 ? operand[1] : NULL;
    return check_all_given(c, err);
}

int ckpt_command_parse(struct ckpt_command *c, int argc, char **argv, struct ckpt_err *err) {
    struct pending options = {.n = 0};
    *c = (struct ckpt_command){.action = CKPT_ACTION_MOUNT};
    opterr = 0;
    for (;;) {
        const int flag = getopt_long(argc, argv, ":o:sfnvrwN:t:hV", long_options, NULL);
        if (flag < 0)
            break;
        const int rc = take(c, flag, &options, argv[optind - 1], err);
        if (rc < 0)
            return rc;
    }
    if (c->action == CKPT_ACTION_HELP || c->action == CKPT_ACTION_VERSION)
        return 0;
    const int rc = parse_options(c, &options, err);
    return rc < 0 ? rc : take_operands(c, argc - optind, argv + optind, err);
}

int ckpt_exit_code(int error) {
    switch (-error) {
    case EPERM:
    case EACCES:
        return CKPT_EXIT_USAGE;
    case ENOMEM:
    case ENFILE:
    case EMFILE:
    case ENODEV: /* no FUSE in this kernel */
    case ENOSPC:
    case EAGAIN:
        return CKPT_EXIT_SYSTEM;
    default:
        return CKPT_EXIT_MOUNT;
    }
}
