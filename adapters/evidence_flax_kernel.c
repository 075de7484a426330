/*
 * Kernels of more than two dimensions: which of them go in and which go out, and whether the layer
 * is a DenseGeneral, a Conv or a ConvTranspose.
 *
 *     DenseGeneral     [in..., out...]       bias [out...]
 *     Conv             [kernel..., in, out]  bias [out]
 *     ConvTranspose    [kernel..., in, out]  bias [out]
 *       transpose_kernel=True  [kernel..., out, in]
 *
 * Biases tell some of them apart, and names: flax's own are the class's. What is then still open is
 * decided by habit, which is a warning (evidence_doubt.c).
 */
#include "adapters/flax_survey.h"

#define DENSE_OUT_MAX 3u
static const char *const dense_kinds[DENSE_OUT_MAX] = {"dense:1", "dense:2", "dense:3"};

static bool is_called(const struct ckpt_survey *s, size_t i, const char *word) {
    return ckpt_module_is_called(s->m.facts[i].path, word);
}

/* By the bias, which has the dimensions that go out. NULL: it does not tell. */
static const char *dense_of(const struct ckpt_tensor *k, const struct ckpt_tensor *b) {
    if (!b || !ckpt_survey_ends_as(k, b) || b->ndim < 1 || b->ndim >= k->ndim ||
        b->ndim > DENSE_OUT_MAX)
        return NULL;
    return dense_kinds[b->ndim - 1];
}

static bool has_length(const struct ckpt_tensor *b, int64_t n) {
    return b && b->ndim == 1 && b->shape[0] == n;
}

/* The kernel of a ConvTranspose lies the other way: its bias is as long as the last dimension but
 * one, and not as the last. */
static bool is_turned(const struct ckpt_tensor *k, const struct ckpt_tensor *b) {
    return !has_length(b, k->shape[k->ndim - 1]) && has_length(b, k->shape[k->ndim - 2]);
}

/* The bias is as long as either, or there is none: it may lie either way. */
static bool may_be_turned(const struct ckpt_tensor *k, const struct ckpt_tensor *b) {
    return !b || k->shape[k->ndim - 1] == k->shape[k->ndim - 2];
}

static void decide_transposed(struct ckpt_survey *s, size_t i) {
    const struct ckpt_tensor *const k = ckpt_survey_kernel(s, i), *const b = ckpt_survey_bias(s, i);
    ckpt_survey_decide(s, i, "conv_transpose",
                       is_turned(k, b) ? "conv_transpose:kernel" : "conv_transpose",
                       may_be_turned(k, b) ? "default" : "structure");
}

/* "Conv_0", "conv1"; not "upconv", which may be either. */
static bool is_named_conv(const struct ckpt_survey *s, size_t i) {
    return is_called(s, i, "conv") && !is_called(s, i, "up");
}

void ckpt_flax_decide_kernel(struct ckpt_survey *s, size_t i) {
    const struct ckpt_tensor *const k = ckpt_survey_kernel(s, i), *const b = ckpt_survey_bias(s, i);
    const char *const dense = dense_of(k, b);
    if ((b && b->ndim > 1) || is_called(s, i, "dense") || is_called(s, i, "linear")) {
        if (dense)
            ckpt_survey_decide(s, i, "linear", dense, "structure");
    } else if (k->ndim > 5 || is_called(s, i, "einsum")) {
        return;
    } else if (is_called(s, i, "transpose") || is_called(s, i, "deconv") || is_turned(k, b)) {
        decide_transposed(s, i);
    } else if (!b || has_length(b, k->shape[k->ndim - 1])) {
        ckpt_survey_decide(s, i, "conv", "conv", is_named_conv(s, i) ? "structure" : "default");
    }
}

void ckpt_flax_refine_option(struct ckpt_survey *s, size_t i) {
    struct ckpt_decision *const d = &s->m.decision[i];
    const struct ckpt_tensor *const k = ckpt_survey_kernel(s, i), *const b = ckpt_survey_bias(s, i);
    if (!k || k->ndim < 3)
        return;
    if (strcmp(d->kind, "linear") == 0)
        d->rule_kind = dense_of(k, b);
    else if (strncmp(d->kind, "dense:", 6) == 0)
        d->kind = "linear";
    else if (strcmp(d->kind, "conv_transpose:kernel") == 0)
        d->kind = "conv_transpose";
    else if (strcmp(d->kind, "conv_transpose") == 0 && is_turned(k, b))
        d->rule_kind = "conv_transpose:kernel";
}
