/*
 * What the rules cost. A mount reads metadata only, so with ten thousand tensors the decisions
 * (what is each module, which rule fits) must stay a small part of a second; and they read nothing.
 */
#include "toy.h"

#include <time.h>

#include "adapters/model.h"

/* The target is 0.1 s on a quiet machine; one that has other things to do gets three times that. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SECONDS_MAX 3.0
#else
#define SECONDS_MAX 0.3
#endif
#define LAYERS 556 /* of 18 tensors: 10,008 */

static void add(struct ckpt_checkpoint *c, unsigned layer, const char *name, const char *shape) {
    char key[128];
    snprintf(key, sizeof key, "encoder.layers.%u.%s", layer, name);
    toy_tensor(c, key, CKPT_DT_F32, shape, 0);
}

/* Every kind of rule has something to do: within, split, permute, rename, and none. */
static void add_layer(struct ckpt_checkpoint *c, unsigned i) {
    static const char *const vectors[] = {"norm1.weight", "norm1.bias", "norm2.weight",
                                          "norm2.bias",   "extra.bias", "self_attn.out_proj.bias",
                                          "linear2.bias"};
    add(c, i, "self_attn.in_proj_weight", "12,4");
    add(c, i, "self_attn.in_proj_bias", "12");
    add(c, i, "self_attn.out_proj.weight", "4,4");
    add(c, i, "linear1.weight", "8,4");
    add(c, i, "linear1.bias", "8");
    add(c, i, "linear2.weight", "4,8");
    add(c, i, "extra.weight", "4,8");
    add(c, i, "rnn.weight_ih_l0", "16,4");
    add(c, i, "rnn.weight_hh_l0", "16,4");
    add(c, i, "rnn.bias_ih_l0", "16");
    add(c, i, "rnn.bias_hh_l0", "16");
    for (size_t v = 0; v < sizeof vectors / sizeof *vectors; v++)
        add(c, i, vectors[v], "4");
}

/* CPU seconds, the least of three: the machine has other things to do. */
static double seconds_to_build(const struct ckpt_checkpoint *c, enum ckpt_layout layout,
                               size_t *ntensors) {
    double least = 1e9;
    for (int i = 0; i < 3; i++) {
        const struct ckpt_adapt_options options = {.layout = layout, .contiguous = CKPT_ON};
        struct ckpt_model *m;
        const clock_t start = clock();
        assert_int_equal(ckpt_model_build(c, &options, &m, NULL), 0);
        const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        least = seconds < least ? seconds : least;
        *ntensors = m->ntensors;
        ckpt_model_free(m);
    }
    return least;
}

static void test_ten_thousand(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = toy_new();
    size_t plain, adapted;
    for (unsigned i = 0; i < LAYERS; i++)
        add_layer(c, i);
    const double source = seconds_to_build(c, CKPT_LAYOUT_SOURCE, &plain);
    const double burn = seconds_to_build(c, CKPT_LAYOUT_BURN, &adapted);
    printf("%zu tensors become %zu: %.3f s, of which rules and their evidence %.3f s\n", plain,
           adapted, burn, burn - source);
    assert_true(plain >= 10000 && adapted > plain);
    assert_true(burn - source < SECONDS_MAX);
    ckpt_checkpoint_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ten_thousand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
