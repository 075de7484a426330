/*
 * The tensors' own files: `fc1/weight`, and `fc1/weight.npy` beside it.
 *
 * A key may also be a prefix of another ("a" and "a.b"): `a` then is a folder, and the tensor's
 * file is `a.tensor`. So all folders are made first, unlisted; then files and folders are listed in
 * the checkpoint's order.
 */
#include "fs/files.h"

#include <errno.h>

#include "base/cleanup.h"
#include "fs/name.h"

int ckpt_files_folders(struct ckpt_session *s, struct ckpt_path path, uint32_t top, bool list,
                       uint32_t *folder, struct ckpt_err *err) {
    CKPT_AUTO(str) struct ckpt_str name = {0};
    *folder = top;
    for (uint32_t i = 0; i + 1 < path.n; i++) {
        ckpt_str_cut(&name, 0);
        ckpt_name_encode(&name, path.segment[i]);
        if (name.failed)
            return ckpt_fail_memory(err, "building the tree");
        const int rc =
            ckpt_tree_add_folder(&s->tree, *folder, ckpt_str_text(&name), false, folder, err);
        if (rc < 0)
            return rc;
        if (list)
            ckpt_tree_list(&s->tree, *folder);
    }
    return 0;
}

static int make_folders(struct ckpt_session *s, const struct ckpt_model *m, uint32_t top,
                        struct ckpt_err *err) {
    uint32_t folder;
    for (size_t i = 0; i < m->ntensors; i++) {
        const int rc = ckpt_files_folders(s, m->tensor[i].path, top, false, &folder, err);
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; top == CKPT_TREE_ROOT && i < s->checkpoint->nvalues; i++) {
        struct ckpt_path path;
        int rc = ckpt_files_value_path(s, s->checkpoint->values[i].path, &path, err);
        if (rc == 0)
            rc = ckpt_files_folders(s, path, top, false, &folder, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The last segment's name; with an ending if a folder has it. */
static int file_name(struct ckpt_session *s, uint32_t folder, struct ckpt_path path,
                     struct ckpt_str *name, struct ckpt_err *err) {
    ckpt_name_encode(name, path.n ? path.segment[path.n - 1] : CKPT_TEXT("tensor"));
    const uint32_t there = ckpt_tree_lookup(&s->tree, folder, ckpt_str_text(name));
    if (there != CKPT_TREE_NONE && !s->tree.node[there].file)
        ckpt_str_puts(name, ".tensor");
    return name->failed ? ckpt_fail_memory(err, "building the tree") : 0;
}

static int add_tensor(struct ckpt_session *s, const struct ckpt_adapted *t, uint32_t top,
                      uint32_t *node, struct ckpt_err *err) {
    uint32_t folder;
    int rc = ckpt_files_folders(s, t->path, top, true, &folder, err);
    if (rc < 0)
        return rc;
    CKPT_AUTO(str) struct ckpt_str name = {0};
    if ((rc = file_name(s, folder, t->path, &name, err)) < 0)
        return rc;
    struct ckpt_vfile *file = ckpt_vfile_new(&s->arena, 1);
    if (!file)
        return ckpt_fail_memory(err, "building the tree");
    file->tensor = t;
    ckpt_vfile_add_tensor(file, t);
    rc = ckpt_session_add_file(s, folder, ckpt_str_text(&name), file, false, node, err);
    if (rc == -EEXIST) {
        const struct ckpt_adapted *other = s->tree.node[*node].file->tensor;
        return ckpt_fail(err, -EINVAL,
                         "two tensors would get the file of %.*s%s%.*s: rename one "
                         "with -o map=",
                         CKPT_TEXT_ARGS(t->key), other ? ": the other is " : "",
                         CKPT_TEXT_ARGS(other ? other->key : CKPT_TEXT("")));
    }
    return rc < 0 ? rc : ckpt_files_add_npy(s, t, *node, err);
}

int ckpt_files_lay_out(struct ckpt_session *s, const struct ckpt_model *m, uint32_t top,
                       uint32_t *nodes, struct ckpt_err *err) {
    int rc = make_folders(s, m, top, err);
    for (size_t i = 0; rc == 0 && i < m->ntensors; i++)
        rc = add_tensor(s, &m->tensor[i], top, &nodes[i], err);
    return rc;
}

int ckpt_files_add_tensors(struct ckpt_session *s, struct ckpt_err *err) {
    s->tensor_node = ckpt_arena_array(&s->arena, s->model->ntensors, sizeof *s->tensor_node);
    if (!s->tensor_node)
        return ckpt_fail_memory(err, "building the tree");
    return ckpt_files_lay_out(s, s->model, CKPT_TREE_ROOT, s->tensor_node, err);
}

int ckpt_files_add_source(struct ckpt_session *s, struct ckpt_err *err) {
    const struct ckpt_model *m = s->source_tree;
    uint32_t top;
    CKPT_AUTO(free) uint32_t *nodes = calloc(m->ntensors + 1, sizeof *nodes);
    if (!nodes)
        return ckpt_fail_memory(err, "building the tree");
    const int rc =
        ckpt_tree_add_folder(&s->tree, CKPT_TREE_ROOT, CKPT_TEXT(".source"), true, &top, err);
    if (rc < 0)
        return rc;
    ckpt_tree_list(&s->tree, top);
    return ckpt_files_lay_out(s, m, top, nodes, err);
}
