/*
 * The report as JSON (docs/verify.schema.json). Its lists end after 1,000 entries and its texts
 * after 512 bytes; "truncated" tells whether any did.
 */
#include "verify/report.h"

#include <string.h>

#include "formats/chunk_grid.h"
#include "verify/graph_params.h"
#include "verify/report_put.h"
#include "verify/blas.h"

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

/* ---- what was checked, and with what ---- */

static void put_head(struct ckpt_report_out *w, const struct ckpt_verification *v) {
    static const char *const layouts[] = {"burn", "torch", "source"};
    ckpt_put_string(w, "format", "mount.ckpt verify");
    ckpt_put_u64(w, "version", 1);
    ckpt_put_string(w, "generator", "mount.ckpt " CKPT_VERSION);
    ckpt_put_status(w, "status", v->status);
    ckpt_put_begin(w, "source");
    ckpt_put_string(w, "file", v->model->checkpoint->name);
    ckpt_put_string(w, "kind", v->model->checkpoint->format);
    ckpt_put_string(w, "layout", layouts[v->model->layout]);
    ckpt_put_string(w, "dialect", v->model->dialect);
    ckpt_put_end(w);
    ckpt_put_begin(w, "blas");
    ckpt_put_string(w, "core", ckpt_blas_core());
    ckpt_put_string(w, "config", ckpt_blas_config());
    ckpt_put_u64(w, "threads", 1);
    ckpt_put_end(w);
    ckpt_put_begin(w, "tolerance");
    ckpt_put_double(w, "atol", v->options->atol);
    ckpt_put_double(w, "rtol", v->options->rtol);
    ckpt_put_end(w);
}

/* ---- bytes ---- */

static void put_mismatches(struct ckpt_report_out *w, const struct ckpt_bytes_result *b) {
    ckpt_put_list(w, "mismatches");
    for (uint32_t i = 0; i < b->nmismatch; i++) {
        ckpt_jsonw_object(&w->json);
        ckpt_put_text(w, "key", b->mismatch[i].key);
        ckpt_put_u64(w, "index", b->mismatch[i].index);
        ckpt_put_string(w, "source", b->mismatch[i].source);
        ckpt_put_string(w, "served", b->mismatch[i].served);
        ckpt_put_end(w);
    }
    ckpt_put_list_end(w);
}

static bool lies_in(const struct ckpt_tensor *t, const struct ckpt_blob *storage) {
    const struct ckpt_chunk_grid *const g = ckpt_chunk_grid_of(t->blob);
    return t->blob == storage || (g && ckpt_chunk_grid_within(g, storage) > 0);
}

static void put_fault(struct ckpt_report_out *w, const struct ckpt_checkpoint *c,
                      const struct ckpt_storage_fault *fault) {
    uint32_t listed = 0;
    ckpt_jsonw_object(&w->json);
    ckpt_put_string(w, "entry", fault->blob->name);
    if (fault->blob->file)
        ckpt_put_string(w, "file", fault->blob->file->name);
    ckpt_put_reason(w, &fault->why);
    ckpt_put_list(w, "tensors");
    for (size_t i = 0; i < c->ntensors; i++) {
        if (!lies_in(&c->tensors[i], fault->blob))
            continue;
        if (listed++ == CKPT_FAULT_TENSORS_MAX) {
            w->truncated = true;
            break;
        }
        ckpt_put_text(w, NULL, c->tensors[i].key);
    }
    ckpt_put_list_end(w);
    ckpt_put_end(w);
}

static void put_bytes(struct ckpt_report_out *w, const struct ckpt_verification *v) {
    const struct ckpt_bytes_result *const b = &v->bytes;
    w->truncated = w->truncated || b->truncated;
    ckpt_put_begin(w, "bytes");
    ckpt_put_status(w, "status", b->status);
    ckpt_put_reason(w, &b->reason);
    ckpt_put_u64(w, "tensors", b->tensors);
    ckpt_put_u64(w, "elements", b->elements);
    ckpt_put_u64(w, "computed", b->computed);
    ckpt_put_u64(w, "unchecked", b->unchecked);
    ckpt_put_u64(w, "mismatched", b->mismatches);
    put_mismatches(w, b);
    ckpt_put_begin(w, "checksums");
    ckpt_put_u64(w, "storages", b->storages);
    ckpt_put_list(w, "wrong");
    for (uint32_t i = 0; i < b->nfaults; i++)
        put_fault(w, v->model->checkpoint, &b->fault[i]);
    ckpt_put_list_end(w);
    ckpt_put_end(w);
    ckpt_put_end(w);
}

