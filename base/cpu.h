#ifndef CKPT_BASE_CPU_H
#define CKPT_BASE_CPU_H
/* CPU features, found once. MOUNT_CKPT_CPU=portable in the environment turns all of them off, so
 * that tests can compare both paths. Thread-safe. */
#include <stdbool.h>

struct ckpt_cpu {
    bool avx2; /* and F16C: every AVX2 machine has it; both are checked */
    bool sse42;
};

const struct ckpt_cpu *ckpt_cpu(void);

#endif
