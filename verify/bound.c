/*
 * How long a report can get, without making it: verify.json has its size when the model is mounted.
 * Counts what each list can hold at most for this model, with the texts that it would show. The
 * constants are the worst of the fixed part of an entry: keys, indentation, numbers of 24
 * characters, statuses.
 */
#include <string.h>

#include "formats/chunk_grid.h"
#include "verify/graph_params.h"
#include "verify/report.h"
#include "verify/run.h"

#define HEAD_BYTES 8192    /* everything that is there once, its limits and reasons included */
#define LAYER_BYTES 850    /* without path, type and reason */
#define MISMATCH_BYTES 160 /* without its key and the digits of two elements */
#define FAULT_BYTES 160    /* without entry, file, reason and tensors */
#define LIST_TEXT_BYTES 16 /* a text that stands in a list: blanks, comma, line break */
#define PROPERTY_BYTES (200 + CKPT_REPORT_TEXT_MAX)
#define PARAM_LISTS 4  /* lists in which one parameter may stand at once */
#define RUN_BYTES 4096 /* name, status and all metrics of one output */

static size_t text_bytes(struct ckpt_text t) {
    size_t quoted;
    ckpt_report_cut(t, &quoted);
    return quoted;
}

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

/* The records of layers so far, which ones is not known: how many, all together, the longest. */
struct records {
    size_t n, sum, longest;
};

static void add_record(struct records *r, struct ckpt_text path, struct ckpt_layer layer) {
    const size_t one =
        LAYER_BYTES + CKPT_REPORT_TEXT_MAX + text_bytes(path) + text_bytes(ckpt_layer_type(&layer));
    r->longest = max_size(r->longest, one);
    r->sum += one;
    r->n++;
}

/* The modules around a tensor's that are layers, too. */
static void add_composites(struct records *r, const struct ckpt_decision *d) {
    for (; d; d = d->within)
        if (ckpt_layer_composite(d))
            add_record(r, d->path,
                       (struct ckpt_layer){.kind = ckpt_layer_composite(d), .record = d->record});
}

/* A record each for up to 1,000 modules; a module's tensors are neighbours, nearly always. */
static size_t layers_bytes(const struct ckpt_model *m) {
    struct records r = {0};
    const struct ckpt_adapted *last = NULL;
    for (size_t i = 0; i < m->ntensors; last = &m->tensor[i++]) {
        const struct ckpt_adapted *const t = &m->tensor[i];
        if (last && ckpt_text_eq(last->module.path, t->module.path))
            continue;
        if (!last || last->module.within != t->module.within)
            add_composites(&r, t->module.within);
        add_record(&r, t->module.path,
                   (struct ckpt_layer){.kind = t->module.kind, .record = t->module.record});
    }
    return r.n <= CKPT_LAYERS_LISTED ? r.sum : CKPT_LAYERS_LISTED * r.longest;
}

static size_t mismatches_bytes(const struct ckpt_model *m) {
    size_t n = 0, sum = 0, longest = 0;
    for (size_t i = 0; i < m->ntensors; i++) {
        const struct ckpt_adapted *const t = &m->tensor[i];
        const uint64_t units = t->nbytes / ckpt_dtype_info(t->dtype)->unit_bytes;
        const size_t count =
            units < CKPT_MISMATCHES_PER_TENSOR ? (size_t)units : CKPT_MISMATCHES_PER_TENSOR;
        const size_t one =
            MISMATCH_BYTES + 4 * (size_t)ckpt_dtype_info(t->dtype)->unit_bytes + text_bytes(t->key);
        longest = max_size(longest, one);
        sum += count * one;
        n += count;
    }
    return n <= CKPT_MISMATCHES_MAX ? sum : CKPT_MISMATCHES_MAX * longest;
}

/* In how many storages its bytes are, at most. */
static size_t storages_of(const struct ckpt_tensor *t) {
    const struct ckpt_chunk_grid *const g = ckpt_chunk_grid_of(t->blob);
    return g ? g->nchunks : 1;
}

/* Every storage that has a checksum may be wrong, and name the tensors that lie in it. */
static size_t faults_bytes(const struct ckpt_model *m) {
    const struct ckpt_checkpoint *const c = m->checkpoint;
    size_t n = 0, sum = 0, tensors = 0, longest = 0;
    for (size_t i = 0; i < c->nblobs; i++) {
        if (!c->blobs[i]->ops->check)
            continue;
        sum += FAULT_BYTES + CKPT_REPORT_TEXT_MAX + text_bytes(ckpt_text_of(c->blobs[i]->name));
        if (c->blobs[i]->file)
            sum += text_bytes(ckpt_text_of(c->blobs[i]->file->name));
        n++;
    }
    for (size_t i = 0; n && i < c->ntensors; i++) {
        const size_t one = LIST_TEXT_BYTES + text_bytes(c->tensors[i].key);
        longest = max_size(longest, one);
        tensors += one * storages_of(&c->tensors[i]);
    }
    if (n <= CKPT_MISMATCHES_MAX)
        return sum + (tensors < n * CKPT_FAULT_TENSORS_MAX * longest
                          ? tensors
                          : n * CKPT_FAULT_TENSORS_MAX * longest);
    return CKPT_MISMATCHES_MAX *
           (FAULT_BYTES + 3 * (CKPT_REPORT_TEXT_MAX + 2) + CKPT_FAULT_TENSORS_MAX * longest);
}

/* ---- the graph ---- */

/* Some texts, of which up to 1,000 are listed. */
struct names {
    size_t n, sum, longest;
};

static void add_name(struct names *s, struct ckpt_text name) {
    const size_t one = LIST_TEXT_BYTES + text_bytes(name);
    s->n++;
    s->sum += one;
    s->longest = max_size(s->longest, one);
}

static size_t names_bytes(const struct names *s) {
    return s->n <= CKPT_NAMES_LISTED ? s->sum : CKPT_NAMES_LISTED * s->longest;
}

/* A parameter may stand in PARAM_LISTS of the lists, a key of the model among the unexpected ones.
 */
static size_t params_bytes(const struct ckpt_model *m, const struct ckpt_graph *g) {
    struct names params = {0}, keys = {0};
    for (size_t i = 0; i < g->ninputs; i++)
        add_name(&params, g->input[i].name);
    for (size_t i = 0; i < m->ntensors; i++)
        add_name(&keys, m->tensor[i].torch_key);
    return PARAM_LISTS * names_bytes(&params) + names_bytes(&keys);
}

static size_t graph_bytes(const struct ckpt_model *m, const struct ckpt_verify_options *options) {
    const struct ckpt_graph *const g = options->opened ? options->opened : m->checkpoint->graph;
    size_t outputs = 0;
    if (!g)
        return 0;
    for (size_t i = 0; i < g->noutputs; i++)
        outputs += g->output[i].arg.n;
    outputs = outputs < CKPT_OUTPUTS_MAX ? outputs : CKPT_OUTPUTS_MAX;
    return outputs * CKPT_RUNS_MAX * RUN_BYTES + CKPT_PROPERTIES_MAX * PROPERTY_BYTES +
           params_bytes(m, g);
}

size_t ckpt_verify_bound(const struct ckpt_model *m, const struct ckpt_verify_options *options) {
    const size_t whole = CKPT_RUNS_MAX * RUN_BYTES + CKPT_REPORT_TEXT_MAX; /* a chain's */
    return HEAD_BYTES + CKPT_REPORT_TEXT_MAX + whole + graph_bytes(m, options) + layers_bytes(m) +
           mismatches_bytes(m) + faults_bytes(m);
}
