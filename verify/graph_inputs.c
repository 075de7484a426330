/* Arguments of a graph's call. */
#include "verify/graph_inputs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_walk.h"
#include "verify/rng.h"

#define ARGUMENTS_MAX 64

void ckpt_graph_inputs_fini(struct ckpt_graph_inputs *in) {
    for (size_t i = 0; i < in->n; i++)
        ckpt_array_fini(&in->at[i]);
    free(in->at);
    *in = (struct ckpt_graph_inputs){0};
}

static bool is_argument(const struct ckpt_graph_input *in) {
    return in->role == CKPT_GRAPH_USER || in->role == CKPT_GRAPH_BAKED;
}

/* A tensor, rather than None or a number that the export fixed. */
static bool is_tensor(const struct ckpt_graph *g, const struct ckpt_graph_input *in) {
    const uint32_t v = ckpt_graph_arg_value(&in->arg);
    return in->role == CKPT_GRAPH_USER && v != CKPT_GRAPH_NONE &&
           g->value[v].type == CKPT_GRAPH_TENSOR;
}

/* ---- names that the reference lists ---- */

struct names {
    struct ckpt_text at[ARGUMENTS_MAX]; /* .s NULL: None */
    uint32_t n;
    bool listed;
    struct ckpt_json json;
    struct ckpt_arena arena;
};

static void names_fini(struct names *n) {
    ckpt_json_fini(&n->json);
    ckpt_arena_fini(&n->arena);
}
CKPT_DEFINE_AUTO(names, struct names, names_fini)

static int take_name(void *to, int token) {
    struct names *const n = to;
    if (n->n == ARGUMENTS_MAX || (token != CKPT_JSON_STRING && token != CKPT_JSON_NULL))
        return ckpt_json_unexpected(&n->json, token, "the reference's list of inputs",
                                    "up to 64 names or null");
    n->at[n->n] = token == CKPT_JSON_NULL
                      ? (struct ckpt_text){0}
                      : ckpt_text_copy(&n->arena, n->json.text.s, n->json.text.n);
    n->n++;
    return 0;
}

static int read_names(const struct ckpt_checkpoint *c, struct names *n, struct ckpt_err *err) {
    for (size_t i = 0; c && i < c->nmetadata; i++) {
        if (!ckpt_text_is(c->metadata[i].key, "inputs"))
            continue;
        n->listed = true;
        ckpt_json_init(&n->json, c->metadata[i].value.s, c->metadata[i].value.n, 4, err);
        return ckpt_json_read_array(&n->json, "the reference's list of inputs", take_name, n);
    }
    return 0;
}

/* ---- one argument ---- */

static int refuse_shape(const struct ckpt_tensor *t, const struct ckpt_export_meta *meta,
                        const struct ckpt_array *got, struct ckpt_err *err) {
    struct ckpt_array wanted = {.ndim = meta->ndim < CKPT_ARRAY_NDIM_MAX ? meta->ndim
                                                                         : CKPT_ARRAY_NDIM_MAX};
    char text[2][96];
    for (uint32_t d = 0; d < wanted.ndim; d++)
        wanted.shape[d] = meta->shape[d] == CKPT_SYMBOLIC ? -1 : meta->shape[d];
    return ckpt_fail(err, -EINVAL, "%.*s has the shape %s, the graph takes %s",
                     CKPT_TEXT_ARGS(t->key), ckpt_array_shape_text(got, text[0], sizeof(text[0])),
                     ckpt_array_shape_text(&wanted, text[1], sizeof(text[1])));
}

/* In the dtype and shape that the graph says. */
static int load(struct ckpt_verification *v, const struct ckpt_graph *g,
                const struct ckpt_graph_input *in, const struct ckpt_tensor *t,
                struct ckpt_array *out, struct ckpt_err *err) {
    const struct ckpt_export_meta *const meta = g->value[ckpt_graph_arg_value(&in->arg)].meta;
    CKPT_AUTO(array) struct ckpt_array loaded = {0};
    int rc = ckpt_source_load(t, true, &v->exec.memory, &loaded, err);
    if (rc < 0)
        return rc;
    bool same = !meta || meta->ndim == loaded.ndim;
    for (uint32_t d = 0; same && meta && d < meta->ndim; d++)
        same = meta->shape[d] == CKPT_SYMBOLIC || meta->shape[d] == loaded.shape[d];
    if (!same)
        return refuse_shape(t, meta, &loaded, err);
    const enum ckpt_dtype to = meta ? ckpt_array_dtype(meta->dtype) : loaded.dtype;
    return ckpt_array_cast(&loaded, to == CKPT_DT_NONE ? loaded.dtype : to, &v->exec.memory, out,
                           err);
}

