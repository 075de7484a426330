#ifndef CKPT_FORMATS_TAR_H
#define CKPT_FORMATS_TAR_H
/* TAR archives, as far as torch before 0.1.10 needs them: a few members by name. */
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/file.h"

struct ckpt_tar_member {
    const char *name; /* to be found, exactly */
    uint64_t data;    /* byte of the file where it begins; 0: it is not there */
    uint64_t size;
};

/* Finds n members. All other members are passed over. Refused: damaged headers, and of the members
 * that are looked for, a second one of the same name and all but regular files, since a link could
 * lead anywhere. */
int ckpt_tar_find(const struct ckpt_file *f, struct ckpt_tar_member *members, size_t n,
                  struct ckpt_err *err) CKPT_CHECKED;

#endif
