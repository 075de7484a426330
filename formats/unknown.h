#ifndef CKPT_FORMATS_UNKNOWN_H
#define CKPT_FORMATS_UNKNOWN_H
/* What a file is that no reader takes, and what to do about it. */
#include "base/err.h"
#include "formats/file.h"

/* What people mistake for a checkpoint and the file is ("compressed with gzip: ..."), or NULL. */
const char *ckpt_recognise_other(const struct ckpt_file *f);

/* Returns -EINVAL with the sentence in err. */
int ckpt_fail_unknown(const struct ckpt_file *f, struct ckpt_err *err);

#endif
