/*
 * Layout and cast: which rule files apply, and from what they made, the adapted tensors with their
 * element maps, sizes and the names of what was done.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/computed_blob.h"
#include "adapters/dialect.h"
#include "adapters/rule.h"

void ckpt_close_rules(struct ckpt_build *b) {
    while (b->nrules)
        ckpt_rules_free(b->rules[--b->nrules]);
}

/* What the user's own take, ours leave alone. */
int ckpt_open_rules(struct ckpt_build *b) {
    const struct ckpt_adapt_options *o = b->options;
    const bool burn = o->layout == CKPT_LAYOUT_BURN && !ckpt_model_is_burn(b->model);
    int rc = 0;
    if (o->rules && o->layout != CKPT_LAYOUT_SOURCE)
        rc = ckpt_rules_load(o->rules, &b->rules[b->nrules++], b->err);
    if (rc == 0 && burn && !o->modules_store)
        rc = ckpt_rules_builtin("burn-nn", &b->rules[b->nrules++], b->err);
    if (rc == 0 && burn)
        rc = ckpt_rules_builtin("burn-store", &b->rules[b->nrules++], b->err);
    return rc;
}

static bool has_users_rules(const struct ckpt_build *b) {
    return b->nrules && b->options->rules;
}

/* Whether the source's bytes lie in C order without holes. */
static bool is_dense(const struct ckpt_tensor *t) {
    int64_t expected = 1;
    for (uint32_t d = t->stride ? t->ndim : 0; d-- > 0;) {
        if (t->shape[d] == 0)
            return true;
        if (t->shape[d] != 1 && t->stride[d] != expected)
            return false;
        expected *= t->shape[d];
    }
    return true;
}

static const char *cast_name(enum ckpt_dtype to) {
    switch (to) {
    case CKPT_DT_F16:
        return "cast:f16";
    case CKPT_DT_BF16:
        return "cast:bf16";
    case CKPT_DT_F64:
        return "cast:f64";
    default:
        return "cast:f32";
    }
}

/* The option's, else the rule's, else that of the dialect's own converter. */
static enum ckpt_dtype wanted_cast(const struct ckpt_build *b, const struct ckpt_shaped *shaped) {
    const struct ckpt_adapt_options *const o = b->options;
    if (o->cast != CKPT_DT_NONE || o->cast_keep)
        return o->cast;
    if (shaped->cast != CKPT_DT_NONE)
        return shaped->cast;
    return o->layout == CKPT_LAYOUT_TORCH && b->dialect ? b->dialect->cast : CKPT_DT_NONE;
}

/* swap, conj and neg are the source's. */
static struct ckpt_element_map element_map(const struct ckpt_build *b,
                                           const struct ckpt_shaped *shaped) {
    const struct ckpt_item *item = &b->item[shaped->item];
    const struct ckpt_tensor *t = item->tensor;
    struct ckpt_element_map map = {
        .from = t->dtype, .to = t->dtype, .swap = t->swap, .conj = t->conj, .neg = t->neg};
    const enum ckpt_dtype cast = wanted_cast(b, shaped);
    if (cast != CKPT_DT_NONE && item->in_model && b->options->layout != CKPT_LAYOUT_SOURCE &&
        ckpt_dtype_info(t->dtype)->cls == CKPT_CLASS_FLOAT)
        map.to = cast;
    return map;
}

#define OPS_MAX (2 * CKPT_RULE_OPS_MAX + 8) /* the dialect's, the layout's, ours */

static int name_ops(struct ckpt_build *b, const struct ckpt_shaped *shaped,
                    struct ckpt_adapted *t) {
    const struct ckpt_item *item = &b->item[shaped->item];
    struct ckpt_computed_blob *const computed = ckpt_computed_blob_of(item->tensor->blob);
    const char *ops[OPS_MAX];
    size_t n = 0;
    if (computed)
        ops[n++] = computed->op;
    if (item->renamed || !ckpt_text_eq(shaped->key, item->key))
        ops[n++] = "rename";
    if (item->renumbered)
        ops[n++] = "renumber";
    for (uint32_t i = 0; i < shaped->nops; i++)
        ops[n++] = shaped->op[i];
    if (!is_dense(item->tensor))
        ops[n++] = "contiguous";
    if (t->map.swap)
        ops[n++] = "swap";
    if (t->map.conj)
        ops[n++] = "conj";
    if (t->map.neg)
        ops[n++] = "neg";
    if (t->map.to != t->map.from)
        ops[n++] = cast_name(t->map.to);
    const char **kept = ckpt_arena_array(&b->model->arena, n + 1, sizeof *kept);
    if (!kept)
        return ckpt_fail_memory(b->err, "adapting tensors");
    memcpy(kept, ops, n * sizeof *kept);
    t->ops = kept;
    return 0;
}

