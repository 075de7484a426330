/* Layer probes: each layer runs twice on a seeded input, and once more on a recorded one. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/forward.h"
#include "verify/run.h"
#include "verify/source.h"

#define INPUTS_SOUGHT 16 /* arguments of a call; None leaves a gap in the numbers */

enum ckpt_status ckpt_verify_failure(int rc) {
    switch (rc) {
    case -EOPNOTSUPP:
    case -ENOMEM: /* the sentence names the budget */
        return CKPT_STATUS_SKIP;
    case -EIO:
    case -ESTALE:
        return CKPT_STATUS_LOAD_FAIL;
    default:
        return CKPT_STATUS_TEST_FAIL;
    }
}

struct outputs {
    struct ckpt_array torch, cast, served; /* cast: only if the mount casts */
};

static void outputs_fini(struct outputs *o) {
    ckpt_array_fini(&o->torch);
    ckpt_array_fini(&o->cast);
    ckpt_array_fini(&o->served);
}
CKPT_DEFINE_AUTO(outputs, struct outputs, outputs_fini)

static int run_sides(struct ckpt_verification *v, const struct ckpt_plan *plan,
                     const struct ckpt_inputs *in, struct outputs *out, struct ckpt_err *err) {
    int rc = ckpt_plan_run(plan, CKPT_SIDE_TORCH, v->reader, in, &v->exec, &out->torch, err);
    if (rc == 0 && v->model->ncast)
        rc = ckpt_plan_run(plan, CKPT_SIDE_CAST, v->reader, in, &v->exec, &out->cast, err);
    if (rc == 0)
        rc = ckpt_plan_run(plan, CKPT_SIDE_SERVED, v->reader, in, &v->exec, &out->served, err);
    return rc;
}

struct tolerance {
    double atol, rtol;
};

/* The root mean square of the finite elements; 0 if there are none. */
static double root_mean_square(const struct ckpt_array *a) {
    const int64_t count = ckpt_array_count(a);
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++) {
        const double x = ckpt_array_get(a, i);
        if (isfinite(x)) {
            sum += x * x;
            n++;
        }
    }
    return n ? sqrt(sum / (double)n) : 0;
}

/* The two sides of a probe differ by rounding only; records may be of another machine. Rounding
 * grows with what is added up, not with what is left of it: where a sum of thousands comes near 0,
 * thousands count. */
static struct tolerance of_probe(const struct ckpt_array *ref) {
    return (struct tolerance){CKPT_ATOL * fmax(1, root_mean_square(ref)), CKPT_RTOL};
}

/* Compares and keeps the larger error in *max_abs. PASS or DIFF, or negative. */
static int compare(struct tolerance t, const struct ckpt_array *ref, const struct ckpt_array *out,
                   double *max_abs, struct ckpt_err *err) {
    struct ckpt_diff d;
    const int rc = ckpt_diff(ref, out, t.atol, t.rtol, &d, err);
    if (rc < 0)
        return rc;
    *max_abs = fmax(*max_abs, d.max_abs);
    return d.allclose ? CKPT_STATUS_PASS : CKPT_STATUS_DIFF;
}

static bool all_finite(const struct ckpt_array *a) {
    const int64_t count = ckpt_array_count(a);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(ckpt_array_get(a, i)))
            return false;
    return true;
}

static void explain_difference(const struct ckpt_plan *plan, bool finite,
                               struct ckpt_layer_result *r) {
    if (!finite) {
        r->status = CKPT_STATUS_SKIP;
        ckpt_reason_set(&r->reason, "what the source computes is not finite: nothing to compare "
                                    "with; its bytes are checked");
        return;
    }
    ckpt_reason_set(&r->reason, "the served bytes do not compute what the source computes%s%s",
                    plan->otherwise ? ": " : "", plan->otherwise ? plan->otherwise : "");
}

/* By how much the cast alone changes what the layer computes: no fault, but worth a number. That a
 * number does not fit the narrower dtype is one. */
static int measure_cast(struct ckpt_verification *v, const struct outputs *out,
                        struct ckpt_layer_result *r, struct ckpt_err *err) {
    struct ckpt_diff d;
    const int rc = ckpt_diff(&out->torch, &out->served, CKPT_ATOL, CKPT_RTOL, &d, err);
    if (rc < 0)
        return rc;
    r->cast_max = d.max_abs;
    if (!v->layer.most_cast || d.max_abs > v->layer.cast_max) {
        v->layer.most_cast = r->layer;
        v->layer.cast_max = d.max_abs;
    }
    if (d.ninvalid == 0 || !all_finite(&out->torch))
        return 0;
    r->status = CKPT_STATUS_DIFF;
    ckpt_reason_set(&r->reason, "what the source computes is finite, and after the cast it is not");
    return 0;
}

