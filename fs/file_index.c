/* index.json, which is also what --inspect --json prints: one record a tensor. */
#include "fs/files.h"

#include "adapters/evidence.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "fs/file_expect.h"
#include "fs/layout_name.h"

static void write_path(struct ckpt_json_out *w, const char *key, struct ckpt_path path) {
    ckpt_jsonw_key(w, key);
    ckpt_jsonw_array(w);
    for (uint32_t i = 0; i < path.n; i++)
        ckpt_jsonw_text(w, path.segment[i]);
    ckpt_jsonw_array_end(w);
}

static void write_shape(struct ckpt_json_out *w, const int64_t *shape, uint32_t ndim) {
    ckpt_jsonw_key(w, "shape");
    ckpt_jsonw_array(w);
    for (uint32_t i = 0; i < ndim; i++)
        ckpt_jsonw_i64(w, shape[i]);
    ckpt_jsonw_array_end(w);
}

static void write_member(struct ckpt_json_out *w, const char *key, const char *value) {
    ckpt_jsonw_key(w, key);
    ckpt_jsonw_string(w, value);
}

static void write_node_path(struct ckpt_json_out *w, const struct ckpt_session *s, uint32_t node) {
    CKPT_AUTO(str) struct ckpt_str path = {0};
    ckpt_tree_path(&s->tree, node, &path);
    w->out->failed |= path.failed;
    ckpt_jsonw_key(w, "path");
    ckpt_jsonw_text(w, ckpt_str_text(&path));
}

static void write_source(struct ckpt_json_out *w, const struct ckpt_session *s,
                         const struct ckpt_tensor *t) {
    ckpt_jsonw_key(w, "source");
    ckpt_jsonw_object(w);
    ckpt_jsonw_key(w, "key");
    ckpt_jsonw_text(w, t->key);
    write_path(w, "path", t->path);
    write_member(w, "file", t->blob->file ? t->blob->file->name : s->checkpoint->name);
    write_member(w, "dtype", ckpt_dtype_info(t->dtype)->name);
    write_shape(w, t->shape, t->ndim);
    ckpt_jsonw_object_end(w);
}

/* The modules that hold it and were decided too, the nearest first: their kinds name its key. */
static void write_within(struct ckpt_json_out *w, const struct ckpt_decision *d) {
    while (d && !d->kind)
        d = d->within;
    if (!d)
        return;
    ckpt_jsonw_key(w, "within");
    ckpt_jsonw_array(w);
    for (; d; d = d->within) {
        if (!d->kind)
            continue;
        ckpt_jsonw_object(w);
        ckpt_jsonw_key(w, "path");
        ckpt_jsonw_text(w, d->path);
        write_member(w, "kind", d->kind);
        write_member(w, "decided_by", d->decided_by);
        ckpt_jsonw_object_end(w);
    }
    ckpt_jsonw_array_end(w);
}

static void write_module(struct ckpt_json_out *w, const struct ckpt_adapted *t) {
    ckpt_jsonw_key(w, "module");
    ckpt_jsonw_object(w);
    ckpt_jsonw_key(w, "path");
    if (t->module.path.s)
        ckpt_jsonw_text(w, t->module.path);
    else
        ckpt_jsonw_null(w);
    write_member(w, "kind", t->module.kind);
    write_member(w, "decided_by", t->module.decided_by);
    write_within(w, t->module.within);
    ckpt_jsonw_object_end(w);
}

static void write_ops_and_ties(struct ckpt_json_out *w, const struct ckpt_adapted *t) {
    ckpt_jsonw_key(w, "ops");
    ckpt_jsonw_array(w);
    for (const char *const *op = t->ops; op && *op; op++)
        ckpt_jsonw_string(w, *op);
    ckpt_jsonw_array_end(w);
    write_module(w, t);
    ckpt_jsonw_key(w, "tied");
    ckpt_jsonw_array(w);
    for (size_t i = 0; i < t->ntied; i++)
        ckpt_jsonw_text(w, t->tied[i]);
    ckpt_jsonw_array_end(w);
}

static void write_tensor(struct ckpt_json_out *w, const struct ckpt_session *s, size_t i) {
    const struct ckpt_adapted *t = &s->model->tensor[i];
    ckpt_jsonw_object(w);
    ckpt_jsonw_key(w, "key");
    ckpt_jsonw_text(w, t->key);
    write_node_path(w, s, s->tensor_node[i]);
    write_member(w, "dtype", ckpt_dtype_info(t->dtype)->name);
    write_shape(w, t->shape, t->ndim);
    ckpt_jsonw_key(w, "nbytes");
    ckpt_jsonw_u64(w, t->nbytes);
    ckpt_jsonw_key(w, "offset");
    if (s->model_offset[i] == CKPT_NO_OFFSET)
        ckpt_jsonw_null(w);
    else
        ckpt_jsonw_u64(w, s->model_offset[i]);
    write_source(w, s, t->source);
    write_ops_and_ties(w, t);
    ckpt_jsonw_object_end(w);
}

