/*
 * The limits of formats/limits.h for graphs and for JSON's depth at their edges: what lies just at
 * one is accepted, one more is refused in a sentence that names it. Graphs are made here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/graph.h"
#include "formats/limits.h"
#include "formats/shard_index.h"

#define NONE "{\"as_none\": true}"
#define NODE "{\"target\": \"f\", \"inputs\": [], \"outputs\": []}"

/* `unit` n times, with commas between. */
struct repeated {
    const char *unit;
    size_t n;
};

/* A graph's JSON: how often its lists repeat what. */
struct shape {
    struct repeated inputs, nodes, outputs, input_specs, output_specs;
    const char *more;    /* members of the outermost object, each with its comma */
    size_t length;       /* blanks fill it up to so many bytes */
    const char *refused; /* the words of the refusal; NULL: none */
};

static void add_list(struct ckpt_str *s, const char *before, struct repeated r) {
    ckpt_str_puts(s, before);
    for (size_t i = 0; i < r.n; i++) {
        if (i)
            ckpt_str_puts(s, ",");
        ckpt_str_puts(s, r.unit);
    }
    ckpt_str_puts(s, "]");
}

static void make(const struct shape *shape, struct ckpt_str *s) {
    ckpt_str_puts(s, "{");
    ckpt_str_puts(s, shape->more ? shape->more : "");
    ckpt_str_puts(
        s, "\"schema_version\": {\"major\": 8, \"minor\": 1}, \"graph_module\": {\"graph\": {");
    add_list(s, "\"inputs\": [", shape->inputs);
    add_list(s, ", \"nodes\": [", shape->nodes);
    add_list(s, ", \"outputs\": [", shape->outputs);
    add_list(s, "}, \"signature\": {\"input_specs\": [", shape->input_specs);
    add_list(s, ", \"output_specs\": [", shape->output_specs);
    ckpt_str_puts(s, "}}}");
    while (s->n < shape->length)
        ckpt_str_puts(s, " ");
}

static void check(struct shape shape) {
    CKPT_AUTO(str) struct ckpt_str json = {0};
    CKPT_AUTO(graph) struct ckpt_graph *g = NULL;
    struct ckpt_err err = {0};
    make(&shape, &json);
    assert_false(json.failed);
    const int rc = ckpt_graph_parse(json.s, json.n, &g, &err);
    if (shape.refused ? rc == 0 || !strstr(err.text, shape.refused) : rc != 0)
        fail_msg("%zu bytes: \"%s\", expected \"%s\"", json.n, err.text,
                 shape.refused ? shape.refused : "success");
}

static void test_bytes(void **state) {
    (void)state;
    check((struct shape){.length = CKPT_LIMIT_GRAPH_BYTES});
    check((struct shape){.length = CKPT_LIMIT_GRAPH_BYTES + 1,
                         .refused = "the limit for a graph is 33554432"});
}

static void test_nodes(void **state) {
    (void)state;
    check((struct shape){.nodes = {NODE, CKPT_LIMIT_GRAPH_NODES}});
    check((struct shape){.nodes = {NODE, CKPT_LIMIT_GRAPH_NODES + 1}, .refused = "limit of nodes"});
}

/* A node of n arguments, or of n values of one. */
static void check_node(const char *before, const char *unit, size_t n, const char *after,
                       const char *refused) {
    CKPT_AUTO(str) struct ckpt_str node = {0};
    add_list(&node, before, (struct repeated){unit, n});
    ckpt_str_puts(&node, after);
    check((struct shape){.nodes = {node.s, 1}, .refused = refused});
}

static void test_arguments(void **state) {
    static const char inputs[] = "{\"target\": \"f\", \"outputs\": [], \"inputs\": [";
    static const char outputs[] = "{\"target\": \"f\", \"inputs\": [], \"outputs\": [";
    static const char argument[] = "{\"name\": \"\", \"arg\": " NONE "}";
    (void)state;
    check_node(inputs, argument, CKPT_LIMIT_GRAPH_ARGS, "}", NULL);
    check_node(inputs, argument, CKPT_LIMIT_GRAPH_ARGS + 1, "}", "limit of arguments");
    check_node(outputs, NONE, CKPT_LIMIT_GRAPH_ARGS, "}", NULL);
    check_node(outputs, NONE, CKPT_LIMIT_GRAPH_ARGS + 1, "}", "limit of arguments");
}

