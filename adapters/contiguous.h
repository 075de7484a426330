#ifndef CKPT_ADAPTERS_CONTIGUOUS_H
#define CKPT_ADAPTERS_CONTIGUOUS_H
/* Renumbering list indices without holes, exactly as burn-store's map_indices_contiguous does. */
#include "adapters/regex.h"

/* A list that was renumbered: number[i] became i. */
struct ckpt_renumbered_list {
    struct ckpt_text name; /* what stands before the numbers, before renumbering; "" the model */
    const uint64_t *number;
    size_t n;
    size_t key;      /* one of its keys, */
    size_t segments; /* which has so many names behind the number */
    bool deep;       /* its members have members */
    bool alike;      /* there are several, and all have the same names inside */
};

struct ckpt_renumbered {
    size_t changed; /* keys */
    size_t exempt;  /* lists that `except` matched */
    struct ckpt_renumbered_list *list;
    size_t nlists;
};

/* Renumbers the keys in place (new texts in the arena). except (may be NULL): lists whose own name
 * (after map, original indices) matches keep their numbers. */
int ckpt_contiguous_keys(struct ckpt_text *key, size_t nkeys, struct ckpt_regex *except,
                         struct ckpt_arena *a, struct ckpt_renumbered *done,
                         struct ckpt_err *err) CKPT_CHECKED;

/* contiguous_report.c: notes for summary.txt what became of each list, and warns of those whose
 * gaps may be meant. item: of each key, the build's item. */
struct ckpt_build;
int ckpt_report_renumbered(struct ckpt_build *b, const struct ckpt_renumbered *done,
                           const size_t *item) CKPT_CHECKED;

#endif
