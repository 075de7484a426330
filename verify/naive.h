#ifndef CKPT_VERIFY_NAIVE_H
#define CKPT_VERIFY_NAIVE_H
/*
 * Where an element of an adapted tensor comes from, worked out the slow, obvious way: an index of
 * the result goes backwards through the recorded operations, one by one, and then through the
 * source's own shape and strides. Shares nothing with the walks that the reader uses, so that a
 * wrong walk cannot agree with itself.
 */
#include <stdbool.h>
#include <stdint.h>

#include "adapters/model.h"

struct ckpt_naive_shape {
    uint32_t ndim;
    int64_t size[CKPT_NDIM_MAX];
};

struct ckpt_naive {
    const struct ckpt_tensor *source;
    const struct ckpt_view_op *op;
    uint32_t nop;
    struct ckpt_naive_shape *shape; /* before each operation, and after the last */
    int64_t stride[CKPT_NDIM_MAX];  /* bytes, of the source's dimensions */
    uint32_t unit;                  /* bytes of an element (of a packed group below 8 bits) */
    int64_t count;                  /* units of the result */
    bool per_element;               /* a reshape: neighbours may be anywhere */
    bool dense;                     /* the source's own bytes in order */
    struct ckpt_pin pin;            /* all bytes that the source may touch */
    const uint8_t *first;           /* the source's element at index 0...; NULL until pinned */
};

/* Checks the operations against the shapes: -EINVAL if they can't have been applied; -EOPNOTSUPP
 * for operations on elements smaller than a byte. A zeroed struct may be passed to fini. */
int ckpt_naive_init(struct ckpt_naive *n, const struct ckpt_tensor *source,
                    const struct ckpt_view_op *op, uint32_t nop, struct ckpt_err *err) CKPT_CHECKED;
/* Makes `first` readable until fini. Whoever loads from it does so inside CKPT_GUARDED. */
int ckpt_naive_pin(struct ckpt_naive *n, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_naive_fini(struct ckpt_naive *n);
#define ckpt_auto_naive ckpt_naive_fini

const struct ckpt_naive_shape *ckpt_naive_result(const struct ckpt_naive *n);
/* Bytes from `first` of units [from, from + n) of the result in C order. */
void ckpt_naive_offsets(const struct ckpt_naive *n, int64_t from, int64_t count, int64_t *offsets);

#endif
