#include "formats/pt2.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/graph.h"
#include "formats/torch.h"

/* pt2.h shows the layouts. Raw storages become records, as those of a pickle do, so that tensors
 * that name one path share their bytes. */

#define WEIGHTS "data/weights/"
#define CONFIG "_weights_config.json"
#define CONSTANTS "data/constants/"
#define CONSTANTS_CONFIG "_constants_config.json"
#define SAMPLES "data/sample_inputs/"
#define OLD_STATE "serialized_state_dict.pt"

struct archive {
    struct torch_reader r;
    const struct ckpt_zip *zip;
    struct ckpt_text root;
    const char *folder, *config; /* which tensors are read: WEIGHTS and CONFIG, or CONSTANTS */
    struct ckpt_err *err;
};

/* --- entries ---------------------------------------------------------------------------------- */

struct ckpt_text ckpt_pt2_name(const struct ckpt_zip_entry *e, struct ckpt_text root) {
    if (e->name.n < root.n || memcmp(e->name.s, root.s, root.n) != 0)
        return CKPT_TEXT("");
    return (struct ckpt_text){e->name.s + root.n, e->name.n - root.n};
}

bool ckpt_pt2_root(const struct ckpt_zip *zip, struct ckpt_text *root) {
    static const char *const marks[] = {"archive_format", "serialized_exported_program.json"};
    for (size_t i = 0; i < zip->nentries; i++)
        for (size_t m = 0; m < sizeof marks / sizeof marks[0]; m++) {
            const struct ckpt_text name = zip->entry[i].name;
            const size_t n = strlen(marks[m]);
            if (!ckpt_text_ends(name, marks[m]) || (name.n > n && name.s[name.n - n - 1] != '/'))
                continue;
            *root = (struct ckpt_text){name.s, name.n - n};
            return memchr(root->s, '/', root->n) == (root->n ? root->s + root->n - 1 : NULL);
        }
    return false;
}

/* ROOT folder name, or NULL. */
static const struct ckpt_zip_entry *find(const struct archive *x, const char *folder,
                                         struct ckpt_text name) {
    CKPT_AUTO(str) struct ckpt_str path = {0};
    ckpt_str_add(&path, x->root.s, x->root.n);
    ckpt_str_puts(&path, folder);
    ckpt_str_add(&path, name.s, name.n);
    return path.failed ? NULL : ckpt_zip_find(x->zip, ckpt_str_text(&path));
}

/* --- raw storages ----------------------------------------------------------------------------- */

/* The record of data/weights/PATH, made when it is first named. What is wrong is kept for the
 * tensors that use it. */
static int find_record(struct archive *x, struct ckpt_text path, struct torch_record **out) {
    struct torch_reader *r = &x->r;
    struct ckpt_arena *a = &r->c->arena;
    const size_t known = ckpt_strmap_get(&r->by_key, path);
    if (known != CKPT_STRMAP_ABSENT) {
        *out = r->records[known];
        return 0;
    }
    const struct ckpt_zip_entry *e = find(x, x->folder, path);
    const char *name = ckpt_arena_printf(a, "%s%.*s", x->folder, CKPT_TEXT_ARGS(path));
    const int rc = name ? torch_record_add(r, path, e ? e->size : 0, 1, out, x->err)
                        : ckpt_fail_memory(x->err, "listing storages");
    if (rc || e)
        return rc ? rc : ckpt_zip_blob(x->zip, e, r->c->decoded, a, name, &(*out)->blob, x->err);
    (*out)->error = ckpt_arena_printf(a, "its storage, ZIP entry \"%s\", is missing", name);
    return (*out)->error ? 0 : ckpt_fail_memory(x->err, "listing storages");
}

static const char *what_is_wrong(struct ckpt_arena *a, const struct ckpt_export_meta *m) {
    bool symbolic = m->offset == CKPT_SYMBOLIC;
    for (uint32_t i = 0; i < m->ndim; i++)
        symbolic = symbolic || m->shape[i] == CKPT_SYMBOLIC ||
                   (m->stride && m->stride[i] == CKPT_SYMBOLIC);
    if (symbolic)
        return "its shape, strides or offset are no plain numbers";
    if (m->offset < 0)
        return "its storage offset is negative";
    return m->dtype ? NULL
                    : ckpt_arena_printf(a, "its dtype has the unknown number %lld",
                                        (long long)m->dtype_number);
}

