/*
 * What must hold of a model's outputs when its inputs change, on the served bytes:
 *
 *     eval         nothing in the graph is in training mode (a graph that is does not get here)
 *     repeatable   the same input gives the same bytes
 *     causal       later tokens change no earlier output: under a mask that forbids it
 *     padding      what is under the padding mask changes no other output
 *     batch        other rows change no row
 *
 * Shapes stay what they are, so that sums are made in the same order and equal means equal. What a
 * mask means is the model's own affair, and so is which dimension is the batch: a mask is read in
 * both ways, and what the source's run does not keep either is told, and never held against the
 * model. So is the last.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/graph_check.h"

struct outputs {
    struct ckpt_array at[CKPT_OUTPUTS_MAX];
};

static void outputs_fini(struct outputs *o) {
    for (uint32_t i = 0; i < CKPT_OUTPUTS_MAX; i++)
        ckpt_array_fini(&o->at[i]);
}
CKPT_DEFINE_AUTO(outputs, struct outputs, outputs_fini)

static struct ckpt_property *add(struct ckpt_graph_check *c, const char *name,
                                 enum ckpt_status status) {
    struct ckpt_graph_result *const g = &c->v->graph;
    struct ckpt_property *const p = &g->property[g->nproperties++];
    *p = (struct ckpt_property){.name = name, .status = status};
    return p;
}

static void skip(struct ckpt_graph_check *c, const char *name, const char *why) {
    ckpt_reason_set(&add(c, name, CKPT_STATUS_SKIP)->detail, "%s", why);
}

static void judge(struct ckpt_graph_check *c, struct ckpt_property *p) {
    c->v->graph.status = ckpt_status_worst(c->v->graph.status, p->status);
}

/* ---- inputs ---- */

static const struct ckpt_array *input(const struct ckpt_graph_check *c, size_t i) {
    return c->inputs.at[i].store ? &c->inputs.at[i] : NULL;
}

/* The tokens: the first argument, [batch, length, ...]. */
static int64_t find_tokens(const struct ckpt_graph_check *c) {
    for (size_t i = 0; i < c->inputs.n; i++)
        if (input(c, i))
            return c->inputs.at[i].ndim >= 2 ? (int64_t)i : -1;
    return -1;
}

/* Whether an element of a mask over pairs says "look away". */
static bool hides(const struct ckpt_array *mask, int64_t i) {
    const double v = ckpt_array_get(mask, i);
    return mask->dtype == CKPT_DT_BOOL ? v != 0 : v < -1e4;
}

/* [length, length], and all above the diagonal is hidden, and nothing else. */
static bool is_causal_mask(const struct ckpt_array *m, int64_t length) {
    if (m->ndim != 2 || m->shape[0] != length || m->shape[1] != length || length < 2 ||
        m->dtype == CKPT_DT_I64)
        return false;
    for (int64_t row = 0; row < length; row++)
        for (int64_t column = 0; column < length; column++)
            if (hides(m, row * length + column) != (column > row))
                return false;
    return true;
}

/* Every attention of the graph is causal by itself. */
static bool is_causal_graph(const struct ckpt_graph *g) {
    size_t attentions = 0, causal = 0;
    for (size_t i = 0; i < g->nnodes; i++) {
        if (!ckpt_text_is(g->node[i].base, "aten.scaled_dot_product_attention"))
            continue;
        const struct ckpt_graph_arg *const a = ckpt_graph_arg(&g->node[i], "is_causal");
        attentions++;
        causal += a && a->n == 1 && a->item[0].kind == CKPT_GRAPH_ITEM_BOOL && a->item[0].b;
    }
    return attentions > 0 && causal == attentions;
}

/* A mask over [batch, length], and what it may mean: Hugging Face's hides at 0, PyTorch's at true.
 */
struct padding {
    const struct ckpt_array *mask;
    bool numbers;  /* all 0 and 1 */
    bool opposite; /* what usually stands for a token stands for padding */
};

/* Padding where true, where -inf, where 0 among numbers; or the opposite. */
static bool pads(const struct padding *p, int64_t i) {
    const double v = ckpt_array_get(p->mask, i);
    const bool usual = p->mask->dtype == CKPT_DT_BOOL ? v != 0 : p->numbers ? v == 0 : v < -1e4;
    return usual != p->opposite;
}