static int probe_seeded(struct ckpt_verification *v, const struct ckpt_plan *plan,
                        struct ckpt_layer_result *r, struct ckpt_err *err) {
    CKPT_AUTO(inputs) struct ckpt_inputs in = {0};
    CKPT_AUTO(outputs) struct outputs out = {0};
    int rc = ckpt_plan_make_probe(plan, r->layer->path, &v->exec, &in, err);
    if (rc == 0)
        rc = run_sides(v, plan, &in, &out, err);
    const struct ckpt_array *const ref = v->model->ncast ? &out.cast : &out.torch;
    if (rc == 0)
        rc = compare(of_probe(ref), ref, &out.served, &r->max_abs, err);
    if (rc < 0)
        return rc;
    r->compared = true;
    r->status = (enum ckpt_status)rc;
    if (r->status == CKPT_STATUS_DIFF)
        explain_difference(plan, all_finite(&out.torch), r);
    return v->model->ncast ? measure_cast(v, &out, r, err) : 0;
}

/* A recorded output that a run misses is a DIFF, unless an attribute had to be assumed: then the
 * record tells nothing about the tensors. */
static void judge_recorded(struct ckpt_layer_result *r, bool close, bool cast) {
    if (close) {
        r->recorded = CKPT_STATUS_PASS;
        return;
    }
    r->recorded = r->nassumed ? CKPT_STATUS_SKIP : CKPT_STATUS_DIFF;
    if (r->nassumed && r->status == CKPT_STATUS_PASS)
        ckpt_reason_set(&r->reason,
                        "the recorded output is not reproduced with the assumed attributes; only "
                        "the two layouts were compared");
    else if (!r->nassumed && r->status >= CKPT_STATUS_PASS) /* or SKIP: the source is not finite */
        ckpt_reason_set(&r->reason, "differs from the recorded output%s",
                        cast
                            ? ", as the rounding of the cast may let it: atol= and rtol= can allow "
                              "for that"
                            : "");
    if (!r->nassumed)
        r->status = ckpt_status_worst(r->status, CKPT_STATUS_DIFF);
}

/* Query alone, or query, key and value. */
static uint32_t inputs_taken(const struct ckpt_plan *plan) {
    return plan->forward == &ckpt_forward_attention ? CKPT_PLAN_INPUTS : plan->nprobes;
}

static const struct ckpt_tensor *recorded_input(const struct ckpt_verification *v,
                                                const struct ckpt_layer *l, uint32_t i) {
    char name[16];
    snprintf(name, sizeof(name), "input.%u", i);
    return ckpt_reference_get(&v->reference, l->path, name);
}

/* LAYER.input, else LAYER.input.0, LAYER.input.1 and so on: of a layer of several inputs, and of a
 * model that is one layer. *more: there are others that the layer's formula does not take, such as
 * masks. */
static int load_inputs(struct ckpt_verification *v, const struct ckpt_plan *plan,
                       const struct ckpt_layer *l, struct ckpt_inputs *in, bool *more,
                       struct ckpt_err *err) {
    const struct ckpt_tensor *t = ckpt_reference_get(&v->reference, l->path, "input");
    int rc = 0;
    if (!t)
        t = recorded_input(v, l, 0);
    while (rc == 0 && t && in->n < inputs_taken(plan)) {
        rc = ckpt_source_load(t, false, &v->exec.memory, &in->at[in->n], err);
        in->n += rc == 0;
        t = recorded_input(v, l, in->n);
    }
    for (uint32_t i = in->n; i < INPUTS_SOUGHT; i++)
        *more = *more || recorded_input(v, l, i);
    return rc;
}

static const struct ckpt_tensor *recorded_output(const struct ckpt_verification *v,
                                                 const struct ckpt_layer *l) {
    const struct ckpt_tensor *const t = ckpt_reference_get(&v->reference, l->path, "output");
    return t ? t : ckpt_reference_get(&v->reference, l->path, "output.0");
}

