/*
 * Gathers the facts of each module (the tensors whose keys differ in their last name only), asks
 * the rungs of the evidence in order, and says which decisions nothing but a name or a habit
 * supports.
 */
#include "adapters/evidence.h"

#include <errno.h>
#include <string.h>

#include "adapters/build.h"
#include "adapters/regex.h"

const char *const ckpt_kind_names[] = {"linear",
                                       "conv1d_hf",
                                       "embedding",
                                       "norm",
                                       "batch_norm",
                                       "conv",
                                       "conv_transpose",
                                       "prelu",
                                       "lstm",
                                       "gru",
                                       "rnn",
                                       "mha",
                                       "encoder_layer:pre",
                                       "encoder_layer:post",
                                       "decoder_layer:pre",
                                       "decoder_layer:post",
                                       "other",
                                       NULL};

const char *ckpt_kind_by_name(struct ckpt_text name) {
    for (size_t i = 0; ckpt_kind_names[i]; i++)
        if (ckpt_text_is(name, ckpt_kind_names[i]))
            return ckpt_kind_names[i];
    return NULL;
}

static const char *const leaf_names[CKPT_LEAF_COUNT] = {
    [CKPT_LEAF_WEIGHT] = "weight",
    [CKPT_LEAF_BIAS] = "bias",
    [CKPT_LEAF_RUNNING_MEAN] = "running_mean",
    [CKPT_LEAF_IN_PROJ_WEIGHT] = "in_proj_weight",
    [CKPT_LEAF_Q_PROJ_WEIGHT] = "q_proj_weight",
    [CKPT_LEAF_K_PROJ_WEIGHT] = "k_proj_weight",
    [CKPT_LEAF_V_PROJ_WEIGHT] = "v_proj_weight",
    [CKPT_LEAF_WEIGHT_HH] = "weight_hh_l0",
    [CKPT_LEAF_WEIGHT_IH] = "weight_ih_l0",
    [CKPT_LEAF_WEIGHT_HR] = "weight_hr_l0",
};

/* All modules of the model, while they are decided. */
struct modules {
    struct ckpt_facts *facts;
    struct ckpt_decision *decision;
    size_t n;
    size_t *of_item; /* index of the module of each item in the model */
};

static struct ckpt_text module_path(struct ckpt_text key) {
    const char *dot = memrchr(key.s, '.', key.n);
    return (struct ckpt_text){key.s, dot ? (size_t)(dot - key.s) : 0};
}

static void note_leaf(struct ckpt_facts *f, const struct ckpt_item *item) {
    const struct ckpt_text key = item->torch_key;
    const size_t skip = f->path.n ? f->path.n + 1 : (key.n > 0 && key.s[0] == '.');
    const struct ckpt_text name = {key.s + skip, key.n - skip};
    for (size_t l = 0; l < CKPT_LEAF_COUNT; l++)
        if (ckpt_text_is(name, leaf_names[l]))
            f->leaf[l] = item->tensor;
}

static int gather(struct ckpt_build *b, struct modules *m) {
    struct ckpt_arena *a = &b->model->arena;
    const struct ckpt_checkpoint *c = b->checkpoint;
    CKPT_AUTO(strmap) struct ckpt_strmap by_path = {0};
    m->facts = ckpt_arena_array(a, b->nitems, sizeof *m->facts);
    m->of_item = ckpt_arena_array(a, b->nitems, sizeof *m->of_item);
    if (!m->facts || !m->of_item)
        return ckpt_fail_memory(b->err, "looking at the modules");
    for (size_t i = 0; i < b->nitems; i++) {
        const struct ckpt_item *item = &b->item[i];
        if (!item->in_model)
            continue;
        const struct ckpt_text path = module_path(item->torch_key);
        size_t at = m->n;
        const int rc = ckpt_strmap_add(&by_path, path, m->n, &at);
        if (rc == -ENOMEM)
            return ckpt_fail_memory(b->err, "looking at the modules");
        if (rc == 0)
            m->facts[m->n++].path = path;
        struct ckpt_facts *f = &m->facts[at];
        const int32_t module = item->tensor->module;
        if (module >= 0 && (size_t)module < c->nmodules && !f->record)
            f->record = &c->modules[module];
        note_leaf(f, item);
        m->of_item[i] = at;
    }
    m->decision = ckpt_arena_array(a, m->n, sizeof *m->decision);
    if (!m->decision)
        return ckpt_fail_memory(b->err, "looking at the modules");
    const struct ckpt_graph *graph = b->options->graph ? b->options->graph : c->graph;
    return graph ? ckpt_survey_graph(b, graph, m->facts, &by_path) : 0;
}