static const struct ckpt_tensor *of_code(const struct ckpt_checkpoint *own, uint32_t argument) {
    char key[48];
    snprintf(key, sizeof(key), "sample_inputs.0.%u", argument);
    for (size_t i = 0; own && own->code && i < own->code->ntensors; i++)
        if (ckpt_text_is(own->code->tensors[i].key, key))
            return &own->code->tensors[i];
    return NULL;
}

static const struct ckpt_tensor *recorded(const struct ckpt_reference *r, const struct names *names,
                                          uint32_t argument) {
    char key[256];
    if (names->listed && (argument >= names->n || !names->at[argument].s))
        return NULL;
    if (names->listed)
        snprintf(key, sizeof(key), "%.*s", CKPT_TEXT_ARGS(names->at[argument]));
    else
        snprintf(key, sizeof(key), "input.%u", argument);
    return ckpt_reference_get(r, CKPT_TEXT(""), key);
}

/* ---- all of them ---- */

static int seed(struct ckpt_verification *v, const struct ckpt_graph *g,
                struct ckpt_graph_inputs *in, struct ckpt_err *err) {
    struct ckpt_rng rng = ckpt_rng_seeded(CKPT_TEXT(""));
    for (size_t i = 0; i < g->ninputs; i++) {
        if (!is_tensor(g, &g->input[i]))
            continue;
        const struct ckpt_export_meta *const meta =
            g->value[ckpt_graph_arg_value(&g->input[i].arg)].meta;
        bool known = meta && ckpt_dtype_info(meta->dtype)->cls == CKPT_CLASS_FLOAT &&
                     meta->ndim <= CKPT_ARRAY_NDIM_MAX;
        for (uint32_t d = 0; known && d < meta->ndim; d++)
            known = meta->shape[d] != CKPT_SYMBOLIC;
        if (!known)
            return ckpt_fail(err, -ENOENT,
                             "no inputs were recorded, and none can be made up for %.*s: give "
                             "reference= with input.0 and output.0",
                             CKPT_TEXT_ARGS(g->value[ckpt_graph_arg_value(&g->input[i].arg)].name));
        const int rc =
            ckpt_array_new(&in->at[i], &v->exec.memory, CKPT_DT_F32, meta->shape, meta->ndim, err);
        const int64_t count = rc < 0 ? 0 : ckpt_array_count(&in->at[i]);
        for (int64_t k = 0; k < count; k++)
            ckpt_array_f32(&in->at[i])[k] = ckpt_rng_float(&rng);
        if (rc < 0)
            return rc;
    }
    in->origin = "seeded";
    return 0;
}

static int take_all(struct ckpt_verification *v, const struct ckpt_graph *g,
                    const struct ckpt_checkpoint *own, const struct names *names, bool reference,
                    struct ckpt_graph_inputs *in, struct ckpt_err *err) {
    uint32_t argument = 0;
    int rc = 0;
    in->origin = reference ? "recorded" : "sample";
    for (size_t i = 0; rc == 0 && i < g->ninputs; i++) {
        if (!is_argument(&g->input[i]))
            continue;
        const uint32_t k = argument++;
        if (!is_tensor(g, &g->input[i]))
            continue;
        const struct ckpt_tensor *const t =
            reference ? recorded(&v->reference, names, k) : of_code(own, k);
        if (!t)
            return ckpt_fail(err, -EINVAL, "argument %u of the graph was not recorded: %s lacks it",
                             k, reference ? "the reference" : "the graph's file");
        rc = load(v, g, &g->input[i], t, &in->at[i], err);
    }
    return rc;
}

static bool any_sample(const struct ckpt_checkpoint *own) {
    for (size_t i = 0; own && own->code && i < own->code->ntensors; i++)
        if (ckpt_text_starts(own->code->tensors[i].key, "sample_inputs.0."))
            return true;
    return false;
}

int ckpt_graph_inputs_find(struct ckpt_verification *v, const struct ckpt_graph *g,
                           const struct ckpt_checkpoint *own, struct ckpt_graph_inputs *in,
                           struct ckpt_err *err) {
    CKPT_AUTO(names) struct names names = {0};
    in->at = calloc(g->ninputs + 1, sizeof(*in->at));
    if (!in->at)
        return ckpt_fail_memory(err, "running the graph");
    in->n = g->ninputs;
    const int rc = read_names(v->reference.file, &names, err);
    if (rc < 0)
        return rc;
    const bool reference = ckpt_reference_get(&v->reference, CKPT_TEXT(""), "input.0") != NULL;
    if (reference || any_sample(own))
        return take_all(v, g, own, &names, reference, in, err);
    return seed(v, g, in, err);
}
