/* The whole checker on small models: what it must pass, what it must find, what it must say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/cleanup.h"
#include "base/guard.h"
#include "verify/plan.h"
#include "verify/reference.h"
#include "verify/source.h"
#include "verify/verify.h"

#define A1 FIXTURES "/a1/"
#define PROBES FIXTURES "/verify/"

static struct ckpt_verify_options options_for(const char *source) {
    return (struct ckpt_verify_options){.source = source, .atol = 1e-4, .rtol = 1e-3};
}

/* The parsed report; its status is checked, and that it keeps to its bound. */
static cJSON *verify_model(const struct ckpt_model *m, const struct ckpt_verify_options *o,
                           const char *status) {
    const struct ckpt_reader_options no_prefetch = {.no_prefetch = true};
    struct ckpt_reader *reader = NULL;
    struct ckpt_err err = {0};
    CKPT_AUTO(str) struct ckpt_str report = {0};
    enum ckpt_status got;
    assert_int_equal(ckpt_reader_new(&no_prefetch, &reader, &err), 0);
    if (ckpt_verify_run(reader, m, o, &report, &got, &err) < 0)
        fail_msg("%s", err.text);
    ckpt_reader_free(reader);
    assert_true(report.n <= ckpt_verify_bound(m, o));
    assert_int_equal(report.s[report.n - 1], '\n');
    cJSON *const json = cJSON_Parse(report.s);
    assert_non_null(json);
    if (strcmp(ckpt_status_name(got), status) != 0)
        fail_msg("status %s, expected %s:\n%s", ckpt_status_name(got), status, report.s);
    assert_string_equal(cJSON_GetObjectItem(json, "status")->valuestring, status);
    return json;
}

static cJSON *verify(const char *path, const struct ckpt_adapt_options *adapt,
                     const struct ckpt_verify_options *o, const char *status) {
    const struct ckpt_open_options plain = {0};
    const struct ckpt_adapt_options burn = {0};
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_model *m = NULL;
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(path, &plain, &c, &err) < 0 ||
        ckpt_model_build(c, adapt ? adapt : &burn, &m, &err) < 0)
        fail_msg("%s: %s", path, err.text);
    cJSON *const json = verify_model(m, o, status);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
    return json;
}

/* "bytes.status" */
static const cJSON *at(const cJSON *json, const char *path) {
    CKPT_AUTO(free) char *copy = strdup(path);
    char *rest = copy;
    for (const char *key = strsep(&rest, "."); key; key = strsep(&rest, ".")) {
        json = cJSON_GetObjectItemCaseSensitive(json, key);
        if (!json)
            fail_msg("no %s in the report", path);
    }
    return json;
}

static const char *string_at(const cJSON *json, const char *path) {
    return at(json, path)->valuestring;
}

static void expect_run(const cJSON *json, int i, const char *name, const char *status) {
    const cJSON *const run = cJSON_GetArrayItem(at(json, "runs"), i);
    assert_string_equal(string_at(run, "name"), name);
    assert_string_equal(string_at(run, "output"), "output.0");
    assert_string_equal(string_at(run, "status"), status);
    if (strcmp(status, "PASS") == 0)
        assert_true(at(run, "diff.max_abs")->valuedouble <= 1e-6);
}

/* ---- files made by the tests ---- */

struct file {
    unsigned char *data;
    size_t n;
    char path[64];
};

static struct file read_file(const char *path) {
    struct file f = {.path = "/tmp/ckpt-test-verify-XXXXXX"};
    FILE *const in = fopen(path, "rb");
    assert_non_null(in);
    f.data = malloc(1 << 20);
    assert_non_null(f.data);
    f.n = fread(f.data, 1, 1 << 20, in);
    fclose(in);
    return f;
}

static void write_file(struct file *f) {
    CKPT_AUTO(fd) const int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, f->data, f->n), f->n);
}

static void remove_file(struct file *f) {
    unlink(f->path);
    free(f->data);
}

/* Where these bytes lie in the file. */
static size_t find_bytes(const struct file *f, const void *bytes, size_t n) {
    const unsigned char *const p = memmem(f->data, f->n, bytes, n);
    assert_non_null(p);
    return (size_t)(p - f->data);
}

/* ---- a1 ---- */

static struct ckpt_verify_options a1_options(const char *path) {
    struct ckpt_verify_options o = options_for(path);
    o.chain = "fc1:relu:fc2";
    o.reference = A1 "a1.reference.safetensors";
    return o;
}

