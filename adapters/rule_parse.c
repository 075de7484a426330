/*
 * Reading a rule file. cJSON makes the tree; everything is then checked as strictly as the format
 * is small: unknown and repeated fields, wrong types and numbers that are no integers are errors
 * that name the file, the rule and the field.
 */
#include "adapters/rule_parse.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "adapters/rule_modules.h"

static const char *type_name(const cJSON *v) {
    return cJSON_IsObject(v)   ? "an object"
           : cJSON_IsArray(v)  ? "an array"
           : cJSON_IsString(v) ? "a string"
           : cJSON_IsNumber(v) ? "a number"
           : cJSON_IsBool(v)   ? "true or false"
                               : "null";
}

int ckpt_rule_want(const struct ckpt_rule_reader *r, const char *field, const char *expected,
                   const cJSON *found) {
    return ckpt_fail(r->err, -EINVAL, "%s: \"%s\" is %s, expected %s", r->where, field,
                     found ? type_name(found) : "missing", expected);
}

/* Every member has one of these names, and no two have the same. */
static int check_members(const struct ckpt_rule_reader *r, const cJSON *object,
                         const char *const *names) {
    uint32_t seen = 0;
    const cJSON *member;
    cJSON_ArrayForEach(member, object) {
        uint32_t i = 0;
        while (names[i] && strcmp(names[i], member->string) != 0)
            i++;
        if (!names[i])
            return ckpt_fail(r->err, -EINVAL, "%s: no field is called \"%s\"", r->where,
                             member->string);
        if (seen & (1u << i))
            return ckpt_fail(r->err, -EINVAL, "%s: \"%s\" is there twice", r->where,
                             member->string);
        seen |= 1u << i;
    }
    return 0;
}