static int add_tensor(struct archive *x, struct ckpt_path path, const struct ckpt_pt2_entry *e) {
    const struct ckpt_export_meta *m = &e->meta;
    struct torch_record *record;
    const int rc = find_record(x, e->path, &record);
    if (rc)
        return rc;
    const struct torch_storage storage = {.record = record, .nbytes = record->nbytes};
    const struct torch_tensor t = {
        .storage = &storage,
        .dtype = m->dtype,
        .ndim = m->ndim,
        .shape = m->shape,
        .stride = m->stride,
        .offset = m->offset,
        .error = e->is_pickle ? NULL : what_is_wrong(&x->r.c->arena, m),
        .unsupported = e->is_pickle  ? "a subclass of tensor, saved as a pickle"
                       : !m->strided ? "a tensor that is not strided"
                                     : NULL,
    };
    return torch_tensor_add(&x->r, path, &t, -1, x->err);
}

/* [key], or [model, key] where the archive holds several models. */
static struct ckpt_path make_path(struct archive *x, const struct ckpt_text *model,
                                  const struct ckpt_pt2_entry *e) {
    struct ckpt_text *segment = ckpt_arena_array(&x->r.c->arena, 2, sizeof *segment);
    uint32_t n = 0;
    if (segment && model)
        segment[n++] = *model;
    if (segment)
        segment[n++] = e->key;
    return (struct ckpt_path){.segment = segment, .n = n};
}

static int read_config(struct archive *x, const struct ckpt_zip_entry *e,
                       const struct ckpt_text *model) {
    CKPT_AUTO(arena) struct ckpt_arena scratch = {0};
    CKPT_AUTO(pt2_config) struct ckpt_pt2_config config = {0};
    struct ckpt_text json;
    int rc = ckpt_zip_read(x->zip, e, CKPT_LIMIT_HEADER_BYTES, &scratch, &json, x->err);
    if (rc)
        return rc;
    rc = ckpt_pt2_config_parse(json.s, json.n, &x->r.c->arena, &config, x->err);
    if (rc)
        return ckpt_fail_in(x->err, "%.*s", CKPT_TEXT_ARGS(e->name));
    for (size_t i = 0; rc == 0 && i < config.n; i++) {
        const struct ckpt_path path = make_path(x, model, &config.entry[i]);
        rc = path.segment ? add_tensor(x, path, &config.entry[i])
                          : ckpt_fail_memory(x->err, "listing tensors");
    }
    return rc;
}

/* MODEL of ROOT data/weights/MODEL_weights_config.json; empty text: it is another entry. */
static struct ckpt_text config_model(const struct archive *x, const struct ckpt_zip_entry *e) {
    const struct ckpt_text name = ckpt_pt2_name(e, x->root);
    const size_t front = strlen(x->folder), back = strlen(x->config);
    if (!ckpt_text_starts(name, x->folder) || !ckpt_text_ends(name, x->config) ||
        name.n < front + back)
        return CKPT_TEXT("");
    return (struct ckpt_text){name.s + front, name.n - front - back};
}

/* *n gets how many models there are. */
static int read_configs(struct archive *x, size_t *n) {
    int rc = 0;
    *n = 0;
    for (size_t i = 0; i < x->zip->nentries; i++)
        *n += config_model(x, &x->zip->entry[i]).n > 0;
    for (size_t i = 0; rc == 0 && i < x->zip->nentries; i++) {
        const struct ckpt_text model = config_model(x, &x->zip->entry[i]);
        if (model.n)
            rc = read_config(x, &x->zip->entry[i], *n > 1 ? &model : NULL);
    }
    return rc;
}

/* --- older layouts ---------------------------------------------------------------------------- */

/* The entry is itself an archive of torch.save, which lies in the file as it is. */
static int read_inner(struct archive *x, const struct ckpt_zip_entry *e) {
    CKPT_AUTO(torch_reader)
    struct torch_reader r = {.c = x->r.c, .options = x->r.options, .file = x->r.file};
    struct ckpt_value *root;
    int rc =
        e->deflated
            ? ckpt_fail(x->err, -ENOTSUP,
                        "an archive inside the archive, and compressed: unpack it and use it alone")
            : torch_zip_object(&r, e->data, e->stored, &root, x->err);
    if (rc == 0)
        rc = torch_tree_read(&r, root, x->err);
    return rc ? ckpt_fail_in(x->err, "%.*s", CKPT_TEXT_ARGS(e->name)) : 0;
}

