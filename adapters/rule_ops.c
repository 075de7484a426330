/*
 * The operations of a rule on the pieces of a tensor. Nearly always there is one piece and an
 * operation is the view's own. Several pieces lie one behind the other along an axis:
 *
 *     q [8, 4] | k [8, 4] | v [8, 4]      the tensor [24, 4], joined along axis 0
 *
 * What keeps that axis whole is done to each piece; a permutation takes it along; a slice along it
 * picks pieces, so that a split undoes a join and gives the source's bytes back; what would tear it
 * apart is refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/rule.h"
#include "adapters/view_cut.h"

const char *ckpt_rule_op_name(const struct ckpt_rule_op *op) {
    static const char *const names[] = {
        [CKPT_RULE_PERMUTE] = "permute",     [CKPT_RULE_RESHAPE] = "reshape",
        [CKPT_RULE_SLICE] = "slice",         [CKPT_RULE_INDEX] = "slice",
        [CKPT_RULE_FLIP] = "flip",           [CKPT_RULE_SQUEEZE] = "squeeze",
        [CKPT_RULE_UNSQUEEZE] = "unsqueeze", [CKPT_RULE_SPLIT] = "split",
        [CKPT_RULE_UNSTACK] = "unstack",     [CKPT_RULE_CONCAT] = "concat",
        [CKPT_RULE_ZEROS] = "zeros",         [CKPT_RULE_WEIGHT_NORM] = "weight_norm",
        [CKPT_RULE_LORA] = "lora",
    };
    const bool transpose = op->kind == CKPT_RULE_PERMUTE && op->n == 2 && op->list[0] == 1;
    return transpose ? "transpose" : names[op->kind];
}

void ckpt_pieces_fini(struct ckpt_pieces *p) {
    free(p->at);
    p->at = NULL;
    p->n = p->cap = 0;
}

static int grow(struct ckpt_pieces *p, struct ckpt_err *err) {
    if (p->n == CKPT_RULE_PIECES_MAX)
        return ckpt_fail(err, -EINVAL, "more than %u sources joined in one tensor",
                         CKPT_RULE_PIECES_MAX);
    if (p->n < p->cap)
        return 0;
    const size_t cap = p->cap ? 2 * p->cap : 1;
    struct ckpt_piece *bigger = realloc(p->at, cap * sizeof *bigger);
    if (!bigger)
        return ckpt_fail_memory(err, "applying a rule");
    p->at = bigger;
    p->cap = cap;
    return 0;
}

int ckpt_pieces_start(struct ckpt_pieces *p, const struct ckpt_tensor *t, struct ckpt_err *err) {
    p->n = 0;
    p->axis = 0;
    p->fan = 1;
    const int rc = grow(p, err);
    if (rc)
        return rc;
    p->at[0].tensor = t;
    p->at[0].nop = p->at[0].ntorch = 0;
    p->n = 1;
    return ckpt_view_init(&p->at[0].view, t, err);
}

int ckpt_pieces_add_zeros(struct ckpt_pieces *p, const int64_t *shape, uint32_t ndim,
                          enum ckpt_dtype dtype, struct ckpt_err *err) {
    const struct ckpt_dtype_info *info = ckpt_dtype_info(dtype);
    uint64_t count;
    if (info->unit_elements > 1)
        return ckpt_fail(err, -EINVAL, "zeros of %s, which is packed", info->name);
    if (!ckpt_shape_count(shape, ndim, &count) || count > CKPT_LIMIT_TENSOR_BYTES)
        return ckpt_fail(err, -EINVAL, "zeros of too large a shape");
    const int rc = grow(p, err);
    if (rc)
        return rc;
    struct ckpt_piece *z = &p->at[p->n++];
    z->tensor = NULL;
    z->nop = z->ntorch = 0;
    /* One zero repeated: a walk of stride 0 has every border, so no operation is refused. */
    memset(&z->view, 0, sizeof z->view);
    z->view.esize = info->unit_bytes;
    z->view.unit_elements = 1;
    z->view.ndim = ndim;
    memcpy(z->view.shape, shape, ndim * sizeof *shape);
    if (count > 1) {
        z->view.pair[0] = (struct ckpt_dim){(int64_t)count, 0};
        z->view.npairs = 1;
    }
    return 0;
}

