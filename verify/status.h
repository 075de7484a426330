#ifndef CKPT_VERIFY_STATUS_H
#define CKPT_VERIFY_STATUS_H
/* How the statuses of parts make the status of the whole. Start from CKPT_STATUS_SKIP: the enum is
 * ordered worst first, so a SKIP survives only where nothing else ran. */
#include "verify/verify.h"

enum ckpt_status ckpt_status_worst(enum ckpt_status a, enum ckpt_status b);

#endif
