/* The node table: what it keeps of real graphs, and what a graph must not be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/graph.h"
#include "formats/limits.h"

static struct ckpt_graph *open_or_fail(const char *path) {
    struct ckpt_graph *g = NULL;
    struct ckpt_err err = {0};
    if (ckpt_graph_open(path, &g, &err) != 0)
        fail_msg("%s: %s", path, err.text);
    return g;
}

static const struct ckpt_graph_node *find_node(const struct ckpt_graph *g, const char *op) {
    for (size_t i = 0; i < g->nnodes; i++)
        if (ckpt_text_is(g->node[i].op, op))
            return &g->node[i];
    fail_msg("no %s", op);
    return NULL;
}

static const struct ckpt_graph_item *item_of(const struct ckpt_graph_node *n, const char *name) {
    const struct ckpt_graph_arg *a = ckpt_graph_arg(n, name);
    if (!a || a->n == 0)
        fail_msg("%s has no %s", n->op.s, name);
    return &a->item[0];
}

static void test_mlp(void **state) {
    CKPT_AUTO(graph) struct ckpt_graph *g = open_or_fail(FIXTURES "/verify/mlp.pt2");
    (void)state;
    assert_int_equal(g->schema_major, 8);
    assert_true(ckpt_text_starts(g->torch_version, "2."));
    assert_int_equal(g->ninputs, 5);
    assert_int_equal(g->input[0].role, CKPT_GRAPH_PARAMETER);
    assert_string_equal(g->input[0].name.s, "fc1.weight");
    assert_int_equal(g->input[4].role, CKPT_GRAPH_USER);
    assert_int_equal(g->nnodes, 3);
    const struct ckpt_graph_node *n = &g->node[0];
    assert_string_equal(n->op.s, "aten.linear.default");
    assert_true(ckpt_text_is(n->base, "aten.linear"));
    assert_int_equal(n->nargs, 3);
    assert_int_equal(ckpt_graph_arg_value(ckpt_graph_arg(n, "weight")),
                     ckpt_graph_arg_value(&g->input[0].arg));
    assert_int_equal(n->stack->n, 2);
    assert_true(ckpt_text_is(n->stack->frame[1].path, "fc1"));
    assert_true(ckpt_text_is(n->stack->frame[1].cls, "torch.nn.modules.linear.Linear"));
    const struct ckpt_graph_value *v = &g->value[ckpt_graph_arg_value(&n->out[0])];
    assert_int_equal(v->node, 0);
    assert_int_equal(v->meta->dtype, CKPT_DT_F32);
    assert_int_equal(v->meta->ndim, 2);
    assert_int_equal(v->meta->shape[1], 8);
    assert_int_equal(v->meta->stride[0], 8);
    assert_int_equal(g->noutputs, 1);
    assert_int_equal(g->value[ckpt_graph_arg_value(&g->output[0].arg)].node, 2);
}

static void test_arguments(void **state) {
    CKPT_AUTO(graph) struct ckpt_graph *rest = open_or_fail(FIXTURES "/verify/slice_rest.pt2");
    CKPT_AUTO(graph) struct ckpt_graph *lstm = open_or_fail(FIXTURES "/burn-nn/lstm.graph.json");
    CKPT_AUTO(graph) struct ckpt_graph *cnn = open_or_fail(FIXTURES "/verify/cnn_bn.pt2");
    (void)state;
    assert_int_equal(item_of(find_node(rest, "aten.slice.Tensor"), "end")->i, INT64_MAX);
    const struct ckpt_graph_node *n = find_node(lstm, "aten.lstm.input");
    const struct ckpt_graph_arg *params = ckpt_graph_arg(n, "params");
    assert_true(params->is_list);
    assert_int_equal(params->n, 4);
    assert_int_equal(params->item[3].kind, CKPT_GRAPH_ITEM_VALUE);
    assert_int_equal(n->nouts, 3);
    assert_int_equal(item_of(n, "train")->kind, CKPT_GRAPH_ITEM_BOOL);
    n = find_node(lstm, "aten.zeros.default");
    assert_int_equal(item_of(n, "dtype")->kind, CKPT_GRAPH_ITEM_DTYPE);
    assert_int_equal(item_of(n, "dtype")->i, CKPT_DT_F32);
    assert_string_equal(item_of(n, "device")->text.s, "cpu");
    assert_int_equal(ckpt_graph_arg(n, "size")->n, 3);
    n = find_node(cnn, "aten.batch_norm.default");
    assert_true(fabs(item_of(n, "eps")->f - 1e-5) < 1e-12);
    assert_false(item_of(n, "training")->b);
    assert_null(ckpt_graph_arg(n, "no such argument"));
    size_t buffers = 0;
    for (size_t i = 0; i < cnn->ninputs; i++)
        buffers += cnn->input[i].role == CKPT_GRAPH_BUFFER && cnn->input[i].persistent;
    assert_int_equal(buffers, 3);
}

/* Sizes that are known only when it runs. */
static void test_symbols(void **state) {
    CKPT_AUTO(graph)
    struct ckpt_graph *g = open_or_fail(FIXTURES "/verify/toy_switch_moe.graph.json");
    const struct ckpt_graph_node *n = find_node(g, "_operator.ge");
    size_t symbolic = 0;
    (void)state;
    assert_int_equal(g->value[item_of(n, "a")->value].type, CKPT_GRAPH_SYM_INT);
    assert_int_equal(item_of(n, "b")->i, 0);
    assert_int_equal(g->value[ckpt_graph_arg_value(&n->out[0])].type, CKPT_GRAPH_SYM_BOOL);
    for (size_t i = 0; i < g->nvalues; i++)
        for (uint32_t d = 0; g->value[i].meta && d < g->value[i].meta->ndim; d++)
            symbolic += g->value[i].meta->shape[d] == CKPT_SYMBOLIC;
    assert_true(symbolic > 0);
}