static void a1_passes(void **state) {
    (void)state;
    static const char *const files[] = {A1 "a1_full.pt",        A1 "a1_state.pt",
                                        A1 "a1_ckpt.pt",        A1 "a1.safetensors",
                                        A1 "a1_full_legacy.pt", A1 "a1_state_legacy.pt"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        const struct ckpt_verify_options o = a1_options(files[i]);
        cJSON *const json = verify(files[i], NULL, &o, "PASS");
        assert_int_equal(cJSON_GetArraySize(at(json, "runs")), 3);
        expect_run(json, 0, "torch-vs-recorded", "PASS");
        expect_run(json, 1, "burn-vs-recorded", "PASS");
        expect_run(json, 2, "torch-vs-burn", "PASS");
        assert_string_equal(string_at(json, "bytes.status"), "PASS");
        assert_int_equal(at(json, "bytes.elements")->valuedouble, 67);
        cJSON_Delete(json);
    }
}

static void torch_layout_passes(void **state) {
    (void)state;
    const struct ckpt_adapt_options torch = {.layout = CKPT_LAYOUT_TORCH};
    const struct ckpt_verify_options o = a1_options(A1 "a1_full.pt");
    cJSON_Delete(verify(A1 "a1_full.pt", &torch, &o, "PASS"));
}

static void other_widths_pass(void **state) {
    (void)state;
    static const char *const files[] = {A1 "a1_f16.pt", A1 "a1_f64.pt", A1 "a1_f16.safetensors"};
    const struct ckpt_adapt_options f32 = {.cast = CKPT_DT_F32};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct ckpt_verify_options o = a1_options(files[i]);
        o.atol = 1e-3; /* f16 weights are a little different ones */
        cJSON_Delete(verify(files[i], NULL, &o, "PASS"));
        cJSON_Delete(verify(files[i], &f32, &o, "PASS"));
    }
}

static void sidecar_is_found(void **state) {
    (void)state;
    struct ckpt_verify_options o = options_for(A1 "a1.safetensors");
    o.chain = "fc1:relu:fc2";
    cJSON *const json = verify(A1 "a1.safetensors", NULL, &o, "PASS");
    assert_string_equal(string_at(json, "reference.file"), "a1.reference.safetensors");
    expect_run(json, 0, "torch-vs-recorded", "PASS");
    cJSON_Delete(json);
}

/* A weight changed, the file sound: only the recorded output tells. */
static void changed_weight(void **state) {
    (void)state;
    struct file f = read_file(A1 "a1.safetensors");
    const float wrong = 3;
    memcpy(f.data + f.n - sizeof(wrong), &wrong, sizeof(wrong)); /* the last element */
    write_file(&f);
    const struct ckpt_verify_options o = a1_options(f.path);
    cJSON *const json = verify(f.path, NULL, &o, "DIFF");
    expect_run(json, 0, "torch-vs-recorded", "DIFF");
    expect_run(json, 1, "burn-vs-recorded", "DIFF");
    expect_run(json, 2, "torch-vs-burn", "PASS");
    assert_string_equal(string_at(json, "bytes.status"), "PASS");
    cJSON_Delete(json);
    remove_file(&f);
}

/* A NaN weight is the source's own: nothing to hold against the adapter; the bytes still count. */
static void not_finite(void **state) {
    (void)state;
    struct file f = read_file(A1 "a1.safetensors");
    memset(f.data + f.n - 4, 0xff, 4); /* the last element */
    write_file(&f);
    const struct ckpt_verify_options o = options_for(f.path);
    cJSON *const json = verify(f.path, NULL, &o, "PASS");
    int skipped = 0;
    const cJSON *l;
    cJSON_ArrayForEach(l, at(json, "layers")) {
        if (strcmp(string_at(l, "status"), "SKIP") == 0)
            skipped += strstr(string_at(l, "reason"), "not finite") != NULL;
    }
    assert_int_equal(skipped, 1);
    cJSON_Delete(json);
    remove_file(&f);
}

