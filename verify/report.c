/*
 * The report as JSON (docs/verify.schema.json). Its lists end after 1,000 entries and its texts
 * after 512 bytes; "truncated" tells whether any did.
 */
#include "verify/report.h"

#include <cblas.h>
#include <string.h>

#include "verify/run.h"

/* ---- texts ---- */

/* Bytes of c in a JSON string. A text that is not UTF-8 is percent-encoded where it isn't. */
static size_t escaped(unsigned char c, bool utf8) {
    if (c < 0x20 || c == 0x7f)
        return 6;
    if (c >= 0x80)
        return utf8 ? 1 : 3;
    return c == '"' || c == '\\' ? 2 : 1;
}

struct ckpt_text ckpt_report_cut(struct ckpt_text t, size_t *quoted) {
    const bool utf8 = ckpt_utf8_valid(t.s, t.n) == t.n;
    size_t n = 0, size = 0;
    while (n < t.n && size + escaped((unsigned char)t.s[n], utf8) <= CKPT_REPORT_TEXT_MAX)
        size += escaped((unsigned char)t.s[n++], utf8);
    while (utf8 && n < t.n && n > 0 && ((unsigned char)t.s[n] & 0xc0) == 0x80)
        n--; /* whole characters only */
    *quoted = size + 2;
    return (struct ckpt_text){t.s, n};
}

struct writer {
    struct ckpt_json_out json;
    bool truncated;
};

static void put_text(struct writer *w, const char *key, struct ckpt_text t) {
    size_t quoted;
    const struct ckpt_text cut = ckpt_report_cut(t, &quoted);
    w->truncated = w->truncated || cut.n < t.n;
    if (key)
        ckpt_jsonw_key(&w->json, key);
    ckpt_jsonw_text(&w->json, cut);
}

static void put_string(struct writer *w, const char *key, const char *s) {
    put_text(w, key, ckpt_text_of(s));
}

static void put_reason(struct writer *w, const struct ckpt_reason *r) {
    if (r->text[0])
        put_string(w, "reason", r->text);
}

static void put_status(struct writer *w, const char *key, enum ckpt_status s) {
    put_string(w, key, ckpt_status_name(s));
}

static void put_u64(struct writer *w, const char *key, uint64_t v) {
    ckpt_jsonw_key(&w->json, key);
    ckpt_jsonw_u64(&w->json, v);
}

static void put_double(struct writer *w, const char *key, double v) {
    ckpt_jsonw_key(&w->json, key);
    ckpt_jsonw_double(&w->json, v);
}

static void put_bool(struct writer *w, const char *key, bool v) {
    ckpt_jsonw_key(&w->json, key);
    ckpt_jsonw_bool(&w->json, v);
}

static void begin(struct writer *w, const char *key) {
    ckpt_jsonw_key(&w->json, key);
    ckpt_jsonw_object(&w->json);
}

static void end(struct writer *w) {
    ckpt_jsonw_object_end(&w->json);
}

static void begin_list(struct writer *w, const char *key) {
    ckpt_jsonw_key(&w->json, key);
    ckpt_jsonw_array(&w->json);
}

static void end_list(struct writer *w) {
    ckpt_jsonw_array_end(&w->json);
}

/* ---- what was checked, and with what ---- */

static void put_head(struct writer *w, const struct ckpt_verification *v) {
    static const char *const layouts[] = {"burn", "torch", "source"};
    put_string(w, "format", "mount.ckpt verify");
    put_u64(w, "version", 1);
    put_string(w, "generator", "mount.ckpt " CKPT_VERSION);
    put_status(w, "status", v->status);
    begin(w, "source");
    put_string(w, "file", v->model->checkpoint->name);
    put_string(w, "kind", v->model->checkpoint->format);
    put_string(w, "layout", layouts[v->model->layout]);
    put_string(w, "dialect", v->model->dialect);
    end(w);
    begin(w, "blas");
    put_string(w, "core", openblas_get_corename());
    put_string(w, "config", openblas_get_config());
    put_u64(w, "threads", 1);
    end(w);
    begin(w, "tolerance");
    put_double(w, "atol", v->options->atol);
    put_double(w, "rtol", v->options->rtol);
    end(w);
}

/* ---- bytes ---- */

static void put_mismatches(struct writer *w, const struct ckpt_bytes_result *b) {
    begin_list(w, "mismatches");
    for (uint32_t i = 0; i < b->nmismatch; i++) {
        ckpt_jsonw_object(&w->json);
        put_text(w, "key", b->mismatch[i].key);
        put_u64(w, "index", b->mismatch[i].index);
        put_string(w, "source", b->mismatch[i].source);
        put_string(w, "served", b->mismatch[i].served);
        end(w);
    }
    end_list(w);
}

