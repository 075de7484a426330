/* Running a plan: its parameters are bound to the source or to the served bytes. */
#include <string.h>

#include "base/cleanup.h"
#include "verify/forward.h"
#include "verify/rng.h"

void ckpt_inputs_fini(struct ckpt_inputs *in) {
    for (uint32_t i = 0; i < CKPT_PLAN_INPUTS; i++)
        ckpt_array_fini(&in->at[i]);
    in->n = 0;
}

struct bounds {
    struct ckpt_bound at[CKPT_PLAN_PARAMS];
    struct ckpt_arg arg[CKPT_PLAN_ARGS + CKPT_PLAN_PARAMS + 1];
    uint32_t n, nargs;
};

static void bounds_fini(struct bounds *b) {
    for (uint32_t i = 0; i < b->n; i++)
        ckpt_bound_fini(&b->at[i]);
}
CKPT_DEFINE_AUTO(bounds, struct bounds, bounds_fini)

static int bind_param(struct bounds *b, const struct ckpt_plan_param *p, enum ckpt_side side,
                      struct ckpt_reader *reader, struct ckpt_err *err) {
    const bool served = side == CKPT_SIDE_SERVED;
    struct ckpt_bound *const to = &b->at[b->n++];
    struct ckpt_arg *const a = &b->arg[b->nargs++];
    const int rc = ckpt_bound_init(to, served ? p->served : p->tensor, side, reader, err);
    to->param->in_out = served ? p->in_out_served : p->in_out_source;
    *a = (struct ckpt_arg){.name = p->arg, .kind = CKPT_ARG_PARAM};
    a->param = to->param;
    return rc;
}

/* An attribute, as the side's layer has it. */
static struct ckpt_arg attribute(const struct ckpt_plan *p, uint32_t i, enum ckpt_side side) {
    const bool otherwise = side == CKPT_SIDE_SERVED && p->in_burn.name &&
                           p->layers->model->layout == CKPT_LAYOUT_BURN &&
                           strcmp(p->arg[i].name, p->in_burn.name) == 0;
    return otherwise ? p->in_burn : p->arg[i];
}

int ckpt_plan_run(const struct ckpt_plan *plan, enum ckpt_side side, struct ckpt_reader *reader,
                  const struct ckpt_inputs *in, struct ckpt_exec *exec, struct ckpt_array *out,
                  struct ckpt_err *err) {
    CKPT_AUTO(bounds) struct bounds b = {0};
    int rc = 0;
    memset(out, 0, sizeof(*out));
    if (plan->forward)
        return ckpt_forward_run(plan, side, reader, in, exec, out, err);
    b.arg[b.nargs] = (struct ckpt_arg){.name = plan->input, .kind = CKPT_ARG_ARRAY};
    b.arg[b.nargs++].array = &in->at[0];
    for (uint32_t i = 0; i < plan->nargs; i++)
        b.arg[b.nargs++] = attribute(plan, i, side);
    for (uint32_t i = 0; rc == 0 && i < plan->nparams; i++)
        rc = bind_param(&b, &plan->param[i], side, reader, err);
    return rc < 0 ? rc : ckpt_op_run(plan->op, b.arg, b.nargs, exec, out, err);
}

static int make_one(const struct ckpt_plan_probe *probe, struct ckpt_rng *rng,
                    struct ckpt_exec *exec, struct ckpt_array *out, struct ckpt_err *err) {
    const bool ids = probe->id_limit > 0;
    const int rc = ckpt_array_new(out, &exec->memory, ids ? CKPT_DT_I64 : CKPT_DT_F32, probe->shape,
                                  probe->ndim, err);
    const int64_t count = rc < 0 ? 0 : ckpt_array_count(out);
    for (int64_t i = 0; i < count; i++) {
        if (!ids)
            ckpt_array_f32(out)[i] = ckpt_rng_float(rng);
        else if (i < 2) /* the first and the last row, then random ones */
            ckpt_array_i64(out)[i] = i == 0 ? 0 : probe->id_limit - 1;
        else
            ckpt_array_i64(out)[i] = ckpt_rng_index(rng, probe->id_limit);
    }
    return rc;
}

int ckpt_plan_make_probe(const struct ckpt_plan *plan, struct ckpt_text path,
                         struct ckpt_exec *exec, struct ckpt_inputs *out, struct ckpt_err *err) {
    struct ckpt_rng rng = ckpt_rng_seeded(path);
    int rc = 0;
    memset(out, 0, sizeof(*out));
    for (; rc == 0 && out->n < plan->nprobes; out->n += rc == 0)
        rc = make_one(&plan->probe[out->n], &rng, exec, &out->at[out->n], err);
    return rc;
}
