/*
 * chain=fc1:relu:fc2, a whole model that is a sequence, or one whose module is an nn.Sequential
 * (sequential.c). A step is the path of a module in PyTorch's names, or else an activation by the
 * name of its operation:
 *
 *     input.0 -> [plan of fc1] -> [relu] -> [plan of fc2] -> output.0      once on source tensors,
 *                                                                          once on served bytes
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/run.h"
#include "verify/source.h"

#define STEPS_MAX 256

struct step {
    struct ckpt_text name;
    struct ckpt_plan plan;
    bool is_layer;
};

struct chain {
    struct step *at;
    size_t n;
};

static void chain_fini(struct chain *c) {
    free(c->at);
}
CKPT_DEFINE_AUTO(chain, struct chain, chain_fini)

/* What nobody asked for is no failure if it can't be done. */
static void fail(struct ckpt_verification *v, enum ckpt_status status, const char *text) {
    v->chain.status = v->chain.found && status == CKPT_STATUS_TEST_SKIP ? CKPT_STATUS_SKIP : status;
    ckpt_reason_set(&v->chain.reason, "%s", text);
}

/* ---- finding steps ---- */

/* The module of that path inside the model: the table's paths count from its container. */
static const struct ckpt_module *find_module(const struct ckpt_model *m, struct ckpt_text name) {
    const struct ckpt_checkpoint *const c = m->checkpoint;
    const size_t skip = m->prefix.n;
    for (size_t i = 0; i < c->nmodules; i++) {
        const struct ckpt_text path = c->modules[i].path;
        if (path.n == skip + name.n && memcmp(path.s, m->prefix.s, skip) == 0 &&
            memcmp(path.s + skip, name.s, name.n) == 0)
            return &c->modules[i];
    }
    return NULL;
}

/* "unknown step X; did you mean Y?" */
static void unknown_step(struct ckpt_verification *v, struct ckpt_text name) {
    const size_t nlayers = v->layers.n < 10000 ? v->layers.n : 10000;
    struct ckpt_text *const names = calloc(nlayers + 64, sizeof(*names));
    size_t n = 0;
    for (; names && n < nlayers; n++)
        names[n] = v->layers.at[n].path;
    for (size_t i = 0; names && ckpt_activation_names[i]; i++)
        names[n++] = ckpt_text_of(ckpt_activation_names[i]);
    const int at = names ? ckpt_text_nearest(name, names, n) : -1;
    v->chain.status = CKPT_STATUS_TEST_FAIL;
    ckpt_reason_set(
        &v->chain.reason, "chain: \"%.*s\" is neither a module nor an activation%s%.*s%s",
        CKPT_TEXT_ARGS(name), at >= 0 ? "; did you mean \"" : "", at >= 0 ? (int)names[at].n : 0,
        at >= 0 ? names[at].s : "", at >= 0 ? "\"?" : "");
    free(names);
}

/* A module of a Sequential that has no parameters, of a class that is not in our table. */
static void unknown_module(struct ckpt_verification *v, struct ckpt_text name,
                           const struct ckpt_module *record) {
    struct ckpt_reason why;
    ckpt_reason_set(&why, "%.*s is a %.*s, whose forward the checker does not know",
                    CKPT_TEXT_ARGS(name),
                    CKPT_TEXT_ARGS(record ? record->cls : CKPT_TEXT("module")));
    fail(v, CKPT_STATUS_TEST_SKIP, why.text);
}

static void refuse_step(struct ckpt_verification *v, const struct step *s) {
    struct ckpt_reason why;
    ckpt_reason_set(&why, "chain: %.*s: %s", CKPT_TEXT_ARGS(s->name), s->plan.reason.text);
    fail(v, s->plan.status == CKPT_STATUS_SKIP ? CKPT_STATUS_TEST_SKIP : s->plan.status, why.text);
}

static bool find_step(struct ckpt_verification *v, struct step *s) {
    const struct ckpt_layer *const l = ckpt_layers_get(&v->layers, s->name);
    s->is_layer = l != NULL;
    if (l) {
        ckpt_plan_layer(&v->layers, l, &s->plan);
        if (s->plan.status == CKPT_STATUS_PASS)
            return true;
        refuse_step(v, s);
        return false;
    }
    const struct ckpt_module *const record = find_module(v->model, s->name);
    if ((record && ckpt_plan_activation(s->name, record, &s->plan)) ||
        ckpt_plan_activation(s->name, NULL, &s->plan)) {
        if (s->plan.status != CKPT_STATUS_PASS)
            refuse_step(v, s);
        return s->plan.status == CKPT_STATUS_PASS;
    }
    if (v->chain.found)
        unknown_module(v, s->name, record);
    else
        unknown_step(v, s->name);
    return false;
}

static bool find_steps(struct ckpt_verification *v, struct chain *c) {
    const char *name = v->chain.text;
    for (;; c->n++) {
        const size_t n = strcspn(name, ":");
        if (c->n == STEPS_MAX) {
            fail(v, v->chain.found ? CKPT_STATUS_TEST_SKIP : CKPT_STATUS_TEST_FAIL,
                 "chain: more than 256 steps");
            return false;
        }
        c->at[c->n].name = (struct ckpt_text){name, n};
        if (!find_step(v, &c->at[c->n]))
            return false;
        if (name[n] == '\0')
            break;
        name += n + 1;
    }
    v->chain.steps = (uint32_t)++c->n;
    return true;
}

/* ---- running ---- */