static int read_old(struct archive *x) {
    const struct ckpt_zip_entry *e = find(x, "", CKPT_TEXT(OLD_STATE));
    for (size_t i = 0; !e && i < x->zip->nentries; i++) {
        const struct ckpt_text name = ckpt_pt2_name(&x->zip->entry[i], x->root);
        if (ckpt_text_starts(name, WEIGHTS) && ckpt_text_ends(name, ".pt"))
            e = &x->zip->entry[i];
    }
    if (e)
        return read_inner(x, e);
    return ckpt_fail(
        x->err, -ENOTSUP,
        "a torch.export archive (.pt2) without weights that this version reads (" WEIGHTS "*" CONFIG
        ", " WEIGHTS "*.pt or " OLD_STATE "): export it again with torch "
        "2.9 or later");
}

/* ---------------------------------------------------------------------------------------------- */

/* The graph is evidence, not content: one that can't be used takes nothing from the tensors. */
static int read_graph(struct archive *x) {
    struct ckpt_err why = {0};
    const int rc = ckpt_graph_of_archive(x->zip, x->root, &x->r.c->graph, &why);
    if (rc == 0)
        return 0;
    if (rc == -ENOMEM || ckpt_checkpoint_warn(x->r.c, "its graph is not used: %s", why.text) != 0)
        return ckpt_fail_memory(x->err, "reading the graph");
    return 0;
}

/* --- what belongs to the code ----------------------------------------------------------------- */

/* The recorded arguments, ((args...), {kwargs}), which lie in an archive inside the archive. */
static int read_samples(struct archive *x) {
    for (size_t i = 0; i < x->zip->nentries; i++) {
        const struct ckpt_zip_entry *e = &x->zip->entry[i];
        const struct ckpt_text name = ckpt_pt2_name(e, x->root);
        if (!ckpt_text_starts(name, SAMPLES) || !ckpt_text_ends(name, ".pt") || e->deflated)
            continue;
        CKPT_AUTO(torch_reader)
        struct torch_reader r = {.c = x->r.c, .options = x->r.options, .file = x->r.file};
        struct ckpt_text *segment = ckpt_arena_array(&r.c->arena, 1, sizeof *segment);
        struct ckpt_value *root;
        if (!segment)
            return ckpt_fail_memory(x->err, "listing recorded arguments");
        *segment = CKPT_TEXT("sample_inputs");
        const struct ckpt_path path = {.segment = segment, .n = 1};
        const int rc = torch_zip_object(&r, e->data, e->stored, &root, x->err);
        return rc ? rc : torch_tree_add(&r, path, root, x->err);
    }
    return 0;
}

/* Wanted only by who runs the graph: what can't be read takes nothing from the tensors. */
static int read_code(const struct archive *x) {
    struct ckpt_err why = {0};
    struct ckpt_checkpoint *const code = calloc(1, sizeof *code);
    size_t models;
    if (!code)
        return ckpt_fail_memory(x->err, "reading the graph's constants");
    code->format = x->r.c->format;
    code->name = x->r.c->name;
    code->decoded = x->r.c->decoded;
    x->r.c->code = code;
    struct archive of_code = {.r = {.c = code, .options = x->r.options, .file = x->r.file},
                              .zip = x->zip,
                              .root = x->root,
                              .folder = CONSTANTS,
                              .config = CONSTANTS_CONFIG,
                              .err = &why};
    int rc = read_configs(&of_code, &models);
    torch_reader_fini(&of_code.r);
    if (rc == 0)
        rc = read_samples(&of_code);
    if (rc && ckpt_checkpoint_warn(x->r.c,
                                   "the graph's constants and recorded arguments cannot be "
                                   "read: %s",
                                   why.text) != 0)
        return ckpt_fail_memory(x->err, "reading the graph's constants");
    return rc == -ENOMEM ? rc : 0;
}

int ckpt_pt2_read(struct ckpt_checkpoint *c, const struct ckpt_open_options *options,
                  const struct ckpt_zip *zip, struct ckpt_text root, struct ckpt_err *err) {
    struct archive x = {.r = {.c = c, .options = options, .file = c->files[0]},
                        .zip = zip,
                        .root = root,
                        .folder = WEIGHTS,
                        .config = CONFIG,
                        .err = err};
    size_t models;
    const struct ckpt_zip_entry *order = find(&x, "", CKPT_TEXT("byteorder"));
    c->format = "pt2";
    int rc = order ? torch_zip_byte_order(zip, order, &c->arena, &x.r.big_endian, err) : 0;
    if (rc == 0)
        rc = read_configs(&x, &models);
    if (rc == 0 && models == 0)
        rc = read_old(&x);
    if (rc == 0)
        rc = read_graph(&x);
    if (rc == 0 && c->graph)
        rc = read_code(&x);
    torch_reader_fini(&x.r);
    return rc;
}
