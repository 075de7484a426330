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

#include "adapters/rule.h"
#include "adapters/weight_norm.h"

struct merge {
    struct ckpt_build *b;
    struct ckpt_strmap keys;
    struct ckpt_strmap made;     /* by the storages: tied weights are computed once */
    bool *used;                  /* items that went into another */
    size_t cap;                  /* of model->computed */
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

static int make(struct merge *m, const struct ckpt_tensor *v, const struct ckpt_tensor *g,
                struct ckpt_blob **out, struct ckpt_err *err) {
    struct ckpt_model *const model = m->b->model;
    const uint64_t storages[] = {v->blob->id, v->offset, g->blob->id, g->offset};
    const struct ckpt_text key = {ckpt_arena_copy(&model->arena, storages, sizeof storages),
                                  sizeof storages};
    size_t at = CKPT_STRMAP_ABSENT;
    if (!key.s || ckpt_strmap_add(&m->made, key, model->ncomputed, &at) == -ENOMEM)
        return ckpt_fail_memory(err, "adapting tensors");
    if (at != CKPT_STRMAP_ABSENT) {
        const struct ckpt_weight_norm *const made = ckpt_weight_norm_of(model->computed[at]);
        if (same_elements(made->v, v) && same_elements(made->g, g)) {
            *out = model->computed[at];
            return 0;
        }
    }
    struct ckpt_computed_blob *c;
    int rc = ckpt_weight_norm_new(&model->arena, v, g, m->b->checkpoint->decoded, &c, err);
    if (rc == 0) {
        *out = &c->blob;
        rc = keep(m, c);
    }
    return rc;
}

/* --- items --- */

/* v's tensor again, with computed bytes. */
static int replace(struct merge *m, struct ckpt_item *item, struct ckpt_text name,
                   struct ckpt_blob *blob) {
    struct ckpt_tensor *const t = ckpt_arena_alloc(&m->b->model->arena, sizeof *t);
    if (!t)
        return ckpt_fail_memory(m->b->err, "adapting tensors");
    *t = *item->tensor;
    t->blob = blob;
    t->swap = t->neg = false;
    item->tensor = t;
    item->torch_key = item->key = name;
    return 0;
}

static int merge_item(struct merge *m, struct ckpt_rule *rule, size_t i) {
    struct ckpt_build *const b = m->b;
    struct ckpt_item *const item = &b->item[i];
    const struct ckpt_text key = item->key;
    struct ckpt_text name = {0}, other = {0};
    struct ckpt_blob *blob = NULL;
    struct ckpt_err why = {0};
    int rc = ckpt_rule_expand(b, rule, key, rule->target[0].name, 0, &name);
    if (rc == 0)
        rc = ckpt_rule_expand(b, rule, key, rule->target[0].op[0].join[0].key, 0, &other);
    if (rc < 0)
        return rc;
    const size_t g = ckpt_strmap_get(&m->keys, other);
    if (g == CKPT_STRMAP_ABSENT)
        return ckpt_fail(b->err, -EINVAL, "%s: '%.*s': there is no tensor '%.*s'", rule->where,
                         CKPT_TEXT_ARGS(key), CKPT_TEXT_ARGS(other));
    rule->taken++;
    rc = make(m, item->tensor, b->item[g].tensor, &blob, &why);
    if (rc == -EOPNOTSUPP)
        return ckpt_build_warn(b, "%.*s and %.*s stay as they are: %s", CKPT_TEXT_ARGS(key),
                               CKPT_TEXT_ARGS(other), why.text);
    if (rc < 0)
        return ckpt_fail(b->err, rc, "%.*s: %s", CKPT_TEXT_ARGS(key), why.text);
    m->used[g] = true;
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

/* spectral_norm keeps weight_orig, or parametrizations.weight.original, and the vectors of its
 * power iteration; other parametrizations keep an original, too. */
static bool is_original(const struct merge *m, struct ckpt_text key) {
    if (ckpt_text_ends(key, ".original"))
        return memmem(key.s, key.n, "parametrizations.", 17) != NULL;
    if (!ckpt_text_ends(key, "weight_orig") || key.n > CKPT_REGEX_RESULT_MAX)
        return false;
    char vector[CKPT_REGEX_RESULT_MAX]; /* weight_orig -> weight_u */
    const size_t n = key.n - 3;
    memcpy(vector, key.s, n - 1);
    vector[n - 1] = 'u';
    return ckpt_strmap_get(&m->keys, (struct ckpt_text){vector, n}) != CKPT_STRMAP_ABSENT;
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
                        "%zu weights are computed by spectral_norm or another parametrization "
                        "('%.*s'...): they stay as they are, and burn finds no weight there; "
                        "torch.nn.utils.parametrize.remove_parametrizations and saving again makes "
                        "plain weights",
                        n, CKPT_TEXT_ARGS(first->key));
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
    return warn_originals(&m);
}
