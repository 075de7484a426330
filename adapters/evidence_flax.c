/*
 * What flax's modules are: by what they call their arrays, which says more than PyTorch's names do,
 * and where that is silent by shapes and names.
 *
 *     kernel               rank 2: Dense; else evidence_flax_kernel.c
 *     scale (and bias)     a norm; with mean and var (batch_stats) a BatchNorm
 *     embedding            Embed
 *     negative_slope       PReLU
 *     query, key, value, out with kernels of rank 3      MultiHeadDotProductAttention
 *     gates                recurrent cells: evidence_flax_cell.c
 *
 * Before that, stacks of layers are taken apart (evidence_flax_stack.c), so that each layer is
 * looked at by itself.
 */
#include "adapters/evidence_flax.h"

#include "adapters/flax_survey.h"

static void survey_fini(struct ckpt_survey *s) {
    ckpt_strmap_fini(&s->by_path);
    ckpt_modules_fini(&s->m);
}
#define ckpt_auto_survey survey_fini

static int begin(struct ckpt_build *b, struct ckpt_survey *s) {
    const int rc = ckpt_gather_modules(b, &s->m);
    return rc ? rc : ckpt_index_modules(b, &s->m, &s->by_path);
}

/* --- attention -------------------------------------------------------------------------------- */

/* [in, heads, size] with a bias [heads, size] or none, like the query's. */
static bool is_projection(const struct ckpt_survey *s, size_t i, size_t query) {
    const struct ckpt_tensor *const k = ckpt_survey_kernel(s, i), *const q =
                                                                      ckpt_survey_kernel(s, query);
    const struct ckpt_tensor *const b = ckpt_survey_bias(s, i);
    return k && q && k->ndim == 3 && q->ndim == 3 && k->shape[1] == q->shape[1] &&
           k->shape[2] == q->shape[2] && k->dtype == q->dtype &&
           !b == !ckpt_survey_bias(s, query) &&
           (!b || (b->ndim == 2 && ckpt_survey_ends_as(k, b) &&
                   b->dtype == ckpt_survey_bias(s, query)->dtype));
}

struct attention {
    size_t query, key, value, out;
};

static bool find_attention(const struct ckpt_survey *s, size_t i, struct attention *a) {
    *a = (struct attention){ckpt_survey_child(s, i, "query"), ckpt_survey_child(s, i, "key"),
                            ckpt_survey_child(s, i, "value"), ckpt_survey_child(s, i, "out")};
    const struct ckpt_tensor *const q = ckpt_survey_kernel(s, a->query), *const o =
                                                                             ckpt_survey_kernel(
                                                                                 s, a->out);
    return is_projection(s, a->query, a->query) && is_projection(s, a->key, a->query) &&
           is_projection(s, a->value, a->query) && o && o->ndim == 3 &&
           o->shape[0] == q->shape[1] && o->shape[1] == q->shape[2];
}

/* PyTorch's takes as many features as its heads have in all, gives as many, and has no norms of its
 * own. Another one is four Linear. */
static const char *attention_of(const struct ckpt_survey *s, size_t i, const struct attention *a) {
    const struct ckpt_tensor *const q = ckpt_survey_kernel(s, a->query), *const o =
                                                                             ckpt_survey_kernel(
                                                                                 s, a->out);
    const int64_t d = q->shape[0];
    if (q->shape[1] * q->shape[2] != d || o->shape[2] != d ||
        !ckpt_survey_bias(s, a->out) != !ckpt_survey_bias(s, a->query) ||
        ckpt_survey_child(s, i, "query_ln") != CKPT_MODULE_NONE ||
        ckpt_survey_child(s, i, "key_ln") != CKPT_MODULE_NONE)
        return NULL;
    return ckpt_survey_kernel(s, a->key)->shape[0] == d &&
                   ckpt_survey_kernel(s, a->value)->shape[0] == d
               ? "mha"
               : "mha:kdim";
}

static void decide_attention(struct ckpt_survey *s, size_t i) {
    struct attention a;
    if (!find_attention(s, i, &a))
        return;
    const char *const packed = attention_of(s, i, &a);
    const size_t in[] = {a.query, a.key, a.value};
    for (size_t k = 0; k < 3; k++)
        ckpt_survey_decide(s, in[k], packed ? "mha" : "linear", packed ? packed : "dense:2",
                           "structure");
    ckpt_survey_decide(s, a.out, "linear", "dense:1", "structure");
    if (packed)
        ckpt_survey_decide(s, i, "mha", packed, "structure");
}

