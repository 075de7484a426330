/*
 * Rules know tensors by their names, and map= may take a name away: a Linear's weight that is
 * called w is no longer transposed. In burn it is the same, the parameter then belongs to no
 * Linear; but whoever did not mean it loads a wrong model without a complaint.
 */
#include <string.h>

#include "adapters/rule.h"

#define LISTED 4u

static bool changes_elements(const struct ckpt_rule *rule) {
    for (uint32_t t = 0; t < rule->ntargets; t++)
        if (rule->target[t].nop > 0)
            return true;
    return rule->ntargets > 1;
}

/* 1 if a rule would have changed the item under its name before map, and *rule is it; 0. */
static int find_rule(struct ckpt_build *b, const struct ckpt_strmap *keys,
                     const struct ckpt_item *item, const struct ckpt_rule **rule) {
    struct ckpt_item before = *item;
    before.key = item->torch_key;
    for (size_t f = 0; f < b->nrules; f++) {
        const int failed = ckpt_rule_rename_within(b, keys, b->rules[f], &before);
        if (failed)
            return failed;
        for (size_t r = 0; r < b->rules[f]->nrules; r++) {
            struct ckpt_rule *candidate = &b->rules[f]->rule[r];
            const int rc = ckpt_rule_computes(candidate) || ckpt_rule_is_within(candidate)
                               ? 0
                               : ckpt_rule_takes(b, keys, b->rules[f], candidate, &before);
            if (rc < 0)
                return rc;
            *rule = candidate;
            if (rc > 0)
                return changes_elements(candidate);
        }
    }
    return 0;
}

int ckpt_rule_note_lost(struct ckpt_build *b, const struct ckpt_strmap *keys,
                        const struct ckpt_item *item, struct ckpt_rule_lost *lost) {
    const struct ckpt_rule *rule = NULL;
    const int rc = item->renamed ? find_rule(b, keys, item, &rule) : 0;
    if (rc <= 0)
        return rc;
    if (lost->n++ < LISTED)
        ckpt_str_printf(&lost->names, "%s%.*s (%.*s, %s)", lost->n > 1 ? "; " : "",
                        CKPT_TEXT_ARGS(item->key), CKPT_TEXT_ARGS(item->torch_key), rule->where);
    return 0;
}

int ckpt_rule_warn_lost(struct ckpt_build *b, const struct ckpt_rule_lost *lost) {
    if (lost->n == 0)
        return 0;
    if (lost->names.failed)
        return ckpt_fail_memory(b->err, "applying rules");
    return ckpt_build_warn(b,
                           "by the names that map= gave them no rule knows these tensors, which "
                           "keep PyTorch's layout (%zu): %s%s; keep the last part of the name "
                           "(weight), or rename in a rule (rules=)",
                           lost->n, lost->names.s, lost->n > LISTED ? "; and more" : "");
}
