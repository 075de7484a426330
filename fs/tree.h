#ifndef CKPT_FS_TREE_H
#define CKPT_FS_TREE_H
/*
 * The virtual tree: folders and files below the mount point. Built once, then immutable; any thread
 * may read.
 *
 *     node[]   0 "/" -----.first--> 1 "fc1" --.next--> 5 "fc2" --.next--> 9 "model.safetensors"
 *                                   | .first
 *                                   v
 *                                   2 "weight" --.next--> 4 "bias"
 *                                   3 "weight.npy" (hidden: in the map, in no list)
 *
 *     map      (parent, name) -> index of the node
 *
 * A node's index is its inode number less one: stable for the same source and options. Children are
 * listed in the order in which they were added.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/strmap.h"
#include "base/text.h"
#include "fs/vfile.h"

#define CKPT_TREE_ROOT 0u
#define CKPT_TREE_NONE UINT32_MAX

struct ckpt_node {
    struct ckpt_text name;
    uint32_t parent;
    uint32_t first, last, next; /* children and the next sibling listed; NONE */
    uint32_t nfolders;          /* folders in it, listed or not */
    struct ckpt_vfile *file;    /* NULL: a folder */
    bool hidden;                /* found by name only */
    bool listed;                /* is in its parent's list */
};

struct ckpt_tree {
    struct ckpt_node *node;
    uint32_t n, cap;
    uint32_t nfolders; /* below the root; CKPT_LIMIT_FOLDERS */
    struct ckpt_strmap map;
    struct ckpt_arena arena;
    bool list_all; /* hidden nodes are listed too */
};

int ckpt_tree_init(struct ckpt_tree *t, bool list_all, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_tree_fini(struct ckpt_tree *t);

/* The folder `name` in parent, made if it is not there: listed now, or unlisted until
 * ckpt_tree_list. -ENOTDIR if a file has the name. */
int ckpt_tree_add_folder(struct ckpt_tree *t, uint32_t parent, struct ckpt_text name, bool hidden,
                         uint32_t *out, struct ckpt_err *err) CKPT_CHECKED;
/* Puts a node into its parent's list, unless it is hidden or there already. */
void ckpt_tree_list(struct ckpt_tree *t, uint32_t node);
/* A new file, listed unless hidden. -EEXIST if the name is taken; *out then is who has it. */
int ckpt_tree_add_file(struct ckpt_tree *t, uint32_t parent, struct ckpt_text name,
                       struct ckpt_vfile *file, bool hidden, uint32_t *out,
                       struct ckpt_err *err) CKPT_CHECKED;

/* NONE if there is no such name. */
uint32_t ckpt_tree_lookup(const struct ckpt_tree *t, uint32_t parent, struct ckpt_text name);
/* The node of a path below the root ("fc1/weight"; "" and "/" are the root), or NONE. */
uint32_t ckpt_tree_find(const struct ckpt_tree *t, const char *path);
/* Appends the path of a node below the root, "" for the root. */
void ckpt_tree_path(const struct ckpt_tree *t, uint32_t node, struct ckpt_str *out);

#endif
