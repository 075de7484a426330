/*
 * Code that is written here, for the objects of script_world.h: what is followed, what is refused
 * and in which words, and the limits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/limits.h"
#include "mount-tests/unit/script_world.h"

#define CLASS                                                                                      \
    "class M(Module):\n"                                                                           \
    "  __parameters__ = [\"w\", ]\n"                                                               \
    "  __buffers__ = [\"b\", ]\n"                                                                  \
    "  half : Final[float] = 0.5\n"                                                                \
    "  def forward(self, x: Tensor) -> Tensor:\n"
#define SUB                                                                                        \
    "class Sub(Module):\n"                                                                         \
    "  __parameters__ = [\"w\", ]\n"                                                               \
    "  def forward(self, y: Tensor) -> Tensor:\n"                                                  \
    "    return torch.mul(y, self.w)\n"

static int follow(const char *code, size_t n, const char *lib, struct ckpt_graph **g,
                  struct ckpt_err *err) {
    struct script_world w = {.code = {code, n}};
    if (lib)
        w.lib = ckpt_text_of(lib);
    return world_follow(&w, g, err);
}

/* --- what is followed ------------------------------------------------------------------------- */

static void show_arg(struct ckpt_str *out, const struct ckpt_graph *g,
                     const struct ckpt_graph_arg *a) {
    ckpt_str_printf(out, "%s%s%s", a->name.s, a->name.n ? "=" : "", a->is_list ? "[" : "");
    for (uint32_t i = 0; i < a->n; i++) {
        const struct ckpt_graph_item *const item = &a->item[i];
        ckpt_str_puts(out, i ? " " : "");
        if (item->kind == CKPT_GRAPH_ITEM_VALUE)
            ckpt_str_puts(out, g->value[item->value].name.s);
        else if (item->kind == CKPT_GRAPH_ITEM_INT)
            ckpt_str_i64(out, item->i);
        else if (item->kind == CKPT_GRAPH_ITEM_FLOAT)
            ckpt_str_printf(out, "%.17g", item->f);
        else if (item->kind == CKPT_GRAPH_ITEM_BOOL)
            ckpt_str_puts(out, item->b ? "True" : "False");
        else if (item->kind == CKPT_GRAPH_ITEM_NONE)
            ckpt_str_puts(out, "None");
        else if (item->kind >= CKPT_GRAPH_ITEM_DTYPE && item->kind <= CKPT_GRAPH_ITEM_MEMORY_FORMAT)
            ckpt_str_printf(out, "<%u %lld>", item->kind, (long long)item->i);
        else
            ckpt_str_printf(out, "'%s'", item->text.s);
    }
    ckpt_str_puts(out, a->is_list ? "]" : "");
}

/* "relu(x) mul(v1 w) | v2": nodes without their "aten.", and what comes out. */
static void show(struct ckpt_str *out, const struct ckpt_graph *g) {
    for (size_t i = 0; i < g->nnodes; i++) {
        const struct ckpt_graph_node *const n = &g->node[i];
        ckpt_str_printf(out, "%s(", n->op.s + (ckpt_text_starts(n->op, "aten.") ? 5 : 0));
        for (uint32_t a = 0; a < n->nargs; a++) {
            ckpt_str_puts(out, a ? ", " : "");
            show_arg(out, g, &n->arg[a]);
        }
        ckpt_str_puts(out, ") ");
    }
    ckpt_str_puts(out, "|");
    for (size_t i = 0; i < g->noutputs; i++) {
        ckpt_str_puts(out, " ");
        show_arg(out, g, &g->output[i].arg);
    }
}

