#ifndef CKPT_FS_XATTR_H
#define CKPT_FS_XATTR_H
/* Extended attributes: what index.json says about a tensor, beside its file. */
#include "fs/dentry.h"

#define CKPT_XATTR_PREFIX "user.ckpt."

/* Appends the value of an attribute of an entry. -ENODATA if it has none of that name. */
int ckpt_xattr_get(const struct ckpt_session *s, struct ckpt_dentry e, const char *name,
                   struct ckpt_str *out) CKPT_CHECKED;
/* Appends the names of an entry's attributes, each with its NUL. */
void ckpt_xattr_list(const struct ckpt_session *s, struct ckpt_dentry e, struct ckpt_str *out);

#endif
