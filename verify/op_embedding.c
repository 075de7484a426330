/* Rows of a table, by index. Only the rows asked for are read. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

static int check(const struct ckpt_param *w, const struct ckpt_arg *ids, struct ckpt_err *err) {
    if (w->ndim != 2)
        return ckpt_fail(err, -EINVAL, "weight %.*s has %u dimensions, expected 2",
                         CKPT_TEXT_ARGS(w->name), w->ndim);
    if (!ids || ids->kind != CKPT_ARG_ARRAY || ids->array->dtype != CKPT_DT_I64)
        return ckpt_fail(err, -EINVAL, "indices are missing or not integers");
    if (ids->array->ndim == CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "indices of %u dimensions", ids->array->ndim);
    return 0;
}

struct rows {
    int64_t n, width; /* of the table */
    const int64_t *id;
    int64_t count;
};

static int check_ids(const struct rows *r, struct ckpt_text name, struct ckpt_err *err) {
    for (int64_t i = 0; i < r->count; i++)
        if (r->id[i] < 0 || r->id[i] >= r->n)
            return ckpt_fail(err, -EINVAL, "index %lld is outside the table %.*s of %lld rows",
                             (long long)r->id[i], CKPT_TEXT_ARGS(name), (long long)r->n);
    return 0;
}

static int gather_rows(const struct ckpt_param *w, const struct rows *r, float *out,
                       struct ckpt_err *err) {
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < r->count; i++)
        rc = w->read(w, r->id[i] * r->width, r->width, out + i * r->width, err);
    return rc;
}

/* Of a table that is stored as its transpose (a Linear's weight, tied to it): one pass over what is
 * stored, from the first id to the last. */
static int gather_columns(struct ckpt_call *c, const struct ckpt_param *w, const struct rows *r,
                          float *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array line = {0};
    int64_t low = r->count ? r->id[0] : 0, high = low;
    for (int64_t i = 0; i < r->count; i++) {
        low = r->id[i] < low ? r->id[i] : low;
        high = r->id[i] > high ? r->id[i] : high;
    }
    const int64_t n = high - low + 1;
    int rc = ckpt_array_new(&line, &c->exec->memory, CKPT_DT_F32, &n, 1, err);
    for (int64_t d = 0; rc == 0 && r->count && d < r->width; d++) {
        rc = w->read(w, d * r->n + low, n, ckpt_array_f32(&line), err);
        for (int64_t i = 0; rc == 0 && i < r->count; i++)
            out[i * r->width + d] = ckpt_array_f32(&line)[r->id[i] - low];
    }
    return rc;
}

int ckpt_op_embedding(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array hold = {0}, ids = {0};
    struct ckpt_param w = {0};
    const struct ckpt_arg *const indices = ckpt_call_arg(c, "indices");
    int rc = ckpt_call_param(c, "weight", &hold, &w, err);
    if (rc == 0)
        rc = check(&w, indices, err);
    if (rc == 0)
        rc = ckpt_array_contiguous(indices->array, &c->exec->memory, &ids, err);
    if (rc < 0)
        return rc;
    const struct rows rows = {.n = w.shape[w.in_out ? 1 : 0],
                              .width = w.shape[w.in_out ? 0 : 1],
                              .id = ckpt_array_i64(&ids),
                              .count = ckpt_array_count(&ids)};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    memcpy(shape, ids.shape, sizeof(shape));
    shape[ids.ndim] = rows.width;
    rc = check_ids(&rows, w.name, err);
    if (rc == 0)
        rc = ckpt_call_result(c, shape, ids.ndim + 1, err);
    if (rc < 0)
        return rc;
    return w.in_out ? gather_columns(c, &w, &rows, ckpt_array_f32(c->out), err)
                    : gather_rows(&w, &rows, ckpt_array_f32(c->out), err);
}
