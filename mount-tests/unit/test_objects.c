/* Whole objects in a checkpoint: what their state holds is found, cycles and sharing end, and the
 * list of names that a pickle would have had called. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "formats/checkpoint.h"

#define FOLDER FIXTURES "/pt/"

static struct ckpt_checkpoint *open_or_fail(const char *path) {
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(path, NULL, &c, &err) != 0)
        fail_msg("%s: %s", path, err.text);
    return c;
}

static void test_tensors_in_objects(void **state) {
    static const char *const keys[] = {
        "trainer.state_dict.fc.weight",
        "trainer.state_dict.fc.bias",
        "trainer.args.mean",
        "optimizer.state.<key 0>.momentum_buffer",
        "optimizer.param_groups.0.params.0",
        "first.mean", /* "second" is the same object */
    };
    struct ckpt_checkpoint *c = open_or_fail(FOLDER "object_state.pt");
    (void)state;
    assert_int_equal(c->ntensors, sizeof keys / sizeof *keys);
    for (size_t i = 0; i < c->ntensors; i++)
        assert_string_equal(c->tensors[i].key.s, keys[i]);
    assert_int_equal(c->nunsupported, 0);
    ckpt_checkpoint_close(c);
}

static void check_json(const struct ckpt_checkpoint *c, const char *key, const char *expected) {
    struct ckpt_str json = {0};
    struct ckpt_json_out w = {.out = &json};
    size_t i = 0;
    while (i < c->nvalues &&
           (c->values[i].path.n != 1 || !ckpt_text_is(c->values[i].path.segment[0], key)))
        i++;
    assert_true(i < c->nvalues);
    assert_true(ckpt_value_json(&w, c->values[i].value));
    assert_string_equal(ckpt_str_text(&json).s, expected);
    ckpt_str_fini(&json);
}

/* Objects without a state show what they were made of where there are tensors in it. */
static void test_tensors_in_arguments(void **state) {
    static const char *const keys[] = {"adam.1.w", "adam.2", "pair.0",     "max.0",
                                       "max.1",    "made.0", "partial.1.0"};
    struct ckpt_checkpoint *c = open_or_fail(FOLDER "named_tuples.pt");
    (void)state;
    assert_int_equal(c->ntensors, sizeof keys / sizeof *keys);
    for (size_t i = 0; i < c->ntensors; i++)
        assert_string_equal(c->tensors[i].key.s, keys[i]);
    check_json(c, "point", "\"trainer.Point\"");
    assert_int_equal(c->nopaque, 6);
    assert_int_equal(c->nunsupported, 0);
    ckpt_checkpoint_close(c);
}

/* Of a dict, list or tensor only items and elements are served; tensors beside them are listed. */
static void test_tensors_in_attributes(void **state) {
    static const char *const keys[] = {"d.w", "p", "m.weight"};
    static const char *const lost[][4] = {
        {"d", "mean"}, {"l", "tags", "deep", "0"}, {"p", "tag"}, {"m", "weight", "tag"}};
    struct ckpt_checkpoint *c = open_or_fail(FOLDER "attributes.pt");
    (void)state;
    assert_int_equal(c->ntensors, sizeof keys / sizeof *keys);
    for (size_t i = 0; i < c->ntensors; i++)
        assert_string_equal(c->tensors[i].key.s, keys[i]);
    check_json(c, "plain", "{\"lr\":1}");
    assert_int_equal(c->nunsupported, sizeof lost / sizeof *lost);
    for (size_t i = 0; i < c->nunsupported; i++) {
        const struct ckpt_path p = c->unsupported[i].path;
        for (size_t k = 0; k < p.n; k++)
            assert_string_equal(p.segment[k].s, lost[i][k]);
        assert_true(p.n == 4 || !lost[i][p.n]);
    }
    ckpt_checkpoint_close(c);
}

static void test_key_twice(void **state) {
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    (void)state;
    assert_int_equal(ckpt_checkpoint_open(FOLDER "key_twice.pt", NULL, &c, &err), -EINVAL);
    assert_non_null(strstr(err.text, "\"m.1\": ['m'][1] and ['m']['1'];"));
}

/* What torch.compile wrapped is the module itself. */
static void test_compiled(void **state) {
    struct ckpt_checkpoint *c = open_or_fail(FOLDER "compiled_full.pt");
    (void)state;
    assert_int_equal(c->ntensors, 2);
    assert_string_equal(c->tensors[0].key.s, "0.weight");
    assert_int_equal(c->nmodules, 2);
    assert_string_equal(c->modules[1].cls.s, "torch.nn.modules.linear.Linear");
    assert_int_equal(c->nopaque, 0);
    ckpt_checkpoint_close(c);
}

