/*
 * The dialect: a source that is not in PyTorch's names and layout is brought to them first, by
 * rules, so that every later step (map, contiguous, the user's rules, the layout) sees PyTorch's
 * state dict, whatever the file holds.
 *
 *     items before    a.query.weight  a.key.weight  a.value.weight  n.gamma
 *     items after     a.in_proj_weight                              n.weight
 *                     made: three parts                             made: one part, renamed
 *
 * An item of then is no longer a tensor of the file but what the rules made of one or several.
 */
#include "adapters/dialect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/explain.h"
#include "adapters/rule.h"
#include "adapters/rule_modules.h"

/* Operations so far lead to PyTorch's layout; what comes after, to the one wanted. */
static void mark_torch(struct ckpt_shaped *s) {
    for (uint32_t i = 0; i < s->nparts; i++)
        s->part[i].ntorch = s->part[i].nop;
}

static struct ckpt_text module_path(struct ckpt_text key) {
    const char *dot = memrchr(key.s, '.', key.n);
    return (struct ckpt_text){key.s, dot ? (size_t)(dot - key.s) : 0};
}

/* What a module was found to be stays; its path is now PyTorch's. */
static void name_module(struct ckpt_item *item) {
    const struct ckpt_text path = module_path(item->key);
    if (item->decision.path.s)
        item->decision.path = path;
    item->decision.record = NULL;
}

/* The item that the rules made. */
static int take(struct ckpt_build *b, const struct ckpt_shaped *shaped, struct ckpt_item *item) {
    const struct ckpt_item *const from = &b->item[shaped->item];
    struct ckpt_shaped *const made = ckpt_arena_alloc(&b->model->arena, sizeof *made);
    if (!made)
        return ckpt_fail_memory(b->err, "adapting tensors");
    *made = *shaped;
    mark_torch(made);
    *item = *from;
    made->by = b->dialect->rules; /* the rules themselves end here */
    item->made = made;
    item->alias = made->alias;
    item->renamed = from->renamed || !ckpt_text_eq(made->key, from->torch_key);
    item->torch_key = item->key = made->key;
    item->decision.within = NULL;
    if (from->in_model)
        name_module(item);
    return 0;
}

static int replace_items(struct ckpt_build *b, const struct ckpt_shaped_list *list) {
    struct ckpt_item *const item = ckpt_arena_array(&b->model->arena, list->n, sizeof *item);
    if (!item)
        return ckpt_fail_memory(b->err, "adapting tensors");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < list->n; i++)
        rc = take(b, &list->at[i], &item[i]);
    b->item = item;
    b->nitems = list->n;
    return rc;
}

static void list_fini(struct ckpt_shaped_list *list) {
    free(list->at);
}
#define ckpt_auto_list list_fini

static int apply_rules(struct ckpt_build *b) {
    CKPT_AUTO(list) struct ckpt_shaped_list list = {0};
    const int rc = ckpt_rules_apply(b, &list);
    return rc ? rc : replace_items(b, &list);
}

int ckpt_dialect_apply_rules(struct ckpt_build *b, const char *rules) {
    struct ckpt_rules *const own = b->rules[0];
    int rc = ckpt_rules_builtin(rules, &b->rules[0], b->err);
    if (rc == 0) {
        rc = apply_rules(b);
        ckpt_rules_free(b->rules[0]);
    }
    b->rules[0] = own;
    return rc;
}

int ckpt_apply_dialect(struct ckpt_build *b) {
    int rc = ckpt_open_dialect(b);
    if (rc == 0 && b->dialect->prepare)
        b->dialect->prepare(b);
    if (rc == 0 && b->options->explain)
        rc = ckpt_explain_computing(b);
    if (rc == 0)
        rc = ckpt_merge_items(b);
    if (rc == 0 && b->dialect->decide)
        rc = b->dialect->decide(b);
    if (rc == 0)
        rc = apply_rules(b);
    if (rc == 0 && b->rules[0]->nmodules)
        rc = ckpt_rule_decide_modules(b, b->rules[0]);
    ckpt_close_rules(b);
    return rc;
}
