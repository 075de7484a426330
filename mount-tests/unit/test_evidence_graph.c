/*
 * Evidence from graphs: of torch.export itself, and a few lines of JSON for what no fixture holds
 * (Hugging Face's Conv1D, ties, contradictions, a graph of another model).
 */
#include "toy.h"

#include "adapters/model.h"
#include "base/cleanup.h"
#include "formats/graph.h"

/* --- a graph from "op arg=PARAMETER ..." lines -------------------------------------------------
 */

struct line {
    const char *op, *arg, *parameter, *scope, *cls;
    bool transposed; /* the parameter goes through a permute first */
};

static void add_ref(struct ckpt_str *s, const char *prefix, size_t i) {
    ckpt_str_printf(s, "{\"as_tensor\": {\"name\": \"%s%zu\"}}", prefix, i);
}

static void add_stack(struct ckpt_str *s, const struct line *l) {
    ckpt_str_printf(s, "\"metadata\": {\"nn_module_stack\": \"k,,Net;k,%s,%s\"}}", l->scope,
                    l->cls ? l->cls : "Net");
}

static void add_node(struct ckpt_str *s, const struct line *l, size_t i) {
    ckpt_str_puts(s, i ? ", " : "");
    if (l->transposed) {
        ckpt_str_puts(s, "{\"target\": \"torch.ops.aten.permute.default\", \"inputs\": [{\"name\": "
                         "\"self\", \"arg\": ");
        add_ref(s, "p", i);
        ckpt_str_puts(s,
                      "}, {\"name\": \"dims\", \"arg\": {\"as_ints\": [1, 0]}}], \"outputs\": [");
        add_ref(s, "t", i);
        ckpt_str_puts(s, "], ");
        add_stack(s, l);
        ckpt_str_puts(s, ", ");
    }
    ckpt_str_printf(s, "{\"target\": \"torch.ops.%s.default\", \"inputs\": [{\"name\": \"%s\", ",
                    l->op, l->arg);
    ckpt_str_puts(s, "\"arg\": ");
    add_ref(s, l->transposed ? "t" : "p", i);
    ckpt_str_puts(s, "}], \"outputs\": [");
    add_ref(s, "v", i);
    ckpt_str_puts(s, "], ");
    add_stack(s, l);
}

static const char *dims(struct ckpt_str *s, const struct ckpt_tensor *t) {
    ckpt_str_puts(s, "{\"dtype\": 7, \"sizes\": [");
    for (uint32_t d = 0; d < t->ndim; d++)
        ckpt_str_printf(s, "%s{\"as_int\": %lld}", d ? ", " : "", (long long)t->shape[d]);
    ckpt_str_puts(s, "]}");
    return s->s;
}

/* Shapes are the checkpoint's, unless `wrong`. */
static struct ckpt_graph *make_graph(const struct ckpt_checkpoint *c, const struct line *l,
                                     size_t n, bool wrong) {
    CKPT_AUTO(str) struct ckpt_str s = {0}, specs = {0}, metas = {0};
    struct ckpt_graph *g = NULL;
    struct ckpt_err err = {0};
    ckpt_str_puts(&s, "{\"schema_version\": {\"major\": 8}, \"graph_module\": {\"graph\": "
                      "{\"outputs\": [], \"inputs\": [");
    for (size_t i = 0; i < n; i++) {
        ckpt_str_puts(&s, i ? ", " : "");
        add_ref(&s, "p", i);
        ckpt_str_printf(&specs, "%s{\"parameter\": {\"parameter_name\": \"%s\"}}", i ? ", " : "",
                        l[i].parameter);
        for (size_t k = 0; k < c->ntensors; k++)
            if (ckpt_text_is(c->tensors[k].key, l[i].parameter)) {
                ckpt_str_printf(&metas, "%s\"p%zu\": ", metas.n ? ", " : "", i);
                dims(&metas, wrong ? &c->tensors[c->ntensors - 1] : &c->tensors[k]);
            }
    }
    ckpt_str_puts(&s, "], \"nodes\": [");
    for (size_t i = 0; i < n; i++)
        add_node(&s, &l[i], i);
    ckpt_str_printf(&s,
                    "], \"tensor_values\": {%s}}, \"signature\": {\"output_specs\": [], "
                    "\"input_specs\": [%s]}}}",
                    metas.n ? metas.s : "", specs.s);
    if (ckpt_graph_parse(s.s, s.n, &g, &err) != 0)
        fail_msg("%s\n%s", err.text, s.s);
    return g;
}

