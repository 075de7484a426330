#ifndef CKPT_FORMATS_DIRECTORY_H
#define CKPT_FORMATS_DIRECTORY_H
/*
 * A model directory as Hugging Face lays it out: weight files, perhaps an index that says which
 * file holds which tensor, and plain files beside them.
 */
#include <stdbool.h>

#include "formats/checkpoint.h"

/* Whether the directory has a file whose name ends so. */
bool ckpt_directory_has(const char *directory, const char *suffix);

/* The name (in the arena) of the file to use: `preferred` if it is there, else the only one that
 * ends with suffix. *name is NULL if there is none; several are an error that names two. */
int ckpt_directory_pick(struct ckpt_arena *a, const char *directory, const char *preferred,
                        const char *suffix, const char **name, struct ckpt_err *err) CKPT_CHECKED;

/* Sets c->directory and c->weight_files: weight files and indexes, whether used or not. */
int ckpt_directory_fill(struct ckpt_checkpoint *c, const char *directory,
                        struct ckpt_err *err) CKPT_CHECKED;

/* Whether a name from a checkpoint is one of a file in its directory and can't lead out of it. */
bool ckpt_is_plain_name(struct ckpt_text name);

/* "DIRECTORY/NAME", malloc'ed; NULL when out of memory. */
char *ckpt_directory_path(const char *directory, const char *name);

/* Opens a file of the directory. A failure names the file. */
int ckpt_directory_open(const char *directory, const char *name, struct ckpt_file **out,
                        struct ckpt_err *err) CKPT_CHECKED;

#endif
