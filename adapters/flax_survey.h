#ifndef CKPT_ADAPTERS_FLAX_SURVEY_H
#define CKPT_ADAPTERS_FLAX_SURVEY_H
/* The modules of a flax model while it is found out what they are; shared by evidence_flax*.c. */
#include <string.h>

#include "adapters/build.h"
#include "adapters/evidence_flax.h"

struct ckpt_survey {
    struct ckpt_modules m;
    struct ckpt_strmap by_path;
};

static inline const struct ckpt_tensor *ckpt_survey_leaf(const struct ckpt_survey *s, size_t i,
                                                         enum ckpt_leaf l) {
    return i == CKPT_MODULE_NONE ? NULL : s->m.facts[i].leaf[l];
}

static inline const struct ckpt_tensor *ckpt_survey_kernel(const struct ckpt_survey *s, size_t i) {
    return ckpt_survey_leaf(s, i, CKPT_LEAF_KERNEL);
}

static inline const struct ckpt_tensor *ckpt_survey_bias(const struct ckpt_survey *s, size_t i) {
    return ckpt_survey_leaf(s, i, CKPT_LEAF_BIAS);
}

static inline size_t ckpt_survey_child(const struct ckpt_survey *s, size_t i, const char *name) {
    return ckpt_module_child(&s->m, &s->by_path, i, name);
}

static inline void ckpt_survey_decide(struct ckpt_survey *s, size_t i, const char *kind,
                                      const char *rule_kind, const char *by) {
    struct ckpt_decision *const d = &s->m.decision[i];
    d->kind = kind;
    d->rule_kind = rule_kind;
    d->decided_by = by;
}

/* The last sizes of a are those of b. */
static inline bool ckpt_survey_ends_as(const struct ckpt_tensor *a, const struct ckpt_tensor *b) {
    return b->ndim <= a->ndim && (b->ndim == 0 || memcmp(a->shape + a->ndim - b->ndim, b->shape,
                                                         b->ndim * sizeof *b->shape) == 0);
}

/* What is a recurrent cell, its gates are: evidence_flax_cell.c. */
void ckpt_flax_decide_cell(struct ckpt_survey *s, size_t i);
/* What a module with a kernel of more than two dimensions is: evidence_flax_kernel.c. */
void ckpt_flax_decide_kernel(struct ckpt_survey *s, size_t i);
/* -o kind= has said what it is; which way its kernel lies, the shapes do. */
void ckpt_flax_refine_option(struct ckpt_survey *s, size_t i);

#endif