static bool is_numbers(const struct ckpt_array *m) {
    const int64_t count = ckpt_array_count(m);
    for (int64_t i = 0; i < count; i++)
        if (ckpt_array_get(m, i) != 0 && ckpt_array_get(m, i) != 1)
            return false;
    return m->dtype != CKPT_DT_BOOL;
}

/* Hides some tokens and not all. Integers other than 0 and 1 are no mask. */
static bool is_padding(struct padding *p, const struct ckpt_array *tokens) {
    const struct ckpt_array *const m = p->mask;
    int64_t hidden = 0;
    if (!m || m == tokens || m->ndim != 2 || m->shape[0] != tokens->shape[0] ||
        m->shape[1] != tokens->shape[1])
        return false;
    p->numbers = is_numbers(m);
    if (m->dtype == CKPT_DT_I64 && !p->numbers)
        return false;
    const int64_t count = ckpt_array_count(m);
    for (int64_t i = 0; i < count; i++)
        hidden += pads(p, i);
    return hidden > 0 && hidden < count;
}

/* ---- changing them ---- */

/* Which tokens are changed; whose outputs must stay. */
struct change {
    enum { LATER, PADDED, OTHER_ROWS } what;
    struct padding padding;     /* of PADDED */
    int64_t rows, length, from; /* LATER: from this token on */
};

static bool is_changed(const struct change *h, int64_t row, int64_t token) {
    switch (h->what) {
    case LATER:
        return token >= h->from;
    case PADDED:
        return pads(&h->padding, row * h->length + token);
    default:
        return row > 0;
    }
}

/* Another value that the model surely takes: some other token of the input, or the negative. */
static void change_value(struct ckpt_array *a, int64_t i, int64_t one, int64_t other) {
    if (a->dtype == CKPT_DT_I64)
        ckpt_array_i64(a)[i] = ckpt_array_i64(a)[i] == one ? other : one;
    else if (a->dtype == CKPT_DT_F32)
        ckpt_array_f32(a)[i] = 0.5f - ckpt_array_f32(a)[i];
    else if (a->dtype == CKPT_DT_F64)
        ckpt_array_f64(a)[i] = 0.5 - ckpt_array_f64(a)[i];
}

/* A copy of the tokens with some changed; false if there are no two values to change between. */
static int change_tokens(struct ckpt_graph_check *c, const struct ckpt_array *tokens,
                         const struct change *h, struct ckpt_array *out, bool *changed,
                         struct ckpt_err *err) {
    const int rc =
        ckpt_array_new(out, &c->v->exec.memory, tokens->dtype, tokens->shape, tokens->ndim, err);
    if (rc < 0 || ckpt_array_assign(out, tokens, err) < 0)
        return rc < 0 ? rc : -EINVAL;
    const int64_t count = ckpt_array_count(out), each = count / (h->rows * h->length);
    const int64_t one = (int64_t)ckpt_array_get(out, 0);
    int64_t other = one;
    for (int64_t i = 1; i < count && other == one; i++)
        other = (int64_t)ckpt_array_get(out, i);
    *changed = tokens->dtype != CKPT_DT_I64 || other != one;
    for (int64_t i = 0; i < count; i++)
        if (is_changed(h, i / each / h->length, i / each % h->length))
            change_value(out, i, one, other);
    return 0;
}

/* ---- comparing ---- */

static bool same(const struct ckpt_array *a, const struct ckpt_array *b, int64_t i) {
    const double x = ckpt_array_get(a, i), y = ckpt_array_get(b, i);
    return x == y || (isnan(x) && isnan(y));
}

struct verdict {
    int64_t compared, moved_kept,
        moved;   /* outputs that had to stay; of these changed; the others */
    double most; /* by how much what had to stay changed */
};

/* [batch, length, ...] outputs only: others do not say which token they are of. */
static void compare(const struct ckpt_array *before, const struct ckpt_array *after,
                    const struct change *h, struct verdict *v) {
    const bool by_token = before->ndim >= 2 && before->shape[1] == h->length;
    if (!ckpt_array_same_shape(before, after) || before->ndim < 1 || before->shape[0] != h->rows ||
        (h->what != OTHER_ROWS && !by_token))
        return;
    const int64_t count = ckpt_array_count(before);
    const int64_t each = h->what == OTHER_ROWS ? count / h->rows : count / (h->rows * h->length);
    for (int64_t i = 0; i < count; i++) {
        const int64_t place = i / each;
        const bool changed =
            h->what == OTHER_ROWS ? place > 0 : is_changed(h, place / h->length, place % h->length);
        const bool moved = !same(before, after, i);
        v->compared += !changed;
        v->moved += changed && moved;
        v->moved_kept += !changed && moved;
        const double by = fabs(ckpt_array_get(before, i) - ckpt_array_get(after, i));
        if (!changed && moved)
            v->most = fmax(v->most, isnan(by) ? (double)INFINITY : by);
    }
}

