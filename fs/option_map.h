#ifndef CKPT_FS_OPTION_MAP_H
#define CKPT_FS_OPTION_MAP_H
/* The options that map a pattern to something: map=, kind= and the lines of map_file=. */
#include "fs/options.h"

/* Adds PATTERN=>VALUE, split at its last "=>". `option` is the option's name. */
int ckpt_option_map_add(struct ckpt_arena *a, struct ckpt_mapping_list *list, const char *option,
                        const char *text, struct ckpt_err *err) CKPT_CHECKED;
/* Adds every line of the file; empty lines and those that begin with # are skipped. */
int ckpt_option_map_read(struct ckpt_arena *a, struct ckpt_mapping_list *list, const char *path,
                         struct ckpt_err *err) CKPT_CHECKED;

/* Compiles every pattern of the options once, to find those that do not. */
int ckpt_option_patterns_check(const struct ckpt_adapt_options *o,
                               struct ckpt_err *err) CKPT_CHECKED;

#endif
