#ifndef CKPT_VERIFY_NAIVE_LORA_H
#define CKPT_VERIFY_NAIVE_LORA_H
/*
 * w + a * b evaluated anew in float64: each index of an element goes to its matrices the slow way,
 * and nothing is taken from adapters/lora.c but which tensors they are.
 */
#include "adapters/lora.h"
#include "verify/naive.h"

struct ckpt_naive_lora {
    const struct ckpt_lora *of;
    struct ckpt_naive w;     /* where an element of the result lies in w */
    struct ckpt_naive index; /* which element of w in C order it is, as an offset */
    struct ckpt_tensor ruler;
    double *a, *b; /* the factors in C order, as they are stored */
};

/* The result of operations on the weight that `of` makes. Reads the factors. -EOPNOTSUPP, -EIO,
 * -ENOMEM. A zeroed struct may be passed to fini. */
int ckpt_naive_lora_init(struct ckpt_naive_lora *n, const struct ckpt_lora *of,
                         const struct ckpt_view_op *op, uint32_t nop,
                         struct ckpt_err *err) CKPT_CHECKED;
void ckpt_naive_lora_fini(struct ckpt_naive_lora *n);
#define ckpt_auto_naive_lora ckpt_naive_lora_fini

/* Elements [from, from + count) in C order, as float32; slack, unless NULL, gets for each how far a
 * sum in float32 may be from it. */
int ckpt_naive_lora_read(const struct ckpt_naive_lora *n, int64_t from, int64_t count, float *to,
                         float *slack, struct ckpt_err *err) CKPT_CHECKED;

/* Whether a served element of this dtype is so close to the expected one. NaN equals NaN. */
bool ckpt_naive_lora_close(enum ckpt_dtype served, float slack, const uint8_t *expected,
                           const uint8_t *got);

#endif
