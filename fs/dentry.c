#include "fs/dentry.h"

#include <string.h>

#include "base/log.h"
#include "fs/files.h"

static struct ckpt_dentry in(const struct ckpt_tree *tree, uint32_t id) {
    return (struct ckpt_dentry){id == CKPT_TREE_NONE ? NULL : tree, id};
}

static bool is_source_folder(const struct ckpt_session *s, struct ckpt_dentry e) {
    return e.tree == &s->tree && e.id == s->below_source.folder;
}

/* Where a folder's children are. */
static int inside(struct ckpt_session *s, struct ckpt_dentry folder, struct ckpt_dentry *out,
                  struct ckpt_err *err) {
    *out = folder;
    if (!is_source_folder(s, folder))
        return 0;
    const int rc = ckpt_files_open_source(s, err);
    *out = in(rc < 0 ? NULL : &s->below_source.tree, CKPT_TREE_ROOT);
    return rc;
}

struct ckpt_dentry ckpt_dentry_of_inode(struct ckpt_session *s, uint64_t ino) {
    const struct ckpt_tree *tree = &s->tree;
    uint64_t index = (ino - 1) / 2;
    if (ino == 0)
        return in(NULL, CKPT_TREE_NONE);
    if (index >= tree->n) {
        index -= tree->n;
        tree = ckpt_files_source_is_open(s) ? &s->below_source.tree : NULL;
    }
    if (!tree || index >= tree->n)
        return in(NULL, CKPT_TREE_NONE);
    return in(tree, (uint32_t)index | (ino % 2 ? 0 : CKPT_TREE_NPY));
}

/* The root of the tree below .source has .source's number, none of its own. */
static bool is_given_out(const struct ckpt_session *s, struct ckpt_dentry e) {
    if (e.tree != &s->tree && e.id == CKPT_TREE_ROOT)
        return false;
    return !(e.id & CKPT_TREE_NPY) || ckpt_tree_has_npy(ckpt_tree_node(e.tree, e.id));
}

struct ckpt_dentry ckpt_dentry_of_handle(struct ckpt_session *s, uint64_t ino) {
    struct ckpt_err err = {0};
    if (ino > 2 * (uint64_t)s->tree.n && ckpt_files_open_source(s, &err) < 0)
        ckpt_log_once(err.text, "%s", err.text);
    const struct ckpt_dentry e = ckpt_dentry_of_inode(s, ino);
    return e.tree && is_given_out(s, e) ? e : in(NULL, CKPT_TREE_NONE);
}

uint64_t ckpt_dentry_inode(const struct ckpt_session *s, struct ckpt_dentry e) {
    uint64_t index = e.id & ~CKPT_TREE_NPY;
    if (e.tree != &s->tree)
        index = e.id == CKPT_TREE_ROOT ? s->below_source.folder : index + s->tree.n;
    return 1 + 2 * index + (e.id & CKPT_TREE_NPY ? 1 : 0);
}

int ckpt_dentry_lookup(struct ckpt_session *s, struct ckpt_dentry folder, struct ckpt_text name,
                       struct ckpt_dentry *out, struct ckpt_err *err) {
    *out = in(NULL, CKPT_TREE_NONE);
    if (!ckpt_dentry_is_folder(folder))
        return 0;
    struct ckpt_dentry at;
    const int rc = inside(s, folder, &at, err);
    if (rc == 0)
        *out = in(at.tree, ckpt_tree_lookup(at.tree, at.id, name));
    return rc;
}

int ckpt_dentry_find(struct ckpt_session *s, const char *path, struct ckpt_dentry *out,
                     struct ckpt_err *err) {
    *out = in(&s->tree, CKPT_TREE_ROOT);
    int rc = 0;
    while (rc == 0 && *path && out->tree) {
        const size_t n = strcspn(path, "/");
        if (n > 0)
            rc = ckpt_dentry_lookup(s, *out, (struct ckpt_text){path, n}, out, err);
        path += n + (path[n] == '/');
    }
    return rc;
}

int ckpt_dentry_file(struct ckpt_session *s, struct ckpt_dentry e, struct ckpt_vfile **out,
                     struct ckpt_err *err) {
    *out = ckpt_tree_node(e.tree, e.id)->file;
    if (e.id & CKPT_TREE_NPY)
        return ckpt_files_npy(s, *out, out, err);
    return *out && (*out)->kind == CKPT_VFILE_LATER ? ckpt_later_file((*out)->later, out, err) : 0;
}

bool ckpt_dentry_is_folder(struct ckpt_dentry e) {
    return e.tree && !ckpt_tree_node(e.tree, e.id)->file;
}

uint32_t ckpt_dentry_folders(struct ckpt_session *s, struct ckpt_dentry folder) {
    struct ckpt_err err = {0};
    struct ckpt_dentry at;
    if (inside(s, folder, &at, &err) == 0)
        return at.tree->node[at.id].nfolders;
    ckpt_log_once(err.text, "%s", err.text);
    return 0;
}

struct ckpt_dentry ckpt_dentry_parent(const struct ckpt_session *s, struct ckpt_dentry folder) {
    const struct ckpt_dentry above = in(folder.tree, folder.tree->node[folder.id].parent);
    const bool leaves = folder.tree != &s->tree && above.id == CKPT_TREE_ROOT;
    return leaves ? in(&s->tree, s->below_source.folder) : above;
}

struct ckpt_dentry ckpt_dentry_first(struct ckpt_session *s, struct ckpt_dentry folder) {
    struct ckpt_err err = {0};
    struct ckpt_dentry at;
    if (inside(s, folder, &at, &err) == 0)
        return in(at.tree, ckpt_tree_first(at.tree, at.id));
    ckpt_log_once(err.text, "%s", err.text);
    return in(NULL, CKPT_TREE_NONE);
}

struct ckpt_dentry ckpt_dentry_next(struct ckpt_dentry e) {
    return in(e.tree, ckpt_tree_next(e.tree, e.id));
}
