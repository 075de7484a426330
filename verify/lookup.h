#ifndef CKPT_VERIFY_LOOKUP_H
#define CKPT_VERIFY_LOOKUP_H
/*
 * Indexing by tensors, as in NumPy: some dimensions of a tensor are replaced by the common shape of
 * their indices. What one set of indices names is a cell, of the shape of the other dimensions.
 *
 *     a [4, 5, 6, 7],  a[:, i, j] with i [2, 1], j [3]:     result [4, 2, 3, 7], cells [4, 7]
 *                      a[i, :, j]: apart, so in front       result [2, 3, 5, 7], cells [5, 7]
 */
#include "verify/op.h"

struct ckpt_lookup {
    uint32_t n;                                   /* dimensions that are replaced */
    uint32_t dim[CKPT_ARRAY_NDIM_MAX];            /* which: ascending */
    struct ckpt_array index[CKPT_ARRAY_NDIM_MAX]; /* int64, of any shapes that broadcast */
    uint32_t ndim;                                /* of the common shape */
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint32_t at; /* where that comes to stand in the result */
    bool wraps;  /* negative indices count from the end */
};

void ckpt_lookup_fini(struct ckpt_lookup *l);
#define ckpt_auto_lookup ckpt_lookup_fini
/* Dimension dim of a tensor, by one more index; takes the reference. */
int ckpt_lookup_add(struct ckpt_lookup *l, uint32_t dim, struct ckpt_array index,
                    struct ckpt_err *err) CKPT_CHECKED;
/* c->out: self's cells that l names. Of a parameter whose first dimensions are replaced, only they
 * are read. */
int ckpt_lookup_read(struct ckpt_call *c, struct ckpt_lookup *l, struct ckpt_err *err) CKPT_CHECKED;
/* c->out: a copy of self, whose cells become those of values, broadcast to what a read would give;
 * or, if scale is not NULL, to which scale times these are added. */
int ckpt_lookup_write(struct ckpt_call *c, struct ckpt_lookup *l, const struct ckpt_array *values,
                      const double *scale, struct ckpt_err *err) CKPT_CHECKED;

/* The indices of the elements that are not zero, in C order: int64 [how many, ndim]. */
int ckpt_nonzero(const struct ckpt_array *a, struct ckpt_exec *exec, struct ckpt_array *out,
                 struct ckpt_err *err) CKPT_CHECKED;

#endif
