/*
 * MultiHeadAttention as burn computes it: Linear query, key and value; each head's part of the
 * features; scores divided by the square root of their width; softmax; Linear output.
 */
#include <errno.h>
#include <math.h>

#include "base/cleanup.h"
#include "verify/forward.h"
#include "verify/blas.h"

struct projected {
    struct ckpt_array query, key, value;
    int64_t heads, width; /* of one head */
};

static void projected_fini(struct projected *p) {
    ckpt_array_fini(&p->query);
    ckpt_array_fini(&p->key);
    ckpt_array_fini(&p->value);
}
CKPT_DEFINE_AUTO(projected, struct projected, projected_fini)

static int check(struct projected *p, int64_t heads, struct ckpt_err *err) {
    const struct ckpt_array *const q = &p->query, *const k = &p->key, *const v = &p->value;
    const int64_t features = q->shape[2];
    if (k->shape[2] != features || v->shape[2] != features || k->shape[1] != v->shape[1] ||
        k->shape[0] != q->shape[0] || v->shape[0] != q->shape[0])
        return ckpt_fail(err, -EINVAL, "query, key and value do not fit together");
    if (heads < 1 || features % heads != 0)
        return ckpt_fail(err, -EINVAL, "d_model %lld is not divisible by %lld heads",
                         (long long)features, (long long)heads);
    p->heads = heads;
    p->width = features / heads;
    return ckpt_blas_fits(q->shape[1], k->shape[1], features)
               ? 0
               : ckpt_fail(err, -EOVERFLOW, "a dimension beyond 2^31");
}

/* The scores of one head of one sequence become its weights, and those the context's columns. */
static int attend(const struct ckpt_scope *s, const struct projected *p, int64_t sequence,
                  int64_t head, struct ckpt_array *context, struct ckpt_err *err) {
    const int length = (int)p->query.shape[1], keys = (int)p->key.shape[1];
    const int features = (int)p->query.shape[2], width = (int)p->width;
    const int64_t first = head * p->width;
    const int64_t of_query = sequence * length * features + first;
    const int64_t of_key = sequence * keys * features + first;
    CKPT_AUTO(array) struct ckpt_array scores = {0}, weights = {0};
    int rc =
        ckpt_array_new(&scores, &s->exec->memory, CKPT_DT_F32, (int64_t[]){length, keys}, 2, err);
    if (rc < 0)
        return rc;
    ckpt_blas_sgemm(CKPT_BLAS_ROWS, CKPT_BLAS_COLUMNS, length, keys, width, 1 / sqrtf((float)width),
                    ckpt_array_f32(&p->query) + of_query, features,
                    ckpt_array_f32(&p->key) + of_key, features, 0, ckpt_array_f32(&scores), keys);
    struct ckpt_arg arg[2] = {{.name = "self", .kind = CKPT_ARG_ARRAY},
                              {.name = "dim", .kind = CKPT_ARG_INT}};
    arg[0].array = &scores;
    arg[1].i = 1;
    rc = ckpt_op_run(ckpt_op_find(CKPT_TEXT("softmax")), arg, 2, s->exec, &weights, err);
    if (rc == 0)
        ckpt_blas_sgemm(CKPT_BLAS_ROWS, CKPT_BLAS_ROWS, length, width, keys, 1,
                        ckpt_array_f32(&weights), keys, ckpt_array_f32(&p->value) + of_key,
                        features, 0, ckpt_array_f32(context) + of_query, features);
    return rc;
}

static int attend_all(const struct ckpt_scope *s, const struct projected *p,
                      struct ckpt_array *context, struct ckpt_err *err) {
    int rc = ckpt_array_new(context, &s->exec->memory, CKPT_DT_F32, p->query.shape, 3, err);
    const bool empty = ckpt_array_count(&p->query) == 0 || ckpt_array_count(&p->key) == 0;
    for (int64_t b = 0; rc == 0 && !empty && b < p->query.shape[0]; b++)
        for (int64_t h = 0; rc == 0 && h < p->heads; h++)
            rc = attend(s, p, b, h, context, err);
    return rc;
}

int ckpt_burn_attention(const struct ckpt_scope *s, const char *module,
                        const struct ckpt_array *query, const struct ckpt_array *key,
                        const struct ckpt_array *value, struct ckpt_array *out,
                        struct ckpt_err *err) {
    CKPT_AUTO(projected) struct projected p = {0};
    CKPT_AUTO(array) struct ckpt_array context = {0};
    char buf[CKPT_NAME_MAX];
    int rc = ckpt_scope_linear(s, ckpt_name_join(buf, module, "query"), query, &p.query, err);
    if (rc == 0)
        rc = ckpt_scope_linear(s, ckpt_name_join(buf, module, "key"), key, &p.key, err);
    if (rc == 0)
        rc = ckpt_scope_linear(s, ckpt_name_join(buf, module, "value"), value, &p.value, err);
    if (rc == 0)
        rc = check(&p, ckpt_scope_int(s, "num_heads", 1), err);
    if (rc == 0)
        rc = attend_all(s, &p, &context, err);
    if (rc == 0)
        rc = ckpt_scope_linear(s, ckpt_name_join(buf, module, "output"), &context, out, err);
    return rc;
}

int ckpt_burn_mha(const struct ckpt_scope *s, const struct ckpt_inputs *in, struct ckpt_array *out,
                  struct ckpt_err *err) {
    const struct ckpt_array *const key = &in->at[in->n > 1 ? 1 : 0];
    return ckpt_burn_attention(s, "", &in->at[0], key, in->n > 2 ? &in->at[2] : key, out, err);
}
