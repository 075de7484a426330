/* Where rule files come from and how they end. */
#include "adapters/rule.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "adapters/builtin_rules.h"
#include "adapters/rule_modules.h"

void ckpt_rules_free(struct ckpt_rules *r) {
    if (!r)
        return;
    for (size_t i = 0; i < r->nrules; i++)
        ckpt_regex_free(r->rule[i].match);
    for (size_t i = 0; i < r->nmodules; i++)
        ckpt_regex_free(r->module[i].match);
    ckpt_arena_fini(&r->arena);
    free(r);
}

int ckpt_rules_builtin(const char *name, struct ckpt_rules **out, struct ckpt_err *err) {
    *out = NULL;
    const struct ckpt_builtin_rules *b = ckpt_builtin_rules;
    while (b->name && strcmp(b->name, name) != 0)
        b++;
    if (!b->name)
        return ckpt_fail(err, -ENOENT, "no rules called %s are built in", name);
    const int rc = ckpt_rules_parse((const char *)b->text, b->n, name, out, err);
    if (rc == 0)
        (*out)->builtin = true;
    return rc;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int ckpt_rules_load(const char *path, struct ckpt_rules **out, struct ckpt_err *err) {
    *out = NULL;
    const char *name = base_name(path);
    CKPT_AUTO(fclose) FILE *f = fopen(path, "re");
    if (!f)
        return ckpt_fail(err, -errno, "rules=%s: %m", name);
    CKPT_AUTO(free) char *text = malloc(CKPT_RULE_FILE_BYTES + 1);
    if (!text)
        return ckpt_fail_memory(err, "reading rules");
    const size_t n = fread(text, 1, CKPT_RULE_FILE_BYTES + 1, f);
    if (ferror(f))
        return ckpt_fail(err, -EIO, "rules=%s: cannot be read", name);
    const int rc = ckpt_rules_parse(text, n, name, out, err);
    if (rc || (*out)->nmodules == 0)
        return rc;
    ckpt_rules_free(*out);
    *out = NULL;
    return ckpt_fail(err, -EINVAL, "%s: \"modules\" is for dialects; -o kind= says it here", name);
}

#define INDEX CKPT_TEXT("${index}")

bool ckpt_rule_has_index(struct ckpt_text text) {
    return memmem(text.s, text.n, INDEX.s, INDEX.n) != NULL;
}

int ckpt_rule_put_index(struct ckpt_text text, int64_t index, struct ckpt_arena *a,
                        struct ckpt_text *out) {
    *out = text;
    if (!ckpt_rule_has_index(text))
        return 0;
    CKPT_AUTO(str) struct ckpt_str s = {0};
    const char *at = text.s, *end = text.s + text.n, *found;
    while ((found = memmem(at, (size_t)(end - at), INDEX.s, INDEX.n))) {
        ckpt_str_add(&s, at, (size_t)(found - at));
        ckpt_str_printf(&s, "%" PRId64, index);
        at = found + INDEX.n;
    }
    ckpt_str_add(&s, at, (size_t)(end - at));
    *out = s.failed ? (struct ckpt_text){0} : ckpt_text_copy(a, s.s, s.n);
    return out->s ? 0 : -ENOMEM;
}
