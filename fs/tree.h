#ifndef CKPT_FS_TREE_H
#define CKPT_FS_TREE_H
/*
 * The virtual tree: folders and files below the mount point. Built once, then immutable; any thread
 * may read.
 *
 *     node[]   0 "/" -----.first--> 1 "fc1" --.next--> 4 "fc2" --.next--> 7 "model.safetensors"
 *                                   | .first
 *                                   v
 *                                   2 "weight" --.next--> 3 "bias"
 *
 *     slot[]   (parent, name) -> index of the node
 *
 * Beside each tensor's file "weight" stands "weight.npy", if numpy has the dtype. Nearly nobody
 * asks for it, so it has no node: its id is that of the tensor's file with CKPT_TREE_NPY added. All
 * other ids are indices of nodes. Ids are stable for the same source and options. Children are
 * listed in the order in which they were added.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/text.h"
#include "fs/vfile.h"

#define CKPT_TREE_ROOT 0u
#define CKPT_TREE_NONE UINT32_MAX
#define CKPT_TREE_NPY 0x80000000u

struct ckpt_node {
    struct ckpt_text name;
    uint32_t parent;
    uint32_t first, last, next; /* children and the next sibling listed; NONE */
    uint32_t nfolders;          /* folders in it, listed or not */
    bool hidden;                /* found by name only */
    bool listed;                /* is in its parent's list */
    struct ckpt_vfile *file;    /* NULL: a folder */
};

struct ckpt_tree_slot {
    uint32_t hash;
    uint32_t node; /* 0: free, since the root has no name */
};

struct ckpt_tree {
    struct ckpt_node *node;
    uint32_t n, cap;
    uint32_t nfolders; /* below the root; CKPT_LIMIT_FOLDERS */
    struct ckpt_tree_slot *slot;
    uint32_t nslots;         /* a power of two */
    struct ckpt_arena arena; /* names, and what the files are made of */
    bool list_all;           /* hidden nodes are listed too, and NAME.npy */
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

/* Of any id: the node, its own or the one that it stands beside. */
static inline const struct ckpt_node *ckpt_tree_node(const struct ckpt_tree *t, uint32_t id) {
    return &t->node[id & ~CKPT_TREE_NPY];
}

/* Whether NAME.npy stands beside it. */
bool ckpt_tree_has_npy(const struct ckpt_node *node);
/* The ids listed in a folder, one after the other; NONE at the end. */
uint32_t ckpt_tree_first(const struct ckpt_tree *t, uint32_t folder);
uint32_t ckpt_tree_next(const struct ckpt_tree *t, uint32_t id);
/* NONE if there is no such name. */
uint32_t ckpt_tree_lookup(const struct ckpt_tree *t, uint32_t parent, struct ckpt_text name);
/* The id of a path below the root ("fc1/weight"; "" and "/" are the root), or NONE. */
uint32_t ckpt_tree_find(const struct ckpt_tree *t, const char *path);
/* Appends a name, or the path below the root, "" for the root. */
void ckpt_tree_name(const struct ckpt_tree *t, uint32_t id, struct ckpt_str *out);
void ckpt_tree_path(const struct ckpt_tree *t, uint32_t id, struct ckpt_str *out);

#endif
