/* Extended attributes: one row each. Lists are JSON, so that any key can be told from a comma. */
#include "fs/xattr.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"

static void put_shape(const int64_t *shape, uint32_t ndim, struct ckpt_str *out) {
    struct ckpt_json_out w = {.out = out};
    ckpt_jsonw_array(&w);
    for (uint32_t i = 0; i < ndim; i++)
        ckpt_jsonw_i64(&w, shape[i]);
    ckpt_jsonw_array_end(&w);
}

static void put_text(struct ckpt_text t, struct ckpt_str *out) {
    ckpt_str_add(out, t.s, t.n);
}

static void get_key(const struct ckpt_session *s, const struct ckpt_adapted *t,
                    struct ckpt_str *out) {
    (void)s;
    put_text(t->key, out);
}

static void get_dtype(const struct ckpt_session *s, const struct ckpt_adapted *t,
                      struct ckpt_str *out) {
    (void)s;
    ckpt_str_puts(out, ckpt_dtype_info(t->dtype)->name);
}

static void get_shape(const struct ckpt_session *s, const struct ckpt_adapted *t,
                      struct ckpt_str *out) {
    (void)s;
    put_shape(t->shape, t->ndim, out);
}

static void get_ops(const struct ckpt_session *s, const struct ckpt_adapted *t,
                    struct ckpt_str *out) {
    (void)s;
    for (const char *const *op = t->ops; op && *op; op++)
        ckpt_str_printf(out, "%s%s", op == t->ops ? "" : ",", *op);
}

static void get_source_key(const struct ckpt_session *s, const struct ckpt_adapted *t,
                           struct ckpt_str *out) {
    (void)s;
    put_text(t->source->key, out);
}

static void get_source_file(const struct ckpt_session *s, const struct ckpt_adapted *t,
                            struct ckpt_str *out) {
    const struct ckpt_file *f = t->source->blob->file;
    ckpt_str_puts(out, f ? f->name : s->checkpoint->name);
}

static void get_source_dtype(const struct ckpt_session *s, const struct ckpt_adapted *t,
                             struct ckpt_str *out) {
    (void)s;
    ckpt_str_puts(out, ckpt_dtype_info(t->source->dtype)->name);
}

static void get_source_shape(const struct ckpt_session *s, const struct ckpt_adapted *t,
                             struct ckpt_str *out) {
    (void)s;
    put_shape(t->source->shape, t->source->ndim, out);
}

static void get_tied(const struct ckpt_session *s, const struct ckpt_adapted *t,
                     struct ckpt_str *out) {
    (void)s;
    struct ckpt_json_out w = {.out = out};
    ckpt_jsonw_array(&w);
    for (size_t i = 0; i < t->ntied; i++)
        ckpt_jsonw_text(&w, t->tied[i]);
    ckpt_jsonw_array_end(&w);
}

static void get_format(const struct ckpt_session *s, const struct ckpt_adapted *t,
                       struct ckpt_str *out) {
    (void)t;
    ckpt_str_puts(out, s->checkpoint->format);
}

static void get_tensors(const struct ckpt_session *s, const struct ckpt_adapted *t,
                        struct ckpt_str *out) {
    (void)t;
    ckpt_str_printf(out, "%zu", s->model->ntensors);
}

static void get_verify(const struct ckpt_session *s, const struct ckpt_adapted *t,
                       struct ckpt_str *out) {
    (void)t;
    ckpt_str_puts(out, ckpt_status_name((enum ckpt_status)atomic_load(&s->verify_status)));
}

struct row {
    const char *name; /* without the prefix */
    void (*get)(const struct ckpt_session *s, const struct ckpt_adapted *t, struct ckpt_str *out);
};

static const struct row tensor_rows[] = {
    {"key", get_key},
    {"dtype", get_dtype},
    {"shape", get_shape},
    {"ops", get_ops},
    {"source_key", get_source_key},
    {"source_file", get_source_file},
    {"source_dtype", get_source_dtype},
    {"source_shape", get_source_shape},
    {"tied", get_tied},
    {NULL, NULL},
};

static const struct row root_rows[] = {
    {"format", get_format}, {"tensors", get_tensors}, {"verify", get_verify}, {NULL, NULL}};

static const struct row no_rows[] = {{NULL, NULL}};

static const struct row *rows_of(const struct ckpt_session *s, struct ckpt_dentry e,
                                 const struct ckpt_adapted **t) {
    const struct ckpt_vfile *file = ckpt_tree_node(e.tree, e.id)->file;
    *t = file && !(e.id & CKPT_TREE_NPY) ? file->tensor : NULL;
    return *t ? tensor_rows : e.tree == &s->tree && e.id == CKPT_TREE_ROOT ? root_rows : no_rows;
}

int ckpt_xattr_get(const struct ckpt_session *s, struct ckpt_dentry e, const char *name,
                   struct ckpt_str *out) {
    const size_t prefix = strlen(CKPT_XATTR_PREFIX);
    if (strncmp(name, CKPT_XATTR_PREFIX, prefix) != 0)
        return -ENODATA; /* security.* and system.*, which ls and tar ask for */
    const struct ckpt_adapted *t;
    for (const struct row *r = rows_of(s, e, &t); r->name; r++) {
        if (strcmp(r->name, name + prefix) != 0)
            continue;
        r->get(s, t, out);
        return out->failed ? -ENOMEM : 0;
    }
    return -ENODATA;
}

void ckpt_xattr_list(const struct ckpt_session *s, struct ckpt_dentry e, struct ckpt_str *out) {
    const struct ckpt_adapted *t;
    for (const struct row *r = rows_of(s, e, &t); r->name; r++) {
        ckpt_str_puts(out, CKPT_XATTR_PREFIX);
        ckpt_str_add(out, r->name, strlen(r->name) + 1);
    }
}
