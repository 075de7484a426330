/* What TorchScript's source says of its classes, and what becomes of an archive's objects. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/torch_script.h"

static int parse(const char *text, struct torch_script_code *code, struct ckpt_arena *a,
                 struct ckpt_err *err) {
    return torch_script_parse(code, a, ckpt_text_of(text), err);
}

static size_t role(const struct torch_script_class *c, const char *name) {
    return ckpt_strmap_get(&c->role, ckpt_text_of(name));
}

static void test_classes(void **state) {
    static const char text[] = "class S(Module):\n"
                               "  __parameters__ = [\"w\", \"a\\\"b\", ]\n"
                               "  __buffers__ = [\"m\", ]\n"
                               "  w : Tensor\n"
                               "  def forward(self: __torch__.S,\n"
                               "    x: Tensor) -> Tensor:\n"
                               "    __buffers__ = [not a list of ours]\n"
                               "    return x\n"
                               "class P(NamedTuple):\n"
                               "  x : int\n"
                               "class E(Enum):\n"
                               "class Empty(Module):\n"
                               "  __parameters__ = []\n"
                               "  __buffers__ = []";
    struct torch_script_code code;
    struct ckpt_arena a = {0};
    (void)state;
    assert_int_equal(parse(text, &code, &a, NULL), 0);
    assert_int_equal(code.n, 4);
    assert_true(ckpt_text_is(code.classes[0].name, "S"));
    assert_true(code.classes[0].is_module);
    assert_int_equal(code.classes[0].role.count, 3);
    assert_int_equal(role(&code.classes[0], "w"), TORCH_SCRIPT_PARAMETER);
    assert_int_equal(role(&code.classes[0], "a\"b"), TORCH_SCRIPT_PARAMETER);
    assert_int_equal(role(&code.classes[0], "m"), TORCH_SCRIPT_BUFFER);
    assert_false(code.classes[1].is_module);
    assert_true(code.classes[3].is_module);
    assert_int_equal(code.classes[3].role.count, 0);
    torch_script_code_fini(&code);
    ckpt_arena_fini(&a);
}

/* What follows "x : Final[T] = ", as JSON; NULL: it is left out. */
static const struct {
    const char *literal, *json;
} constants[] = {
    {"2", "2"},
    {"-7", "-7"},
    {"1.0000000000000001e-05", "1e-05"},
    {"True", "true"},
    {"False", "false"},
    {"None", "null"},
    {"\"zeros\"", "\"zeros\""},
    {"(2, 2)", "[2,2]"},
    {"(16,)", "[16]"},
    {"()", "[]"},
    {"[(1, 2), (3, 4)]", "[[1,2],[3,4]]"},
    {"9223372036854775807", "9223372036854775807"},
    {"9223372036854775808", NULL},
    {"1x", NULL},
    {"1 ", NULL},
    {"", NULL},
    {"--1", NULL},
    {"1e", NULL},
    {"Truer", NULL},
    {"\"a", NULL},
    {"\"a\\\"\"", NULL},
    {"(1, 2", NULL},
    {"(1 2)", NULL},
    {"((((((1,),),),),),)", NULL},
    {"torch.float32", NULL},
};

static void test_constants(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        struct ckpt_value *v = NULL;
        struct ckpt_arena a = {0};
        struct ckpt_str json = {0};
        struct ckpt_json_out w = {.out = &json};
        assert_int_equal(torch_script_constant(&a, ckpt_text_of(constants[i].literal), &v, NULL),
                         0);
        if (v)
            ckpt_value_json(&w, v);
        if (!v != !constants[i].json || (v && strcmp(json.s, constants[i].json) != 0))
            fail_msg("%s is %s", constants[i].literal, v ? json.s : "left out");
        ckpt_str_fini(&json);
        ckpt_arena_fini(&a);
    }
}

/* They are a module's attributes. */
static void test_constants_of_a_module(void **state) {
    struct ckpt_checkpoint *c = NULL;
    (void)state;
    assert_int_equal(ckpt_checkpoint_open(FIXTURES "/pt/ts_scripted.pt", NULL, &c, NULL), 0);
    assert_int_equal(c->nmodules, 2);
    const struct ckpt_value *v = ckpt_value_get(c->modules[1].attributes, "in_features");
    assert_non_null(v);
    assert_int_equal(v->kind, CKPT_VALUE_INT);
    assert_int_equal(v->i, 2);
    assert_null(ckpt_value_get(c->modules[0].attributes, "in_features"));
    ckpt_checkpoint_close(c);
}

static void test_damaged_lists(void **state) {
    static const char *const cases[] = {
        "  __buffers__ = []",
        "class S(Module):\n  __buffers__ = [",
        "class S(Module):\n  __buffers__ = [\"a\"",
        "class S(Module):\n  __buffers__ = [\"a\", ] x",
        "class S(Module):\n  __buffers__ = [\"a]",
        "class S(Module):\n  __buffers__ = [a]",
        "class S(Module):\n  __buffers__ = [\"a\", ]\n  __parameters__ = [\"a\", ]",
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct torch_script_code code;
        struct ckpt_arena a = {0};
        struct ckpt_err err = {0};
        if (parse(cases[i], &code, &a, &err) == 0)
            fail_msg("accepted: %s", cases[i]);
        assert_non_null(strstr(err.text, "TorchScript code, byte"));
        ckpt_arena_fini(&a);
    }
}

static void test_archive(void **state) {
    struct ckpt_checkpoint *c = NULL;
    (void)state;
    assert_int_equal(ckpt_checkpoint_open(FIXTURES "/pt/ts_scripted.pt", NULL, &c, NULL), 0);
    assert_string_equal(c->format, "torchscript");
    assert_int_equal(c->nmodules, 2);
    assert_true(ckpt_text_is(c->modules[0].cls, "S"));
    assert_true(ckpt_text_is(c->modules[1].cls, "torch.nn.modules.linear.Linear"));
    assert_true(ckpt_text_is(c->modules[1].path, "l"));
    assert_int_equal(ckpt_value_get(c->modules[0].attributes, "k")->i, 3);
    assert_int_equal(c->tensors[2].module, 1);
    assert_int_equal(c->nopaque, 0);
    ckpt_checkpoint_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),   cmocka_unit_test(test_damaged_lists),
        cmocka_unit_test(test_constants), cmocka_unit_test(test_constants_of_a_module),
        cmocka_unit_test(test_archive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
