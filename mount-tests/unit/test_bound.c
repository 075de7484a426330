/*
 * verify.json has its size before it is made. Property: of a model and a graph, the longest report
 * that the tables allow (all lists full, every text nothing but control characters, every number as
 * long as numbers get) is within the bound. What real reports need is held against it in
 * test_verify.c and by the tests that mount.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/graph.h"
#include "verify/graph_params.h"
#include "verify/run.h"

#define VERIFY FIXTURES "/verify/"

static char longest[CKPT_REASON_MAX + 1];

static void fill_reason(struct ckpt_reason *r) {
    memset(r->text, 1, sizeof(r->text) - 1);
}

static void fill_run(struct ckpt_run_result *r, const char *output) {
    struct ckpt_diff *const d = &r->diff;
    *r = (struct ckpt_run_result){.name = "torch-vs-recorded", .status = CKPT_STATUS_CONVERT_FAIL};
    strcpy(r->output, output);
    d->size = d->ref_size = d->out_size = d->ninvalid = INT64_MAX;
    d->ref_ndim = d->out_ndim = CKPT_ARRAY_NDIM_MAX;
    for (int i = 0; i < CKPT_ARRAY_NDIM_MAX; i++)
        d->ref_shape[i] = d->out_shape[i] = INT64_MAX;
    d->atol = d->rtol = d->max_abs = d->mean_abs = d->max_rel = d->p50 = d->p95 = d->p99 = -DBL_MAX;
    d->ntop = CKPT_DIFF_TOP;
    for (int i = 0; i < CKPT_DIFF_TOP; i++) {
        d->top[i].index = INT64_MAX;
        d->top[i].error = -DBL_MAX;
    }
}

static void fill_bytes(struct ckpt_verification *v) {
    struct ckpt_bytes_result *const b = &v->bytes;
    const struct ckpt_model *const m = v->model;
    *b = (struct ckpt_bytes_result){.status = CKPT_STATUS_CONVERT_FAIL};
    b->tensors = b->elements = b->mismatches = b->unchecked = b->storages = b->computed =
        UINT64_MAX;
    fill_reason(&b->reason);
    b->mismatch = calloc(CKPT_MISMATCHES_MAX, sizeof(*b->mismatch));
    b->fault = calloc(CKPT_MISMATCHES_MAX, sizeof(*b->fault));
    assert_non_null(b->mismatch);
    assert_non_null(b->fault);
    for (size_t i = 0; i < m->ntensors; i++) {
        const uint32_t unit = ckpt_dtype_info(m->tensor[i].dtype)->unit_bytes;
        const uint64_t units = m->tensor[i].nbytes / unit;
        for (uint64_t k = 0;
             k < units && k < CKPT_MISMATCHES_PER_TENSOR && b->nmismatch < CKPT_MISMATCHES_MAX;
             k++) {
            struct ckpt_mismatch *const x = &b->mismatch[b->nmismatch++];
            *x = (struct ckpt_mismatch){.key = m->tensor[i].key, .index = UINT64_MAX};
            memset(x->source, 'f', 2 + 2 * unit);
            memset(x->served, 'f', 2 + 2 * unit);
        }
    }
    for (size_t i = 0; i < m->checkpoint->nblobs && b->nfaults < CKPT_MISMATCHES_MAX; i++)
        if (m->checkpoint->blobs[i]->ops->check) {
            b->fault[b->nfaults].blob = m->checkpoint->blobs[i];
            fill_reason(&b->fault[b->nfaults++].why);
        }
}

static void fill_layers(struct ckpt_verification *v) {
    struct ckpt_layers_result *const all = &v->layer;
    assert_int_equal(ckpt_layers_find(v->model, &v->layers, NULL), 0);
    all->n = v->layers.n < CKPT_LAYERS_LISTED ? v->layers.n : CKPT_LAYERS_LISTED;
    all->at = calloc(all->n + 1, sizeof(*all->at));
    assert_non_null(all->at);
    all->total = all->recorded = SIZE_MAX;
    all->parameters = UINT64_MAX;
    all->cast_max = -DBL_MAX;
    for (size_t i = 0; i < all->n; i++) {
        struct ckpt_layer_result *const r = &all->at[i];
        *r = (struct ckpt_layer_result){.layer = &v->layers.at[i], .compared = true};
        all->most_cast = r->layer;
        r->max_abs = r->cast_max = r->torch_max = r->served_max = -DBL_MAX;
        r->status = r->recorded = CKPT_STATUS_CONVERT_FAIL;
        fill_reason(&r->reason);
        for (r->nassumed = 0; r->nassumed < CKPT_PLAN_ASSUMED; r->nassumed++)
            r->assumed[r->nassumed] = "track_running_stats";
    }
}

static void fill_params(struct ckpt_graph_result *g, const struct ckpt_model *m,
                        const struct ckpt_graph *graph, bool missing) {
    struct ckpt_graph_params *const p = calloc(1, sizeof(*p));
    assert_non_null(p);
    g->params = p;
    p->n = graph->ninputs;
    p->used = p->missing = p->unused = SIZE_MAX;
    p->read_back = p->not_served = p->differs = 1;
    p->at = ckpt_arena_array(&p->arena, p->n, sizeof(*p->at));
    p->unexpected = ckpt_arena_array(&p->arena, m->ntensors, sizeof(*p->unexpected));
    assert_non_null(p->at);
    assert_non_null(p->unexpected);
    for (size_t i = 0; i < p->n; i++)
        p->at[i] = (struct ckpt_graph_param){
            .input = &graph->input[i],
            .used = true,
            .ill_shaped = true,
            .differs = true,
            .from = missing ? CKPT_FROM_NOWHERE : CKPT_FROM_MODEL,
            .served = CKPT_SERVED_READ_BACK,
        };
    for (size_t i = 0; i < m->ntensors; i++)
        p->unexpected[p->nunexpected++] = m->tensor[i].torch_key;
}

static void fill_graph(struct ckpt_verification *v, const struct ckpt_graph *graph, bool missing) {
    struct ckpt_graph_result *const g = &v->graph;
    g->file = longest;
    g->nodes = g->operations = SIZE_MAX;
    g->inputs = "recorded";
    g->status = CKPT_STATUS_CONVERT_FAIL;
    g->more_outputs = UINT32_MAX;
    fill_reason(&g->reason);
    size_t outputs = 0;
    for (size_t i = 0; i < graph->noutputs; i++)
        outputs += graph->output[i].arg.n;
    outputs = outputs < CKPT_OUTPUTS_MAX ? outputs : CKPT_OUTPUTS_MAX;
    g->run = calloc(outputs * CKPT_RUNS_MAX + 1, sizeof(*g->run));
    assert_non_null(g->run);
    while (g->nruns < outputs * CKPT_RUNS_MAX)
        fill_run(&g->run[g->nruns++], "output.63");
    while (g->nproperties < CKPT_PROPERTIES_MAX) {
        struct ckpt_property *const p = &g->property[g->nproperties++];
        *p = (struct ckpt_property){.name = "repeatable", .status = CKPT_STATUS_CONVERT_FAIL};
        fill_reason(&p->detail);
    }
    fill_params(g, v->model, graph, missing);
}

/* Everything that may stand there once; a chain and a graph exclude each other. */
static void fill_rest(struct ckpt_verification *v) {
    v->status = CKPT_STATUS_CONVERT_FAIL;
    v->reference.status = CKPT_STATUS_CONVERT_FAIL;
    fill_reason(&v->reference.reason);
    v->chain.more_outputs = UINT32_MAX;
    v->chain.seeded = true;
    v->chain.steps = UINT32_MAX;
}