/* One byte of fc1.weight flipped in a ZIP: its checksum is wrong, and the forward still runs. */
static void flipped_byte(void **state) {
    (void)state;
    struct file f = read_file(A1 "a1_full.pt"), plain = read_file(A1 "a1.safetensors");
    const size_t header = 8 + (size_t)plain.data[0] + 256u * plain.data[1];
    f.data[find_bytes(&f, plain.data + header + 32, 32) + 3] ^= 0x40; /* fc1.bias comes first */
    write_file(&f);
    const struct ckpt_verify_options o = a1_options(f.path);
    cJSON *const json = verify(f.path, NULL, &o, "DIFF");
    const cJSON *const wrong = cJSON_GetArrayItem(at(json, "bytes.checksums.wrong"), 0);
    assert_string_equal(string_at(wrong, "entry"), "data/0");
    assert_string_equal(cJSON_GetArrayItem(at(wrong, "tensors"), 0)->valuestring, "fc1.weight");
    assert_string_equal(string_at(json, "bytes.status"), "DIFF");
    expect_run(json, 0, "torch-vs-recorded", "DIFF");
    expect_run(json, 2, "torch-vs-burn", "PASS");
    cJSON_Delete(json);
    remove_file(&f);
    free(plain.data);
}

/* The served fc1.weight is not transposed: layers and bytes both tell. */
static void wrong_adapter(void **state) {
    (void)state;
    const struct ckpt_open_options plain = {0};
    const struct ckpt_adapt_options burn = {0};
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_model *m = NULL;
    struct ckpt_view view;
    assert_int_equal(ckpt_checkpoint_open(A1 "sq.pt", &plain, &c, NULL), 0);
    assert_int_equal(ckpt_model_build(c, &burn, &m, NULL), 0);
    struct ckpt_adapted *t = m->tensor;
    while (t->ndim != 2)
        t++;
    assert_int_equal(ckpt_view_init(&view, t->source, NULL), 0);
    t->part[0].walk = ckpt_walk_pack(&m->arena, &view);
    const struct ckpt_verify_options o = options_for(NULL);
    cJSON *const json = verify_model(m, &o, "DIFF");
    assert_string_equal(string_at(json, "bytes.status"), "DIFF");
    assert_true(cJSON_GetArraySize(at(json, "bytes.mismatches")) > 0);
    const cJSON *const layer = cJSON_GetArrayItem(at(json, "layers"), 0);
    assert_string_equal(string_at(layer, "status"), "DIFF");
    cJSON_Delete(json);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void expect_chain(const char *chain, const char *status, const char *reason) {
    struct ckpt_verify_options o = a1_options(A1 "a1_full.pt");
    o.chain = chain;
    cJSON *const json = verify(A1 "a1_full.pt", NULL, &o, status);
    if (!strstr(string_at(json, "graph.reason"), reason))
        fail_msg("\"%s\" does not say \"%s\"", string_at(json, "graph.reason"), reason);
    cJSON_Delete(json);
}

static void wrong_chains(void **state) {
    (void)state;
    expect_chain("fc1:rellu:fc2", "TEST_FAIL", "did you mean \"relu\"?");
    expect_chain("fc1:relu:fc3", "TEST_FAIL", "did you mean \"fc1\"?");
    expect_chain("fc2:relu:fc1", "TEST_FAIL", "step 1, fc2: linear: the input's last dimension");
    expect_chain("", "TEST_FAIL", "neither a module nor an activation");
    expect_chain("fc1:", "TEST_FAIL", "neither a module nor an activation");
    /* A chain that runs but is another model has another output shape. */
    struct ckpt_verify_options o = a1_options(A1 "a1_full.pt");
    o.chain = "fc1";
    cJSON_Delete(verify(A1 "a1_full.pt", NULL, &o, "DIFF"));
    o.chain = "fc1:fc2"; /* no relu */
    cJSON_Delete(verify(A1 "a1_full.pt", NULL, &o, "DIFF"));
}

static void seeded_chain(void **state) {
    (void)state;
    struct ckpt_verify_options o = options_for(A1 "a1_full.pt");
    o.chain = "fc1:relu:fc2";
    cJSON *const json = verify(A1 "a1_full.pt", NULL, &o, "PASS");
    assert_int_equal(cJSON_GetArraySize(at(json, "runs")), 1);
    expect_run(json, 0, "torch-vs-burn", "PASS");
    cJSON_Delete(json);
}

static void graphs_and_references_that_fail(void **state) {
    (void)state;
    struct ckpt_verify_options o = options_for(A1 "a1_full.pt");
    o.graph = "model.pt2";
    cJSON_Delete(verify(A1 "a1_full.pt", NULL, &o, "TEST_SKIP"));
    o.graph = NULL;
    o.reference = A1 "absent.safetensors";
    cJSON_Delete(verify(A1 "a1_full.pt", NULL, &o, "TEST_FAIL"));
    o.reference = NULL;
    o.memory = 16;
    cJSON *const json = verify(A1 "a1_full.pt", NULL, &o, "PASS"); /* bytes need no arrays */
    assert_non_null(
        strstr(string_at(cJSON_GetArrayItem(at(json, "layers"), 0), "reason"), "verify_memory"));
    cJSON_Delete(json);
}

/* The reference with one of its names changed in the header; its verdict. */
static void expect_reference(const char *from, const char *to, const char *status,
                             const char *words) {
    struct file f = read_file(A1 "a1.reference.safetensors");
    for (size_t n = strlen(from); memmem(f.data, f.n, from, n);)
        memcpy(f.data + find_bytes(&f, from, n), to, n);
    write_file(&f);
    struct ckpt_verify_options o = a1_options(A1 "a1_full.pt");
    o.reference = f.path;
    cJSON *const json = verify(A1 "a1_full.pt", NULL, &o, status);
    const char *const reason = string_at(json, "reference.reason");
    if (!strstr(reason, words))
        fail_msg("%s -> %s: \"%s\" lacks \"%s\"", from, to, reason, words);
    assert_string_equal(string_at(json, "reference.status"), status);
    cJSON_Delete(json);
    remove_file(&f);
}

/* What compares nothing is no success. */
static void references_of_no_use(void **state) {
    (void)state;
    expect_reference("put.", "pot.", "TEST_FAIL", "nothing was compared");
    expect_reference("input.0", "unput.0", "TEST_FAIL", "output.0 without input.0");
    expect_reference("output.0", "outpot.0", "PASS", "no output.0");
}

/* Half of the bits are gone, as was asked for: no DIFF of the layers, but a number. */
static void a_cast_beyond_the_tolerance(void **state) {
    (void)state;
    const struct ckpt_adapt_options bf16 = {.cast = CKPT_DT_BF16};
    struct ckpt_verify_options o = options_for(A1 "a1_full.pt");
    cJSON *const json = verify(A1 "a1_full.pt", &bf16, &o, "PASS");
    assert_string_equal(string_at(json, "bytes.status"), "PASS");
    const cJSON *const layer = cJSON_GetArrayItem(at(json, "layers"), 0);
    assert_true(at(layer, "max_abs")->valuedouble < 1e-6);
    assert_true(at(layer, "cast_max_abs")->valuedouble > 1e-4);
    assert_true(at(json, "cast.max_abs")->valuedouble >= at(layer, "cast_max_abs")->valuedouble);
    assert_int_equal(at(json, "cast.tensors")->valueint, 4);
    cJSON_Delete(json);
}

/* What a rule of the user's cuts up is another module's: no DIFF of this one. */
static void rules_that_cut_are_no_difference(void **state) {
    (void)state;
    static const char *const ops[] = {"[[\"split\",0,2]], \"name\": [\"a.weight\", \"b.weight\"]",
                                      "[[\"slice\",0,1,3]]", "[[\"reshape\",[-1]]]",
                                      "[[\"unsqueeze\",0]]"};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        struct file f = {.path = "/tmp/ckpt-test-verify-XXXXXX", .data = malloc(256)};
        assert_non_null(f.data);
        f.n = (size_t)snprintf((char *)f.data, 256,
                               "{\"rules\":[{\"match\":\"fc1.weight\",\"ops\":%s}]}", ops[i]);
        write_file(&f);
        const struct ckpt_adapt_options rules = {.rules = f.path};
        const struct ckpt_verify_options o = options_for(A1 "a1_full.pt");
        cJSON *const json = verify(A1 "a1_full.pt", &rules, &o, "PASS");
        const cJSON *const layer = cJSON_GetArrayItem(at(json, "layers"), 0);
        assert_string_equal(string_at(layer, "status"), "SKIP");
        assert_non_null(strstr(string_at(layer, "reason"), "fc1.weight"));
        cJSON_Delete(json);
        remove_file(&f);
    }
}