/* Runs one side on changed tokens. */
static int try_change(struct ckpt_graph_check *c, enum ckpt_side side, size_t at,
                      const struct change *h, struct verdict *v, bool *changed,
                      struct ckpt_err *err) {
    const struct ckpt_array *const before = side == CKPT_SIDE_TORCH ? c->torch : c->served;
    CKPT_AUTO(outputs) struct outputs after = {0};
    CKPT_AUTO(array) struct ckpt_array tokens = {0};
    CKPT_AUTO(free) struct ckpt_array *in = calloc(c->inputs.n + 1, sizeof(*in));
    if (!in)
        return ckpt_fail_memory(err, "checking properties");
    int rc = change_tokens(c, input(c, at), h, &tokens, changed, err);
    if (rc < 0 || !*changed)
        return rc;
    memcpy(in, c->inputs.at, c->inputs.n * sizeof(*in));
    in[at] = tokens;
    rc = ckpt_graph_check_run(c, side, in, after.at, err);
    for (uint32_t i = 0; rc == 0 && i < c->noutputs; i++)
        compare(&before[i], &after.at[i], h, v);
    return rc;
}

/* ---- the properties ---- */

static int check_repeatable(struct ckpt_graph_check *c, struct ckpt_err *err) {
    CKPT_AUTO(outputs) struct outputs again = {0};
    const int rc = ckpt_graph_check_run(c, CKPT_SIDE_SERVED, c->inputs.at, again.at, err);
    bool equal = true;
    for (uint32_t i = 0; rc == 0 && i < c->noutputs; i++)
        for (int64_t k = 0; equal && k < ckpt_array_count(&c->served[i]); k++)
            equal = same(&c->served[i], &again.at[i], k);
    if (rc == 0)
        judge(c, add(c, "repeatable", equal ? CKPT_STATUS_PASS : CKPT_STATUS_DIFF));
    return rc;
}

/* A run on changed tokens may fail where one on the recorded tokens does not: routes that depend on
 * them, a graph that was traced. That is no fault of the model's. */
static int or_skip(struct ckpt_graph_check *c, const char *name, int rc, struct ckpt_err *found,
                   struct ckpt_err *err) {
    if (rc == -EINTR)
        return ckpt_fail(err, rc, "interrupted");
    if (rc < 0)
        skip(c, name, found->text);
    return 0;
}

/* Outputs that had to stay have changed: DIFF, unless they do so on the source's tensors, too. */
static int tell_moved(struct ckpt_graph_check *c, const char *name, size_t at,
                      const struct change *h, const struct verdict *v, struct ckpt_err *err) {
    struct verdict source = {0};
    bool changed = false;
    const int rc = try_change(c, CKPT_SIDE_TORCH, at, h, &source, &changed, err);
    if (rc < 0)
        return rc;
    const bool own = source.moved_kept > 0;
    struct ckpt_property *const p = add(c, name, own ? CKPT_STATUS_SKIP : CKPT_STATUS_DIFF);
    ckpt_reason_set(&p->detail, "%lld outputs that the mask protects changed, by up to %.3g%s",
                    (long long)v->moved_kept, v->most,
                    own ? ", and so they do on the source's tensors: the model does not have this "
                          "property, or the mask means something else"
                        : "");
    judge(c, p);
    return 0;
}

static void tell_kept(struct ckpt_graph_check *c, const char *name, const struct verdict *v) {
    ckpt_reason_set(&add(c, name, CKPT_STATUS_PASS)->detail,
                    "%lld outputs stayed as they were, %lld others changed", (long long)v->compared,
                    (long long)v->moved);
}