/* ---- layers ---- */

static void put_layer(struct ckpt_report_out *w, const struct ckpt_layer_result *r, bool cast) {
    ckpt_jsonw_object(&w->json);
    ckpt_put_text(w, "path", r->layer->path);
    ckpt_put_text(w, "type", ckpt_layer_type(r->layer));
    ckpt_put_string(w, "basis", r->layer->decided_by ? r->layer->decided_by : "none");
    ckpt_put_status(w, "status", r->status);
    if (r->compared)
        ckpt_put_double(w, "max_abs", r->max_abs);
    if (r->compared && cast)
        ckpt_put_double(w, "cast_max_abs", r->cast_max);
    if (r->recorded != CKPT_STATUS_SKIP) {
        ckpt_put_begin(w, "recorded");
        ckpt_put_status(w, "status", r->recorded);
        ckpt_put_double(w, "torch_max_abs", r->torch_max);
        ckpt_put_double(w, "burn_max_abs", r->served_max);
        ckpt_put_end(w);
    }
    if (r->nassumed) {
        ckpt_put_list(w, "assumed");
        for (uint32_t i = 0; i < r->nassumed; i++)
            ckpt_put_string(w, NULL, r->assumed[i]);
        ckpt_put_list_end(w);
    }
    ckpt_put_reason(w, &r->reason);
    ckpt_put_end(w);
}

static void put_layers(struct ckpt_report_out *w, const struct ckpt_layers_result *all) {
    w->truncated = w->truncated || all->truncated;
    ckpt_put_list(w, "layers");
    for (size_t i = 0; i < all->n; i++)
        put_layer(w, &all->at[i], all->most_cast);
    ckpt_put_list_end(w);
}

/* What the cast alone does to the outputs of the layers. */
static void put_cast(struct ckpt_report_out *w, const struct ckpt_verification *v) {
    if (!v->layer.most_cast)
        return;
    ckpt_put_begin(w, "cast");
    ckpt_put_u64(w, "tensors", v->model->ncast);
    ckpt_put_double(w, "max_abs", v->layer.cast_max);
    ckpt_put_text(w, "layer", v->layer.most_cast->path);
    ckpt_put_end(w);
}

/* ---- the whole model ---- */

static void put_reference(struct ckpt_report_out *w, const struct ckpt_reference *r) {
    ckpt_put_begin(w, "reference");
    ckpt_put_status(w, "status", r->status);
    if (r->file)
        ckpt_put_string(w, "file", r->file->name);
    ckpt_put_reason(w, &r->reason);
    ckpt_put_end(w);
}

/* ---- how far to trust it ---- */

static void put_coverage(struct ckpt_report_out *w, const struct ckpt_verification *v) {
    size_t in_model = 0;
    for (size_t i = 0; i < v->model->ntensors; i++)
        in_model += v->model->tensor[i].in_model;
    ckpt_put_begin(w, "coverage");
    ckpt_put_u64(w, "tensors", v->model->ntensors);
    ckpt_put_u64(w, "model_tensors", in_model);
    ckpt_put_u64(w, "probed_tensors", v->layer.parameters);
    ckpt_put_u64(w, "layers", v->layer.total);
    ckpt_put_u64(w, "layers_probed", v->layer.probed);
    ckpt_put_u64(w, "layers_recorded", v->layer.recorded);
    ckpt_put_u64(w, "chain_steps", v->chain.steps);
    ckpt_put_u64(w, "graph_parameters", v->graph.params ? v->graph.params->used : 0);
    ckpt_put_u64(w, "outputs_compared", v->chain.nruns + v->graph.nruns);
    ckpt_put_end(w);
}

