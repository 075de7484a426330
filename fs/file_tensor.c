/*
 * The tensors' own files: `fc1/weight`.
 *
 * A key may also be a prefix of another ("a" and "a.b"): `a` then is a folder, and the tensor's
 * file is `a.tensor`. So all folders are made first, unlisted; then files and folders are listed in
 * the checkpoint's order.
 */
#include "fs/files.h"

#include <errno.h>

#include "base/cleanup.h"
#include "fs/name.h"

int ckpt_files_folders(struct ckpt_tree *t, struct ckpt_path path, bool list, uint32_t *folder,
                       struct ckpt_err *err) {
    CKPT_AUTO(str) struct ckpt_str name = {0};
    *folder = CKPT_TREE_ROOT;
    for (uint32_t i = 0; i + 1 < path.n; i++) {
        ckpt_str_cut(&name, 0);
        ckpt_name_encode(&name, path.segment[i]);
        if (name.failed)
            return ckpt_fail_memory(err, "building the tree");
        const int rc = ckpt_tree_add_folder(t, *folder, ckpt_str_text(&name), false, folder, err);
        if (rc < 0)
            return rc;
        if (list)
            ckpt_tree_list(t, *folder);
    }
    return 0;
}

int ckpt_files_make_folders(struct ckpt_tree *t, const struct ckpt_model *m, struct ckpt_err *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->ntensors; i++) {
        uint32_t folder;
        rc = ckpt_files_folders(t, m->tensor[i].path, false, &folder, err);
    }
    return rc;
}

/* The last segment's name; with an ending if a folder has it. */
static int file_name(const struct ckpt_tree *t, uint32_t folder, struct ckpt_path path,
                     struct ckpt_str *name, struct ckpt_err *err) {
    ckpt_name_encode(name, path.n ? path.segment[path.n - 1] : CKPT_TEXT("tensor"));
    const uint32_t there = ckpt_tree_lookup(t, folder, ckpt_str_text(name));
    if (there != CKPT_TREE_NONE && !ckpt_tree_node(t, there)->file)
        ckpt_str_puts(name, ".tensor");
    return name->failed ? ckpt_fail_memory(err, "building the tree") : 0;
}

static int add_tensor(struct ckpt_tree *t, const struct ckpt_adapted *tensor, uint32_t *node,
                      struct ckpt_err *err) {
    uint32_t folder;
    int rc = ckpt_files_folders(t, tensor->path, true, &folder, err);
    if (rc < 0)
        return rc;
    CKPT_AUTO(str) struct ckpt_str name = {0};
    if ((rc = file_name(t, folder, tensor->path, &name, err)) < 0)
        return rc;
    struct ckpt_vfile *file = ckpt_vfile_new(&t->arena, 1);
    if (!file)
        return ckpt_fail_memory(err, "building the tree");
    file->tensor = tensor;
    ckpt_vfile_add_tensor(file, tensor);
    rc = ckpt_tree_add_file(t, folder, ckpt_str_text(&name), file, false, node, err);
    if (rc != -EEXIST)
        return rc;
    const struct ckpt_adapted *other = ckpt_tree_node(t, *node)->file->tensor;
    return ckpt_fail(err, -EINVAL,
                     "two tensors would get the file of %.*s%s%.*s: rename one with -o map=",
                     CKPT_TEXT_ARGS(tensor->key), other ? ": the other is " : "",
                     CKPT_TEXT_ARGS(other ? other->key : CKPT_TEXT("")));
}

int ckpt_files_make_tensors(struct ckpt_tree *t, const struct ckpt_model *m, uint32_t *nodes,
                            struct ckpt_err *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->ntensors; i++) {
        uint32_t node;
        rc = add_tensor(t, &m->tensor[i], &node, err);
        if (nodes)
            nodes[i] = node;
    }
    return rc;
}

int ckpt_files_add_tensors(struct ckpt_session *s, struct ckpt_err *err) {
    s->tensor_node = ckpt_arena_array(&s->arena, s->model->ntensors, sizeof *s->tensor_node);
    if (!s->tensor_node)
        return ckpt_fail_memory(err, "building the tree");
    int rc = ckpt_files_make_folders(&s->tree, s->model, err);
    if (rc == 0)
        rc = ckpt_files_make_value_folders(s, err);
    return rc < 0 ? rc : ckpt_files_make_tensors(&s->tree, s->model, s->tensor_node, err);
}
