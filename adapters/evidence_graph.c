/*
 * What a graph says of the modules: the strongest evidence in a file. An operation that takes a
 * parameter as its weight proves what the parameter is; where none tells, the classes of the
 * modules inside which the operations ran do.
 *
 * The parameter's own name says which module it belongs to, unless it is tied: then the exporter
 * kept one of its names, and the operation proves something of the module in which it ran.
 *
 *     embedding(weight=lm_head.weight)  in "wte"       wte is an embedding
 *     linear(weight=lm_head.weight)     in "lm_head"   lm_head is a Linear
 *     linear(weight=attn.out_proj.weight) in "attn"    attn.out_proj is one, used from above
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/build.h"
#include "adapters/evidence.h"

static const struct op_row {
    const char *op, *arg;
    const char *leaf; /* last name that the parameter must have; NULL: any */
    bool transposed;  /* it reaches the operation as its transpose */
    const char *flag; /* an argument that must be true, or with ! not be; NULL: none */
    const char *kind, *rule_kind;
} ops[] = {
    {"aten.linear", "weight", "weight", false, NULL, "linear", "linear"},
    /* Hugging Face's Conv1D; and what core ATen makes of a Linear. */
    {"aten.addmm", "mat2", "weight", false, NULL, "conv1d_hf", "conv1d_hf"},
    {"aten.addmm", "mat2", "weight", true, NULL, "linear", "linear"},
    {"aten.mm", "mat2", "weight", true, NULL, "linear", "linear"},
    {"aten.matmul", "other", "weight", true, NULL, "linear", "linear"},
    /* A matrix of somebody's own, in the layout that burn's products want. */
    {"aten.mm", "mat2", "weight", false, NULL, "other", "other"},
    {"aten.matmul", "other", "weight", false, NULL, "other", "other"},
    {"aten.embedding", "weight", "weight", false, NULL, "embedding", "embedding"},
    {"aten.embedding_bag", "weight", "weight", false, NULL, "embedding", "embedding"},
    {"aten._embedding_bag", "weight", "weight", false, NULL, "embedding", "embedding"},
    {"aten.conv1d", "weight", "weight", false, NULL, "conv", "conv"},
    {"aten.conv2d", "weight", "weight", false, NULL, "conv", "conv"},
    {"aten.conv3d", "weight", "weight", false, NULL, "conv", "conv"},
    {"aten.convolution", "weight", "weight", false, "!transposed", "conv", "conv"},
    {"aten.convolution", "weight", "weight", false, "transposed", "conv_transpose",
     "conv_transpose"},
    {"aten.conv_transpose1d", "weight", "weight", false, NULL, "conv_transpose", "conv_transpose"},
    {"aten.conv_transpose2d", "weight", "weight", false, NULL, "conv_transpose", "conv_transpose"},
    {"aten.conv_transpose3d", "weight", "weight", false, NULL, "conv_transpose", "conv_transpose"},
    {"aten.batch_norm", "running_mean", "running_mean", false, NULL, "batch_norm", "batch_norm"},
    {"aten._native_batch_norm_legit_no_training", "running_mean", "running_mean", false, NULL,
     "batch_norm", "batch_norm"},
    {"aten.layer_norm", "weight", "weight", false, NULL, "norm", "norm"},
    {"aten.native_layer_norm", "weight", "weight", false, NULL, "norm", "norm"},
    {"aten.group_norm", "weight", "weight", false, NULL, "norm", "norm"},
    {"aten.native_group_norm", "weight", "weight", false, NULL, "norm", "norm"},
    {"aten.rms_norm", "weight", "weight", false, NULL, "norm", "norm"},
    {"aten._fused_rms_norm", "weight", "weight", false, NULL, "norm", "norm"},
    {"aten.instance_norm", "weight", "weight", false, NULL, "norm", "instance_norm"},
    {"aten.prelu", "weight", "weight", false, NULL, "prelu", "prelu"},
    {"aten._prelu_kernel", "weight", "weight", false, NULL, "prelu", "prelu"},
    {"aten.lstm", "params", NULL, false, NULL, "lstm", "lstm"},
    {"aten.gru", "params", NULL, false, NULL, "gru", "gru"},
    {"aten.rnn_tanh", "params", NULL, false, NULL, "rnn", "rnn"},
    {"aten.rnn_relu", "params", NULL, false, NULL, "rnn", "rnn"},
};