static const cJSON *get(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

bool ckpt_rule_integer(const cJSON *v, int64_t lo, int64_t *out) {
    if (!cJSON_IsNumber(v) || v->valuedouble != floor(v->valuedouble) ||
        v->valuedouble < (double)lo || v->valuedouble > 9007199254740992.0)
        return false;
    *out = (int64_t)v->valuedouble;
    return true;
}

struct ckpt_text ckpt_rule_copy(const struct ckpt_rule_reader *r, const cJSON *string) {
    return ckpt_text_copy(&r->rules->arena, string->valuestring, strlen(string->valuestring));
}

/* A string, or an array of strings; absent: none. */
static int read_strings(const struct ckpt_rule_reader *r, const cJSON *object, const char *field,
                        struct ckpt_text **out, uint32_t *n) {
    const cJSON *v = get(object, field);
    *n = 0;
    if (!v)
        return 0;
    const int count = cJSON_IsString(v) ? 1 : cJSON_IsArray(v) ? cJSON_GetArraySize(v) : 0;
    if (count < 1 || count > (int)CKPT_RULE_LIST_MAX)
        return ckpt_rule_want(r, field, "a string or an array of 1 to 64 of them", v);
    *out = ckpt_arena_array(&r->rules->arena, (size_t)count, sizeof **out);
    if (!*out)
        return ckpt_fail_memory(r->err, "reading rules");
    for (const cJSON *s = cJSON_IsString(v) ? v : v->child; *n < (uint32_t)count; s = s->next) {
        if (!cJSON_IsString(s))
            return ckpt_rule_want(r, field, "strings", s);
        (*out)[*n] = ckpt_rule_copy(r, s);
        if (!(*out)[(*n)++].s)
            return ckpt_fail_memory(r->err, "reading rules");
    }
    return 0;
}

static int read_kinds(const struct ckpt_rule_reader *r, const cJSON *object, const char *field,
                      const char *const **out, uint32_t *n) {
    struct ckpt_text *names = NULL;
    const int rc = read_strings(r, object, field, &names, n);
    if (rc || *n == 0)
        return rc;
    const char **kind = ckpt_arena_array(&r->rules->arena, *n, sizeof *kind);
    if (!kind)
        return ckpt_fail_memory(r->err, "reading rules");
    for (uint32_t i = 0; i < *n; i++) {
        kind[i] = ckpt_rule_kind_by_name(names[i]);
        if (!kind[i])
            return ckpt_fail(r->err, -EINVAL, "%s: \"%s\": no kind of module is called '%s'",
                             r->where, field, names[i].s);
    }
    *out = kind;
    return 0;
}

static int read_ranks(const struct ckpt_rule_reader *r, const cJSON *object,
                      struct ckpt_rule *rule) {
    const cJSON *v = get(object, "rank");
    for (const cJSON *e = cJSON_IsArray(v) ? v->child : v; e; e = e == v ? NULL : e->next) {
        int64_t rank;
        if (!ckpt_rule_integer(e, 0, &rank) || rank > 63)
            return ckpt_rule_want(r, "rank", "an integer from 0 to 63, or an array of them", e);
        rule->ranks |= 1ull << rank;
    }
    return v && !rule->ranks ? ckpt_rule_want(r, "rank", "an integer from 0 to 63", v) : 0;
}

static int read_when(const struct ckpt_rule_reader *r, const cJSON *v, bool variants,
                     struct ckpt_rule_when *when) {
    static const char *const names[] = {"exists", "absent", "variant", NULL};
    *when = (struct ckpt_rule_when){.variant = -1};
    if (!v)
        return 0;
    if (!cJSON_IsObject(v))
        return ckpt_rule_want(r, "when", "an object", v);
    struct ckpt_text *exists = NULL, *absent = NULL;
    int rc = check_members(r, v, names);
    if (rc == 0)
        rc = read_strings(r, v, "exists", &exists, &when->nexists);
    if (rc == 0)
        rc = read_strings(r, v, "absent", &absent, &when->nabsent);
    if (rc)
        return rc;
    when->exists = exists;
    when->absent = absent;
    const cJSON *variant = get(v, "variant");
    if (!variant)
        return 0;
    if (!variants || !cJSON_IsString(variant))
        return ckpt_rule_want(r, "variant", variants ? "a string" : "nothing here", variant);
    for (uint32_t i = 0; i < r->rules->nvariants; i++)
        if (ckpt_text_is(r->rules->variant_name[i], variant->valuestring))
            when->variant = (int32_t)i;
    return when->variant >= 0 ? 0
                              : ckpt_fail(r->err, -EINVAL, "%s: no variant is called \"%s\"",
                                          r->where, variant->valuestring);
}

static int read_cast(const struct ckpt_rule_reader *r, const cJSON *object, enum ckpt_dtype *out) {
    static const struct {
        const char *name;
        enum ckpt_dtype dtype;
    } casts[] = {
        {"f16", CKPT_DT_F16}, {"bf16", CKPT_DT_BF16}, {"f32", CKPT_DT_F32}, {"f64", CKPT_DT_F64}};
    const cJSON *v = get(object, "cast");
    *out = CKPT_DT_NONE;
    for (size_t i = 0; cJSON_IsString(v) && i < sizeof casts / sizeof casts[0]; i++)
        if (strcmp(v->valuestring, casts[i].name) == 0)
            *out = casts[i].dtype;
    return v && *out == CKPT_DT_NONE
               ? ckpt_rule_want(r, "cast", "\"f16\", \"bf16\", \"f32\" or \"f64\"", v)
               : 0;
}

/* The replacement as PCRE2 will see it: ${index} is a number by then. */
static int check_template(const struct ckpt_rule_reader *r, struct ckpt_rule *rule,
                          struct ckpt_text text) {
    struct ckpt_text expanded;
    if (ckpt_rule_put_index(text, 0, &r->rules->arena, &expanded))
        return ckpt_fail_memory(r->err, "reading rules");
    return ckpt_regex_check_replacement(rule->match, expanded, r->err);
}

/* The operation that makes several targets, or NULL; two are an error. */
static int fan_of(const struct ckpt_rule_reader *r, struct ckpt_rule_op *op, uint32_t n,
                  struct ckpt_rule_op **out) {
    *out = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (op[i].kind != CKPT_RULE_SPLIT && op[i].kind != CKPT_RULE_UNSTACK)
            continue;
        if (*out)
            return ckpt_fail(r->err, -EINVAL,
                             "%s: \"ops\": only one split or unstack makes sense in one list",
                             r->where);
        *out = &op[i];
    }
    return 0;
}

