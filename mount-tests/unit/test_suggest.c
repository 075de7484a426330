/* Pairs of like names: what a person would say, and what must hold of any two lists. */
#include "toy.h"

#include <time.h>

#include "adapters/suggest.h"
#include "property.h"

enum { MOST = 64 };

struct list {
    struct ckpt_suggest_item at[MOST];
    size_t n;
};

/* "fc.weight 4,2; fc.bias; ..." */
static struct list parse(struct ckpt_arena *a, const char *text) {
    struct list l = {.n = 0};
    char *copy = ckpt_arena_printf(a, "%s", text), *s;
    while ((s = strsep(&copy, ";"))) {
        s += strspn(s, " ");
        char *name = strsep(&s, " ");
        struct ckpt_suggest_item *item = &l.at[l.n++];
        item->name = ckpt_text_of(name);
        item->shape = s ? toy_shape(a, s, &item->ndim) : NULL;
    }
    return l;
}

/* expected: the partners' names, "-" for none. */
static void check(const char *here, const char *there, const char *expected) {
    struct ckpt_arena a = {0};
    const struct list x = parse(&a, here), y = parse(&a, there), e = parse(&a, expected);
    size_t partner[MOST];
    assert_int_equal(ckpt_suggest_pairs(x.at, x.n, y.at, y.n, partner, NULL), 0);
    assert_int_equal(e.n, x.n);
    for (size_t i = 0; i < x.n; i++)
        assert_string_equal(partner[i] == CKPT_SUGGEST_NONE ? "-" : y.at[partner[i]].name.s,
                            e.at[i].name.s);
    ckpt_arena_fini(&a);
}

static void test_names(void **state) {
    (void)state;
    check("fc1.wieght", "fc2.weight; fc1.weight", "fc1.weight");
    check("l.0.norm_1.gamma; l.0.norm_2.gamma; l.1.norm_1.gamma",
          "l.1.norm1.gamma; l.0.norm2.gamma; l.0.norm1.gamma",
          "l.0.norm1.gamma; l.0.norm2.gamma; l.1.norm1.gamma");
    check("norm.gamma 8; norm.beta 8", "norm.weight 8; norm.bias 8", "norm.weight; norm.bias");
    check("net.fc1.weight", "model.net.fc1.weight", "model.net.fc1.weight");
    /* An ending that all keys have makes no pair. */
    check("head.weight", "fc1.weight", "-");
    /* None twice: the better pair has it. */
    check("encoder.weigth; encoder.weight_", "encoder.weight", "-; encoder.weight");
    check("layers.1.fc.weight; layers.11.fc.weight", "layers.11.fcs.weight",
          "-; layers.11.fcs.weight");
}

static void test_shapes(void **state) {
    (void)state;
    check("block.proj_a 4", "block.proj_b 8; block.proj_c 4", "block.proj_c");
    check("block.proj_a 4,2", "block.proj_b 8,8; block.proj_c 2,4", "block.proj_c");
    /* The name alone, if it is like enough. */
    check("encoder.embed.weight 10,4", "encoder.embed_.weight 12,4", "encoder.embed_.weight");
    const int64_t s[] = {2, 3}, t[] = {3, 2}, u[] = {2, 4};
    const struct ckpt_suggest_item a = {CKPT_TEXT("a"), s, 2}, b = {CKPT_TEXT("b"), t, 2},
                                   c = {CKPT_TEXT("c"), u, 2}, d = {CKPT_TEXT("d"), NULL, 0};
    assert_int_equal(ckpt_suggest_shape_of(&a, &a), CKPT_SUGGEST_SAME);
    assert_int_equal(ckpt_suggest_shape_of(&a, &b), CKPT_SUGGEST_TRANSPOSED);
    assert_int_equal(ckpt_suggest_shape_of(&a, &c), CKPT_SUGGEST_OTHER);
    assert_int_equal(ckpt_suggest_shape_of(&a, &d), CKPT_SUGGEST_UNKNOWN);
}

static void test_empty(void **state) {
    (void)state;
    const struct ckpt_suggest_item one = {.name = CKPT_TEXT("a")};
    size_t partner[1] = {7};
    assert_int_equal(ckpt_suggest_pairs(&one, 0, &one, 1, partner, NULL), 0);
    assert_int_equal(partner[0], 7);
    assert_int_equal(ckpt_suggest_pairs(&one, 1, &one, 0, partner, NULL), 0);
    assert_true(partner[0] == CKPT_SUGGEST_NONE);
}

/* Random lists: one-to-one, repeatable, and a name that stands in both lists finds itself. */
static void test_random(void **state) {
    (void)state;
    static const char *const words[] = {"fc", "conv", "norm", "attn", "proj", "0", "1", "12"};
    property_begin("suggest");
    for (int round = 0; round < 200; round++) {
        struct ckpt_arena a = {0};
        struct ckpt_suggest_item x[MOST], y[MOST];
        size_t partner[MOST], again[MOST], n = 1 + property_below(MOST);
        for (size_t i = 0; i < n; i++) {
            char *name = ckpt_arena_printf(&a, "m%zu.%s.%s.weight", i, words[property_below(8)],
                                           words[property_below(8)]);
            x[i] = (struct ckpt_suggest_item){.name = ckpt_text_of(name)};
            y[n - 1 - i] = x[i];
            if (property_below(4) == 0) /* some are called otherwise there */
                y[n - 1 - i].name = ckpt_text_of(ckpt_arena_printf(&a, "%s_", name));
        }
        assert_int_equal(ckpt_suggest_pairs(x, n, y, n, partner, NULL), 0);
        assert_int_equal(ckpt_suggest_pairs(x, n, y, n, again, NULL), 0);
        assert_memory_equal(partner, again, n * sizeof *partner);
        bool taken[MOST] = {false};
        for (size_t i = 0; i < n; i++) {
            if (ckpt_text_eq(x[i].name, y[n - 1 - i].name))
                assert_int_equal(partner[i], n - 1 - i);
            if (partner[i] == CKPT_SUGGEST_NONE)
                continue;
            assert_false(taken[partner[i]]);
            taken[partner[i]] = true;
        }
        ckpt_arena_fini(&a);
    }
}

/* Lists far over the limit of comparisons: neighbours in the alphabet are enough for what a rename
 * leaves of a key, and the time is bounded. */
static void test_many(void **state) {
    (void)state;
    enum { N = 10000 };
    struct ckpt_arena a = {0};
    struct ckpt_suggest_item *x = calloc(N, sizeof *x), *y = calloc(N, sizeof *y);
    size_t *partner = calloc(N, sizeof *partner);
    static const char *const leaf[] = {"q", "k", "v", "o"};
    for (size_t i = 0; i < N; i++) {
        const char *l = leaf[i % 4];
        x[i].name = ckpt_text_of(ckpt_arena_printf(&a, "blocks.%zu.attn.%s.weight", i / 4, l));
        y[N - 1 - i].name =
            ckpt_text_of(ckpt_arena_printf(&a, "net.blocks.%zu.attn.%s_.weight", i / 4, l));
    }
    const clock_t start = clock();
    assert_int_equal(ckpt_suggest_pairs(x, N, y, N, partner, NULL), 0);
    printf("%d names each: %.3f s\n", N, (double)(clock() - start) / CLOCKS_PER_SEC);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(partner[i], N - 1 - i);
    ckpt_arena_fini(&a);
    free(x);
    free(y);
    free(partner);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),  cmocka_unit_test(test_shapes), cmocka_unit_test(test_empty),
        cmocka_unit_test(test_random), cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