/* --- cases ------------------------------------------------------------------------------------ */

/* "linear graph" of every tensor, "-" for nothing. */
static void check(struct ckpt_checkpoint *c, const struct ckpt_graph *g, const char *const *want,
                  const char *warning) {
    const struct ckpt_adapt_options o = {.graph = g};
    struct ckpt_model *m;
    struct ckpt_err err = {0};
    if (ckpt_model_build(c, &o, &m, &err) != 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < m->ntensors; i++) {
        char got[100];
        snprintf(got, sizeof got, "%s %s",
                 m->tensor[i].module.kind ? m->tensor[i].module.kind : "-",
                 m->tensor[i].module.decided_by ? m->tensor[i].module.decided_by : "-");
        if (strcmp(got, want[i]) != 0)
            fail_msg("%s: %s, expected %s", m->tensor[i].key.s, got, want[i]);
    }
    if (warning && (m->nwarnings == 0 || !strstr(m->warnings[0].s, warning)))
        fail_msg("\"%s\" does not say \"%s\"", m->nwarnings ? m->warnings[0].s : "", warning);
    if (!warning && m->nwarnings)
        fail_msg("%s", m->warnings[0].s);
    ckpt_model_free(m);
}

/* Square weights, which no shape can tell apart. */
static void test_operations(void **state) {
    static const struct line lines[] = {
        {"aten.linear", "weight", "a.weight", "a", NULL, false},
        {"aten.addmm", "mat2", "b.weight", "b", NULL, false},
        {"aten.addmm", "mat2", "c.weight", "c", NULL, true},
        {"aten.embedding", "weight", "d.weight", "d", NULL, false},
        {"aten.matmul", "other", "e.weight", "e", NULL, false},
        {"aten.prelu", "weight", "f.weight", "f", NULL, false},
        {"aten.rms_norm", "weight", "g.weight", "g", NULL, false},
        {"aten.mul", "other", "h.weight", "h", "zoo.MyRMSNorm", false},
    };
    static const char *const want[] = {"linear graph",    "conv1d_hf graph", "linear graph",
                                       "embedding graph", "other graph",     "prelu graph",
                                       "norm graph",      "norm graph"};
    struct ckpt_checkpoint *c = toy_new();
    (void)state;
    for (size_t i = 0; i < 8; i++)
        toy_tensor(c, lines[i].parameter, CKPT_DT_F32, i < 5 ? "4,4" : "4", 0);
    CKPT_AUTO(graph) struct ckpt_graph *g = make_graph(c, lines, 8, false);
    check(c, g, want, NULL);
    ckpt_checkpoint_close(c);
}

/* One parameter, two modules: each is what ran in it. */
static void test_tied(void **state) {
    static const struct line lines[] = {
        {"aten.embedding", "weight", "head.weight", "wte", NULL, false},
        {"aten.linear", "weight", "head.weight", "head", NULL, false},
    };
    static const char *const want[] = {"embedding graph", "linear graph"};
    struct ckpt_checkpoint *c = toy_new();
    (void)state;
    toy_tensor(c, "wte.weight", CKPT_DT_F32, "4,4", 0);
    toy_tensor(c, "head.weight", CKPT_DT_F32, "4,4", 0);
    CKPT_AUTO(graph) struct ckpt_graph *g = make_graph(c, lines, 2, false);
    check(c, g, want, NULL);
    ckpt_checkpoint_close(c);
}

