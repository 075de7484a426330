/*
 * TorchScript archives as graphs, held against what torch's own IR of them says: NAME.expected of
 * fixtures/torchscript, whose generator explains the lines. Numbers (sizes and what is made of
 * them) may come in any order and twice, all else in torch's order.
 */
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
#include <unistd.h>

#include "base/cleanup.h"
#include "formats/checkpoint.h"
#include "formats/graph.h"

#define FOLDER FIXTURES "/torchscript/"
#define NODES_MAX 512
#define FIELDS 4

/* One line of an expectation, split at its tabs. */
struct line {
    const char *field[FIELDS];
};

struct expectation {
    char *text;
    struct line line[4096];
    size_t n;
    uint32_t mine[NODES_MAX]; /* node K of torch -> node of the graph */
};

static char *read_text(const char *path) {
    CKPT_AUTO(fclose) FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    if (!f || !text)
        fail_msg("%s can't be read", path);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    return text;
}

static void read_expectation(const char *path, struct expectation *e) {
    e->text = read_text(path);
    char *rest = e->text;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        for (size_t i = 0; i < FIELDS; i++) {
            const char *field = strsep(&line, "\t");
            e->line[e->n].field[i] = field ? field : "";
        }
        e->n++;
        assert_true(e->n < sizeof e->line / sizeof e->line[0]);
    }
}

static bool line_is(const struct line *l, const char *what) {
    return strcmp(l->field[0], what) == 0;
}

/* --- values ----------------------------------------------------------------------------------- */

/* The node of the graph that stands for all that compute the same number: see find_twins. */
static uint32_t twin[NODES_MAX];

/* Of the archive that is looked at. */
static struct ckpt_checkpoint *archive;

static const struct ckpt_tensor *find_constant(struct ckpt_text name) {
    for (size_t i = 0; archive->code && i < archive->code->ntensors; i++)
        if (ckpt_text_eq(archive->code->tensors[i].key, name))
            return &archive->code->tensors[i];
    fail_msg("no constant %s", name.s);
    return NULL;
}

