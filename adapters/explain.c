/*
 * Explanations, collected while a model is built. Nothing here decides anything: modules were
 * decided, keys renamed, and rules are judged by the function that also applies them.
 */
#include "adapters/explain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/rename.h"
#include "adapters/rule.h"

void ckpt_explain_fini(struct ckpt_explain *e) {
    ckpt_arena_fini(&e->arena);
}

/* A computed weight is a copy of its v, with v's own key. */
static bool is_source(const struct ckpt_item *item, const struct ckpt_explained *x) {
    return item->tensor->key.s == x->source->key.s;
}

/* --- modules --- */

static bool decided_by(const struct ckpt_decision *d, const char *rung) {
    return d->decided_by && strcmp(d->decided_by, rung) == 0;
}

static const char *say_option(struct ckpt_explain *e, const struct ckpt_build *b,
                              const struct ckpt_decision *d) {
    (void)e, (void)d;
    return b->options->nkind ? "no -o kind= matches the module" : "no -o kind= is given";
}

static const char *say_graph(struct ckpt_explain *e, const struct ckpt_build *b,
                             const struct ckpt_decision *d) {
    const struct ckpt_text cls = d->graph_class;
    if (!b->options->graph && !b->checkpoint->graph)
        return "there is no graph";
    if (d->graph_kind)
        return "its operations";
    if (cls.n)
        return ckpt_arena_printf(&e->arena, "the class %.*s%s", CKPT_TEXT_ARGS(cls),
                                 decided_by(d, "graph") ? "" : " tells nothing");
    return "no operation on its tensors tells";
}

static const char *say_class(struct ckpt_explain *e, const struct ckpt_build *b,
                             const struct ckpt_decision *d) {
    (void)b;
    if (!d->record)
        return "the file has no class for it";
    return ckpt_arena_printf(&e->arena, "%.*s%s", CKPT_TEXT_ARGS(d->record->cls),
                             decided_by(d, "class") ? "" : " tells nothing");
}

static const char *say_structure(struct ckpt_explain *e, const struct ckpt_build *b,
                                 const struct ckpt_decision *d) {
    (void)e, (void)b;
    return decided_by(d, "structure") ? "names and shapes of its tensors, or what holds it"
                                      : "names and shapes of its tensors tell nothing";
}

static const char *say_dialect(struct ckpt_explain *e, const struct ckpt_build *b,
                               const struct ckpt_decision *d) {
    (void)d;
    return ckpt_arena_printf(&e->arena, "dialect=%s has it there", b->model->dialect);
}

/* Only files of ours have one: said where it decides. */
static const char *say_record(struct ckpt_explain *e, const struct ckpt_build *b,
                              const struct ckpt_decision *d) {
    (void)e, (void)b, (void)d;
    return "the file's metadata say so (mount.ckpt.kinds)";
}

static const char *say_name(struct ckpt_explain *e, const struct ckpt_build *b,
                            const struct ckpt_decision *d) {
    (void)e, (void)b;
    return decided_by(d, "name") ? "its name" : "its name tells nothing";
}

static const char *say_default(struct ckpt_explain *e, const struct ckpt_build *b,
                               const struct ckpt_decision *d) {
    (void)e, (void)b;
    return decided_by(d, "default") ? "what is usual" : "it is left as it is";
}

static const struct {
    const char *name;
    const char *(*say)(struct ckpt_explain *e, const struct ckpt_build *b,
                       const struct ckpt_decision *d);
} rungs[] = {{"option", say_option}, {"dialect", say_dialect}, {"record", say_record},
             {"graph", say_graph},   {"class", say_class},     {"structure", say_structure},
             {"name", say_name},     {"default", say_default}};
#define RUNGS (sizeof rungs / sizeof rungs[0])

/* The rungs down to the one that decided; all, if none did. */
static int climb(struct ckpt_explain *e, const struct ckpt_build *b, const struct ckpt_decision *d,
                 struct ckpt_explained *x) {
    bool decided = false;
    x->rung = ckpt_arena_array(&e->arena, RUNGS, sizeof *x->rung);
    for (size_t i = 0; x->rung && i < RUNGS && !decided; i++) {
        decided = decided_by(d, rungs[i].name);
        if (!decided && (rungs[i].say == say_record || rungs[i].say == say_dialect))
            continue;
        const char *said = decided && i == 0 ? "-o kind=" : rungs[i].say(e, b, d);
        if (said && decided)
            said = ckpt_arena_printf(&e->arena, "%s: %s", said, d->kind);
        if (!said)
            return -ENOMEM;
        x->rung[x->nrungs++] = (struct ckpt_explain_rung){rungs[i].name, said};
    }
    return x->rung ? 0 : -ENOMEM;
}

