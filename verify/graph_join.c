/*
 * PyTorch's packed tensors from what burn has under several names, by burn's names and PyTorch's
 * order, whatever the rules did:
 *
 *     in_proj_weight        [3E, E]   query.weight, key.weight, value.weight, each [E, E]
 * transposed weight_ih_l0          [4H, I]   input_gate.input_transform.weight, forget_gate...,
 * transposed
 *
 * and, where a rule cut a tensor in some other way, the same tensor read back element by element:
 * then both runs agree on anything but bytes, which is why such tensors are counted apart.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/graph_params.h"
#include "verify/rnn.h"

#define PIECES_MAX 4

struct pieces {
    char name[PIECES_MAX][CKPT_NAME_MAX]; /* burn's, below the module */
    uint32_t n;
};

/* ---- burn's names ---- */

static bool attention_pieces(const char *leaf, struct pieces *p) {
    static const char *const modules[] = {"query", "key", "value"};
    const bool weight = strcmp(leaf, "in_proj_weight") == 0;
    if (!weight && strcmp(leaf, "in_proj_bias") != 0)
        return false;
    for (p->n = 0; p->n < 3; p->n++)
        ckpt_name_join(p->name[p->n], modules[p->n], weight ? "weight" : "bias");
    return true;
}

/* "weight_ih_l1_reverse" is of layer 1, input_transform, in the reverse direction. */
static bool rnn_pieces(const struct ckpt_plan *plan, const char *leaf, struct pieces *p) {
    const struct ckpt_scope s = {.plan = plan};
    struct ckpt_rnn_place at = {.layers = ckpt_scope_int(&s, "num_layers", 1),
                                .both = ckpt_scope_bool(&s, "bidirectional")};
    long long layer;
    char what[8], side[4], rest[16] = "";
    if (sscanf(leaf, "%7[a-z]_%3[a-z]_l%lld%15s", what, side, &layer, rest) < 3 ||
        (strcmp(what, "weight") != 0 && strcmp(what, "bias") != 0))
        return false;
    at.layer = layer;
    at.direction = strcmp(rest, "_reverse") == 0;
    const char *const transform = side[0] == 'i' ? "input_transform" : "hidden_transform";
    p->n = 0;
    for (const char *const *gate = ckpt_rnn_gates(plan->layer->kind); *gate; gate++)
        ckpt_rnn_burn_name(p->name[p->n++], &at, *gate, transform, what);
    return true;
}

/* What stands behind the module's path: "in_proj_weight". */
static bool leaf_of(const struct ckpt_layer *l, struct ckpt_text key, char leaf[CKPT_NAME_MAX]) {
    const size_t skip = l->path.n ? l->path.n + 1 : 0;
    if (key.n <= skip || key.n - skip >= CKPT_NAME_MAX)
        return false;
    snprintf(leaf, CKPT_NAME_MAX, "%.*s", (int)(key.n - skip), key.s + skip);
    return true;
}

static bool find_pieces(const struct ckpt_layers *layers, const struct ckpt_adapted *t,
                        struct ckpt_plan *plan, struct pieces *p) {
    const struct ckpt_layer *const l = ckpt_layers_get(layers, t->module.path);
    char leaf[CKPT_NAME_MAX];
    if (!l || !l->kind || layers->model->layout != CKPT_LAYOUT_BURN ||
        layers->model->modules_store || !leaf_of(l, t->torch_key, leaf))
        return false;
    const bool attention = strcmp(l->kind, "mha") == 0;
    const bool rnn =
        strcmp(l->kind, "lstm") == 0 || strcmp(l->kind, "gru") == 0 || strcmp(l->kind, "rnn") == 0;
    if (!attention && !rnn)
        return false;
    ckpt_plan_layer(layers, l, plan);
    return plan->status == CKPT_STATUS_PASS &&
           (attention ? attention_pieces(leaf, p) : rnn_pieces(plan, leaf, p));
}

bool ckpt_graph_is_joined(const struct ckpt_layers *layers, const struct ckpt_adapted *t) {
    struct ckpt_plan plan;
    struct pieces p = {.n = 0};
    return find_pieces(layers, t, &plan, &p);
}

/* ---- joining ---- */

/* The piece in PyTorch's layout. */
static int load_piece(const struct ckpt_layers *layers, struct ckpt_text prefix, const char *name,
                      struct ckpt_reader *reader, struct ckpt_exec *exec, struct ckpt_array *out,
                      struct ckpt_err *err) {
    static const uint32_t turned[] = {1, 0};
    const struct ckpt_adapted *const t = ckpt_layers_served(layers, prefix, name);
    CKPT_AUTO(array) struct ckpt_array stored = {0};
    memset(out, 0, sizeof(*out));
    if (!t)
        return ckpt_fail(err, -EINVAL, "burn's name is missing: %.*s.%s", CKPT_TEXT_ARGS(prefix),
                         name);
    const int rc = ckpt_served_load(reader, t, &exec->memory, &stored, err);
    if (rc == 0)
        *out = stored.ndim == 2 ? ckpt_array_permute(&stored, turned) : ckpt_array_ref(&stored);
    return rc;
}

