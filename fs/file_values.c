/* What is not a tensor: each largest tensor-free part of the checkpoint, as JSON. */
#include "fs/files.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "fs/name.h"

#define ENDINGS_MAX 1000 /* values whose names clash, before we give up */

/* Container levels are a folder each, the last segment one for every dot, as a tensor's key. */
int ckpt_files_value_path(struct ckpt_arena *a, struct ckpt_path source, struct ckpt_path *out,
                          struct ckpt_err *err) {
    const struct ckpt_text last = source.n ? source.segment[source.n - 1] : CKPT_TEXT("value");
    const uint32_t above = source.n ? source.n - 1 : 0;
    uint32_t parts = 1;
    for (size_t i = 0; i < last.n; i++)
        parts += last.s[i] == '.';
    struct ckpt_text *segment = ckpt_arena_array(a, above + parts, sizeof *segment);
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
    *out = (struct ckpt_path){.segment = segment, .n = n};
    return 0;
}

int ckpt_files_make_value_folders(struct ckpt_session *s, struct ckpt_err *err) {
    CKPT_AUTO(arena) struct ckpt_arena scratch = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->checkpoint->nvalues; i++) {
        struct ckpt_path path;
        uint32_t folder;
        rc = ckpt_files_value_path(&scratch, s->checkpoint->values[i].path, &path, err);
        if (rc == 0)
            rc = ckpt_files_folders(&s->tree, path, false, &folder, err);
    }
    return rc;
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
                     struct ckpt_vfile *file, uint32_t *node, struct ckpt_err *err) {
    CKPT_AUTO(str) struct ckpt_str name = {0};
    for (unsigned attempt = 0; attempt < ENDINGS_MAX; attempt++) {
        value_name(&name, last, attempt);
        if (name.failed)
            return ckpt_fail_memory(err, "building the tree");
        const struct ckpt_text text = ckpt_str_text(&name);
        if (folder == CKPT_TREE_ROOT && ckpt_session_name_is_ours(text))
            continue;
        const int rc = ckpt_session_add_file(s, folder, text, file, false, node, err);
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

static bool write_value(struct ckpt_str *out, const struct ckpt_value *v) {
    struct ckpt_json_out w = {.out = out, .pretty = true};
    const bool whole = ckpt_value_json(&w, v);
    ckpt_str_puts(out, "\n");
    return whole;
}

static int write_again(const void *value, struct ckpt_str *out, struct ckpt_err *err) {
    (void)err;
    write_value(out, value);
    return 0;
}

/* A short text is kept; of a long one, only its length is known from here on. */
static struct ckpt_vfile *value_file(struct ckpt_session *s, const struct ckpt_value *v,
                                     bool *whole, struct ckpt_err *err) {
    CKPT_AUTO(str) struct ckpt_str out = {.sink = ckpt_str_forget};
    *whole = write_value(&out, v);
    struct ckpt_vfile *f = out.failed ? NULL : ckpt_vfile_new(&s->arena, 1);
    if (!f)
        return NULL;
    if (out.passed == 0) {
        const struct ckpt_text json = ckpt_text_copy(&s->arena, out.s, out.n);
        if (!json.s)
            return NULL;
        ckpt_vfile_add_bytes(f, json.s, json.n);
        return f;
    }
    if (ckpt_made_new(&s->made, write_again, v, err) < 0)
        return NULL;
    ckpt_vfile_add_made(f, s->made, ckpt_str_total(&out));
    return f;
}

static int add_value(struct ckpt_session *s, const struct ckpt_named_value *v,
                     struct ckpt_arena *scratch, uint32_t *node, struct ckpt_err *err) {
    bool whole;
    struct ckpt_vfile *file = value_file(s, v->value, &whole, err);
    if (!file)
        return ckpt_fail_memory(err, "writing a value as JSON");
    struct ckpt_path path;
    uint32_t folder;
    int rc = ckpt_files_value_path(scratch, v->path, &path, err);
    if (rc == 0)
        rc = ckpt_files_folders(&s->tree, path, true, &folder, err);
    if (rc >= 0)
        rc = add_named(s, folder, path.segment[path.n - 1], file, node, err);
    return rc < 0 || whole ? rc : note_cut(s, *node, err);
}

int ckpt_files_add_values(struct ckpt_session *s, struct ckpt_err *err) {
    const struct ckpt_checkpoint *c = s->checkpoint;
    CKPT_AUTO(arena) struct ckpt_arena scratch = {0};
    s->value_node = ckpt_arena_array(&s->arena, c->nvalues, sizeof *s->value_node);
    if (!s->value_node)
        return ckpt_fail_memory(err, "building the tree");
    for (size_t i = 0; i < c->nvalues; i++) {
        const int rc = add_value(s, &c->values[i], &scratch, &s->value_node[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