static const struct {
    const char *body, *shown, *lib;
} followed[] = {
    {"return torch.relu(x)", "relu(x) | v1", NULL},
    {"return x", "| x", NULL},
    {"return (x, None, 2, [x, self.half])", "| x None 2 x 0.5", NULL},
    {"return {\"a\": x, \"b\": self.w}", "| x w", NULL},
    {"return self.cache", "| cache", NULL},
    {"return torch.mul(CONSTANTS.c0, CONSTANTS.c1)", "mul(CONSTANTS.c0, CONSTANTS.c1) | v3", NULL},
    {"return (getattr(self, \"0\")).forward((self.sub).forward(x, ), )",
     "mul(x, sub.w) mul(v2, 0.w) | v4", NULL},
    {"_0 = self.sub\n    return (_0).forward((_0).forward(x, ), )",
     "mul(x, sub.w) mul(v2, sub.w) | v3", NULL},
    {"a, b = torch.topk(x, 2)\n    return (b, a)", "topk(x, 2) | v2 v1", NULL},
    {"a, b, = torch.chunk(x, 2)\n    return torch.cat([a, b])", "chunk(x, 2) cat([v1 v2]) | v3",
     NULL},
    {"_0 = torch.unbind(x)\n    return (_0[2], _0[0])", "unbind(x) | v3 v1", NULL},
    {"a, = torch.unbind(x)\n    return a", "unbind(x) | v1", NULL},
    {"h, = [x]\n    return h", "| x", NULL},
    {"r, c, = torch.where(x)\n    return torch.where(r, c, x)", "where(x) where(v1, v2, x) | v3",
     NULL},
    {"return torch.f(x, -1, -9223372036854775808, 9223372036854775807, 1., -0., .5, 1e-05)",
     "f(x, -1, -9223372036854775808, 9223372036854775807, 1, -0, 0.5, "
     "1.0000000000000001e-05) | v1",
     NULL},
    {"return torch.f(inf, -inf, nan, float(\"-inf\"), True, None, \"a\\\"\\x62\\143\")",
     "f(inf, -inf, nan, -inf, True, None, 'a\"bc') | v1", NULL},
    {"return torch.zeros([2], dtype=6, layout=0, device=torch.device(\"cpu\"), memory_format=1)",
     "zeros([2], dtype=<6 12>, layout=<7 7>, device='cpu', memory_format=<8 4>) | v1", NULL},
    {"return torch.to(x, ops.prim.device(x), 6)", "to(x, 'cpu', 6) | v1", NULL},
    {"return torch.index(x, annotate(List[Optional[Tensor]], [None, x]))",
     "index(x, [None x]) | v1", NULL},
    {"return torch.f([[x], [x]], (x, 1))", "f(['a list in a list' 'a list in a list'], [x 1]) | v1",
     NULL},
    {"n = torch.size(x, 0)\n    return torch.view(x, [n, int(torch.mul(n, 2)), torch.sub(3, 1)])",
     "size(x, 0) mul(v1, 2) Int(v2) view(x, [v1 v3 2]) | v4", NULL},
    {"return torch.arange(annotate(number, torch.sum(x)))",
     "sum(x) ScalarImplicit(v1) arange(v2) | v3", NULL},
    {"return torch.f(int(2.5), int(True), float(2), bool(0), int(-1.5))",
     "f(2, 1, 2, False, -1) | v1", NULL},
    {"return torch.clip_(torch.greater(x, 1), 2)", "gt(x, 1) clamp_(v1, 2) | v2", NULL},
    {"return ops.mine.special(x)", "mine.special(x) | v1", NULL},
    /* what only a check asked for is gone */
    {"if torch.ne(torch.dim(x), 4):\n      ops.prim.RaiseException(\"no\")\n    else:\n      pass\n"
     "    return x",
     "| x", NULL},
    {"if torch.lt(torch.size(x, 0), 2):\n      y = torch.relu(x)\n    else:\n"
     "      ops.prim.RaiseException(\"no\")\n    return y",
     "relu(x) | v3", NULL},
    {"if torch.gt(torch.len(torch.size(x)), 2):\n      pass\n    else:\n"
     "      ops.prim.RaiseException(torch.add(\"no \", torch.format(\"{}\", x)))\n    return x",
     "| x", NULL},
    {"return torch.view(x, [torch.len(torch.size(x)), torch.len(\"abc\")])",
     "dim(x) view(x, [v1 3]) | v2", NULL},
    {"y : Optional[Tensor] = None\n    return torch.f(x, y)", "f(x, None) | v1", NULL},
    {"training = self.training\n    if training:\n      y = torch.dropout(x, 0.5, True)\n    "
     "else:\n"
     "      y = torch.relu(x)\n    return y",
     "relu(x) | v1", NULL},
    {"if torch.__isnot__(self.nothing, None):\n      y = torch.a(x)\n    else:\n      y = "
     "torch.b(x)\n"
     "    return y",
     "b(x) | v1", NULL},
    {"if torch.__is__(self.w, None):\n      return x\n    else:\n      pass\n    return torch.f(x)",
     "f(x) | v2", NULL},
    {"y = x\n    for i in range(self.times):\n      y = torch.f(y, i)\n    return y",
     "f(x, 0) f(v1, 1) f(v2, 2) | v3", NULL},
    {"l = annotate(List[Tensor], [])\n    _0 = torch.append(l, x)\n    _1 = torch.append(l, "
     "self.w)\n"
     "    return torch.f(l, torch.len(l), l[-1], torch.slice(l, 1), torch.add(l, [1]))",
     "f([x w], 2, w, [w], [x w 1]) | v2", NULL},
    {"return torch.f(torch.floordiv(-7, 2), torch.remainder(-7, 2), torch.div(1, 4), "
     "torch.mul([0], 2), "
     "torch.sqrt(16))",
     "f(-4, 1, 0.25, [0 0], 4) | v1", NULL},
    {"f = __torch__.lib.twice\n    return f(x, k=3, )", "f(x, 3) | v1",
     "def twice(a: Tensor,\n    k: int=2) -> Tensor:\n  return torch.f(a, k)\n"},
    {"p = __torch__.lib.Pair(x, 2)\n    return torch.f(p.first, p.second, p[0])", "f(x, 2, x) | v1",
     "class Pair(NamedTuple):\n  first : Tensor\n  second : int\n"},
    {"_0 = torch.add_(self.b, 1)\n    return x", "add_(b, 1) | b x", NULL},
    {"a, _0, = self.sizes\n    return torch.f(a, self.both, self.eps)",
     "f(2, [1 'a list in a list'], 0.5) | v2", NULL},
    {"torch.warn(\"careful\", 2)\n    print(x)\n    return x", "| x", NULL},
    {"# a comment\n    return torch.f(x, # another\n      2)\n\n", "f(x, 2) | v1", NULL},
};

