/*
 * A list of a burn model's parameters, as JSON. Property: it is refused with a sentence, or every
 * parameter has a name and a dtype and dimensions that exist, and reading it again gives the same.
 */
#include <stdlib.h>
#include <string.h>

#include "adapters/expect.h"

static void require(bool condition) {
    if (!condition)
        abort();
}

static void check(const struct ckpt_parameter *p) {
    require(p->name.s != NULL && p->dtype < CKPT_DT_COUNT && p->ndim <= 64);
    require(p->has_shape ? p->shape != NULL : p->ndim == 0);
    for (uint32_t i = 0; i < p->ndim; i++)
        require(p->shape[i] >= 0);
}

static void check_same(const struct ckpt_parameter *p, const struct ckpt_parameter *q) {
    require(ckpt_text_eq(p->name, q->name) && p->dtype == q->dtype && p->ndim == q->ndim);
    require(p->ndim == 0 || memcmp(p->shape, q->shape, p->ndim * sizeof *p->shape) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ckpt_parameters list = {0}, again = {0};
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    if (ckpt_parameters_parse(&list, &a, data, size, &err) == 0) {
        require(ckpt_parameters_parse(&again, &a, data, size, &err) == 0 && again.n == list.n);
        for (size_t i = 0; i < list.n; i++) {
            check(&list.at[i]);
            check_same(&list.at[i], &again.at[i]);
        }
    } else {
        require(err.text[0] != '\0' && !strchr(err.text, '\n'));
    }
    ckpt_parameters_fini(&list);
    ckpt_parameters_fini(&again);
    ckpt_arena_fini(&a);
    return 0;
}
