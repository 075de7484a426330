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

int ckpt_rule_put_before(struct ckpt_build *b, struct ckpt_text prefix, struct ckpt_text *name) {
    if (prefix.n == 0)
        return 0;
    char *s = ckpt_arena_alloc(&b->model->arena, prefix.n + name->n + 1);
    if (!s)
        return ckpt_fail_memory(b->err, "applying a rule");
    memcpy(s, prefix.s, prefix.n);
    memcpy(s + prefix.n, name->s, name->n);
    *name = (struct ckpt_text){s, prefix.n + name->n};
    return 0;
}

/* rule NULL: the keys are no templates (variants). 1 all conditions hold; 0, and *failed is the key
 * that is absent or there against them; or negative. */
static int when_holds(struct ckpt_build *b, const struct ckpt_strmap *keys,
                      const struct ckpt_rule_when *when, struct ckpt_rule *rule,
                      struct ckpt_text key, struct ckpt_text prefix,
                      struct ckpt_rule_verdict *failed) {
    for (uint32_t i = 0; i < when->nexists + when->nabsent; i++) {
        const bool exists = i < when->nexists;
        struct ckpt_text name = exists ? when->exists[i] : when->absent[i - when->nexists];
        int rc = rule ? ckpt_rule_expand(b, rule, key, name, 0, &name) : 0;
        if (rc == 0)
            rc = ckpt_rule_put_before(b, prefix, &name);
        if (rc)
            return rc;
        if ((ckpt_strmap_get(keys, name) != CKPT_STRMAP_ABSENT) == exists)
            continue;
        failed->key = name;
        failed->key_is_there = !exists;
        return 0;
    }
    return 1;
}

static bool kind_fits(const struct ckpt_rule *rule, const char *kind) {
    bool fits = rule->nkind == 0;
    for (uint32_t i = 0; kind && i < rule->nkind; i++)
        fits |= strcmp(rule->kind[i], kind) == 0;
    return fits;
}

static bool rank_fits(const struct ckpt_rule *rule, uint32_t rank) {
    return !rule->ranks || (rank <= 63 && (rule->ranks >> rank & 1));
}

static int judge(struct ckpt_build *b, const struct ckpt_strmap *keys,
                 const struct ckpt_rules *file, struct ckpt_rule *rule,
                 const struct ckpt_item *item, struct ckpt_text key, struct ckpt_text prefix,
                 struct ckpt_rule_verdict *v) {
    *v = (struct ckpt_rule_verdict){.kind = kind_fits(rule, item->decision.rule_kind),
                                    .rank = rank_fits(rule, ckpt_item_rank(item))};
    int rc = ckpt_regex_match(rule->match, key, b->err);
    v->match = rc > 0;
    if (rc > 0)
        rc = when_holds(b, keys, &rule->when, rule, key, prefix, v);
    if (rc > 0 && rule->when.variant >= 0 && file->settled >= 0)
        rc = file->settled == rule->when.variant;
    else if (rc > 0 && rule->when.variant >= 0)
        rc = when_holds(b, keys, &file->variant[rule->when.variant], NULL, key, CKPT_TEXT(""), v);
    v->when = rc > 0;
    return rc < 0 ? rc : v->match && v->kind && v->rank && v->when;
}

int ckpt_rule_judge(struct ckpt_build *b, const struct ckpt_strmap *keys,
                    const struct ckpt_rules *file, struct ckpt_rule *rule,
                    const struct ckpt_item *item, struct ckpt_rule_verdict *v) {
    return judge(b, keys, file, rule, item, item->key, CKPT_TEXT(""), v);
}

/* What is cheap to ask comes first. */
int ckpt_rule_takes_below(struct ckpt_build *b, const struct ckpt_strmap *keys,
                          const struct ckpt_rules *file, struct ckpt_rule *rule,
                          const struct ckpt_item *item, struct ckpt_text below,
                          struct ckpt_text prefix) {
    struct ckpt_rule_verdict v;
    if (!kind_fits(rule, item->decision.rule_kind) || !rank_fits(rule, ckpt_item_rank(item)))
        return 0;
    return judge(b, keys, file, rule, item, below, prefix, &v);
}

int ckpt_rule_takes(struct ckpt_build *b, const struct ckpt_strmap *keys,
                    const struct ckpt_rules *file, struct ckpt_rule *rule,
                    const struct ckpt_item *item) {
    return ckpt_rule_takes_below(b, keys, file, rule, item, item->key, CKPT_TEXT(""));
}

int ckpt_rule_index_keys(struct ckpt_build *b, struct ckpt_strmap *keys) {
    for (size_t i = 0; i < b->nitems; i++) {
        const int rc = b->item[i].in_model ? ckpt_strmap_add(keys, b->item[i].key, i, NULL) : 0;
        if (rc == -ENOMEM)
            return ckpt_fail_memory(b->err, "applying rules");
    }
    return 0;
}
