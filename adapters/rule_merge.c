/*
 * Rules that compute: two sources become a third, which lies in no file.
 *
 *     items before     fc.weight_g [8,1]   fc.weight_v [8,4]   fc.bias
 *     items after                          fc.weight   [8,4]   fc.bias
 *
 * It happens first, in PyTorch's names, so that modules are decided, renamed, transposed and tied
 * by their real weights: no step after this one knows. What a computing rule names but cannot
 * compute stays as it is, with a warning.
 */
#include <errno.h>
#include <string.h>

#include "adapters/lora.h"
#include "adapters/dialect.h"
#include "adapters/rule.h"
#include "adapters/weight_norm.h"

struct merge {
    struct ckpt_build *b;
    struct ckpt_strmap keys;
    struct ckpt_strmap made;     /* by the storages: tied weights are computed once */
    bool *used;                  /* items that went into another */
    size_t cap;                  /* of model->computed */
    size_t nlora;                /* weights that got their factors */
    size_t last_file, last_rule; /* the last that computes */
};

static void merge_fini(struct merge *m) {
    ckpt_strmap_fini(&m->keys);
    ckpt_strmap_fini(&m->made);
}
#define ckpt_auto_merge merge_fini

/* False: no rule computes. */
static bool find_last(struct merge *m) {
    const struct ckpt_build *const b = m->b;
    bool found = false;
    for (size_t f = 0; f < b->nrules; f++) {
        for (size_t r = 0; r < b->rules[f]->nrules; r++) {
            if (!ckpt_rule_computes(&b->rules[f]->rule[r]))
                continue;
            m->last_file = f;
            m->last_rule = r;
            found = true;
        }
    }
    return found;
}

/* --- the computed blob --- */

static bool same_elements(const struct ckpt_tensor *a, const struct ckpt_tensor *b) {
    if (a->blob != b->blob || a->offset != b->offset || a->dtype != b->dtype || a->ndim != b->ndim)
        return false;
    for (uint32_t d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d] ||
            (a->stride ? a->stride[d] : -1) != (b->stride ? b->stride[d] : -1))
            return false;
    return true;
}

/* The model frees it. */
static int keep(struct merge *m, struct ckpt_computed_blob *c) {
    struct ckpt_model *const model = m->b->model;
    if (model->ncomputed == m->cap) {
        const size_t cap = m->cap ? 2 * m->cap : 64;
        struct ckpt_blob **bigger = ckpt_arena_array(&model->arena, cap, sizeof *bigger);
        if (!bigger)
            return ckpt_fail_memory(m->b->err, "adapting tensors");
        for (size_t i = 0; i < model->ncomputed; i++)
            bigger[i] = model->computed[i];
        model->computed = bigger;
        m->cap = cap;
    }
    c->blob.id = (uint32_t)(m->b->checkpoint->nblobs + model->ncomputed);
    model->computed[model->ncomputed++] = &c->blob;
    return 0;
}

/* What one rule computes from: the item itself, then what it names. */
struct operands {
    const struct ckpt_rule_op *op;
    const struct ckpt_tensor *of[CKPT_COMPUTED_SOURCES];
    size_t item[CKPT_COMPUTED_SOURCES];
    uint32_t n;
};

/* Finds a blob that was made of the same. 0: *out, or NULL; -ENOMEM. */
static int find_made(struct merge *m, const struct operands *o, struct ckpt_blob **out) {
    struct ckpt_model *const model = m->b->model;
    uint64_t storages[2 * CKPT_COMPUTED_SOURCES + 1] = {o->op->kind};
    for (uint32_t i = 0; i < o->n; i++) {
        storages[2 * i + 1] = o->of[i]->blob->id;
        storages[2 * i + 2] = o->of[i]->offset;
    }
    const struct ckpt_text key = {ckpt_arena_copy(&model->arena, storages, sizeof storages),
                                  sizeof storages};
    size_t at = CKPT_STRMAP_ABSENT;
    *out = NULL;
    if (!key.s || ckpt_strmap_add(&m->made, key, model->ncomputed, &at) == -ENOMEM)
        return -ENOMEM;
    if (at == CKPT_STRMAP_ABSENT)
        return 0;
    const struct ckpt_computed_blob *const c = ckpt_computed_blob_of(model->computed[at]);
    bool same = true;
    for (uint32_t i = 0; i < o->n; i++)
        same = same && same_elements(c->source[i], o->of[i]);
    *out = same ? model->computed[at] : NULL;
    return 0;
}

