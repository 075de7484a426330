#ifndef CKPT_ADAPTERS_RENAME_H
#define CKPT_ADAPTERS_RENAME_H
/* -o map=: all rules in order, each on the last one's result, every match replaced. */
#include "adapters/model.h"
#include "adapters/regex.h"

/* Renames the keys in place (new texts in the arena). hits[i] (may be NULL): keys that map i
 * changed. */
int ckpt_rename_keys(const struct ckpt_mapping *map, size_t nmap, struct ckpt_text *key,
                     size_t nkeys, size_t *hits, struct ckpt_arena *a,
                     struct ckpt_err *err) CKPT_CHECKED;

#endif
