/* Kinds by path: one regex after the other. */
#include "adapters/rule_modules.h"

/* The file's first entry that matches the module's path. */
static int decide(struct ckpt_build *b, const struct ckpt_rules *file,
                  struct ckpt_decision *module) {
    for (size_t i = 0; i < file->nmodules; i++) {
        const struct ckpt_rule_module *const row = &file->module[i];
        const int rc = ckpt_regex_match(row->match, module->path, b->err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        module->kind = module->rule_kind = row->kind;
        module->decided_by = "dialect";
        module->adds_one = row->adds_one;
        return 0;
    }
    return 0;
}

int ckpt_rule_decide_modules(struct ckpt_build *b, const struct ckpt_rules *file) {
    CKPT_AUTO(modules) struct ckpt_modules m = {0};
    int rc = ckpt_gather_modules(b, &m);
    for (size_t i = 0; rc == 0 && i < m.n; i++)
        if (m.facts[i].owns)
            rc = decide(b, file, &m.decision[i]);
    if (rc == 0)
        ckpt_hand_over_decisions(b, &m);
    return rc;
}