/* --- modules with arrays of their own --------------------------------------------------------- */

static void decide_module(struct ckpt_survey *s, size_t i) {
    const struct ckpt_tensor *const k = ckpt_survey_kernel(s, i);
    const bool running =
        ckpt_survey_leaf(s, i, CKPT_LEAF_MEAN) && ckpt_survey_leaf(s, i, CKPT_LEAF_VAR);
    if (s->m.decision[i].kind)
        ckpt_flax_refine_option(s, i);
    else if (k && k->ndim == 2)
        ckpt_survey_decide(s, i, "linear", "linear", "structure");
    else if (k && k->ndim > 2)
        ckpt_flax_decide_kernel(s, i);
    else if (ckpt_survey_leaf(s, i, CKPT_LEAF_EMBEDDING))
        ckpt_survey_decide(s, i, "embedding", "embedding", "structure");
    else if (running)
        ckpt_survey_decide(s, i, "batch_norm", "batch_norm", "structure");
    else if (ckpt_survey_leaf(s, i, CKPT_LEAF_NEGATIVE_SLOPE))
        ckpt_survey_decide(s, i, "prelu", "prelu", "structure");
    else if (ckpt_survey_leaf(s, i, CKPT_LEAF_SCALE))
        ckpt_survey_decide(s, i, "norm", "norm", "structure");
}

/* dialect=flax was asked for, and nothing is flax's. */
static int warn_foreign(struct ckpt_build *b, const struct ckpt_modules *m) {
    for (size_t i = 0; i < m->n; i++)
        if (m->decision[i].kind || m->facts[i].leaf[CKPT_LEAF_KERNEL])
            return 0;
    return ckpt_build_warn(
        b, "dialect=flax, but none of flax's layers is there (no kernel, "
           "embedding or scale): its rules change nothing; dialect=auto finds whose "
           "names these are");
}

/* What was said by option is said of a module that is nobody's part. */
static int decide_all(struct ckpt_build *b) {
    CKPT_AUTO(survey) struct ckpt_survey s = {0};
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
        ckpt_flax_decide_cell(&s, i);
    }
    for (size_t i = 0; i < s.m.n; i++)
        if (!s.m.decision[i].kind || strcmp(s.m.decision[i].decided_by, "option") == 0)
            decide_module(&s, i);
    ckpt_hand_over_decisions(b, &s.m);
    rc = warn_foreign(b, &s.m);
    return rc ? rc : ckpt_warn_flax_modules(b, &s.m);
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

/* WeightNorm and SpectralNorm keep scale, u or sigma under names made of the kernel's: linen's are
 * "Dense_0/kernel/scale", nnx's "('kernel', 'sigma')". */
static bool is_of_norm(struct ckpt_text key) {
    static const char *const ends[] = {"/scale", "/u", "/sigma", "',)", "'u')", "'sigma')"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ckpt_text_ends(key, ends[i]))
            return true;
    return false;
}

static int warn_normalised(struct ckpt_build *b) {
    const struct ckpt_item *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < b->nitems; i++) {
        if (!b->item[i].in_model || !is_of_norm(b->item[i].key))
            continue;
        first = first ? first : &b->item[i];
        n++;
    }
    return n == 0 ? 0
                  : ckpt_build_warn(b,
                                    "WeightNorm's or SpectralNorm's arrays ('%.*s'; %zu in all): "
                                    "the kernels that they are about are taken as stored, not as "
                                    "normalised when they run: they load and compute something "
                                    "else; fold the norm into the kernel before saving",
                                    CKPT_TEXT_ARGS(first->key), n);
}

/* nnx keeps the state of random numbers (count and key, of Dropout and others) in the same tree: it
 * is no parameter. */
static void leave_random_state(struct ckpt_build *b) {
    for (size_t i = 0; i < b->nitems; i++) {
        struct ckpt_item *const item = &b->item[i];
        const struct ckpt_text key = item->key;
        if (!item->in_model || item->tensor->dtype != CKPT_DT_U32 ||
            !(ckpt_text_ends(key, ".count") || ckpt_text_ends(key, ".key")) ||
            !memmem(key.s, key.n, "rngs.", 5))
            continue;
        item->in_model = false;
        item->torch_key = item->key = item->tensor->key;
    }
}

void ckpt_settle_flax_model(struct ckpt_build *b) {
    take_statistics(b);
    leave_random_state(b);
}

int ckpt_decide_flax_modules(struct ckpt_build *b) {
    int rc = warn_normalised(b);
    if (rc == 0)
        rc = ckpt_flax_unstack(b);
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
