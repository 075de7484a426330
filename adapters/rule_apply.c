/*
 * Applying rule files to a model's items.
 *
 *     items      q.weight  k.weight  v.weight  fc.weight  norm.bias
 *     matched    rule 1    joined    joined    rule 2     -            one pass: who takes what
 *     shaped     in.weight                     fc.weight  norm.bias    one pass, in items' order
 *
 * Of each file in turn, `within` rules rename first (rule_within.c), then the first rule that
 * matches an item takes it. A source that another's concat names is taken too and shows by itself
 * only if a rule of that file, or of one before, says so.
 */
#include <errno.h>
#include <string.h>

#include "adapters/explain.h"
#include "adapters/rule.h"

struct match {
    struct ckpt_rule *rule;   /* NULL: no rule took it */
    size_t file;              /* the rule's */
    size_t joined_by;         /* file of the first rule whose concat names it; NOBODY */
    struct ckpt_rule *joiner; /* that rule */
    bool packed;              /* a rule would take it, but its elements cannot be moved */
};
#define NOBODY SIZE_MAX

struct apply {
    struct ckpt_build *b;
    struct ckpt_strmap keys; /* of the model's items */
    struct match *match;     /* one an item */
    struct ckpt_pieces pieces, other;
    struct ckpt_rule_lost lost;
};

static void apply_fini(struct apply *a) {
    ckpt_strmap_fini(&a->keys);
    ckpt_pieces_fini(&a->pieces);
    ckpt_pieces_fini(&a->other);
    ckpt_str_fini(&a->lost.names);
}
#define ckpt_auto_apply apply_fini

static bool moves_elements(const struct ckpt_rule *rule) {
    for (uint32_t t = 0; t < rule->ntargets; t++)
        for (uint32_t o = 0; o < rule->target[t].nop; o++)
            if (rule->target[t].op[o].kind == CKPT_RULE_PERMUTE ||
                rule->target[t].op[o].kind == CKPT_RULE_FLIP ||
                rule->target[t].op[o].kind == CKPT_RULE_CONCAT)
                return true;
    return false;
}

/* An element smaller than a byte cannot be moved: the tensor stays as it is. */
static bool is_packed(const struct ckpt_tensor *t) {
    return ckpt_dtype_info(t->dtype)->unit_elements > 1 || t->dtype == CKPT_DT_F4_X2;
}

/* Sources that the rule's concats name are taken with it. */
static int mark_joined(struct apply *a, size_t file, struct ckpt_rule *rule, struct ckpt_text key) {
    for (uint32_t t = 0; t < rule->ntargets; t++) {
        for (uint32_t o = 0; o < rule->target[t].nop; o++) {
            const struct ckpt_rule_op *op = &rule->target[t].op[o];
            for (uint32_t k = 0; k < op->njoin; k++) {
                struct ckpt_text name = op->join[k].key;
                if (!name.s)
                    continue;
                const int rc = ckpt_rule_expand(a->b, rule, key, name, 0, &name);
                if (rc)
                    return rc;
                const size_t other = ckpt_strmap_get(&a->keys, name);
                if (other == CKPT_STRMAP_ABSENT || file >= a->match[other].joined_by)
                    continue;
                a->match[other].joined_by = file;
                a->match[other].joiner = rule;
            }
        }
    }
    return 0;
}

/* The first rule of the file that fits. */
static int match_item(struct apply *a, size_t f, size_t i) {
    struct ckpt_rules *file = a->b->rules[f];
    const struct ckpt_item *item = &a->b->item[i];
    for (size_t r = 0; r < file->nrules; r++) {
        struct ckpt_rule *rule = &file->rule[r];
        if (ckpt_rule_computes(rule) || ckpt_rule_is_within(rule))
            continue;
        const int rc = ckpt_rule_takes(a->b, &a->keys, file, rule, item);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        rule->taken++;
        if (is_packed(item->tensor) && moves_elements(rule)) {
            a->match[i].packed = true;
            return ckpt_build_warn(
                a->b,
                "%.*s: elements of %s are smaller than a byte and cannot be moved: the "
                "tensor stays as it is stored (%s would move them)",
                CKPT_TEXT_ARGS(item->key), ckpt_dtype_info(item->tensor->dtype)->name, rule->where);
        }
        a->match[i].rule = rule;
        a->match[i].file = f;
        return mark_joined(a, f, rule, item->key);
    }
    return 0;
}

