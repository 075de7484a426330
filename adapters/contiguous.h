#ifndef CKPT_ADAPTERS_CONTIGUOUS_H
#define CKPT_ADAPTERS_CONTIGUOUS_H
/* Renumbering list indices without holes, exactly as burn-store's map_indices_contiguous does. */
#include "adapters/regex.h"

struct ckpt_renumbered {
    size_t changed; /* keys */
    size_t exempt;  /* lists that `except` matched */
};

/* Renumbers the keys in place (new texts in the arena). except (may be NULL): lists whose own name
 * (after map, original indices) matches keep their numbers. */
int ckpt_contiguous_keys(struct ckpt_text *key, size_t nkeys, struct ckpt_regex *except,
                         struct ckpt_arena *a, struct ckpt_renumbered *done,
                         struct ckpt_err *err) CKPT_CHECKED;

#endif
