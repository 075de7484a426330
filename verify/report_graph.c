/* The report of the whole model: its graph or chain, the outputs that were compared, and what
 * became of the graph's parameters. */
#include "verify/graph_params.h"
#include "verify/report_put.h"

/* ---- outputs ---- */

static void put_shape(struct ckpt_report_out *w, const char *key, const int64_t *shape,
                      uint32_t ndim) {
    ckpt_put_list(w, key);
    for (uint32_t d = 0; d < ndim; d++)
        ckpt_jsonw_i64(&w->json, shape[d]);
    ckpt_put_list_end(w);
}

static void put_diff(struct ckpt_report_out *w, const struct ckpt_diff *d) {
    ckpt_put_begin(w, "diff");
    ckpt_put_u64(w, "size", (uint64_t)d->size);
    ckpt_put_u64(w, "ref_size", (uint64_t)d->ref_size);
    ckpt_put_u64(w, "out_size", (uint64_t)d->out_size);
    ckpt_put_bool(w, "size_match", d->size_match);
    put_shape(w, "ref_shape", d->ref_shape, d->ref_ndim);
    put_shape(w, "out_shape", d->out_shape, d->out_ndim);
    ckpt_put_bool(w, "shape_match", d->shape_match);
    ckpt_put_double(w, "atol", d->atol);
    ckpt_put_double(w, "rtol", d->rtol);
    ckpt_put_bool(w, "allclose", d->allclose);
    ckpt_put_double(w, "max_abs", d->max_abs);
    ckpt_put_double(w, "mean_abs", d->mean_abs);
    ckpt_put_double(w, "max_rel", d->max_rel);
    ckpt_put_double(w, "p50", d->p50);
    ckpt_put_double(w, "p95", d->p95);
    ckpt_put_double(w, "p99", d->p99);
    ckpt_put_u64(w, "n_invalid", (uint64_t)d->ninvalid);
    ckpt_put_list(w, "top_mismatch");
    for (uint32_t i = 0; i < d->ntop; i++) {
        ckpt_jsonw_array(&w->json);
        ckpt_jsonw_i64(&w->json, d->top[i].index);
        ckpt_jsonw_double(&w->json, d->top[i].error);
        ckpt_put_list_end(w);
    }
    ckpt_put_list_end(w);
    ckpt_put_end(w);
}

static void put_some_runs(struct ckpt_report_out *w, const struct ckpt_run_result *r, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        ckpt_jsonw_object(&w->json);
        ckpt_put_string(w, "name", r[i].name);
        ckpt_put_string(w, "output", r[i].output);
        ckpt_put_status(w, "status", r[i].status);
        if (r[i].dtype != CKPT_DT_NONE)
            ckpt_put_string(w, "tolerance_of", ckpt_dtype_info(r[i].dtype)->name);
        put_diff(w, &r[i].diff);
        ckpt_put_end(w);
    }
}

void ckpt_put_runs(struct ckpt_report_out *w, const struct ckpt_verification *v) {
    ckpt_put_list(w, "runs");
    put_some_runs(w, v->chain.run, v->chain.nruns);
    put_some_runs(w, v->graph.run, v->graph.nruns);
    ckpt_put_list_end(w);
}

/* ---- the graph ---- */

void ckpt_put_graph(struct ckpt_report_out *w, const struct ckpt_verification *v) {
    const struct ckpt_graph_result *const g = &v->graph;
    const char *const chain = v->chain.text;
    ckpt_put_begin(w, "graph");
    ckpt_put_string(w, "kind",
                    v->chain.found ? "sequential"
                    : chain        ? "chain"
                    : !g->file     ? "none"
                    : g->own       ? "source"
                                   : "file");
    ckpt_put_status(w, "status", chain ? v->chain.status : g->status);
    if (chain)
        ckpt_put_string(w, "chain", chain);
    else if (g->file)
        ckpt_put_string(w, "file", g->file);
    ckpt_put_u64(w, "steps", v->chain.steps);
    ckpt_put_u64(w, "nodes", g->nodes);
    ckpt_put_u64(w, "operations", g->operations);
    if (g->inputs)
        ckpt_put_string(w, "inputs", g->inputs);
    ckpt_put_reason(w, chain ? &v->chain.reason : &g->reason);
    ckpt_put_end(w);
}

void ckpt_put_properties(struct ckpt_report_out *w, const struct ckpt_verification *v) {
    ckpt_put_list(w, "properties");
    for (uint32_t i = 0; i < v->graph.nproperties; i++) {
        ckpt_jsonw_object(&w->json);
        ckpt_put_string(w, "name", v->graph.property[i].name);
        ckpt_put_status(w, "status", v->graph.property[i].status);
        ckpt_put_string(w, "detail", v->graph.property[i].detail.text);
        ckpt_put_end(w);
    }
    ckpt_put_list_end(w);
}

/* ---- its parameters ---- */

static bool is_unused(const struct ckpt_graph_param *p) {
    return !p->used;
}

static bool is_missing(const struct ckpt_graph_param *p) {
    return p->used && p->from == CKPT_FROM_NOWHERE;
}

static bool is_ill_shaped(const struct ckpt_graph_param *p) {
    return p->ill_shaped;
}

static bool is_different(const struct ckpt_graph_param *p) {
    return p->differs;
}

static bool is_read_back(const struct ckpt_graph_param *p) {
    return p->used && p->from == CKPT_FROM_MODEL && p->served == CKPT_SERVED_READ_BACK;
}

static bool is_not_served(const struct ckpt_graph_param *p) {
    return p->used && p->from == CKPT_FROM_HIDDEN;
}

static void put_names(struct ckpt_report_out *w, const char *key,
                      const struct ckpt_graph_params *all,
                      bool (*wanted)(const struct ckpt_graph_param *)) {
    size_t listed = 0;
    ckpt_put_list(w, key);
    for (size_t i = 0; all && i < all->n; i++) {
        if (!all->at[i].input || !wanted(&all->at[i]))
            continue;
        w->truncated = w->truncated || listed == CKPT_NAMES_LISTED;
        if (listed < CKPT_NAMES_LISTED)
            ckpt_put_text(w, NULL, all->at[i].input->name);
        listed++;
    }
    ckpt_put_list_end(w);
}

static void put_unexpected(struct ckpt_report_out *w, const struct ckpt_graph_params *all) {
    ckpt_put_list(w, "unexpected");
    for (size_t i = 0; all && i < all->nunexpected && i < CKPT_NAMES_LISTED; i++)
        ckpt_put_text(w, NULL, all->unexpected[i]);
    w->truncated = w->truncated || (all && all->nunexpected > CKPT_NAMES_LISTED);
    ckpt_put_list_end(w);
}

void ckpt_put_params(struct ckpt_report_out *w, const struct ckpt_verification *v) {
    const struct ckpt_graph_params *const all = v->graph.params;
    ckpt_put_begin(w, "params");
    ckpt_put_u64(w, "used", all ? all->used : 0);
    put_names(w, "unused", all, is_unused);
    put_names(w, "missing", all, is_missing);
    put_unexpected(w, all);
    put_names(w, "shape_mismatch", all, is_ill_shaped);
    put_names(w, "differs", all, is_different);
    put_names(w, "read_back", all, is_read_back);
    put_names(w, "not_served", all, is_not_served);
    ckpt_put_end(w);
}
