#ifndef CKPT_VERIFY_STATISTICS_H
#define CKPT_VERIFY_STATISTICS_H
/* What the numbers of a served tensor are like, for people who look for a damaged one. */
#include "adapters/reader.h"
#include "verify/op.h"

struct ckpt_statistics {
    uint64_t count, nans, infinities;
    double min, max, mean, std; /* of what is finite; NaN where nothing is */
};

/* -EOPNOTSUPP: its dtype has no numbers that the checker reads. -EINTR if cancelled. */
int ckpt_statistics_of(struct ckpt_reader *reader, const struct ckpt_adapted *t,
                       const struct ckpt_exec *exec, struct ckpt_statistics *s,
                       struct ckpt_err *err) CKPT_CHECKED;

#endif
