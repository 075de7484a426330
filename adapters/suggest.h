#ifndef CKPT_ADAPTERS_SUGGEST_H
#define CKPT_ADAPTERS_SUGGEST_H
/*
 * "Did you mean" for two lists at once: which of the names here is which of the names there?
 *
 *     wanted  blocks.0.norm_1.gamma [8]  ──>  blocks.0.norm1.gamma [8]
 *             blocks.0.fc.weight  [4,8]  ──>  blocks.0.fc1.weight [8,4]   transposed
 *             head.weight         [8,2]       -
 *
 * No name is suggested twice, names of one shape are preferred to others, and the same lists give
 * the same pairs everywhere.
 */
#include <stdint.h>

#include "base/err.h"
#include "base/text.h"

struct ckpt_suggest_item {
    struct ckpt_text name;
    const int64_t *shape; /* NULL: not known */
    uint32_t ndim;
};

enum ckpt_suggest_shape {
    CKPT_SUGGEST_SAME,
    CKPT_SUGGEST_TRANSPOSED, /* the same reversed, of rank 2 and more */
    CKPT_SUGGEST_UNKNOWN,
    CKPT_SUGGEST_OTHER,
};
enum ckpt_suggest_shape ckpt_suggest_shape_of(const struct ckpt_suggest_item *a,
                                              const struct ckpt_suggest_item *b);

#define CKPT_SUGGEST_NONE SIZE_MAX
#define CKPT_SUGGEST_LEAST 0.7 /* likeness of a pair: of its names, 0..1, less for other shapes */
/* Names compared, about 0.3 s; of longer lists each name meets only those that are its
 * neighbours when sorted. */
#define CKPT_SUGGEST_COMPARISONS 500000u

/* partner[i]: the index in `there` of what here[i] most likely is, or CKPT_SUGGEST_NONE. The pair
 * most alike is made first, then the next of what is left. 0 or -ENOMEM. */
int ckpt_suggest_pairs(const struct ckpt_suggest_item *here, size_t nhere,
                       const struct ckpt_suggest_item *there, size_t nthere, size_t *partner,
                       struct ckpt_err *err) CKPT_CHECKED;

#endif
