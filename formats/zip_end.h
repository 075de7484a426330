#ifndef CKPT_FORMATS_ZIP_END_H
#define CKPT_FORMATS_ZIP_END_H
/* What must hold of an archive's end before it is worth opening. */
#include "formats/zip.h"

/* Of the file and the range that are set in zip. 0; -EINVAL where several end records could count;
 * -E2BIG where more entries than CKPT_LIMIT_ZIP_ENTRIES are claimed. Without an end record: 0, the
 * opener knows what to say. */
int ckpt_zip_check_end(const struct ckpt_zip *zip, struct ckpt_err *err) CKPT_CHECKED;

#endif