/* Left out by the user: skipped. Not there at all: a failure that names it. */
static void missing_parameters(void **state) {
    (void)state;
    static const char *const left_out[] = {"^fc1\\.weight$"};
    const struct ckpt_adapt_options exclude = {.exclude = left_out, .nexclude = 1};
    const struct ckpt_verify_options o = options_for(A1 "a1_full.pt");
    cJSON *json = verify(A1 "a1_full.pt", &exclude, &o, "PASS");
    assert_non_null(strstr(string_at(cJSON_GetArrayItem(at(json, "layers"), 0), "reason"),
                           "fc1.weight was left out"));
    cJSON_Delete(json);
    /* Renamed in the header: what kind= calls a linear has no weight. */
    struct file f = read_file(PROBES "probe_layers.safetensors");
    memcpy(f.data + find_bytes(&f, "linear_square.weight", 20), "linear_square.WEIGHT", 20);
    write_file(&f);
    static const struct ckpt_mapping linear = {CKPT_TEXT("^linear_square$"), CKPT_TEXT("linear"),
                                               "kind="};
    const struct ckpt_adapt_options kind = {.kind = &linear, .nkind = 1};
    const struct ckpt_verify_options other = options_for(f.path);
    json = verify(f.path, &kind, &other, "TEST_FAIL");
    const cJSON *l;
    cJSON_ArrayForEach(l, at(json, "layers")) {
        if (strcmp(string_at(l, "path"), "linear_square") == 0)
            assert_string_equal(string_at(l, "reason"),
                                "parameter linear_square.weight is missing");
    }
    cJSON_Delete(json);
    remove_file(&f);
}

