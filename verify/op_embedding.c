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
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    memcpy(shape, ids.shape, sizeof(shape));
    shape[ids.ndim] = w.shape[1];
    rc = ckpt_call_result(c, shape, ids.ndim + 1, err);
    const int64_t count = ckpt_array_count(&ids), width = w.shape[1];
    for (int64_t i = 0; rc == 0 && i < count; i++) {
        const int64_t id = ckpt_array_i64(&ids)[i];
        if (id < 0 || id >= w.shape[0])
            return ckpt_fail(err, -EINVAL, "index %lld is outside the table %.*s of %lld rows",
                             (long long)id, CKPT_TEXT_ARGS(w.name), (long long)w.shape[0]);
        rc = w.read(&w, id * width, width, ckpt_array_f32(c->out) + i * width, err);
    }
    return rc;
}