/* Writes the piece into the rows of out from *row on. */
static int place_piece(const struct ckpt_array *piece, uint32_t n, struct ckpt_exec *exec,
                       struct ckpt_array *out, int64_t *row, struct ckpt_err *err) {
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    memcpy(shape, piece->shape, sizeof(shape));
    shape[0] *= n;
    if (piece->ndim == 0)
        return ckpt_fail(err, -EINVAL, "a piece without dimensions");
    int rc =
        out->store ? 0 : ckpt_array_new(out, &exec->memory, piece->dtype, shape, piece->ndim, err);
    if (rc < 0)
        return rc;
    if (*row + piece->shape[0] > out->shape[0])
        return ckpt_fail(err, -EINVAL, "its pieces differ in their size");
    CKPT_AUTO(array)
    struct ckpt_array place = ckpt_array_slice(out, 0, *row, piece->shape[0]);
    rc = ckpt_array_assign(&place, piece, err);
    *row += piece->shape[0];
    return rc;
}

int ckpt_graph_join(const struct ckpt_layers *layers, const struct ckpt_adapted *t,
                    struct ckpt_reader *reader, struct ckpt_exec *exec, struct ckpt_array *out,
                    struct ckpt_err *err) {
    struct ckpt_plan plan;
    struct pieces p = {.n = 0};
    int64_t row = 0;
    int rc = 0;
    memset(out, 0, sizeof(*out));
    if (!find_pieces(layers, t, &plan, &p))
        return ckpt_fail(err, -EINVAL, "%.*s is not joined", CKPT_TEXT_ARGS(t->torch_key));
    for (uint32_t i = 0; rc == 0 && i < p.n; i++) {
        CKPT_AUTO(array) struct ckpt_array piece = {0};
        rc = load_piece(layers, plan.prefix, p.name[i], reader, exec, &piece, err);
        if (rc == 0)
            rc = place_piece(&piece, p.n, exec, out, &row, err);
    }
    if (rc == 0 && row != out->shape[0])
        rc = ckpt_fail(err, -EINVAL, "its pieces differ in their size");
    if (rc < 0)
        ckpt_array_fini(out);
    return rc;
}

/* ---- reading back ---- */

/* Whether the source's elements lie in C order, so that offsets are indices. */
static bool is_plain(const struct ckpt_tensor *t) {
    int64_t step = 1;
    for (uint32_t d = t->ndim; d-- > 0;) {
        if (t->stride && t->shape[d] > 1 && t->stride[d] != step)
            return false;
        step *= t->shape[d];
    }
    return ckpt_array_dtype(t->dtype) != CKPT_DT_NONE;
}

/* Puts every element that t serves where it came from; *covered counts them. */
static int scatter(const struct ckpt_adapted *t, struct ckpt_reader *reader, struct ckpt_exec *exec,
                   struct ckpt_array *out, int64_t *covered, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array loaded = {0}, served = {0};
    CKPT_AUTO(naive) struct ckpt_naive n = {0};
    int rc = ckpt_served_load(reader, t, &exec->memory, &loaded, err);
    if (rc == 0)
        rc = ckpt_array_cast(&loaded, out->dtype, &exec->memory, &served, err);
    if (rc == 0)
        rc = ckpt_naive_init(&n, t->part[0].source, t->part[0].op, t->part[0].nop, err);
    const int64_t unit = ckpt_dtype_info(out->dtype)->unit_bytes;
    const int64_t width = ckpt_dtype_info(t->part[0].source->dtype)->unit_bytes;
    for (int64_t i = 0; rc == 0 && i < n.count; i++) {
        int64_t offset;
        ckpt_naive_offsets(&n, i, 1, &offset);
        memcpy((char *)out->data + offset / width * unit, (const char *)served.data + i * unit,
               (size_t)unit);
    }
    *covered += n.count;
    return rc;
}

static int refuse_cut(const struct ckpt_adapted *t, struct ckpt_err *err) {
    return ckpt_fail(err, -EOPNOTSUPP,
                     "a rule joins or cuts %.*s in a way that cannot be read back",
                     CKPT_TEXT_ARGS(t->torch_key));
}

int ckpt_graph_read_back(const struct ckpt_layers *layers, const struct ckpt_adapted *t,
                         struct ckpt_reader *reader, struct ckpt_exec *exec, struct ckpt_array *out,
                         struct ckpt_err *err) {
    const struct ckpt_model *const m = layers->model;
    int64_t covered = 0;
    memset(out, 0, sizeof(*out));
    if (t->joined || t->part[0].ntorch || !t->part[0].source || !is_plain(t->source))
        return refuse_cut(t, err);
    int rc = ckpt_array_new(out, &exec->memory, ckpt_array_dtype(t->source->dtype),
                            t->source->shape, t->source->ndim, err);
    for (size_t i = 0; rc == 0 && i < m->ntensors; i++) {
        const struct ckpt_adapted *const other = &m->tensor[i];
        if (!other->in_model || other->alias || other->source != t->source)
            continue;
        rc = other->nparts == 1 && other->part[0].source == t->source
                 ? scatter(other, reader, exec, out, &covered, err)
                 : refuse_cut(t, err);
    }
    if (rc == 0 && covered != ckpt_array_count(out))
        rc = refuse_cut(t, err);
    if (rc < 0)
        ckpt_array_fini(out);
    return rc;
}
