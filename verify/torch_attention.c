/*
 * MultiheadAttention as PyTorch computes it: in_proj's rows are those of query, key and value, one
 * block after the other (or three matrices where their widths differ); bias_k, bias_v and
 * add_zero_attn each append a position to look at; the heads are scaled_dot_product_attention's.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/forward.h"

/* Block i of 0 query, 1 key, 2 value. */
static int project(const struct ckpt_scope *s, const char *module, int i,
                   const struct ckpt_array *x, struct ckpt_array *out, struct ckpt_err *err) {
    static const char *const apart[] = {"q_proj_weight", "k_proj_weight", "v_proj_weight"};
    CKPT_AUTO(bound) struct ckpt_bound weight = {0};
    CKPT_AUTO(bound) struct ckpt_bound bias = {0};
    struct ckpt_param_rows w, b;
    struct ckpt_arg arg[3] = {{.name = "input", .kind = CKPT_ARG_ARRAY},
                              {.name = "weight", .kind = CKPT_ARG_PARAM},
                              {.name = "bias", .kind = CKPT_ARG_PARAM}};
    char buf[CKPT_NAME_MAX];
    int rc = ckpt_scope_bind(s, ckpt_name_join(buf, module, "in_proj_weight"), true, &weight, err);
    const bool packed = weight.param;
    if (rc == 0 && !packed)
        rc = ckpt_scope_bind(s, ckpt_name_join(buf, module, apart[i]), false, &weight, err);
    if (rc == 0)
        rc = ckpt_scope_bind(s, ckpt_name_join(buf, module, "in_proj_bias"), true, &bias, err);
    if (rc < 0)
        return rc;
    const int64_t rows = weight.param->ndim ? weight.param->shape[0] / (packed ? 3 : 1) : 0;
    if (bias.param && (bias.param->ndim != 1 || bias.param->shape[0] != 3 * rows))
        return ckpt_fail(err, -EINVAL, "in_proj_bias does not fit %lld rows", (long long)rows);
    ckpt_param_rows_init(&w, weight.param, packed ? i * rows : 0, rows);
    arg[0].array = x;
    arg[1].param = &w.param;
    if (bias.param) {
        ckpt_param_rows_init(&b, bias.param, i * rows, rows);
        arg[2].param = &b.param;
    }
    return ckpt_op_run(ckpt_op_find(CKPT_TEXT("linear")), arg, bias.param ? 3 : 2, s->exec, out,
                       err);
}

/* Appends a row to each sequence of x [B, L, E]: this vector, or zeros. */
static int append(const struct ckpt_scope *s, const struct ckpt_array *row, struct ckpt_array *x,
                  struct ckpt_err *err) {
    const int64_t batch = x->shape[0], n = x->shape[1], width = x->shape[2];
    struct ckpt_array longer;
    if (row->store && ckpt_array_count(row) != width)
        return ckpt_fail(err, -EINVAL, "bias_k or bias_v does not have %lld elements",
                         (long long)width);
    const int rc = ckpt_array_new(&longer, &s->exec->memory, CKPT_DT_F32,
                                  (int64_t[]){batch, n + 1, width}, 3, err);
    for (int64_t b = 0; rc == 0 && b < batch; b++) {
        float *const to = ckpt_array_f32(&longer) + b * (n + 1) * width;
        memcpy(to, ckpt_array_f32(x) + b * n * width, (size_t)(n * width) * sizeof(*to));
        if (row->store)
            memcpy(to + n * width, row->data, (size_t)width * sizeof(*to));
    }
    if (rc < 0)
        return rc;
    ckpt_array_fini(x);
    *x = longer;
    return 0;
}

static int append_extras(const struct ckpt_scope *s, const char *module, const char *bias,
                         struct ckpt_array *x, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array row = {0};
    const struct ckpt_array zeros = {0};
    char buf[CKPT_NAME_MAX];
    int rc = ckpt_scope_load(s, ckpt_name_join(buf, module, bias), true, &row, err);
    if (rc == 0 && row.store)
        rc = append(s, &row, x, err);
    if (rc == 0 && ckpt_scope_bool(s, "add_zero_attn"))
        rc = append(s, &zeros, x, err);
    return rc;
}

/* [B, L, H * D] to [B, H, L, D]. */
static int split_heads(const struct ckpt_scope *s, struct ckpt_array *x, struct ckpt_err *err) {
    const int64_t heads = ckpt_scope_int(s, "num_heads", 1), width = x->shape[2];
    CKPT_AUTO(array) struct ckpt_array apart = {0};
    if (heads < 1 || width % heads != 0)
        return ckpt_fail(err, -EINVAL, "%lld features cannot be %lld heads", (long long)width,
                         (long long)heads);
    const int64_t shape[4] = {x->shape[0], x->shape[1], heads, width / heads};
    const int rc = ckpt_array_reshape(x, shape, 4, &s->exec->memory, &apart, err);
    if (rc < 0)
        return rc;
    ckpt_array_fini(x);
    *x = ckpt_array_permute(&apart, (uint32_t[]){0, 2, 1, 3});
    return 0;
}

static int join_heads(const struct ckpt_scope *s, const struct ckpt_array *x,
                      struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array turned = ckpt_array_permute(x, (uint32_t[]){0, 2, 1, 3});
    const int64_t shape[3] = {turned.shape[0], turned.shape[1], turned.shape[2] * turned.shape[3]};
    return ckpt_array_reshape(&turned, shape, 3, &s->exec->memory, out, err);
}

int ckpt_torch_attention(const struct ckpt_scope *s, const char *module,
                         const struct ckpt_array *query, const struct ckpt_array *key,
                         const struct ckpt_array *value, struct ckpt_array *out,
                         struct ckpt_err *err) {
    static const char *const args[] = {"query", "key", "value"};
    const struct ckpt_array *const x[] = {query, key, value};
    CKPT_AUTO(inputs) struct ckpt_inputs in = {0};
    CKPT_AUTO(array) struct ckpt_array heads = {0}, joined = {0};
    struct ckpt_arg arg[3];
    char buf[CKPT_NAME_MAX];
    int rc = 0;
    for (int i = 0; rc == 0 && i < 3; i++) {
        rc = project(s, module, i, x[i], &in.at[i], err);
        if (rc == 0 && i > 0)
            rc = append_extras(s, module, i == 1 ? "bias_k" : "bias_v", &in.at[i], err);
        if (rc == 0)
            rc = split_heads(s, &in.at[i], err);
        arg[i] = (struct ckpt_arg){.name = args[i], .kind = CKPT_ARG_ARRAY};
        arg[i].array = &in.at[i];
    }
    if (rc == 0)
        rc = ckpt_op_run(ckpt_op_find(CKPT_TEXT("scaled_dot_product_attention")), arg, 3, s->exec,
                         &heads, err);
    if (rc == 0)
        rc = join_heads(s, &heads, &joined, err);
    if (rc == 0)
        rc = ckpt_scope_linear(s, ckpt_name_join(buf, module, "out_proj"), &joined, out, err);
    return rc;
}

int ckpt_torch_mha(const struct ckpt_scope *s, const struct ckpt_inputs *in, struct ckpt_array *out,
                   struct ckpt_err *err) {
    const struct ckpt_array *const key = &in->at[in->n > 1 ? 1 : 0];
    return ckpt_torch_attention(s, "", &in->at[0], key, in->n > 2 ? &in->at[2] : key, out, err);
}
