#ifndef CKPT_ADAPTERS_DIALECT_H
#define CKPT_ADAPTERS_DIALECT_H
/*
 * A dialect: whose names and layout a source follows. One row of dialect_choose.c's table each; all
 * but PyTorch's own name a rule file that leads to PyTorch's. dialect=auto takes the first whose
 * question is answered with yes:
 *
 *     is          asked of the checkpoint and its keys, in C
 *     hint        a key begins so; then a variant of the rule file must hold (docs/adapters.md),
 *                 or the source is refused: it is nearest to this, but not the same
 */
#include "adapters/build.h"

struct ckpt_dialect {
    const char *name;
    const char *rules;  /* built in file; NULL: the names are PyTorch's */
    const char *suffix; /* cut off where every key of the model ends in it, before all else; NULL */
    bool is_burn;       /* burn's own: its rules act with layout=torch only */
    const char *hint;   /* dialect=auto judges by the file's variants where a key begins so; NULL */
    bool suffix_of_most;  /* or where most keys do: then of those */
    const char *lora;     /* why LoRA's scale, which is in no array, is 1; NULL: it has none */
    enum ckpt_dtype cast; /* cast=auto with layout=torch; NONE: keep */
    /* dialect=auto: 1 it is this, 0 not, or negative. NULL: not by itself, or by the hint. */
    int (*is)(struct ckpt_build *b);
    /* What else is part of the model, or is not; before anything is computed. NULL. */
    void (*prepare)(struct ckpt_build *b);
    /* What the modules are, where its rules ask for their kinds; NULL. */
    int (*decide)(struct ckpt_build *b);
};

/* By the option, or else by what the checkpoint says and the model's keys. */
int ckpt_choose_dialect(struct ckpt_build *b) CKPT_CHECKED;
/* Whether its rules act with the layout that is asked for. */
bool ckpt_dialect_acts(const struct ckpt_build *b);
/* Opens its rule file, cuts its suffix off and settles the variant, or refuses the source. */
int ckpt_open_dialect(struct ckpt_build *b) CKPT_CHECKED;
/* Brings the items to PyTorch's names and layout. */
int ckpt_apply_dialect(struct ckpt_build *b) CKPT_CHECKED;
/* For `decide`: applies another built in file before the dialect's own. */
int ckpt_dialect_apply_rules(struct ckpt_build *b, const char *rules) CKPT_CHECKED;

#endif