/* Whether the shapes are the same but for their length along the axis. */
static bool fit(const struct ckpt_view *a, const struct ckpt_view *b, uint32_t axis) {
    bool same = a->ndim == b->ndim;
    for (uint32_t d = 0; same && d < a->ndim; d++)
        same = d == axis || a->shape[d] == b->shape[d];
    return same;
}

/* Elements are read alike in all parts of a tensor. */
static bool same_elements(const struct ckpt_tensor *a, const struct ckpt_tensor *b) {
    return !a || !b ||
           (a->dtype == b->dtype && a->swap == b->swap && a->conj == b->conj && a->neg == b->neg);
}

static int refuse_shapes(const struct ckpt_view *a, const struct ckpt_view *b, uint32_t axis,
                         struct ckpt_err *err) {
    char x[CKPT_SHAPE_TEXT], y[CKPT_SHAPE_TEXT];
    return ckpt_fail(err, -EINVAL, "concat: %s and %s differ in more than axis %u",
                     ckpt_shape_text(x, a->shape, a->ndim), ckpt_shape_text(y, b->shape, b->ndim),
                     axis);
}

int ckpt_pieces_join(struct ckpt_pieces *p, const struct ckpt_pieces *more, uint32_t axis,
                     struct ckpt_err *err) {
    const uint32_t ndim = p->at[0].view.ndim;
    if (axis >= ndim)
        return ckpt_fail(err, -EINVAL, "concat: axis %u of a tensor of rank %u", axis, ndim);
    p->axis = axis;
    for (size_t i = 0; i < more->n; i++) {
        const struct ckpt_piece *next = &more->at[i];
        if (!fit(&p->at[0].view, &next->view, axis))
            return refuse_shapes(&p->at[0].view, &next->view, axis, err);
        if (!same_elements(p->at[0].tensor, next->tensor))
            return ckpt_fail(err, -EINVAL, "concat: the dtypes differ");
        const int rc = grow(p, err);
        if (rc)
            return rc;
        p->at[p->n++] = *next;
    }
    return 0;
}

/* --- one piece --- */

static int record(struct ckpt_piece *p, struct ckpt_view_op op, struct ckpt_err *err) {
    if (p->nop == CKPT_RULE_OPS_MAX)
        return ckpt_fail(err, -EINVAL, "more than %u operations on one tensor", CKPT_RULE_OPS_MAX);
    p->op[p->nop++] = op;
    return 0;
}

static const int64_t *kept_list(struct ckpt_arena *a, const int64_t *list, uint32_t n) {
    int64_t *copy = ckpt_arena_array(a, n, sizeof *copy);
    if (copy)
        memcpy(copy, list, n * sizeof *copy);
    return copy;
}

static int permute(struct ckpt_piece *p, const struct ckpt_rule_op *op, struct ckpt_err *err) {
    uint32_t order[CKPT_RULE_LIST_MAX];
    for (uint32_t i = 0; i < op->n; i++)
        order[i] = (uint32_t)op->list[i];
    const int rc = ckpt_view_permute(&p->view, order, op->n, err);
    return rc ? rc
              : record(
                    p,
                    (struct ckpt_view_op){.kind = CKPT_VIEW_PERMUTE, .list = op->list, .n = op->n},
                    err);
}

/* A 0 keeps a dimension: before a -1 the one at the same place from the front, after it from the
 * back. */