static void test_objects_as_values(void **state) {
    struct ckpt_checkpoint *c = open_or_fail(FOLDER "object_state.pt");
    (void)state;
    check_json(c, "plain", "{\"lr\":0.25,\"inner\":\"trainer.Empty\",\"none\":null}");
    check_json(
        c, "tree",
        "{\"name\":\"parent\",\"children\":[{\"name\":\"child\",\"parent\":\"trainer.Node\"}]}");
    assert_string_equal(c->opaque[0].text.s, "trainer.Trainer");
    ckpt_checkpoint_close(c);
}

static const struct ckpt_global *find_global(const struct ckpt_checkpoint *c, const char *name) {
    const size_t i = ckpt_strmap_get(&c->globals.by_name, ckpt_text_of(name));
    return i == CKPT_STRMAP_ABSENT ? NULL : &c->globals.global[i];
}

static void test_globals(void **state) {
    struct ckpt_checkpoint *c = open_or_fail(FOLDER "object_state.pt");
    const struct ckpt_global *node = find_global(c, "trainer.Node");
    (void)state;
    assert_non_null(node);
    assert_int_equal(node->mentions, 1);
    assert_int_equal(node->calls, 4);
    assert_string_equal(ckpt_global_status(node), "inert");
    assert_string_equal(ckpt_global_status(find_global(c, "argparse.Namespace")), "known");
    assert_string_equal(ckpt_global_status(find_global(c, "torch.FloatStorage")), "known");
    assert_true(ckpt_globals_are_notable(&c->globals));
    assert_int_equal(c->nwarnings, 0);
    ckpt_checkpoint_close(c);

    c = open_or_fail(FOLDER "a1_state.pt");
    assert_false(ckpt_globals_are_notable(&c->globals));
    ckpt_checkpoint_close(c);
}

/* In the object, in the list of keys, in the system information, in nested bytes. */
static void test_dangers(void **state) {
    static const struct {
        const char *file, *name;
    } rows[] = {
        {FOLDER "evil_system_in_dict.pt", "os.system"},
        {FOLDER "evil_eval_stackglobal.pt", "builtins.eval"},
        {FOLDER "evil_newobj.pt", "subprocess.Popen"},
        {FOLDER "evil_hooks_arg.pt", "os.system"},
        {FOLDER "evil_legacy_sysinfo.pt", "os.system"},
        {FOLDER "evil_legacy_keys.pt", "os.system"},
        {FOLDER "evil_load_from_bytes.pt", "os.system"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct ckpt_open_options options = {.keep_going = true};
        struct ckpt_checkpoint *c = NULL;
        struct ckpt_err err = {0};
        if (ckpt_checkpoint_open(rows[i].file, &options, &c, &err) != 0)
            continue; /* refused: nothing to warn of */
        const struct ckpt_global *g = find_global(c, rows[i].name);
        if (!g || !g->danger)
            fail_msg("%s: %s is not marked", rows[i].file, rows[i].name);
        assert_true(c->nwarnings > 0);
        assert_non_null(strstr(c->warnings[c->nwarnings - 1].s, rows[i].name));
        ckpt_checkpoint_close(c);
    }
}

static const char *danger(const char *module, const char *name) {
    return ckpt_global_danger(ckpt_text_of(module), ckpt_text_of(name));
}

/* Modules with all below them, single names alone. */
static void test_danger_table(void **state) {
    (void)state;
    assert_non_null(danger("os", "system"));
    assert_non_null(danger("os.path", "join"));
    assert_null(danger("osmium", "system"));
    assert_non_null(danger("builtins", "eval"));
    assert_null(danger("builtins", "evaluate"));
    assert_null(danger("builtins", "set"));
    assert_null(danger("builtins.x", "eval"));
    assert_non_null(danger("torch.hub", "load"));
    assert_null(danger("torch.nn.modules.linear", "Linear"));
    assert_null(danger("", ""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_in_objects),
        cmocka_unit_test(test_tensors_in_arguments),
        cmocka_unit_test(test_tensors_in_attributes),
        cmocka_unit_test(test_key_twice),
        cmocka_unit_test(test_compiled),
        cmocka_unit_test(test_objects_as_values),
        cmocka_unit_test(test_globals),
        cmocka_unit_test(test_dangers),
        cmocka_unit_test(test_danger_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