static void test_items(void **state) {
    static const char list[] = "{\"target\": \"f\", \"outputs\": [], \"inputs\": [{\"name\": "
                               "\"a\", \"arg\": {\"as_ints\": [";
    static const char in[] = "{\"user_input\": {}}", out[] = "{\"user_output\": {}}";
    const size_t most = CKPT_LIMIT_GRAPH_ITEMS;
    (void)state;
    check_node(list, "1", most, "}}]}", NULL);
    check_node(list, "1", most + 1, "}}]}", "limit of items");
    check((struct shape){.inputs = {NONE, most}, .input_specs = {in, most}});
    check((struct shape){
        .inputs = {NONE, most + 1}, .input_specs = {in, 1}, .refused = "limit of items"});
    check((struct shape){
        .inputs = {NONE, 1}, .input_specs = {in, most + 1}, .refused = "limit of items"});
    check((struct shape){.outputs = {NONE, most}, .output_specs = {out, most}});
    check((struct shape){
        .outputs = {NONE, most + 1}, .output_specs = {out, 1}, .refused = "limit of items"});
    check((struct shape){
        .outputs = {NONE, 1}, .output_specs = {out, most + 1}, .refused = "limit of items"});
}

/* What counts is our own bytes, so the edge is not known: lists that fill half of it, and twice. */
static void test_memory(void **state) {
    CKPT_AUTO(str) struct ckpt_str node = {0};
    (void)state;
    add_list(&node,
             "{\"target\": \"f\", \"outputs\": [], \"inputs\": [{\"name\": \"a\", \"arg\": "
             "{\"as_ints\": [",
             (struct repeated){"1", 100000});
    ckpt_str_puts(&node, "}}]}");
    const size_t fit = CKPT_LIMIT_GRAPH_ARENA / (100000 * sizeof(struct ckpt_graph_item));
    check((struct shape){.nodes = {node.s, fit / 2}});
    check((struct shape){.nodes = {node.s, 2 * fit}, .refused = "limit of a graph's memory"});
}

/* Lists in lists. */
static void add_nested(struct ckpt_str *s, unsigned levels) {
    for (unsigned i = 0; i < levels; i++)
        ckpt_str_puts(s, "[");
    for (unsigned i = 0; i < levels; i++)
        ckpt_str_puts(s, "]");
}

static void test_depth(void **state) {
    (void)state;
    for (unsigned depth = CKPT_LIMIT_JSON_DEPTH; depth <= CKPT_LIMIT_JSON_DEPTH + 1; depth++) {
        const char *const refused =
            depth > CKPT_LIMIT_JSON_DEPTH ? "nested deeper than 64 levels" : NULL;
        CKPT_AUTO(str) struct ckpt_str more = {0};
        CKPT_AUTO(str) struct ckpt_str index = {0};
        struct ckpt_shard_index found = {0};
        struct ckpt_arena arena = {0};
        struct ckpt_err err = {0};
        ckpt_str_puts(&more, "\"x\": ");
        add_nested(&more, depth - 1);
        ckpt_str_puts(&more, ", ");
        check((struct shape){.more = more.s, .refused = refused});
        ckpt_str_puts(&index, "{\"weight_map\": {\"w\": \"s\"}, \"metadata\": ");
        add_nested(&index, depth - 1);
        ckpt_str_puts(&index, "}");
        const int rc = ckpt_shard_index_parse(&found, &arena, index.s, index.n, &err);
        assert_int_equal(rc == 0, !refused);
        assert_true(!refused || strstr(err.text, refused));
        ckpt_shard_index_fini(&found);
        ckpt_arena_fini(&arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),     cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_arguments), cmocka_unit_test(test_items),
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
