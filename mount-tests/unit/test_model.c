/*
 * The adapted model of real files: bytes against what burn dumped (fixtures' sha256), and of small
 * checkpoints made in memory: what is refused, warned of, kept apart and tied.
 */
#include "toy.h"

#include <sha256.h>

#include "adapters/model.h"
#include "adapters/reader.h"
#include "base/json.h"

static struct ckpt_model *build(const struct ckpt_checkpoint *c,
                                const struct ckpt_adapt_options *o) {
    struct ckpt_model *m;
    struct ckpt_err err = {0};
    if (ckpt_model_build(c, o, &m, &err))
        fail_msg("%s", err.text);
    return m;
}

/* The sentence of the refusal. */
static const char *refusal(const struct ckpt_checkpoint *c, const struct ckpt_adapt_options *o) {
    static struct ckpt_err err;
    struct ckpt_model *m = NULL;
    err.text[0] = '\0';
    assert_true(ckpt_model_build(c, o, &m, &err) < 0);
    assert_null(m);
    return err.text;
}

static const struct ckpt_adapted *find(const struct ckpt_model *m, const char *key) {
    for (size_t i = 0; i < m->ntensors; i++)
        if (ckpt_text_is(m->tensor[i].key, key))
            return &m->tensor[i];
    fail_msg("no tensor '%s'", key);
    return NULL;
}

static bool has_op(const struct ckpt_adapted *t, const char *op) {
    for (const char *const *o = t->ops; *o; o++)
        if (strcmp(*o, op) == 0)
            return true;
    return false;
}

/* --- real files --- */

static void sha_of(struct ckpt_reader *r, const struct ckpt_adapted *t, char out[65]) {
    unsigned char *bytes = malloc(t->nbytes + 1);
    struct ckpt_err err = {0};
    if (ckpt_reader_read(r, t, 0, t->nbytes, bytes, &err))
        fail_msg("%s", err.text);
    SHA256Data(bytes, t->nbytes, out);
    free(bytes);
}

static char *read_text(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is missing", path);
    char *text = calloc(1, 1 << 17);
    *n = fread(text, 1, (1 << 17) - 1, f);
    fclose(f);
    return text;
}

/* Compares the model with {key: {dtype, shape, sha256}} at top-level member `name`. */
static size_t compare_with(const char *json, const char *name, const struct ckpt_model *m) {
    size_t n, checked = 0;
    char *text = read_text(json, &n), sum[65];
    struct ckpt_json j;
    struct ckpt_reader *r;
    struct ckpt_err err = {0};
    assert_int_equal(ckpt_reader_new(&(struct ckpt_reader_options){.no_prefetch = true}, &r, NULL),
                     0);
    ckpt_json_init(&j, text, n, 64, &err);
    const struct ckpt_adapted *t = NULL;
    bool inside = false;
    for (int k; (k = ckpt_json_next(&j)) != CKPT_JSON_EOF;) {
        if (k < 0)
            fail_msg("%s: %s", json, err.text);
        if (k != CKPT_JSON_KEY)
            continue;
        const struct ckpt_text key = j.text;
        if (j.depth == 1) {
            inside = ckpt_text_is(key, name);
        } else if (inside && j.depth == 2) {
            t = find(m, key.s);
        } else if (inside && ckpt_text_is(key, "sha256")) {
            assert_int_equal(ckpt_json_next(&j), CKPT_JSON_STRING);
            sha_of(r, t, sum);
            if (!ckpt_text_is(j.text, sum))
                fail_msg("%s: bytes differ from burn's", t->key.s);
            checked++;
        }
    }
    ckpt_json_fini(&j);
    ckpt_reader_free(r);
    free(text);
    return checked;
}

static struct ckpt_checkpoint *open_fixture(const char *name) {
    struct ckpt_checkpoint *c;
    struct ckpt_err err = {0};
    const struct ckpt_open_options o = {0};
    char path[512];
    snprintf(path, sizeof path, FIXTURES "/%s", name);
    if (ckpt_checkpoint_open(path, &o, &c, &err))
        fail_msg("%s: %s", name, err.text);
    return c;
}