void ckpt_count_ops(struct ckpt_model *m) {
    for (size_t i = 0; i < m->ntensors; i++)
        for (const char *const *op = m->tensor[i].ops; *op; op++) {
            m->nrenamed += strcmp(*op, "rename") == 0;
            m->nrenumbered += strcmp(*op, "renumber") == 0;
            m->ntransposed += strcmp(*op, "transpose") == 0;
            m->ncast += strncmp(*op, "cast:", 5) == 0;
        }
}

static int size_parts(struct ckpt_build *b, struct ckpt_adapted *t) {
    const uint32_t from = ckpt_dtype_info(t->map.from)->unit_bytes;
    const uint32_t to = ckpt_dtype_info(t->map.to)->unit_bytes;
    t->nbytes = 0;
    for (uint32_t i = 0; i < t->nparts; i++) {
        t->part[i].nbytes = t->part[i].nbytes / from * to;
        if (__builtin_add_overflow(t->nbytes, t->part[i].nbytes, &t->nbytes) ||
            t->nbytes > 2 * CKPT_LIMIT_TENSOR_BYTES)
            return ckpt_fail(b->err, -EINVAL, "tensor '%.*s' would have more than %llu bytes",
                             CKPT_TEXT_ARGS(t->key),
                             (unsigned long long)(2 * CKPT_LIMIT_TENSOR_BYTES));
    }
    return 0;
}

static bool identity_map(const struct ckpt_element_map *map) {
    return map->from == map->to && !map->swap && !map->conj && !map->neg;
}

/* The nearest module that holds this one and of which something is known, and what holds that; each
 * is kept once. CKPT_MODULE_LEVELS bound the recursion. */
static int keep_holder(struct ckpt_build *b, struct ckpt_decision *d, struct ckpt_decision **out) {
    *out = NULL;
    while (d && !d->kind && !d->record && d->graph_class.n == 0)
        d = d->within;
    if (!d || (*out = d->kept))
        return 0;
    struct ckpt_decision *copy = ckpt_arena_alloc(&b->model->arena, sizeof *copy);
    if (!copy)
        return ckpt_fail_memory(b->err, "adapting tensors");
    *copy = *d;
    *out = d->kept = copy;
    return keep_holder(b, d->within, &copy->within);
}

static int tell_module(struct ckpt_build *b, const struct ckpt_decision *d,
                       struct ckpt_adapted *t) {
    t->module.path = CKPT_TEXT("");
    if (!d->path.s)
        return 0;
    t->module.path = d->path;
    t->module.kind = d->kind;
    t->module.decided_by = d->decided_by;
    t->module.record = d->record;
    struct ckpt_decision *within;
    const int rc = keep_holder(b, d->within, &within);
    t->module.within = within;
    return rc;
}

/* Before the cast changes what parts have of bytes. */
static int tell_joined(struct ckpt_build *b, const struct ckpt_item *item, struct ckpt_adapted *t) {
    const struct ckpt_shaped *const made = item->made;
    if (!made || (made->nparts == 1 && made->part[0].source))
        return 0;
    struct ckpt_arena *const a = &b->model->arena;
    struct ckpt_joined *const joined = ckpt_arena_alloc(a, sizeof *joined);
    struct ckpt_joined_part *const part = ckpt_arena_array(a, made->nparts, sizeof *part);
    if (!joined || !part)
        return ckpt_fail_memory(b->err, "adapting tensors");
    const uint32_t unit = ckpt_dtype_info(item->tensor->dtype)->unit_bytes;
    for (uint32_t i = 0; i < made->nparts; i++)
        part[i] = (struct ckpt_joined_part){.source = made->part[i].source,
                                            .op = made->part[i].op,
                                            .nop = made->part[i].nop,
                                            .units = (int64_t)(made->part[i].nbytes / unit)};
    *joined = (struct ckpt_joined){.part = part,
                                   .nparts = made->nparts,
                                   .turns = made->turns ? made->turns : 1,
                                   .ndim = made->ndim,
                                   .shape = made->shape};
    t->joined = joined;
    return 0;
}

