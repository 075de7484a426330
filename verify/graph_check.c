/*
 * The whole model by its graph: once on the source's tensors, once on what is served, and both
 * against what PyTorch recorded.
 *
 *     graph ─ program ─┬─ parameters of the source ─► torch ─┬─ torch-vs-recorded
 *                      │                                     ├─ torch-vs-burn
 *                      └─ parameters as served ─────► burn ──┴─ burn-vs-recorded
 */
#include "verify/graph_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/tolerance.h"

static void check_fini(struct ckpt_graph_check *c) {
    for (uint32_t i = 0; i < CKPT_OUTPUTS_MAX; i++) {
        ckpt_array_fini(&c->torch[i]);
        ckpt_array_fini(&c->served[i]);
    }
    ckpt_graph_inputs_fini(&c->inputs);
    ckpt_program_fini(&c->program);
    ckpt_checkpoint_close(c->opened_own);
}
CKPT_DEFINE_AUTO(check, struct ckpt_graph_check, check_fini)

void ckpt_graph_result_fini(struct ckpt_graph_result *g) {
    if (g->params)
        ckpt_graph_params_fini(g->params);
    free(g->params);
    free(g->run);
}

int ckpt_run_compare(const struct ckpt_verify_options *o, enum ckpt_dtype dtype,
                     const struct ckpt_array *ref, const struct ckpt_array *out,
                     struct ckpt_run_result *r, struct ckpt_err *err) {
    const struct ckpt_tolerance t = ckpt_tolerance_of(o, dtype);
    const int rc = ckpt_diff(ref, out, t.atol, t.rtol, &r->diff, err);
    r->dtype = t.dtype;
    r->status = rc == 0 && r->diff.allclose ? CKPT_STATUS_PASS : CKPT_STATUS_DIFF;
    return rc;
}

/* ---- which graph ---- */