static void test_a1(void **state) {
    (void)state;
    static const char *const files[] = {"a1.safetensors", "a1_state.pt",       "a1_state_legacy.pt",
                                        "a1_full.pt",     "a1_full_legacy.pt", "a1_ckpt.pt"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "a1/%s", files[i]);
        struct ckpt_checkpoint *c = open_fixture(name);
        struct ckpt_model *m = build(c, &(struct ckpt_adapt_options){0});
        assert_int_equal(compare_with(FIXTURES "/a1/reference.json", "burn_tensors", m), 4);
        assert_int_equal(m->ntransposed, 2);
        assert_int_equal(m->nwarnings, 0);
        assert_true(find(m, "fc1.bias")->untouched);
        assert_false(find(m, "fc1.weight")->untouched);
        assert_int_equal(find(m, "fc1.weight")->part->nop, 1);
        ckpt_model_free(m);
        ckpt_checkpoint_close(c);
    }
}

static void test_norms(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = open_fixture("burn-nn/norms_full.pt");
    struct ckpt_model *m = build(c, &(struct ckpt_adapt_options){0});
    assert_int_equal(compare_with(FIXTURES "/burn-nn/expected_burn.json", "norms", m), 21);
    assert_int_equal(m->nwarnings, 0);
    ckpt_model_free(m);
    m = build(c, &(struct ckpt_adapt_options){.contiguous = CKPT_OFF});
    assert_int_equal(
        compare_with(FIXTURES "/burn-nn/expected_burn.json", "norms:contiguous=off", m), 21);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);

    /* The state dict, once told what it cannot say. */
    c = open_fixture("burn-nn/norms.safetensors");
    const struct ckpt_mapping kind[] = {{CKPT_TEXT("^2$"), CKPT_TEXT("prelu"), "kind="},
                                        {CKPT_TEXT("^8$"), CKPT_TEXT("norm"), "kind="}};
    m = build(c, &(struct ckpt_adapt_options){.kind = kind, .nkind = 2, .contiguous = CKPT_ON});
    assert_int_equal(compare_with(FIXTURES "/burn-nn/expected_burn.json", "norms", m), 21);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