/* "constant F32 [2, 2] 0000803f": at most 16 bytes of it. */
static void show_constant(struct ckpt_str *out, const struct ckpt_tensor *t) {
    struct ckpt_pin pin;
    const uint64_t bytes = ckpt_tensor_bytes(t), n = bytes < 16 ? bytes : 16;
    ckpt_str_printf(out, "constant %s [", ckpt_dtype_info(t->dtype)->name);
    for (uint32_t i = 0; i < t->ndim; i++)
        ckpt_str_printf(out, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    ckpt_str_puts(out, "] ");
    assert_null(t->stride);
    assert_int_equal(t->blob->ops->pin(t->blob, t->offset, t->offset + n, &pin, NULL, NULL), 0);
    for (uint64_t i = 0; i < n; i++)
        ckpt_str_printf(out, "%02x", pin.data[i]);
    t->blob->ops->unpin(t->blob, &pin);
}

static uint32_t place_of(const struct ckpt_graph_node *n, uint32_t value) {
    uint32_t place = 0;
    for (uint32_t o = 0; o < n->nouts; o++)
        for (uint32_t i = 0; i < n->out[o].n; i++, place++)
            if (n->out[o].item[i].value == value)
                return place;
    fail_msg("a value is none of its node's outputs");
    return 0;
}

static void show_value(struct ckpt_str *out, const struct ckpt_graph *g, uint32_t value) {
    const uint32_t node = g->value[value].node;
    if (node != CKPT_GRAPH_NONE) {
        ckpt_str_printf(out, "#%u.%u", twin[node], place_of(&g->node[node], value));
        return;
    }
    for (size_t i = 0; i < g->ninputs; i++)
        if (ckpt_graph_arg_value(&g->input[i].arg) == value &&
            g->input[i].role == CKPT_GRAPH_CONSTANT) {
            show_constant(out, find_constant(g->input[i].name));
            return;
        }
    ckpt_str_puts(out, g->value[value].name.s);
}

static void show_float(struct ckpt_str *out, double f) {
    if (isnan(f))
        ckpt_str_puts(out, "nan");
    else
        ckpt_str_printf(out, "%.17g", f);
}

static int64_t as_dtype(int64_t number) {
    return ckpt_graph_script_dtype(number);
}

/* The number that a script has for what became `meaning`. */
static void show_number(struct ckpt_str *out, int64_t meaning, int64_t (*read)(int64_t number)) {
    int64_t number = 0;
    while (number < 64 && read(number) != meaning)
        number++;
    ckpt_str_i64(out, number);
}

static void show_item(struct ckpt_str *out, const struct ckpt_graph *g,
                      const struct ckpt_graph_item *item) {
    switch ((enum ckpt_graph_item_kind)item->kind) {
    case CKPT_GRAPH_ITEM_NONE:
        ckpt_str_puts(out, "None");
        break;
    case CKPT_GRAPH_ITEM_VALUE:
        show_value(out, g, item->value);
        break;
    case CKPT_GRAPH_ITEM_INT:
        ckpt_str_printf(out, "%lld", (long long)item->i);
        break;
    case CKPT_GRAPH_ITEM_FLOAT:
        show_float(out, item->f);
        break;
    case CKPT_GRAPH_ITEM_BOOL:
        ckpt_str_puts(out, item->b ? "True" : "False");
        break;
    case CKPT_GRAPH_ITEM_TEXT:
    case CKPT_GRAPH_ITEM_DEVICE:
        ckpt_str_printf(out, "'%s'", item->text.s);
        break;
    case CKPT_GRAPH_ITEM_DTYPE:
        show_number(out, item->i, as_dtype);
        break;
    case CKPT_GRAPH_ITEM_MEMORY_FORMAT:
        show_number(out, item->i, ckpt_graph_script_memory_format);
        break;
    case CKPT_GRAPH_ITEM_LAYOUT:
        ckpt_str_puts(out, item->i == 7 ? "0" : "another layout");
        break;
    default:
        ckpt_str_printf(out, "an item of kind %u", item->kind);
    }
}

static void show_arg(struct ckpt_str *out, const struct ckpt_graph *g,
                     const struct ckpt_graph_arg *a) {
    ckpt_str_puts(out, a->is_list ? "[" : "");
    for (uint32_t i = 0; i < a->n; i++) {
        ckpt_str_puts(out, i ? ", " : "");
        show_item(out, g, &a->item[i]);
    }
    ckpt_str_puts(out, a->is_list ? "]" : "");
}

/* torch's "#K.J" as a node of the graph; other text stays. */
static void translate(struct ckpt_str *out, const struct expectation *e, const char *value) {
    while (*value) {
        char *end;
        if (*value != '#') {
            ckpt_str_add(out, value++, 1);
            continue;
        }
        const unsigned long k = strtoul(value + 1, &end, 10);
        assert_true(k < NODES_MAX);
        ckpt_str_printf(out, "#%u", e->mine[k]);
        value = end;
    }
}

/* --- nodes ------------------------------------------------------------------------------------ */

static bool is_number(const struct ckpt_graph_node *n) {
    return n->nouts == 1 && n->out[0].n && n->out[0].item[0].type != CKPT_GRAPH_TENSOR;
}

static bool same_node(const struct ckpt_graph *g, const struct ckpt_graph_node *a,
                      const struct ckpt_graph_node *b) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    CKPT_AUTO(str) struct ckpt_str t = {0};
    if (!ckpt_text_eq(a->op, b->op) || a->nargs != b->nargs)
        return false;
    for (uint32_t i = 0; i < a->nargs; i++) {
        show_arg(&s, g, &a->arg[i]);
        show_arg(&t, g, &b->arg[i]);
    }
    return ckpt_text_eq(ckpt_str_text(&s), ckpt_str_text(&t));
}

static void find_twins(const struct ckpt_graph *g) {
    assert_true(g->nnodes <= NODES_MAX);
    for (uint32_t i = 0; i < g->nnodes; i++) {
        twin[i] = i;
        for (uint32_t k = 0; twin[i] == i && k < i && is_number(&g->node[i]); k++)
            if (same_node(g, &g->node[i], &g->node[k]))
                twin[i] = k;
    }
}

/* The argument as the script has it: by name, or else by place. */
static const struct ckpt_graph_arg *find_arg(const struct ckpt_graph_node *n, const char *name,
                                             uint32_t place) {
    const struct ckpt_graph_arg *const named = *name ? ckpt_graph_arg(n, name) : NULL;
    return named ? named : place < n->nargs && n->arg[place].name.n == 0 ? &n->arg[place] : NULL;
}