/* Which parameter a value is, perhaps transposed. */
struct origin {
    uint32_t input; /* CKPT_GRAPH_NONE: none */
    bool transposed;
};

struct survey {
    const struct ckpt_graph *graph;
    struct ckpt_facts *facts;
    const struct ckpt_strmap *by_path;
    struct origin *origin; /* of each value */
};

/* --- which values are parameters -------------------------------------------------------------- */

static bool is_matrix(const struct ckpt_graph *g, uint32_t value) {
    return g->value[value].meta && g->value[value].meta->ndim == 2;
}

/* Operations that only turn a matrix around, or not even that. */
static bool passes_on(const struct ckpt_graph_node *n, bool *turns) {
    static const char *const same[] = {"aten.alias",    "aten.detach", "aten.to",
                                       "aten._to_copy", "aten.clone",  "aten.contiguous"};
    static const char *const turned[] = {"aten.t", "aten.permute", "aten.transpose",
                                         "aten.numpy_T"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (ckpt_text_is(n->base, same[i]))
            return true;
    *turns = true;
    for (size_t i = 0; i < sizeof turned / sizeof turned[0]; i++)
        if (ckpt_text_is(n->base, turned[i]))
            return true;
    return false;
}

/* Whether permute's dims, or transpose's two, leave a matrix as it was. */
static bool keeps_order(const struct ckpt_graph_node *n) {
    const struct ckpt_graph_arg *dims = ckpt_graph_arg(n, "dims"), *a = ckpt_graph_arg(n, "dim0"),
                                *b = ckpt_graph_arg(n, "dim1");
    if (dims)
        return dims->n != 2 || dims->item[0].kind != CKPT_GRAPH_ITEM_INT || dims->item[0].i == 0 ||
               dims->item[0].i == -2;
    return a && b && a->n == 1 && b->n == 1 && (a->item[0].i & 1) == (b->item[0].i & 1);
}

static void follow(struct survey *s, const struct ckpt_graph_node *n) {
    const uint32_t from = ckpt_graph_arg_value(ckpt_graph_arg(n, "self"));
    const uint32_t to = n->nouts == 1 ? ckpt_graph_arg_value(&n->out[0]) : CKPT_GRAPH_NONE;
    bool turns = false;
    if (from == CKPT_GRAPH_NONE || to == CKPT_GRAPH_NONE ||
        s->origin[from].input == CKPT_GRAPH_NONE || !passes_on(n, &turns))
        return;
    if (turns && !is_matrix(s->graph, from))
        return;
    s->origin[to] = s->origin[from];
    s->origin[to].transposed ^= turns && !keeps_order(n);
}

static bool is_in_state(const struct ckpt_graph_input *in) {
    return in->role == CKPT_GRAPH_PARAMETER || (in->role == CKPT_GRAPH_BUFFER && in->persistent);
}

static void enter_parameters(struct survey *s) {
    for (size_t v = 0; v < s->graph->nvalues; v++)
        s->origin[v] = (struct origin){.input = CKPT_GRAPH_NONE};
    for (size_t i = 0; i < s->graph->ninputs; i++) {
        const uint32_t v = ckpt_graph_arg_value(&s->graph->input[i].arg);
        if (v != CKPT_GRAPH_NONE && is_in_state(&s->graph->input[i]))
            s->origin[v].input = (uint32_t)i;
    }
}

/* --- what the operations prove ---------------------------------------------------------------- */

static struct ckpt_facts *find_facts(const struct survey *s, struct ckpt_text path) {
    const size_t at = ckpt_strmap_get(s->by_path, path);
    return at == CKPT_STRMAP_ABSENT ? NULL : &s->facts[at];
}

static struct ckpt_text module_of(struct ckpt_text name) {
    const char *dot = memrchr(name.s, '.', name.n);
    return (struct ckpt_text){name.s, dot ? (size_t)(dot - name.s) : 0};
}

static bool is_below(struct ckpt_text path, struct ckpt_text above) {
    return above.n == 0 ||
           (path.n > above.n && memcmp(path.s, above.s, above.n) == 0 && path.s[above.n] == '.');
}

/* Of two uses the one from nearer by counts; two of one rank that contradict prove nothing. */
static void note_use(struct ckpt_facts *f, const struct op_row *row, enum ckpt_use_rank rank) {
    if (rank < f->use.rank)
        return;
    if (rank == f->use.rank && (!f->use.kind || strcmp(f->use.kind, row->kind) != 0))
        f->use.kind = f->use.rule_kind = NULL;
    else
        f->use = (struct ckpt_use){row->kind, row->rule_kind, row->op, rank};
}

static void note_parameter(const struct survey *s, const struct op_row *row,
                           const struct ckpt_graph_node *n, struct ckpt_text name) {
    const struct ckpt_text module = module_of(name);
    const struct ckpt_graph_stack *stack = n->stack;
    if (row->leaf && !ckpt_text_is(ckpt_module_last_name(name), row->leaf))
        return;
    struct ckpt_facts *own = find_facts(s, module);
    if (stack->n == 0) {
        if (own)
            note_use(own, row, CKPT_USE_FAR);
        return;
    }
    const struct ckpt_text scope = stack->frame[stack->n - 1].path;
    struct ckpt_facts *other = find_facts(s, scope);
    if (own && ckpt_text_eq(scope, module))
        note_use(own, row, CKPT_USE_OWN);
    else if (own && is_below(module, scope))
        note_use(own, row, CKPT_USE_ABOVE);
    else if (other && other->leaf[CKPT_LEAF_WEIGHT])
        note_use(other, row, CKPT_USE_OWN);
    else if (own)
        note_use(own, row, CKPT_USE_FAR);
}

static bool flag_holds(const struct ckpt_graph_node *n, const char *flag) {
    if (!flag)
        return true;
    const bool want = flag[0] != '!';
    const struct ckpt_graph_arg *a = ckpt_graph_arg(n, want ? flag : flag + 1);
    return a && a->n == 1 && a->item[0].kind == CKPT_GRAPH_ITEM_BOOL && a->item[0].b == want;
}

static void note_node(const struct survey *s, const struct ckpt_graph_node *n) {
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        const struct op_row *row = &ops[i];
        const struct ckpt_graph_arg *arg =
            ckpt_text_is(n->base, row->op) ? ckpt_graph_arg(n, row->arg) : NULL;
        for (uint32_t k = 0; arg && k < arg->n && flag_holds(n, row->flag); k++) {
            if (arg->item[k].kind != CKPT_GRAPH_ITEM_VALUE)
                continue;
            const struct origin o = s->origin[arg->item[k].value];
            if (o.input != CKPT_GRAPH_NONE && o.transposed == row->transposed)
                note_parameter(s, row, n, s->graph->input[o.input].name);
        }
    }
}

