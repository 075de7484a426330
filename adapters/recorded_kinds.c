/*
 * Writing and reading the record. What to write is found by asking the way back itself: the model
 * is taken for a file that burn saved, turned back, and compared with what it was made of.
 *
 *     model in burn's layout ─> as a checkpoint ─> layout=torch ─> names, shapes, transposed?
 *            ^                                                         │ as in PyTorch's: done
 *            └────────────── a kind for the module that is not ────────┘
 */
#include "adapters/recorded_kinds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/rule.h"
#include "base/json.h"

/* One round finds modules of several, the next what their parts are by themselves. */
#define ROUNDS_MAX 3

/* --- may there be anything to say? ------------------------------------------------------------ */

static bool is(const char *a, const char *b) {
    return a && strcmp(a, b) == 0;
}

static bool ends(struct ckpt_text key, const char *segment) {
    const size_t n = strlen(segment);
    return ckpt_text_ends(key, segment) && (key.n == n || key.s[key.n - n - 1] == '.');
}

/* Names that mean something to burn, where PyTorch has them. */
static bool has_burns_name(struct ckpt_text key) {
    return ends(key, "gamma") || ends(key, "beta") || ends(key, "alpha") ||
           ends(key, "output.weight") || ends(key, "input_transform.weight");
}

/* A matrix that neither its bias nor its name will say the kind of: it is known from elsewhere. */
static bool is_known_otherwise(const struct ckpt_item *item, const struct ckpt_decision *d) {
    if (ckpt_item_rank(item) != 2 || is(d->kind, "mha"))
        return false;
    if (is(d->kind, "linear") && d->facts->leaf[CKPT_LEAF_BIAS])
        return false; /* as long as a row, in burn */
    struct ckpt_decision by_name = {0};
    return !ckpt_evidence_name(d->facts, false, &by_name) || !is(d->kind, by_name.kind);
}

static bool is_recurrent(const char *kind) {
    return is(kind, "lstm") || is(kind, "gru") || is(kind, "rnn");
}

static bool at_risk(const struct ckpt_item *item, const struct ckpt_decision *d) {
    return has_burns_name(item->torch_key) || is_known_otherwise(item, d) ||
           (d->within && ckpt_is_layer(d->within->kind)) || is_recurrent(d->kind);
}

bool ckpt_kinds_at_risk(const struct ckpt_build *b, const struct ckpt_modules *m) {
    for (size_t i = 0; i < b->nitems; i++)
        if (b->item[i].in_model && at_risk(&b->item[i], &m->decision[m->of_item[i]]))
            return true;
    return false;
}

/* --- the model as a file ---------------------------------------------------------------------- */

struct record {
    struct ckpt_build *b;
    struct ckpt_strmap paths; /* to entries */
    struct entry {
        struct ckpt_text path;
        const char *kind;
    } * entry;
    size_t n;
    /* What burn would have saved: tensors without bytes. */
    struct ckpt_checkpoint file;
    struct ckpt_blob blob;
    const struct ckpt_adapted **of; /* of each of its tensors */
    struct ckpt_pair pair;
};

static void record_fini(struct record *r) {
    ckpt_strmap_fini(&r->paths);
    ckpt_arena_fini(&r->file.arena);
}
#define ckpt_auto_record record_fini

static int make_file(struct record *r) {
    const struct ckpt_model *const m = r->b->model;
    struct ckpt_arena *const a = &r->file.arena;
    r->file.tensors = ckpt_arena_array(a, m->ntensors, sizeof *r->file.tensors);
    r->of = ckpt_arena_array(a, m->ntensors, sizeof *r->of);
    r->entry = ckpt_arena_array(a, m->ntensors, sizeof *r->entry);
    if (!r->file.tensors || !r->of || !r->entry)
        return ckpt_fail_memory(r->b->err, "recording kinds");
    r->blob.size = INT64_MAX;
    r->blob.name = "";
    for (size_t i = 0; i < m->ntensors; i++) {
        const struct ckpt_adapted *const t = &m->tensor[i];
        if (!ckpt_adapted_is_stored(t))
            continue;
        r->of[r->file.ntensors] = t;
        r->file.tensors[r->file.ntensors++] = (struct ckpt_tensor){
            .path = {.segment = &t->key, .n = 1},
            .key = t->key,
            .dtype = t->dtype,
            .ndim = t->ndim,
            .shape = t->shape,
            .offset = i, /* no two are tied */
            .blob = &r->blob,
            .module = -1,
        };
    }
    return 0;
}