static int probe_recorded(struct ckpt_verification *v, const struct ckpt_plan *plan,
                          struct ckpt_layer_result *r, struct ckpt_err *err) {
    const struct ckpt_tensor *const out = recorded_output(v, r->layer);
    const struct tolerance recorded = {v->options->atol, v->options->rtol};
    CKPT_AUTO(inputs) struct ckpt_inputs in = {0};
    CKPT_AUTO(array) struct ckpt_array expected = {0};
    CKPT_AUTO(outputs) struct outputs got = {0};
    bool more = false;
    int rc = out ? load_inputs(v, plan, r->layer, &in, &more, err) : 0;
    if (rc == 0 && more && r->status == CKPT_STATUS_PASS)
        ckpt_reason_set(&r->reason, "its record has more inputs (a mask, a state) than its formula "
                                    "takes, and was not compared with this layer alone");
    if (rc < 0 || in.n == 0 || more)
        return rc;
    rc = ckpt_source_load(out, true, &v->exec.memory, &expected, err);
    if (rc == 0)
        rc = run_sides(v, plan, &in, &got, err);
    if (rc == -EINVAL && r->nassumed) { /* the recorded shapes do not fit what was assumed */
        judge_recorded(r, false, false);
        return 0;
    }
    int torch = 0, served = 0;
    if (rc == 0)
        rc = torch = compare(recorded, &expected, &got.torch, &r->torch_max, err);
    if (rc >= 0)
        rc = served = compare(recorded, &expected, &got.served, &r->served_max, err);
    if (rc < 0)
        return rc;
    judge_recorded(r, torch == CKPT_STATUS_PASS && served == CKPT_STATUS_PASS,
                   torch == CKPT_STATUS_PASS && v->model->ncast);
    return 0;
}

/* Remembers what was found, or why nothing could be. */
static int take(struct ckpt_layer_result *r, int rc, const struct ckpt_err *found,
                struct ckpt_err *err) {
    if (rc == -EINTR)
        return ckpt_fail(err, rc, "interrupted");
    if (rc < 0) {
        r->status = ckpt_verify_failure(rc);
        ckpt_reason_set(&r->reason, "%s", found->text);
    }
    return 0;
}

static int probe_layer(struct ckpt_verification *v, const struct ckpt_layer *l,
                       struct ckpt_layer_result *r, struct ckpt_err *err) {
    struct ckpt_plan plan;
    struct ckpt_err found = {0};
    ckpt_plan_layer(&v->layers, l, &plan);
    *r = (struct ckpt_layer_result){
        .layer = l, .status = plan.status, .reason = plan.reason, .recorded = CKPT_STATUS_SKIP};
    if (plan.status != CKPT_STATUS_PASS)
        return 0;
    memcpy(r->assumed, plan.assumed, sizeof(r->assumed));
    r->nassumed = plan.nassumed;
    int rc = probe_seeded(v, &plan, r, &found);
    if (rc == 0)
        rc = probe_recorded(v, &plan, r, &found);
    if (r->compared)
        v->layer.parameters += plan.forward ? l->nparams : plan.nparams;
    return take(r, rc, &found, err);
}

/* A full list gives up a good entry for a bad one. */
static void keep(struct ckpt_layers_result *all, const struct ckpt_layer_result *r) {
    size_t at = all->n;
    if (all->n < CKPT_LAYERS_LISTED) {
        all->at[all->n++] = *r;
        return;
    }
    all->truncated = true;
    if (r->status >= CKPT_STATUS_PASS)
        return;
    while (at > 0 && all->at[at - 1].status < CKPT_STATUS_PASS)
        at--;
    if (at == 0)
        return;
    memmove(&all->at[at - 1], &all->at[at], (all->n - at) * sizeof(all->at[0]));
    all->at[all->n - 1] = *r;
}

int ckpt_verify_layers(struct ckpt_verification *v, struct ckpt_err *err) {
    struct ckpt_layers_result *const all = &v->layer;
    const size_t listed = v->layers.n < CKPT_LAYERS_LISTED ? v->layers.n : CKPT_LAYERS_LISTED;
    all->status = CKPT_STATUS_SKIP;
    all->at = calloc(listed + 1, sizeof(*all->at));
    if (!all->at)
        return ckpt_fail_memory(err, "probing layers");
    all->total = v->layers.n;
    for (size_t i = 0; i < v->layers.n; i++) {
        struct ckpt_layer_result r;
        const int rc = probe_layer(v, &v->layers.at[i], &r, err);
        if (rc < 0)
            return rc;
        all->status = ckpt_status_worst(all->status, r.status);
        all->probed += r.compared;
        all->recorded += r.recorded != CKPT_STATUS_SKIP;
        keep(all, &r);
    }
    return 0;
}