static int reshape(struct ckpt_arena *a, struct ckpt_piece *p, const struct ckpt_rule_op *op,
                   struct ckpt_err *err) {
    int64_t shape[CKPT_RULE_LIST_MAX];
    bool inferred = false;
    for (uint32_t i = 0; i < op->n; i++) {
        shape[i] = op->list[i];
        inferred |= shape[i] == -1;
        const int64_t from = inferred ? (int64_t)p->view.ndim - (int64_t)(op->n - i) : (int64_t)i;
        if (shape[i] != 0)
            continue;
        if (from < 0 || from >= (int64_t)p->view.ndim)
            return ckpt_fail(err, -EINVAL, "reshape: no dimension to keep at place %u", i);
        shape[i] = p->view.shape[from];
    }
    const int rc = ckpt_view_reshape(&p->view, shape, op->n, err);
    if (rc)
        return rc;
    const int64_t *list = kept_list(a, p->view.shape, op->n);
    return list ? record(p,
                         (struct ckpt_view_op){.kind = CKPT_VIEW_RESHAPE, .list = list, .n = op->n},
                         err)
                : ckpt_fail_memory(err, "applying a rule");
}

static int slice(struct ckpt_piece *p, uint32_t axis, int64_t start, int64_t len, int64_t step,
                 struct ckpt_err *err) {
    const int rc = ckpt_view_slice(&p->view, axis, start, len, step, err);
    return rc ? rc
              : record(p,
                       (struct ckpt_view_op){.kind = CKPT_VIEW_SLICE,
                                             .dim = axis,
                                             .start = start,
                                             .len = len,
                                             .step = step},
                       err);
}

static int simple(struct ckpt_piece *p, enum ckpt_view_op_kind kind, uint32_t axis, int64_t at,
                  struct ckpt_err *err) {
    int rc;
    switch (kind) {
    case CKPT_VIEW_INDEX:
        rc = ckpt_view_index(&p->view, axis, at, err);
        break;
    case CKPT_VIEW_FLIP:
        rc = ckpt_view_flip(&p->view, axis, err);
        break;
    case CKPT_VIEW_SQUEEZE:
        rc = ckpt_view_squeeze(&p->view, axis, err);
        break;
    default:
        rc = ckpt_view_unsqueeze(&p->view, axis, err);
        break;
    }
    return rc ? rc : record(p, (struct ckpt_view_op){.kind = kind, .dim = axis, .start = at}, err);
}

/* --- all pieces --- */

static int64_t length(const struct ckpt_pieces *p, uint32_t axis) {
    int64_t n = 0;
    for (size_t i = 0; i < p->n && (i == 0 || axis == p->axis); i++)
        n += p->at[i].view.shape[axis];
    return n;
}

/* Elements [start, start+len) along the axis of several pieces: parts of some, whole others. */
static int pick(struct ckpt_pieces *p, int64_t start, int64_t len, struct ckpt_err *err) {
    size_t kept = 0;
    int64_t at = 0;
    for (size_t i = 0; i < p->n; i++) {
        const int64_t size = p->at[i].view.shape[p->axis];
        const int64_t lo = start > at ? start - at : 0;
        const int64_t end = start + len - at, hi = end < size ? end : size;
        at += size;
        if (lo >= hi && !(len == 0 && kept == 0))
            continue;
        if (kept != i)
            p->at[kept] = p->at[i];
        const bool whole = lo == 0 && hi == size;
        const int rc =
            whole ? 0
                  : slice(&p->at[kept], p->axis, lo < hi ? lo : 0, lo < hi ? hi - lo : 0, 1, err);
        if (rc)
            return rc;
        kept++;
    }
    p->n = kept;
    return 0;
}

