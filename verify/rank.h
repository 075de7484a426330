#ifndef CKPT_VERIFY_RANK_H
#define CKPT_VERIFY_RANK_H
/*
 * The order of elements, NaN being the largest.
 *
 * Of equals, a stable sort keeps the first one first. topk is not stable: which of several equal
 * elements it takes follows from the algorithm that PyTorch uses (quickselect, or a heap for few of
 * many), and a router that is undecided between its experts shows it. ckpt_rank_top therefore does
 * the same steps.
 */
#include <stdbool.h>
#include <stdint.h>

struct ckpt_ranked {
    double f;
    int64_t i; /* decides if whole */
    int64_t index;
};

struct ckpt_rank_order {
    bool whole;      /* compare i, else f */
    bool descending; /* the largest first */
};

/* Whether a stands before b. */
bool ckpt_rank_before(struct ckpt_rank_order o, const struct ckpt_ranked *a,
                      const struct ckpt_ranked *b);
/* Stable; spare holds n elements. */
void ckpt_rank_sort(struct ckpt_rank_order o, struct ckpt_ranked *v, struct ckpt_ranked *spare,
                    int64_t n);
/* The first k of the order to the front, sorted if asked for. */
void ckpt_rank_top(struct ckpt_rank_order o, struct ckpt_ranked *v, int64_t n, int64_t k,
                   bool sorted);

#endif
