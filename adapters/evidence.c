/* The ladder: asks the rungs of the evidence about each module, strongest first. */
#include "adapters/evidence.h"

#include <errno.h>
#include <string.h>

#include "adapters/dialect.h"
#include "adapters/recorded_kinds.h"
#include "adapters/regex.h"

const char *const ckpt_kind_names[] = {"linear",
                                       "conv1d_hf",
                                       "embedding",
                                       "norm",
                                       "batch_norm",
                                       "conv",
                                       "conv_transpose",
                                       "prelu",
                                       "lstm",
                                       "gru",
                                       "rnn",
                                       "mha",
                                       "encoder_layer:pre",
                                       "encoder_layer:post",
                                       "decoder_layer:pre",
                                       "decoder_layer:post",
                                       "conv_transpose:kernel",
                                       "dense:1",
                                       "dense:2",
                                       "dense:3",
                                       "stack",
                                       "other",
                                       NULL};

const char *ckpt_kind_by_name(struct ckpt_text name) {
    for (size_t i = 0; ckpt_kind_names[i]; i++)
        if (ckpt_text_is(name, ckpt_kind_names[i]))
            return ckpt_kind_names[i];
    return NULL;
}

/* Kinds that only rules name: burn-store leaves instance norms alone, a Transformer layer of which
 * only the order of its norms is unknown is one all the same, and burn's attention does not say in
 * its names that PyTorch would keep q, k and v apart; of flax's kernels one must know which way
 * they lie. */
const char *ckpt_rule_kind_by_name(struct ckpt_text name) {
    static const char *const more[] = {"instance_norm", "encoder_layer", "decoder_layer",
                                       "mha:kdim", "mgu"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (ckpt_text_is(name, more[i]))
            return more[i];
    return ckpt_kind_by_name(name);
}

/* Whether the file's class says something else than the option, which wins. */
static bool contradicts(const struct ckpt_facts *f, const char *kind) {
    struct ckpt_decision d = {0};
    if (strcmp(kind, "other") == 0 || !ckpt_evidence_class(f, &d))
        return false;
    if (ckpt_is_layer(d.kind))
        ckpt_decide_norm_order(f, &d);
    return strncmp(kind, d.kind, strlen(d.kind)) != 0;
}

static int warn_contradicted(struct ckpt_build *b, const struct ckpt_mapping *map,
                             const struct ckpt_facts *f, size_t n) {
    return ckpt_build_warn(b,
                           "%s'%.*s' says %.*s, but the class of '%.*s' is %.*s; modules whose "
                           "class says something else: %zu",
                           map->where, CKPT_TEXT_ARGS(map->pattern), CKPT_TEXT_ARGS(map->value),
                           CKPT_TEXT_ARGS(f->path), CKPT_TEXT_ARGS(f->record->cls), n);
}

/* -o kind=: the last one that matches a module wins. */
static int decide_by_option(struct ckpt_build *b, struct ckpt_modules *m,
                            const struct ckpt_mapping *map) {
    const char *kind = ckpt_kind_by_name(map->value);
    struct ckpt_arena *a = &b->model->arena;
    if (!kind) {
        struct ckpt_text names[sizeof ckpt_kind_names / sizeof ckpt_kind_names[0]];
        size_t n = 0;
        for (; ckpt_kind_names[n]; n++)
            names[n] = ckpt_text_of(ckpt_kind_names[n]);
        return ckpt_fail(b->err, -EINVAL, "%s'%.*s': no kind of module is called '%.*s'%s",
                         map->where, CKPT_TEXT_ARGS(map->pattern), CKPT_TEXT_ARGS(map->value),
                         ckpt_build_did_you_mean(b, map->value, names, n));
    }
    CKPT_AUTO(regex) struct ckpt_regex *re = NULL;
    int rc = ckpt_regex_new(map->pattern, false, map->where, &re, b->err);
    size_t hits = 0, wrong = 0;
    const struct ckpt_facts *first = NULL;
    for (size_t i = 0; rc >= 0 && i < m->n; i++) {
        rc = ckpt_regex_match(re, m->facts[i].path, b->err);
        if (rc <= 0 || !ckpt_facts_allow(&m->facts[i], kind))
            continue;
        hits++;
        if (contradicts(&m->facts[i], kind) && wrong++ == 0)
            first = &m->facts[i];
        m->decision[i].kind = m->decision[i].rule_kind = kind;
        m->decision[i].decided_by = "option";
    }
    if (rc >= 0 && first)
        return warn_contradicted(b, map, first, wrong);
    if (rc < 0 || hits)
        return rc < 0 ? rc : 0;
    struct ckpt_text *paths = ckpt_arena_array(a, m->n, sizeof *paths);
    for (size_t i = 0; paths && i < m->n; i++)
        paths[i] = m->facts[i].path;
    const struct ckpt_text literal = ckpt_regex_literal(map->pattern, a);
    return ckpt_build_warn(b, "%s'%.*s' matches no module%s", map->where,
                           CKPT_TEXT_ARGS(map->pattern),
                           ckpt_build_did_you_mean(b, literal, paths, paths ? m->n : 0));
}

/* What PyTorch's names and layout leave nothing of. */
static bool is_of_flax(struct ckpt_text kind) {
    return ckpt_text_is(kind, "stack") || ckpt_text_is(kind, "conv_transpose:kernel") ||
           ckpt_text_starts(kind, "dense:");
}

int ckpt_decide_by_options(struct ckpt_build *b, struct ckpt_modules *m, bool stacks) {
    const bool flax = strcmp(b->model->dialect, "flax") == 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < b->options->nkind; i++) {
        const struct ckpt_mapping *const map = &b->options->kind[i];
        const bool is_stack = ckpt_text_is(map->value, "stack");
        if (is_of_flax(map->value) && !flax)
            rc = ckpt_build_warn(b, "%s'%.*s': only dialect=flax has the kind %.*s", map->where,
                                 CKPT_TEXT_ARGS(map->pattern), CKPT_TEXT_ARGS(map->value));
        else if (is_stack == stacks)
            rc = decide_by_option(b, m, map);
    }
    return rc;
}