/* The first step gets all inputs, every other one what the step before it gave. */
static int run_side(struct ckpt_verification *v, const struct chain *c, enum ckpt_side side,
                    const struct ckpt_inputs *input, struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(inputs) struct ckpt_inputs x = {.n = input->n};
    for (uint32_t i = 0; i < input->n; i++)
        x.at[i] = ckpt_array_ref(&input->at[i]);
    for (size_t i = 0; i < c->n; i++) {
        struct ckpt_array y;
        const int rc = ckpt_plan_run(&c->at[i].plan, side, v->reader, &x, &v->exec, &y, err);
        if (rc < 0)
            return rc == -EINTR ? rc
                                : ckpt_fail_in(err, "chain: step %zu, %.*s", i + 1,
                                               CKPT_TEXT_ARGS(c->at[i].name));
        ckpt_inputs_fini(&x);
        x.at[0] = y;
        x.n = 1;
    }
    *out = ckpt_array_ref(&x.at[0]);
    return 0;
}

/* input.0 of the reference (and input.1..., if the first step takes several), else a probe for the
 * first layer. */
static int make_input(struct ckpt_verification *v, const struct chain *c, struct ckpt_inputs *input,
                      struct ckpt_err *err) {
    const uint32_t wanted = c->at[0].plan.nprobes > 1 ? c->at[0].plan.nprobes : 1;
    char name[16] = "input.0";
    const struct ckpt_tensor *recorded = ckpt_reference_get(&v->reference, CKPT_TEXT(""), name);
    int rc = 0;
    v->chain.seeded = !recorded;
    while (rc == 0 && recorded && input->n < wanted) {
        rc = ckpt_source_load(recorded, false, &v->exec.memory, &input->at[input->n++], err);
        snprintf(name, sizeof(name), "input.%u", input->n);
        recorded = ckpt_reference_get(&v->reference, CKPT_TEXT(""), name);
    }
    if (!v->chain.seeded)
        return rc;
    for (size_t i = 0; i < c->n; i++)
        if (c->at[i].is_layer)
            return ckpt_plan_make_probe(&c->at[i].plan, c->at[i].name, &v->exec, input, err);
    return ckpt_fail(err, -EINVAL,
                     "chain: without a layer or a recorded input.0 nothing tells "
                     "the shape of its input");
}

static int add_run(struct ckpt_verification *v, const char *name, const struct ckpt_array *ref,
                   const struct ckpt_array *out, struct ckpt_err *err) {
    struct ckpt_run_result *const r = &v->chain.run[v->chain.nruns++];
    r->name = name;
    snprintf(r->output, sizeof(r->output), "output.0");
    const int rc = ckpt_run_compare(v->options, CKPT_DT_NONE, ref, out, r, err);
    if (rc == 0)
        v->chain.status = ckpt_status_worst(v->chain.status, r->status);
    return rc;
}

static int compare_runs(struct ckpt_verification *v, const struct ckpt_array *torch,
                        const struct ckpt_array *served, struct ckpt_err *err) {
    const struct ckpt_tensor *const recorded =
        v->chain.seeded ? NULL : ckpt_reference_get(&v->reference, CKPT_TEXT(""), "output.0");
    CKPT_AUTO(array) struct ckpt_array expected = {0};
    int rc = 0;
    if (recorded) {
        rc = ckpt_source_load(recorded, true, &v->exec.memory, &expected, err);
        if (rc == 0)
            rc = add_run(v, "torch-vs-recorded", &expected, torch, err);
        if (rc == 0)
            rc = add_run(v, "burn-vs-recorded", &expected, served, err);
    }
    return rc < 0 ? rc : add_run(v, "torch-vs-burn", torch, served, err);
}

static void count_outputs(struct ckpt_verification *v) {
    const struct ckpt_checkpoint *const c = v->reference.file;
    for (size_t i = 0; c && i < c->ntensors; i++)
        if (ckpt_text_starts(c->tensors[i].key, "output.") &&
            !ckpt_text_is(c->tensors[i].key, "output.0"))
            v->chain.more_outputs++;
}

/* Which input a Sequential takes is not known: one made up for its first layer need not suit the
 * others. */
static void refuse_made_up(struct ckpt_verification *v, const struct ckpt_err *found) {
    v->chain.status = CKPT_STATUS_SKIP;
    ckpt_reason_set(&v->chain.reason,
                    "what input it takes is not recorded, and one made up does not suit it (%s): "
                    "give reference= with input.0",
                    found->text);
}

int ckpt_verify_chain(struct ckpt_verification *v, struct ckpt_err *err) {
    CKPT_AUTO(chain) struct chain c = {0};
    CKPT_AUTO(inputs) struct ckpt_inputs input = {0};
    CKPT_AUTO(array) struct ckpt_array torch = {0}, served = {0};
    struct ckpt_err found = {0};
    v->chain.status = CKPT_STATUS_SKIP;
    ckpt_chain_choose(v);
    if (!v->chain.text)
        return 0;
    c.at = calloc(STEPS_MAX, sizeof(*c.at));
    if (!c.at)
        return ckpt_fail_memory(err, "running the chain");
    if (!find_steps(v, &c))
        return 0;
    count_outputs(v);
    int rc = make_input(v, &c, &input, &found);
    if (rc == 0)
        rc = run_side(v, &c, CKPT_SIDE_TORCH, &input, &torch, &found);
    if (rc == 0)
        rc = run_side(v, &c, CKPT_SIDE_SERVED, &input, &served, &found);
    if (rc == 0)
        rc = compare_runs(v, &torch, &served, &found);
    if (rc == -EINTR)
        return ckpt_fail(err, rc, "interrupted");
    if (rc == -EINVAL && v->chain.found && v->chain.seeded)
        refuse_made_up(v, &found);
    else if (rc < 0) {
        const enum ckpt_status s = ckpt_verify_failure(rc);
        fail(v, s == CKPT_STATUS_SKIP ? CKPT_STATUS_TEST_SKIP : s, found.text);
    }
    return 0;
}
