/*
 * Which part of the checkpoint is the model?
 *
 *     {epoch, model_state_dict: {module.fc1.weight, ...}, optimizer_state_dict: {...}}
 *             ^ root             ^ prefix ^ key
 *
 * A part is known by what its tensors' paths have in common. It is a state dict itself if most of
 * its tensors lie directly in it, or a module if the file says so; else the first of the names
 * below that holds tensors. A name whose value is None holds none and is passed over by itself.
 */
#include <errno.h>
#include <string.h>

#include "adapters/build.h"

static const char *const part_names[] = {
    "model_state_dict", "state_dict", "model",      "module", "params",    "net",
    "model_state",      "network",    "params_ema", "ema",    "ema_model", "state",
    "weights",          "generator",  "g_ema",
};
#define PART_NAMES (sizeof part_names / sizeof part_names[0])

static const char *const wrapper_prefixes[] = {"_orig_mod.", "module."};
/* Common, but they may be the user's own names: only pointed at. */
static const char *const suggested_prefixes[] = {"model.", "ema_model.", "net.", "network."};

/* A container: the first `depth` segments of this path. */
struct part {
    struct ckpt_path path;
    uint32_t depth;
};

static bool inside(const struct ckpt_path *p, struct part part) {
    if (p->n < part.depth)
        return false;
    for (uint32_t i = part.depth; i-- > 0;)
        if (!ckpt_text_eq(p->segment[i], part.path.segment[i]))
            return false;
    return true;
}

static bool is_module(const struct ckpt_checkpoint *c, struct part part) {
    for (size_t i = 0; i < c->nmodules; i++) {
        const struct ckpt_module *m = &c->modules[i];
        if (m->parent < 0 && m->container.n == part.depth && inside(&m->container, part))
            return true;
    }
    return false;
}

/* What lies in a part: its tensors, and under each known name one path that leads through it. */
struct contents {
    size_t tensors, direct;
    const struct ckpt_path *named[PART_NAMES];
    bool optimizer; /* param_groups beside: its "state" is no model */
};

static size_t name_index(struct ckpt_text name) {
    size_t i = 0;
    while (i < PART_NAMES && !ckpt_text_is(name, part_names[i]))
        i++;
    return i;
}

static struct contents look_into(const struct ckpt_checkpoint *c, struct part part) {
    struct contents found = {0};
    for (size_t i = 0; i < c->ntensors; i++) {
        const struct ckpt_path *p = &c->tensors[i].path;
        if (!inside(p, part))
            continue;
        found.tensors++;
        if (p->n <= part.depth + 1) {
            found.direct++;
            continue;
        }
        const size_t name = name_index(p->segment[part.depth]);
        if (name < PART_NAMES && !found.named[name])
            found.named[name] = p;
    }
    for (size_t i = 0; i < c->nvalues; i++) {
        const struct ckpt_path *p = &c->values[i].path;
        found.optimizer |= p->n > part.depth && inside(p, part) &&
                           ckpt_text_is(p->segment[part.depth], "param_groups");
    }
    return found;
}

static struct ckpt_text joined(struct ckpt_arena *a, struct part part) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    for (uint32_t i = 0; i < part.depth; i++) {
        if (i)
            ckpt_str_puts(&s, ".");
        ckpt_str_add(&s, part.path.segment[i].s, part.path.segment[i].n);
    }
    if (s.failed)
        return (struct ckpt_text){0};
    const struct ckpt_text t = ckpt_str_text(&s);
    return ckpt_text_copy(a, t.s, t.n);
}

/* The first named part becomes *part, the others candidates. True if there was one. */
static int choose_named(struct ckpt_build *b, struct part *part, bool *chosen) {
    struct ckpt_model *m = b->model;
    const struct contents found = look_into(b->checkpoint, *part);
    const struct part here = *part;
    *chosen = false;
    if (2 * found.direct > found.tensors || is_module(b->checkpoint, here))
        return 0;
    for (size_t i = 0; i < PART_NAMES; i++) {
        if (!found.named[i] || (found.optimizer && strcmp(part_names[i], "state") == 0))
            continue;
        const struct part named = {*found.named[i], here.depth + 1};
        if (!*chosen) {
            *part = named;
            *chosen = true;
            continue;
        }
        const struct ckpt_text other = joined(&m->arena, named);
        if (!other.s)
            return ckpt_fail_memory(b->err, "choosing the model's part");
        m->candidates[m->ncandidates++] = other;
    }
    return 0;
}

/* flax's collection `params`: but for another, it holds modules, whatever they are called. */
static bool is_params(struct part part) {
    return ckpt_text_is(part.path.segment[part.depth - 1], "params");
}