/* "layers.0: encoder_layer:pre, by its class", from the inside out. */
static int note_holders(struct ckpt_explain *e, const struct ckpt_decision *d,
                        struct ckpt_explained *x) {
    x->holder = ckpt_arena_array(&e->arena, CKPT_MODULE_LEVELS, sizeof *x->holder);
    if (!x->holder)
        return -ENOMEM;
    for (d = d->within; d && x->nholders < CKPT_MODULE_LEVELS; d = d->within) {
        if (!d->kind)
            continue;
        const struct ckpt_text path = d->path;
        const char *s = ckpt_arena_printf(&e->arena, "%.*s: %s, by %s",
                                          CKPT_TEXT_ARGS(path.n ? path : CKPT_TEXT("the model")),
                                          d->kind, d->decided_by);
        if (!s)
            return -ENOMEM;
        x->holder[x->nholders++] = s;
    }
    return 0;
}

static int explain_module(struct ckpt_explain *e, const struct ckpt_build *b,
                          const struct ckpt_item *item, struct ckpt_explained *x) {
    const struct ckpt_decision *d = &item->decision;
    if (!d->path.s)
        return 0;
    x->module = ckpt_text_copy(&e->arena, d->path.s, d->path.n);
    x->kind = d->kind;
    x->decided_by = d->decided_by;
    if (!x->module.s)
        return -ENOMEM;
    const int rc = climb(e, b, d, x);
    return rc ? rc : note_holders(e, d, x);
}

/* --- names --- */

static int add_step(struct ckpt_explain *e, struct ckpt_explained *x, struct ckpt_text by,
                    struct ckpt_text key) {
    const struct ckpt_text own = ckpt_text_copy(&e->arena, key.s, key.n);
    x->step[x->nsteps++] = (struct ckpt_explain_step){by, own};
    return by.s && own.s ? 0 : -ENOMEM;
}

/* Each map= once more, on this key alone. */
static int explain_names(struct ckpt_explain *e, struct ckpt_build *b, const struct ckpt_item *item,
                         struct ckpt_explained *x) {
    const struct ckpt_adapt_options *o = b->options;
    struct ckpt_text key = item->torch_key;
    x->step = ckpt_arena_array(&e->arena, o->nmap + 1, sizeof *x->step);
    if (!x->step)
        return -ENOMEM;
    for (size_t i = 0; item->renamed && i < o->nmap; i++) {
        size_t hits = 0;
        int rc = ckpt_rename_keys(&o->map[i], 1, &key, 1, &hits, &e->arena, b->err);
        const char *by = ckpt_arena_printf(&e->arena, "%s'%.*s'", o->map[i].where,
                                           CKPT_TEXT_ARGS(o->map[i].pattern));
        if (rc == 0 && hits)
            rc = by ? add_step(e, x, ckpt_text_of(by), key) : -ENOMEM;
        if (rc)
            return rc;
    }
    return item->renumbered ? add_step(e, x, CKPT_TEXT("contiguous"), item->key) : 0;
}

/* --- rules --- */

/* "norm or batch_norm" */
static void put_kinds(struct ckpt_str *s, const struct ckpt_rule *rule) {
    for (uint32_t i = 0; i < rule->nkind; i++)
        ckpt_str_printf(s, "%s%s", i ? " or " : "", rule->kind[i]);
}

static void put_ranks(struct ckpt_str *s, const struct ckpt_rule *rule) {
    const char *before = "";
    for (unsigned r = 0; r < 64; r++) {
        if (!(rule->ranks >> r & 1))
            continue;
        ckpt_str_printf(s, "%s%u", before, r);
        before = " or ";
    }
}

/* Every condition that does not hold; "" if all do. */
static void put_reasons(struct ckpt_str *s, const struct ckpt_rule *rule,
                        const struct ckpt_rule_verdict *v, const struct ckpt_item *item) {
    if (!v->match)
        ckpt_str_printf(s, "its match does not fit: %.*s",
                        CKPT_TEXT_ARGS(ckpt_regex_pattern(rule->match)));
    if (!v->kind) {
        ckpt_str_printf(s, "%sthe module is %s, the rule wants ", s->n ? "; " : "",
                        item->decision.rule_kind ? item->decision.rule_kind : "of no known kind");
        put_kinds(s, rule);
    }
    if (!v->rank) {
        ckpt_str_printf(s, "%sthe rank is %u, the rule wants ", s->n ? "; " : "",
                        item->tensor->ndim);
        put_ranks(s, rule);
    }
    if (v->match && !v->when)
        ckpt_str_printf(s, "%swhen: there is %s tensor %.*s", s->n ? "; " : "",
                        v->key_is_there ? "a" : "no", CKPT_TEXT_ARGS(v->key));
}

