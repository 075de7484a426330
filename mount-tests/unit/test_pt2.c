/*
 * Archives of torch.export.save in the layouts of its versions, sound and not: fixtures/pt2, whose
 * expected.tsv says what must come of each (make_pt2.py).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sha256.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/model.h"
#include "adapters/reader.h"
#include "base/cleanup.h"
#include "formats/graph.h"

#define FOLDER FIXTURES "/pt2/"

/* One source at a time: its tensors as .source/ shows them. */
struct open {
    char name[100];
    struct ckpt_checkpoint *c;
    struct ckpt_model *m;
    size_t next; /* tensor */
};

static void finish(struct open *o) {
    if (o->m && o->next != o->m->ntensors)
        fail_msg("%s: %zu tensors, expected %zu", o->name, o->m->ntensors, o->next);
    ckpt_model_free(o->m);
    ckpt_checkpoint_close(o->c);
    *o = (struct open){0};
}

static int open_source(struct open *o, const char *name, struct ckpt_err *err) {
    char path[1000];
    snprintf(path, sizeof path, FOLDER "%s", name);
    snprintf(o->name, sizeof o->name, "%s", name);
    return ckpt_checkpoint_open(path, NULL, &o->c, err);
}

static void hash(struct ckpt_reader *reader, const struct ckpt_adapted *t, char *hex) {
    CKPT_AUTO(free) uint8_t *bytes = malloc(t->nbytes + 1);
    struct ckpt_err err = {0};
    if (ckpt_reader_read(reader, t, 0, t->nbytes, bytes, &err) != 0)
        fail_msg("%s", err.text);
    SHA256Data(bytes, t->nbytes, hex);
}

static void check_tensor(struct ckpt_reader *reader, struct open *o, char **field) {
    char hex[SHA256_DIGEST_STRING_LENGTH], shape[200] = "";
    size_t n = 0;
    if (o->next == o->m->ntensors)
        fail_msg("%s: no %s", o->name, field[1]);
    const struct ckpt_adapted *t = &o->m->tensor[o->next++];
    for (uint32_t i = 0; i < t->ndim; i++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%lld", i ? "," : "",
                              (long long)t->shape[i]);
    for (char *s = field[1]; *s; s++)
        *s = *s == '/' ? '.' : *s;
    assert_string_equal(t->key.s, field[1]);
    assert_string_equal(ckpt_dtype_info(t->dtype)->name, field[2]);
    assert_string_equal(shape, field[3]);
    hash(reader, t, hex);
    if (strcmp(hex, field[4]) != 0)
        fail_msg("%s: %s: other bytes than expected", o->name, field[1]);
}

static void check_refusal(const char *name, const char *message) {
    struct open o = {0};
    struct ckpt_err err = {0};
    if (open_source(&o, name, &err) == 0)
        fail_msg("%s: accepted", name);
    if (!strstr(err.text, message))
        fail_msg("%s: \"%s\" does not say \"%s\"", name, err.text, message);
}

static void check_line(struct ckpt_reader *reader, struct open *o, char *line) {
    char *field[5] = {0};
    struct ckpt_err err = {0};
    line[strcspn(line, "\n")] = '\0';
    for (size_t i = 0; i < 5 && line; i++)
        field[i] = strsep(&line, "\t");
    if (strcmp(field[1], "!") == 0) {
        check_refusal(field[0], field[2]);
        return;
    }
    if (strcmp(field[0], o->name) != 0) {
        finish(o);
        if (open_source(o, field[0], &err) || ckpt_model_build_source(o->c, &o->m, &err))
            fail_msg("%s: %s", field[0], err.text);
    }
    check_tensor(reader, o, field);
}

static void test_expected(void **state) {
    CKPT_AUTO(fclose) FILE *f = fopen(FOLDER "expected.tsv", "r");
    CKPT_AUTO(free) char *line = NULL;
    const struct ckpt_reader_options options = {.no_prefetch = true};
    struct ckpt_reader *reader;
    struct open o = {0};
    size_t cap = 0, lines = 0;
    (void)state;
    assert_non_null(f);
    assert_int_equal(ckpt_reader_new(&options, &reader, NULL), 0);
    for (; getline(&line, &cap, f) > 0; lines++)
        check_line(reader, &o, line);
    assert_true(lines > 40);
    finish(&o);
    ckpt_reader_free(reader);
}

/* Two names of one path are one storage, and the archive's graph comes with it. */
static void test_tied(void **state) {
    struct open o = {0};
    (void)state;
    assert_int_equal(open_source(&o, "tied.pt2", NULL), 0);
    const struct ckpt_tensor *embed = &o.c->tensors[2], *head = &o.c->tensors[3];
    assert_string_equal(embed->key.s, "embed.weight");
    assert_string_equal(head->key.s, "head.weight");
    assert_ptr_equal(embed->blob, head->blob);
    assert_true(embed->blob->in_file);
    assert_non_null(o.c->graph);
    assert_int_equal(o.c->nwarnings, 0);
    finish(&o);
}

/* A scratch buffer is not part of the state. */
static void test_constants_stay_out(void **state) {
    struct open o = {0};
    (void)state;
    assert_int_equal(open_source(&o, "tied.pt2", NULL), 0);
    for (size_t i = 0; i < o.c->ntensors; i++)
        assert_string_not_equal(o.c->tensors[i].key.s, "scratch");
    bool known = false;
    for (size_t i = 0; i < o.c->graph->ninputs; i++) {
        const struct ckpt_graph_input *in = &o.c->graph->input[i];
        known = known || (ckpt_text_is(in->name, "scratch") && !in->persistent);
    }
    assert_true(known);
    finish(&o);
}

static void test_left_out(void **state) {
    const struct ckpt_open_options keep_going = {.keep_going = true};
    struct open o = {0};
    (void)state;
    assert_int_equal(open_source(&o, "subclass.pt2", NULL), 0);
    assert_int_equal(o.c->nunsupported, 1);
    assert_string_equal(o.c->unsupported[0].path.segment[0].s, "part");
    finish(&o);
    assert_int_equal(ckpt_checkpoint_open(FOLDER "bad_outside.pt2", &keep_going, &o.c, NULL), 0);
    assert_int_equal(o.c->nunsupported, 1);
    assert_int_equal(o.c->ntensors, 5);
    finish(&o);
}

/* Whatever is wrong with the graph, the tensors are there. */
static void test_bad_graph(void **state) {
    struct open o = {0};
    (void)state;
    assert_int_equal(open_source(&o, "bad_graph.pt2", NULL), 0);
    assert_null(o.c->graph);
    assert_int_equal(o.c->nwarnings, 1);
    assert_non_null(strstr(o.c->warnings[0].s, "its graph is not used: archive/models/model.json"));
    finish(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expected),           cmocka_unit_test(test_tied),
        cmocka_unit_test(test_constants_stay_out), cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_bad_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
