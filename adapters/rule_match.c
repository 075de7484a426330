/* Does a rule fit an item: its key, rank, kind of module, and the keys beside it. */
#include <errno.h>
#include <string.h>

#include "adapters/rule.h"

int ckpt_rule_expand(struct ckpt_build *b, struct ckpt_rule *rule, struct ckpt_text key,
                     struct ckpt_text template, int64_t index, struct ckpt_text *out) {
    struct ckpt_arena *arena = &b->model->arena;
    if (ckpt_rule_put_index(template, index, arena, &template))
        return ckpt_fail_memory(b->err, "applying a rule");
    const int rc = ckpt_regex_expand(rule->match, key, template, arena, out, b->err);
    return rc < 0 ? rc : 0;
}

/* rule NULL: the keys are no templates (variants). 1 all conditions hold, 0 or negative. */
static int when_holds(struct ckpt_build *b, const struct ckpt_strmap *keys,
                      const struct ckpt_rule_when *when, struct ckpt_rule *rule,
                      struct ckpt_text key) {
    for (uint32_t i = 0; i < when->nexists + when->nabsent; i++) {
        const bool exists = i < when->nexists;
        struct ckpt_text name = exists ? when->exists[i] : when->absent[i - when->nexists];
        const int rc = rule ? ckpt_rule_expand(b, rule, key, name, 0, &name) : 0;
        if (rc)
            return rc;
        if ((ckpt_strmap_get(keys, name) != CKPT_STRMAP_ABSENT) != exists)
            return 0;
    }
    return 1;
}

static bool kind_fits(const struct ckpt_rule *rule, const char *kind) {
    for (uint32_t i = 0; i < rule->nkind; i++)
        if (kind && strcmp(rule->kind[i], kind) == 0)
            return true;
    return rule->nkind == 0;
}

int ckpt_rule_takes(struct ckpt_build *b, const struct ckpt_strmap *keys,
                    const struct ckpt_rules *file, struct ckpt_rule *rule,
                    const struct ckpt_item *item) {
    const struct ckpt_tensor *t = item->tensor;
    if (!kind_fits(rule, item->decision.rule_kind) ||
        (rule->ranks && (t->ndim > 63 || !(rule->ranks >> t->ndim & 1))))
        return 0;
    int rc = ckpt_regex_match(rule->match, item->key, b->err);
    if (rc > 0)
        rc = when_holds(b, keys, &rule->when, rule, item->key);
    if (rc > 0 && rule->when.variant >= 0)
        rc = when_holds(b, keys, &file->variant[rule->when.variant], NULL, item->key);
    return rc;
}

int ckpt_rule_index_keys(struct ckpt_build *b, struct ckpt_strmap *keys) {
    for (size_t i = 0; i < b->nitems; i++) {
        const int rc = b->item[i].in_model ? ckpt_strmap_add(keys, b->item[i].key, i, NULL) : 0;
        if (rc == -ENOMEM)
            return ckpt_fail_memory(b->err, "applying rules");
    }
    return 0;
}