static void put_targets(struct ckpt_str *s, const struct ckpt_rule *rule) {
    const struct ckpt_rule_target *t = &rule->target[0];
    if (rule->ntargets > 1)
        ckpt_str_printf(s, "it takes it, for %u tensors", rule->ntargets);
    else if (t->nop == 0 && !t->name.s && t->cast == CKPT_DT_NONE)
        ckpt_str_puts(s, "it takes it and leaves it as it is");
    else
        ckpt_str_puts(s, "it takes it");
    for (uint32_t i = 0; i < t->nop; i++)
        ckpt_str_printf(s, "%s%s", i ? ", " : ": ", ckpt_rule_op_name(&t->op[i]));
    if (t->nop == 0 && t->name.s)
        ckpt_str_puts(s, ": rename");
}

static int add_rule(struct ckpt_explain *e, struct ckpt_explained *x, const struct ckpt_rule *rule,
                    bool took, const struct ckpt_str *why) {
    if (x->nrules == x->rules_cap) {
        const size_t cap = x->rules_cap ? 2 * x->rules_cap : 64;
        struct ckpt_explain_rule *bigger = ckpt_arena_array(&e->arena, cap, sizeof *bigger);
        if (!bigger)
            return -ENOMEM;
        for (size_t i = 0; i < x->nrules; i++)
            bigger[i] = x->rule[i];
        x->rule = bigger;
        x->rules_cap = cap;
    }
    const struct ckpt_text about =
        rule->about.s ? ckpt_text_copy(&e->arena, rule->about.s, rule->about.n) : rule->about;
    struct ckpt_explain_rule *r = &x->rule[x->nrules++];
    *r = (struct ckpt_explain_rule){
        .where = ckpt_arena_printf(&e->arena, "%s", rule->where),
        .about = about,
        .took = took,
        .why = why->failed ? NULL : ckpt_arena_copy(&e->arena, why->s, why->n)};
    return r->where && r->why && (about.s || !rule->about.s) ? 0 : -ENOMEM;
}

/* Of the rules that are built in, most are for other tensors: whoever prints may pass over them. */
static void note_unlike(struct ckpt_explained *x, const struct ckpt_rules *file, bool match) {
    if (x->nrules)
        x->rule[x->nrules - 1].unlike = file->builtin && !match;
}

static const char *why_not(const struct ckpt_rule *taken, const struct ckpt_rule *joiner) {
    return taken ? "has taken it" : joiner ? "joins it with another" : "cannot move its elements";
}

/* taken, joiner: the rules that take the item, or join it with another. */
static int explain_rule(struct ckpt_explain *e, struct ckpt_explained *x,
                        const struct ckpt_item *item, const struct ckpt_rule *rule,
                        const struct ckpt_rule_verdict *v, bool fits, const struct ckpt_rule *taken,
                        const struct ckpt_rule *joiner) {
    CKPT_AUTO(str) struct ckpt_str why = {0};
    const struct ckpt_rule *other = taken ? taken : joiner ? joiner : rule;
    if (!fits)
        put_reasons(&why, rule, v, item);
    else if (rule == taken)
        put_targets(&why, rule);
    else
        ckpt_str_printf(&why, "it would fit, but %s %s", other->where, why_not(taken, joiner));
    return add_rule(e, x, rule, fits && rule == taken, &why);
}

static struct ckpt_explained *find(struct ckpt_explain *e, const struct ckpt_item *item) {
    for (size_t i = 0; i < e->n; i++)
        if (is_source(item, &e->tensor[i]))
            return &e->tensor[i];
    return NULL;
}

/* In the pass of the computing rules another can only be in their way, and only if it asks for no
 * kind: kinds are not decided yet. */
static int explain_computing(struct ckpt_explain *e, struct ckpt_build *b,
                             const struct ckpt_strmap *keys, const struct ckpt_item *item,
                             struct ckpt_explained *x) {
    const struct ckpt_rule *taken = NULL;
    int rc = 0;
    for (size_t f = 0; rc == 0 && f < b->nrules; f++) {
        for (size_t r = 0; rc == 0 && r < b->rules[f]->nrules; r++) {
            struct ckpt_rule *rule = &b->rules[f]->rule[r];
            struct ckpt_rule_verdict v;
            if (rule->nkind || ckpt_rule_is_within(rule))
                continue;
            const int fits = ckpt_rule_judge(b, keys, b->rules[f], rule, item, &v);
            if (fits < 0)
                return fits;
            taken = fits && !taken ? rule : taken;
            if (ckpt_rule_computes(rule))
                rc = explain_rule(e, x, item, rule, &v, fits, taken, NULL);
            if (ckpt_rule_computes(rule))
                note_unlike(x, b->rules[f], v.match);
        }
    }
    return rc;
}