/* name, ops and cast of a rule or of one of its targets. Several names are as many targets. */
static int read_target(const struct ckpt_rule_reader *r, const cJSON *object,
                       struct ckpt_rule *rule, struct ckpt_rule_target *target, uint32_t *n) {
    struct ckpt_text *name = NULL;
    uint32_t nnames, nop = 0;
    struct ckpt_rule_op *op = NULL, *fan = NULL;
    enum ckpt_dtype cast = CKPT_DT_NONE;
    int rc = read_strings(r, object, "name", &name, &nnames);
    if (rc == 0)
        rc = ckpt_rule_read_ops(r, get(object, "ops"), &op, &nop);
    if (rc == 0)
        rc = read_cast(r, object, &cast);
    if (rc == 0)
        rc = fan_of(r, op, nop, &fan);
    if (rc)
        return rc;
    const bool list = cJSON_IsArray(get(object, "name"));
    if (list && (!fan || (fan->kind == CKPT_RULE_SPLIT && fan->count != (int64_t)nnames)))
        return ckpt_fail(r->err, -EINVAL,
                         "%s: %u names need a split into %u, or an unstack, in \"ops\"", r->where,
                         nnames, nnames);
    if (fan && !list && !(nnames && ckpt_rule_has_index(name[0])))
        return ckpt_fail(r->err, -EINVAL,
                         "%s: the targets of a split or unstack need an array of names, or one "
                         "name with ${index}",
                         r->where);
    for (uint32_t i = 0; rc == 0 && i < nnames; i++)
        rc = check_template(r, rule, name[i]);
    for (uint32_t i = 0; rc == 0 && i < (list ? nnames : 1); i++) {
        if (*n == CKPT_RULE_LIST_MAX)
            return ckpt_fail(r->err, -EINVAL, "%s: more than 64 targets", r->where);
        struct ckpt_rule_op *own = op;
        if (list) { /* each name has its own block */
            own = ckpt_arena_array(&r->rules->arena, nop, sizeof *own);
            if (!own)
                return ckpt_fail_memory(r->err, "reading rules");
            memcpy(own, op, nop * sizeof *own);
            own[fan - op].which = i;
            own[fan - op].count = nnames;
        }
        target[(*n)++] = (struct ckpt_rule_target){.name = nnames ? name[i] : (struct ckpt_text){0},
                                                   .op = own,
                                                   .nop = nop,
                                                   .cast = cast,
                                                   .alias = cJSON_IsTrue(get(object, "alias"))};
    }
    return rc;
}

static int read_targets(const struct ckpt_rule_reader *r, const cJSON *object,
                        struct ckpt_rule *rule) {
    static const char *const names[] = {"name", "ops", "cast", "alias", NULL};
    struct ckpt_rule_target *target =
        ckpt_arena_array(&r->rules->arena, CKPT_RULE_LIST_MAX, sizeof *target);
    if (!target)
        return ckpt_fail_memory(r->err, "reading rules");
    rule->target = target;
    const cJSON *list = get(object, "targets"), *entry;
    if (!list)
        return read_target(r, object, rule, target, &rule->ntargets);
    if (!cJSON_IsArray(list) || !list->child)
        return ckpt_rule_want(r, "targets", "an array of objects", list);
    for (size_t i = 0; names[i]; i++)
        if (get(object, names[i]))
            return ckpt_fail(r->err, -EINVAL, "%s: \"%s\" beside \"targets\"; put it into them",
                             r->where, names[i]);
    cJSON_ArrayForEach(entry, list) {
        int rc = cJSON_IsObject(entry) ? 0 : ckpt_rule_want(r, "targets", "objects", entry);
        if (rc == 0)
            rc = check_members(r, entry, names);
        if (rc == 0 && !get(entry, "name"))
            rc = ckpt_rule_want(r, "name", "a string", NULL);
        if (rc == 0 && get(entry, "alias") && !cJSON_IsBool(get(entry, "alias")))
            rc = ckpt_rule_want(r, "alias", "true or false", get(entry, "alias"));
        if (rc == 0)
            rc = read_target(r, entry, rule, target, &rule->ntargets);
        if (rc)
            return rc;
    }
    return 0;
}