/* Whether no file before this one has settled what becomes of the item. */
static bool is_open(const struct apply *a, size_t f, size_t i) {
    const struct match *m = &a->match[i];
    return a->b->item[i].in_model && !m->rule && !m->packed && m->joined_by >= f;
}

static int rename_within(struct apply *a, size_t f) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < a->b->nitems; i++)
        if (is_open(a, f, i))
            rc = ckpt_rule_rename_within(a->b, &a->keys, a->b->rules[f], &a->b->item[i]);
    if (rc)
        return rc;
    ckpt_strmap_clear(&a->keys);
    return ckpt_rule_index_keys(a->b, &a->keys);
}

static bool any_within(const struct ckpt_rules *file) {
    for (size_t r = 0; r < file->nrules; r++)
        if (ckpt_rule_is_within(&file->rule[r]))
            return true;
    return false;
}

static int explain_file(struct apply *a, size_t f) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < a->b->nitems; i++) {
        const struct match *m = &a->match[i];
        if (a->b->item[i].in_model)
            rc = ckpt_explain_file(a->b, &a->keys, a->b->rules[f], &a->b->item[i], m->rule,
                                   m->joiner);
    }
    return rc;
}

static int match_file(struct apply *a, size_t f) {
    int rc = any_within(a->b->rules[f]) ? rename_within(a, f) : 0;
    for (size_t i = 0; rc == 0 && i < a->b->nitems; i++)
        rc = is_open(a, f, i) ? match_item(a, f, i) : 0;
    return rc == 0 && a->b->options->explain ? explain_file(a, f) : rc;
}

/* A model of this dialect has no such tensor. */
static int fail_foreign(const struct apply *a, size_t f, struct ckpt_text key) {
    const struct ckpt_rules *const file = a->b->rules[f];
    const bool known = file->settled >= 0;
    return ckpt_fail(a->b->err, -EINVAL,
                     "the model comes nearest to %s%sdialect=%s, but it has a '%.*s', which that "
                     "has not; dialect=torch shows the arrays as they are",
                     known ? file->variant_name[file->settled].s : "", known ? " of " : "",
                     file->name, CKPT_TEXT_ARGS(key));
}

/* A closed file takes every tensor that those before it have left. */
static int check_closed(struct apply *a, size_t f) {
    for (size_t i = 0; i < a->b->nitems; i++) {
        const struct ckpt_item *item = &a->b->item[i];
        const struct match *m = &a->match[i];
        if (!item->in_model || (m->rule && m->file <= f) || m->joined_by <= f)
            continue;
        return a->b->rules[f]->builtin
                   ? fail_foreign(a, f, item->key)
                   : ckpt_fail(a->b->err, -EINVAL,
                               "%s takes every tensor of its model, but has no rule for '%.*s'; "
                               "--inspect --explain says what its rules say to it",
                               a->b->rules[f]->name, CKPT_TEXT_ARGS(item->key));
    }
    return 0;
}

static int check_all_closed(struct apply *a) {
    int rc = 0;
    for (size_t f = 0; rc == 0 && f < a->b->nrules; f++)
        rc = a->b->rules[f]->closed ? check_closed(a, f) : 0;
    return rc;
}

static int match_all(struct apply *a) {
    struct ckpt_build *b = a->b;
    a->match = ckpt_arena_array(&b->scratch, b->nitems, sizeof *a->match);
    if (!a->match)
        return ckpt_fail_memory(b->err, "applying rules");
    for (size_t i = 0; i < b->nitems; i++)
        a->match[i].joined_by = NOBODY;
    int rc = ckpt_rule_index_keys(b, &a->keys);
    for (size_t f = 0; rc == 0 && f < b->nrules; f++)
        rc = match_file(a, f);
    for (size_t i = 0; rc == 0 && i < b->nitems; i++)
        if (is_open(a, b->nrules, i))
            rc = ckpt_rule_note_lost(b, &a->keys, &b->item[i], &a->lost);
    if (rc == 0)
        rc = ckpt_rule_warn_lost(b, &a->lost);
    return rc ? rc : check_all_closed(a);
}

