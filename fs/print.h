#ifndef CKPT_FS_PRINT_H
#define CKPT_FS_PRINT_H
/* What commands print, to the last byte: a full disk or a closed pipe is an error. */
#include <stdio.h>

#include "base/err.h"

/* Writes and flushes n bytes. name: what the sentence calls the stream. A negative errno if it
 * cannot. */
int ckpt_print(FILE *to, const char *name, const char *text, size_t n,
               struct ckpt_err *err) CKPT_CHECKED;

#endif
