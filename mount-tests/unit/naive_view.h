#ifndef CKPT_TESTS_NAIVE_VIEW_H
#define CKPT_TESTS_NAIVE_VIEW_H
/*
 * The naive model of a view: the byte offset of every element, in order, as a plain array, and the
 * shape. Each operation moves the array about by index arithmetic. Slow, obvious, and independent
 * of walks.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define NAIVE_MOST 8000 /* elements */
#define NAIVE_DIMS 8

struct naive {
    uint32_t ndim;
    int64_t shape[NAIVE_DIMS];
    int64_t offset[NAIVE_MOST];
};

static inline int64_t naive_count(const struct naive *v) {
    int64_t n = 1;
    for (uint32_t d = 0; d < v->ndim; d++)
        n *= v->shape[d];
    return n;
}

/* The index of element i along each dimension, and back. */
static inline void naive_unravel(const struct naive *v, int64_t i, int64_t *index) {
    for (uint32_t d = v->ndim; d-- > 0;) {
        index[d] = i % v->shape[d];
        i /= v->shape[d];
    }
}

static inline int64_t naive_ravel(const struct naive *v, const int64_t *index) {
    int64_t i = 0;
    for (uint32_t d = 0; d < v->ndim; d++)
        i = i * v->shape[d] + index[d];
    return i;
}

static inline void naive_from_strides(struct naive *v, int64_t offset, const int64_t *stride,
                                      int64_t esize) {
    int64_t index[NAIVE_DIMS] = {0};
    for (int64_t i = 0; i < naive_count(v); i++) {
        v->offset[i] = offset;
        naive_unravel(v, i, index);
        for (uint32_t d = 0; d < v->ndim; d++)
            v->offset[i] += index[d] * stride[d] * esize;
    }
}

static inline void naive_permute(struct naive *v, const uint32_t *order) {
    static _Thread_local struct naive old;
    int64_t to[NAIVE_DIMS] = {0}, from[NAIVE_DIMS] = {0};
    old = *v;
    for (uint32_t d = 0; d < v->ndim; d++)
        v->shape[d] = old.shape[order[d]];
    for (int64_t i = 0; i < naive_count(v); i++) {
        naive_unravel(v, i, to);
        for (uint32_t d = 0; d < v->ndim; d++)
            from[order[d]] = to[d];
        v->offset[i] = old.offset[naive_ravel(&old, from)];
    }
}

/* start + k * step along dim, for k < len: slices, flips (step -1) and broadcasts (step 0). */
static inline void naive_take(struct naive *v, uint32_t dim, int64_t start, int64_t len,
                              int64_t step) {
    static _Thread_local struct naive old;
    int64_t index[NAIVE_DIMS] = {0};
    old = *v;
    v->shape[dim] = len;
    for (int64_t i = 0; i < naive_count(v); i++) {
        naive_unravel(v, i, index);
        index[dim] = start + index[dim] * step;
        v->offset[i] = old.offset[naive_ravel(&old, index)];
    }
}

static inline void naive_drop_dim(struct naive *v, uint32_t dim) {
    v->ndim--;
    memmove(v->shape + dim, v->shape + dim + 1, (v->ndim - dim) * sizeof *v->shape);
}

static inline void naive_add_dim(struct naive *v, uint32_t dim) {
    memmove(v->shape + dim + 1, v->shape + dim, (v->ndim - dim) * sizeof *v->shape);
    v->shape[dim] = 1;
    v->ndim++;
}

/*
 * The walk of a sequence of offsets, found without algebra: the innermost pair is the longest first
 * arithmetic run, the sequence of the runs' first offsets has the walk outside it. False if the
 * sequence has none. (size, stride) outermost first; *n pairs. Destroys `offset`.
 */
static inline bool naive_fit(int64_t *offset, int64_t count, int64_t (*pair)[2], uint32_t *n) {
    *n = 0;
    while (count > 1) {
        const int64_t stride = offset[1] - offset[0];
        int64_t run = 2;
        while (run < count && offset[run] - offset[run - 1] == stride)
            run++;
        if (count % run != 0)
            return false;
        for (int64_t i = 0; i < count; i++) {
            if (offset[i] - offset[i - i % run] != i % run * stride)
                return false;
        }
        for (int64_t i = 0; i < count / run; i++)
            offset[i] = offset[i * run];
        count /= run;
        pair[*n][0] = run;
        pair[(*n)++][1] = stride;
    }
    for (uint32_t i = 0; i < *n / 2; i++) {
        const int64_t size = pair[i][0], stride = pair[i][1];
        memcpy(pair[i], pair[*n - 1 - i], sizeof pair[i]);
        pair[*n - 1 - i][0] = size;
        pair[*n - 1 - i][1] = stride;
    }
    return true;
}

#endif