static void fill_chain(struct ckpt_verification *v) {
    v->chain.text = longest;
    v->chain.status = CKPT_STATUS_CONVERT_FAIL;
    fill_reason(&v->chain.reason);
    while (v->chain.nruns < CKPT_RUNS_MAX)
        fill_run(&v->chain.run[v->chain.nruns++], "output.0");
}

static void finish(struct ckpt_verification *v) {
    free(v->bytes.mismatch);
    free(v->bytes.fault);
    free(v->layer.at);
    ckpt_graph_result_fini(&v->graph);
    ckpt_layers_fini(&v->layers);
}

static void hold(struct ckpt_model *m, const struct ckpt_graph *graph, bool missing) {
    struct ckpt_checkpoint reference = {.name = longest};
    const struct ckpt_verify_options o = {.atol = -DBL_MAX, .rtol = -DBL_MAX, .opened = graph};
    struct ckpt_verification v = {.model = m, .options = &o};
    CKPT_AUTO(str) struct ckpt_str out = {0};
    v.reference.file = &reference;
    fill_rest(&v);
    fill_bytes(&v);
    fill_layers(&v);
    if (graph)
        fill_graph(&v, graph, missing);
    else
        fill_chain(&v);
    ckpt_report_write(&v, &out);
    const size_t bound = ckpt_verify_bound(m, &o);
    printf("%zu of %zu bytes\n", out.n, bound);
    assert_true(!out.failed && out.n <= bound);
    assert_true(bound < 3 * out.n + 16384); /* and no waste: ls and cp see that size */
    finish(&v);
}

static void check(const char *source, const char *graph_path) {
    const struct ckpt_open_options plain = {0};
    const struct ckpt_adapt_options burn = {0};
    CKPT_AUTO(graph) struct ckpt_graph *graph = NULL;
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_model *m = NULL;
    struct ckpt_err err = {0};
    printf("%s: ", source);
    if (ckpt_checkpoint_open(source, &plain, &c, &err) != 0 ||
        ckpt_model_build(c, &burn, &m, &err) != 0 ||
        (graph_path && ckpt_graph_open(graph_path, &graph, &err) != 0))
        fail_msg("%s: %s", source, err.text);
    const char *const name = c->name;
    c->name = longest;
    m->ncast = 1; /* what casts add is there, too */
    hold(m, graph, false);
    if (graph)
        hold(m, graph, true);
    c->name = name;
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void within_bound(void **state) {
    (void)state;
    memset(longest, 1, sizeof(longest) - 1);
    check(VERIFY "square.safetensors", NULL);
    check(VERIFY "square_full.pt", VERIFY "square.pt2");
    check(VERIFY "mlp_full.pt", VERIFY "mlp.pt2");
    check(VERIFY "cnn_bn_state.pt", VERIFY "cnn_bn.pt2");
    check(VERIFY "minimal_transformer.safetensors", VERIFY "minimal_transformer.pt2");
    check(VERIFY "llama_tiny.safetensors", VERIFY "llama_tiny.pt2");
    check(VERIFY "probe_layers_full.pt", NULL);
    check(FIXTURES "/burn-nn/decoder_pre_gelu_full.pt", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(within_bound)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