/* Keys in when and concat are templates too. */
static int check_keys(const struct ckpt_rule_reader *r, struct ckpt_rule *rule) {
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < rule->when.nexists; i++)
        rc = check_template(r, rule, rule->when.exists[i]);
    for (uint32_t i = 0; rc == 0 && i < rule->when.nabsent; i++)
        rc = check_template(r, rule, rule->when.absent[i]);
    for (uint32_t t = 0; t < rule->ntargets; t++)
        for (uint32_t o = 0; o < rule->target[t].nop; o++)
            for (uint32_t k = 0; rc == 0 && k < rule->target[t].op[o].njoin; k++)
                if (rule->target[t].op[o].join[k].key.s)
                    rc = check_template(r, rule, rule->target[t].op[o].join[k].key);
    return rc;
}

/* What a rule computes is matched again, under its new name, by all rules: there it gets its kind,
 * its layout and its cast. */
static int check_computing(const struct ckpt_rule_reader *r, const struct ckpt_rule *rule) {
    bool computes = false;
    for (uint32_t t = 0; t < rule->ntargets; t++)
        for (uint32_t o = 0; o < rule->target[t].nop; o++)
            computes |= rule->target[t].op[o].kind >= CKPT_RULE_WEIGHT_NORM;
    const struct ckpt_rule_target *const only = &rule->target[0];
    if (!computes || (rule->ntargets == 1 && only->nop == 1 && only->name.s &&
                      only->cast == CKPT_DT_NONE && rule->nkind == 0))
        return 0;
    return ckpt_fail(
        r->err, -EINVAL,
        "%s: a rule that computes has a \"name\" and no other operation, kind or cast; "
        "a second rule can match that name",
        r->where);
}

/* A rule for what is inside a module renames, and nothing else. */
static int check_within(const struct ckpt_rule_reader *r, const struct ckpt_rule *rule) {
    const struct ckpt_rule_target *const only = &rule->target[0];
    if (!ckpt_rule_is_within(rule) ||
        (rule->ntargets == 1 && only->nop == 0 && only->cast == CKPT_DT_NONE))
        return 0;
    return ckpt_fail(r->err, -EINVAL,
                     "%s: a rule with \"within\" has a \"name\" at most, no operation, targets or "
                     "cast; a second rule can match that name",
                     r->where);
}

static int read_rule(struct ckpt_rule_reader *r, const cJSON *v, struct ckpt_rule *rule) {
    static const char *const names[] = {"match", "kind", "within",  "rank",  "when", "name",
                                        "ops",   "cast", "targets", "about", NULL};
    const char *prefix = ckpt_arena_printf(&r->rules->arena, "%s: ", r->where);
    if (!prefix)
        return ckpt_fail_memory(r->err, "reading rules");
    rule->where = r->where;
    if (!cJSON_IsObject(v))
        return ckpt_fail(r->err, -EINVAL, "%s is %s, expected an object", r->where, type_name(v));
    if (cJSON_IsString(get(v, "about")))
        rule->about = ckpt_rule_copy(r, get(v, "about"));
    int rc = check_members(r, v, names);
    const cJSON *match = get(v, "match");
    if (rc == 0 && !cJSON_IsString(match))
        rc = ckpt_rule_want(r, "match", "a string", match);
    if (rc == 0)
        rc = ckpt_regex_new(ckpt_text_of(match->valuestring), true, prefix, &rule->match, r->err);
    if (rc == 0)
        rc = read_kinds(r, v, "kind", &rule->kind, &rule->nkind);
    if (rc == 0)
        rc = read_kinds(r, v, "within", &rule->within, &rule->nwithin);
    if (rc == 0)
        rc = read_ranks(r, v, rule);
    if (rc == 0)
        rc = read_when(r, get(v, "when"), true, &rule->when);
    if (rc == 0)
        rc = read_targets(r, v, rule);
    if (rc == 0)
        rc = check_computing(r, rule);
    if (rc == 0)
        rc = check_within(r, rule);
    return rc ? rc : check_keys(r, rule);
}