static int slice_all(struct ckpt_pieces *p, uint32_t axis, int64_t start, int64_t len, int64_t step,
                     struct ckpt_err *err) {
    if (axis == p->axis && p->n > 1) {
        if (step != 1)
            return ckpt_fail(err, -EOPNOTSUPP, "a slice with a step across joined sources");
        return pick(p, start, len, err);
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = slice(&p->at[i], axis, start, len, step, err);
    return rc;
}

static int index_all(struct ckpt_pieces *p, uint32_t axis, int64_t at, struct ckpt_err *err) {
    int rc = 0;
    if (axis == p->axis && p->n > 1) {
        size_t i = 0;
        while (i + 1 < p->n && at >= p->at[i].view.shape[axis])
            at -= p->at[i++].view.shape[axis];
        p->at[0] = p->at[i];
        p->n = 1;
    }
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = simple(&p->at[i], CKPT_VIEW_INDEX, axis, at, err);
    p->axis -= axis < p->axis;
    return rc;
}

/* Which block or element this target is, and how many there are. */
static int choose(struct ckpt_pieces *p, const struct ckpt_rule_op *op, int64_t count,
                  int64_t index, int64_t *which, struct ckpt_err *err) {
    if (count <= 0 || count > (int64_t)CKPT_LIMIT_TENSORS)
        return ckpt_fail(err, -EINVAL, "%s: into %lld tensors", ckpt_rule_op_name(op),
                         (long long)count);
    *which = op->which == CKPT_RULE_EACH ? index : op->which;
    if (op->which == CKPT_RULE_EACH)
        p->fan = count;
    return 0;
}

/* Blocks of the lengths that the rule lists; -1 is what the others leave. */
static int split_by_lengths(struct ckpt_pieces *p, const struct ckpt_rule_op *op, int64_t index,
                            struct ckpt_err *err) {
    const int64_t n = length(p, op->axis);
    int64_t which = 0, start = 0, sum = 0;
    bool rest = false;
    for (uint32_t i = 0; i < op->n; i++) { /* at most 64 of 2^53: no overflow */
        rest |= op->list[i] == -1;
        sum += op->list[i] == -1 ? 0 : op->list[i];
    }
    if (rest ? sum > n : sum != n)
        return ckpt_fail(err, -EINVAL, "split: axis %u has length %lld; its blocks have %lld",
                         op->axis, (long long)n, (long long)sum);
    const int rc = choose(p, op, op->count, index, &which, err);
    for (int64_t i = 0; rc == 0 && i < which; i++)
        start += op->list[i] == -1 ? n - sum : op->list[i];
    const int64_t len = op->list[which] == -1 ? n - sum : op->list[which];
    return rc ? rc : slice_all(p, op->axis, start, len, 1, err);
}

static int split(struct ckpt_pieces *p, const struct ckpt_rule_op *op, int64_t index,
                 struct ckpt_err *err) {
    const int64_t n = length(p, op->axis);
    int64_t which = 0;
    if (op->n)
        return split_by_lengths(p, op, index, err);
    if (n % op->count != 0)
        return ckpt_fail(err, -EINVAL, "split: axis %u has length %lld, which is not %lld blocks",
                         op->axis, (long long)n, (long long)op->count);
    const int rc = choose(p, op, op->count, index, &which, err);
    return rc ? rc : slice_all(p, op->axis, which * (n / op->count), n / op->count, 1, err);
}

static int unstack(struct ckpt_pieces *p, const struct ckpt_rule_op *op, int64_t index,
                   struct ckpt_err *err) {
    const int64_t n = length(p, op->axis);
    int64_t which = 0;
    if (op->count && n != op->count)
        return ckpt_fail(err, -EINVAL, "unstack: axis %u has length %lld; %lld names are given",
                         op->axis, (long long)n, (long long)op->count);
    const int rc = choose(p, op, n, index, &which, err);
    return rc ? rc : index_all(p, op->axis, which, err);
}

static int slice_rule(struct ckpt_pieces *p, const struct ckpt_rule_op *op, struct ckpt_err *err) {
    const int64_t n = length(p, op->axis);
    const int64_t stop = op->stop < n ? op->stop : n;
    if (op->stop > n && op->stop != INT64_MAX)
        return ckpt_fail(err, -EINVAL, "slice: up to %lld of axis %u, whose length is %lld",
                         (long long)op->stop, op->axis, (long long)n);
    const int64_t len = stop > op->start ? (stop - op->start - 1) / op->step + 1 : 0;
    return slice_all(p, op->axis, op->start, len, op->step, err);
}

/* Whether an operation on several pieces would not leave their axis whole. */
static bool tears(const struct ckpt_pieces *p, const struct ckpt_rule_op *op) {
    if (op->kind == CKPT_RULE_SQUEEZE)
        return op->axis == p->axis;
    bool kept = op->kind != CKPT_RULE_RESHAPE || op->n > p->axis;
    for (uint32_t d = 0; kept && op->kind == CKPT_RULE_RESHAPE && d <= p->axis; d++)
        kept = op->list[d] == 0;
    return !kept;
}

/* Where the axis is after an operation that was done to each piece. */
static void follow_axis(struct ckpt_pieces *p, const struct ckpt_rule_op *op) {
    uint32_t at = 0;
    switch (op->kind) {
    case CKPT_RULE_PERMUTE:
        while (at < op->n && op->list[at] != p->axis)
            at++;
        p->axis = at;
        break;
    case CKPT_RULE_SQUEEZE:
        p->axis -= op->axis < p->axis;
        break;
    case CKPT_RULE_UNSQUEEZE:
        p->axis += op->axis <= p->axis;
        break;
    default:
        break;
    }
}

/* What is flipped along its axis begins with its last piece. */
static void reverse(struct ckpt_pieces *p) {
    for (size_t i = 0; i < p->n / 2; i++) {
        const struct ckpt_piece first = p->at[i];
        p->at[i] = p->at[p->n - 1 - i];
        p->at[p->n - 1 - i] = first;
    }
}

static bool needs_axis(enum ckpt_rule_op_kind k) {
    return k != CKPT_RULE_PERMUTE && k != CKPT_RULE_RESHAPE && k != CKPT_RULE_UNSQUEEZE;
}

static int apply_each(struct ckpt_pieces *p, struct ckpt_piece *piece,
                      const struct ckpt_rule_op *op, struct ckpt_err *err) {
    switch (op->kind) {
    case CKPT_RULE_PERMUTE:
        return permute(piece, op, err);
    case CKPT_RULE_RESHAPE:
        return reshape(p->arena, piece, op, err);
    case CKPT_RULE_FLIP:
        return simple(piece, CKPT_VIEW_FLIP, op->axis, 0, err);
    case CKPT_RULE_SQUEEZE:
        return simple(piece, CKPT_VIEW_SQUEEZE, op->axis, 0, err);
    default:
        return simple(piece, CKPT_VIEW_UNSQUEEZE, op->axis, 0, err);
    }
}

int ckpt_pieces_apply(struct ckpt_pieces *p, const struct ckpt_rule_op *op, int64_t index,
                      struct ckpt_err *err) {
    const uint32_t ndim = p->at[0].view.ndim;
    if (needs_axis(op->kind) && op->axis >= ndim)
        return ckpt_fail(err, -EINVAL, "%s: axis %u of a tensor of rank %u", ckpt_rule_op_name(op),
                         op->axis, ndim);
    if (p->n > 1 && tears(p, op))
        return ckpt_fail(err, -EOPNOTSUPP,
                         "%s: would break axis %u, along which sources are joined",
                         ckpt_rule_op_name(op), p->axis);
    switch (op->kind) {
    case CKPT_RULE_SLICE:
        return slice_rule(p, op, err);
    case CKPT_RULE_INDEX:
        return index_all(p, op->axis, op->start, err);
    case CKPT_RULE_SPLIT:
        return split(p, op, index, err);
    case CKPT_RULE_UNSTACK:
        return unstack(p, op, index, err);
    default:
        break;
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = apply_each(p, &p->at[i], op, err);
    if (op->kind == CKPT_RULE_FLIP && op->axis == p->axis)
        reverse(p);
    follow_axis(p, op);
    return rc;
}
