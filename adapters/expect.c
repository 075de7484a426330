/* -o expect=: the adapted tensors as burn's loader would take them. */
#include "adapters/expect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/build.h"
#include "adapters/suggest.h"

static int fail_memory(struct ckpt_build *b) {
    return ckpt_fail_memory(b->err, "comparing with the expected parameters");
}

bool ckpt_expect_is_usual(struct ckpt_text key) {
    return ckpt_text_is(key, "num_batches_tracked") || ckpt_text_ends(key, ".num_batches_tracked");
}

/* --- one parameter ---------------------------------------------------------------------------- */

enum kind { KIND_FLOAT, KIND_INT, KIND_BOOL, KIND_OTHER };

static enum kind kind_of(enum ckpt_dtype t) {
    switch (ckpt_dtype_info(t)->cls) {
    case CKPT_CLASS_BOOL:
        return KIND_BOOL;
    case CKPT_CLASS_UINT:
    case CKPT_CLASS_INT:
        return KIND_INT;
    case CKPT_CLASS_FLOAT:
        return KIND_FLOAT;
    default:
        return KIND_OTHER; /* no burn parameter holds it */
    }
}

/* As burn's loader: the kind counts, not the width; booleans may come as the integers that they are
 * stored as. */
static bool accepts(enum ckpt_dtype parameter, enum ckpt_dtype tensor) {
    const bool stores_booleans = tensor == CKPT_DT_U8 || tensor == CKPT_DT_U32;
    return parameter == CKPT_DT_NONE || kind_of(parameter) == kind_of(tensor) ||
           (kind_of(parameter) == KIND_BOOL && stores_booleans);
}

static struct ckpt_suggest_item item_of_parameter(const struct ckpt_parameter *p) {
    return (struct ckpt_suggest_item){p->name, p->has_shape ? p->shape : NULL, p->ndim};
}

static struct ckpt_suggest_item item_of_tensor(const struct ckpt_adapted *t) {
    return (struct ckpt_suggest_item){t->key, t->shape, t->ndim};
}

static enum ckpt_suggest_shape shape_of(const struct ckpt_parameter *p,
                                        const struct ckpt_adapted *t) {
    const struct ckpt_suggest_item here = item_of_parameter(p), there = item_of_tensor(t);
    return p->has_shape ? ckpt_suggest_shape_of(&here, &there) : CKPT_SUGGEST_SAME;
}

/* The record of a parameter that meets a tensor of its name. */
static struct ckpt_expect_record meet(const struct ckpt_model *m, const struct ckpt_parameter *p,
                                      size_t tensor) {
    const struct ckpt_adapted *t = &m->tensor[tensor];
    const enum ckpt_suggest_shape shape = shape_of(p, t);
    enum ckpt_expect_outcome outcome = CKPT_EXPECT_APPLIED;
    if (!accepts(p->dtype, t->dtype))
        outcome = CKPT_EXPECT_DTYPE;
    else if (shape != CKPT_SUGGEST_SAME)
        outcome = CKPT_EXPECT_SHAPE;
    else if (p->dtype != CKPT_DT_NONE && p->dtype != t->dtype)
        outcome = CKPT_EXPECT_WIDTH;
    return (struct ckpt_expect_record){.parameter = p,
                                       .outcome = outcome,
                                       .tensor = tensor,
                                       .is_transposed = outcome == CKPT_EXPECT_SHAPE &&
                                                        shape == CKPT_SUGGEST_TRANSPOSED};
}

/* --- all of them ------------------------------------------------------------------------------ */

static int compare_all(struct ckpt_build *b, struct ckpt_expect *e,
                       const struct ckpt_parameter *parameter, size_t n, bool *is_used) {
    const struct ckpt_model *m = b->model;
    CKPT_AUTO(strmap) struct ckpt_strmap by_key = {0};
    for (size_t i = 0; i < m->ntensors; i++)
        if (ckpt_adapted_is_stored(&m->tensor[i]) &&
            ckpt_strmap_add(&by_key, m->tensor[i].key, i, NULL))
            return fail_memory(b);
    for (size_t i = 0; i < n; i++) {
        const struct ckpt_parameter *p = &parameter[i];
        const size_t found = ckpt_strmap_get(&by_key, p->name);
        struct ckpt_expect_record *r = &e->record[e->nrecords++];
        if (found == CKPT_STRMAP_ABSENT) {
            *r = (struct ckpt_expect_record){p, CKPT_EXPECT_MISSING, CKPT_EXPECT_NONE, false};
        } else {
            *r = meet(m, p, found);
            is_used[found] = true;
        }
        e->count[r->outcome]++;
    }
    return 0;
}

static int list_unused(struct ckpt_build *b, struct ckpt_expect *e, const bool *is_used) {
    const struct ckpt_model *m = b->model;
    size_t n = 0;
    for (size_t i = 0; i < m->ntensors; i++)
        n += ckpt_adapted_is_stored(&m->tensor[i]) && !is_used[i];
    e->unused = ckpt_arena_array(&b->model->arena, n, sizeof *e->unused);
    if (!e->unused)
        return fail_memory(b);
    for (size_t i = 0; i < m->ntensors; i++) {
        if (!ckpt_adapted_is_stored(&m->tensor[i]) || is_used[i])
            continue;
        e->unused[e->nunused++] = i;
        e->nusual += ckpt_expect_is_usual(m->tensor[i].key);
    }
    return 0;
}