static void test_followed(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof followed / sizeof followed[0]; i++) {
        CKPT_AUTO(graph) struct ckpt_graph *g = NULL;
        CKPT_AUTO(str) struct ckpt_str code = {0};
        CKPT_AUTO(str) struct ckpt_str shown = {0};
        struct ckpt_err err = {0};
        ckpt_str_printf(&code, CLASS "    %s\n" SUB, followed[i].body);
        if (follow(code.s, code.n, followed[i].lib, &g, &err) != 0)
            fail_msg("%s: %s", followed[i].body, err.text);
        show(&shown, g);
        if (strcmp(shown.s, followed[i].shown) != 0)
            fail_msg("%s: \"%s\", expected \"%s\"", followed[i].body, shown.s, followed[i].shown);
    }
}

/* --- arguments of the model ------------------------------------------------------------------- */

static void test_arguments(void **state) {
    static const char code[] =
        "class M(Module):\n"
        "  def forward(self, a: Tensor, s: Tuple[Tensor, Tuple[Tensor]], n: int,\n"
        "    k: Optional[Tensor]=None) -> Tensor:\n"
        "    h, c, = s\n"
        "    return torch.f(a, h, c, n, k)\n";
    CKPT_AUTO(graph) struct ckpt_graph *g = NULL;
    CKPT_AUTO(str) struct ckpt_str shown = {0};
    (void)state;
    assert_int_equal(follow(code, sizeof code - 1, NULL, &g, NULL), 0);
    assert_int_equal(g->ninputs, 4);
    assert_int_equal(g->value[3].type, CKPT_GRAPH_SYM_INT);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(g->input[i].role, CKPT_GRAPH_USER);
    show(&shown, g);
    assert_string_equal(shown.s, "f(a, s, [s], n, None) | v4");
}