/* --- what becomes of it --- */

static int run(struct apply *a, struct ckpt_rule *rule, const struct ckpt_rule_target *target,
               uint32_t nop, size_t item, int64_t index, struct ckpt_pieces *p);

static int fail_absent(struct ckpt_build *b, struct ckpt_text name) {
    struct ckpt_text *key = ckpt_arena_array(&b->model->arena, b->nitems, sizeof *key);
    size_t n = 0;
    for (size_t i = 0; key && i < b->nitems; i++)
        if (b->item[i].in_model)
            key[n++] = b->item[i].key;
    return ckpt_fail(b->err, -EINVAL, "concat: there is no tensor '%.*s'%s", CKPT_TEXT_ARGS(name),
                     ckpt_build_did_you_mean(b, name, key, n));
}

/* Zeros in the shape of the other pieces, alone. The two may be the same. */
static int zeros_like(struct ckpt_pieces *p, const struct ckpt_pieces *like, enum ckpt_dtype dtype,
                      struct ckpt_err *err) {
    int64_t shape[CKPT_NDIM_MAX];
    const uint32_t ndim = like->at[0].view.ndim;
    memcpy(shape, like->at[0].view.shape, ndim * sizeof *shape);
    for (size_t i = 1; i < like->n; i++)
        shape[like->axis] += like->at[i].view.shape[like->axis];
    p->n = 0;
    return ckpt_pieces_add_zeros(p, shape, ndim, dtype, err);
}