static int write_record(struct record *r, struct ckpt_arena *a, struct ckpt_text *out) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    struct ckpt_json_out w = {.out = &s};
    ckpt_jsonw_object(&w);
    for (size_t i = 0; i < r->n; i++) {
        ckpt_jsonw_key_text(&w, r->entry[i].path);
        ckpt_jsonw_string(&w, r->entry[i].kind);
    }
    ckpt_jsonw_object_end(&w);
    *out = s.failed ? (struct ckpt_text){0} : ckpt_text_copy(a, s.s, s.n);
    return out->s ? 0 : ckpt_fail_memory(r->b->err, "recording kinds");
}

/* --- what did not come back ------------------------------------------------------------------- */

static bool is_transposed(const struct ckpt_adapted *t) {
    for (const char *const *op = t->ops; *op; op++)
        if (strcmp(*op, "transpose") == 0)
            return true;
    return false;
}

/* A tensor's name in its module. */
static struct ckpt_text own_name(const struct ckpt_adapted *t) {
    const size_t skip = t->module.path.n ? t->module.path.n + 1 : 0;
    return (struct ckpt_text){t->torch_key.s + skip, t->torch_key.n - skip};
}

static const char *layer_kind(const struct ckpt_adapted *t) {
    const struct ckpt_decision *const d = t->module.within;
    return d && ckpt_is_layer(d->kind) ? ckpt_kind_by_name(ckpt_text_of(d->kind)) : NULL;
}

/* map= and renumbering are not undone: a module may be called otherwise, but for the norms of a
 * Transformer layer, which are told apart by their names alone. */
static bool same_name(const struct ckpt_adapted *back, const struct ckpt_adapted *t) {
    return ckpt_text_eq(own_name(back), own_name(t)) &&
           (!layer_kind(t) || ckpt_text_eq(ckpt_module_last_name(back->module.path),
                                           ckpt_module_last_name(t->module.path)));
}

static bool came_back(const struct ckpt_adapted *back, const struct ckpt_adapted *t) {
    const struct ckpt_tensor *const source = t->source;
    uint64_t count = 0;
    const bool counted = ckpt_shape_count(back->shape, back->ndim, &count);
    if (back->nparts == 1 && (!counted || count != ckpt_tensor_count(source)))
        return true; /* the user's own rules cut it: it is not ours to put together */
    return same_name(back, t) && back->ndim == source->ndim &&
           memcmp(back->shape, source->shape, back->ndim * sizeof *back->shape) == 0 &&
           is_transposed(back) == is_transposed(t);
}

/* The key without its last n segments. */
static struct ckpt_text above(struct ckpt_text key, uint32_t n) {
    for (; n > 0; n--) {
        const char *dot = memrchr(key.s, '.', key.n);
        key.n = dot ? (size_t)(dot - key.s) : 0;
    }
    return key;
}

/* Right, but by habit: norm_first, and several recurrent layers in one module. The first of these
 * has the name that it would have by itself, too, and proves nothing. */
static bool is_luck(const struct ckpt_adapted *back, const struct ckpt_adapted *t) {
    const struct ckpt_text name = own_name(t);
    return (is(back->module.kind, "norm") && layer_kind(t)) ||
           (is_recurrent(back->module.kind) && is(back->module.decided_by, "default") &&
            !memmem(name.s, name.n, "_l0", 3));
}

/* What burn calls the module of one recurrent layer. */
static struct ckpt_text recurrent_path(struct ckpt_text key) {
    const struct ckpt_text layer = above(key, 3); /* input_gate.input_transform.weight */
    const struct ckpt_text way = ckpt_module_last_name(layer);
    const bool both = ckpt_text_is(way, "forward") || ckpt_text_is(way, "reverse");
    return both ? above(layer, 1) : layer;
}

/* The path, in burn's names, of the module that was taken for another, and what it is. */
static struct entry correction(const struct ckpt_adapted *back, const struct ckpt_adapted *t) {
    const char *const kind = t->module.kind, *taken = back->module.kind;
    if (is(taken, "norm") && layer_kind(t))
        return (struct entry){above(t->key, 2), layer_kind(t)};
    if (is(taken, "mha") && !is(kind, "mha"))
        return (struct entry){above(t->key, 2), "other"};
    if (is_recurrent(taken)) {
        const struct ckpt_text path = recurrent_path(t->key);
        return (struct entry){came_back(back, t) ? above(path, 1) : path,
                              is_recurrent(kind) ? kind : "other"};
    }
    return (struct entry){above(t->key, 1), is_transposed(t)        ? "linear"
                                            : is(kind, "embedding") ? kind
                                                                    : "other"};
}

