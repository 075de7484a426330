/*
 * Plans of layers with a forward: whether all names are there. PyTorch's, of the source; burn's, of
 * what the mount shows, behind some prefix of its own: the module may have been renamed, so the
 * prefix is whatever stands before the first of burn's names that one of the layer's tensors bears;
 * as deep as PyTorch's path, unless map= had a hand in it.
 */
#include <string.h>

#include "base/cleanup.h"
#include "verify/forward.h"

/* What visitors of names look for. */
struct search {
    const struct ckpt_plan *plan;
    const char *missing;
    char buf[CKPT_NAME_MAX];
    struct ckpt_text prefix;
    bool mapped; /* the user renamed it: anything may stand before it */
};

static bool source_lacks(void *to, const char *name) {
    struct search *const s = to;
    if (ckpt_layers_source(s->plan->layers, s->plan->layer->path, name))
        return false;
    s->missing = ckpt_name_join(s->buf, name, "");
    return true;
}

static bool mount_lacks(void *to, const char *name) {
    struct search *const s = to;
    if (ckpt_layers_served(s->plan->layers, s->prefix, name))
        return false;
    s->missing = ckpt_name_join(s->buf, name, "");
    return true;
}

static bool is_below(struct ckpt_text path, struct ckpt_text above) {
    return above.n == 0 || (path.n >= above.n && memcmp(path.s, above.s, above.n) == 0 &&
                            (path.n == above.n || path.s[above.n] == '.'));
}

/* Whether key is name, or ends with it behind a dot. */
static bool bears(struct ckpt_text key, struct ckpt_text name) {
    return key.n >= name.n && memcmp(key.s + key.n - name.n, name.s, name.n) == 0 &&
           (key.n == name.n || key.s[key.n - name.n - 1] == '.');
}

/* One of the layer's tensors, or its children's, that bears the name; NULL: none does. */
static const struct ckpt_adapted *bearer(const struct ckpt_plan *p, struct ckpt_text name) {
    const struct ckpt_model *const m = p->layers->model;
    for (size_t i = p->layer->first; i < p->layer->end; i++)
        if (m->tensor[i].in_model && is_below(m->tensor[i].module.path, p->layer->path) &&
            bears(m->tensor[i].key, name))
            return &m->tensor[i];
    return NULL;
}

static bool finds_prefix(void *to, const char *name) {
    struct search *const s = to;
    const size_t n = strlen(name);
    const struct ckpt_adapted *const t = bearer(s->plan, ckpt_text_of(name));
    if (t) {
        s->prefix = (struct ckpt_text){t->key.s, t->key.n > n ? t->key.n - n - 1 : 0};
        s->mapped = t->mapped;
    }
    return t;
}

static bool is_borne(void *to, const char *name) {
    const struct search *const s = to;
    return bearer(s->plan, ckpt_text_of(name));
}

/* The last two parts of a name: "query.weight". */
static bool is_half_borne(void *to, const char *name) {
    const struct search *const s = to;
    const char *last = strrchr(name, '.');
    while (last && last > name && last[-1] != '.')
        last--;
    return last && bearer(s->plan, ckpt_text_of(last));
}

static size_t depth(struct ckpt_text path) {
    size_t n = path.n > 0;
    for (size_t i = 0; i < path.n; i++)
        n += path.s[i] == '.';
    return n;
}

static void require_source(struct ckpt_plan *p, struct search *s) {
    const struct ckpt_text path = p->layer->path;
    if (!p->forward->names(p, false, source_lacks, s))
        return;
    const bool left_out = ckpt_plan_left_out(p->layers->model, path, s->missing);
    ckpt_plan_refuse(p, left_out ? CKPT_STATUS_SKIP : CKPT_STATUS_TEST_FAIL,
                     left_out ? "%.*s%s%s was left out" : "parameter %.*s%s%s is missing",
                     CKPT_TEXT_ARGS(path), path.n ? "." : "", s->missing);
}

/* None of burn's names: the user has names of his own, unless PyTorch's have stayed, or burn's came
 * out wrong; then a rule is missing or broken. */
static void refuse_nameless(struct ckpt_plan *p, struct search *s, bool burn) {
    const bool broken =
        p->forward->names(p, false, is_borne, s) || p->forward->names(p, burn, is_half_borne, s);
    ckpt_plan_refuse(p, broken ? CKPT_STATUS_TEST_FAIL : CKPT_STATUS_SKIP,
                     "none of the names that %s gives the parameters of %.*s is there",
                     burn ? "burn" : "PyTorch", CKPT_TEXT_ARGS(ckpt_layer_type(p->layer)));
}

static void require_served(struct ckpt_plan *p, struct search *s) {
    const bool burn = p->layers->model->layout == CKPT_LAYOUT_BURN;
    const char *const whose = burn ? "burn" : "PyTorch";
    if (burn && p->layers->model->modules_store)
        ckpt_plan_refuse(p, CKPT_STATUS_SKIP, "modules=store leaves %.*s as it is",
                         CKPT_TEXT_ARGS(ckpt_layer_type(p->layer)));
    else if (!p->forward->names(p, burn, finds_prefix, s))
        refuse_nameless(p, s, burn);
    else if (p->forward->names(p, burn, mount_lacks, s))
        ckpt_plan_refuse(p, CKPT_STATUS_TEST_FAIL, "%s's name is missing: %.*s%s%s", whose,
                         CKPT_TEXT_ARGS(s->prefix), s->prefix.n ? "." : "", s->missing);
    else if (!s->mapped && depth(s->prefix) != depth(p->layer->path))
        ckpt_plan_refuse(p, CKPT_STATUS_TEST_FAIL,
                         "%s's names are below \"%.*s\", where %s does not look", whose,
                         CKPT_TEXT_ARGS(s->prefix), whose);
    p->prefix = s->prefix;
}

void ckpt_plan_forward(struct ckpt_plan *p, const struct ckpt_forward *f) {
    struct search s = {.plan = p, .prefix = CKPT_TEXT("")};
    p->forward = f;
    if (p->status == CKPT_STATUS_PASS)
        require_source(p, &s);
    if (p->status == CKPT_STATUS_PASS)
        require_served(p, &s);
}

bool ckpt_plan_has(const struct ckpt_plan *p, const char *module, const char *name) {
    char buf[CKPT_NAME_MAX];
    return ckpt_layers_source(p->layers, p->layer->path, ckpt_name_join(buf, module, name));
}

int64_t ckpt_plan_columns(const struct ckpt_plan *p, const char *name, int64_t otherwise) {
    const struct ckpt_adapted *const t = ckpt_layers_source(p->layers, p->layer->path, name);
    struct ckpt_err ignored;
    if (!t)
        return otherwise;
    if (t->joined)
        return t->joined->ndim == 2 ? t->joined->shape[1] : otherwise;
    CKPT_AUTO(naive) struct ckpt_naive naive = {0};
    if (ckpt_naive_init(&naive, t->part->source, t->part->op, t->part->ntorch, &ignored) < 0)
        return otherwise;
    const struct ckpt_naive_shape *const shape = ckpt_naive_result(&naive);
    return shape->ndim == 2 ? shape->size[1] : otherwise;
}

void ckpt_plan_probe_sequence(struct ckpt_plan *p, uint32_t i, int64_t length, int64_t width) {
    const struct ckpt_scope s = {.plan = p};
    const bool first = ckpt_scope_bool(&s, "batch_first");
    p->probe[i] = (struct ckpt_plan_probe){.shape = {first ? 2 : length, first ? length : 2, width},
                                           .ndim = 3};
    p->nprobes = i + 1;
}
