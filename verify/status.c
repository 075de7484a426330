/* Statuses and how they add up. */
#include "verify/status.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const names[] = {
    [CKPT_STATUS_LOAD_FAIL] = "LOAD_FAIL", [CKPT_STATUS_CONVERT_FAIL] = "CONVERT_FAIL",
    [CKPT_STATUS_TEST_FAIL] = "TEST_FAIL", [CKPT_STATUS_DIFF] = "DIFF",
    [CKPT_STATUS_TEST_SKIP] = "TEST_SKIP", [CKPT_STATUS_PASS] = "PASS",
    [CKPT_STATUS_SKIP] = "SKIP",           [CKPT_STATUS_PENDING] = "PENDING",
};

const char *ckpt_status_name(enum ckpt_status s) {
    return (unsigned)s < sizeof(names) / sizeof(names[0]) ? names[s] : "?";
}

enum ckpt_status ckpt_status_worst(enum ckpt_status a, enum ckpt_status b) {
    return a < b ? a : b;
}

void ckpt_reason_set(struct ckpt_reason *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->text, sizeof(r->text), fmt, ap);
    va_end(ap);
}