/* --- where a Transformer layer has its norms -------------------------------------------------- */

static struct ckpt_facts *layer_of(const struct survey *s, struct ckpt_text parameter,
                                   const char *child) {
    const struct ckpt_text module = module_of(parameter);
    return ckpt_text_is(ckpt_module_last_name(module), child) ? find_facts(s, module_of(module))
                                                              : NULL;
}

static void note_order(struct ckpt_facts *f, enum ckpt_norm_order order) {
    if (f && f->norm_order == CKPT_NORM_UNKNOWN)
        f->norm_order = order;
}

/* The first of norm1 and self_attn that runs tells the order; the fused operation says it. */
static void note_norm_order(const struct survey *s, const struct ckpt_graph_node *n) {
    const bool fused = ckpt_text_is(n->base, "aten._transformer_encoder_layer_fwd");
    for (uint32_t a = 0; a < n->nargs; a++)
        for (uint32_t k = 0; k < n->arg[a].n; k++) {
            const struct ckpt_graph_item *item = &n->arg[a].item[k];
            const uint32_t input = item->kind == CKPT_GRAPH_ITEM_VALUE
                                       ? s->origin[item->value].input
                                       : CKPT_GRAPH_NONE;
            if (input == CKPT_GRAPH_NONE)
                continue;
            const struct ckpt_text name = s->graph->input[input].name;
            const bool pre = fused && flag_holds(n, "norm_first");
            note_order(layer_of(s, name, "norm1"), fused && !pre ? CKPT_NORM_POST : CKPT_NORM_PRE);
            note_order(layer_of(s, name, "self_attn"), pre ? CKPT_NORM_PRE : CKPT_NORM_POST);
        }
}