static void put_fault(struct writer *w, const struct ckpt_checkpoint *c,
                      const struct ckpt_storage_fault *fault) {
    uint32_t listed = 0;
    ckpt_jsonw_object(&w->json);
    put_string(w, "entry", fault->blob->name);
    put_reason(w, &fault->why);
    begin_list(w, "tensors");
    for (size_t i = 0; i < c->ntensors; i++) {
        if (c->tensors[i].blob != fault->blob)
            continue;
        if (listed++ == CKPT_FAULT_TENSORS_MAX) {
            w->truncated = true;
            break;
        }
        put_text(w, NULL, c->tensors[i].key);
    }
    end_list(w);
    end(w);
}

static void put_bytes(struct writer *w, const struct ckpt_verification *v) {
    const struct ckpt_bytes_result *const b = &v->bytes;
    w->truncated = w->truncated || b->truncated;
    begin(w, "bytes");
    put_status(w, "status", b->status);
    put_reason(w, &b->reason);
    put_u64(w, "tensors", b->tensors);
    put_u64(w, "elements", b->elements);
    put_u64(w, "computed", b->computed);
    put_u64(w, "unchecked", b->unchecked);
    put_u64(w, "mismatched", b->mismatches);
    put_mismatches(w, b);
    begin(w, "checksums");
    put_u64(w, "storages", b->storages);
    begin_list(w, "wrong");
    for (uint32_t i = 0; i < b->nfaults; i++)
        put_fault(w, v->model->checkpoint, &b->fault[i]);
    end_list(w);
    end(w);
    end(w);
}

/* ---- layers ---- */

static void put_layer(struct writer *w, const struct ckpt_layer_result *r, bool cast) {
    ckpt_jsonw_object(&w->json);
    put_text(w, "path", r->layer->path);
    put_text(w, "type", ckpt_layer_type(r->layer));
    put_string(w, "basis", r->layer->decided_by ? r->layer->decided_by : "none");
    put_status(w, "status", r->status);
    if (r->compared)
        put_double(w, "max_abs", r->max_abs);
    if (r->compared && cast)
        put_double(w, "cast_max_abs", r->cast_max);
    if (r->recorded != CKPT_STATUS_SKIP) {
        begin(w, "recorded");
        put_status(w, "status", r->recorded);
        put_double(w, "torch_max_abs", r->torch_max);
        put_double(w, "burn_max_abs", r->served_max);
        end(w);
    }
    if (r->nassumed) {
        begin_list(w, "assumed");
        for (uint32_t i = 0; i < r->nassumed; i++)
            put_string(w, NULL, r->assumed[i]);
        end_list(w);
    }
    put_reason(w, &r->reason);
    end(w);
}

static void put_layers(struct writer *w, const struct ckpt_layers_result *all) {
    w->truncated = w->truncated || all->truncated;
    begin_list(w, "layers");
    for (size_t i = 0; i < all->n; i++)
        put_layer(w, &all->at[i], all->most_cast);
    end_list(w);
}

/* What the cast alone does to the outputs of the layers. */
static void put_cast(struct writer *w, const struct ckpt_verification *v) {
    if (!v->layer.most_cast)
        return;
    begin(w, "cast");
    put_u64(w, "tensors", v->model->ncast);
    put_double(w, "max_abs", v->layer.cast_max);
    put_text(w, "layer", v->layer.most_cast->path);
    end(w);
}

/* ---- the whole model ---- */

static void put_shape(struct writer *w, const char *key, const int64_t *shape, uint32_t ndim) {
    begin_list(w, key);
    for (uint32_t d = 0; d < ndim; d++)
        ckpt_jsonw_i64(&w->json, shape[d]);
    end_list(w);
}

static void put_diff(struct writer *w, const struct ckpt_diff *d) {
    begin(w, "diff");
    put_u64(w, "size", (uint64_t)d->size);
    put_u64(w, "ref_size", (uint64_t)d->ref_size);
    put_u64(w, "out_size", (uint64_t)d->out_size);
    put_bool(w, "size_match", d->size_match);
    put_shape(w, "ref_shape", d->ref_shape, d->ref_ndim);
    put_shape(w, "out_shape", d->out_shape, d->out_ndim);
    put_bool(w, "shape_match", d->shape_match);
    put_double(w, "atol", d->atol);
    put_double(w, "rtol", d->rtol);
    put_bool(w, "allclose", d->allclose);
    put_double(w, "max_abs", d->max_abs);
    put_double(w, "mean_abs", d->mean_abs);
    put_double(w, "max_rel", d->max_rel);
    put_double(w, "p50", d->p50);
    put_double(w, "p95", d->p95);
    put_double(w, "p99", d->p99);
    put_u64(w, "n_invalid", (uint64_t)d->ninvalid);
    begin_list(w, "top_mismatch");
    for (uint32_t i = 0; i < d->ntop; i++) {
        ckpt_jsonw_array(&w->json);
        ckpt_jsonw_i64(&w->json, d->top[i].index);
        ckpt_jsonw_double(&w->json, d->top[i].error);
        end_list(w);
    }
    end_list(w);
    end(w);
}

