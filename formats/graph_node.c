/*
 * Nodes:
 *
 *     {"target": "torch.ops.aten.linear.default",
 *      "inputs": [{"name": "input", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}, ...],
 *      "outputs": [{"as_tensor": {"name": "linear"}}],
 *      "metadata": {"nn_module_stack": "KEY,PATH,CLASS;KEY,PATH,CLASS", "stack_trace": ...}}
 *
 * Of the metadata only the module stack is kept: a stack trace would tell of the exporter's disk.
 */
#include "formats/graph_read.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/json_walk.h"
#include "formats/limits.h"

/* --- the module stack ------------------------------------------------------------------------- */

static size_t count(struct ckpt_text text, char c) {
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++)
        n += text.s[i] == c;
    return n;
}

/* KEY,PATH,CLASS: neither a key nor a class has a comma, a path may. */
static struct ckpt_graph_frame split_frame(struct ckpt_text text) {
    const char *first = memchr(text.s, ',', text.n), *last = memrchr(text.s, ',', text.n);
    if (!first || first == last)
        return (struct ckpt_graph_frame){CKPT_TEXT(""), CKPT_TEXT("")};
    return (struct ckpt_graph_frame){.path = {first + 1, (size_t)(last - first) - 1},
                                     .cls = {last + 1, (size_t)(text.s + text.n - last) - 1}};
}

static int make_stack(struct ckpt_graph_reader *r, struct ckpt_text text,
                      struct ckpt_graph_stack **out) {
    struct ckpt_arena *a = &r->graph->arena;
    struct ckpt_graph_stack *stack = ckpt_arena_alloc(a, sizeof *stack);
    const size_t n = text.n ? count(text, ';') + 1 : 0;
    struct ckpt_graph_frame *frame = ckpt_arena_array(a, n, sizeof *frame);
    if (!stack || !frame)
        return ckpt_graph_fail_memory(r);
    for (size_t i = 0; i < n; i++) {
        const char *end = memchr(text.s, ';', text.n);
        const size_t length = end ? (size_t)(end - text.s) : text.n;
        frame[i] = split_frame((struct ckpt_text){text.s, length});
        text.s += length + (end ? 1 : 0);
        text.n -= length + (end ? 1 : 0);
    }
    *stack = (struct ckpt_graph_stack){(uint32_t)n, frame};
    *out = stack;
    return 0;
}

/* The stack of that text: many nodes have the same. */
static int intern_stack(struct ckpt_graph_reader *r, struct ckpt_text text,
                        const struct ckpt_graph_stack **out) {
    struct ckpt_graph *g = r->graph;
    const size_t known = ckpt_strmap_get(&r->by_stack, text);
    if (known != CKPT_STRMAP_ABSENT) {
        *out = g->stack[known];
        return 0;
    }
    struct ckpt_graph_stack *stack = NULL;
    text = ckpt_text_copy(&g->arena, text.s, text.n);
    if (!text.s || !ckpt_array_grow(&g->stack, g->nstacks, &r->stacks_cap, sizeof *g->stack) ||
        ckpt_strmap_add(&r->by_stack, text, g->nstacks, NULL))
        return ckpt_graph_fail_memory(r);
    const int rc = make_stack(r, text, &stack);
    if (rc)
        return rc;
    g->stack[g->nstacks++] = *out = stack;
    return 0;
}

/* --- a node ----------------------------------------------------------------------------------- */

struct open_node {
    struct ckpt_graph_reader *r;
    struct ckpt_graph_node node;
    struct ckpt_graph_arg arg; /* the input being read */
    bool has_arg, has_inputs, has_outputs;
};

static int metadata_member(void *user, struct ckpt_text key) {
    struct open_node *open = user;
    struct ckpt_json *j = &open->r->json;
    if (!ckpt_text_is(key, "nn_module_stack"))
        return ckpt_json_read_nothing(j);
    const int token = ckpt_json_next(j);
    if (token != CKPT_JSON_STRING)
        return ckpt_json_unexpected(j, token, "nn_module_stack", "a string");
    return intern_stack(open->r, j->text, &open->node.stack);
}

static int push_arg(struct ckpt_graph_reader *r, const struct ckpt_graph_arg *arg) {
    if (r->nargs == CKPT_LIMIT_GRAPH_ARGS)
        return ckpt_fail(r->err, -E2BIG,
                         "a node with more than %u arguments before byte %zu (limit of arguments)",
                         CKPT_LIMIT_GRAPH_ARGS, r->json.at);
    if (!ckpt_array_grow(&r->arg, r->nargs, &r->args_cap, sizeof *r->arg))
        return ckpt_graph_fail_memory(r);
    r->arg[r->nargs++] = *arg;
    return 0;
}