/* Why the node is not what the lines from `at` on say; "" if it is. */
static void compare_node(const struct ckpt_graph *g, const struct ckpt_graph_node *n,
                         const struct expectation *e, size_t at, struct ckpt_str *why) {
    uint32_t args = 0, found = 0, outs = 0;
    const char *path = n->stack->n ? n->stack->frame[n->stack->n - 1].path.s : "";
    if (!ckpt_text_is(n->op, e->line[at].field[1]))
        ckpt_str_printf(why, "it is %s", n->op.s);
    else if (strcmp(e->line[at].field[2], "*") != 0 && strcmp(e->line[at].field[2], path) != 0)
        ckpt_str_printf(why, "it is in module \"%s\"", path);
    for (at++; why->n == 0 && line_is(&e->line[at], "arg"); at++, args++) {
        CKPT_AUTO(str) struct ckpt_str got = {0};
        CKPT_AUTO(str) struct ckpt_str want = {0};
        const struct line *l = &e->line[at];
        const struct ckpt_graph_arg *a = find_arg(n, l->field[1], args);
        if (!a && strcmp(l->field[3], "default") == 0)
            continue;
        found += a != NULL;
        if (a)
            show_arg(&got, g, a);
        translate(&want, e, l->field[2]);
        if (!ckpt_text_eq(ckpt_str_text(&got), ckpt_str_text(&want)))
            ckpt_str_printf(why, "%s is %s, expected %s", l->field[1], ckpt_str_text(&got).s,
                            ckpt_str_text(&want).s);
    }
    for (; why->n == 0 && line_is(&e->line[at], "out"); at++)
        outs++;
    if (why->n == 0 && (found != n->nargs || outs != n->nouts))
        ckpt_str_printf(why, "%u arguments and %u outputs, expected %u and %u", n->nargs, n->nouts,
                        found, outs);
}

static void check_types(const struct ckpt_graph_node *n, const struct line *out) {
    static const char letters[] = {[CKPT_GRAPH_TENSOR] = 'T',
                                   [CKPT_GRAPH_SYM_INT] = 'i',
                                   [CKPT_GRAPH_SYM_FLOAT] = 'f',
                                   [CKPT_GRAPH_SYM_BOOL] = 'b'};
    for (uint32_t o = 0; o < n->nouts; o++) {
        const char *want = out[o].field[1];
        assert_int_equal(n->out[o].is_list, *want == 'L');
        want += *want == 'L';
        if (strlen(want) != n->out[o].n)
            fail_msg("%s: a list of %u, expected %zu", n->op.s, n->out[o].n, strlen(want));
        for (uint32_t i = 0; i < n->out[o].n; i++) {
            const char got = letters[n->out[o].item[i].type];
            if (want[i] == 's' ? got != 'i' && got != 'f' : got != want[i])
                fail_msg("%s: output %u is %c, expected %s", n->op.s, o, got, want);
        }
    }
}

/* Tensors must come in torch's order; a number is found wherever it is. */
static uint32_t match_node(const struct ckpt_graph *g, struct expectation *e, size_t at,
                           uint32_t *next) {
    CKPT_AUTO(str) struct ckpt_str why = {0};
    for (uint32_t i = 0; i < g->nnodes; i++) {
        if (!is_number(&g->node[i]) || twin[i] != i)
            continue;
        ckpt_str_cut(&why, 0);
        compare_node(g, &g->node[i], e, at, &why);
        if (why.n == 0)
            return i;
    }
    while (*next < g->nnodes && is_number(&g->node[*next]))
        ++*next;
    if (*next == g->nnodes)
        fail_msg("no node for line %zu, %s", at + 1, e->line[at].field[1]);
    ckpt_str_cut(&why, 0);
    compare_node(g, &g->node[*next], e, at, &why);
    if (why.n)
        fail_msg("line %zu, %s: node %u: %s", at + 1, e->line[at].field[1], *next, why.s);
    return (*next)++;
}

/* --- whole graphs ----------------------------------------------------------------------------- */

static struct ckpt_graph *open_or_fail(const char *path) {
    struct ckpt_graph *g = NULL;
    struct ckpt_err err = {0};
    if (ckpt_graph_open(path, &g, &err) != 0)
        fail_msg("%s: %s", path, err.text);
    return g;
}

static void check_nodes(const struct ckpt_graph *g, struct expectation *e) {
    bool hit[NODES_MAX] = {false};
    uint32_t next = 0, k = 0;
    for (size_t at = 0; at < e->n; at++) {
        if (!line_is(&e->line[at], "node"))
            continue;
        const uint32_t mine = match_node(g, e, at, &next);
        size_t out = at + 1;
        while (line_is(&e->line[out], "arg"))
            out++;
        check_types(&g->node[mine], &e->line[out]);
        e->mine[k++] = mine;
        hit[mine] = true;
    }
    for (uint32_t i = 0; i < g->nnodes; i++)
        if (!hit[twin[i]])
            fail_msg("node %u, %s, is not in torch's graph", i, g->node[i].op.s);
}

static void check_ends(const struct ckpt_graph *g, const struct expectation *e) {
    size_t in = 0, out = 0;
    for (size_t at = 0; at < e->n; at++) {
        CKPT_AUTO(str) struct ckpt_str got = {0};
        CKPT_AUTO(str) struct ckpt_str want = {0};
        if (line_is(&e->line[at], "input")) {
            assert_int_equal(g->input[in].role, CKPT_GRAPH_USER);
            assert_string_equal(g->value[ckpt_graph_arg_value(&g->input[in++].arg)].name.s,
                                e->line[at].field[1]);
        }
        if (!line_is(&e->line[at], "output"))
            continue;
        assert_true(out < g->noutputs);
        show_arg(&got, g, &g->output[out++].arg);
        translate(&want, e, e->line[at].field[1]);
        assert_string_equal(ckpt_str_text(&got).s, ckpt_str_text(&want).s);
    }
    assert_int_equal(out, g->noutputs);
    assert_true(in == g->ninputs || g->input[in].role != CKPT_GRAPH_USER);
}

