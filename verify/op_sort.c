/* Sorting along a dimension, and the first few of it. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/lanes.h"
#include "verify/rank.h"

struct sorting {
    struct ckpt_array x, values, indices, scratch;
    struct ckpt_lanes from, to;
    struct ckpt_rank_order order;
    int64_t k;
};

static void sorting_fini(struct sorting *s) {
    ckpt_array_fini(&s->x);
    ckpt_array_fini(&s->values);
    ckpt_array_fini(&s->indices);
    ckpt_array_fini(&s->scratch);
}
CKPT_DEFINE_AUTO(sorting, struct sorting, sorting_fini)

/* Takes x along dimension dim; k elements of each lane are the result, all of them if negative. */
static int begin(struct ckpt_call *c, uint32_t dim, int64_t k, struct sorting *s,
                 struct ckpt_err *err) {
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    const int64_t words = (int64_t)(2 * sizeof(struct ckpt_ranked) / sizeof(int64_t));
    memcpy(shape, s->x.shape, sizeof(shape));
    s->from = ckpt_lanes_of(&s->x, dim);
    s->k = k < 0 ? s->from.width : k;
    if (s->k > s->from.width)
        return ckpt_fail(err, -EINVAL, "wants %lld of %lld elements", (long long)s->k,
                         (long long)s->from.width);
    if (s->x.ndim)
        shape[dim] = s->k;
    int rc = ckpt_array_new(&s->values, &c->exec->memory, s->x.dtype, shape, s->x.ndim, err);
    if (rc == 0)
        rc = ckpt_array_new(&s->indices, &c->exec->memory, CKPT_DT_I64, shape, s->x.ndim, err);
    if (rc == 0)
        rc = ckpt_array_new(&s->scratch, &c->exec->memory, CKPT_DT_I64,
                            (const int64_t[]){s->from.width, words}, 2, err);
    if (rc == 0)
        s->to = ckpt_lanes_of(&s->values, dim);
    return rc;
}

static void load_lane(const struct sorting *s, int64_t lane, struct ckpt_ranked *v) {
    int64_t at = ckpt_lanes_start(&s->from, lane);
    for (int64_t k = 0; k < s->from.width; k++, at += s->from.step) {
        v[k] = (struct ckpt_ranked){.f = ckpt_array_get(&s->x, at), .index = k};
        if (s->x.dtype == CKPT_DT_I64)
            v[k].i = ckpt_array_i64(&s->x)[at];
    }
}

static void store_lane(const struct sorting *s, int64_t lane, const struct ckpt_ranked *v) {
    const int64_t from = ckpt_lanes_start(&s->from, lane);
    const size_t size = ckpt_dtype_info(s->x.dtype)->unit_bytes;
    int64_t at = ckpt_lanes_start(&s->to, lane);
    for (int64_t k = 0; k < s->k; k++, at += s->to.step) {
        const size_t source = (size_t)(from + v[k].index * s->from.step);
        ckpt_array_i64(&s->indices)[at] = v[k].index;
        memcpy((char *)s->values.data + (size_t)at * size, (const char *)s->x.data + source * size,
               size);
    }
}

/* top: only the k first matter, and they are sorted or not. */
static int run_lanes(struct ckpt_call *c, struct sorting *s, bool top, bool sorted,
                     struct ckpt_err *err) {
    struct ckpt_ranked *const v = s->scratch.data;
    const int64_t n = s->from.width;
    int rc = 0;
    s->order.whole = s->x.dtype == CKPT_DT_I64;
    for (int64_t lane = 0; rc == 0 && n > 0 && lane < s->from.count; lane++) {
        load_lane(s, lane, v);
        if (top)
            ckpt_rank_top(s->order, v, n, s->k, sorted);
        else
            ckpt_rank_sort(s->order, v, v + n, n);
        store_lane(s, lane, v);
        rc = lane % 64 == 0 ? ckpt_exec_check(c->exec, err) : 0;
    }
    return rc;
}

static int take(struct ckpt_call *c, int64_t otherwise, struct sorting *s, uint32_t *dim,
                struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = {0};
    int rc = ckpt_call_tensor(c, "self", &given, err);
    if (rc == 0)
        rc = ckpt_call_dim(c, "dim", otherwise, given.ndim, dim, err);
    return rc < 0 ? rc : ckpt_array_contiguous(&given, &c->exec->memory, &s->x, err);
}

static int op_topk(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(sorting) struct sorting s = {0};
    uint32_t dim = 0;
    const int64_t k = ckpt_call_int(c, "k", -1);
    int rc = take(c, -1, &s, &dim, err);
    if (rc == 0 && k < 0)
        rc = ckpt_fail(err, -EINVAL, "k is missing or negative");
    if (rc == 0)
        rc = begin(c, dim, k, &s, err);
    s.order.descending = ckpt_call_bool(c, "largest", true);
    if (rc == 0)
        rc = run_lanes(c, &s, true, ckpt_call_bool(c, "sorted", true), err);
    if (rc == 0)
        c->out[0] = ckpt_array_ref(&s.values);
    if (rc == 0 && c->nout > 1)
        c->out[1] = ckpt_array_ref(&s.indices);
    return rc;
}

static int sort(struct ckpt_call *c, int64_t dim_otherwise, struct sorting *s,
                struct ckpt_err *err) {
    uint32_t dim = 0;
    int rc = take(c, dim_otherwise, s, &dim, err);
    if (rc == 0)
        rc = begin(c, dim, -1, s, err);
    s->order.descending = ckpt_call_bool(c, "descending", false);
    return rc < 0 ? rc : run_lanes(c, s, false, true, err);
}

static int op_sort(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(sorting) struct sorting s = {0};
    const int rc = sort(c, -1, &s, err);
    if (rc == 0)
        c->out[0] = ckpt_array_ref(&s.values);
    if (rc == 0 && c->nout > 1)
        c->out[1] = ckpt_array_ref(&s.indices);
    return rc;
}

static int op_argsort(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(sorting) struct sorting s = {0};
    const int rc = sort(c, -1, &s, err);
    if (rc == 0)
        c->out[0] = ckpt_array_ref(&s.indices);
    return rc;
}

static int op_msort(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(sorting) struct sorting s = {0};
    const int rc = sort(c, 0, &s, err);
    if (rc == 0)
        c->out[0] = ckpt_array_ref(&s.values);
    return rc;
}

static const struct ckpt_op ops[] = {
    {"topk",
     "topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) "
     "-> (Tensor values, Tensor indices)",
     op_topk},
    {"sort",
     "sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
     op_sort},
    {"sort",
     "sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) "
     "-> (Tensor values, Tensor indices)",
     op_sort},
    {"argsort", "argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor", op_argsort},
    {"argsort",
     "argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor",
     op_argsort},
    {"msort", "msort(Tensor self) -> Tensor", op_msort},
};

const struct ckpt_op_family ckpt_family_sort = CKPT_OP_FAMILY(ops);
