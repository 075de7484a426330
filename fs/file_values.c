/* What is not a tensor: each largest tensor-free part of the checkpoint, as JSON. */
#include "fs/files.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "fs/name.h"

#define ENDINGS_MAX 1000 /* values whose names clash, before we give up */

/* Container levels are a folder each, the last segment one for every dot, as a tensor's key. */
int ckpt_files_value_path(struct ckpt_session *s, struct ckpt_path source, struct ckpt_path *out,
                          struct ckpt_err *err) {
    const struct ckpt_text last = source.n ? source.segment[source.n - 1] : CKPT_TEXT("value");
    const uint32_t above = source.n ? source.n - 1 : 0;
    uint32_t parts = 1;
    for (size_t i = 0; i < last.n; i++)
        parts += last.s[i] == '.';
    struct ckpt_text *segment = ckpt_arena_array(&s->arena, above + parts, sizeof *segment);
    if (!segment)
        return ckpt_fail_memory(err, "building the tree");
    if (above)
        memcpy(segment, source.segment, above * sizeof *segment);
    uint32_t n = above;
    for (size_t from = 0, i = 0; i <= last.n; i++) {
        if (i < last.n && last.s[i] != '.')
            continue;
        segment[n++] = (struct ckpt_text){last.s + from, i - from};
        from = i + 1;
    }
    *out = (struct ckpt_path){segment, n};
    return 0;
}

/* NAME.json; if that is ours or taken NAME.value.json, then NAME.value.2.json ... */
static void value_name(struct ckpt_str *name, struct ckpt_text last, unsigned attempt) {
    ckpt_str_cut(name, 0);
    ckpt_name_encode(name, last);
    if (attempt == 0)
        ckpt_str_puts(name, ".json");
    else if (attempt == 1)
        ckpt_str_puts(name, ".value.json");
    else
        ckpt_str_printf(name, ".value.%u.json", attempt);
}

static int add_named(struct ckpt_session *s, uint32_t folder, struct ckpt_text last,
                     struct ckpt_text json, uint32_t *node, struct ckpt_err *err) {
    CKPT_AUTO(str) struct ckpt_str name = {0};
    for (unsigned attempt = 0; attempt < ENDINGS_MAX; attempt++) {
        value_name(&name, last, attempt);
        if (name.failed)
            return ckpt_fail_memory(err, "building the tree");
        const struct ckpt_text text = ckpt_str_text(&name);
        if (folder == CKPT_TREE_ROOT && ckpt_session_name_is_ours(text))
            continue;
        const int rc = ckpt_session_add_text(s, folder, text, json, node, err);
        if (rc != -EEXIST)
            return rc;
    }
    return ckpt_fail(err, -EINVAL, "over %d values would get the name %.*s.json", ENDINGS_MAX,
                     CKPT_TEXT_ARGS(last));
}

/* What the file leaves out must not pass unnoticed. */
static int note_cut(struct ckpt_session *s, uint32_t node, struct ckpt_err *err) {
    CKPT_AUTO(str) struct ckpt_str path = {0};
    ckpt_tree_path(&s->tree, node, &path);
    if (path.failed)
        return ckpt_fail_memory(err, "building the tree");
    return ckpt_session_note(
        s, err, "part of %s: it is cut where it shows \"...\" (limit of %u MiB, %d levels)",
        ckpt_str_text(&path).s, CKPT_LIMIT_VALUE_JSON_BYTES >> 20, CKPT_JSON_OUT_DEPTH_MAX);
}

static int add_value(struct ckpt_session *s, const struct ckpt_named_value *v, uint32_t *node,
                     struct ckpt_err *err) {
    CKPT_AUTO(str) struct ckpt_str out = {0};
    struct ckpt_json_out w = {.out = &out, .pretty = true};
    const bool whole = ckpt_value_json(&w, v->value);
    ckpt_str_puts(&out, "\n");
    const struct ckpt_text json = ckpt_text_copy(&s->arena, ckpt_str_text(&out).s, out.n);
    if (out.failed || !json.s)
        return ckpt_fail_memory(err, "writing a value as JSON");
    struct ckpt_path path;
    uint32_t folder;
    int rc = ckpt_files_value_path(s, v->path, &path, err);
    if (rc == 0)
        rc = ckpt_files_folders(s, path, CKPT_TREE_ROOT, true, &folder, err);
    if (rc >= 0)
        rc = add_named(s, folder, path.segment[path.n - 1], json, node, err);
    return rc < 0 || whole ? rc : note_cut(s, *node, err);
}

int ckpt_files_add_values(struct ckpt_session *s, struct ckpt_err *err) {
    const struct ckpt_checkpoint *c = s->checkpoint;
    s->value_node = ckpt_arena_array(&s->arena, c->nvalues, sizeof *s->value_node);
    if (!s->value_node)
        return ckpt_fail_memory(err, "building the tree");
    for (size_t i = 0; i < c->nvalues; i++) {
        const int rc = add_value(s, &c->values[i], &s->value_node[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
