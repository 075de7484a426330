#ifndef CKPT_FORMATS_GLOBALS_H
#define CKPT_FORMATS_GLOBALS_H
/*
 * The classes and functions that a checkpoint's pickles name. Nothing of them is ever imported or
 * called here; the list tells what another program would run that loads the file without care.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strmap.h"
#include "base/text.h"

struct ckpt_global {
    struct ckpt_text name; /* "module.name" */
    bool known;            /* a constructor, storage class or dtype that has a meaning here */
    const char *danger;    /* what calling it could do; NULL: not in the table of such names */
    uint64_t mentions;     /* times that a stream names it */
    uint64_t calls;        /* times that a stream calls it */
};

struct ckpt_globals {
    struct ckpt_global *global; /* in the order of first mention */
    size_t n, cap;
    struct ckpt_strmap by_name;
};

#define CKPT_GLOBAL_NONE SIZE_MAX

/* Counts a mention of module.name; `full` is both with a dot between and must live as long as the
 * list. The place in the list, or CKPT_GLOBAL_NONE when out of memory. */
size_t ckpt_globals_add(struct ckpt_globals *g, struct ckpt_text module, struct ckpt_text name,
                        struct ckpt_text full, bool known);
/* Adds what another list holds; false when out of memory. */
bool ckpt_globals_merge(struct ckpt_globals *g, const struct ckpt_globals *from);
void ckpt_globals_fini(struct ckpt_globals *g);

/* What a call of module.name could do to whoever really made it ("runs commands"), or NULL. The
 * table is for the reader's eyes: we are safe because nothing is called, not because of it. */
const char *ckpt_global_danger(struct ckpt_text module, struct ckpt_text name);

/* "dangerous", "known" or "inert". */
const char *ckpt_global_status(const struct ckpt_global *g);
/* Whether there is one that neither has a meaning here nor belongs to plain data. */
bool ckpt_globals_are_notable(const struct ckpt_globals *g);

#endif
