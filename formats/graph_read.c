/*
 * The JSON of a graph:
 *
 *     {"schema_version": {"major": 8, "minor": 20}, "torch_version": "2.15.0",
 *      "graph_module": {
 *          "graph": {"inputs": [ARG...], "outputs": [ARG...], "nodes": [NODE...],
 *                    "tensor_values": {NAME: DESCRIPTION}},
 *          "signature": {"input_specs": [{"parameter": {"arg": {"name"}, "parameter_name"}}, ...],
 *                        "output_specs": [{"user_output": {"arg": ARG}}, ...]}}}
 *
 * Members may come in any order; those that nobody needs are checked and passed over.
 */
#include "formats/graph_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/json_walk.h"
#include "formats/limits.h"

#define SCHEMA_MAJOR 8

int ckpt_graph_fail_memory(struct ckpt_graph_reader *r) {
    return ckpt_fail(r->err, -E2BIG,
                     "it needs more memory than there is, or than the %u bytes that a graph may "
                     "take (limit of a graph's memory)",
                     CKPT_LIMIT_GRAPH_ARENA);
}

int ckpt_graph_fail_items(struct ckpt_graph_reader *r) {
    return ckpt_fail(r->err, -E2BIG, "a list of more than %u before byte %zu (limit of items)",
                     CKPT_LIMIT_GRAPH_ITEMS, r->json.at);
}

/* --- the signature ---------------------------------------------------------------------------- */

static const struct role_row {
    const char *kind, *name; /* of an input; of the member that has its full name */
    enum ckpt_graph_role role;
} roles[] = {
    {"parameter", "parameter_name", CKPT_GRAPH_PARAMETER},
    {"buffer", "buffer_name", CKPT_GRAPH_BUFFER},
    {"tensor_constant", "tensor_constant_name", CKPT_GRAPH_CONSTANT},
    {"user_input", "", CKPT_GRAPH_USER},
    {"constant_input", "", CKPT_GRAPH_BAKED},
    {"user_output", "", CKPT_GRAPH_USER},
};

static const struct role_row *find_role(struct ckpt_text kind) {
    static const struct role_row foreign = {"", "", CKPT_GRAPH_FOREIGN};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (ckpt_text_is(kind, roles[i].kind))
            return &roles[i];
    return &foreign;
}

/* One entry of input_specs or output_specs while it is read. */
struct spec {
    struct ckpt_graph_reader *r;
    const struct role_row *row;
    struct ckpt_graph_input found;
    unsigned members;
};

static int spec_body_member(void *user, struct ckpt_text key) {
    struct spec *s = user;
    struct ckpt_json *j = &s->r->json;
    if (s->row->name[0] && ckpt_text_is(key, s->row->name))
        return ckpt_json_read_text(j, s->row->name, &s->r->graph->arena, &s->found.name);
    if (ckpt_text_is(key, "persistent"))
        return ckpt_json_read_bool(j, "persistent", &s->found.persistent);
    return ckpt_json_read_nothing(j); /* its argument: graph.inputs has the same in full */
}

static int spec_member(void *user, struct ckpt_text key) {
    struct spec *s = user;
    if (s->members++ > 0)
        return ckpt_fail(s->r->err, -EINVAL, "a part of the signature of two kinds at byte %zu",
                         s->r->json.at);
    s->row = find_role(key);
    s->found.role = s->row->role;
    s->found.kind = ckpt_text_copy(&s->r->graph->arena, key.s, key.n);
    if (!s->found.kind.s)
        return ckpt_graph_fail_memory(s->r);
    return ckpt_json_read_object(&s->r->json, "a part of the signature", spec_body_member, s);
}

static int take_spec(struct ckpt_graph_reader *r, int token, struct ckpt_graph_input *out) {
    struct spec s = {.r = r, .found = {.name = CKPT_TEXT(""), .persistent = true}};
    const int rc =
        ckpt_json_take_object(&r->json, token, "a part of the signature", spec_member, &s);
    if (rc)
        return rc;
    if (s.members == 0 || (s.row->name[0] && s.found.name.n == 0))
        return ckpt_fail(r->err, -EINVAL, "a part of the signature without a %s before byte %zu",
                         s.members ? "name" : "kind", r->json.at);
    *out = s.found;
    return 0;
}

