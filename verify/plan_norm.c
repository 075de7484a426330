/*
 * Plans of norms. The class says which formula; without one, running statistics make a batch norm,
 * a bias makes a layer norm and its absence an RMS norm, which is then listed as assumed. Both runs
 * use the same formula, so a wrong guess still compares the two layouts.
 */
#include <float.h>
#include <string.h>

#include "verify/plan.h"

enum formula { LAYER, RMS, GROUP, BATCH, INSTANCE };

static const struct {
    const char *cls;
    enum formula formula;
    uint32_t ndim; /* of the probe; 0: as the weight has it, and one more */
} classes[] = {
    {"LayerNorm", LAYER, 0},         {"RMSNorm", RMS, 0},
    {"GroupNorm", GROUP, 3},         {"BatchNorm1d", BATCH, 2},
    {"BatchNorm2d", BATCH, 4},       {"BatchNorm3d", BATCH, 5},
    {"SyncBatchNorm", BATCH, 4},     {"InstanceNorm1d", INSTANCE, 3},
    {"InstanceNorm2d", INSTANCE, 4}, {"InstanceNorm3d", INSTANCE, 5},
};

static const struct ckpt_plan_param *find(const struct ckpt_plan *p, const char *arg) {
    for (uint32_t i = 0; i < p->nparams; i++)
        if (strcmp(p->param[i].arg, arg) == 0)
            return &p->param[i];
    return NULL;
}

/* The formula, and the rank of its probe. */
static enum formula choose(const struct ckpt_layer *l, struct ckpt_plan *p, uint32_t *ndim) {
    const struct ckpt_text cls = ckpt_layer_class(l->record);
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (ckpt_text_is(cls, classes[i].cls)) {
            *ndim = classes[i].ndim;
            return classes[i].formula;
        }
    ckpt_plan_assume(p, "formula");
    *ndim = 0;
    if (find(p, "running_mean")) {
        *ndim = 2;
        return BATCH;
    }
    return find(p, "bias") ? LAYER : RMS;
}

double ckpt_plan_eps(const struct ckpt_layer *l, struct ckpt_plan *p, double otherwise) {
    const struct ckpt_value *const v = ckpt_plan_attribute(l, "eps");
    const bool none =
        l->record && l->record->attributes && !v && ckpt_value_get(l->record->attributes, "eps");
    if (v && v->kind == CKPT_VALUE_FLOAT)
        otherwise = v->f;
    else if (v && v->kind == CKPT_VALUE_INT)
        otherwise = (double)v->i;
    else if (!none)
        ckpt_plan_assume(p, "eps");
    return otherwise;
}

/* normalized_shape is the attribute's, else the weight's. */
static void over_last(const struct ckpt_layer *l, struct ckpt_plan *p) {
    const struct ckpt_value *const v = ckpt_plan_attribute(l, "normalized_shape");
    const struct ckpt_plan_param *const w = find(p, "weight");
    const uint32_t n = v && (v->kind == CKPT_VALUE_TUPLE || v->kind == CKPT_VALUE_LIST)
                           ? (uint32_t)v->seq.n
                       : w ? w->ndim
                           : 1;
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    const bool known = n < CKPT_ARRAY_NDIM_MAX && ckpt_plan_read_ints(v, n, shape);
    if (n == 0 || n >= CKPT_ARRAY_NDIM_MAX || (!known && !w)) {
        ckpt_plan_refuse(p, CKPT_STATUS_TEST_FAIL, "neither a weight nor normalized_shape");
        return;
    }
    if (!known)
        memcpy(shape, w->shape, n * sizeof(shape[0]));
    ckpt_plan_add_ints(p, "normalized_shape", shape, n);
    p->probe[0] = (struct ckpt_plan_probe){.shape = {4}, .ndim = n + 1};
    memcpy(p->probe[0].shape + 1, shape, n * sizeof(shape[0]));
    p->nprobes = 1;
}

/* Channels, from whichever tensor there is. */
static void by_channel(struct ckpt_plan *p, uint32_t ndim) {
    static const int64_t sizes[6][5] = {
        [2] = {4, 0}, [3] = {2, 0, 5}, [4] = {2, 0, 3, 4}, [5] = {2, 0, 2, 3, 4}};
    if (p->nparams == 0 || p->param[0].ndim != 1) {
        ckpt_plan_refuse(p, CKPT_STATUS_TEST_FAIL, "no parameter of one dimension");
        return;
    }
    p->probe[0] = (struct ckpt_plan_probe){.ndim = ndim};
    memcpy(p->probe[0].shape, sizes[ndim], ndim * sizeof(sizes[0][0]));
    p->probe[0].shape[1] = p->param[0].shape[0];
    p->nprobes = 1;
}

static void set_op(struct ckpt_plan *p, const char *name) {
    p->op = ckpt_op_find(ckpt_text_of(name));
}

/* Whether the layer keeps running statistics; a layer that does must have them. */
static bool keeps_statistics(const struct ckpt_layer *l, struct ckpt_plan *p) {
    const struct ckpt_value *const v = ckpt_plan_attribute(l, "track_running_stats");
    const bool said = v && v->kind == CKPT_VALUE_BOOL && v->b;
    const bool there = find(p, "running_mean") && find(p, "running_var");
    if (said && !there)
        ckpt_plan_refuse(p, CKPT_STATUS_TEST_FAIL, "parameter %.*s.running_%s is missing",
                         CKPT_TEXT_ARGS(l->path), find(p, "running_mean") ? "var" : "mean");
    return there;
}

/* burn's InstanceNorm has no running statistics: it always takes its input's own. */
static void note_own_statistics(struct ckpt_plan *p) {
    p->otherwise = "burn's InstanceNorm keeps no running statistics";
    p->in_burn = (struct ckpt_arg){.name = "use_input_stats", .kind = CKPT_ARG_BOOL, .b = true};
}

void ckpt_plan_norm(const struct ckpt_layer *l, struct ckpt_plan *p) {
    uint32_t ndim = 0;
    int64_t groups = 1;
    const enum formula formula = choose(l, p, &ndim);
    static const char *const ops[] = {[LAYER] = "layer_norm",
                                      [RMS] = "rms_norm",
                                      [GROUP] = "group_norm",
                                      [BATCH] = "batch_norm",
                                      [INSTANCE] = "instance_norm"};
    set_op(p, ops[formula]);
    ckpt_plan_add_float(p, "eps", ckpt_plan_eps(l, p, formula == RMS ? (double)FLT_EPSILON : 1e-5));
    if (formula == LAYER || formula == RMS) {
        over_last(l, p);
        return;
    }
    by_channel(p, ndim);
    if (formula == GROUP) {
        if (!ckpt_plan_read_ints(ckpt_plan_attribute(l, "num_groups"), 1, &groups))
            ckpt_plan_assume(p, "num_groups");
        ckpt_plan_add_int(p, "num_groups", groups);
        return;
    }
    const bool keeps = keeps_statistics(l, p);
    ckpt_plan_add_bool(p, formula == BATCH ? "training" : "use_input_stats", !keeps);
    if (formula == INSTANCE && keeps)
        note_own_statistics(p);
}
