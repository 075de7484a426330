#ifndef CKPT_ADAPTERS_BUILD_H
#define CKPT_ADAPTERS_BUILD_H
/*
 * The making of an adapted model, shared by the steps of the pipeline and by nothing else. Each
 * step is a file of its own and works on the items, one a source tensor:
 *
 *     step           file          of an item it sets
 *     choose root    select.c      in_model, torch_key
 *     dialect        dialect.c     all; items become fewer or more
 *     compute        rule_merge.c  tensor, torch_key; two items may become one
 *     evidence       evidence.c    decision
 *     map            rename.c      key
 *     contiguous     contiguous.c  key
 *     rules          rule_apply.c  -> targets: key, pieces, ops, cast
 *     layout, cast   layout.c      targets -> adapted tensors
 *     filter, ties   filter.c, tied.c
 */
#include "adapters/evidence.h"
#include "adapters/model.h"
#include "base/cleanup.h"
#include "base/strmap.h"

struct ckpt_shaped;

struct ckpt_item {
    const struct ckpt_tensor *tensor;
    struct ckpt_text torch_key; /* in the model: below root, without prefix; else the whole path */
    struct ckpt_text key;       /* as torch_key, then renamed and renumbered */
    struct ckpt_decision decision;
    const struct ckpt_shaped *made; /* what the dialect's rules made; NULL: it is the tensor */
    bool in_model, renamed, renumbered;
    bool mapped; /* renamed by map= */
    bool alias;  /* a second name for what another item is */
};

struct ckpt_rules;
struct ckpt_dialect;
#define CKPT_RULE_FILES_MAX 3

struct ckpt_build {
    const struct ckpt_checkpoint *checkpoint;
    const struct ckpt_adapt_options *options;
    struct ckpt_model *model;
    const struct ckpt_dialect *dialect;
    struct ckpt_item *item; /* in the checkpoint's order; gone once there are tensors */
    size_t nitems;
    struct ckpt_rules *rules[CKPT_RULE_FILES_MAX]; /* the user's own first */
    size_t nrules;
    const char **by; /* of each tensor: the rule that named it, or NULL; on the heap */
    size_t warnings_cap;
    bool kinds_at_risk;        /* burn's names may not say what the modules are: recorded_kinds.h */
    struct ckpt_arena scratch; /* of what ends with the items: them, and what is known of modules */
    struct ckpt_err *err;
};

/* Adds a warning to the model; with -o strict it is the error. 0 or negative. */
int ckpt_build_warn(struct ckpt_build *b, const char *fmt, ...) CKPT_PRINTF(2, 3) CKPT_CHECKED;
/* "; did you mean 'NAME'?" with the nearest of the candidates, or "". In the model's arena. */
const char *ckpt_build_did_you_mean(struct ckpt_build *b, struct ckpt_text name,
                                    const struct ckpt_text *candidates, size_t n);

int ckpt_select_root(struct ckpt_build *b) CKPT_CHECKED;
/* Opens the rule files that the options and the dialect ask for. */
int ckpt_open_rules(struct ckpt_build *b) CKPT_CHECKED;
void ckpt_close_rules(struct ckpt_build *b);
/* Rules that compute. */
int ckpt_merge_items(struct ckpt_build *b) CKPT_CHECKED;
int ckpt_decide_modules(struct ckpt_build *b) CKPT_CHECKED;
int ckpt_rename_items(struct ckpt_build *b) CKPT_CHECKED;
int ckpt_renumber_items(struct ckpt_build *b) CKPT_CHECKED;
/* Rules, layout and cast: fills model->tensor. */
int ckpt_adapt_items(struct ckpt_build *b) CKPT_CHECKED;
int ckpt_filter_tensors(struct ckpt_build *b) CKPT_CHECKED;
/* Of the tensors that are left. */
void ckpt_count_ops(struct ckpt_model *m);
/* Warns of dtypes that burn, or model.safetensors, cannot hold. */
int ckpt_warn_dtypes(struct ckpt_build *b) CKPT_CHECKED;
/* Two tensors that have one key are an error. */
int ckpt_check_keys(struct ckpt_build *b) CKPT_CHECKED;
int ckpt_find_ties(struct ckpt_build *b) CKPT_CHECKED;
/* Fills path of every tensor. */
int ckpt_lay_out_paths(struct ckpt_build *b) CKPT_CHECKED;

#endif