static bool any_cast(const struct ckpt_model *m) {
    return m->ncast > 0;
}

static void put_limits(struct ckpt_report_out *w, const struct ckpt_verification *v) {
    ckpt_put_list(w, "limits");
    ckpt_put_string(w, NULL,
                    "Probes compare PyTorch's layout with burn's, layer by layer; a damaged source "
                    "passes them. Only recorded outputs reveal that.");
    if (v->layer.probed < v->layer.total)
        ckpt_put_string(w, NULL, "Layers that are SKIP were compared byte by byte only.");
    if (!v->chain.nruns && !v->graph.nruns)
        ckpt_put_string(w, NULL,
                        "No whole model ran: the order of layers is never guessed. Give graph= or "
                        "chain=, and record outputs with PyTorch.");
    if (v->graph.nruns && ckpt_graph_recorded(&v->graph) == 0)
        ckpt_put_string(w, NULL,
                        "The graph's outputs were not recorded: both runs would agree on a damaged "
                        "source. Give reference=.");
    if (v->graph.more_outputs)
        ckpt_put_string(w, NULL, "Of the graph's outputs the first 64 were compared.");
    if (v->graph.params && v->graph.params->read_back)
        ckpt_put_string(w, NULL,
                        "Parameters that are read back (params.read_back) were put together again "
                        "from what a rule made of them: only their bytes are checked.");
    if (v->graph.params && v->graph.params->not_served)
        ckpt_put_string(w, NULL,
                        "Parameters that the mount does not show (params.not_served: left out, or "
                        "what a shown weight is computed from) were the source's in both runs.");
    if (v->graph.params && v->graph.params->differs)
        ckpt_put_string(w, NULL,
                        "Some tensors differ from the weights that the graph's own file holds "
                        "(params.differs); the recorded input need not show it.");
    if (v->chain.seeded && v->chain.nruns)
        ckpt_put_string(w, NULL, "The chain ran on a seeded probe, not on a recorded input.");
    if (v->chain.more_outputs)
        ckpt_put_string(w, NULL,
                        "A chain has one output; the other recorded outputs were not compared.");
    if (any_cast(v->model))
        ckpt_put_string(
            w, NULL,
            "Tensors were cast: layers are compared after the same rounding of the source; by "
            "how much that rounding changes them is cast_max_abs. Recorded outputs, graphs and "
            "chains are held to atol= and rtol=, which may have to allow for it.");
    if (v->bytes.computed)
        ckpt_put_string(
            w, NULL,
            "Computed: weights that weight_norm or LoRA makes of several tensors; each element "
            "was compared with a float64 evaluation, within the rounding of its sum.");
    if (v->bytes.unchecked)
        ckpt_put_string(w, NULL,
                        "Unchecked: tensors of packed elements that an operation touches; and of a "
                        "broadcast far larger than its storage, all but both ends.");
    if (ckpt_model_is_burn(v->model) && v->model->layout != CKPT_LAYOUT_TORCH)
        ckpt_put_string(
            w, NULL,
            "The source is in burn's layout already: its bytes are checked, its layers are "
            "not recognised.");
    ckpt_put_list_end(w);
}

void ckpt_report_write(const struct ckpt_verification *v, struct ckpt_str *out) {
    struct ckpt_report_out w = {.json = {.out = out, .pretty = true}};
    ckpt_jsonw_object(&w.json);
    put_head(&w, v);
    ckpt_put_graph(&w, v);
    put_reference(&w, &v->reference);
    ckpt_put_runs(&w, v);
    ckpt_put_properties(&w, v);
    put_layers(&w, &v->layer);
    put_cast(&w, v);
    put_bytes(&w, v);
    ckpt_put_params(&w, v);
    put_coverage(&w, v);
    put_limits(&w, v);
    ckpt_put_bool(&w, "truncated", w.truncated);
    ckpt_jsonw_object_end(&w.json);
    ckpt_str_puts(out, "\n");
}