static int compute(struct merge *m, const struct operands *o, struct ckpt_computed_blob **out,
                   struct ckpt_err *err) {
    struct ckpt_arena *const a = &m->b->model->arena;
    struct ckpt_decoded_cache *const cache = m->b->checkpoint->decoded;
    const struct ckpt_lora lora = {o->of[0], o->of[1], o->of[2], o->op->axis};
    return o->op->kind == CKPT_RULE_LORA
               ? ckpt_lora_new(a, &lora, cache, out, err)
               : ckpt_weight_norm_new(a, o->of[0], o->of[1], cache, out, err);
}

static int make(struct merge *m, const struct operands *o, struct ckpt_blob **out,
                struct ckpt_err *err) {
    struct ckpt_computed_blob *c;
    if (find_made(m, o, out))
        return ckpt_fail_memory(err, "adapting tensors");
    int rc = *out ? 0 : compute(m, o, &c, err);
    if (rc == 0 && !*out) {
        *out = &c->blob;
        rc = keep(m, c);
    }
    return rc;
}

/* --- items --- */

/* The tensor again, with computed bytes: in place of its own, or in C order where they are of
 * another type. */
static int replace(struct merge *m, struct ckpt_item *item, struct ckpt_text name,
                   struct ckpt_blob *blob) {
    struct ckpt_tensor *const t = ckpt_arena_alloc(&m->b->model->arena, sizeof *t);
    if (!t)
        return ckpt_fail_memory(m->b->err, "adapting tensors");
    const struct ckpt_computed_blob *const c = ckpt_computed_blob_of(blob);
    *t = *item->tensor;
    t->blob = blob;
    t->dtype = c->dtype;
    t->offset = c->phase;
    t->stride = c->in_place ? t->stride : NULL;
    t->swap = t->neg = false;
    item->tensor = t;
    item->torch_key = item->key = name;
    return 0;
}

/* The tensors that the rule names. */
static int find_operands(struct merge *m, struct ckpt_rule *rule, size_t i, struct operands *o) {
    struct ckpt_build *const b = m->b;
    const struct ckpt_text key = b->item[i].key;
    *o = (struct operands){
        .op = &rule->target[0].op[0], .of = {b->item[i].tensor}, .item = {i}, .n = 1};
    for (uint32_t k = 0; k < o->op->njoin; k++) {
        struct ckpt_text name;
        const int rc = ckpt_rule_expand(b, rule, key, o->op->join[k].key, 0, &name);
        if (rc < 0)
            return rc;
        const size_t other = ckpt_strmap_get(&m->keys, name);
        if (other == CKPT_STRMAP_ABSENT)
            return ckpt_fail(b->err, -EINVAL, "%s: '%.*s': there is no tensor '%.*s'", rule->where,
                             CKPT_TEXT_ARGS(key), CKPT_TEXT_ARGS(name));
        o->item[o->n] = other;
        o->of[o->n++] = b->item[other].tensor;
    }
    return 0;
}

static int merge_item(struct merge *m, struct ckpt_rule *rule, size_t i) {
    struct ckpt_build *const b = m->b;
    struct ckpt_item *const item = &b->item[i];
    const struct ckpt_text key = item->key;
    struct ckpt_text name = {0};
    struct operands o;
    struct ckpt_blob *blob = NULL;
    struct ckpt_err why = {0};
    int rc = ckpt_rule_expand(b, rule, key, rule->target[0].name, 0, &name);
    if (rc == 0)
        rc = find_operands(m, rule, i, &o);
    if (rc < 0)
        return rc;
    rule->taken++;
    if (o.op->kind == CKPT_RULE_LORA && b->options->lora_refuse)
        return ckpt_fail(b->err, -EINVAL,
                         "'%.*s' has LoRA's factors beside it ('%.*s'), and lora=refuse; "
                         "lora=merge adds them to it",
                         CKPT_TEXT_ARGS(key), CKPT_TEXT_ARGS(b->item[o.item[1]].key));
    m->nlora += o.op->kind == CKPT_RULE_LORA;
    rc = make(m, &o, &blob, &why);
    if (rc == -EOPNOTSUPP)
        return ckpt_build_warn(b, "%.*s and %.*s stay as they are: %s", CKPT_TEXT_ARGS(key),
                               CKPT_TEXT_ARGS(b->item[o.item[1]].key), why.text);
    if (rc < 0)
        return ckpt_fail(b->err, rc, "%.*s: %s", CKPT_TEXT_ARGS(key), why.text);
    for (uint32_t k = 1; k < o.n; k++)
        m->used[o.item[k]] = true;
    return replace(m, item, name, blob);
}

