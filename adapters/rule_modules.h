#ifndef CKPT_ADAPTERS_RULE_MODULES_H
#define CKPT_ADAPTERS_RULE_MODULES_H
/*
 * What the modules of a dialect's result are, where its file says so: a model of that kind has them
 * at known places, so that neither shapes nor names need to be asked.
 */
#include "adapters/rule.h"

struct ckpt_rule_module {
    struct ckpt_regex *match; /* the whole path, in PyTorch's names; the first that does counts */
    const char *kind;
    bool adds_one; /* a norm that multiplies by 1 + weight */
};

/* Gives each module with tensors the kind that the file says it has. */
int ckpt_rule_decide_modules(struct ckpt_build *b, const struct ckpt_rules *file) CKPT_CHECKED;

#endif