static void interrupted(void **state) {
    (void)state;
    const struct ckpt_open_options plain = {0};
    const struct ckpt_adapt_options burn = {0};
    const struct ckpt_reader_options no_prefetch = {.no_prefetch = true};
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_model *m = NULL;
    struct ckpt_reader *reader = NULL;
    const atomic_bool cancel = true;
    struct ckpt_verify_options o = options_for(NULL);
    CKPT_AUTO(str) struct ckpt_str report = {0};
    enum ckpt_status status;
    o.cancel = &cancel;
    assert_int_equal(ckpt_checkpoint_open(A1 "a1_full.pt", &plain, &c, NULL), 0);
    assert_int_equal(ckpt_model_build(c, &burn, &m, NULL), 0);
    assert_int_equal(ckpt_reader_new(&no_prefetch, &reader, NULL), 0);
    assert_int_equal(ckpt_verify_run(reader, m, &o, &report, &status, NULL), -EINTR);
    ckpt_reader_free(reader);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

/* ---- one layer of each kind ---- */

/* Classes and attributes are known: every layer with a probe matches what PyTorch recorded. */
static void recorded_layers(void **state) {
    (void)state;
    struct ckpt_verify_options o = options_for(PROBES "probe_layers_full.pt");
    o.reference = PROBES "probe_layers.reference.safetensors";
    cJSON *const json = verify(PROBES "probe_layers_full.pt", NULL, &o, "PASS");
    int matched = 0;
    const cJSON *l;
    cJSON_ArrayForEach(l, at(json, "layers")) {
        assert_string_equal(string_at(l, "status"), "PASS");
        assert_null(cJSON_GetObjectItem(l, "assumed"));
        if (strcmp(string_at(l, "path"), "mha.out_proj") == 0)
            continue; /* no record of its own */
        assert_string_equal(string_at(l, "recorded.status"), "PASS");
        matched++;
    }
    assert_int_equal(matched, 26);
    assert_int_equal(cJSON_GetArraySize(at(json, "layers")), 27);
    cJSON_Delete(json);
}

#define BURN_NN FIXTURES "/burn-nn/"

/* Layers that compute with their children's tensors stand before them, and the report keeps to its
 * bound. */
static void composite_layers(void **state) {
    (void)state;
    static const char *const paths[] = {"", "layers.0", "layers.0.self_attn",
                                        "layers.0.self_attn.out_proj", "layers.0.multihead_attn"};
    struct ckpt_verify_options o = options_for(BURN_NN "decoder_pre_relu_full.pt");
    o.reference = BURN_NN "decoder_pre_relu.reference.safetensors";
    cJSON *const json = verify(BURN_NN "decoder_pre_relu_full.pt", NULL, &o, "PASS");
    for (int i = 0; i < 5; i++) {
        const cJSON *const l = cJSON_GetArrayItem(at(json, "layers"), i);
        assert_string_equal(string_at(l, "path"), paths[i]);
        assert_string_equal(string_at(l, "status"), "PASS");
    }
    const cJSON *const whole = at(json, "layers")->child;
    assert_string_equal(string_at(whole, "type"), "TransformerDecoder");
    assert_true(at(whole, "recorded.burn_max_abs")->valuedouble < 1e-5);
    assert_int_equal(at(json, "coverage.probed_tensors")->valueint,
                     at(json, "coverage.model_tensors")->valueint);
    cJSON_Delete(json);
}

/* Strides and eps are unknown: both conventions agree all the same. */
static void unknown_attributes(void **state) {
    (void)state;
    static const char *const files[] = {PROBES "probe_layers_state.pt",
                                        PROBES "probe_layers.safetensors"};
    for (size_t i = 0; i < 2; i++) {
        const struct ckpt_verify_options o = options_for(files[i]);
        cJSON *const json = verify(files[i], NULL, &o, "PASS");
        int assumed = 0, compared = 0;
        const cJSON *l;
        cJSON_ArrayForEach(l, at(json, "layers")) {
            assumed += cJSON_GetObjectItem(l, "assumed") != NULL;
            compared += cJSON_GetObjectItem(l, "max_abs") != NULL;
        }
        assert_true(assumed >= 15);
        assert_int_equal(compared, 27);
        cJSON_Delete(json);
    }
}

/* The probes that we make are those that PyTorch was given, bit for bit. */
static void probe_inputs(void **state) {
    (void)state;
    const struct ckpt_open_options plain = {0};
    const struct ckpt_adapt_options burn = {0};
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_model *m = NULL;
    CKPT_AUTO(layers) struct ckpt_layers layers = {0};
    CKPT_AUTO(reference) struct ckpt_reference ref = {0};
    struct ckpt_verify_options o = options_for(NULL);
    struct ckpt_exec exec = {.memory.limit = 1 << 24, .band = 1 << 20};
    o.reference = PROBES "probe_layers.reference.safetensors";
    assert_int_equal(ckpt_checkpoint_open(PROBES "probe_layers_full.pt", &plain, &c, NULL), 0);
    assert_int_equal(ckpt_model_build(c, &burn, &m, NULL), 0);
    assert_int_equal(ckpt_layers_find(m, &layers, NULL), 0);
    assert_int_equal(ckpt_reference_open(&o, &ref, NULL), 0);
    int same = 0;
    for (size_t i = 0; i < layers.n; i++) {
        CKPT_AUTO(inputs) struct ckpt_inputs probe = {0};
        CKPT_AUTO(array) struct ckpt_array recorded = {0};
        const struct ckpt_tensor *const t = ckpt_reference_get(&ref, layers.at[i].path, "input");
        struct ckpt_plan plan;
        ckpt_plan_layer(&layers, &layers.at[i], &plan);
        if (plan.status != CKPT_STATUS_PASS || !t)
            continue;
        assert_int_equal(ckpt_plan_make_probe(&plan, layers.at[i].path, &exec, &probe, NULL), 0);
        assert_int_equal(ckpt_source_load(t, false, NULL, &recorded, NULL), 0);
        assert_int_equal(probe.n, 1);
        assert_true(ckpt_array_same_shape(&probe.at[0], &recorded));
        for (int64_t k = 0; k < ckpt_array_count(&probe.at[0]); k++)
            assert_true(ckpt_array_get(&probe.at[0], k) == ckpt_array_get(&recorded, k));
        same++;
    }
    assert_int_equal(same, 26);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void sidecar_names(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"a.pt", "a!"}, {"dir.x/a", "dir.x/a!"}, {"dir/a.b.pt", "dir/a.b!"}, {"model/", "model!"},
        {"/", "/!"},    {".hidden", ".hidden!"}, {"x/.pt.bin", "x/.pt!"},    {"m.d///", "m!"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CKPT_AUTO(free) char *path = ckpt_reference_sidecar(cases[i][0], "!");
        assert_string_equal(path, cases[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a1_passes),
        cmocka_unit_test(torch_layout_passes),
        cmocka_unit_test(other_widths_pass),
        cmocka_unit_test(sidecar_is_found),
        cmocka_unit_test(changed_weight),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(flipped_byte),
        cmocka_unit_test(wrong_adapter),
        cmocka_unit_test(wrong_chains),
        cmocka_unit_test(seeded_chain),
        cmocka_unit_test(graphs_and_references_that_fail),
        cmocka_unit_test(references_of_no_use),
        cmocka_unit_test(rules_that_cut_are_no_difference),
        cmocka_unit_test(a_cast_beyond_the_tolerance),
        cmocka_unit_test(missing_parameters),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(recorded_layers),
        cmocka_unit_test(composite_layers),
        cmocka_unit_test(unknown_attributes),
        cmocka_unit_test(probe_inputs),
        cmocka_unit_test(sidecar_names),
    };
    return ckpt_guard_install() || cmocka_run_group_tests(tests, NULL, NULL);
}