static int take_input_spec(void *user, int token) {
    struct ckpt_graph_reader *r = user;
    struct ckpt_graph *g = r->graph;
    if (g->ninputs == CKPT_LIMIT_GRAPH_ITEMS)
        return ckpt_graph_fail_items(r);
    if (!ckpt_array_grow(&g->input, g->ninputs, &r->inputs_cap, sizeof *g->input))
        return ckpt_graph_fail_memory(r);
    return take_spec(r, token, &g->input[g->ninputs++]);
}

static int take_output_spec(void *user, int token) {
    struct ckpt_graph_reader *r = user;
    struct ckpt_graph *g = r->graph;
    struct ckpt_graph_input spec = {0};
    const int rc = take_spec(r, token, &spec);
    if (rc)
        return rc;
    if (g->noutputs == CKPT_LIMIT_GRAPH_ITEMS)
        return ckpt_graph_fail_items(r);
    if (!ckpt_array_grow(&g->output, g->noutputs, &r->outputs_cap, sizeof *g->output))
        return ckpt_graph_fail_memory(r);
    g->output[g->noutputs++] = (struct ckpt_graph_output){.role = spec.role, .kind = spec.kind};
    return 0;
}

static int signature_member(void *user, struct ckpt_text key) {
    struct ckpt_graph_reader *r = user;
    if (ckpt_text_is(key, "input_specs"))
        return ckpt_json_read_array(&r->json, "input_specs", take_input_spec, r);
    if (ckpt_text_is(key, "output_specs"))
        return ckpt_json_read_array(&r->json, "output_specs", take_output_spec, r);
    return ckpt_json_read_nothing(&r->json);
}

/* --- the graph -------------------------------------------------------------------------------- */

static int take_given(void *user, int token) {
    struct ckpt_graph_reader *r = user;
    struct ckpt_graph_list *given = r->given;
    if (given->n == CKPT_LIMIT_GRAPH_ITEMS)
        return ckpt_graph_fail_items(r);
    if (!ckpt_array_grow(&given->arg, given->n, &given->cap, sizeof *given->arg))
        return ckpt_graph_fail_memory(r);
    return ckpt_graph_take_arg(r, token, &given->arg[given->n++]);
}

static int read_given(struct ckpt_graph_reader *r, const char *what, struct ckpt_graph_list *list) {
    r->given = list;
    return ckpt_json_read_array(&r->json, what, take_given, r);
}

static int take_node(void *user, int token) {
    return ckpt_graph_take_node(user, token);
}

static int meta_member(void *user, struct ckpt_text key) {
    struct ckpt_graph_reader *r = user;
    struct ckpt_arena *a = &r->graph->arena;
    struct ckpt_graph_named_meta *m = ckpt_arena_alloc(a, sizeof *m);
    if (!m || !ckpt_array_grow(&r->metas, r->nmetas, &r->metas_cap, sizeof *r->metas))
        return ckpt_graph_fail_memory(r);
    m->name = ckpt_text_copy(a, key.s, key.n);
    if (!m->name.s || ckpt_strmap_add(&r->by_meta, m->name, r->nmetas, NULL))
        return ckpt_graph_fail_memory(r);
    r->metas[r->nmetas++] = m;
    const int rc = ckpt_export_meta_read(&r->json, a, &m->meta);
    return rc ? ckpt_fail_in(r->err, "value \"%.*s\"", CKPT_TEXT_ARGS(m->name)) : 0;
}

static int graph_member(void *user, struct ckpt_text key) {
    struct ckpt_graph_reader *r = user;
    if (ckpt_text_is(key, "inputs"))
        return read_given(r, "graph.inputs", &r->inputs);
    if (ckpt_text_is(key, "outputs"))
        return read_given(r, "graph.outputs", &r->outputs);
    if (ckpt_text_is(key, "nodes"))
        return ckpt_json_read_array(&r->json, "nodes", take_node, r);
    if (ckpt_text_is(key, "tensor_values"))
        return ckpt_json_read_object(&r->json, "tensor_values", meta_member, r);
    return ckpt_json_read_nothing(&r->json);
}