static int read_variants(struct ckpt_rule_reader *r, const cJSON *v) {
    struct ckpt_rules *rules = r->rules;
    const cJSON *entry;
    if (!v)
        return 0;
    if (!cJSON_IsObject(v) || cJSON_GetArraySize(v) > (int)CKPT_RULE_LIST_MAX)
        return ckpt_rule_want(r, "variants", "an object of at most 64 variants", v);
    rules->variant = ckpt_arena_array(&rules->arena, CKPT_RULE_LIST_MAX, sizeof *rules->variant);
    rules->variant_name =
        ckpt_arena_array(&rules->arena, CKPT_RULE_LIST_MAX, sizeof *rules->variant_name);
    if (!rules->variant || !rules->variant_name)
        return ckpt_fail_memory(r->err, "reading rules");
    cJSON_ArrayForEach(entry, v) {
        const int rc = cJSON_IsObject(entry)
                           ? read_when(r, entry, false, &rules->variant[rules->nvariants])
                           : ckpt_rule_want(r, entry->string, "an object", entry);
        if (rc)
            return rc;
        rules->variant_name[rules->nvariants] =
            ckpt_text_copy(&rules->arena, entry->string, strlen(entry->string));
        if (!rules->variant_name[rules->nvariants++].s)
            return ckpt_fail_memory(r->err, "reading rules");
    }
    return 0;
}

/* One entry of "modules". */
static int read_module(const struct ckpt_rule_reader *r, const cJSON *v,
                       struct ckpt_rule_module *module) {
    static const char *const names[] = {"match", "kind", "adds_one", NULL};
    const cJSON *const match = get(v, "match"), *const kind = get(v, "kind");
    if (!cJSON_IsObject(v))
        return ckpt_rule_want(r, "modules", "objects", v);
    const int rc = check_members(r, v, names);
    if (rc)
        return rc;
    if (!cJSON_IsString(match) || !cJSON_IsString(kind))
        return ckpt_rule_want(r, match ? "kind" : "match", "a string", match ? kind : match);
    module->kind = ckpt_kind_by_name(ckpt_text_of(kind->valuestring));
    module->adds_one = cJSON_IsTrue(get(v, "adds_one"));
    if (!module->kind)
        return ckpt_fail(r->err, -EINVAL, "%s: \"modules\": no kind of module is called '%s'",
                         r->where, kind->valuestring);
    return ckpt_regex_new(ckpt_text_of(match->valuestring), true, r->where, &module->match, r->err);
}

static int read_modules(const struct ckpt_rule_reader *r, const cJSON *list) {
    struct ckpt_rules *const rules = r->rules;
    const cJSON *entry;
    int rc = 0;
    if (!list)
        return 0;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > (int)CKPT_RULE_LIST_MAX)
        return ckpt_rule_want(r, "modules", "an array of at most 64 objects", list);
    rules->module = ckpt_arena_array(&rules->arena, CKPT_RULE_LIST_MAX, sizeof *rules->module);
    if (!rules->module)
        return ckpt_fail_memory(r->err, "reading rules");
    cJSON_ArrayForEach(entry, list) {
        rc = read_module(r, entry, &rules->module[rules->nmodules++]);
        if (rc)
            break;
    }
    return rc;
}