/* Every graph of the fixtures is read, and every reference in it points backwards. */
static void check_references(const struct ckpt_graph *g) {
    for (size_t i = 0; i < g->nnodes; i++) {
        const struct ckpt_graph_node *n = &g->node[i];
        for (uint32_t a = 0; a < n->nargs; a++)
            for (uint32_t k = 0; k < n->arg[a].n; k++) {
                const struct ckpt_graph_item *item = &n->arg[a].item[k];
                assert_int_not_equal(item->kind, CKPT_GRAPH_ITEM_NAME);
                if (item->kind != CKPT_GRAPH_ITEM_VALUE)
                    continue;
                assert_true(item->value < g->nvalues);
                assert_true(g->value[item->value].node == CKPT_GRAPH_NONE ||
                            g->value[item->value].node < i);
            }
    }
}

static void test_all(void **state) {
    glob_t found = {0};
    (void)state;
    assert_int_equal(glob(FIXTURES "/verify/*.pt2", 0, NULL, &found), 0);
    assert_int_equal(glob(FIXTURES "/*/*.graph.json", GLOB_APPEND, NULL, &found), 0);
    assert_int_equal(glob(FIXTURES "/pt/export.pt2", GLOB_APPEND, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        CKPT_AUTO(graph) struct ckpt_graph *g = open_or_fail(found.gl_pathv[i]);
        assert_true(g->nnodes > 0 && g->noutputs > 0);
        check_references(g);
    }
    assert_true(found.gl_pathc >= 10);
    globfree(&found);
}

/* --- graphs made here ------------------------------------------------------------------------- */

#define X "{\"as_tensor\": {\"name\": \"x\"}}"
#define Y "{\"as_tensor\": {\"name\": \"y\"}}"
#define RELU(in, out)                                                                              \
    "{\"target\": \"torch.ops.aten.relu.default\", \"inputs\": [{\"name\": \"self\", \"arg\": " in \
    "}], \"outputs\": [" out "], \"metadata\": {}}"
#define USER_IN "{\"user_input\": {\"arg\": " X "}}"
#define USER_OUT "{\"user_output\": {\"arg\": " Y "}}"
#define GRAPH(inputs, nodes, outputs, specs, output_specs, more)                                   \
    "{\"schema_version\": {\"major\": 8, \"minor\": 1}, \"graph_module\": {\"graph\": {"           \
    "\"inputs\": [" inputs "], \"nodes\": [" nodes "], \"outputs\": [" outputs "]" more "}, "      \
    "\"signature\": {\"input_specs\": [" specs "], \"output_specs\": [" output_specs "]}}}"
#define ONE(nodes) GRAPH(X, nodes, Y, USER_IN, USER_OUT, "")
#define CALL(arg)                                                                                  \
    ONE("{\"target\": \"torch.ops.aten.f\", \"inputs\": [{\"name\": \"a\", \"arg\": " arg          \
        "}], \"outputs\": [" Y "]}")

static int parse(const char *json, struct ckpt_graph **out, struct ckpt_err *err) {
    return ckpt_graph_parse(json, strlen(json), out, err);
}

static void test_refused(void **state) {
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"[]", "the graph's file is an array at byte 0, expected an object"},
        {"{}", "it has no graph_module.graph"},
        {ONE(RELU(X, Y)) " 1", "expected nothing behind the value"},
        {"{\"schema_version\": {\"major\": 9}, \"graph_module\": {\"graph\": {}, \"signature\": "
         "{}}}",
         "its schema has version 9.0"},
        {ONE(RELU(Y, Y)), "value \"y\" of node 0 (aten.relu.default) does not exist there"},
        {ONE(RELU(X, X)), "value \"x\" of node 0 (aten.relu.default) was made before"},
        {ONE(""), "value \"y\" among the graph's inputs or outputs does not exist"},
        {ONE(RELU("{\"as_tensor\": {\"name\": \"z\"}}", Y) ", " RELU(X, "{\"as_tensor\": "
                                                                        "{\"name\": \"z\"}}")),
         "value \"z\" of node 0"},
        {CALL("{\"as_sym_int\": {\"as_name\": \"x\"}}"), "is no integer"},
        {CALL("{\"as_int\": 1.5}"), "expected a signed 64-bit integer"},
        {CALL("{\"as_int\": 9223372036854775808}"), "expected a signed 64-bit integer"},
        {CALL("{\"as_ints\": 1}"), "an argument is an integer at byte"},
        {CALL("{\"as_float\": \"one\"}"), "expected a number"},
        {CALL("{\"as_tensor\": {}}"), "a reference without a name"},
        {CALL("{\"as_sym_int\": {}}"), "a symbol without a value"},
        {CALL("{}"), "an argument without a kind"},
        {CALL("{\"as_int\": 1, \"as_none\": true}"), "an argument of two kinds"},
        {ONE("{\"target\": \"f\", \"inputs\": []}"), "a node without outputs"},
        {ONE("{\"target\": \"f\", \"inputs\": [{\"name\": \"a\"}], \"outputs\": []}"),
         "argument \"a\" before byte"},
        {ONE("{\"target\": \"f\", \"inputs\": [{\"name\": \"a\", \"arg\": " X
             "}, {\"name\": \"a\", \"arg\": " X "}], \"outputs\": []}"),
         "is given twice"},
        {GRAPH(X, RELU(X, Y), Y, "", USER_OUT, ""), "1 inputs of the graph, 0 in its signature"},
        {GRAPH(X, RELU(X, Y), Y, USER_IN, "", ""), "1 outputs of the graph, 0 in its signature"},
        {GRAPH(X, RELU(X, Y), Y, "{\"parameter\": {\"arg\": {\"name\": \"x\"}}}", USER_OUT, ""),
         "a part of the signature without a name"},
        {GRAPH(X, RELU(X, Y), Y, USER_IN, USER_OUT,
               ", \"tensor_values\": {\"x\": {\"dtype\": 7, \"sizes\": [{\"as_int\": -1}]}}"),
         "value \"x\": a negative size (-1)"},
        {GRAPH(X, RELU(X, Y), Y, USER_IN, USER_OUT,
               ", \"tensor_values\": {\"x\": {\"dtype\": 7}, \"x\": {}}"),
         "value \"x\": a tensor's description"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ckpt_graph *g;
        struct ckpt_err err = {0};
        if (parse(cases[i].json, &g, &err) == 0)
            fail_msg("accepted: %s", cases[i].json);
        if (!strstr(err.text, cases[i].message))
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].message);
        assert_null(g);
    }
}