static void write_head(struct ckpt_json_out *w, const struct ckpt_session *s) {
    const struct ckpt_checkpoint *c = s->checkpoint;
    ckpt_jsonw_key(w, "source");
    ckpt_jsonw_object(w);
    write_member(w, "name", c->name);
    write_member(w, "format", c->format);
    ckpt_jsonw_key(w, "files");
    ckpt_jsonw_array(w);
    for (size_t i = 0; i < c->nfiles; i++) {
        ckpt_jsonw_object(w);
        write_member(w, "name", c->files[i]->name);
        ckpt_jsonw_key(w, "nbytes");
        ckpt_jsonw_u64(w, c->files[i]->size);
        ckpt_jsonw_object_end(w);
    }
    ckpt_jsonw_array_end(w);
    ckpt_jsonw_object_end(w);
    write_member(w, "layout", ckpt_layout_name(s->model->layout));
    write_member(w, "dialect", s->model->dialect);
    ckpt_jsonw_key(w, "root");
    ckpt_jsonw_text(w, s->model->root);
}

static void write_values(struct ckpt_json_out *w, const struct ckpt_session *s) {
    ckpt_jsonw_key(w, "values");
    ckpt_jsonw_array(w);
    for (size_t i = 0; i < s->checkpoint->nvalues; i++) {
        ckpt_jsonw_object(w);
        write_node_path(w, s, s->value_node[i]);
        write_path(w, "source_path", s->checkpoint->values[i].path);
        ckpt_jsonw_object_end(w);
    }
    ckpt_jsonw_array_end(w);
}

static void write_notes(struct ckpt_json_out *w, const char *list, const char *what,
                        const struct ckpt_note *note, size_t n) {
    ckpt_jsonw_key(w, list);
    ckpt_jsonw_array(w);
    for (size_t i = 0; i < n; i++) {
        ckpt_jsonw_object(w);
        write_path(w, "path", note[i].path);
        ckpt_jsonw_key(w, what);
        ckpt_jsonw_text(w, note[i].text);
        ckpt_jsonw_object_end(w);
    }
    ckpt_jsonw_array_end(w);
}

/* The names in a pickle that other programs would import or call: only where there are some that
 * are more than tensors and plain data. */
static void write_globals(struct ckpt_json_out *w, const struct ckpt_globals *globals) {
    if (!ckpt_globals_are_notable(globals))
        return;
    ckpt_jsonw_key(w, "globals");
    ckpt_jsonw_array(w);
    for (size_t i = 0; i < globals->n; i++) {
        const struct ckpt_global *g = &globals->global[i];
        ckpt_jsonw_object(w);
        ckpt_jsonw_key(w, "name");
        ckpt_jsonw_text(w, g->name);
        write_member(w, "status", ckpt_global_status(g));
        write_member(w, "danger", g->danger);
        ckpt_jsonw_key(w, "mentions");
        ckpt_jsonw_u64(w, g->mentions);
        ckpt_jsonw_key(w, "calls");
        ckpt_jsonw_u64(w, g->calls);
        ckpt_jsonw_object_end(w);
    }
    ckpt_jsonw_array_end(w);
}

static void write_warnings(struct ckpt_json_out *w, const struct ckpt_session *s) {
    ckpt_jsonw_key(w, "warnings");
    ckpt_jsonw_array(w);
    for (size_t i = 0; i < s->checkpoint->nwarnings; i++)
        ckpt_jsonw_text(w, s->checkpoint->warnings[i]);
    for (size_t i = 0; i < s->model->nwarnings; i++)
        ckpt_jsonw_text(w, s->model->warnings[i]);
    ckpt_jsonw_array_end(w);
}

static void write_index(struct ckpt_json_out *w, const struct ckpt_session *s) {
    const struct ckpt_checkpoint *c = s->checkpoint;
    ckpt_jsonw_object(w);
    write_head(w, s);
    ckpt_jsonw_key(w, "tensors");
    ckpt_jsonw_array(w);
    for (size_t i = 0; i < s->model->ntensors; i++)
        write_tensor(w, s, i);
    ckpt_jsonw_array_end(w);
    write_values(w, s);
    write_notes(w, "unsupported", "reason", c->unsupported, c->nunsupported);
    write_notes(w, "opaque", "type", c->opaque, c->nopaque);
    write_globals(w, &c->globals);
    ckpt_expect_write_index(w, s->model);
    write_warnings(w, s);
    ckpt_jsonw_object_end(w);
}

int ckpt_files_write_index(const void *session, struct ckpt_str *out, struct ckpt_err *err) {
    struct ckpt_json_out w = {.out = out, .pretty = true};
    write_index(&w, session);
    ckpt_str_puts(out, "\n");
    return out->failed ? ckpt_fail_memory(err, "writing index.json") : 0;
}

int ckpt_files_add_index(struct ckpt_session *s, struct ckpt_err *err) {
    uint32_t node;
    return ckpt_session_add_made(s, CKPT_TREE_ROOT, CKPT_TEXT("index.json"), ckpt_files_write_index,
                                 s, &node, err);
}