/* By rule: into the named part, and once more if that is again such a dict. */
static int choose_by_rule(struct ckpt_build *b) {
    struct ckpt_model *m = b->model;
    struct part part = {0};
    bool chosen;
    m->candidates = ckpt_arena_array(&m->arena, (size_t)2 * PART_NAMES, sizeof *m->candidates);
    if (!m->candidates)
        return ckpt_fail_memory(b->err, "choosing the model's part");
    int rc = choose_named(b, &part, &chosen);
    const struct part outer = part;
    const size_t ncandidates = m->ncandidates;
    if (rc == 0 && chosen)
        rc = choose_named(b, &part, &chosen);
    if (rc)
        return rc;
    if (outer.depth > 0 && is_params(outer) && !is_params(part)) {
        part = outer;
        m->ncandidates = ncandidates;
    }
    m->root = joined(&m->arena, part);
    return m->root.s ? 0 : ckpt_fail_memory(b->err, "choosing the model's part");
}

static bool below(struct ckpt_text key, struct ckpt_text root) {
    return root.n == 0 ||
           (key.n > root.n && key.s[root.n] == '.' && memcmp(key.s, root.s, root.n) == 0);
}

/* The containers that root= could have named, for "did you mean". */
static int root_not_found(struct ckpt_build *b, struct ckpt_text root) {
    enum { NAMES_MAX = 512 };
    struct ckpt_text names[NAMES_MAX];
    size_t n = 0;
    CKPT_AUTO(strmap) struct ckpt_strmap seen = {0};
    for (size_t i = 0; i < b->nitems && n < NAMES_MAX; i++) {
        const struct ckpt_path *p = &b->item[i].tensor->path;
        for (uint32_t depth = 1; depth < p->n && n < NAMES_MAX; depth++) {
            names[n] = joined(&b->model->arena, (struct part){*p, depth});
            if (!names[n].s)
                return ckpt_fail_memory(b->err, "looking for the root");
            n += ckpt_strmap_add(&seen, names[n], n, NULL) == 0;
        }
    }
    return ckpt_build_warn(b, "root=%.*s: no tensor lies below that name%s", CKPT_TEXT_ARGS(root),
                           ckpt_build_did_you_mean(b, root, names, n));
}

static int choose_root(struct ckpt_build *b) {
    const char *given = b->options->root;
    if (!given)
        return choose_by_rule(b);
    const struct ckpt_text root = ckpt_text_of(given);
    for (size_t i = 0; i < b->nitems; i++) {
        if (!below(b->item[i].tensor->key, root))
            continue;
        b->model->root = root;
        return 0;
    }
    const int rc = root.n ? root_not_found(b, root) : 0;
    return rc ? rc : choose_by_rule(b);
}

/* The first of the prefixes that every key of the model bears in front of something, or NULL. */
static const char *common_prefix(const struct ckpt_build *b, const char *const *prefix, size_t n,
                                 size_t at) {
    for (size_t k = 0; k < n; k++) {
        bool all = false;
        for (size_t i = 0; i < b->nitems; i++) {
            if (!b->item[i].in_model)
                continue;
            const struct ckpt_text key = b->item[i].torch_key;
            const struct ckpt_text rest = {key.s + at, key.n - at};
            all = ckpt_text_starts(rest, prefix[k]) && rest.n > strlen(prefix[k]);
            if (!all)
                break;
        }
        if (all)
            return prefix[k];
    }
    return NULL;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int strip_prefix(struct ckpt_build *b) {
    struct ckpt_model *m = b->model;
    CKPT_AUTO(str) struct ckpt_str prefix = {0};
    const char *wrapper;
    while ((wrapper = common_prefix(b, wrapper_prefixes, COUNT(wrapper_prefixes), prefix.n)))
        ckpt_str_puts(&prefix, wrapper);
    const char *other = common_prefix(b, suggested_prefixes, COUNT(suggested_prefixes), prefix.n);
    m->suggested_prefix = ckpt_text_of(other ? other : "");
    m->prefix = ckpt_text_copy(&m->arena, ckpt_str_text(&prefix).s, prefix.n);
    if (prefix.failed || !m->prefix.s)
        return ckpt_fail_memory(b->err, "stripping a prefix");
    for (size_t i = 0; i < b->nitems; i++) {
        struct ckpt_text *key = &b->item[i].torch_key;
        if (b->item[i].in_model)
            *key = (struct ckpt_text){key->s + prefix.n, key->n - prefix.n};
    }
    return 0;
}

int ckpt_select_root(struct ckpt_build *b) {
    const int rc = choose_root(b);
    if (rc)
        return rc;
    const struct ckpt_text root = b->model->root;
    for (size_t i = 0; i < b->nitems; i++) {
        struct ckpt_item *item = &b->item[i];
        const struct ckpt_text key = item->tensor->key;
        item->in_model = below(key, root);
        const size_t skip = item->in_model && root.n ? root.n + 1 : 0;
        item->torch_key = item->tensor->path.n == 0
                              ? CKPT_TEXT("tensor")
                              : (struct ckpt_text){key.s + skip, key.n - skip};
    }
    b->model->prefix = b->model->suggested_prefix = CKPT_TEXT("");
    const bool keep = b->options->prefix_keep || b->options->layout == CKPT_LAYOUT_SOURCE;
    return keep ? 0 : strip_prefix(b);
}
