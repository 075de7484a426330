#include "formats/graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/checkpoint.h"
#include "formats/file.h"
#include "formats/limits.h"
#include "formats/pt2.h"

void ckpt_graph_free(struct ckpt_graph *g) {
    if (!g)
        return;
    free(g->value);
    free(g->node);
    free(g->input);
    free(g->output);
    free(g->stack);
    ckpt_arena_fini(&g->arena);
    free(g);
}

const struct ckpt_graph_arg *ckpt_graph_arg(const struct ckpt_graph_node *node, const char *name) {
    for (uint32_t i = 0; i < node->nargs; i++)
        if (ckpt_text_is(node->arg[i].name, name))
            return &node->arg[i];
    return NULL;
}

uint32_t ckpt_graph_arg_value(const struct ckpt_graph_arg *arg) {
    const bool is_value =
        arg && !arg->is_list && arg->n == 1 && arg->item[0].kind == CKPT_GRAPH_ITEM_VALUE;
    return is_value ? arg->item[0].value : CKPT_GRAPH_NONE;
}

/* models/model.json, or the first of the folder. */
static const struct ckpt_zip_entry *find_model(const struct ckpt_zip *zip, struct ckpt_text root) {
    const struct ckpt_zip_entry *found = NULL;
    for (size_t i = 0; i < zip->nentries; i++) {
        const struct ckpt_zip_entry *e = &zip->entry[i];
        const struct ckpt_text name = ckpt_pt2_name(e, root);
        if (ckpt_text_is(name, "models/model.json"))
            return e;
        if (!found && ckpt_text_starts(name, "models/") && ckpt_text_ends(name, ".json"))
            found = e;
    }
    return found;
}

int ckpt_graph_of_archive(const struct ckpt_zip *zip, struct ckpt_text root,
                          struct ckpt_graph **out, struct ckpt_err *err) {
    const struct ckpt_zip_entry *e = find_model(zip, root);
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct ckpt_text json;
    *out = NULL;
    if (!e)
        return 0;
    int rc = ckpt_zip_read(zip, e, CKPT_LIMIT_GRAPH_BYTES, &arena, &json, err);
    if (rc == 0)
        rc = ckpt_graph_parse(json.s, json.n, out, err);
    return rc ? ckpt_fail_in(err, "%.*s", CKPT_TEXT_ARGS(e->name)) : 0;
}

/* A TorchScript archive is followed where it is read. */
static int open_script(const char *path, struct ckpt_graph **out, struct ckpt_err *err) {
    struct ckpt_checkpoint *c = NULL;
    int rc = ckpt_checkpoint_open_file(path, NULL, &c, err);
    if (rc)
        return rc;
    *out = CKPT_STEAL(c->graph);
    if (!*out && c->no_graph)
        rc = ckpt_fail(err, c->no_graph->code, "%s", c->no_graph->text);
    else if (!*out)
        rc = ckpt_fail(err, -EINVAL,
                       "a ZIP archive, but not one of torch.export.save or torch.jit.save");
    ckpt_checkpoint_close(c);
    return rc;
}

static int open_archive(const struct ckpt_file *f, struct ckpt_graph **out, struct ckpt_err *err) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    CKPT_AUTO(zip) struct ckpt_zip zip = {0};
    struct ckpt_text root;
    int rc = ckpt_zip_open(f, &arena, &zip, err);
    if (rc)
        return rc;
    if (!ckpt_pt2_root(&zip, &root))
        return open_script(f->path, out, err);
    rc = ckpt_graph_of_archive(&zip, root, out, err);
    if (rc == 0 && !*out)
        return ckpt_fail(err, -ENOTSUP,
                         "the archive has no models/*.json: export it again with torch 2.9 or "
                         "later");
    return rc;
}

static int open_json(const struct ckpt_file *f, struct ckpt_graph **out, struct ckpt_err *err) {
    if (f->size > CKPT_LIMIT_GRAPH_BYTES)
        return ckpt_fail(err, -E2BIG, "%llu bytes, the limit for a graph's JSON is %u",
                         (unsigned long long)f->size, CKPT_LIMIT_GRAPH_BYTES);
    CKPT_AUTO(free) char *json = malloc((size_t)f->size + 1);
    if (!json)
        return ckpt_fail_memory(err, "reading a graph");
    const int rc = ckpt_file_read(f, 0, json, (size_t)f->size, err);
    return rc ? rc : ckpt_graph_parse(json, (size_t)f->size, out, err);
}

int ckpt_graph_open(const char *path, struct ckpt_graph **out, struct ckpt_err *err) {
    struct ckpt_file *f = NULL;
    uint8_t magic[4];
    *out = NULL;
    int rc = ckpt_file_open(path, &f, err);
    if (rc)
        return rc;
    const bool is_zip = f->size >= sizeof magic &&
                        ckpt_file_read(f, 0, magic, sizeof magic, NULL) == 0 &&
                        memcmp(magic, "PK\3\4", sizeof magic) == 0;
    rc = (is_zip ? open_archive : open_json)(f, out, err);
    ckpt_file_close(f);
    return rc;
}
