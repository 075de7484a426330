/*
 * embedding_bag: rows of a table, summed, averaged or compared in bags. Only the rows asked for are
 * read.
 *
 *     indices [I], offsets [B]        bag b is indices[offsets[b]] up to those of bag b + 1
 *
 * Beside the result PyTorch gives what its backward pass needs: the bag of each index, the size of
 * each bag, and of maxima where they are. Of sums it leaves the first empty and the others 0.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

enum mode { SUM, MEAN, MAX };

struct bags {
    struct ckpt_array hold, ids, offsets, weights, row;
    struct ckpt_param table;
    enum mode mode;
    int64_t count, width; /* bags; columns of the table */
    int64_t padding;      /* an index that is left out; -1: none */
};

static void bags_fini(struct bags *b) {
    ckpt_array_fini(&b->hold);
    ckpt_array_fini(&b->ids);
    ckpt_array_fini(&b->offsets);
    ckpt_array_fini(&b->weights);
    ckpt_array_fini(&b->row);
}
CKPT_DEFINE_AUTO(bags, struct bags, bags_fini)

/* ---- arguments ---- */

static int take_integers(const struct ckpt_call *c, const char *name, struct ckpt_array *out,
                         struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = {0};
    const int rc = ckpt_call_tensor(c, name, &given, err);
    if (rc < 0)
        return rc;
    if (given.dtype != CKPT_DT_I64 || given.ndim != 1)
        return ckpt_fail(err, -EINVAL, "%s are not a vector of integers", name);
    return ckpt_array_contiguous(&given, &c->exec->memory, out, err);
}

/* Bags begin in order, inside the indices. */
static int check_offsets(const struct ckpt_call *c, struct bags *b, struct ckpt_err *err) {
    const int64_t n = b->offsets.shape[0], *const at = ckpt_array_i64(&b->offsets);
    for (int64_t i = 0; i < n; i++)
        if (at[i] < (i ? at[i - 1] : 0) || at[i] > b->ids.shape[0] || (i == 0 && at[0] != 0))
            return ckpt_fail(err, -EINVAL, "offset %lld of bag %lld is none of %lld indices",
                             (long long)at[i], (long long)i, (long long)b->ids.shape[0]);
    b->count = ckpt_call_bool(c, "include_last_offset", false) ? n - 1 : n;
    return b->count >= 0 ? 0 : ckpt_fail(err, -EINVAL, "there is no last offset");
}

/* One that is stored as its transpose, being a Linear's weight, too, is turned as a whole. */
static int take_table(struct ckpt_call *c, struct bags *b, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array turned = {0};
    int rc = ckpt_call_param(c, "weight", &b->hold, &b->table, err);
    if (rc < 0 || b->table.ndim != 2)
        return rc < 0 ? rc
                      : ckpt_fail(err, -EINVAL, "weight %.*s has %u dimensions, expected 2",
                                  CKPT_TEXT_ARGS(b->table.name), b->table.ndim);
    if (!b->table.in_out)
        return 0;
    rc = ckpt_param_array(&b->table, &c->exec->memory, &turned, err);
    if (rc == 0)
        rc = ckpt_array_contiguous(&turned, &c->exec->memory, &b->hold, err);
    if (rc == 0)
        b->table = ckpt_param_of_array(&b->hold, b->table.name);
    return rc;
}

static int bags_init(struct ckpt_call *c, struct bags *b, struct ckpt_err *err) {
    const int64_t mode = ckpt_call_int(c, "mode", SUM);
    int rc =
        mode >= SUM && mode <= MAX ? 0 : ckpt_fail(err, -EINVAL, "mode is %lld", (long long)mode);
    b->mode = (enum mode)mode;
    b->padding = ckpt_call_int(c, "padding_idx", -1);
    if (rc == 0)
        rc = take_table(c, b, err);
    if (rc == 0)
        rc = take_integers(c, "indices", &b->ids, err);
    if (rc == 0)
        rc = take_integers(c, "offsets", &b->offsets, err);
    if (rc == 0)
        rc = check_offsets(c, b, err);
    if (rc == 0)
        rc = ckpt_call_vector(c, "per_sample_weights", b->ids.shape[0], &b->weights, err);
    if (rc == 0 && b->weights.store && b->mode != SUM)
        rc = ckpt_fail(err, -EINVAL, "per_sample_weights are for sums");
    b->width = rc == 0 ? b->table.shape[1] : 0;
    return rc < 0 ? rc : ckpt_array_new(&b->row, &c->exec->memory, CKPT_DT_F32, &b->width, 1, err);
}

/* ---- bags ---- */

static int read_row(const struct bags *b, int64_t id, struct ckpt_err *err) {
    const int64_t rows = b->table.shape[0];
    if (id < 0 || id >= rows)
        return ckpt_fail(err, -EINVAL, "index %lld is outside the table %.*s of %lld rows",
                         (long long)id, CKPT_TEXT_ARGS(b->table.name), (long long)rows);
    return b->table.read(&b->table, id * b->width, b->width, ckpt_array_f32(&b->row), err);
}