/* What a mask promises must hold to the bit. */
static int check_masked(struct ckpt_graph_check *c, const char *name, size_t at,
                        const struct change *h, struct ckpt_err *err) {
    struct verdict v = {0};
    bool changed = false;
    struct ckpt_err found = {0};
    int rc = try_change(c, CKPT_SIDE_SERVED, at, h, &v, &changed, &found);
    if (rc == 0 && v.moved_kept)
        rc = tell_moved(c, name, at, h, &v, &found);
    else if (rc == 0 && (!changed || v.compared == 0 || v.moved == 0))
        skip(c, name,
             !changed      ? "the recorded tokens are all equal"
             : !v.compared ? "no output is [batch, length, ...] as the input is"
                           : "the changed tokens changed no output at all");
    else if (rc == 0)
        tell_kept(c, name, &v);
    return or_skip(c, name, rc, &found, err);
}

static int check_causal(struct ckpt_graph_check *c, size_t at, struct ckpt_err *err) {
    const struct ckpt_array *const tokens = input(c, at);
    const int64_t length = tokens->shape[1];
    size_t arguments = 0;
    bool masked = false;
    for (size_t i = 0; i < c->inputs.n; i++) {
        arguments += input(c, i) != NULL;
        masked = masked || (input(c, i) && is_causal_mask(input(c, i), length));
    }
    const struct change h = {
        .what = LATER, .rows = tokens->shape[0], .length = length, .from = length / 2};
    if (length >= 2 && (masked || (arguments == 1 && is_causal_graph(c->graph))))
        return check_masked(c, "causal", at, &h, err);
    skip(c, "causal",
         "no causal mask among the inputs, and not every attention of the graph is "
         "causal");
    return 0;
}

/* What an earlier reading of a mask said is forgotten if it did not hold. */
static int check_padding(struct ckpt_graph_check *c, size_t at, struct ckpt_err *err) {
    const struct ckpt_array *const tokens = input(c, at);
    struct ckpt_graph_result *const g = &c->v->graph;
    const uint32_t before = g->nproperties;
    for (size_t i = 0; i < 2 * c->inputs.n; i++) {
        struct change h = {.what = PADDED,
                           .padding = {.mask = input(c, i / 2), .opposite = i % 2},
                           .rows = tokens->shape[0],
                           .length = tokens->shape[1]};
        if (!is_padding(&h.padding, tokens))
            continue;
        g->nproperties = before;
        const int rc = check_masked(c, "padding", at, &h, err);
        if (rc < 0 || g->property[before].status != CKPT_STATUS_SKIP)
            return rc;
    }
    if (g->nproperties == before)
        skip(c, "padding", "no padding mask among the inputs");
    return 0;
}

static int check_batch(struct ckpt_graph_check *c, size_t at, struct ckpt_err *err) {
    const struct ckpt_array *const tokens = input(c, at);
    const struct change h = {
        .what = OTHER_ROWS, .rows = tokens->shape[0], .length = tokens->shape[1]};
    struct verdict v = {0};
    bool changed = false;
    if (h.rows < 2) {
        skip(c, "batch", "the recorded input is a batch of one");
        return 0;
    }
    struct ckpt_err found = {0};
    const int rc = try_change(c, CKPT_SIDE_SERVED, at, &h, &v, &changed, &found);
    if (rc < 0)
        return or_skip(c, "batch", rc, &found, err);
    const bool holds = v.compared && v.most <= c->v->options->atol;
    struct ckpt_property *const p =
        add(c, "batch", changed && holds ? CKPT_STATUS_PASS : CKPT_STATUS_SKIP);
    if (changed && v.compared)
        ckpt_reason_set(&p->detail,
                        holds ? "the first row changed by %.3g when the others did"
                              : "the first row changed by %.3g when the others did: rows depend "
                                "on each other, or the first dimension is no batch",
                        v.most);
    else
        ckpt_reason_set(&p->detail, "nothing to compare");
    return 0;
}

int ckpt_properties_check(struct ckpt_graph_check *c, struct ckpt_err *err) {
    const int64_t at = find_tokens(c);
    ckpt_reason_set(&add(c, "eval", CKPT_STATUS_PASS)->detail,
                    "no operation is in training mode, no buffer is changed");
    int rc = check_repeatable(c, err);
    if (rc < 0 || at < 0 || ckpt_array_count(input(c, (size_t)at)) == 0)
        return rc;
    rc = check_causal(c, (size_t)at, err);
    if (rc == 0)
        rc = check_padding(c, (size_t)at, err);
    return rc < 0 ? rc : check_batch(c, (size_t)at, err);
}