/* Used from above: the module's own operation counts for more; two that are equally near and
 * contradict prove nothing. */
static void test_rank(void **state) {
    static const struct line lines[] = {
        {"aten.linear", "weight", "attn.out.weight", "attn", NULL, false},
        {"aten.linear", "weight", "emb.weight", "", NULL, false},
        {"aten.embedding", "weight", "emb.weight", "emb", NULL, false},
        {"aten.linear", "weight", "odd.weight", "odd", NULL, false},
        {"aten.embedding", "weight", "odd.weight", "odd", NULL, false},
    };
    static const char *const want[] = {"linear graph", "embedding graph", "linear default"};
    struct ckpt_checkpoint *c = toy_new();
    (void)state;
    toy_tensor(c, "attn.out.weight", CKPT_DT_F32, "4,4", 0);
    toy_tensor(c, "emb.weight", CKPT_DT_F32, "4,4", 0);
    toy_tensor(c, "odd.weight", CKPT_DT_F32, "4,4", 0);
    CKPT_AUTO(graph) struct ckpt_graph *g = make_graph(c, lines, 5, false);
    check(c, g, want, "taken for Linear and transposed: odd;");
    ckpt_checkpoint_close(c);
}

static void test_other_model(void **state) {
    static const struct line lines[] = {{"aten.embedding", "weight", "a.weight", "a", NULL, false}};
    static const struct line absent[] = {
        {"aten.embedding", "weight", "z.weight", "a", NULL, false}};
    static const char *const want[] = {"linear structure", "linear structure"};
    struct ckpt_checkpoint *c = toy_new();
    (void)state;
    toy_tensor(c, "a.weight", CKPT_DT_F32, "4,5", 0);
    toy_tensor(c, "a.bias", CKPT_DT_F32, "4", 0);
    CKPT_AUTO(graph) struct ckpt_graph *g = make_graph(c, lines, 1, true);
    check(c, g, want, "the graph is of another model: 'a.weight' has another shape");
    CKPT_AUTO(graph) struct ckpt_graph *h = make_graph(c, absent, 1, false);
    check(c, h, want, "the graph has 1 parameters that the model lacks, as 'z.weight': it is of");
    ckpt_checkpoint_close(c);
}

/* Where a Transformer layer has its norms: the fused operation says so. */
static void check_fused(bool first) {
    struct ckpt_checkpoint *c = toy_new();
    struct ckpt_graph *g = NULL;
    struct ckpt_err err = {0};
    char json[2048];
    snprintf(
        json, sizeof json,
        "{\"schema_version\": {\"major\": 8}, \"graph_module\": {\"graph\": {\"outputs\": [], "
        "\"inputs\": [{\"as_tensor\": {\"name\": \"q\"}}, {\"as_tensor\": {\"name\": \"n\"}}], "
        "\"nodes\": [{\"target\": \"torch.ops.aten._transformer_encoder_layer_fwd.default\", "
        "\"inputs\": [{\"name\": \"qkv_weight\", \"arg\": {\"as_tensor\": {\"name\": \"q\"}}}, "
        "{\"name\": \"norm_first\", \"arg\": {\"as_bool\": %s}}, "
        "{\"name\": \"norm_weight_1\", \"arg\": {\"as_tensor\": {\"name\": \"n\"}}}], "
        "\"outputs\": [{\"as_tensor\": {\"name\": \"y\"}}], \"metadata\": {}}], "
        "\"tensor_values\": {}}, \"signature\": {\"output_specs\": [], \"input_specs\": "
        "[{\"parameter\": {\"parameter_name\": \"0.self_attn.in_proj_weight\"}}, "
        "{\"parameter\": {\"parameter_name\": \"0.norm1.weight\"}}]}}}",
        first ? "true" : "false");
    if (ckpt_graph_parse(json, strlen(json), &g, &err) != 0)
        fail_msg("%s\n%s", err.text, json);
    toy_tensor(c, "0.self_attn.in_proj_weight", CKPT_DT_F32, "6,2", 0);
    toy_tensor(c, "0.linear1.weight", CKPT_DT_F32, "3,2", 0);
    toy_tensor(c, "0.linear2.weight", CKPT_DT_F32, "2,3", 0);
    toy_tensor(c, "0.norm1.weight", CKPT_DT_F32, "2", 0);
    toy_tensor(c, "0.norm2.weight", CKPT_DT_F32, "2", 0);
    const struct ckpt_adapt_options o = {.graph = g};
    struct ckpt_model *m;
    assert_int_equal(ckpt_model_build(c, &o, &m, &err), 0);
    assert_string_equal(m->tensor[m->ntensors - 2].key.s,
                        first ? "0.norm_2.gamma" : "0.norm_1.gamma");
    assert_int_equal(m->nwarnings, 0);
    ckpt_model_free(m);
    ckpt_graph_free(g);
    ckpt_checkpoint_close(c);
}

