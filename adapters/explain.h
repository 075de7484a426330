#ifndef CKPT_ADAPTERS_EXPLAIN_H
#define CKPT_ADAPTERS_EXPLAIN_H
/*
 * Why a tensor became what it did: what its module was taken for, what renamed it, and of each rule
 * whether it fitted. Told by the same steps that adapt: a model built with options.explain set
 * looks at the named tensors between those steps; one built without it pays nothing.
 *
 *     build (as always)  ->  find: which tensors does a key name?  ->  build with explain
 */
#include "adapters/model.h"

/* One rung of the evidence: "class", "torch.nn.modules.linear.Linear: linear". */
struct ckpt_explain_rung {
    const char *name, *said;
};

/* "map='^fc\\.'" -> the key from then on. */
struct ckpt_explain_step {
    struct ckpt_text by, key;
};

struct ckpt_explain_rule {
    const char *where;      /* "burn-nn: rule 3" */
    struct ckpt_text about; /* .s NULL: the rule says nothing of itself */
    bool took;
    bool unlike; /* one of ours, for tensors of other names */
    const char *why;
};

struct ckpt_explained {
    const struct ckpt_tensor *source;
    bool in_model, seen; /* not seen: the build failed before */
    struct ckpt_text torch_key;
    struct ckpt_text module; /* .s NULL: modules were not looked at */
    const char *kind, *decided_by;
    struct ckpt_explain_rung *rung; /* down to the one that decided */
    size_t nrungs;
    const char **holder; /* modules around it, from the inside: "layers.0: encoder_layer:pre, by
                            class" */
    size_t nholders;
    struct ckpt_explain_step *step;
    size_t nsteps;
    struct ckpt_explain_rule *rule;
    size_t nrules, rules_cap;
    const char *joined_by; /* the rule whose concat names it, or NULL */
};

struct ckpt_explain {
    struct ckpt_explained *tensor; /* source set, the rest zeroed, before the build */
    size_t n;
    struct ckpt_arena arena;
};

#define CKPT_EXPLAIN_MAX 50u /* tensors explained at once */

/* The tensors that a key names, in the checkpoint's order: by its source key, adapted key or
 * PyTorch name, else as their module, else as a part that they lie in. model NULL: it could not be
 * built. *more: how many beyond the limit. -ENOENT with the nearest name if there is none. */
int ckpt_explain_find(struct ckpt_explain *e, const struct ckpt_checkpoint *c,
                      const struct ckpt_model *model, struct ckpt_text key, size_t *more,
                      struct ckpt_err *err) CKPT_CHECKED;
/* Whether an adapted tensor is made of a source, alone or among others. */
bool ckpt_explain_made_of(const struct ckpt_adapted *t, const struct ckpt_tensor *source);
void ckpt_explain_fini(struct ckpt_explain *e);
#define ckpt_auto_explain ckpt_explain_fini

/* --- for the build --- */

struct ckpt_build;
struct ckpt_item;
struct ckpt_rule;
struct ckpt_rules;
struct ckpt_strmap;
/* Before computing rules act: what they say. */
int ckpt_explain_computing(struct ckpt_build *b) CKPT_CHECKED;
/* Before all others act: modules and renames. */
int ckpt_explain_items(struct ckpt_build *b) CKPT_CHECKED;
/* A rule for the inside of modules has renamed the item. */
int ckpt_explain_within(struct ckpt_build *b, const struct ckpt_item *item,
                        const struct ckpt_rule *rule) CKPT_CHECKED;
/* After a file's rules were matched: what each says to the item. taken, joiner: the rules so far
 * that take it, or join it with another; NULL: none. */
int ckpt_explain_file(struct ckpt_build *b, const struct ckpt_strmap *keys,
                      const struct ckpt_rules *file, const struct ckpt_item *item,
                      const struct ckpt_rule *taken, const struct ckpt_rule *joiner) CKPT_CHECKED;

#endif
