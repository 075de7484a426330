#ifndef CKPT_FS_XATTR_H
#define CKPT_FS_XATTR_H
/* Extended attributes: what index.json says about a tensor, beside its file. */
#include "fs/session.h"

#define CKPT_XATTR_PREFIX "user.ckpt."

/* Appends the value of an attribute of a node. -ENODATA if it has none of that name. */
int ckpt_xattr_get(const struct ckpt_session *s, uint32_t node, const char *name,
                   struct ckpt_str *out) CKPT_CHECKED;
/* Appends the names of a node's attributes, each with its NUL. */
void ckpt_xattr_list(const struct ckpt_session *s, uint32_t node, struct ckpt_str *out);

#endif