/* What no fixture holds. */
static void test_accepted(void **state) {
    static const struct {
        const char *json;
        enum ckpt_graph_item_kind kind;
    } cases[] = {
        {CALL("{\"as_float\": \"-Infinity\"}"), CKPT_GRAPH_ITEM_FLOAT},
        {CALL("{\"as_float\": 1}"), CKPT_GRAPH_ITEM_FLOAT},
        {CALL("{\"as_graph\": {\"name\": \"g\", \"graph\": {\"inputs\": [1]}}}"),
         CKPT_GRAPH_ITEM_OTHER},
        {CALL("{\"as_optional_tensors\": [{\"as_none\": true}, " X "]}"), CKPT_GRAPH_ITEM_NONE},
        {CALL("{\"as_sym_ints\": [{\"as_int\": 3}]}"), CKPT_GRAPH_ITEM_INT},
        {CALL("{\"as_strings\": [\"a\", \"b\"]}"), CKPT_GRAPH_ITEM_TEXT},
        {CALL("{\"as_scalar_type\": 1000}"), CKPT_GRAPH_ITEM_DTYPE},
        {CALL("{\"as_memory_format\": 2}"), CKPT_GRAPH_ITEM_MEMORY_FORMAT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CKPT_AUTO(graph) struct ckpt_graph *g = NULL;
        struct ckpt_err err = {0};
        if (parse(cases[i].json, &g, &err) != 0)
            fail_msg("%s: %s", err.text, cases[i].json);
        assert_int_equal(g->node[0].arg[0].item[0].kind, cases[i].kind);
        assert_string_equal(g->node[0].op.s, "aten.f");
        assert_true(ckpt_text_is(g->node[0].base, "aten.f"));
        assert_null(g->value[0].meta);
    }
}

static void test_no_graph(void **state) {
    struct ckpt_graph *g;
    struct ckpt_err err = {0};
    (void)state;
    assert_int_equal(ckpt_graph_open(FIXTURES "/pt/a1_state.pt", &g, &err), -EINVAL);
    assert_string_equal(err.text,
                        "a ZIP archive, but not one of torch.export.save or torch.jit.save");
    assert_int_equal(ckpt_graph_open(FIXTURES "/pt2/torch_2_7.pt2", &g, &err), -ENOTSUP);
    assert_int_equal(ckpt_graph_open(FIXTURES "/verify/mlp.safetensors", &g, &err), -EINVAL);
    assert_int_equal(ckpt_graph_open(FIXTURES "/absent.pt2", &g, &err), -ENOENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),      cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_symbols),  cmocka_unit_test(test_all),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_no_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
