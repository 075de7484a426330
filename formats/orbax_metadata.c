/*
 * The JSON files that describe an item:
 *
 *     _METADATA       {"tree_metadata": {REPR: {"key_metadata": [{"key", "key_type"}...],
 *                                               "value_metadata": {"value_type",
 *                                                                  "skip_deserialize"}}},
 *                      "store_array_data_equal_to_fill_value": true, ...}
 *     _strings.json   {NAME: TEXT}, of a name with slashes {PART: {PART: TEXT}}
 *
 * REPR is Python's way to write the path; the path itself is in key_metadata. A text lies in
 * _strings.json where its name, taken as a JSON pointer (RFC 6901), points: "a/b" is a member b of
 * a member a, and "~1" in a name is a slash of the member's own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_walk.h"
#include "formats/orbax.h"

struct parser {
    struct ckpt_json j;
    struct ckpt_arena *arena;
    struct ckpt_err *err;
    struct ckpt_orbax_metadata *out;
    struct ckpt_orbax_leaf leaf; /* being read */
    struct ckpt_text segment[CKPT_LIMIT_ORBAX_SEGMENTS];
    uint32_t n;
    size_t path_bytes;
    bool has_path;
};

static void parser_fini(struct parser *p) {
    ckpt_json_fini(&p->j);
}
CKPT_DEFINE_AUTO(parser, struct parser, parser_fini)

/* A list in the arena that doubles; the old halves stay there. */
static void *grow(struct ckpt_arena *a, void *list, size_t n, size_t *cap, size_t size) {
    if (n < *cap)
        return list;
    const size_t bigger = *cap ? 2 * *cap : 64;
    void *const more = ckpt_arena_array(a, bigger, size);
    if (more && n)
        memcpy(more, list, n * size);
    if (more)
        *cap = bigger;
    return more;
}

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading the description of an item");
}

/* --- leaves ----------------------------------------------------------------------------------- */

static int segment_member(void *user, struct ckpt_text key) {
    struct parser *const p = user;
    if (!ckpt_text_is(key, "key"))
        return ckpt_json_read_nothing(&p->j);
    return ckpt_json_read_text(&p->j, "a key", p->arena, &p->segment[p->n]);
}

static int take_segment(void *user, int token) {
    struct parser *const p = user;
    if (p->n == CKPT_LIMIT_ORBAX_SEGMENTS)
        return ckpt_fail(p->err, -E2BIG,
                         "a path has more than %u segments (limit of path segments)",
                         CKPT_LIMIT_ORBAX_SEGMENTS);
    p->segment[p->n].s = NULL;
    const int rc = ckpt_json_take_object(&p->j, token, "a part of a path", segment_member, p);
    if (rc == 0 && !p->segment[p->n].s)
        return ckpt_fail(p->err, -EINVAL, "a part of a path has no key");
    p->path_bytes += rc ? 0 : p->segment[p->n].n + 1;
    if (p->path_bytes > CKPT_LIMIT_KEY_BYTES + 1u)
        return ckpt_fail(p->err, -E2BIG, "a path has more than %u bytes (limit of key bytes)",
                         CKPT_LIMIT_KEY_BYTES);
    p->n++;
    return rc;
}

static int value_member(void *user, struct ckpt_text key) {
    struct parser *const p = user;
    if (ckpt_text_is(key, "value_type"))
        return ckpt_json_read_text(&p->j, "the type of a value", p->arena, &p->leaf.type);
    if (ckpt_text_is(key, "skip_deserialize"))
        return ckpt_json_read_bool(&p->j, "skip_deserialize", &p->leaf.is_empty);
    return ckpt_json_read_nothing(&p->j);
}

static int leaf_member(void *user, struct ckpt_text key) {
    struct parser *const p = user;
    if (ckpt_text_is(key, "key_metadata")) {
        p->has_path = true;
        return ckpt_json_read_array(&p->j, "the path of a leaf", take_segment, p);
    }
    if (ckpt_text_is(key, "value_metadata"))
        return ckpt_json_read_object(&p->j, "the description of a leaf", value_member, p);
    return ckpt_json_read_nothing(&p->j);
}

static int add_leaf(struct parser *p) {
    struct ckpt_orbax_metadata *const m = p->out;
    struct ckpt_text *const segments = ckpt_arena_array(p->arena, p->n + 1u, sizeof *segments);
    struct ckpt_orbax_leaf *const list = grow(p->arena, m->leaf, m->n, &m->cap, sizeof *list);
    if (!segments || !list)
        return fail_memory(p->err);
    memcpy(segments, p->segment, p->n * sizeof *segments);
    p->leaf.path = (struct ckpt_path){.segment = segments, .n = p->n};
    m->leaf = list;
    m->leaf[m->n++] = p->leaf;
    return 0;
}

static int tree_member(void *user, struct ckpt_text key) {
    struct parser *const p = user;
    const size_t at = p->j.base + p->j.at;
    (void)key;
    p->leaf = (struct ckpt_orbax_leaf){.type = CKPT_TEXT("")};
    p->n = 0;
    p->path_bytes = 0;
    p->has_path = false;
    if (p->out->n == CKPT_LIMIT_TENSORS)
        return ckpt_fail(p->err, -E2BIG, "more than %u leaves (limit of tensors)",
                         CKPT_LIMIT_TENSORS);
    const int rc = ckpt_json_read_object(&p->j, "a leaf", leaf_member, p);
    if (rc)
        return rc;
    return p->has_path ? add_leaf(p)
                       : ckpt_fail(p->err, -EINVAL, "the leaf at byte %zu has no key_metadata", at);
}

