/* Running a plan: its parameters are bound to the source or to the served bytes. */
#include <string.h>

#include "base/cleanup.h"
#include "verify/plan.h"
#include "verify/rng.h"
#include "verify/source.h"

/* One parameter of either run. */
struct bound {
    struct ckpt_source_param source;
    struct ckpt_served_param served;
};

struct bounds {
    struct bound at[CKPT_PLAN_PARAMS];
    struct ckpt_arg arg[CKPT_PLAN_ARGS + CKPT_PLAN_PARAMS + 1];
    uint32_t n, nargs;
};

static void bounds_fini(struct bounds *b) {
    for (uint32_t i = 0; i < b->n; i++)
        ckpt_source_param_fini(&b->at[i].source);
}
CKPT_DEFINE_AUTO(bounds, struct bounds, bounds_fini)

static int bind_param(struct bounds *b, const struct ckpt_plan_param *p, enum ckpt_side side,
                      struct ckpt_reader *reader, struct ckpt_err *err) {
    struct bound *const to = &b->at[b->n++];
    struct ckpt_arg *const a = &b->arg[b->nargs++];
    *a = (struct ckpt_arg){.name = p->arg, .kind = CKPT_ARG_PARAM};
    if (side == CKPT_SIDE_TORCH) {
        const int rc = ckpt_source_param_init(&to->source, p->tensor, err);
        to->source.param.in_out = p->in_out_source;
        a->param = &to->source.param;
        return rc;
    }
    const int rc = ckpt_served_param_init(&to->served, reader, p->tensor, err);
    to->served.param.in_out = p->in_out_served;
    a->param = &to->served.param;
    return rc;
}

int ckpt_plan_run(const struct ckpt_plan *plan, enum ckpt_side side, struct ckpt_reader *reader,
                  const struct ckpt_array *input, struct ckpt_exec *exec, struct ckpt_array *out,
                  struct ckpt_err *err) {
    CKPT_AUTO(bounds) struct bounds b = {0};
    int rc = 0;
    memset(out, 0, sizeof(*out));
    b.arg[b.nargs] = (struct ckpt_arg){.name = plan->input, .kind = CKPT_ARG_ARRAY};
    b.arg[b.nargs++].array = input;
    for (uint32_t i = 0; i < plan->nargs; i++)
        b.arg[b.nargs++] = plan->arg[i];
    for (uint32_t i = 0; rc == 0 && i < plan->nparams; i++)
        rc = bind_param(&b, &plan->param[i], side, reader, err);
    return rc < 0 ? rc : ckpt_op_run(plan->op, b.arg, b.nargs, exec, out, err);
}

int ckpt_plan_probe(const struct ckpt_plan *plan, struct ckpt_text path, struct ckpt_exec *exec,
                    struct ckpt_array *out, struct ckpt_err *err) {
    const bool ids = plan->id_limit > 0;
    struct ckpt_rng rng = ckpt_rng_seeded(path);
    const int rc = ckpt_array_new(out, &exec->memory, ids ? CKPT_DT_I64 : CKPT_DT_F32, plan->probe,
                                  plan->probe_ndim, err);
    const int64_t count = rc < 0 ? 0 : ckpt_array_count(out);
    for (int64_t i = 0; i < count; i++) {
        if (!ids)
            ckpt_array_f32(out)[i] = ckpt_rng_float(&rng);
        else if (i < 2) /* the first and the last row, then random ones */
            ckpt_array_i64(out)[i] = i == 0 ? 0 : plan->id_limit - 1;
        else
            ckpt_array_i64(out)[i] = ckpt_rng_index(&rng, plan->id_limit);
    }
    return rc;
}