static void test_roles(void **state) {
    static const char code[] =
        CLASS "    return torch.f(self.w, self.b, self.cache, CONSTANTS.c1)\n";
    static const struct {
        const char *name;
        enum ckpt_graph_role role;
    } want[] = {{"w", CKPT_GRAPH_PARAMETER},
                {"b", CKPT_GRAPH_BUFFER},
                {"cache", CKPT_GRAPH_CONSTANT},
                {"CONSTANTS.c1", CKPT_GRAPH_CONSTANT}};
    CKPT_AUTO(graph) struct ckpt_graph *g = NULL;
    (void)state;
    assert_int_equal(follow(code, sizeof code - 1, NULL, &g, NULL), 0);
    assert_int_equal(g->ninputs, 5);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(g->input[1 + i].name.s, want[i].name);
        assert_int_equal(g->input[1 + i].role, want[i].role);
        assert_int_equal(g->input[1 + i].persistent, want[i].role == CKPT_GRAPH_BUFFER);
    }
}

/* --- what is refused -------------------------------------------------------------------------- */

static const struct {
    const char *body, *sentence;
    int code;
} refused[] = {
    {"if torch.eq(torch.size(x, 0), 1):\n      x = torch.f(x)\n    else:\n      pass\n    return x",
     "code, line 6: \"if\" on what only a run", -EOPNOTSUPP},
    {"while torch.lt(torch.size(x, 0), 3):\n      x = torch.f(x)\n    return x",
     "code, line 6: \"while\"", -EOPNOTSUPP},
    {"for i in range(torch.size(x, 0)):\n      x = torch.f(x)\n    return x",
     "code, line 6: \"for\" over", -EOPNOTSUPP},
    {"with torch.no_grad():\n      x = torch.f(x)\n    return x", "code, line 6: \"with\"",
     -EOPNOTSUPP},
    {"assert torch.f(x)\n    return x", "code, line 6: \"assert\"", -EOPNOTSUPP},
    {"ops.prim.RaiseException(\"no\")\n    return x", "code, line 6: it raises", -EOPNOTSUPP},
    {"self.w = x\n    return x", "code, line 6: \"an assignment to an attribute", -EOPNOTSUPP},
    {"return torch.view(x, torch.size(x))", "code, line 6: only a run of the model knows how long",
     -EOPNOTSUPP},
    {"l = torch.unbind(x)\n    return l[-1]", "code, line 7: only a run", -EOPNOTSUPP},
    {"return (self.alien).forward(x, )", "code, line 6: no code defines the method", -EOPNOTSUPP},
    {"return (self.sub).backward(x, )", "code, line 6: no code defines the method", -EINVAL},
    {"return __torch__.lib.absent(x)", "code, line 6: no code defines __torch__.lib.absent",
     -EINVAL},
    {"return __torch__.Sub(x)", "code, line 6: it makes an object of class Sub", -EOPNOTSUPP},
    {"return eval(x)", "code, line 6: a call of \"eval\"", -EOPNOTSUPP},
    {"return y", "code, line 6: \"y\" has no value here", -EINVAL},
    {"return self.absent", "code, line 6: \"\" (M) has no attribute \"absent\"", -EINVAL},
    {"return CONSTANTS.c2", "code, line 6: constants.pkl has no CONSTANTS.c2", -EINVAL},
    {"a, b, = [x]\n    return a", "code, line 6: 2 values are taken from a list of 1", -EINVAL},
    {"a, b, = x\n    return a", "code, line 6: 2 values are taken from what is no list", -EINVAL},
    {"return [x][1]", "code, line 6: item 1 of a list of 1", -EINVAL},
    {"return (self.sub).forward()", "code, line 6: \"forward\" lacks its argument \"y\"", -EINVAL},
    {"return (self.sub).forward(x, x)", "code, line 6: \"forward\" does not take", -EINVAL},
    {"return 9223372036854775808", "code: line 6: the integer 9223372036854775808 does not fit",
     -EINVAL},
    {"return 18446744073709551616", "code: line 6: the integer 18446744073709551616 has more",
     -EINVAL},
    {"return 1j", "code: line 6: \"1j\" is no number", -EINVAL},
    {"return x + 1", "code: line 6: expected the end of the line", -EINVAL},
    {"return (x", "code: line 7: expected a comma or \")\"", -EINVAL},
    {"return \"a", "code: line 6: a string does not end", -EINVAL},
    {"return \"\\q\"", "code: line 6: an unknown escape", -EINVAL},
    {"return x)", "code: line 6: \")\" closes no bracket", -EINVAL},
    {"  return x\n     return x\n    return x", "code: line 7: its indentation fits no block",
     -EINVAL},
    {"return x ?", "code: line 6: \"?\" is nothing", -EINVAL},
};

