/*
 * What flax's modules are: by what they call their arrays, which says more than PyTorch's names do,
 * and where that is silent by shapes and names.
 *
 *     kernel               rank 2: Dense; else DenseGeneral, Conv or ConvTranspose
 *     scale (and bias)     a norm; with mean and var (batch_stats) a BatchNorm
 *     embedding            Embed
 *     query, key, value, out with kernels of rank 3      MultiHeadDotProductAttention
 *     ii, if, ig, io, hi, hf, hg, ho                     LSTMCell
 *     ir, iz, in, hr, hz, hn                             GRUCell
 *
 * Before that, stacks of layers are taken apart (evidence_flax_stack.c), so that each layer is
 * looked at by itself.
 */
#include "adapters/evidence_flax.h"

#include <string.h>

#include "adapters/build.h"

struct survey {
    struct ckpt_modules m;
    struct ckpt_strmap by_path;
};

static void survey_fini(struct survey *s) {
    ckpt_strmap_fini(&s->by_path);
    ckpt_modules_fini(&s->m);
}
#define ckpt_auto_survey survey_fini

static int begin(struct ckpt_build *b, struct survey *s) {
    const int rc = ckpt_gather_modules(b, &s->m);
    return rc ? rc : ckpt_index_modules(b, &s->m, &s->by_path);
}

static const struct ckpt_tensor *leaf(const struct survey *s, size_t i, enum ckpt_leaf l) {
    return i == CKPT_MODULE_NONE ? NULL : s->m.facts[i].leaf[l];
}

static const struct ckpt_tensor *kernel(const struct survey *s, size_t i) {
    return leaf(s, i, CKPT_LEAF_KERNEL);
}

static const struct ckpt_tensor *bias(const struct survey *s, size_t i) {
    return leaf(s, i, CKPT_LEAF_BIAS);
}

static size_t child(const struct survey *s, size_t i, const char *name) {
    return ckpt_module_child(&s->m, &s->by_path, i, name);
}

static bool is_called(const struct survey *s, size_t i, const char *word) {
    return ckpt_module_is_called(s->m.facts[i].path, word);
}

static void decide(struct survey *s, size_t i, const char *kind, const char *rule_kind,
                   const char *by) {
    struct ckpt_decision *const d = &s->m.decision[i];
    d->kind = kind;
    d->rule_kind = rule_kind;
    d->decided_by = by;
}

/* --- attention -------------------------------------------------------------------------------- */

/* The last n sizes of a are all those of b. */
static bool ends_as(const struct ckpt_tensor *a, const struct ckpt_tensor *b) {
    return b->ndim <= a->ndim && (b->ndim == 0 || memcmp(a->shape + a->ndim - b->ndim, b->shape,
                                                         b->ndim * sizeof *b->shape) == 0);
}

/* [in, heads, size] with a bias [heads, size] or none, like the query's. */
static bool is_projection(const struct survey *s, size_t i, size_t query) {
    const struct ckpt_tensor *const k = kernel(s, i), *const q = kernel(s, query);
    const struct ckpt_tensor *const b = bias(s, i);
    return k && q && k->ndim == 3 && q->ndim == 3 && k->shape[1] == q->shape[1] &&
           k->shape[2] == q->shape[2] && k->dtype == q->dtype && !b == !bias(s, query) &&
           (!b || (b->ndim == 2 && ends_as(k, b) && b->dtype == bias(s, query)->dtype));
}

struct attention {
    size_t query, key, value, out;
};

static bool find_attention(const struct survey *s, size_t i, struct attention *a) {
    *a = (struct attention){child(s, i, "query"), child(s, i, "key"), child(s, i, "value"),
                            child(s, i, "out")};
    const struct ckpt_tensor *const q = kernel(s, a->query), *const o = kernel(s, a->out);
    return is_projection(s, a->query, a->query) && is_projection(s, a->key, a->query) &&
           is_projection(s, a->value, a->query) && o && o->ndim == 3 &&
           o->shape[0] == q->shape[1] && o->shape[1] == q->shape[2];
}

/* PyTorch's takes as many features as its heads have in all, gives as many, and has no norms of its
 * own. Another one is four Linear. */
static const char *attention_of(const struct survey *s, size_t i, const struct attention *a) {
    const struct ckpt_tensor *const q = kernel(s, a->query), *const o = kernel(s, a->out);
    const int64_t d = q->shape[0];
    if (q->shape[1] * q->shape[2] != d || o->shape[2] != d ||
        !bias(s, a->out) != !bias(s, a->query) || child(s, i, "query_ln") != CKPT_MODULE_NONE ||
        child(s, i, "key_ln") != CKPT_MODULE_NONE)
        return NULL;
    return kernel(s, a->key)->shape[0] == d && kernel(s, a->value)->shape[0] == d ? "mha"
                                                                                  : "mha:kdim";
}