static int input_member(void *user, struct ckpt_text key) {
    struct open_node *open = user;
    struct ckpt_graph_reader *r = open->r;
    struct ckpt_text name = open->arg.name;
    if (ckpt_text_is(key, "name"))
        return ckpt_json_read_text(&r->json, "the name of an argument", &r->graph->arena,
                                   &open->arg.name);
    if (!ckpt_text_is(key, "arg"))
        return ckpt_json_read_nothing(&r->json);
    const int rc = ckpt_graph_read_arg(r, &open->arg);
    open->arg.name = name; /* whichever of the two comes first */
    open->has_arg = true;
    return rc;
}

static bool is_given_twice(const struct ckpt_graph_reader *r, struct ckpt_text name) {
    for (size_t i = 0; name.n && i < r->nargs; i++)
        if (ckpt_text_eq(r->arg[i].name, name))
            return true;
    return false;
}

static int take_input(void *user, int token) {
    struct open_node *open = user;
    struct ckpt_graph_reader *r = open->r;
    open->arg = (struct ckpt_graph_arg){.name = CKPT_TEXT("")};
    open->has_arg = false;
    const int rc = ckpt_json_take_object(&r->json, token, "an input of a node", input_member, open);
    if (rc)
        return rc;
    if (!open->has_arg || is_given_twice(r, open->arg.name))
        return ckpt_fail(r->err, -EINVAL, "argument \"%.*s\" before byte %zu %s",
                         CKPT_TEXT_ARGS(open->arg.name), r->json.at,
                         open->has_arg ? "is given twice" : "has no value");
    return push_arg(r, &open->arg);
}

static int take_output(void *user, int token) {
    struct open_node *open = user;
    struct ckpt_graph_arg arg;
    const int rc = ckpt_graph_take_arg(open->r, token, &arg);
    return rc ? rc : push_arg(open->r, &arg);
}

static int read_args(struct open_node *open, const char *what, ckpt_json_element *take,
                     const struct ckpt_graph_arg **out, uint32_t *n) {
    struct ckpt_graph_reader *r = open->r;
    r->nargs = 0;
    const int rc = ckpt_json_read_array(&r->json, what, take, open);
    if (rc)
        return rc;
    struct ckpt_graph_arg *copy = ckpt_arena_array(&r->graph->arena, r->nargs, sizeof *copy);
    if (!copy)
        return ckpt_graph_fail_memory(r);
    if (r->nargs)
        memcpy(copy, r->arg, r->nargs * sizeof *copy);
    *out = copy;
    *n = (uint32_t)r->nargs;
    return 0;
}

/* "torch.ops.aten.linear.default" is aten.linear, overload default. */
static int read_target(struct open_node *open) {
    static const char prefix[] = "torch.ops.";
    const size_t skip = sizeof prefix - 1;
    struct ckpt_text op;
    const int rc = ckpt_json_read_text(&open->r->json, "a target", &open->r->graph->arena, &op);
    if (rc)
        return rc;
    open->node.op = open->node.base = op;
    if (!ckpt_text_starts(op, prefix))
        return 0;
    open->node.op = (struct ckpt_text){op.s + skip, op.n - skip};
    const char *dot = memrchr(open->node.op.s, '.', open->node.op.n);
    const char *first = memchr(open->node.op.s, '.', open->node.op.n);
    open->node.base = open->node.op;
    if (dot != first)
        open->node.base.n = (size_t)(dot - open->node.op.s);
    return 0;
}

static int node_member(void *user, struct ckpt_text key) {
    struct open_node *open = user;
    if (ckpt_text_is(key, "target"))
        return read_target(open);
    if (ckpt_text_is(key, "inputs")) {
        open->has_inputs = true;
        return read_args(open, "inputs", take_input, &open->node.arg, &open->node.nargs);
    }
    if (ckpt_text_is(key, "outputs")) {
        open->has_outputs = true;
        return read_args(open, "outputs", take_output, &open->node.out, &open->node.nouts);
    }
    if (ckpt_text_is(key, "metadata"))
        return ckpt_json_read_object(&open->r->json, "metadata", metadata_member, open);
    return ckpt_json_read_nothing(&open->r->json);
}

int ckpt_graph_take_node(struct ckpt_graph_reader *r, int token) {
    static const struct ckpt_graph_stack nothing_known;
    struct ckpt_graph *g = r->graph;
    struct open_node open = {.r = r, .node.stack = &nothing_known};
    const int rc = ckpt_json_take_object(&r->json, token, "a node", node_member, &open);
    if (rc)
        return rc;
    if (!open.node.op.s || !open.has_inputs || !open.has_outputs)
        return ckpt_fail(r->err, -EINVAL, "a node without %s before byte %zu",
                         !open.node.op.s    ? "a target"
                         : !open.has_inputs ? "inputs"
                                            : "outputs",
                         r->json.at);
    if (g->nnodes == CKPT_LIMIT_GRAPH_NODES)
        return ckpt_fail(r->err, -E2BIG, "more than %u nodes (limit of nodes)",
                         CKPT_LIMIT_GRAPH_NODES);
    if (!ckpt_array_grow(&g->node, g->nnodes, &r->nodes_cap, sizeof *g->node))
        return ckpt_graph_fail_memory(r);
    g->node[g->nnodes++] = open.node;
    return 0;
}