/* The last names of modules that are known to be Conv1D: in a GPT-2 whose c_fc is one by its shape,
 * the square c_proj is one too. */
static int conv1d_names(struct ckpt_build *b, const struct ckpt_modules *m,
                        struct ckpt_strmap *names) {
    for (size_t i = 0; i < m->n; i++) {
        const char *kind = m->decision[i].kind;
        if (!kind || strcmp(kind, "conv1d_hf") != 0)
            continue;
        const struct ckpt_text name = ckpt_module_last_name(m->facts[i].path);
        if (ckpt_strmap_add(names, name, i, NULL) == -ENOMEM)
            return ckpt_fail_memory(b->err, "looking at the modules");
    }
    return 0;
}

/* Between the option and the name, strongest first. */
static bool (*const rungs[])(const struct ckpt_facts *f, struct ckpt_decision *d) = {
    ckpt_evidence_graph, ckpt_evidence_class, ckpt_evidence_structure};

static void climb(struct ckpt_modules *m) {
    for (size_t i = 0; i < m->n; i++) {
        const struct ckpt_facts *f = &m->facts[i];
        struct ckpt_decision *d = &m->decision[i];
        d->facts = f;
        d->within = f->within == CKPT_MODULE_NONE ? NULL : &m->decision[f->within];
        for (size_t r = 0; !d->kind && r < sizeof rungs / sizeof rungs[0]; r++)
            rungs[r](f, d);
        if (ckpt_is_layer(d->kind))
            ckpt_decide_norm_order(f, d);
    }
}

/* What the modules of the source are was looked at in its own names; there kind= acted, too. */
static bool is_known(const struct ckpt_build *b) {
    return b->dialect && b->dialect->decide && ckpt_dialect_acts(b);
}

/* What a module was there, or what the dialect's file says it is, it is here. */
static void decide_by_dialect(struct ckpt_build *b, struct ckpt_modules *m) {
    for (size_t i = 0; i < b->nitems; i++) {
        const struct ckpt_decision *const known = &b->item[i].decision;
        if (!b->item[i].in_model || !known->kind)
            continue;
        struct ckpt_decision *const d = &m->decision[m->of_item[i]];
        d->kind = d->rule_kind = known->kind;
        d->decided_by = known->decided_by;
        d->adds_one = known->adds_one;
    }
}

static int decide(struct ckpt_build *b, struct ckpt_modules *m) {
    decide_by_dialect(b, m);
    int rc = is_known(b) ? 0 : ckpt_decide_by_options(b, m, false);
    if (rc)
        return rc;
    climb(m);
    CKPT_AUTO(strmap) struct ckpt_strmap conv1d = {0};
    rc = conv1d_names(b, m, &conv1d);
    for (size_t i = 0; rc == 0 && i < m->n; i++) {
        struct ckpt_decision *d = &m->decision[i];
        const struct ckpt_text name = ckpt_module_last_name(m->facts[i].path);
        if (!d->kind && !ckpt_evidence_holder(&m->facts[i], d))
            ckpt_evidence_name(&m->facts[i], ckpt_strmap_get(&conv1d, name) != CKPT_STRMAP_ABSENT,
                               d);
    }
    ckpt_note_stacks(m);
    return rc;
}

int ckpt_decide_modules(struct ckpt_build *b) {
    CKPT_AUTO(modules) struct ckpt_modules m = {0};
    int rc = ckpt_gather_modules(b, &m);
    if (rc == 0)
        rc = decide(b, &m);
    for (size_t i = 0; rc == 0 && i < b->nitems; i++)
        if (b->item[i].in_model)
            ckpt_take_decision(&m, i, &b->item[i].decision);
    b->kinds_at_risk = rc == 0 && ckpt_kinds_at_risk(b, &m);
    return rc == 0 && b->options->layout == CKPT_LAYOUT_BURN ? ckpt_warn_modules(b, &m) : rc;
}