static int failed(struct ckpt_build *b, int rc) {
    return rc == -ENOMEM ? ckpt_fail_memory(b->err, "explaining") : rc;
}

int ckpt_explain_computing(struct ckpt_build *b) {
    struct ckpt_explain *e = b->options->explain;
    CKPT_AUTO(strmap) struct ckpt_strmap keys = {0};
    int rc = ckpt_rule_index_keys(b, &keys);
    for (size_t i = 0; rc == 0 && i < b->nitems; i++) {
        struct ckpt_explained *x = b->item[i].in_model ? find(e, &b->item[i]) : NULL;
        if (x)
            rc = explain_computing(e, b, &keys, &b->item[i], x);
    }
    return failed(b, rc);
}

static int explain_item(struct ckpt_explain *e, struct ckpt_build *b, const struct ckpt_item *item,
                        struct ckpt_explained *x) {
    x->in_model = item->in_model;
    x->torch_key = ckpt_text_copy(&e->arena, item->torch_key.s, item->torch_key.n);
    if (!x->torch_key.s)
        return -ENOMEM;
    if (!item->in_model)
        return 0;
    const int rc = explain_module(e, b, item, x);
    return rc ? rc : explain_names(e, b, item, x);
}

int ckpt_explain_items(struct ckpt_build *b) {
    struct ckpt_explain *e = b->options->explain;
    int rc = 0;
    for (size_t i = 0; i < e->n; i++)
        e->tensor[i].seen = true; /* without an item it went into another's computation */
    for (size_t i = 0; rc == 0 && i < b->nitems; i++) {
        struct ckpt_explained *x = find(e, &b->item[i]);
        if (x && !x->torch_key.s) /* of what a dialect made several of, the first */
            rc = explain_item(e, b, &b->item[i], x);
    }
    return failed(b, rc);
}

int ckpt_explain_within(struct ckpt_build *b, const struct ckpt_item *item,
                        const struct ckpt_rule *rule) {
    struct ckpt_explain *e = b->options->explain;
    const bool tried_out = item < b->item || item >= b->item + b->nitems; /* on a copy */
    struct ckpt_explained *x = tried_out ? NULL : find(e, item);
    if (!x)
        return 0;
    CKPT_AUTO(str) struct ckpt_str why = {0};
    ckpt_str_printf(&why, "it names what is inside the module: %.*s", CKPT_TEXT_ARGS(item->key));
    return failed(b, add_rule(e, x, rule, true, &why));
}

/* A rule for the inside of modules that renamed nothing here. */
static int explain_unused_within(struct ckpt_explain *e, struct ckpt_explained *x,
                                 const struct ckpt_rules *file, const struct ckpt_rule *rule) {
    CKPT_AUTO(str) struct ckpt_str why = {0};
    for (size_t i = 0; i < x->nrules; i++)
        if (strcmp(x->rule[i].where, rule->where) == 0)
            return 0;
    ckpt_str_puts(&why, "no module around it is of the kind, or it has another name there: ");
    for (uint32_t i = 0; i < rule->nwithin; i++)
        ckpt_str_printf(&why, "%s%s", i ? " or " : "", rule->within[i]);
    ckpt_str_printf(&why, ", %.*s", CKPT_TEXT_ARGS(ckpt_regex_pattern(rule->match)));
    const int rc = add_rule(e, x, rule, false, &why);
    note_unlike(x, file, false);
    return rc;
}

int ckpt_explain_file(struct ckpt_build *b, const struct ckpt_strmap *keys,
                      const struct ckpt_rules *file, const struct ckpt_item *item,
                      const struct ckpt_rule *taken, const struct ckpt_rule *joiner) {
    struct ckpt_explain *e = b->options->explain;
    struct ckpt_explained *x = find(e, item);
    int rc = 0;
    for (size_t r = 0; x && rc == 0 && r < file->nrules; r++) {
        struct ckpt_rule *rule = &file->rule[r];
        struct ckpt_rule_verdict v;
        if (ckpt_rule_computes(rule))
            continue;
        if (ckpt_rule_is_within(rule)) {
            rc = explain_unused_within(e, x, file, rule);
            continue;
        }
        const int fits = ckpt_rule_judge(b, keys, file, rule, item, &v);
        rc = fits < 0 ? fits : explain_rule(e, x, item, rule, &v, fits, taken, joiner);
        note_unlike(x, file, v.match);
    }
    if (x && joiner && !x->joined_by) {
        x->joined_by = ckpt_arena_printf(&e->arena, "%s", joiner->where);
        rc = rc == 0 && !x->joined_by ? -ENOMEM : rc;
    }
    return failed(b, rc);
}
