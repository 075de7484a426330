#ifndef CKPT_VERIFY_STATUS_H
#define CKPT_VERIFY_STATUS_H
/* How the statuses of parts make the status of the whole. Start from CKPT_STATUS_SKIP: the enum is
 * ordered worst first, so a SKIP survives only where nothing else ran. */
#include "base/err.h"
#include "verify/verify.h"

enum ckpt_status ckpt_status_worst(enum ckpt_status a, enum ckpt_status b);

#define CKPT_REASON_MAX 512 /* bytes of a reason, its NUL included */

struct ckpt_reason {
    char text[CKPT_REASON_MAX]; /* "": none */
};

/* printf, cut at the end of the buffer. */
void ckpt_reason_set(struct ckpt_reason *r, const char *fmt, ...) CKPT_PRINTF(2, 3);

#endif
