/*
 * Which dialect the source follows: the option says so, or its metadata, or the keys.
 *
 * The variants of a rule file list the keys that a model of theirs has. Where none of them has all,
 * the one that comes nearest tells what differs: weights that are adapted by rules for another
 * model would load, and compute something else.
 */
#include <errno.h>
#include <string.h>

#include "adapters/dialect.h"
#include "adapters/evidence_flax.h"
#include "adapters/rule.h"

static const struct ckpt_text *find_metadata(const struct ckpt_checkpoint *c, const char *key) {
    for (size_t i = 0; i < c->nmetadata; i++)
        if (ckpt_text_is(c->metadata[i].key, key))
            return &c->metadata[i].value;
    return NULL;
}

/* Whether the file says that its tensors have burn's names and layout already. What we wrote about
 * the layout counts before who saved it: layout=torch passes on what the source said of itself. */
static int says_burn(struct ckpt_build *b) {
    const struct ckpt_checkpoint *const c = b->checkpoint;
    const struct ckpt_text *layout = find_metadata(c, "mount.ckpt.layout");
    const struct ckpt_text *producer = find_metadata(c, "producer");
    if (layout && (ckpt_text_is(*layout, "burn") || ckpt_text_is(*layout, "torch")))
        return ckpt_text_is(*layout, "burn");
    return (producer && ckpt_text_is(*producer, "burn")) || strcmp(c->format, "burnpack") == 0;
}

/* dialect=auto asks them in this order; the last is what it is else. */
static const struct ckpt_dialect dialects[] = {
    {.name = "burn",
     .rules = "from-burn",
     .is_burn = true,
     .is = says_burn,
     .decide = ckpt_decide_burn_modules},
    {.name = "openpi",
     .rules = "openpi",
     .suffix = ".value",
     .hint = "PaliGemma.",
     .lora = "openpi's own configurations have it (alpha is the rank)",
     .cast = CKPT_DT_BF16},
    {.name = "flax",
     .rules = "flax",
     .suffix = ".value",
     .suffix_of_most = true,
     .is = ckpt_is_flax,
     .prepare = ckpt_settle_flax_model,
     .decide = ckpt_decide_flax_modules},
    {.name = "torch"},
};
#define DIALECTS (sizeof dialects / sizeof dialects[0])

static const struct ckpt_dialect *find_row(const char *name) {
    for (size_t i = 0; i < DIALECTS; i++)
        if (strcmp(dialects[i].name, name) == 0)
            return &dialects[i];
    return NULL;
}

/* "auto, burn, openpi or torch" */
static void list_names(struct ckpt_str *out) {
    ckpt_str_puts(out, "auto");
    for (size_t i = 0; i < DIALECTS; i++)
        ckpt_str_printf(out, "%s%s", i + 1 < DIALECTS ? ", " : " or ", dialects[i].name);
}

int ckpt_dialect_check(const char *name, struct ckpt_err *err) {
    struct ckpt_text known[DIALECTS + 1] = {CKPT_TEXT("auto")};
    for (size_t i = 0; i < DIALECTS; i++)
        known[i + 1] = ckpt_text_of(dialects[i].name);
    if (strcmp(name, "auto") == 0 || find_row(name))
        return 0;
    const int near = ckpt_text_nearest(ckpt_text_of(name), known, DIALECTS + 1);
    if (near >= 0)
        return ckpt_fail(err, -EINVAL, "dialect=%s is unknown; did you mean '%s'?", name,
                         known[near].s);
    CKPT_AUTO(str) struct ckpt_str names = {0};
    list_names(&names);
    return ckpt_fail(err, -EINVAL, "dialect=%s is unknown: it is %s", name,
                     ckpt_str_text(&names).s);
}

/* --- the suffix ------------------------------------------------------------------------------- */

static bool ends_in(const struct ckpt_item *item, const char *suffix) {
    return item->in_model && item->key.n > strlen(suffix) && ckpt_text_ends(item->key, suffix);
}

static bool is_suffixed(const struct ckpt_build *b, const struct ckpt_dialect *d) {
    size_t n = 0, with = 0;
    for (size_t i = 0; d->suffix && i < b->nitems; i++) {
        n += b->item[i].in_model;
        with += ends_in(&b->item[i], d->suffix);
    }
    return with > 0 && (with == n || (d->suffix_of_most && with > n / 2));
}

static void cut(struct ckpt_build *b, const char *suffix) {
    const size_t n = strlen(suffix);
    for (size_t i = 0; i < b->nitems; i++) {
        if (!ends_in(&b->item[i], suffix))
            continue;
        b->item[i].key.n -= n;
        b->item[i].torch_key.n -= n;
    }
}

/* --- by variants ------------------------------------------------------------------------------ */

/* How a variant fits the model's keys. */
struct fit {
    uint32_t variant, ndiffer; /* keys that are not as they should */
    struct ckpt_text differs;  /* the first; .s NULL: the variant holds */
    bool is_there;             /* though it must not be; else it is missing */
};

static struct fit judge(const struct ckpt_rules *file, uint32_t variant,
                        const struct ckpt_strmap *keys) {
    const struct ckpt_rule_when *const when = &file->variant[variant];
    struct fit fit = {.variant = variant};
    for (uint32_t i = 0; i < when->nexists + when->nabsent; i++) {
        const bool exists = i < when->nexists;
        const struct ckpt_text key = exists ? when->exists[i] : when->absent[i - when->nexists];
        const bool fits = (ckpt_strmap_get(keys, key) != CKPT_STRMAP_ABSENT) == exists;
        fit.ndiffer += !fits;
        if (fits || fit.differs.s)
            continue;
        fit.differs = key;
        fit.is_there = !exists;
    }
    return fit;
}