static int add_entry(struct record *r, struct entry e, bool *added) {
    const int rc = ckpt_strmap_add(&r->paths, e.path, r->n, NULL);
    if (rc == -ENOMEM)
        return ckpt_fail_memory(r->b->err, "recording kinds");
    if (rc == 0) {
        r->entry[r->n++] = e;
        *added = true;
    }
    return 0;
}

static void auto_back(struct ckpt_model **m) {
    ckpt_model_free(*m);
}
#define ckpt_auto_back auto_back

/* Turns the file back with the record so far, and adds what is wrong then. */
static int add_corrections(struct record *r, bool *added) {
    static const struct ckpt_adapt_options back = {
        .layout = CKPT_LAYOUT_TORCH, .dialect = "burn", .root = "", .prefix_keep = true};
    CKPT_AUTO(back) struct ckpt_model *m = NULL;
    *added = false;
    int rc = write_record(r, &r->file.arena, &r->pair.value);
    if (rc)
        return rc;
    r->pair.key = CKPT_TEXT(CKPT_RECORDED_KINDS_KEY);
    r->file.metadata = &r->pair;
    r->file.nmetadata = 1;
    rc = ckpt_model_build(&r->file, &back, &m, NULL);
    if (rc == -ENOMEM)
        return ckpt_fail_memory(r->b->err, "recording kinds");
    for (size_t i = 0; rc == 0 && i < m->ntensors; i++) {
        const struct ckpt_adapted *const t = r->of[m->tensor[i].source - r->file.tensors];
        if (!came_back(&m->tensor[i], t) || is_luck(&m->tensor[i], t))
            rc = add_entry(r, correction(&m->tensor[i], t), added);
    }
    return rc == -ENOMEM ? rc : 0; /* names that cannot be turned back: nothing to record */
}

int ckpt_record_kinds(struct ckpt_build *b) {
    CKPT_AUTO(record) struct record r = {.b = b};
    bool added = true;
    int rc = make_file(&r);
    for (int round = 0; rc == 0 && added && round < ROUNDS_MAX; round++)
        rc = add_corrections(&r, &added);
    return rc || r.n == 0 ? rc : write_record(&r, &b->model->arena, &b->model->kinds);
}

/* --- reading ---------------------------------------------------------------------------------- */

static int refuse(struct ckpt_build *b, const char *why) {
    return ckpt_build_warn(b, "the file's " CKPT_RECORDED_KINDS_KEY " is left aside: %s", why);
}

static int decide_path(struct ckpt_build *b, struct ckpt_modules *m,
                       const struct ckpt_strmap *by_path, struct ckpt_text path,
                       struct ckpt_text value) {
    const char *const kind = ckpt_kind_by_name(value);
    const size_t i = ckpt_strmap_get(by_path, path);
    if (!kind)
        return refuse(b, "it names a kind that no module has");
    if (i == CKPT_STRMAP_ABSENT || m->decision[i].kind || !ckpt_facts_allow(&m->facts[i], kind))
        return 0;
    m->decision[i].kind = m->decision[i].rule_kind = kind;
    m->decision[i].decided_by = "record";
    return 0;
}

/* {"PATH": "KIND", ...} */
static int read_record(struct ckpt_build *b, struct ckpt_modules *m,
                       const struct ckpt_strmap *by_path, struct ckpt_text text) {
    struct ckpt_err err = {0};
    CKPT_AUTO(json) struct ckpt_json json;
    ckpt_json_init(&json, text.s, text.n, 2, &err);
    int token = ckpt_json_next(&json);
    if (token != CKPT_JSON_OBJECT)
        return refuse(b, token < 0 ? err.text : "it is no object");
    while ((token = ckpt_json_next(&json)) == CKPT_JSON_KEY) {
        const struct ckpt_text path = json.text;
        token = ckpt_json_next(&json);
        if (token != CKPT_JSON_STRING)
            return refuse(b, token < 0 ? err.text : "a kind in it is no string");
        const int rc = decide_path(b, m, by_path, path, json.text);
        if (rc)
            return rc;
    }
    if (token >= 0)
        token = ckpt_json_next(&json);
    return token < 0 ? refuse(b, err.text) : 0;
}

int ckpt_decide_by_record(struct ckpt_build *b, struct ckpt_modules *m,
                          const struct ckpt_strmap *by_path) {
    const struct ckpt_checkpoint *const c = b->checkpoint;
    for (size_t i = 0; i < c->nmetadata; i++)
        if (ckpt_text_is(c->metadata[i].key, CKPT_RECORDED_KINDS_KEY))
            return read_record(b, m, by_path, c->metadata[i].value);
    return 0;
}
