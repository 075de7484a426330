/* What a graph may ask of arithmetic, reductions and products and cannot have: a sentence, no
 * crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

static struct ckpt_array x, y, whole, truth, none;

static struct ckpt_arg array(const char *name, const struct ckpt_array *a) {
    struct ckpt_arg arg = {.name = name, .kind = CKPT_ARG_ARRAY};
    arg.array = a;
    return arg;
}

static struct ckpt_arg integer(const char *name, int64_t i) {
    struct ckpt_arg arg = {.name = name, .kind = CKPT_ARG_INT};
    arg.i = i;
    return arg;
}

static struct ckpt_arg text(const char *name, const char *s) {
    struct ckpt_arg arg = {.name = name, .kind = CKPT_ARG_STRING};
    arg.string = s;
    return arg;
}

static void refuse(const char *op, const char *overload, const struct ckpt_arg *arg, uint32_t n,
                   const char *word) {
    struct ckpt_exec exec = {.memory.limit = 1 << 20, .band = 1 << 10};
    struct ckpt_array out[2] = {0};
    struct ckpt_err err = {0};
    const struct ckpt_op *const found =
        ckpt_op_find_overload(ckpt_text_of(op), ckpt_text_of(overload));
    assert_non_null(found);
    assert_true(ckpt_op_run_all(found, arg, n, &exec, out, 1, &err) < 0);
    assert_null(out[0].store);
    assert_int_equal(exec.memory.used, 0);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not say \"%s\"", err.text, word);
}

#define REFUSE(op, overload, word, ...)                                                            \
    refuse(op, overload, (const struct ckpt_arg[]){__VA_ARGS__},                                   \
           sizeof((const struct ckpt_arg[]){__VA_ARGS__}) / sizeof(struct ckpt_arg), word)

static void element_wise(void **state) {
    (void)state;
    REFUSE("add", "Tensor", "do not broadcast", array("self", &x), array("other", &y));
    REFUSE("add", "Tensor", "other is missing", array("self", &x));
    REFUSE("add", "Tensor", "not a tensor", array("self", &x), text("other", "1"));
    REFUSE("sub", "Tensor", "not defined for BOOL", array("self", &truth), array("other", &truth));
    REFUSE("floor_divide", "", "by zero", array("self", &whole), integer("other", 0));
    REFUSE("remainder", "Scalar", "by zero", array("self", &whole), integer("other", 0));
    REFUSE("div", "Tensor_mode", "rounding_mode", array("self", &x), integer("other", 2),
           text("rounding_mode", "up"));
    REFUSE("silu", "", "not defined for I64", array("self", &whole));
    REFUSE("bitwise_and", "Tensor", "not defined for F32", array("self", &x), array("other", &x));
    REFUSE("clamp", "", "neither", array("self", &x));
    REFUSE("glu", "", "cannot be halved", array("self", &x));
    const struct ckpt_arg train = {.name = "train", .kind = CKPT_ARG_BOOL, .b = true};
    REFUSE("dropout", "", "training mode", array("input", &x), train);
}

static void along_dimensions(void **state) {
    (void)state;
    REFUSE("sum", "dim_IntList", "no dimension 5", array("self", &x), integer("dim", 5));
    REFUSE("mean", "", "not defined for I64", array("self", &whole));
    REFUSE("max", "", "no elements", array("self", &none));
    REFUSE("argmax", "", "no elements", array("self", &none));
    REFUSE("softmax", "int", "integers", array("self", &whole), integer("dim", 0));
    REFUSE("topk", "", "wants 4 of 3", array("self", &x), integer("k", 4));
    REFUSE("topk", "", "missing or negative", array("self", &x), integer("k", -1));
    REFUSE("cumsum", "", "no dimension -3", array("self", &x), integer("dim", -3));
    REFUSE("bincount", "", "vector of integers", array("self", &x));
    REFUSE("bincount", "", "beyond verify_memory", array("self", &whole),
           integer("minlength", INT64_MAX / 64));
    REFUSE("histc", "", "at least one bin", array("self", &x), integer("bins", 0));
}

static void products(void **state) {
    (void)state;
    const struct ckpt_arg items[] = {array(NULL, &x), array(NULL, &y)};
    struct ckpt_arg list = {.name = "tensors", .kind = CKPT_ARG_LIST};
    list.list.v = items;
    list.list.n = 2;
    REFUSE("mm", "", "cannot multiply [2, 3] by [4, 5]", array("self", &x), array("mat2", &y));
    REFUSE("mm", "", "expected 2", array("self", &x), array("mat2", &whole));
    REFUSE("bmm", "", "expected 3", array("self", &x), array("mat2", &x));
    REFUSE("matmul", "", "F32 and I64", array("self", &x), array("other", &whole));
    REFUSE("einsum", "", "do not broadcast", text("equation", "ij,jk->ik"), list);
    REFUSE("einsum", "", "does not fit 2", text("equation", "ij->ij"), list);
    REFUSE("einsum", "", "cannot be read", text("equation", "i?,jk->ik"), list);
    REFUSE("einsum", "", "labels", text("equation", "i,jk->ik"), list);
    REFUSE("einsum", "", "no operand has", text("equation", "ij,kl->iz"), list);
    REFUSE("einsum", "", "does not fit", text("equation", "ij,kl->ii"), list);
}

static int make(void **state) {
    (void)state;
    int rc = ckpt_array_new(&x, NULL, CKPT_DT_F32, (int64_t[]){2, 3}, 2, NULL);
    rc |= ckpt_array_new(&y, NULL, CKPT_DT_F32, (int64_t[]){4, 5}, 2, NULL);
    rc |= ckpt_array_new(&whole, NULL, CKPT_DT_I64, (int64_t[]){3}, 1, NULL);
    rc |= ckpt_array_new(&truth, NULL, CKPT_DT_BOOL, (int64_t[]){3}, 1, NULL);
    rc |= ckpt_array_new(&none, NULL, CKPT_DT_F32, (int64_t[]){0}, 1, NULL);
    return rc;
}

static int drop(void **state) {
    (void)state;
    struct ckpt_array *const all[] = {&x, &y, &whole, &truth, &none};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        ckpt_array_fini(all[i]);
    return 0;
}

/* Of no elements, but with strides beyond 64 bits. */
static void nothing_of_a_huge_shape(void **state) {
    (void)state;
    const struct ckpt_arg size = {
        .name = "size", .kind = CKPT_ARG_INTS, .ints = {(int64_t[]){0, INT64_MAX}, 2}};
    REFUSE("eye", "m", "too large", integer("n", 0), integer("m", INT64_MAX));
    REFUSE("zeros", "", "too large", size);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(element_wise),
        cmocka_unit_test(along_dimensions),
        cmocka_unit_test(products),
        cmocka_unit_test(nothing_of_a_huge_shape),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