static void decide_attention(struct survey *s, size_t i) {
    struct attention a;
    if (!find_attention(s, i, &a))
        return;
    const char *const packed = attention_of(s, i, &a);
    const size_t in[] = {a.query, a.key, a.value};
    for (size_t k = 0; k < 3; k++)
        decide(s, in[k], packed ? "mha" : "linear", packed ? packed : "dense:first", "structure");
    decide(s, a.out, "linear", "dense:last", "structure");
    if (packed)
        decide(s, i, "mha", packed, "structure");
}

/* --- recurrent cells -------------------------------------------------------------------------- */

#define GATES_MAX 4u
static const struct cell_row {
    const char *kind;
    uint32_t gates;
    const char *gate[2][GATES_MAX]; /* of the input, of the hidden state */
    unsigned biases[2];             /* bit per gate: it has one */
} cells[] = {
    {"lstm", 4, {{"ii", "if", "ig", "io"}, {"hi", "hf", "hg", "ho"}}, {0, 15}},
    {"gru", 3, {{"ir", "iz", "in"}, {"hr", "hz", "hn"}}, {7, 4}},
};

/* A Dense with a bias or none, of the same sizes as the first of its side. */
static bool is_gate(const struct survey *s, size_t i, size_t first, bool has_bias) {
    const struct ckpt_tensor *const k = kernel(s, i), *const f = kernel(s, first);
    const struct ckpt_tensor *const b = bias(s, i);
    return k && f && k->ndim == 2 && ends_as(k, f) && f->ndim == 2 && k->dtype == f->dtype &&
           !b == !has_bias && (!b || (b->ndim == 1 && ends_as(k, b) && b->dtype == k->dtype));
}

static bool is_cell(const struct survey *s, size_t i, const struct cell_row *row) {
    for (uint32_t side = 0; side < 2; side++) {
        const size_t first = child(s, i, row->gate[side][0]);
        for (uint32_t g = 0; g < row->gates; g++)
            if (!is_gate(s, child(s, i, row->gate[side][g]), first, row->biases[side] >> g & 1))
                return false;
    }
    const struct ckpt_tensor *const x = kernel(s, child(s, i, row->gate[0][0]));
    const struct ckpt_tensor *const h = kernel(s, child(s, i, row->gate[1][0]));
    return h->shape[0] == h->shape[1] && x->shape[1] == h->shape[1] && x->dtype == h->dtype;
}

static void decide_cell(struct survey *s, size_t i) {
    for (size_t r = 0; r < sizeof cells / sizeof cells[0]; r++) {
        const struct cell_row *const row = &cells[r];
        if (!is_cell(s, i, row))
            continue;
        for (uint32_t side = 0; side < 2; side++)
            for (uint32_t g = 0; g < row->gates; g++)
                decide(s, child(s, i, row->gate[side][g]), row->kind, row->kind, "structure");
    }
}

/* --- modules with arrays of their own --------------------------------------------------------- */

/* By the bias, which has the dimensions that go out. NULL: neither one in nor one out. */
static const char *general_of(const struct ckpt_tensor *k, const struct ckpt_tensor *b) {
    const uint32_t out = b ? b->ndim : 1;
    if (b && !ends_as(k, b))
        return NULL;
    return out == k->ndim - 1 ? "dense:first" : out == 1 ? "dense:last" : NULL;
}

static bool has_length(const struct ckpt_tensor *b, int64_t n) {
    return b && b->ndim == 1 && b->shape[0] == n;
}

/* [kernel, in, out], or [kernel, out, in] with transpose_kernel=True. */
static const char *transposed_of(const struct ckpt_tensor *k, const struct ckpt_tensor *b) {
    return b && !has_length(b, k->shape[k->ndim - 1]) ? "conv_transpose:kernel" : "conv_transpose";
}

static bool is_conv_transpose(const struct survey *s, size_t i) {
    const struct ckpt_tensor *const k = kernel(s, i), *const b = bias(s, i);
    return is_called(s, i, "transpose") || is_called(s, i, "deconv") ||
           (b && !has_length(b, k->shape[k->ndim - 1]) && has_length(b, k->shape[k->ndim - 2]));
}

/* A kernel of more than two dimensions, which only names tell apart where the bias does not. */
static void decide_kernel(struct survey *s, size_t i) {
    const struct ckpt_tensor *const k = kernel(s, i), *const b = bias(s, i);
    const char *const general = general_of(k, b);
    if ((b && b->ndim > 1) || is_called(s, i, "dense") || is_called(s, i, "linear")) {
        if (general && (b || is_called(s, i, "out")))
            decide(s, i, "linear", general, "structure");
    } else if (k->ndim > 5) {
        return;
    } else if (is_conv_transpose(s, i)) {
        decide(s, i, "conv_transpose", transposed_of(k, b), "structure");
    } else if (!b || has_length(b, k->shape[k->ndim - 1])) {
        const bool told = k->ndim > 3 || is_called(s, i, "conv");
        decide(s, i, "conv", "conv", told ? "structure" : "default");
    }
}