static void check_refused(const char *code, size_t n, int want, const char *sentence) {
    struct ckpt_graph *g = NULL;
    struct ckpt_err err = {0};
    const int rc = follow(code, n, NULL, &g, &err);
    if (rc != want || !strstr(err.text, sentence))
        fail_msg("%d \"%s\", expected %d \"%s\"", rc, err.text, want, sentence);
    assert_null(g);
}

static void test_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        CKPT_AUTO(str) struct ckpt_str code = {0};
        ckpt_str_printf(&code, CLASS "    %s\n" SUB, refused[i].body);
        check_refused(code.s, code.n, refused[i].code, refused[i].sentence);
    }
}

static void check_file(const char *code, int want, const char *sentence) {
    check_refused(code, strlen(code), want, sentence);
}

static void test_refused_files(void **state) {
    (void)state;
    check_file("", -EOPNOTSUPP, "no source of a method \"forward\"");
    check_file("class N(Module):\n  pass\n", -EOPNOTSUPP, "no source of a method \"forward\"");
    check_file("x = 1\n", -EINVAL, "code: line 1: expected a class or a function");
    check_file("class M(Module):\n  pass\nclass M(Module):\n  pass\n", -EINVAL,
               "line 3: class \"M\" is defined twice");
    check_file("class M(Module):\n  def f(self):\n    pass\n  def f(self):\n    pass\n", -EINVAL,
               "line 4: \"f\" is defined twice");
    check_file("class M(Module):\n  def forward(self, x: Tensor, x: Tensor):\n    return x\n",
               -EINVAL, "line 2: two parameters have the name \"x\"");
    check_file("class M(Module):\n  def forward():\n    return 1\n", -EINVAL, "does not take self");
    check_file("class M(Module):\n  def forward(self, x: List[Tensor]):\n    return x\n",
               -EOPNOTSUPP, "argument \"x\" of the model is neither a tensor nor a number");
    check_file("class M(Module):\n    pass\n  pass\n", -EINVAL,
               "line 3: its indentation fits no block");
}

/* --- limits ----------------------------------------------------------------------------------- */

