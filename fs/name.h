#ifndef CKPT_FS_NAME_H
#define CKPT_FS_NAME_H
/*
 * File names made of key segments. Keys hold any byte; names may not hold '/' or NUL, and a dot is
 * kept for names of ours, so that no tensor can ever collide with one.
 */
#include "base/text.h"

#define CKPT_NAME_MAX 244 /* 255 less room for the endings we add (".tensor.npy") */

/*
 * The file name of one raw segment, appended to out: '/', '%', '.', control bytes and bytes that
 * are not UTF-8 as %XX; an empty segment as "%"; what is longer than CKPT_NAME_MAX is cut at a
 * character and ends with "%~" and 16 hex digits of the raw segment's SHA-256.
 */
void ckpt_name_encode(struct ckpt_str *out, struct ckpt_text segment);

#endif
