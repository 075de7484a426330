/*
 * Running a forward. Layers take sequences as [L, B, E], or as [B, L, E] with batch_first, or alone
 * as [L, E]; forwards know batches first only:
 *
 *     input [L, B, E] --turned--> [B, L, E] --forward--> [B, L, F] --turned back--> [L, B, F]
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/forward.h"

enum form { BATCH_FIRST, SEQUENCE_FIRST, ALONE };

static enum form form_of(const struct ckpt_scope *s, const struct ckpt_array *input) {
    if (input->ndim == 2)
        return ALONE;
    return ckpt_scope_bool(s, "batch_first") ? BATCH_FIRST : SEQUENCE_FIRST;
}

static int swap_first(const struct ckpt_scope *s, const struct ckpt_array *a,
                      struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array turned = ckpt_array_permute(a, (uint32_t[]){1, 0, 2});
    return ckpt_array_contiguous(&turned, &s->exec->memory, out, err);
}

static int to_batches(const struct ckpt_scope *s, enum form form, const struct ckpt_array *a,
                      struct ckpt_array *out, struct ckpt_err *err) {
    const uint32_t ndim = form == ALONE ? 2 : 3;
    char text[64];
    if (a->dtype != CKPT_DT_F32)
        return ckpt_fail(err, -EINVAL, "an input is %s, expected F32",
                         ckpt_dtype_info(a->dtype)->name);
    if (a->ndim != ndim)
        return ckpt_fail(err, -EINVAL, "an input has shape %s, expected %u dimensions",
                         ckpt_array_shape_text(a, text, sizeof(text)), ndim);
    if (form == SEQUENCE_FIRST)
        return swap_first(s, a, out, err);
    if (form == BATCH_FIRST)
        return ckpt_array_contiguous(a, &s->exec->memory, out, err);
    return ckpt_array_reshape(a, (int64_t[]){1, a->shape[0], a->shape[1]}, 3, &s->exec->memory, out,
                              err);
}

static int from_batches(const struct ckpt_scope *s, enum form form, const struct ckpt_array *a,
                        struct ckpt_array *out, struct ckpt_err *err) {
    if (form == SEQUENCE_FIRST)
        return swap_first(s, a, out, err);
    if (form == ALONE)
        return ckpt_array_reshape(a, a->shape + 1, 2, &s->exec->memory, out, err);
    *out = ckpt_array_ref(a);
    return 0;
}

int ckpt_forward_run(const struct ckpt_plan *plan, enum ckpt_side side, struct ckpt_reader *reader,
                     const struct ckpt_inputs *in, struct ckpt_exec *exec, struct ckpt_array *out,
                     struct ckpt_err *err) {
    const bool served = side == CKPT_SIDE_SERVED;
    const struct ckpt_scope s = {.plan = plan,
                                 .reader = reader,
                                 .exec = exec,
                                 .side = side,
                                 .burn = served && plan->layers->model->layout == CKPT_LAYOUT_BURN,
                                 .key = served ? plan->prefix : plan->layer->path};
    CKPT_AUTO(inputs) struct ckpt_inputs batches = {0};
    CKPT_AUTO(array) struct ckpt_array result = {0};
    const enum form form = form_of(&s, &in->at[0]);
    int rc = ckpt_exec_check(exec, err);
    memset(out, 0, sizeof(*out));
    for (; rc == 0 && batches.n < in->n; batches.n += rc == 0)
        rc = to_batches(&s, form, &in->at[batches.n], &batches.at[batches.n], err);
    ckpt_forward_fn *const run = s.burn ? plan->forward->burn : plan->forward->torch;
    if (rc == 0)
        rc = run(&s, &batches, &result, err);
    return rc < 0 ? rc : from_batches(&s, form, &result, out, err);
}
