#ifndef CKPT_VERIFY_REPORT_H
#define CKPT_VERIFY_REPORT_H
/* What the report and its bound agree on. */
#include "base/text.h"

#define CKPT_REPORT_TEXT_MAX 512 /* bytes of a text as it stands in the JSON */

/* The part of t that fits, and how many bytes it takes when quoted and escaped. */
struct ckpt_text ckpt_report_cut(struct ckpt_text t, size_t *quoted);

#endif