/* Parameters and buffers have the names of the state dict, and all of them are in the file. */
static void check_names(const struct ckpt_graph *g) {
    for (size_t i = 0; i < g->ninputs; i++) {
        bool found =
            g->input[i].role != CKPT_GRAPH_PARAMETER && g->input[i].role != CKPT_GRAPH_BUFFER;
        for (size_t t = 0; !found && t < archive->ntensors; t++)
            found = ckpt_text_eq(archive->tensors[t].key, g->input[i].name);
        if (!found)
            fail_msg("no tensor %s in the checkpoint", g->input[i].name.s);
    }
}

static void check_file(const char *expected) {
    static struct expectation e;
    char path[4096];
    e = (struct expectation){0};
    read_expectation(expected, &e);
    const char *const stem = strrchr(expected, '/') + 1;
    const int n = (int)(strrchr(stem, '.') - stem);
    snprintf(path, sizeof path, FOLDER "%.*s.pt", n, stem);
    if (access(path, F_OK) != 0)
        snprintf(path, sizeof path, FIXTURES "/verify/%.*s.pt", n, stem);
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(path, NULL, &archive, &err) != 0 || !archive->graph)
        fail_msg("%s: %s", path, archive && archive->no_graph ? archive->no_graph->text : err.text);
    print_message("%s: %zu nodes\n", strrchr(path, '/') + 1, archive->graph->nnodes);
    find_twins(archive->graph);
    check_nodes(archive->graph, &e);
    check_ends(archive->graph, &e);
    check_names(archive->graph);
    ckpt_checkpoint_close(archive);
    free(e.text);
}

static void test_expected(void **state) {
    glob_t found = {0};
    (void)state;
    assert_int_equal(glob(FOLDER "*.expected", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        check_file(found.gl_pathv[i]);
    assert_true(found.gl_pathc >= 13);
    globfree(&found);
}

/* --- what is not followed --------------------------------------------------------------------- */

static void test_refused(void **state) {
    static const struct {
        const char *file, *sentence;
        int code;
    } rows[] = {
        {"refused_loop.pt", "code/__torch__.py, line 10: \"while\"", -EOPNOTSUPP},
        {"refused_choice.pt", "code/__torch__.py, line 9: \"if\" on what only a run", -EOPNOTSUPP},
        {"training.pt", "code/__torch__/torch/nn/functional.py, line ", -EOPNOTSUPP},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ckpt_graph *g;
        struct ckpt_err err = {0};
        char path[4096];
        snprintf(path, sizeof path, FOLDER "%s", rows[i].file);
        assert_int_equal(ckpt_graph_open(path, &g, &err), rows[i].code);
        if (strncmp(err.text, rows[i].sentence, strlen(rows[i].sentence)) != 0)
            fail_msg("%s: %s", rows[i].file, err.text);
        assert_null(g);
    }
}

/* What a trace in training mode changes is an output of its own, as in a graph of torch.export. */
static void test_mutation(void **state) {
    CKPT_AUTO(graph) struct ckpt_graph *g = open_or_fail(FOLDER "stateful.pt");
    (void)state;
    assert_int_equal(g->noutputs, 2);
    assert_int_equal(g->output[0].role, CKPT_GRAPH_FOREIGN);
    assert_string_equal(g->output[0].kind.s, "buffer_mutation");
    assert_string_equal(g->value[ckpt_graph_arg_value(&g->output[0].arg)].name.s,
                        "norm.num_batches_tracked");
}

/* The stack has each module from the root on. */
static void test_stack(void **state) {
    CKPT_AUTO(graph) struct ckpt_graph *g = open_or_fail(FIXTURES "/verify/mlp.torchscript.pt");
    (void)state;
    assert_int_equal(g->nnodes, 3);
    assert_int_equal(g->node[0].stack->n, 2);
    assert_string_equal(g->node[0].stack->frame[0].path.s, "");
    assert_string_equal(g->node[0].stack->frame[0].cls.s, "verify_models.Mlp");
    assert_string_equal(g->node[0].stack->frame[1].path.s, "fc1");
    assert_string_equal(g->node[0].stack->frame[1].cls.s, "torch.nn.modules.linear.Linear");
    assert_int_equal(g->nstacks, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expected),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_mutation),
        cmocka_unit_test(test_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