static int metadata_member(void *user, struct ckpt_text key) {
    struct parser *const p = user;
    if (ckpt_text_is(key, "tree_metadata"))
        return ckpt_json_read_object(&p->j, "the tree", tree_member, p);
    if (ckpt_text_is(key, "store_array_data_equal_to_fill_value"))
        return ckpt_json_read_bool(&p->j, "store_array_data_equal_to_fill_value",
                                   &p->out->is_complete);
    return ckpt_json_read_nothing(&p->j);
}

static int finish(struct parser *p, int rc) {
    if (rc)
        return rc;
    const int token = ckpt_json_next(&p->j);
    return token < 0 ? token : 0;
}

int ckpt_orbax_parse_metadata(char *json, size_t n, struct ckpt_arena *a,
                              struct ckpt_orbax_metadata *out, struct ckpt_err *err) {
    CKPT_AUTO(parser) struct parser p = {.arena = a, .err = err, .out = out};
    *out = (struct ckpt_orbax_metadata){0};
    ckpt_json_init_in_place(&p.j, json, n, CKPT_LIMIT_JSON_DEPTH, err);
    return finish(&p, ckpt_json_read_object(&p.j, "it", metadata_member, &p));
}

/* --- strings ---------------------------------------------------------------------------------- */

struct strings {
    struct parser p;
    struct ckpt_orbax_strings *out;
    size_t cap;
    struct ckpt_text within; /* where the object that is being read is, NULL: the whole */
};

static bool is_escaped(char c) {
    return c == '~' || c == '/';
}

/* The pointer to a member, given the one to its object. Its s is NULL if memory ended. */
static struct ckpt_text point(struct ckpt_arena *a, struct ckpt_text within, struct ckpt_text key) {
    size_t at = within.s ? within.n + 1 : 0;
    size_t n = at + key.n;
    for (size_t i = 0; i < key.n; i++)
        n += is_escaped(key.s[i]);
    char *const s = ckpt_arena_alloc(a, n + 1);
    if (!s)
        return (struct ckpt_text){0};
    if (within.s) {
        memcpy(s, within.s, within.n);
        s[within.n] = '/';
    }
    for (size_t i = 0; i < key.n; i++) {
        const char c = key.s[i];
        s[at++] = is_escaped(c) ? '~' : c;
        if (is_escaped(c))
            s[at++] = c == '~' ? '0' : '1';
    }
    return (struct ckpt_text){s, n};
}

static int take_string(struct strings *s, struct ckpt_text name, int token) {
    struct ckpt_orbax_strings *const out = s->out;
    if (out->n == CKPT_LIMIT_TENSORS)
        return ckpt_fail(s->p.err, -E2BIG, "more than %u strings (limit of tensors)",
                         CKPT_LIMIT_TENSORS);
    struct ckpt_text *const list = grow(s->p.arena, out->text, out->n, &s->cap, sizeof *list);
    if (!list)
        return fail_memory(s->p.err);
    out->text = list;
    if (ckpt_strmap_add(&out->map, name, out->n, NULL)) /* the reader refuses duplicates */
        return fail_memory(s->p.err);
    return ckpt_json_take_text(&s->p.j, token, "a string", s->p.arena, &out->text[out->n++]);
}

static int string_member(void *user, struct ckpt_text key) {
    struct strings *const s = user;
    const struct ckpt_text within = s->within;
    const struct ckpt_text name = point(s->p.arena, within, key);
    if (!name.s)
        return fail_memory(s->p.err);
    if (name.n > 2u * CKPT_LIMIT_KEY_BYTES) /* escaped, a key takes twice its bytes at most */
        return ckpt_fail(s->p.err, -E2BIG,
                         "a string's name has more than %u bytes (limit of key bytes)",
                         CKPT_LIMIT_KEY_BYTES);
    const int token = ckpt_json_next(&s->p.j);
    if (token != CKPT_JSON_OBJECT)
        return take_string(s, name, token);
    s->within = name;
    const int rc = ckpt_json_take_object(&s->p.j, token, "strings", string_member, s);
    s->within = within;
    return rc;
}

int ckpt_orbax_parse_strings(char *json, size_t n, struct ckpt_arena *a,
                             struct ckpt_orbax_strings *out, struct ckpt_err *err) {
    struct strings s = {.p = {.arena = a, .err = err}, .out = out};
    ckpt_json_init_in_place(&s.p.j, json, n, CKPT_LIMIT_JSON_DEPTH, err);
    const int rc = finish(&s.p, ckpt_json_read_object(&s.p.j, "it", string_member, &s));
    parser_fini(&s.p);
    return rc;
}

/* --- whether it was committed ----------------------------------------------------------------- */

struct times {
    struct ckpt_json j;
    bool has_begun, is_open;
};

static int time_member(void *user, struct ckpt_text key) {
    struct times *const t = user;
    const bool is_begin = ckpt_text_is(key, "init_timestamp_nsecs");
    const bool is_end = ckpt_text_is(key, "commit_timestamp_nsecs");
    const int token = ckpt_json_next(&t->j);
    if (is_begin)
        t->has_begun = token == CKPT_JSON_INT;
    if (is_end)
        t->is_open = token == CKPT_JSON_NULL;
    return ckpt_json_skip(&t->j, token);
}

bool ckpt_orbax_is_unfinished(const void *json, size_t n) {
    struct times t = {0};
    ckpt_json_init(&t.j, json, n, CKPT_LIMIT_JSON_DEPTH, NULL);
    const int rc = ckpt_json_read_object(&t.j, "it", time_member, &t);
    ckpt_json_fini(&t.j);
    return rc == 0 && t.has_begun && t.is_open;
}