/* modules=store does what burn-store's adapter does, and no more. */
static void test_modules_store(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = open_fixture("burn-nn/norms_full.pt");
    struct ckpt_model *m = build(c, &(struct ckpt_adapt_options){.modules_store = true});
    (void)find(m, "1.weight"); /* InstanceNorm */
    (void)find(m, "1.bias");
    (void)find(m, "2.weight"); /* PReLU */
    (void)find(m, "3.gamma");
    (void)find(m, "4.beta");
    assert_int_equal(m->ntransposed, 2);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void test_shards(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = open_fixture("safetensors/sharded");
    struct ckpt_model *m = build(c, &(struct ckpt_adapt_options){0});
    assert_int_equal(find(m, "lm_head.weight")->shape[0], 4);
    assert_true(find(m, "model.embed_tokens.weight")->untouched);
    assert_true(has_op(find(m, "model.norm.gamma"), "rename"));
    ckpt_model_free(m);
    m = build(c, &(struct ckpt_adapt_options){.layout = CKPT_LAYOUT_TORCH});
    for (size_t i = 0; i < m->ntensors; i++)
        assert_true(m->tensor[i].untouched);
    assert_int_equal(m->nwarnings, 0);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

/* --- made in memory --- */

static struct ckpt_checkpoint *linear(void) {
    struct ckpt_checkpoint *c = toy_new();
    toy_tensor(c, "fc.weight", CKPT_DT_F32, "3,2", 0);
    toy_tensor(c, "fc.bias", CKPT_DT_F32, "3", 6);
    return c;
}

static void test_casts(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = linear();
    toy_tensor(c, "step", CKPT_DT_I64, "", 0);
    struct ckpt_model *m = build(c, &(struct ckpt_adapt_options){.cast = CKPT_DT_BF16});
    const struct ckpt_adapted *w = find(m, "fc.weight");
    assert_int_equal(w->dtype, CKPT_DT_BF16);
    assert_int_equal(w->nbytes, 12);
    assert_int_equal(w->part->nbytes, 12);
    assert_true(has_op(w, "cast:bf16") && has_op(w, "transpose"));
    assert_int_equal(find(m, "step")->dtype, CKPT_DT_I64);
    assert_true(find(m, "step")->untouched);
    assert_int_equal(m->ncast, 2);
    ckpt_model_free(m);
    m = build(c, &(struct ckpt_adapt_options){.cast = CKPT_DT_F32});
    assert_int_equal(m->ncast, 0); /* it is F32 already */
    ckpt_model_free(m);
    m = build(c, &(struct ckpt_adapt_options){.cast = CKPT_DT_F16, .layout = CKPT_LAYOUT_SOURCE});
    assert_int_equal(m->ncast + m->ntransposed, 0);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

/* Outside the model nothing is adapted. */
static void test_outside(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = toy_new();
    toy_tensor(c, "model/2.weight", CKPT_DT_F32, "3,2", 0);
    toy_tensor(c, "model/2.bias", CKPT_DT_F32, "3", 0);
    toy_tensor(c, "optimizer/state/7/weight", CKPT_DT_F32, "3,2", 0);
    const struct ckpt_mapping map = {CKPT_TEXT("weight"), CKPT_TEXT("w"), "map="};
    const struct ckpt_adapt_options o = {
        .map = &map, .nmap = 1, .contiguous = CKPT_ON, .cast = CKPT_DT_F16};
    struct ckpt_model *m = build(c, &o);
    assert_true(find(m, "0.w")->in_model);
    const struct ckpt_adapted *t = find(m, "optimizer.state.7.weight");
    assert_true(t->untouched && !t->in_model && !t->ops[0]);
    assert_int_equal(t->dtype, CKPT_DT_F32);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void test_clash(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = linear();
    const struct ckpt_mapping map = {CKPT_TEXT("weight|bias"), CKPT_TEXT("x"), "map="};
    struct ckpt_adapt_options o = {.map = &map, .nmap = 1, .layout = CKPT_LAYOUT_TORCH};
    assert_string_equal(refusal(c, &o),
                        "two tensors get the key 'fc.x': 'fc.weight' and 'fc.bias'; rename one "
                        "with map=, or leave one out with exclude=");
    ckpt_checkpoint_close(c);
    c = toy_new();
    toy_tensor(c, "a.b", CKPT_DT_F32, "1", 0);
    toy_tensor(c, "a/b", CKPT_DT_F32, "1", 0);
    for (int layout = CKPT_LAYOUT_BURN; layout <= CKPT_LAYOUT_SOURCE; layout++) {
        o = (struct ckpt_adapt_options){.layout = (enum ckpt_layout)layout};
        assert_non_null(strstr(refusal(c, &o), "two tensors get the key 'a.b'"));
    }
    ckpt_checkpoint_close(c);
}

static void test_filter(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = linear();
    toy_tensor(c, "n.weight", CKPT_DT_F32, "4", 0);
    toy_tensor(c, "n.bias", CKPT_DT_F32, "4", 0);
    const char *const include[] = {"^fc", "gamma$"}, *const exclude[] = {"bias"};
    struct ckpt_adapt_options o = {
        .include = include, .ninclude = 2, .exclude = exclude, .nexclude = 1};
    struct ckpt_model *m = build(c, &o);
    assert_int_equal(m->ntensors, 2); /* by the adapted key */
    (void)find(m, "fc.weight");
    (void)find(m, "n.gamma");
    assert_int_equal(m->nrenamed, 1); /* not n.beta, which is left out */
    ckpt_model_free(m);
    const char *const wrong[] = {"^n\\.gama$"};
    o = (struct ckpt_adapt_options){.exclude = wrong, .nexclude = 1};
    m = build(c, &o);
    assert_int_equal(m->nwarnings, 1);
    assert_string_equal(m->warnings[0].s,
                        "exclude='^n\\.gama$' matches no tensor; did you mean 'n.gamma'?");
    ckpt_model_free(m);
    const char *const all[] = {".*"};
    o = (struct ckpt_adapt_options){.exclude = all, .nexclude = 1};
    m = build(c, &o);
    assert_int_equal(m->ntensors, 0);
    assert_int_equal(m->nwarnings, 1);
    assert_string_equal(m->warnings[0].s,
                        "exclude= leaves no tensor of the model: model.safetensors is empty");
    ckpt_model_free(m);
    const char *const broken[] = {"["};
    o = (struct ckpt_adapt_options){.include = broken, .ninclude = 1};
    assert_non_null(strstr(refusal(c, &o), "include='[': the regex is wrong at byte 1"));
    ckpt_checkpoint_close(c);
}

static void test_unused_map(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = linear();
    const struct ckpt_mapping map = {CKPT_TEXT("^fc\\.wieght$"), CKPT_TEXT("x"), "map="};
    struct ckpt_adapt_options o = {.map = &map, .nmap = 1};
    struct ckpt_model *m = build(c, &o);
    assert_string_equal(m->warnings[0].s,
                        "map='^fc\\.wieght$' renames no key; did you mean 'fc.weight'?");
    ckpt_model_free(m);
    o.strict = true;
    assert_string_equal(refusal(c, &o), "map='^fc\\.wieght$' renames no key; did you mean "
                                        "'fc.weight'? (strict: a warning is an error)");
    ckpt_checkpoint_close(c);
}

/* A name that no rule knows any more is told; one that the rule itself would have given is not. */
static void test_lost_to_rules(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = linear();
    toy_tensor(c, "norm.weight", CKPT_DT_F32, "4", 0);
    toy_tensor(c, "norm.bias", CKPT_DT_F32, "4", 0);
    const struct ckpt_mapping map[] = {{CKPT_TEXT("fc.weight"), CKPT_TEXT("fc.w"), "map="},
                                       {CKPT_TEXT("norm.weight"), CKPT_TEXT("norm.gamma"), "map="}};
    struct ckpt_model *m = build(c, &(struct ckpt_adapt_options){.map = map, .nmap = 2});
    assert_int_equal(m->ntransposed, 0);
    assert_int_equal(m->nwarnings, 1);
    assert_string_equal(m->warnings[0].s,
                        "by the names that map= gave them no rule knows these tensors, which "
                        "keep PyTorch's layout (1): fc.w (fc.weight, burn-store: rule 1); keep the "
                        "last part of the name (weight), or rename in a rule (rules=)");
    ckpt_model_free(m);
    const struct ckpt_mapping folder = {CKPT_TEXT("^fc\\."), CKPT_TEXT("head."), "map="};
    m = build(c, &(struct ckpt_adapt_options){.map = &folder, .nmap = 1});
    assert_int_equal(m->ntransposed, 1);
    assert_int_equal(m->nwarnings, 0);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

/* What says that it is in burn's layout is left alone. */
static void test_dialects(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = linear();
    struct ckpt_pair pair = {CKPT_TEXT("mount.ckpt.layout"), CKPT_TEXT("burn")};
    c->metadata = &pair;
    c->nmetadata = 1;
    struct ckpt_model *m = build(c, &(struct ckpt_adapt_options){0});
    assert_string_equal(m->dialect, "burn");
    assert_true(find(m, "fc.weight")->untouched);
    ckpt_model_free(m);
    m = build(c, &(struct ckpt_adapt_options){.dialect = "torch"});
    assert_int_equal(m->ntransposed, 1);
    ckpt_model_free(m);
    m = build(c, &(struct ckpt_adapt_options){.layout = CKPT_LAYOUT_TORCH});
    assert_true(find(m, "fc.weight")->untouched); /* by its shape it is in PyTorch's already */
    assert_int_equal(m->nwarnings, 0);
    ckpt_model_free(m);
    pair = (struct ckpt_pair){CKPT_TEXT("producer"), CKPT_TEXT("burn")};
    m = build(c, &(struct ckpt_adapt_options){.dialect = "auto"});
    assert_string_equal(m->dialect, "burn");
    ckpt_model_free(m);
    assert_string_equal(refusal(c, &(struct ckpt_adapt_options){.dialect = "torhc"}),
                        "dialect=torhc is unknown; did you mean 'torch'?");
    c->metadata = NULL;
    c->nmetadata = 0;
    ckpt_checkpoint_close(c);
}

/* An embedding and the head that shares its storage: each in its own layout. */
static void test_ties(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = toy_new();
    const struct ckpt_tensor *e = toy_tensor(c, "embedding.weight", CKPT_DT_F32, "5,3", 0);
    struct ckpt_blob *blob = e->blob;
    toy_tensor(c, "head.weight", CKPT_DT_F32, "5,3", 0)->blob = blob;
    struct ckpt_tensor *row = toy_tensor(c, "row", CKPT_DT_F32, "3", 0);
    row->blob = blob; /* a part of the same storage is no tie */
    toy_tensor(c, "empty", CKPT_DT_F32, "0", 0)->blob = blob;
    toy_tensor(c, "void", CKPT_DT_F32, "0", 0)->blob = blob;
    struct ckpt_model *m = build(c, &(struct ckpt_adapt_options){0});
    assert_int_equal(find(m, "embedding.weight")->ntied, 1);
    assert_true(ckpt_text_is(find(m, "embedding.weight")->tied[0], "head.weight"));
    assert_true(find(m, "embedding.weight")->untouched);
    assert_true(has_op(find(m, "head.weight"), "transpose"));
    assert_int_equal(find(m, "row")->ntied + find(m, "empty")->ntied, 0);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static bool tied_to(const struct ckpt_model *m, const char *key, const char *other) {
    const struct ckpt_adapted *t = find(m, key);
    return t->ntied == 1 && ckpt_text_is(t->tied[0], other);
}

/* Of two attentions that share their weights q is tied to q, not to k. */
static void test_ties_of_pieces(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = toy_new();
    struct ckpt_blob *blob = toy_tensor(c, "0.in_proj_weight", CKPT_DT_F32, "6,2", 0)->blob;
    toy_tensor(c, "1.in_proj_weight", CKPT_DT_F32, "6,2", 0)->blob = blob;
    struct ckpt_model *m = build(c, &(struct ckpt_adapt_options){0});
    assert_true(tied_to(m, "0.query.weight", "1.query.weight"));
    assert_true(tied_to(m, "1.key.weight", "0.key.weight"));
    assert_true(tied_to(m, "0.value.weight", "1.value.weight"));
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void test_dtypes(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = toy_new();
    toy_tensor(c, "a.b", CKPT_DT_U16, "2", 0);
    toy_tensor(c, "c", CKPT_DT_C128, "2", 0);
    struct ckpt_model *m = build(c, &(struct ckpt_adapt_options){0});
    assert_int_equal(m->nwarnings, 2);
    assert_non_null(strstr(m->warnings[0].s, "U16"));
    assert_non_null(strstr(m->warnings[0].s, "exclude=^a\\.b$"));
    assert_non_null(strstr(m->warnings[1].s, "C128"));
    assert_true(find(m, "c")->in_model);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

/* Elements smaller than a byte are not moved. */
static void test_packed(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = toy_new();
    toy_tensor(c, "fc.weight", CKPT_DT_F4, "4,2", 0);
    const struct ckpt_mapping kind = {CKPT_TEXT("fc"), CKPT_TEXT("linear"), "kind="};
    struct ckpt_model *m = build(c, &(struct ckpt_adapt_options){.kind = &kind, .nkind = 1});
    assert_true(find(m, "fc.weight")->untouched);
    assert_int_equal(find(m, "fc.weight")->shape[0], 4);
    assert_non_null(strstr(m->warnings[0].s, "smaller than a byte"));
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void test_source_tree(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = toy_new();
    toy_tensor(c, "model/module.fc.weight", CKPT_DT_F32, "3,2", 0);
    toy_tensor(c, "epoch", CKPT_DT_F32, "", 0);
    struct ckpt_model *m;
    assert_int_equal(ckpt_model_build_source(c, &m, NULL), 0);
    const struct ckpt_adapted *t = find(m, "model.module.fc.weight");
    assert_true(t->untouched && !t->in_model);
    assert_int_equal(t->path.n, 4);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

/* Many tensors: numbers close up, and what they have in common is said once. */
static void test_many(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = toy_new();
    for (int i = 0; i < 3000; i++) {
        char key[64];
        snprintf(key, sizeof key, "layers.%d.weight", 2 * i);
        toy_tensor(c, key, CKPT_DT_F32, "2,3", 0);
    }
    struct ckpt_model *m = build(c, &(struct ckpt_adapt_options){.contiguous = CKPT_ON});
    assert_int_equal(m->nrenumbered, 2999);
    assert_int_equal(m->nwarnings, 1); /* one sentence for all of them */
    (void)find(m, "layers.2999.weight");
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a1),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_modules_store),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_clash),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_unused_map),
        cmocka_unit_test(test_lost_to_rules),
        cmocka_unit_test(test_dialects),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_ties_of_pieces),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_source_tree),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
