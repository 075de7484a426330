#include "base/cpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* __builtin_cpu_supports("avx2") also asks whether the kernel saves the wide registers, which F16C
 * needs as well; not every compiler knows "f16c" there. */
static bool has_avx2_and_f16c(void) {
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_sse42(void) {
    return __builtin_cpu_supports("sse4.2");
}
#else
static bool has_avx2_and_f16c(void) {
    return false;
}

static bool has_sse42(void) {
    return false;
}
#endif

static struct ckpt_cpu cpu;

static void find_features(void) {
    const char *wish = getenv("MOUNT_CKPT_CPU");
    const bool is_portable = wish && strcmp(wish, "portable") == 0;
    cpu.avx2 = !is_portable && has_avx2_and_f16c();
    cpu.sse42 = !is_portable && has_sse42();
}

const struct ckpt_cpu *ckpt_cpu(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_features);
    return &cpu;
}
