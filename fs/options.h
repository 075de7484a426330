#ifndef CKPT_FS_OPTIONS_H
#define CKPT_FS_OPTIONS_H
/*
 * What the user asked for: the options of -o, parsed once, immutable afterwards. All strings live
 * in the options' arena.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "adapters/model.h"
#include "base/arena.h"
#include "verify/verify.h"

/* A growing list of options that may be given again. */
struct ckpt_option_list {
    const char **item;
    size_t n, cap;
};

struct ckpt_mapping_list {
    struct ckpt_mapping *item;
    size_t n, cap;
};

struct ckpt_options {
    struct ckpt_adapt_options adapt; /* complete after ckpt_options_finish */
    struct ckpt_open_options open;
    struct ckpt_verify_options verify; /* .source and .cancel are the session's business */
    int device; /* 0, the CPU: another is refused rather than quietly replaced by it */
    uint64_t cache;
    unsigned threads; /* 0: as many as cores, at most 8 */
    bool single_thread, direct_io, passthrough, list_all;
    bool allow_other, allow_root, auto_unmount, foreground;
    bool nofail;        /* a SOURCE that is not there is no error */
    const char *fsname; /* NULL: SOURCE's path */
    uid_t uid;
    gid_t gid;
    mode_t umask;

    /* while parsing: */
    struct ckpt_mapping_list map, kind;
    struct ckpt_option_list include, exclude;
    struct ckpt_arena arena;
};

/* The defaults; the owner is the user who runs us. */
void ckpt_options_init(struct ckpt_options *o);
/* Parses one -o value: a list separated by commas. In it `\,` is a comma and `\\` a backslash; any
 * other backslash stands for itself. sloppy: unknown options are ignored. -EINVAL with a sentence
 * that names the option. */
int ckpt_options_parse(struct ckpt_options *o, const char *list, bool sloppy,
                       struct ckpt_err *err) CKPT_CHECKED;
/* After the last parse: points adapt at the lists and checks every pattern, so that one which does
 * not compile is an error of usage, with its position. */
int ckpt_options_finish(struct ckpt_options *o, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_options_fini(struct ckpt_options *o);

/* 256M, 1G, 4096: a number of bytes with an optional K, M, G or T. False if it is none. */
bool ckpt_options_size(const char *text, uint64_t *out);
/* path made absolute (the daemon leaves the working directory); NULL when out of memory. */
const char *ckpt_options_absolute(struct ckpt_arena *a, const char *path);

#define ckpt_auto_options ckpt_options_fini

#endif