static int read_file(struct ckpt_rule_reader *r, const cJSON *root) {
    static const char *const names[] = {"about", "closed", "variants", "modules", "rules", NULL};
    struct ckpt_rules *rules = r->rules;
    if (!cJSON_IsObject(root))
        return ckpt_fail(r->err, -EINVAL, "%s: the file is %s, expected an object", r->where,
                         type_name(root));
    int rc = check_members(r, root, names);
    const cJSON *list = get(root, "rules"), *closed = get(root, "closed"), *entry;
    if (rc == 0 && closed && !cJSON_IsBool(closed))
        rc = ckpt_rule_want(r, "closed", "true or false", closed);
    if (rc == 0 && !cJSON_IsArray(list))
        rc = ckpt_rule_want(r, "rules", "an array", list);
    if (rc == 0)
        rc = read_variants(r, get(root, "variants"));
    if (rc == 0)
        rc = read_modules(r, get(root, "modules"));
    if (rc)
        return rc;
    rules->closed = cJSON_IsTrue(closed);
    const size_t n = (size_t)cJSON_GetArraySize(list);
    if (n > CKPT_RULES_MAX)
        return ckpt_fail(r->err, -EINVAL, "%s: %zu rules; at most %u are allowed", r->where, n,
                         CKPT_RULES_MAX);
    rules->rule = ckpt_arena_array(&rules->arena, n, sizeof *rules->rule);
    if (!rules->rule)
        return ckpt_fail_memory(r->err, "reading rules");
    cJSON_ArrayForEach(entry, list) {
        r->where = ckpt_arena_printf(&rules->arena, "%s: rule %zu", rules->name, rules->nrules + 1);
        if (!r->where)
            return ckpt_fail_memory(r->err, "reading rules");
        rc = read_rule(r, entry, &rules->rule[rules->nrules++]);
        if (rc)
            return rc;
    }
    return 0;
}

static void auto_tree(cJSON **tree) {
    cJSON_Delete(*tree);
}

/* Where editors say that byte `at` is. */
static int fail_at(const char *name, const char *what, const char *text, size_t at,
                   struct ckpt_err *err) {
    size_t line = 1, start = 0;
    for (size_t i = 0; i < at; i++) {
        if (text[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    return ckpt_fail(err, -EINVAL, "%s: not %s at byte %zu (line %zu, column %zu)", name, what, at,
                     line, at - start + 1);
}

static int parse(struct ckpt_rules *rules, const char *text, size_t n, struct ckpt_err *err) {
    struct ckpt_rule_reader r = {.rules = rules, .where = rules->name, .err = err};
    const size_t valid = ckpt_utf8_valid(text, n);
    if (valid != n || memchr(text, '\0', n))
        return fail_at(rules->name, "UTF-8 text", text,
                       valid != n ? valid : (size_t)((char *)memchr(text, '\0', n) - text), err);
    const char *end = text;
    __attribute__((cleanup(auto_tree))) cJSON *root =
        cJSON_ParseWithLengthOpts(text, n, &end, false);
    while (root && end < text + n && strchr(" \t\r\n", *end))
        end++;
    if (!root || end != text + n)
        return fail_at(rules->name, "JSON", text, (size_t)(end - text), err);
    return read_file(&r, root);
}

int ckpt_rules_parse(const char *text, size_t n, const char *name, struct ckpt_rules **out,
                     struct ckpt_err *err) {
    *out = NULL;
    if (n > CKPT_RULE_FILE_BYTES)
        return ckpt_fail(err, -EINVAL, "%s: %zu bytes; a rule file has at most %u", name, n,
                         CKPT_RULE_FILE_BYTES);
    CKPT_AUTO(rules) struct ckpt_rules *rules = calloc(1, sizeof *rules);
    if (!rules)
        return ckpt_fail_memory(err, "reading rules");
    rules->settled = -1;
    rules->name = ckpt_arena_printf(&rules->arena, "%s", name);
    if (!rules->name)
        return ckpt_fail_memory(err, "reading rules");
    const int rc = parse(rules, text, n, err);
    if (rc == 0)
        *out = CKPT_STEAL(rules);
    return rc;
}