static int adapt(struct ckpt_build *b, const struct ckpt_shaped *shaped, struct ckpt_adapted *t) {
    const struct ckpt_item *item = &b->item[shaped->item];
    *t = (struct ckpt_adapted){
        .key = shaped->key,
        .ndim = shaped->ndim,
        .shape = shaped->shape,
        .source = item->tensor,
        .part = shaped->part,
        .nparts = shaped->nparts,
        .turns = shaped->turns,
        .map = element_map(b, shaped),
        .in_model = item->in_model,
        .mapped = item->mapped,
        .alias = shaped->alias,
        .torch_key = item->torch_key,
    };
    t->dtype = t->map.to;
    t->untouched = t->nparts == 1 && t->part->source && ckpt_walk_contiguous(t->part->walk) &&
                   identity_map(&t->map) && !ckpt_computed_blob_of(t->part->source->blob);
    int rc = tell_module(b, &item->decision, t);
    if (rc == 0)
        rc = tell_joined(b, item, t);
    if (rc == 0)
        rc = size_parts(b, t);
    if (rc == 0)
        rc = name_ops(b, shaped, t);
    return rc;
}

static void list_fini(struct ckpt_shaped_list *list) {
    free(list->at);
}
#define ckpt_auto_list list_fini

int ckpt_adapt_items(struct ckpt_build *b) {
    struct ckpt_model *m = b->model;
    CKPT_AUTO(list) struct ckpt_shaped_list shaped = {0};
    int rc = ckpt_rules_apply(b, &shaped);
    if (rc == 0 && has_users_rules(b))
        rc = ckpt_rule_warn_unused(b, b->rules[0]);
    if (rc)
        return rc;
    m->tensor = ckpt_arena_array(&m->arena, shaped.n, sizeof *m->tensor);
    b->by = calloc(shaped.n + 1, sizeof *b->by);
    if (!m->tensor || !b->by)
        return ckpt_fail_memory(b->err, "adapting tensors");
    for (; rc == 0 && m->ntensors < shaped.n; m->ntensors++) {
        b->by[m->ntensors] = shaped.at[m->ntensors].by;
        rc = adapt(b, &shaped.at[m->ntensors], &m->tensor[m->ntensors]);
    }
    return rc;
}

/* ^fc1\.weight$ */
static void exact_regex(struct ckpt_str *s, struct ckpt_text key) {
    ckpt_str_puts(s, "^");
    for (size_t i = 0; i < key.n; i++) {
        if (strchr("\\^$.|?*+()[]{}", key.s[i]) && key.s[i])
            ckpt_str_puts(s, "\\");
        ckpt_str_add(s, &key.s[i], 1);
    }
    ckpt_str_puts(s, "$");
}

static int warn_dtype(struct ckpt_build *b, enum ckpt_dtype dtype, size_t n,
                      struct ckpt_text first) {
    const struct ckpt_dtype_info *info = ckpt_dtype_info(dtype);
    if (!info->in_safetensors)
        return ckpt_build_warn(b,
                               "%s does not exist in safetensors: %zu such tensors ('%.*s'...) are "
                               "files of the tree but not in model.safetensors",
                               info->name, n, CKPT_TEXT_ARGS(first));
    if (info->in_burn || b->options->layout != CKPT_LAYOUT_BURN)
        return 0;
    CKPT_AUTO(str) struct ckpt_str regex = {0};
    exact_regex(&regex, first);
    return ckpt_build_warn(b,
                           "burn does not read %s and refuses a model.safetensors that holds it: "
                           "%zu tensors; -o 'exclude=%s' leaves %s out",
                           info->name, n, ckpt_str_text(&regex).s, n == 1 ? "it" : "the first");
}

int ckpt_warn_dtypes(struct ckpt_build *b) {
    const struct ckpt_model *m = b->model;
    size_t count[CKPT_DT_COUNT] = {0};
    struct ckpt_text first[CKPT_DT_COUNT] = {0};
    for (size_t i = 0; i < m->ntensors; i++)
        if (m->tensor[i].in_model && count[m->tensor[i].dtype]++ == 0)
            first[m->tensor[i].dtype] = m->tensor[i].key;
    int rc = 0;
    for (int d = 1; rc == 0 && d < CKPT_DT_COUNT; d++)
        if (count[d])
            rc = warn_dtype(b, (enum ckpt_dtype)d, count[d], first[d]);
    return rc;
}