/* The variant that holds, else the one that comes nearest. */
static struct fit judge_all(const struct ckpt_rules *file, const struct ckpt_strmap *keys) {
    struct fit best = judge(file, 0, keys);
    for (uint32_t v = 1; v < file->nvariants && best.differs.s; v++) {
        const struct fit fit = judge(file, v, keys);
        if (fit.ndiffer < best.ndiffer)
            best = fit;
    }
    return best;
}

/* The path's segments joined below the root; empty: it lies elsewhere. .s NULL: out of memory. */
static struct ckpt_text key_below_root(const struct ckpt_build *b, struct ckpt_path p) {
    const struct ckpt_text root = b->model->root;
    CKPT_AUTO(str) struct ckpt_str s = {0};
    for (uint32_t i = 0; i < p.n; i++) {
        ckpt_str_puts(&s, i ? "." : "");
        ckpt_str_add(&s, p.segment[i].s, p.segment[i].n);
    }
    if (s.failed)
        return (struct ckpt_text){0};
    const size_t skip = root.n ? root.n + 1 : 0;
    if (s.n <= skip || memcmp(s.s, root.s, root.n) != 0)
        return CKPT_TEXT("");
    return ckpt_text_copy(&b->model->arena, s.s + skip, s.n - skip);
}

/* Arrays that are damaged and were left out (keep_going) belong to the model, too. */
static int add_unsupported(const struct ckpt_build *b, size_t suffix, struct ckpt_strmap *keys) {
    const struct ckpt_checkpoint *const c = b->checkpoint;
    for (size_t i = 0; i < c->nunsupported; i++) {
        struct ckpt_text key = key_below_root(b, c->unsupported[i].path);
        if (!key.s)
            return -ENOMEM;
        key.n -= key.n > suffix ? suffix : 0;
        if (ckpt_strmap_add(keys, key, 0, NULL) == -ENOMEM)
            return -ENOMEM;
    }
    return 0;
}

static int refuse(struct ckpt_build *b, const struct ckpt_dialect *d, const struct ckpt_rules *file,
                  const struct fit *fit) {
    const struct ckpt_rule_when *const when = &file->variant[fit->variant];
    return ckpt_fail(
        b->err, -EINVAL,
        "the model comes nearest to %s of dialect=%s, but %s '%.*s' (%u of its %u keys "
        "differ); dialect=torch shows the arrays as they are",
        file->variant_name[fit->variant].s, d->name, fit->is_there ? "it has a" : "it has no",
        CKPT_TEXT_ARGS(fit->differs), fit->ndiffer, when->nexists + when->nabsent);
}

/* Settles which variant it is. */
static int choose_variant(struct ckpt_build *b, const struct ckpt_dialect *d, size_t suffix,
                          struct ckpt_rules *file) {
    CKPT_AUTO(strmap) struct ckpt_strmap keys = {0};
    int rc = ckpt_rule_index_keys(b, &keys);
    if (rc == 0 && add_unsupported(b, suffix, &keys))
        rc = ckpt_fail_memory(b->err, "choosing the dialect");
    if (rc)
        return rc;
    const struct fit fit = judge_all(file, &keys);
    if (fit.differs.s)
        return refuse(b, d, file, &fit);
    file->settled = (int32_t)fit.variant;
    return 0;
}

/* --- the choice ------------------------------------------------------------------------------- */

static bool has_hint(const struct ckpt_build *b, const struct ckpt_dialect *d) {
    for (size_t i = 0; d->hint && i < b->nitems; i++)
        if (b->item[i].in_model && ckpt_text_starts(b->item[i].key, d->hint))
            return true;
    return false;
}

static int find_by_keys(struct ckpt_build *b, const struct ckpt_dialect **out) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < DIALECTS; i++) {
        const struct ckpt_dialect *const d = *out = &dialects[i];
        rc = d->is ? d->is(b) : has_hint(b, d) || !d->rules;
    }
    return rc < 0 ? rc : 0;
}

int ckpt_choose_dialect(struct ckpt_build *b) {
    const char *const given = b->options->dialect;
    int rc = given ? ckpt_dialect_check(given, b->err) : 0;
    if (rc == 0 && given && strcmp(given, "auto") != 0)
        b->dialect = find_row(given);
    else if (rc == 0)
        rc = find_by_keys(b, &b->dialect);
    if (rc)
        return rc;
    b->model->dialect = b->dialect->name;
    return 0;
}

bool ckpt_dialect_acts(const struct ckpt_build *b) {
    const enum ckpt_layout layout = b->options->layout;
    return b->dialect->rules && layout != CKPT_LAYOUT_SOURCE &&
           (!b->dialect->is_burn || layout == CKPT_LAYOUT_TORCH);
}

int ckpt_open_dialect(struct ckpt_build *b) {
    const struct ckpt_dialect *const d = b->dialect;
    const size_t suffix = is_suffixed(b, d) ? strlen(d->suffix) : 0;
    struct ckpt_rules **const file = &b->rules[b->nrules];
    int rc = ckpt_rules_builtin(d->rules, file, b->err);
    b->nrules += rc == 0;
    if (suffix)
        cut(b, d->suffix);
    return rc == 0 && (*file)->nvariants ? choose_variant(b, d, suffix, *file) : rc;
}
