/*
 * Rules that say what is inside a module. Of each module that holds a tensor, the outermost first
 * and its own last, the first such rule that fits renames what stands below that module:
 *
 *     layers.0.self_attn.out_proj.weight
 *     layers.0             encoder_layer   self_attn.(.*) -> mha.$1    layers.0.mha.out_proj.weight
 *     layers.0.self_attn   mha             out_proj.(.*) -> output.$1  layers.0.mha.output.weight
 *     ...out_proj          linear          -
 *
 * The rules proper then see that name. So each module is described once, wherever it is used.
 */
#include <string.h>

#include "adapters/explain.h"
#include "adapters/rule.h"

enum { LEVELS_MAX = 64 };

/* How many segments of the item's key stand below the module at path. */
static size_t segments_below(struct ckpt_text torch_key, struct ckpt_text path) {
    size_t n = 1;
    for (size_t i = path.n ? path.n + 1 : 0; i < torch_key.n; i++)
        n += torch_key.s[i] == '.';
    return n;
}

/* Where the last n segments of key begin; renames may have left fewer. */
static size_t begin_of_last(struct ckpt_text key, size_t n) {
    size_t at = key.n;
    while (at > 0 && !(key.s[at - 1] == '.' && --n == 0))
        at--;
    return at;
}

static bool is_within(const struct ckpt_rule *rule, const struct ckpt_decision *d) {
    for (uint32_t i = 0; d->rule_kind && i < rule->nwithin; i++)
        if (strcmp(rule->within[i], d->rule_kind) == 0)
            return true;
    return false;
}

/* An item's key as one module sees it: what stands below the module, now and before any rule. */
struct below {
    struct ckpt_text text;
    size_t begin;            /* of it in the item's key */
    struct ckpt_text prefix; /* the key before any rule, up to the module */
};

static struct below look_below(const struct ckpt_item *item, const struct ckpt_decision *d,
                               struct ckpt_text before) {
    const size_t n = segments_below(item->torch_key, d->path);
    const size_t begin = begin_of_last(item->key, n);
    return (struct below){
        {item->key.s + begin, item->key.n - begin}, begin, {before.s, begin_of_last(before, n)}};
}

/* What the rule makes of the part below the module, put behind what stands before it. */
static int put_name(struct ckpt_build *b, struct ckpt_rule *rule, const struct below *below,
                    struct ckpt_item *item) {
    const struct ckpt_rule_target *target = &rule->target[0];
    struct ckpt_text name;
    rule->taken++;
    if (!target->name.s)
        return 0;
    int rc = ckpt_rule_expand(b, rule, below->text, target->name, 0, &name);
    if (rc == 0)
        rc = ckpt_rule_put_before(b, (struct ckpt_text){item->key.s, below->begin}, &name);
    if (rc)
        return rc;
    item->key = name;
    item->renamed = true;
    return 0;
}

/* The file's first rule for what is inside this module. */
static int rename_below(struct ckpt_build *b, const struct ckpt_strmap *keys,
                        const struct ckpt_rules *file, const struct ckpt_decision *d,
                        struct ckpt_text before, struct ckpt_item *item) {
    struct below below = {0};
    for (size_t r = 0; r < file->nrules; r++) {
        struct ckpt_rule *rule = &file->rule[r];
        if (!is_within(rule, d))
            continue;
        if (!below.text.s)
            below = look_below(item, d, before);
        const int rc = ckpt_rule_takes_below(b, keys, file, rule, item, below.text, below.prefix);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        const int named = put_name(b, rule, &below, item);
        return named == 0 && b->options->explain ? ckpt_explain_within(b, item, rule) : named;
    }
    return 0;
}

int ckpt_rule_rename_within(struct ckpt_build *b, const struct ckpt_strmap *keys,
                            const struct ckpt_rules *file, struct ckpt_item *item) {
    const struct ckpt_decision *chain[LEVELS_MAX];
    const struct ckpt_text before = item->key;
    size_t n = 0;
    if (!item->decision.path.s)
        return 0;
    for (const struct ckpt_decision *d = &item->decision; d && n < LEVELS_MAX; d = d->within)
        chain[n++] = d;
    while (n-- > 0) {
        const int rc = rename_below(b, keys, file, chain[n], before, item);
        if (rc)
            return rc;
    }
    return 0;
}