static void note_classes(const struct survey *s) {
    for (size_t i = 0; i < s->graph->nstacks; i++)
        for (uint32_t k = 0; k < s->graph->stack[i]->n; k++) {
            const struct ckpt_graph_frame *frame = &s->graph->stack[i]->frame[k];
            struct ckpt_facts *f = find_facts(s, frame->path);
            if (f && !f->graph_class.n)
                f->graph_class = frame->cls;
        }
}

/* --- does the graph fit? ---------------------------------------------------------------------- */

static bool same_shape(const struct ckpt_tensor *t, const struct ckpt_export_meta *m) {
    bool same = t->ndim == m->ndim;
    for (uint32_t d = 0; same && d < t->ndim; d++)
        same = m->shape[d] == CKPT_SYMBOLIC || m->shape[d] == t->shape[d];
    return same;
}

/* A graph of another model proves nothing of this one. */
static int check_fit(struct ckpt_build *b, const struct ckpt_graph *g, bool *fits) {
    CKPT_AUTO(strmap) struct ckpt_strmap by_key = {0};
    const struct ckpt_graph_input *missing = NULL;
    size_t n = 0, absent = 0;
    *fits = false;
    for (size_t i = 0; i < b->nitems; i++)
        if (b->item[i].in_model &&
            ckpt_strmap_add(&by_key, b->item[i].torch_key, i, NULL) == -ENOMEM)
            return ckpt_fail_memory(b->err, "comparing the graph with the model");
    for (size_t i = 0; i < g->ninputs; i++) {
        const struct ckpt_graph_input *in = &g->input[i];
        if (!is_in_state(in))
            continue;
        const size_t at = ckpt_strmap_get(&by_key, in->name);
        const uint32_t v = ckpt_graph_arg_value(&in->arg);
        const struct ckpt_export_meta *m = v == CKPT_GRAPH_NONE ? NULL : g->value[v].meta;
        n++;
        absent += at == CKPT_STRMAP_ABSENT;
        if (at == CKPT_STRMAP_ABSENT && !missing)
            missing = in;
        else if (at != CKPT_STRMAP_ABSENT && m && !same_shape(b->item[at].tensor, m))
            return ckpt_build_warn(b,
                                   "the graph is of another model: '%.*s' has another shape in it; "
                                   "no evidence is taken from it",
                                   CKPT_TEXT_ARGS(in->name));
    }
    *fits = absent < n;
    if (!absent)
        return 0;
    return ckpt_build_warn(b, "the graph has %zu parameters that the model lacks, as '%.*s'%s",
                           absent, CKPT_TEXT_ARGS(missing->name),
                           *fits ? "" : ": it is of another model, no evidence is taken from it");
}

int ckpt_survey_graph(struct ckpt_build *b, const struct ckpt_graph *g, struct ckpt_facts *facts,
                      const struct ckpt_strmap *by_path) {
    struct survey s = {.graph = g, .facts = facts, .by_path = by_path};
    bool fits;
    const int rc = check_fit(b, g, &fits);
    if (rc || !fits)
        return rc;
    CKPT_AUTO(free) struct origin *origin = calloc(g->nvalues + 1, sizeof *origin);
    if (!origin)
        return ckpt_fail_memory(b->err, "looking at the graph");
    s.origin = origin;
    enter_parameters(&s);
    for (size_t i = 0; i < g->nnodes; i++) {
        follow(&s, &g->node[i]);
        note_node(&s, &g->node[i]);
        note_norm_order(&s, &g->node[i]);
    }
    note_classes(&s);
    return 0;
}

bool ckpt_evidence_graph(const struct ckpt_facts *f, struct ckpt_decision *d) {
    if (f->use.kind) {
        d->kind = f->use.kind;
        d->rule_kind = f->use.rule_kind;
    } else if (!f->graph_class.n || !ckpt_kind_of_class(f->graph_class, d)) {
        return false;
    }
    d->decided_by = "graph";
    return true;
}
