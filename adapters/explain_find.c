/* Which tensors does a key name? People have the source's names in mind, or burn's, or a module's.
 */
#include <errno.h>
#include <string.h>

#include "adapters/build.h"
#include "adapters/explain.h"
#include "adapters/computed_blob.h"

/* Comparing names is quadratic in their length: enough of them to find a typing error. */
#define CANDIDATES_MAX 50000

struct search {
    const struct ckpt_checkpoint *c;
    const struct ckpt_model *m; /* or NULL */
    struct ckpt_text key;
    bool *found; /* of each tensor of the checkpoint */
    size_t n;
    struct ckpt_strmap by_key; /* of the source's tensors */
};

static void search_fini(struct search *s) {
    ckpt_strmap_fini(&s->by_key);
}
#define ckpt_auto_search search_fini

/* Calls f on each source that an adapted tensor is made of, more than once perhaps. */
static void each_source(const struct ckpt_adapted *t,
                        void (*f)(const struct ckpt_tensor *source, void *arg), void *arg) {
    f(t->source, arg);
    for (uint32_t i = 0; i < t->nparts; i++) {
        const struct ckpt_tensor *s = t->part[i].source;
        const struct ckpt_computed_blob *c = s ? ckpt_computed_blob_of(s->blob) : NULL;
        if (s)
            f(s, arg);
        for (uint32_t k = 0; c && k < CKPT_COMPUTED_SOURCES && c->source[k]; k++)
            f(c->source[k], arg);
    }
}

static void mark(const struct ckpt_tensor *t, void *search) {
    struct search *s = search;
    const size_t i = ckpt_strmap_get(&s->by_key, t->key);
    if (i == CKPT_STRMAP_ABSENT || s->found[i])
        return;
    s->found[i] = true;
    s->n++;
}

struct wanted {
    const struct ckpt_tensor *source;
    bool found;
};

static void compare(const struct ckpt_tensor *source, void *wanted) {
    struct wanted *w = wanted;
    w->found |= source->key.s == w->source->key.s;
}

bool ckpt_explain_made_of(const struct ckpt_adapted *t, const struct ckpt_tensor *source) {
    struct wanted w = {.source = source};
    each_source(t, compare, &w);
    return w.found;
}

typedef bool fits(struct ckpt_text name, struct ckpt_text key);

static bool is_below(struct ckpt_text name, struct ckpt_text key) {
    return name.n > key.n && name.s[key.n] == '.' && memcmp(name.s, key.s, key.n) == 0;
}

/* By the source's names and, where there is a model, by its old and new ones. */
static void look_for_names(struct search *s, fits *fit) {
    for (size_t i = 0; i < s->c->ntensors; i++)
        if (fit(s->c->tensors[i].key, s->key))
            mark(&s->c->tensors[i], s);
    for (size_t i = 0; s->m && i < s->m->ntensors; i++)
        if (fit(s->m->tensor[i].key, s->key) || fit(s->m->tensor[i].torch_key, s->key))
            each_source(&s->m->tensor[i], mark, s);
}

static void look_for_module(struct search *s) {
    for (size_t i = 0; s->m && i < s->m->ntensors; i++)
        if (s->m->tensor[i].module.path.s && ckpt_text_eq(s->m->tensor[i].module.path, s->key))
            each_source(&s->m->tensor[i], mark, s);
}

static int not_found(const struct search *s, struct ckpt_arena *a, struct ckpt_err *err) {
    struct ckpt_text *names = ckpt_arena_array(a, CANDIDATES_MAX, sizeof *names);
    size_t n = 0;
    if (!names)
        return ckpt_fail_memory(err, "explaining");
    for (size_t i = 0; i < s->c->ntensors && n < CANDIDATES_MAX; i++)
        names[n++] = s->c->tensors[i].key;
    for (size_t i = 0; s->m && i < s->m->ntensors && n + 1 < CANDIDATES_MAX; i++) {
        names[n++] = s->m->tensor[i].key;
        if (s->m->tensor[i].module.path.s)
            names[n++] = s->m->tensor[i].module.path;
    }
    const int near = ckpt_text_nearest(s->key, names, n);
    if (near >= 0)
        return ckpt_fail(err, -ENOENT,
                         "--explain: there is no tensor and no module '%.*s': did you mean '%.*s'?",
                         CKPT_TEXT_ARGS(s->key), CKPT_TEXT_ARGS(names[near]));
    return ckpt_fail(err, -ENOENT,
                     "--explain: there is no tensor and no module '%.*s'; --inspect lists them",
                     CKPT_TEXT_ARGS(s->key));
}

static int take_found(const struct search *s, struct ckpt_explain *e, size_t *more,
                      struct ckpt_err *err) {
    const size_t n = s->n < CKPT_EXPLAIN_MAX ? s->n : CKPT_EXPLAIN_MAX;
    *more = s->n - n;
    e->tensor = ckpt_arena_array(&e->arena, n, sizeof *e->tensor);
    if (!e->tensor)
        return ckpt_fail_memory(err, "explaining");
    for (size_t i = 0; e->n < n; i++)
        if (s->found[i])
            e->tensor[e->n++].source = &s->c->tensors[i];
    return 0;
}

int ckpt_explain_find(struct ckpt_explain *e, const struct ckpt_checkpoint *c,
                      const struct ckpt_model *model, struct ckpt_text key, size_t *more,
                      struct ckpt_err *err) {
    CKPT_AUTO(search) struct search s = {.c = c, .m = model, .key = key};
    s.found = ckpt_arena_array(&e->arena, c->ntensors, sizeof *s.found);
    if (!s.found)
        return ckpt_fail_memory(err, "explaining");
    for (size_t i = 0; i < c->ntensors; i++)
        if (ckpt_strmap_add(&s.by_key, c->tensors[i].key, i, NULL) == -ENOMEM)
            return ckpt_fail_memory(err, "explaining");
    look_for_names(&s, ckpt_text_eq);
    if (s.n == 0)
        look_for_module(&s);
    if (s.n == 0)
        look_for_names(&s, is_below);
    return s.n ? take_found(&s, e, more, err) : not_found(&s, &e->arena, err);
}