/* The first rule that fits, if it computes. One that does not, and asks for no kind, keeps the item
 * from the computing rules behind it: so a user's rule switches ours off. */
static int match_item(struct merge *m, size_t i) {
    struct ckpt_build *const b = m->b;
    for (size_t f = 0; f <= m->last_file; f++) {
        const size_t end = f < m->last_file ? b->rules[f]->nrules : m->last_rule + 1;
        for (size_t r = 0; r < end; r++) {
            struct ckpt_rule *const rule = &b->rules[f]->rule[r];
            const int rc = rule->nkind || ckpt_rule_is_within(rule)
                               ? 0
                               : ckpt_rule_takes(b, &m->keys, b->rules[f], rule, &b->item[i]);
            if (rc < 0 || (rc > 0 && !ckpt_rule_computes(rule)))
                return rc < 0 ? rc : 0;
            if (rc > 0)
                return merge_item(m, rule, i);
        }
    }
    return 0;
}

static void drop_used(struct merge *m) {
    struct ckpt_build *const b = m->b;
    size_t kept = 0;
    for (size_t i = 0; i < b->nitems; i++)
        if (!m->used[i])
            b->item[kept++] = b->item[i];
    b->nitems = kept;
}

/* --- what burn cannot hold either, and nobody computes --- */

/* Whether there is the key that ends so where this one ends with "orig". */
static bool has_beside(const struct merge *m, struct ckpt_text key, const char *end) {
    char other[CKPT_REGEX_RESULT_MAX];
    const size_t stem = key.n - strlen("orig"), n = strlen(end);
    if (stem + n > sizeof other)
        return false;
    memcpy(other, key.s, stem);
    memcpy(other + stem, end, n);
    return ckpt_strmap_get(&m->keys, (struct ckpt_text){other, stem + n}) != CKPT_STRMAP_ABSENT;
}

/* spectral_norm keeps weight_orig beside a vector weight_u of its power iteration, pruning
 * weight_orig and bias_orig beside a mask; parametrizations keep parametrizations.weight.original.
 */
static bool is_original(const struct merge *m, struct ckpt_text key) {
    if (ckpt_text_ends(key, ".original"))
        return memmem(key.s, key.n, "parametrizations.", 17) != NULL;
    return ckpt_text_ends(key, "_orig") && (has_beside(m, key, "u") || has_beside(m, key, "mask"));
}

static int warn_originals(struct merge *m) {
    const struct ckpt_build *const b = m->b;
    const struct ckpt_item *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < b->nitems; i++) {
        if (!b->item[i].in_model || !is_original(m, b->item[i].key))
            continue;
        first = first ? first : &b->item[i];
        n++;
    }
    return n == 0 ? 0
                  : ckpt_build_warn(
                        m->b,
                        "%zu weights are computed by spectral_norm, pruning or another "
                        "parametrization ('%.*s'...): they stay as they are, and burn finds no "
                        "weight there; saving again after remove_spectral_norm, prune.remove or "
                        "parametrize.remove_parametrizations of torch.nn.utils makes plain "
                        "weights",
                        n, CKPT_TEXT_ARGS(first->key));
}

static int warn_scale(struct merge *m) {
    const char *const why = m->b->dialect ? m->b->dialect->lora : NULL;
    return m->nlora == 0 || !why
               ? 0
               : ckpt_build_warn(m->b,
                                 "LoRA's factors are added to %zu weights with the scale 1, as "
                                 "%s; the checkpoint does not tell; lora=refuse refuses it",
                                 m->nlora, why);
}

int ckpt_merge_items(struct ckpt_build *b) {
    CKPT_AUTO(merge) struct merge m = {.b = b};
    if (!find_last(&m))
        return 0;
    m.used = ckpt_arena_array(&b->scratch, b->nitems, sizeof *m.used);
    if (!m.used)
        return ckpt_fail_memory(b->err, "adapting tensors");
    int rc = ckpt_rule_index_keys(b, &m.keys);
    for (size_t i = 0; rc == 0 && i < b->nitems; i++)
        rc = b->item[i].in_model ? match_item(&m, i) : 0;
    if (rc < 0)
        return rc;
    drop_used(&m);
    rc = warn_scale(&m);
    return rc ? rc : warn_originals(&m);
}