/* concat: the operations before it are done to each joined source as to the first. */
static int join(struct apply *a, struct ckpt_rule *rule, const struct ckpt_rule_target *target,
                uint32_t at, size_t item, int64_t index) {
    const struct ckpt_rule_op *op = &target->op[at];
    struct ckpt_err *err = a->b->err;
    const struct ckpt_text key = a->b->item[item].key;
    const size_t nown = a->pieces.n;
    for (uint32_t k = 0; k < op->njoin; k++) {
        struct ckpt_text name = op->join[k].key;
        int rc;
        if (!name.s && !op->join[k].shape) {
            struct ckpt_pieces own = a->pieces;
            own.n = nown;
            rc = zeros_like(&a->other, &own, a->b->item[item].tensor->dtype, err);
        } else if (!name.s) {
            a->other.n = 0;
            rc = ckpt_pieces_add_zeros(&a->other, op->join[k].shape, op->join[k].ndim,
                                       a->b->item[item].tensor->dtype, err);
        } else {
            rc = ckpt_rule_expand(a->b, rule, key, name, index, &name);
            const size_t other = rc ? CKPT_STRMAP_ABSENT : ckpt_strmap_get(&a->keys, name);
            if (rc == 0 && other == CKPT_STRMAP_ABSENT)
                rc = fail_absent(a->b, name);
            if (rc == 0)
                rc = run(a, rule, target, at, other, index, &a->other);
        }
        if (rc == 0)
            rc = ckpt_pieces_join(&a->pieces, &a->other, op->axis, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* The first nop operations of the target on one source. */
static int run(struct apply *a, struct ckpt_rule *rule, const struct ckpt_rule_target *target,
               uint32_t nop, size_t item, int64_t index, struct ckpt_pieces *p) {
    const struct ckpt_tensor *t = a->b->item[item].tensor;
    const struct ckpt_shaped *made = a->b->item[item].made;
    p->arena = &a->b->model->arena;
    int rc = made ? ckpt_pieces_resume(p, made, t->dtype, a->b->err)
                  : ckpt_pieces_start(p, t, a->b->err);
    for (uint32_t i = 0; rc == 0 && i < nop; i++) {
        const struct ckpt_rule_op *op = &target->op[i];
        if (op->kind == CKPT_RULE_CONCAT) {
            rc = join(a, rule, target, i, item, index);
        } else if (op->kind == CKPT_RULE_ZEROS && op->alike) {
            rc = zeros_like(p, p, t->dtype, a->b->err);
        } else if (op->kind == CKPT_RULE_ZEROS) {
            p->n = 0;
            rc = ckpt_pieces_add_zeros(p, op->list, op->n, t->dtype, a->b->err);
        } else {
            rc = ckpt_pieces_apply(p, op, index, a->b->err);
        }
    }
    return rc;
}

/* The operations outlive the rules that they come from: their lists are copied, too. */
static int keep_ops(struct ckpt_arena *a, const struct ckpt_piece *piece, struct ckpt_part *part) {
    struct ckpt_view_op *op = ckpt_arena_array(a, piece->nop, sizeof *op);
    if (!op)
        return -ENOMEM;
    for (uint32_t i = 0; i < piece->nop; i++) {
        op[i] = piece->op[i];
        if (op[i].n == 0)
            continue;
        int64_t *list = ckpt_arena_array(a, op[i].n, sizeof *list);
        if (!list)
            return -ENOMEM;
        memcpy(list, piece->op[i].list, op[i].n * sizeof *list);
        op[i].list = list;
    }
    part->op = op;
    part->nop = piece->nop;
    part->ntorch = piece->ntorch;
    return 0;
}

static int keep_part(struct ckpt_arena *a, const struct ckpt_piece *piece, enum ckpt_dtype dtype,
                     struct ckpt_part *part) {
    part->source = piece->tensor;
    (void)ckpt_dtype_bytes(dtype, (uint64_t)ckpt_view_count(&piece->view), &part->nbytes);
    if (!piece->tensor)
        return 0;
    part->walk = ckpt_walk_pack(a, &piece->view);
    if (!part->walk)
        return -ENOMEM;
    return keep_ops(a, piece, part);
}

/* How often the pieces take turns in C order: once for each index before their axis. */
static uint64_t turns(const struct ckpt_view *v, uint32_t axis) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < axis; d++)
        if (__builtin_mul_overflow(n, (uint64_t)v->shape[d], &n))
            return 1; /* then another dimension is 0, and there is no byte to take */
    return n;
}

/* Packs pieces into parts and their common shape. */
static int keep(struct ckpt_arena *a, const struct ckpt_pieces *p, enum ckpt_dtype dtype,
                struct ckpt_shaped *out) {
    const struct ckpt_view *first = &p->at[0].view;
    int64_t *shape = ckpt_arena_array(a, first->ndim, sizeof *shape);
    out->part = ckpt_arena_array(a, p->n, sizeof *out->part);
    if (!shape || !out->part)
        return -ENOMEM;
    memcpy(shape, first->shape, first->ndim * sizeof *shape);
    out->turns = p->n > 1 ? turns(first, p->axis) : 1;
    out->axis = p->axis;
    for (size_t i = 0; i < p->n; i++) {
        if (i > 0)
            shape[p->axis] += p->at[i].view.shape[p->axis];
        if (keep_part(a, &p->at[i], dtype, &out->part[i]))
            return -ENOMEM;
    }
    out->shape = shape;
    out->ndim = first->ndim;
    out->nparts = (uint32_t)p->n;
    return 0;
}

static int name_ops(struct ckpt_arena *a, const struct ckpt_shaped *made,
                    const struct ckpt_rule_target *target, struct ckpt_shaped *out) {
    const uint32_t before = made ? made->nops : 0;
    out->op = ckpt_arena_array(a, before + target->nop, sizeof *out->op);
    if (!out->op)
        return -ENOMEM;
    for (; out->nops < before; out->nops++)
        out->op[out->nops] = made->op[out->nops];
    for (uint32_t i = 0; i < target->nop; i++)
        out->op[out->nops++] = ckpt_rule_op_name(&target->op[i]);
    return 0;
}

static int make_target(struct apply *a, struct ckpt_rule *rule,
                       const struct ckpt_rule_target *target, size_t item, int64_t index,
                       struct ckpt_shaped *out) {
    struct ckpt_build *b = a->b;
    const struct ckpt_text key = b->item[item].key;
    *out = (struct ckpt_shaped){.item = item,
                                .by = rule->where,
                                .key = key,
                                .cast = target->cast,
                                .alias = target->alias || b->item[item].alias};
    int rc = target->name.s ? ckpt_rule_expand(a->b, rule, key, target->name, index, &out->key) : 0;
    if (rc)
        return rc;
    rc = run(a, rule, target, target->nop, item, index, &a->pieces);
    if (rc)
        return ckpt_fail_in(b->err, "%s: '%.*s'", rule->where, CKPT_TEXT_ARGS(key));
    if (keep(&b->model->arena, &a->pieces, b->item[item].tensor->dtype, out) ||
        name_ops(&b->model->arena, b->item[item].made, target, out))
        return ckpt_fail_memory(b->err, "applying rules");
    return 0;
}

/* All targets of an item: element by element of a fan, so that what lies together in the source
 * stays together. */
static int make_targets(struct apply *a, size_t item, struct ckpt_shaped_list *out) {
    struct ckpt_rule *rule = a->match[item].rule;
    int64_t most = 1, fan[CKPT_RULE_LIST_MAX];
    for (int64_t index = 0; index < most; index++) {
        for (uint32_t t = 0; t < rule->ntargets; t++) {
            if (index > 0 && index >= fan[t])
                continue;
            struct ckpt_shaped shaped;
            int rc = make_target(a, rule, &rule->target[t], item, index, &shaped);
            if (rc == 0)
                rc = ckpt_shaped_add(a->b, out, &shaped);
            if (rc)
                return rc;
            fan[t] = a->pieces.fan;
            most = fan[t] > most ? fan[t] : most;
        }
    }
    return 0;
}

int ckpt_shaped_add(struct ckpt_build *b, struct ckpt_shaped_list *list,
                    const struct ckpt_shaped *shaped) {
    if (list->n == CKPT_LIMIT_TENSORS)
        return ckpt_fail(b->err, -E2BIG, "the rules make more than %u tensors", CKPT_LIMIT_TENSORS);
    if (list->n == list->cap) {
        const size_t cap = list->cap ? 2 * list->cap : 256;
        struct ckpt_shaped *bigger = realloc(list->at, cap * sizeof *bigger);
        if (!bigger)
            return ckpt_fail_memory(b->err, "adapting tensors");
        list->at = bigger;
        list->cap = cap;
    }
    list->at[list->n++] = *shaped;
    return 0;
}

int ckpt_shape_identity(struct ckpt_build *b, size_t item, struct ckpt_shaped *out) {
    const struct ckpt_tensor *t = b->item[item].tensor;
    struct ckpt_arena *a = &b->model->arena;
    struct ckpt_view view;
    if (b->item[item].made) {
        *out = *b->item[item].made;
        out->item = item;
        out->key = b->item[item].key;
        out->alias = b->item[item].alias;
        return 0;
    }
    *out = (struct ckpt_shaped){
        .item = item, .key = b->item[item].key, .ndim = t->ndim, .shape = t->shape, .nparts = 1};
    const int rc = ckpt_view_init(&view, t, b->err);
    if (rc)
        return ckpt_fail_in(b->err, "tensor '%.*s'", CKPT_TEXT_ARGS(t->key));
    out->part = ckpt_arena_alloc(a, sizeof *out->part);
    if (!out->part)
        return ckpt_fail_memory(b->err, "adapting tensors");
    out->part->source = t;
    out->part->nbytes = ckpt_tensor_bytes(t);
    out->part->walk = ckpt_walk_pack(a, &view);
    return out->part->walk ? 0 : ckpt_fail_memory(b->err, "adapting tensors");
}

int ckpt_rules_apply(struct ckpt_build *b, struct ckpt_shaped_list *out) {
    CKPT_AUTO(apply) struct apply a = {.b = b};
    int rc = match_all(&a);
    for (size_t i = 0; rc == 0 && i < b->nitems; i++) {
        const bool in_model = b->item[i].in_model;
        if (in_model && a.match[i].rule) {
            rc = make_targets(&a, i, out);
        } else if (!in_model || a.match[i].joined_by == NOBODY) {
            struct ckpt_shaped shaped;
            rc = ckpt_shape_identity(b, i, &shaped);
            if (rc == 0)
                rc = ckpt_shaped_add(b, out, &shaped);
        }
    }
    return rc;
}