/* -o kind=: the last one that matches a module wins. */
static int decide_by_option(struct ckpt_build *b, struct modules *m,
                            const struct ckpt_mapping *map) {
    const char *kind = ckpt_kind_by_name(map->value);
    struct ckpt_arena *a = &b->model->arena;
    if (!kind) {
        struct ckpt_text names[sizeof ckpt_kind_names / sizeof ckpt_kind_names[0]];
        size_t n = 0;
        for (; ckpt_kind_names[n]; n++)
            names[n] = ckpt_text_of(ckpt_kind_names[n]);
        return ckpt_fail(b->err, -EINVAL, "%s'%.*s': no kind of module is called '%.*s'%s",
                         map->where, CKPT_TEXT_ARGS(map->pattern), CKPT_TEXT_ARGS(map->value),
                         ckpt_build_did_you_mean(b, map->value, names, n));
    }
    CKPT_AUTO(regex) struct ckpt_regex *re = NULL;
    int rc = ckpt_regex_new(map->pattern, false, map->where, &re, b->err);
    size_t hits = 0;
    for (size_t i = 0; rc >= 0 && i < m->n; i++) {
        rc = ckpt_regex_match(re, m->facts[i].path, b->err);
        if (rc <= 0)
            continue;
        hits++;
        m->decision[i] =
            (struct ckpt_decision){.kind = kind, .rule_kind = kind, .decided_by = "option"};
    }
    if (rc < 0 || hits)
        return rc < 0 ? rc : 0;
    struct ckpt_text *paths = ckpt_arena_array(a, m->n, sizeof *paths);
    for (size_t i = 0; paths && i < m->n; i++)
        paths[i] = m->facts[i].path;
    const struct ckpt_text literal = ckpt_regex_literal(map->pattern, a);
    return ckpt_build_warn(b, "%s'%.*s' matches no module%s", map->where,
                           CKPT_TEXT_ARGS(map->pattern),
                           ckpt_build_did_you_mean(b, literal, paths, paths ? m->n : 0));
}

/* The last names of modules that are known to be Conv1D: in a GPT-2 whose c_fc is one by its shape,
 * the square c_proj is one too. */
static int conv1d_names(struct ckpt_build *b, const struct modules *m, struct ckpt_strmap *names) {
    for (size_t i = 0; i < m->n; i++) {
        const char *kind = m->decision[i].kind;
        if (!kind || strcmp(kind, "conv1d_hf") != 0)
            continue;
        const struct ckpt_text name = ckpt_module_last_name(m->facts[i].path);
        if (ckpt_strmap_add(names, name, i, NULL) == -ENOMEM)
            return ckpt_fail_memory(b->err, "looking at the modules");
    }
    return 0;
}

/* Between the option and the name, strongest first. */
static bool (*const rungs[])(const struct ckpt_facts *f, struct ckpt_decision *d) = {
    ckpt_evidence_graph, ckpt_evidence_class, ckpt_evidence_structure};

static int decide(struct ckpt_build *b, struct modules *m) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < b->options->nkind; i++)
        rc = decide_by_option(b, m, &b->options->kind[i]);
    if (rc)
        return rc;
    for (size_t i = 0; i < m->n; i++)
        for (size_t r = 0; !m->decision[i].kind && r < sizeof rungs / sizeof rungs[0]; r++)
            rungs[r](&m->facts[i], &m->decision[i]);
    CKPT_AUTO(strmap) struct ckpt_strmap conv1d = {0};
    rc = conv1d_names(b, m, &conv1d);
    for (size_t i = 0; rc == 0 && i < m->n; i++) {
        struct ckpt_decision *d = &m->decision[i];
        const struct ckpt_text name = ckpt_module_last_name(m->facts[i].path);
        if (!d->kind)
            ckpt_evidence_name(&m->facts[i], ckpt_strmap_get(&conv1d, name) != CKPT_STRMAP_ABSENT,
                               d);
        d->facts = &m->facts[i];
    }
    return rc;
}

/* What burn may load wrongly or miss: decisions that rest on nothing solid, and layers that no rule
 * adapts. One warning each. */