static const char *base_name(const char *path) {
    const char *const slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int find_own(struct ckpt_graph_check *c) {
    static const struct ckpt_open_options plain = {0};
    struct ckpt_err ignored = {0};
    c->own = c->v->model->checkpoint;
    if (c->v->graph.own)
        return 0;
    c->own = NULL;
    if (!ckpt_text_ends(ckpt_text_of(c->v->options->graph), ".json") &&
        ckpt_checkpoint_open_file(c->v->options->graph, &plain, &c->opened_own, &ignored) == 0)
        c->own = c->opened_own;
    return 0;
}

/* False: there is none, and the result says why. */
static bool find_graph(struct ckpt_graph_check *c) {
    const struct ckpt_verify_options *const o = c->v->options;
    struct ckpt_graph_result *const g = &c->v->graph;
    g->own = !o->graph;
    g->file = o->graph ? base_name(o->graph) : c->v->model->checkpoint->name;
    c->graph = o->opened ? o->opened : g->own ? c->v->model->checkpoint->graph : NULL;
    if (c->graph)
        return true;
    if (o->graph || o->graph_error) {
        g->status = CKPT_STATUS_TEST_SKIP;
        ckpt_reason_set(&g->reason, "%s", o->graph_error ? o->graph_error : "it was not opened");
        return false;
    }
    g->file = NULL;
    if (!c->v->chain.text)
        ckpt_reason_set(&g->reason, "neither a graph nor a chain says in which order the layers "
                                    "run");
    return false;
}

static size_t count_operations(const struct ckpt_program *p) {
    CKPT_AUTO(strmap) struct ckpt_strmap seen = {0};
    size_t n = 0;
    for (size_t i = 0; i < p->graph->nnodes; i++)
        n += ckpt_strmap_add(&seen, ckpt_text_of(p->step[i].op->schema), i, NULL) == 0;
    return n;
}

/* ---- parameters ---- */

/* Of a name as far as a sentence has room for it. */
static int name_length(struct ckpt_text name) {
    return name.n < 60 ? (int)name.n : 60;
}

/* "a, b, c and 4 more" */
static void list_params(const struct ckpt_graph_params *all, bool ill_shaped, size_t total,
                        struct ckpt_reason *r) {
    size_t n = strlen(r->text), listed = 0;
    for (size_t i = 0; i < all->n && listed < 5; i++) {
        const struct ckpt_graph_param *const p = &all->at[i];
        if (!p->input || (ill_shaped ? !p->ill_shaped : !p->used || p->from != CKPT_FROM_NOWHERE))
            continue;
        n += (size_t)snprintf(r->text + n, sizeof(r->text) - n, "%s%.*s", listed++ ? ", " : "",
                              name_length(p->input->name), p->input->name.s);
        if (n >= sizeof(r->text))
            return;
    }
    if (listed < total)
        snprintf(r->text + n, sizeof(r->text) - n, " and %zu more", total - listed);
}

/* False: the graph and the checkpoint don't belong together. */
static bool fits(struct ckpt_graph_check *c) {
    struct ckpt_graph_result *const g = &c->v->graph;
    const struct ckpt_graph_params *const p = g->params;
    if (!p->missing && !p->ill_shaped)
        return true;
    g->status = CKPT_STATUS_TEST_FAIL;
    ckpt_reason_set(&g->reason, p->missing
                                    ? "of the graph's parameters the checkpoint lacks "
                                    : "of the graph's parameters the checkpoint has in other "
                                      "shapes ");
    list_params(p, !p->missing, p->missing ? p->missing : p->ill_shaped, &g->reason);
    return false;
}

/* The runs may agree all the same: the graph reads only one of the names. */
static void judge_ties(struct ckpt_graph_result *g) {
    const struct ckpt_graph_params *const p = g->params;
    if (!p->broken_ties)
        return;
    char more[60] = "";
    if (p->broken_ties > 1)
        snprintf(more, sizeof(more), " (and so are %zu more pairs)", p->broken_ties - 1);
    g->status = ckpt_status_worst(g->status, CKPT_STATUS_DIFF);
    ckpt_reason_set(&g->reason,
                    "%.*s and %.*s are tied in the graph, one tensor, but differ in the "
                    "checkpoint%s",
                    name_length(p->broken[0]), p->broken[0].s, name_length(p->broken[1]),
                    p->broken[1].s, more);
}

static int find_params(struct ckpt_graph_check *c, struct ckpt_err *err) {
    struct ckpt_graph_result *const g = &c->v->graph;
    g->params = calloc(1, sizeof(*g->params));
    if (!g->params)
        return ckpt_fail_memory(err, "running the graph");
    return ckpt_graph_params_find(c->v, &c->program, c->own, g->params, err);
}

/* ---- running ---- */

int ckpt_graph_check_run(struct ckpt_graph_check *c, enum ckpt_side side,
                         const struct ckpt_array *input, struct ckpt_array *out,
                         struct ckpt_err *err) {
    const struct ckpt_graph *const g = c->graph;
    CKPT_AUTO(graph_bounds) struct ckpt_graph_bounds b = {0};
    CKPT_AUTO(free) struct ckpt_run_value *value = calloc(g->ninputs + 1, sizeof(*value));
    if (!value)
        return ckpt_fail_memory(err, "running the graph");
    int rc = ckpt_graph_params_bind(c->v, c->v->graph.params, side, &b, value, err);
    for (size_t i = 0; rc == 0 && i < g->ninputs; i++)
        if (input[i].store)
            value[i].array = input[i];
    return rc < 0 ? rc : ckpt_program_run(&c->program, value, &c->v->exec, out, c->noutputs, err);
}

static int add_run(struct ckpt_graph_check *c, const char *name, uint32_t output,
                   const struct ckpt_array *ref, const struct ckpt_array *out,
                   struct ckpt_err *err) {
    struct ckpt_graph_result *const g = &c->v->graph;
    struct ckpt_run_result *const r = &g->run[g->nruns];
    r->name = name;
    snprintf(r->output, sizeof(r->output), "output.%u", output);
    const enum ckpt_dtype dtype = ckpt_program_output_dtype(&c->program, output);
    const int rc = ckpt_run_compare(c->v->options, dtype, ref, out, r, err);
    if (rc < 0)
        return rc;
    g->nruns++;
    g->status = ckpt_status_worst(g->status, r->status);
    return 0;
}

static int compare_output(struct ckpt_graph_check *c, uint32_t i, struct ckpt_err *err) {
    char key[24];
    snprintf(key, sizeof(key), "output.%u", i);
    const bool on_record = strcmp(c->inputs.origin, "recorded") == 0;
    const struct ckpt_tensor *const t =
        on_record ? ckpt_reference_get(&c->v->reference, CKPT_TEXT(""), key) : NULL;
    CKPT_AUTO(array) struct ckpt_array expected = {0};
    int rc = 0;
    if (t) {
        rc = ckpt_source_load(t, true, &c->v->exec.memory, &expected, err);
        if (rc == 0)
            rc = add_run(c, "torch-vs-recorded", i, &expected, &c->torch[i], err);
        if (rc == 0)
            rc = add_run(c, "burn-vs-recorded", i, &expected, &c->served[i], err);
    }
    return rc < 0 ? rc : add_run(c, "torch-vs-burn", i, &c->torch[i], &c->served[i], err);
}

static int run_side(struct ckpt_graph_check *c, enum ckpt_side side, struct ckpt_array *out,
                    struct ckpt_err *err) {
    const uint32_t stage = ckpt_stage_begin(
        c->v, side == CKPT_SIDE_TORCH ? "  of these, PyTorch's side" : "  burn's side");
    const int rc = ckpt_graph_check_run(c, side, c->inputs.at, out, err);
    ckpt_stage_end(c->v, stage);
    return rc;
}

static int run_all(struct ckpt_graph_check *c, struct ckpt_err *err) {
    struct ckpt_graph_result *const g = &c->v->graph;
    g->noutputs = ckpt_program_outputs(&c->program);
    c->noutputs = g->noutputs < CKPT_OUTPUTS_MAX ? g->noutputs : CKPT_OUTPUTS_MAX;
    g->more_outputs = g->noutputs - c->noutputs;
    g->run = calloc((size_t)c->noutputs * CKPT_RUNS_MAX + 1, sizeof(*g->run));
    if (!g->run)
        return ckpt_fail_memory(err, "running the graph");
    int rc = ckpt_graph_inputs_find(c->v, c->graph, c->own, &c->inputs, err);
    if (rc == 0)
        g->inputs = c->inputs.origin;
    if (rc == 0)
        rc = run_side(c, CKPT_SIDE_TORCH, c->torch, err);
    if (rc == 0)
        rc = run_side(c, CKPT_SIDE_SERVED, c->served, err);
    for (uint32_t i = 0; rc == 0 && i < c->noutputs; i++)
        rc = compare_output(c, i, err);
    if (rc < 0)
        return rc;
    const uint32_t stage = ckpt_stage_begin(c->v, "  properties");
    rc = ckpt_properties_check(c, err);
    ckpt_stage_end(c->v, stage);
    return rc;
}

static int check_graph(struct ckpt_graph_check *c, struct ckpt_err *err) {
    int rc = find_own(c);
    if (rc == 0)
        rc = ckpt_program_make(c->graph, &c->program, err);
    if (rc < 0)
        return rc;
    c->v->graph.nodes = c->graph->nnodes;
    c->v->graph.operations = count_operations(&c->program);
    rc = find_params(c, err);
    if (rc < 0 || !fits(c))
        return rc;
    rc = run_all(c, err);
    if (rc == 0)
        judge_ties(&c->v->graph);
    return rc;
}

int ckpt_verify_graph(struct ckpt_verification *v, struct ckpt_err *err) {
    CKPT_AUTO(check) struct ckpt_graph_check c = {.v = v};
    struct ckpt_err found = {0};
    v->graph.status = CKPT_STATUS_SKIP;
    if (v->chain.text || !find_graph(&c))
        return 0;
    const int rc = check_graph(&c, &found);
    if (rc == -EINTR)
        return ckpt_fail(err, rc, "interrupted");
    if (rc == 0)
        return 0;
    enum ckpt_status s = ckpt_verify_failure(rc);
    if (rc == -EOPNOTSUPP || rc == -ENOENT)
        s = CKPT_STATUS_TEST_SKIP;
    v->graph.status = ckpt_status_worst(v->graph.status, s);
    ckpt_reason_set(&v->graph.reason, "%s", found.text);
    return 0;
}
