#ifndef CKPT_FS_INSPECT_TABLE_H
#define CKPT_FS_INSPECT_TABLE_H
/* What --inspect prints above the summary: the tensors as a tree, totals, names in the pickle. */
#include "fs/session.h"
#include "fs/terminal.h"

/* No line is longer than the terminal is wide. */
void ckpt_inspect_table(const struct ckpt_session *s, struct ckpt_terminal terminal,
                        struct ckpt_str *out);

#endif
