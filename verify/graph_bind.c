/* A run's parameters: the source's bytes, or the served ones. Matrices and vectors of floats are
 * streamed where they are used; what cannot be streamed is an array. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/convert.h"
#include "verify/forward.h"
#include "verify/graph_params.h"

struct ckpt_bound_input {
    struct ckpt_bound bound;
    struct ckpt_array array;
};

void ckpt_graph_bounds_fini(struct ckpt_graph_bounds *b) {
    for (size_t i = 0; i < b->n; i++) {
        ckpt_bound_fini(&b->at[i].bound);
        ckpt_array_fini(&b->at[i].array);
    }
    free(b->at);
    *b = (struct ckpt_graph_bounds){0};
}

/* ---- whole tensors ---- */

/* A block of served bytes, converted. */
static void convert_block(enum ckpt_dtype dtype, const uint8_t *bytes, int64_t done, int64_t n,
                          struct ckpt_array *out) {
    if (out->dtype == CKPT_DT_F64)
        memcpy(ckpt_array_f64(out) + done, bytes, (size_t)n * sizeof(double));
    else if (out->dtype == CKPT_DT_F32)
        ckpt_convert_f32(dtype, bytes, n, ckpt_array_f32(out) + done);
    else if (out->dtype == CKPT_DT_I64)
        ckpt_convert_i64(dtype, bytes, n, ckpt_array_i64(out) + done);
    else
        for (int64_t i = 0; i < n; i++)
            ckpt_array_bool(out)[done + i] = bytes[i] != 0;
}

int ckpt_served_load(struct ckpt_reader *reader, const struct ckpt_adapted *t,
                     struct ckpt_memory *memory, struct ckpt_array *out, struct ckpt_err *err) {
    enum { BLOCK = 8192 };
    const enum ckpt_dtype to = ckpt_array_dtype(t->dtype);
    const int64_t unit = ckpt_dtype_info(t->dtype)->unit_bytes;
    uint8_t bytes[BLOCK * 8];
    memset(out, 0, sizeof(*out));
    if (to == CKPT_DT_NONE)
        return ckpt_fail(err, -EOPNOTSUPP, "%.*s is %s, which the checker can't use",
                         CKPT_TEXT_ARGS(t->key), ckpt_dtype_info(t->dtype)->name);
    int rc = ckpt_array_new(out, memory, to, t->shape, t->ndim, err);
    const int64_t count = rc < 0 ? 0 : ckpt_array_count(out);
    for (int64_t done = 0; rc == 0 && done < count; done += BLOCK) {
        const int64_t n = count - done < BLOCK ? count - done : BLOCK;
        rc = ckpt_reader_read(reader, t, (uint64_t)(done * unit), (size_t)(n * unit), bytes, err);
        if (rc == 0)
            convert_block(t->dtype, bytes, done, n, out);
    }
    if (rc < 0)
        ckpt_array_fini(out);
    return rc;
}

static void turn(struct ckpt_array *a) {
    static const uint32_t order[] = {1, 0};
    struct ckpt_array stored = *a;
    *a = ckpt_array_permute(&stored, order);
    ckpt_array_fini(&stored);
}

static int served_array(struct ckpt_verification *v, const struct ckpt_graph_param *p,
                        struct ckpt_array *out, struct ckpt_err *err) {
    if (p->served == CKPT_SERVED_JOINED)
        return ckpt_graph_join(&v->layers, p->tensor, v->reader, &v->exec, out, err);
    if (p->served == CKPT_SERVED_READ_BACK)
        return ckpt_graph_read_back(&v->layers, p->tensor, v->reader, &v->exec, out, err);
    const int rc = ckpt_served_load(v->reader, p->tensor, &v->exec.memory, out, err);
    if (rc == 0 && p->served == CKPT_SERVED_TURNED)
        turn(out);
    return rc;
}

/* ---- one input ---- */

static bool is_streamed(const struct ckpt_graph_param *p, enum ckpt_side side) {
    const enum ckpt_dtype dtype = p->tensor ? p->tensor->source->dtype : CKPT_DT_NONE;
    if (p->from != CKPT_FROM_MODEL || !ckpt_convert_is_float(dtype) || p->dtype != CKPT_DT_F32)
        return false;
    return side == CKPT_SIDE_TORCH || p->served == CKPT_SERVED_AS_IS ||
           p->served == CKPT_SERVED_TURNED;
}

static int bind_array(struct ckpt_verification *v, const struct ckpt_graph_param *p,
                      enum ckpt_side side, struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array loaded = {0};
    int rc;
    if (p->from == CKPT_FROM_MODEL && side == CKPT_SIDE_SERVED)
        rc = served_array(v, p, &loaded, err);
    else if (p->from == CKPT_FROM_MODEL && (p->tensor->part[0].ntorch || p->tensor->joined))
        return ckpt_fail(err, -EOPNOTSUPP, "%.*s is %s, which the dialect has to convert",
                         CKPT_TEXT_ARGS(p->tensor->torch_key),
                         ckpt_dtype_info(p->tensor->source->dtype)->name);
    else
        rc = ckpt_source_load(p->tensor ? p->tensor->source : p->raw, true, &v->exec.memory,
                              &loaded, err);
    return rc < 0 ? rc : ckpt_array_cast(&loaded, p->dtype, &v->exec.memory, out, err);
}

static int bind_one(struct ckpt_verification *v, const struct ckpt_graph_param *p,
                    enum ckpt_side side, struct ckpt_bound_input *b, struct ckpt_run_value *value,
                    struct ckpt_err *err) {
    const bool served = side == CKPT_SIDE_SERVED;
    if (!is_streamed(p, side)) {
        const int rc = bind_array(v, p, side, &b->array, err);
        value->array = b->array;
        return rc;
    }
    const int rc = ckpt_bound_init(&b->bound, p->tensor, side, v->reader, err);
    if (rc < 0)
        return rc;
    value->param = *b->bound.param;
    value->param.in_out = served && p->served == CKPT_SERVED_TURNED;
    value->is_param = true;
    return 0;
}

int ckpt_graph_params_bind(struct ckpt_verification *v, const struct ckpt_graph_params *params,
                           enum ckpt_side side, struct ckpt_graph_bounds *b,
                           struct ckpt_run_value *value, struct ckpt_err *err) {
    b->at = calloc(params->n + 1, sizeof(*b->at));
    if (!b->at)
        return ckpt_fail_memory(err, "running the graph");
    b->n = params->n;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < params->n; i++)
        if (params->at[i].input && params->at[i].used)
            rc = bind_one(v, &params->at[i], side, &b->at[i], &value[i], err);
    return rc;
}