/* Takes row id, the nth of its bag, into y. from: whose row each maximum is, or NULL. */
static void add_row(const struct bags *b, int64_t id, float weight, int64_t nth, float *y,
                    int64_t *from) {
    const float *const row = ckpt_array_f32(&b->row);
    for (int64_t k = 0; k < b->width; k++) {
        if (b->mode != MAX) {
            y[k] += weight * row[k];
        } else if (nth == 0 || row[k] > y[k]) {
            y[k] = row[k];
            if (from)
                from[k] = id;
        }
    }
}

static int64_t bag_end(const struct bags *b, int64_t at) {
    return at + 1 < b->offsets.shape[0] ? ckpt_array_i64(&b->offsets)[at + 1] : b->ids.shape[0];
}

/* *size: how many of bag `at` were not left out. */
static int fill_bag(const struct bags *b, int64_t at, float *y, int64_t *from, int64_t *size,
                    struct ckpt_err *err) {
    int rc = 0;
    *size = 0;
    for (int64_t i = ckpt_array_i64(&b->offsets)[at]; rc == 0 && i < bag_end(b, at); i++) {
        const int64_t id = ckpt_array_i64(&b->ids)[i];
        if (b->padding >= 0 && id == b->padding)
            continue;
        rc = read_row(b, id, err);
        if (rc == 0)
            add_row(b, id, b->weights.store ? ckpt_array_f32(&b->weights)[i] : 1, (*size)++, y,
                    from);
    }
    for (int64_t k = 0; b->mode == MEAN && *size > 0 && k < b->width; k++)
        y[k] /= (float)*size;
    return rc;
}

/* ---- results ---- */

static int make_results(struct ckpt_call *c, const struct bags *b, struct ckpt_err *err) {
    const int64_t shape[2] = {b->count, b->width}, of = b->mode == SUM ? 0 : b->ids.shape[0];
    int rc = ckpt_call_result(c, shape, 2, err);
    if (rc == 0 && c->nout > 1)
        rc = ckpt_call_new(c, 1, CKPT_DT_I64, &of, 1, err);
    if (rc == 0 && c->nout > 2)
        rc = ckpt_call_new(c, 2, CKPT_DT_I64, shape, 1, err);
    if (rc == 0 && c->nout > 3)
        rc = ckpt_call_new(c, 3, CKPT_DT_I64, shape, b->mode == MAX ? 2 : 1, err);
    return rc;
}

static void keep_bag(struct ckpt_call *c, const struct bags *b, int64_t at, int64_t size) {
    for (int64_t i = ckpt_array_i64(&b->offsets)[at]; c->nout > 1 && i < bag_end(b, at); i++)
        ckpt_array_i64(&c->out[1])[i] = at;
    if (c->nout > 2)
        ckpt_array_i64(&c->out[2])[at] = size;
    if (c->nout > 3 && b->mode == MEAN)
        ckpt_array_i64(&c->out[3])[at] = size;
}

static int embedding_bag(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(bags) struct bags b = {0};
    int64_t size = 0;
    int rc = bags_init(c, &b, err);
    if (rc == 0)
        rc = make_results(c, &b, err);
    for (int64_t at = 0; rc == 0 && at < b.count; at++) {
        int64_t *const from =
            c->nout > 3 && b.mode == MAX ? ckpt_array_i64(&c->out[3]) + at * b.width : NULL;
        rc = fill_bag(&b, at, ckpt_array_f32(c->out) + at * b.width, from, &size, err);
        if (rc == 0 && b.mode != SUM)
            keep_bag(c, &b, at, size);
        if (rc == 0)
            rc = ckpt_exec_check(c->exec, err);
    }
    return rc;
}

#define BAG(name, tail)                                                                            \
    {                                                                                              \
        name,                                                                                      \
            name "(Tensor weight, Tensor indices, Tensor offsets, "                                \
                 "bool scale_grad_by_freq=False, int mode=0, bool sparse=False, "                  \
                 "Tensor? per_sample_weights=None, bool include_last_offset=False" tail ") "       \
                 "-> (Tensor, Tensor, Tensor, Tensor)",                                            \
            embedding_bag                                                                          \
    }

static const struct ckpt_op ops[] = {
    BAG("embedding_bag", ""),
    {"embedding_bag",
     "embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, "
     "bool scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights, "
     "bool include_last_offset, int? padding_idx) -> (Tensor, Tensor, Tensor, Tensor)",
     embedding_bag},
    BAG("_embedding_bag", ", int padding_idx=-1"),
    BAG("_embedding_bag_forward_only", ", int padding_idx=-1"),
};

const struct ckpt_op_family ckpt_family_embedding_bag = CKPT_OP_FAMILY(ops);