/* The missing parameters and the unused tensors may be the same under other names. */
static int suggest(struct ckpt_build *b, struct ckpt_expect *e) {
    const size_t nhere = e->count[CKPT_EXPECT_MISSING];
    CKPT_AUTO(free) struct ckpt_suggest_item *here = calloc(nhere + 1, sizeof *here);
    CKPT_AUTO(free) struct ckpt_suggest_item *there = calloc(e->nunused + 1, sizeof *there);
    CKPT_AUTO(free) size_t *partner = calloc(nhere + 1, sizeof *partner);
    if (!here || !there || !partner)
        return fail_memory(b);
    for (size_t i = 0, k = 0; i < e->nrecords; i++)
        if (e->record[i].outcome == CKPT_EXPECT_MISSING)
            here[k++] = item_of_parameter(e->record[i].parameter);
    for (size_t i = 0; i < e->nunused; i++)
        there[i] = item_of_tensor(&b->model->tensor[e->unused[i]]);
    const int rc = ckpt_suggest_pairs(here, nhere, there, e->nunused, partner, b->err);
    if (rc)
        return rc;
    for (size_t i = 0, k = 0; i < e->nrecords; i++) {
        struct ckpt_expect_record *r = &e->record[i];
        if (r->outcome == CKPT_EXPECT_MISSING && partner[k++] != CKPT_SUGGEST_NONE)
            r->tensor = e->unused[partner[k - 1]];
    }
    return 0;
}

/* --- warnings --------------------------------------------------------------------------------- */

static const struct ckpt_expect_record *first_of(const struct ckpt_expect *e,
                                                 enum ckpt_expect_outcome outcome) {
    for (size_t i = 0; i < e->nrecords; i++)
        if (e->record[i].outcome == outcome)
            return &e->record[i];
    return NULL;
}

/* One warning for all parameters of an outcome that burn would refuse. */
static int warn_of(struct ckpt_build *b, const struct ckpt_expect *e,
                   enum ckpt_expect_outcome outcome, const char *what, const char *advice) {
    const struct ckpt_expect_record *r = first_of(e, outcome);
    if (!r)
        return 0;
    const size_t n = e->count[outcome];
    const char *near = outcome == CKPT_EXPECT_MISSING && r->tensor != CKPT_EXPECT_NONE
                           ? ckpt_arena_printf(&b->model->arena, "; did you mean '%.*s'?",
                                               CKPT_TEXT_ARGS(b->model->tensor[r->tensor].key))
                           : "";
    return near ? ckpt_build_warn(b, "expect=%s: %s: %zu of %zu parameters, '%.*s'%s%s%s", e->file,
                                  what, n, e->nrecords, CKPT_TEXT_ARGS(r->parameter->name),
                                  n > 1 ? "..." : "", near, r->is_transposed ? advice : "")
                : fail_memory(b);
}

static int warn(struct ckpt_build *b, const struct ckpt_expect *e) {
    int rc = warn_of(b, e, CKPT_EXPECT_MISSING, "not in the adapted model", "");
    if (rc == 0)
        rc = warn_of(b, e, CKPT_EXPECT_SHAPE, "another shape",
                     ", whose tensor is turned around: -o kind= says what a module is");
    return rc ? rc
              : warn_of(b, e, CKPT_EXPECT_DTYPE, "another kind (floats, integers, booleans)", "");
}

/* The list's array goes where the records that point into it are. */
static int compare(struct ckpt_build *b, struct ckpt_expect *e,
                   const struct ckpt_parameters *list) {
    struct ckpt_arena *a = &b->model->arena;
    CKPT_AUTO(free) bool *is_used = calloc(b->model->ntensors + 1, sizeof *is_used);
    struct ckpt_parameter *parameter = ckpt_arena_array(a, list->n, sizeof *parameter);
    e->record = ckpt_arena_array(a, list->n, sizeof *e->record);
    if (!is_used || !parameter || !e->record)
        return fail_memory(b);
    if (list->n)
        memcpy(parameter, list->at, list->n * sizeof *parameter);
    int rc = compare_all(b, e, parameter, list->n, is_used);
    if (rc == 0)
        rc = list_unused(b, e, is_used);
    if (rc == 0)
        rc = suggest(b, e);
    return rc ? rc : warn(b, e);
}

/* Two parameters of one name would be one line in burn's report, and in ours. */
static int check_names(struct ckpt_build *b, const struct ckpt_parameters *list) {
    CKPT_AUTO(strmap) struct ckpt_strmap names = {0};
    for (size_t i = 0; i < list->n; i++) {
        const int rc = ckpt_strmap_add(&names, list->at[i].name, i, NULL);
        if (rc)
            return rc == -EEXIST ? ckpt_fail(b->err, -EINVAL, "the parameter '%.*s' is there twice",
                                             CKPT_TEXT_ARGS(list->at[i].name))
                                 : fail_memory(b);
    }
    return 0;
}

int ckpt_check_expected(struct ckpt_build *b) {
    const char *path = b->options->expect;
    struct ckpt_arena *a = &b->model->arena;
    if (!path)
        return 0;
    const char *slash = strrchr(path, '/');
    CKPT_AUTO(parameters) struct ckpt_parameters list = {0};
    struct ckpt_expect *e = ckpt_arena_alloc(a, sizeof *e);
    const char *name = slash ? slash + 1 : path;
    e = e && (e->file = ckpt_arena_copy(a, name, strlen(name))) ? e : NULL;
    if (!e)
        return fail_memory(b);
    int rc = ckpt_parameters_read(&list, a, path, b->err);
    if (rc == 0)
        rc = check_names(b, &list);
    if (rc)
        return ckpt_fail_in(b->err, "expect=%s", e->file);
    b->model->expect = e;
    return compare(b, e, &list);
}