/* -o kind= says linear, conv or conv_transpose; which way it lies, the shapes do. */
static void refine_option(struct survey *s, size_t i) {
    struct ckpt_decision *const d = &s->m.decision[i];
    const struct ckpt_tensor *const k = kernel(s, i), *const b = bias(s, i);
    if (!k || k->ndim < 3)
        return;
    if (strcmp(d->kind, "linear") == 0)
        d->rule_kind = general_of(k, b);
    else if (strcmp(d->kind, "conv_transpose") == 0)
        d->rule_kind = transposed_of(k, b);
}

static void decide_module(struct survey *s, size_t i) {
    const struct ckpt_tensor *const k = kernel(s, i);
    const bool running = leaf(s, i, CKPT_LEAF_MEAN) && leaf(s, i, CKPT_LEAF_VAR);
    if (s->m.decision[i].kind)
        refine_option(s, i);
    else if (k && k->ndim == 2)
        decide(s, i, "linear", "linear", "structure");
    else if (k && k->ndim > 2)
        decide_kernel(s, i);
    else if (leaf(s, i, CKPT_LEAF_EMBEDDING))
        decide(s, i, "embedding", "embedding", "structure");
    else if (running)
        decide(s, i, "batch_norm", "batch_norm", "structure");
    else if (leaf(s, i, CKPT_LEAF_SCALE))
        decide(s, i, "norm", "norm", "structure");
}

/* What was said by option is said of a module that is nobody's part. */
static int decide_all(struct ckpt_build *b) {
    CKPT_AUTO(survey) struct survey s = {0};
    int rc = begin(b, &s);
    if (rc == 0)
        rc = ckpt_decide_by_options(b, &s.m, false);
    if (rc)
        return rc;
    ckpt_link_decisions(&s.m);
    for (size_t i = 0; i < s.m.n; i++) {
        const char *const said = s.m.decision[i].kind;
        if (said && strcmp(said, "other") == 0)
            continue;
        decide_attention(&s, i);
        decide_cell(&s, i);
    }
    for (size_t i = 0; i < s.m.n; i++)
        if (!s.m.decision[i].kind || strcmp(s.m.decision[i].decided_by, "option") == 0)
            decide_module(&s, i);
    ckpt_hand_over_decisions(b, &s.m);
    return ckpt_warn_flax_modules(b, &s.m);
}

/* --- batch_stats ------------------------------------------------------------------------------ */

/* The root with its last "params" replaced; .s NULL: it has none, or there is no memory. */
static struct ckpt_text statistics_root(struct ckpt_build *b) {
    static const char params[] = "params", statistics[] = "batch_stats";
    const struct ckpt_text root = b->model->root;
    const size_t n = sizeof params - 1;
    for (size_t at = root.n >= n ? root.n - n + 1 : 0; at-- > 0;) {
        const bool begins = at == 0 || root.s[at - 1] == '.';
        const bool ends = at + n == root.n || root.s[at + n] == '.';
        if (!begins || !ends || memcmp(root.s + at, params, n) != 0)
            continue;
        const char *const text =
            ckpt_arena_printf(&b->model->arena, "%.*s%s%.*s", (int)at, root.s, statistics,
                              (int)(root.n - at - n), root.s + at + n);
        return text ? ckpt_text_of(text) : (struct ckpt_text){0};
    }
    return (struct ckpt_text){0};
}

/* BatchNorm's running statistics lie in a tree of their own beside the parameters; they belong to
 * the same modules. */
static void take_statistics(struct ckpt_build *b) {
    const struct ckpt_text root = statistics_root(b);
    for (size_t i = 0; root.s && i < b->nitems; i++) {
        struct ckpt_item *const item = &b->item[i];
        const struct ckpt_text key = item->tensor->key;
        if (item->in_model || key.n <= root.n + 1 || key.s[root.n] != '.' ||
            memcmp(key.s, root.s, root.n) != 0)
            continue;
        item->in_model = true;
        item->torch_key = item->key = (struct ckpt_text){key.s + root.n + 1, key.n - root.n - 1};
    }
}

int ckpt_decide_flax_modules(struct ckpt_build *b) {
    take_statistics(b);
    const int rc = ckpt_flax_unstack(b);
    return rc ? rc : decide_all(b);
}

/* --- is it flax? ------------------------------------------------------------------------------ */

static bool ends_with_leaf(struct ckpt_text key, const char *name) {
    const size_t n = strlen(name);
    if (ckpt_text_ends(key, ".value"))
        key.n -= strlen(".value");
    return ckpt_text_ends(key, name) && (key.n == n || key.s[key.n - n - 1] == '.');
}

int ckpt_is_flax(struct ckpt_build *b) {
    bool flax = false;
    if (strcmp(b->checkpoint->format, "orbax") != 0 &&
        strcmp(b->checkpoint->format, "flax-msgpack") != 0)
        return 0;
    for (size_t i = 0; i < b->nitems; i++) {
        const struct ckpt_text key = b->item[i].torch_key;
        if (!b->item[i].in_model)
            continue;
        if (ends_with_leaf(key, "weight"))
            return 0;
        flax |= ends_with_leaf(key, "kernel") || ends_with_leaf(key, "embedding");
    }
    return flax;
}