enum doubt { GUESSED, SQUARE, NAMED_TABLE, NAMED_VECTOR, LONE_VECTOR, PACKED, DOUBTS };

static const struct {
    const char *what, *advice;
} doubts[DOUBTS] = {
    [GUESSED] = {"2-D weights without a bias, taken for Linear and transposed",
                 "nothing in the file tells them from embeddings, -o 'kind=REGEX=>embedding' does"},
    [SQUARE] = {"square weights whose shape cannot tell Linear from Conv1D, decided by name",
                "-o 'kind=REGEX=>linear' or conv1d_hf settles it"},
    [NAMED_TABLE] = {"2-D weights without a bias, by their names not Linear and kept as they are",
                     "-o 'kind=REGEX=>linear' says otherwise"},
    [NAMED_VECTOR] = {"1-D weights without a bias, by their names a norm's or a PReLU's",
                      "-o 'kind=REGEX=>norm' or prelu settles it"},
    [LONE_VECTOR] = {"1-D weights alone, an RMSNorm's or a PReLU's, keep the name weight",
                     "-o 'kind=REGEX=>norm' or prelu decides"},
    [PACKED] = {"attention and recurrent layers keep PyTorch's packed tensors",
                "burn has them split and will report its own as missing; -o rules=FILE can split "
                "them"},
};

static bool is_packed(const char *kind) {
    static const char *const packed[] = {"mha", "lstm", "gru", "rnn"};
    for (size_t i = 0; kind && i < sizeof packed / sizeof *packed; i++)
        if (strcmp(kind, packed[i]) == 0)
            return true;
    return false;
}

static enum doubt doubt_of(const struct ckpt_facts *f, const struct ckpt_decision *d) {
    if (is_packed(d->kind))
        return PACKED;
    const struct ckpt_tensor *w = f->leaf[CKPT_LEAF_WEIGHT];
    if (!d->decided_by)
        return w && w->ndim == 1 && !f->leaf[CKPT_LEAF_BIAS] ? LONE_VECTOR : DOUBTS;
    if (strcmp(d->decided_by, "default") == 0)
        return GUESSED;
    if (strcmp(d->decided_by, "name") != 0)
        return DOUBTS;
    return f->leaf[CKPT_LEAF_BIAS] ? SQUARE : w->ndim == 2 ? NAMED_TABLE : NAMED_VECTOR;
}

/* "wte, h.0.attn and 11 more" */
static void list_name(struct ckpt_str *s, struct ckpt_text path, size_t before) {
    enum { LISTED = 4 };
    if (before >= LISTED)
        return;
    ckpt_str_printf(s, "%s%.*s", before ? ", " : "", CKPT_TEXT_ARGS(path));
    if (path.n == 0)
        ckpt_str_puts(s, "the model itself");
}

static int warn_of(struct ckpt_build *b, const struct modules *m, enum doubt doubt) {
    CKPT_AUTO(str) struct ckpt_str names = {0};
    size_t n = 0, square = 0;
    for (size_t i = 0; i < m->n; i++) {
        if (doubt_of(&m->facts[i], &m->decision[i]) != doubt)
            continue;
        list_name(&names, m->facts[i].path, n++);
        square += doubt == GUESSED && ckpt_facts_square(&m->facts[i]);
    }
    if (n == 0)
        return 0;
    if (n > 4)
        ckpt_str_printf(&names, " and %zu more", n - 4);
    if (square)
        ckpt_str_printf(&names, "; %zu of them are square, so no shape would show an error",
                        square);
    if (names.failed)
        return ckpt_fail_memory(b->err, "collecting warnings");
    return ckpt_build_warn(b, "%s: %s; %s", doubts[doubt].what, names.s, doubts[doubt].advice);
}

int ckpt_decide_modules(struct ckpt_build *b) {
    struct modules m = {0};
    int rc = gather(b, &m);
    if (rc == 0)
        rc = decide(b, &m);
    for (size_t i = 0; rc == 0 && i < b->nitems; i++)
        if (b->item[i].in_model)
            b->item[i].decision = m.decision[m.of_item[i]];
    const bool matters = b->options->layout == CKPT_LAYOUT_BURN;
    for (int doubt = 0; rc == 0 && matters && doubt < DOUBTS; doubt++)
        rc = warn_of(b, &m, (enum doubt)doubt);
    return rc;
}