static int module_member(void *user, struct ckpt_text key) {
    struct ckpt_graph_reader *r = user;
    if (ckpt_text_is(key, "graph")) {
        r->has_graph = true;
        return ckpt_json_read_object(&r->json, "graph", graph_member, r);
    }
    if (ckpt_text_is(key, "signature")) {
        r->has_signature = true;
        return ckpt_json_read_object(&r->json, "signature", signature_member, r);
    }
    return ckpt_json_read_nothing(&r->json);
}

static int version_member(void *user, struct ckpt_text key) {
    struct ckpt_graph_reader *r = user;
    struct ckpt_graph *g = r->graph;
    if (ckpt_text_is(key, "major"))
        return ckpt_json_read_int(&r->json, "major", &g->schema_major);
    if (ckpt_text_is(key, "minor"))
        return ckpt_json_read_int(&r->json, "minor", &g->schema_minor);
    return ckpt_json_read_nothing(&r->json);
}

static int top_member(void *user, struct ckpt_text key) {
    struct ckpt_graph_reader *r = user;
    struct ckpt_json *j = &r->json;
    if (ckpt_text_is(key, "graph_module"))
        return ckpt_json_read_object(j, "graph_module", module_member, r);
    if (ckpt_text_is(key, "schema_version"))
        return ckpt_json_read_object(j, "schema_version", version_member, r);
    if (ckpt_text_is(key, "torch_version"))
        return ckpt_json_read_text(j, "torch_version", &r->graph->arena, &r->graph->torch_version);
    return ckpt_json_read_nothing(j);
}

static int check_kind(const struct ckpt_graph_reader *r) {
    const struct ckpt_graph *g = r->graph;
    if (!r->has_graph || !r->has_signature)
        return ckpt_fail(r->err, -EINVAL, "not a graph of torch.export: it has no graph_module.%s",
                         r->has_graph ? "signature" : "graph");
    if (g->schema_major != SCHEMA_MAJOR)
        return ckpt_fail(r->err, -ENOTSUP,
                         "its schema has version %lld.%lld, this version reads %d: export it again "
                         "with torch 2.9 or later",
                         (long long)g->schema_major, (long long)g->schema_minor, SCHEMA_MAJOR);
    return 0;
}

static int read_graph(struct ckpt_graph_reader *r) {
    int rc = ckpt_json_read_object(&r->json, "the graph's file", top_member, r);
    if (rc == 0)
        rc = ckpt_json_next(&r->json); /* EOF is 0 */
    if (rc == 0)
        rc = check_kind(r);
    return rc ? rc : ckpt_graph_link(r);
}

static void reader_fini(struct ckpt_graph_reader *r) {
    ckpt_json_fini(&r->json);
    ckpt_strmap_fini(&r->by_stack);
    ckpt_strmap_fini(&r->by_meta);
    free(r->metas);
    free(r->inputs.arg);
    free(r->outputs.arg);
    free(r->item);
    free(r->arg);
}

int ckpt_graph_parse(const void *json, size_t n, struct ckpt_graph **out, struct ckpt_err *err) {
    CKPT_AUTO(graph) struct ckpt_graph *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g)
        return ckpt_fail_memory(err, "reading a graph");
    if (n > CKPT_LIMIT_GRAPH_BYTES)
        return ckpt_fail(err, -E2BIG, "%zu bytes of JSON, the limit for a graph is %u", n,
                         CKPT_LIMIT_GRAPH_BYTES);
    g->arena.limit = CKPT_LIMIT_GRAPH_ARENA;
    g->torch_version = CKPT_TEXT("");
    struct ckpt_graph_reader r = {.graph = g, .err = err};
    ckpt_json_init(&r.json, json, n, CKPT_LIMIT_JSON_DEPTH, err);
    int rc = read_graph(&r);
    if (rc == -ENOMEM)
        rc = ckpt_graph_fail_memory(&r); /* of the limit, or really */
    reader_fini(&r);
    if (rc == 0)
        *out = CKPT_STEAL(g);
    return rc;
}
