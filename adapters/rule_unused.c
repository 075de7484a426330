/* Rules of the user's own that took no tensor: mostly a typing error, and then the model is not
 * what was meant. A rule with `when` may have been written for another variant of the model. */
#include <string.h>

#include "adapters/rule.h"

#define LISTED 3u

static bool is_unused(const struct ckpt_rule *rule) {
    const struct ckpt_rule_when *w = &rule->when;
    return rule->taken == 0 && w->nexists == 0 && w->nabsent == 0 && w->variant < 0;
}

static bool matches_any(const struct ckpt_rule *rule, const struct ckpt_text *key, size_t n) {
    bool found = false;
    for (size_t i = 0; i < n && !found; i++)
        found = ckpt_regex_match(rule->match, key[i], NULL) > 0;
    return found;
}

/* " rule 2 '(.*)\.qkv\.wieght'; did you mean 'attn.qkv.weight'?" */
static void put_rule(struct ckpt_build *b, const struct ckpt_rule *rule,
                     const struct ckpt_text *key, size_t nkeys, struct ckpt_str *s) {
    const struct ckpt_text pattern = ckpt_regex_pattern(rule->match);
    const struct ckpt_text literal = ckpt_regex_literal(pattern, &b->model->arena);
    const char *number = strrchr(rule->where, ':');
    ckpt_str_printf(
        s, "%s '%.*s'%s", number ? number + 1 : rule->where, CKPT_TEXT_ARGS(pattern),
        matches_any(rule, key, nkeys) ? "" : ckpt_build_did_you_mean(b, literal, key, nkeys));
}

static int warn(struct ckpt_build *b, const struct ckpt_rules *file, const struct ckpt_text *key,
                size_t nkeys) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    size_t n = 0;
    for (size_t r = 0; r < file->nrules; r++) {
        if (!is_unused(&file->rule[r]) || n++ >= LISTED)
            continue;
        ckpt_str_puts(&s, n > 1 ? ";" : "");
        put_rule(b, &file->rule[r], key, nkeys, &s);
    }
    if (s.failed)
        return ckpt_fail_memory(b->err, "applying rules");
    return n == 0 ? 0
                  : ckpt_build_warn(b,
                                    "rules=%s: %zu of %zu rules took no tensor:%s%s; --inspect "
                                    "--explain KEY says why",
                                    file->name, n, file->nrules, s.s, n > LISTED ? "; ..." : "");
}

int ckpt_rule_warn_unused(struct ckpt_build *b, const struct ckpt_rules *file) {
    struct ckpt_text *key = ckpt_arena_array(&b->model->arena, b->nitems, sizeof *key);
    size_t n = 0;
    if (!key)
        return ckpt_fail_memory(b->err, "applying rules");
    for (size_t i = 0; i < b->nitems; i++)
        if (b->item[i].in_model)
            key[n++] = b->item[i].torch_key;
    return warn(b, file, key, n);
}
