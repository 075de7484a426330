/* -o include= and exclude=, and what must hold of the keys that remain. */
#include <errno.h>
#include <string.h>

#include "adapters/build.h"
#include "adapters/regex.h"

static int warn_no_match(struct ckpt_build *b, const char *option, struct ckpt_text pattern) {
    const struct ckpt_model *m = b->model;
    struct ckpt_arena *a = &b->model->arena;
    struct ckpt_text *keys = ckpt_arena_array(a, m->ntensors, sizeof *keys);
    for (size_t i = 0; keys && i < m->ntensors; i++)
        keys[i] = m->tensor[i].key;
    return ckpt_build_warn(
        b, "%s'%.*s' matches no tensor%s", option, CKPT_TEXT_ARGS(pattern),
        ckpt_build_did_you_mean(b, ckpt_regex_literal(pattern, a), keys, keys ? m->ntensors : 0));
}

/* Marks the tensors that any of the patterns matches. */
static int mark(struct ckpt_build *b, const char *option, const char *const *patterns, size_t n,
                bool *marked) {
    const struct ckpt_model *m = b->model;
    for (size_t p = 0; p < n; p++) {
        const struct ckpt_text pattern = ckpt_text_of(patterns[p]);
        CKPT_AUTO(regex) struct ckpt_regex *re = NULL;
        int rc = ckpt_regex_new(pattern, false, option, &re, b->err);
        size_t hits = 0;
        for (size_t i = 0; rc >= 0 && i < m->ntensors; i++) {
            rc = ckpt_regex_match(re, m->tensor[i].key, b->err);
            marked[i] |= rc > 0;
            hits += rc > 0;
        }
        if (rc >= 0)
            rc = hits ? 0 : warn_no_match(b, option, pattern);
        if (rc)
            return rc;
    }
    return 0;
}

static size_t count_in_model(const struct ckpt_model *m) {
    size_t n = 0;
    for (size_t i = 0; i < m->ntensors; i++)
        n += m->tensor[i].in_model;
    return n;
}

int ckpt_filter_tensors(struct ckpt_build *b) {
    const struct ckpt_adapt_options *o = b->options;
    struct ckpt_model *m = b->model;
    if (o->ninclude == 0 && o->nexclude == 0)
        return 0;
    bool *in = ckpt_arena_array(&m->arena, m->ntensors, sizeof *in);
    bool *out = ckpt_arena_array(&m->arena, m->ntensors, sizeof *out);
    if (!in || !out)
        return ckpt_fail_memory(b->err, "choosing tensors");
    int rc = mark(b, "include=", o->include, o->ninclude, in);
    if (rc == 0)
        rc = mark(b, "exclude=", o->exclude, o->nexclude, out);
    if (rc)
        return rc;
    size_t kept = 0;
    const bool had_some = count_in_model(m) > 0;
    for (size_t i = 0; i < m->ntensors; i++)
        if ((o->ninclude == 0 || in[i]) && !out[i]) {
            b->by[kept] = b->by[i];
            m->tensor[kept++] = m->tensor[i];
        }
    m->ntensors = kept;
    return had_some && count_in_model(m) == 0
               ? ckpt_build_warn(b, "%s leave%s no tensor of the model: model.safetensors is empty",
                                 o->ninclude == 0   ? "exclude="
                                 : o->nexclude == 0 ? "include="
                                                    : "include= and exclude=",
                                 o->ninclude && o->nexclude ? "" : "s")
               : 0;
}

/* "'fc.weight'", and by which rule it got its name. */
static void say_source(const struct ckpt_build *b, size_t i, struct ckpt_str *s) {
    ckpt_str_printf(s, "'%.*s'", CKPT_TEXT_ARGS(b->model->tensor[i].source->key));
    if (b->by[i])
        ckpt_str_printf(s, " (by %s)", b->by[i]);
}

static int fail_twice(const struct ckpt_build *b, size_t i, size_t other) {
    CKPT_AUTO(str) struct ckpt_str both = {0};
    say_source(b, other, &both);
    ckpt_str_puts(&both, " and ");
    say_source(b, i, &both);
    if (both.failed)
        return ckpt_fail_memory(b->err, "comparing keys");
    return ckpt_fail(b->err, -EINVAL,
                     "two tensors get the key '%.*s': %s; rename one with map=, or leave one out "
                     "with exclude=",
                     CKPT_TEXT_ARGS(b->model->tensor[i].key), both.s);
}

static int fail_nameless(const struct ckpt_build *b, size_t i) {
    CKPT_AUTO(str) struct ckpt_str source = {0};
    say_source(b, i, &source);
    return source.failed
               ? ckpt_fail_memory(b->err, "comparing keys")
               : ckpt_fail(b->err, -EINVAL,
                           "%s gets an empty name: map= or a rule leaves nothing of it; exclude= "
                           "leaves a tensor out",
                           source.s);
}

int ckpt_check_keys(struct ckpt_build *b) {
    const struct ckpt_model *m = b->model;
    CKPT_AUTO(strmap) struct ckpt_strmap inside = {0};
    CKPT_AUTO(strmap) struct ckpt_strmap outside = {0};
    for (size_t i = 0; i < m->ntensors; i++) {
        const struct ckpt_adapted *t = &m->tensor[i];
        size_t other;
        const int rc = ckpt_strmap_add(t->in_model ? &inside : &outside, t->key, i, &other);
        if (rc == -ENOMEM)
            return ckpt_fail_memory(b->err, "comparing keys");
        if (rc)
            return fail_twice(b, i, other);
        if (t->key.n == 0 && t->torch_key.n > 0)
            return fail_nameless(b, i);
    }
    return 0;
}