static void test_fused_layer(void **state) {
    (void)state;
    check_fused(true);
    check_fused(false);
}

/* --- torch's own graphs ----------------------------------------------------------------------- */

static void check_all_by_graph(const char *source, const char *sidecar) {
    struct ckpt_checkpoint *c;
    struct ckpt_model *m;
    struct ckpt_err err = {0};
    CKPT_AUTO(graph) struct ckpt_graph *g = NULL;
    if (ckpt_checkpoint_open(source, NULL, &c, &err) != 0 ||
        (sidecar && ckpt_graph_open(sidecar, &g, &err) != 0))
        fail_msg("%s: %s", source, err.text);
    const struct ckpt_adapt_options o = {.graph = g};
    assert_int_equal(ckpt_model_build(c, &o, &m, &err), 0);
    for (size_t i = 0; i < m->ntensors; i++)
        if (!m->tensor[i].module.decided_by || strcmp(m->tensor[i].module.decided_by, "graph"))
            fail_msg("%s: %s: by %s", source, m->tensor[i].key.s, m->tensor[i].module.decided_by);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void test_exported(void **state) {
    (void)state;
    check_all_by_graph(FIXTURES "/verify/mlp.pt2", NULL);
    check_all_by_graph(FIXTURES "/verify/mlp.core.pt2", NULL);
    check_all_by_graph(FIXTURES "/verify/cnn_bn.pt2", NULL);
    check_all_by_graph(FIXTURES "/verify/cnn_bn.core.pt2", NULL);
    check_all_by_graph(FIXTURES "/verify/gru.pt2", NULL);
    check_all_by_graph(FIXTURES "/verify/mlp.safetensors", FIXTURES "/verify/mlp.pt2");
    check_all_by_graph(FIXTURES "/burn-nn/norms.safetensors", FIXTURES "/burn-nn/norms.graph.json");
    static const char *const layers[] = {"encoder_pre_gelu", "decoder_post_relu", "mha_kv", "mha",
                                         "lstm_bi",          "gru_stacked",       "rnn"};
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        char source[512], graph[512];
        snprintf(source, sizeof source, FIXTURES "/burn-nn/%s.safetensors", layers[i]);
        snprintf(graph, sizeof graph, FIXTURES "/burn-nn/%s.graph.json", layers[i]);
        check_all_by_graph(source, graph);
    }
    check_all_by_graph(FIXTURES "/burn-nn/norms_full.pt", FIXTURES "/burn-nn/norms.graph.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations), cmocka_unit_test(test_tied),
        cmocka_unit_test(test_rank),       cmocka_unit_test(test_other_model),
        cmocka_unit_test(test_exported),   cmocka_unit_test(test_fused_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