/* What `unit` repeated n times between two texts is refused for; NULL: nothing. */
static void check_repeated(const char *before, const char *unit, size_t n, const char *after,
                           const char *refusal) {
    CKPT_AUTO(str) struct ckpt_str code = {0};
    CKPT_AUTO(graph) struct ckpt_graph *g = NULL;
    struct ckpt_err err = {0};
    ckpt_str_puts(&code, before);
    for (size_t i = 0; i < n; i++)
        ckpt_str_puts(&code, unit);
    ckpt_str_puts(&code, after);
    assert_false(code.failed);
    const int rc = follow(code.s, code.n, NULL, &g, &err);
    if (refusal ? rc != -E2BIG || !strstr(err.text, refusal) : rc != 0)
        fail_msg("%zu times \"%s\": %d \"%s\", expected \"%s\"", n, unit, rc, err.text,
                 refusal ? refusal : "success");
}

static void test_nesting(void **state) {
    /* the function's block and the statement's own expression are levels, too */
    const size_t most = CKPT_LIMIT_SCRIPT_NESTING - 2;
    (void)state;
    check_repeated(CLASS "    return ", "(", most + 2, "", "limit of nesting");
    check_repeated(CLASS "    y = ", "-", most + 1, "1.\n    return x\n", "limit of nesting");
    check_repeated(CLASS "    y = ", "-", most, "1.\n    return x\n", NULL);
}

static void test_definitions(void **state) {
    (void)state;
    check_repeated(CLASS "    return x\nclass N(Enum):\n", "", 0, "  a : int\n", NULL);
    check_repeated(CLASS "    return torch.f(x", ", x", CKPT_LIMIT_GRAPH_ARGS - 1, ")\n", NULL);
    check_repeated(CLASS "    return torch.f(x", ", x", CKPT_LIMIT_GRAPH_ARGS, ")\n",
                   "limit of arguments");
}

static void test_depth(void **state) {
    (void)state;
    check_repeated(CLASS "    return (self).forward(x, )\n", "", 0, "",
                   "limit of a script's depth");
}

static void test_steps(void **state) {
    static const char doubling[] = CLASS "    return (self).twice(x, 30, )\n"
                                         "  def twice(self, x: Tensor, n: int) -> Tensor:\n"
                                         "    if torch.eq(n, 0):\n"
                                         "      return x\n"
                                         "    else:\n"
                                         "      pass\n"
                                         "    m = torch.sub(n, 1)\n"
                                         "    return (self).twice((self).twice(x, m, ), m, )\n";
    (void)state;
    check_repeated(doubling, "", 0, "", "limit of a script's steps");
    check_repeated(CLASS "    for i in range(9223372036854775807):\n      y = i\n    return x\n",
                   "", 0, "", "limit of a script's steps");
    check_repeated(CLASS "    y = torch.mul([0], 9223372036854775807)\n    return x\n", "", 0, "",
                   "limit of a script's steps");
    check_repeated(CLASS "    l = torch.unbind(x)\n    return l[9223372036854775806]\n", "", 0, "",
                   "limit of items");
}

static void test_nodes(void **state) {
    (void)state;
    check_repeated(CLASS "    for i in range(250000):\n      y = torch.f()\n    return x\n", "", 0,
                   "", NULL);
    check_repeated(CLASS "    for i in range(250001):\n      y = torch.f()\n    return x\n", "", 0,
                   "", "limit of nodes");
    check_repeated(CLASS "    l = torch.mul([x], 1000)\n    for i in range(4000):\n"
                         "      y = torch.f(l)\n    return x\n",
                   "", 0, "", "limit of a script's memory");
}

/* Lists that hold one another, or themselves, are followed only so far. */
static void test_cycles(void **state) {
    (void)state;
    check_repeated(CLASS "    l = [x]\n    _0 = torch.append(l, l)\n    return l\n", "", 0, "",
                   "limit of a script's depth");
    check_repeated(CLASS "    l = [x]\n", "    l = [l, l]\n", 40, "    return l\n",
                   "limit of items");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_followed),      cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_roles),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_files), cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_definitions),   cmocka_unit_test(test_depth),
        cmocka_unit_test(test_steps),         cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_cycles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
