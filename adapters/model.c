/* The pipeline from a checkpoint to the adapted model; each step is in a file of its own. */
#include "adapters/model.h"

#include <errno.h>
#include <stdlib.h>

#include "adapters/dialect.h"
#include "adapters/expect.h"
#include "adapters/explain.h"
#include "adapters/recorded_kinds.h"

void ckpt_model_free(struct ckpt_model *m) {
    if (!m)
        return;
    for (size_t i = 0; i < m->ncomputed; i++)
        m->computed[i]->ops->fini(m->computed[i]);
    ckpt_arena_fini(&m->arena);
    free(m);
}

static void auto_model(struct ckpt_model **m) {
    ckpt_model_free(*m);
}
#define ckpt_auto_model auto_model

/* Many tensors have large items: they go before the tree is laid out. */
static void drop_items(struct ckpt_build *b) {
    ckpt_arena_fini(&b->scratch);
    b->item = NULL;
    b->nitems = 0;
}

static void build_fini(struct ckpt_build *b) {
    ckpt_close_rules(b);
    drop_items(b);
    free(b->by);
}
#define ckpt_auto_build build_fini

static void name_by_torch_key(struct ckpt_build *b) {
    for (size_t i = 0; i < b->nitems; i++)
        b->item[i].key = b->item[i].torch_key;
}

static int adapt(struct ckpt_build *b) {
    const bool source = b->options->layout == CKPT_LAYOUT_SOURCE;
    int rc = ckpt_select_root(b);
    if (rc)
        return rc;
    name_by_torch_key(b);
    rc = ckpt_choose_dialect(b);
    if (rc == 0 && ckpt_dialect_acts(b))
        rc = ckpt_apply_dialect(b);
    if (rc == 0)
        rc = ckpt_open_rules(b);
    if (rc == 0 && b->options->explain)
        rc = ckpt_explain_computing(b);
    if (rc == 0)
        rc = ckpt_merge_items(b);
    if (rc == 0 && !ckpt_model_is_burn(b->model))
        rc = ckpt_decide_modules(b);
    if (rc == 0 && !source)
        rc = ckpt_rename_items(b);
    if (rc == 0 && !source)
        rc = ckpt_renumber_items(b);
    if (rc == 0 && b->options->explain)
        rc = ckpt_explain_items(b);
    return rc ? rc : ckpt_adapt_items(b);
}

static int finish(struct ckpt_build *b) {
    const bool to_burn = b->options->layout == CKPT_LAYOUT_BURN && !ckpt_model_is_burn(b->model);
    const bool records = to_burn && b->kinds_at_risk;
    drop_items(b);
    int rc = ckpt_filter_tensors(b);
    if (rc == 0)
        rc = ckpt_check_keys(b);
    if (rc == 0)
        ckpt_count_ops(b->model);
    if (rc == 0)
        rc = ckpt_lay_out_paths(b);
    if (rc == 0)
        rc = ckpt_find_ties(b);
    return rc == 0 && records ? ckpt_record_kinds(b) : rc;
}

static int begin(struct ckpt_build *b, const struct ckpt_checkpoint *c,
                 const struct ckpt_adapt_options *o, struct ckpt_model **m, struct ckpt_err *err) {
    *m = calloc(1, sizeof **m);
    if (!*m)
        return ckpt_fail_memory(err, "adapting tensors");
    *b = (struct ckpt_build){
        .checkpoint = c, .options = o, .model = *m, .nitems = c->ntensors, .err = err};
    (*m)->checkpoint = c;
    (*m)->layout = o->layout;
    (*m)->modules_store = o->modules_store && !o->rules;
    (*m)->dialect = "torch";
    (*m)->root = (*m)->prefix = (*m)->suggested_prefix = CKPT_TEXT("");
    b->item = ckpt_arena_array(&b->scratch, c->ntensors, sizeof *b->item);
    if (!b->item)
        return ckpt_fail_memory(err, "adapting tensors");
    for (size_t i = 0; i < c->ntensors; i++)
        b->item[i].tensor = &c->tensors[i];
    return 0;
}

static int check_strict(const struct ckpt_build *b) {
    const struct ckpt_checkpoint *c = b->checkpoint;
    return b->options->strict && c->nwarnings
               ? ckpt_fail(b->err, -EINVAL, "%.*s (strict: a warning is an error)",
                           CKPT_TEXT_ARGS(c->warnings[0]))
               : 0;
}

int ckpt_model_build(const struct ckpt_checkpoint *c, const struct ckpt_adapt_options *options,
                     struct ckpt_model **out, struct ckpt_err *err) {
    CKPT_AUTO(model) struct ckpt_model *m = NULL;
    CKPT_AUTO(build) struct ckpt_build b = {0};
    *out = NULL;
    int rc = begin(&b, c, options, &m, err);
    if (rc == 0)
        rc = check_strict(&b);
    if (rc == 0)
        rc = adapt(&b);
    if (rc == 0)
        rc = finish(&b);
    if (rc == 0)
        rc = ckpt_warn_dtypes(&b);
    if (rc == 0)
        rc = ckpt_check_expected(&b);
    if (rc == 0)
        *out = CKPT_STEAL(m);
    return rc;
}

int ckpt_model_build_source(const struct ckpt_checkpoint *c, struct ckpt_model **out,
                            struct ckpt_err *err) {
    static const struct ckpt_adapt_options as_it_is = {.layout = CKPT_LAYOUT_SOURCE};
    CKPT_AUTO(model) struct ckpt_model *m = NULL;
    CKPT_AUTO(build) struct ckpt_build b = {0};
    *out = NULL;
    int rc = begin(&b, c, &as_it_is, &m, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < b.nitems; i++)
        b.item[i].torch_key =
            b.item[i].tensor->path.n ? b.item[i].tensor->key : CKPT_TEXT("tensor");
    name_by_torch_key(&b);
    rc = ckpt_adapt_items(&b);
    if (rc == 0)
        rc = finish(&b);
    if (rc == 0)
        *out = CKPT_STEAL(m);
    return rc;
}