static void put_runs(struct writer *w, const struct ckpt_chain_result *c) {
    begin_list(w, "runs");
    for (uint32_t i = 0; i < c->nruns; i++) {
        ckpt_jsonw_object(&w->json);
        put_string(w, "name", c->run[i].name);
        put_string(w, "output", c->run[i].output);
        put_status(w, "status", c->run[i].status);
        put_diff(w, &c->run[i].diff);
        end(w);
    }
    end_list(w);
}

static void put_graph(struct writer *w, const struct ckpt_verification *v) {
    const char *const chain = v->options->chain;
    const bool failed = v->graph.status == CKPT_STATUS_TEST_SKIP;
    begin(w, "graph");
    put_string(w, "kind", chain ? "chain" : failed ? "file" : "none");
    put_status(w, "status", chain && !failed ? v->chain.status : v->graph.status);
    if (chain)
        put_string(w, "chain", chain);
    put_u64(w, "steps", v->chain.steps);
    put_reason(w, chain && !failed ? &v->chain.reason : &v->graph.reason);
    end(w);
}

static void put_reference(struct writer *w, const struct ckpt_reference *r) {
    begin(w, "reference");
    put_status(w, "status", r->status);
    if (r->file)
        put_string(w, "file", r->file->name);
    put_reason(w, &r->reason);
    end(w);
}

/* ---- how far to trust it ---- */

static void put_coverage(struct writer *w, const struct ckpt_verification *v) {
    size_t in_model = 0;
    for (size_t i = 0; i < v->model->ntensors; i++)
        in_model += v->model->tensor[i].in_model;
    begin(w, "coverage");
    put_u64(w, "tensors", v->model->ntensors);
    put_u64(w, "model_tensors", in_model);
    put_u64(w, "probed_tensors", v->layer.parameters);
    put_u64(w, "layers", v->layer.total);
    put_u64(w, "layers_probed", v->layer.probed);
    put_u64(w, "layers_recorded", v->layer.recorded);
    put_u64(w, "chain_steps", v->chain.steps);
    put_u64(w, "outputs_compared", v->chain.nruns);
    end(w);
}

static bool any_cast(const struct ckpt_model *m) {
    return m->ncast > 0;
}

static void put_limits(struct writer *w, const struct ckpt_verification *v) {
    begin_list(w, "limits");
    put_string(w, NULL,
               "Probes compare PyTorch's layout with burn's, layer by layer; a damaged source "
               "passes them. Only recorded outputs reveal that.");
    if (v->layer.probed < v->layer.total)
        put_string(w, NULL, "Layers that are SKIP were compared byte by byte only.");
    if (!v->chain.nruns)
        put_string(w, NULL,
                   "No whole model ran: the order of layers is never guessed. Give chain= and "
                   "record outputs with PyTorch.");
    if (v->chain.seeded && v->chain.nruns)
        put_string(w, NULL, "The chain ran on a seeded probe, not on a recorded input.");
    if (v->chain.more_outputs)
        put_string(w, NULL,
                   "A chain has one output; the other recorded outputs were not compared.");
    if (any_cast(v->model))
        put_string(
            w, NULL,
            "Tensors were cast: layers are compared after the same rounding of the source; by "
            "how much that rounding changes them is cast_max_abs. Recorded outputs and "
            "chains are held to atol= and rtol=, which may have to allow for it.");
    if (v->bytes.computed)
        put_string(
            w, NULL,
            "Computed: weights that weight_norm or LoRA makes of several tensors; each element "
            "was compared with a float64 evaluation, within the rounding of its sum.");
    if (v->bytes.unchecked)
        put_string(w, NULL,
                   "Unchecked: tensors of packed elements that an operation touches; and of a "
                   "broadcast far larger than its storage, all but both ends.");
    if (ckpt_model_is_burn(v->model) && v->model->layout != CKPT_LAYOUT_TORCH)
        put_string(w, NULL,
                   "The source is in burn's layout already: its bytes are checked, its layers are "
                   "not recognised.");
    end_list(w);
}

void ckpt_report_write(const struct ckpt_verification *v, struct ckpt_str *out) {
    struct writer w = {.json = {.out = out, .pretty = true}};
    ckpt_jsonw_object(&w.json);
    put_head(&w, v);
    put_graph(&w, v);
    put_reference(&w, &v->reference);
    put_runs(&w, &v->chain);
    put_layers(&w, &v->layer);
    put_cast(&w, v);
    put_bytes(&w, v);
    begin(&w, "params");
    begin_list(&w, "differs");
    end_list(&w);
    end(&w);
    put_coverage(&w, v);
    put_limits(&w, v);
    put_bool(&w, "truncated", w.truncated);
    ckpt_jsonw_object_end(&w.json);
    ckpt_str_puts(out, "\n");
}
