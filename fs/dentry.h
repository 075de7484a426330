#ifndef CKPT_FS_DENTRY_H
#define CKPT_FS_DENTRY_H
/*
 * A directory entry of the mount, whichever tree it is in: of the session's tree, or of the one
 * below
 * `.source`, which is laid out when somebody first looks at it (file_source.c).
 *
 *     dentry = tree + id                                id: an index, or that with CKPT_TREE_NPY
 *     inode  = 1 + 2 * index (+ 1 for NAME.npy)         in the session's tree, which has n nodes
 *              1 + 2 * (n + index) (+ 1 for NAME.npy)   below .source
 *
 * The root of the tree below .source and the folder .source are one entry: the latter, with the
 * former's children. Any thread may ask.
 */
#include "fs/session.h"

struct ckpt_dentry {
    const struct ckpt_tree *tree; /* NULL: there is no such entry */
    uint32_t id;
};

/* An inode number that was never given out has no entry. */
struct ckpt_dentry ckpt_dentry_of_inode(struct ckpt_session *s, uint64_t ino);
/* The same for a number from a file handle, which somebody kept when the mount was another process:
 * lays out .source if it may be there. */
struct ckpt_dentry ckpt_dentry_of_handle(struct ckpt_session *s, uint64_t ino);
uint64_t ckpt_dentry_inode(const struct ckpt_session *s, struct ckpt_dentry e);
/* 0 with *out, whose tree is NULL if the folder has no such name; negative if .source cannot be
 * laid out. */
int ckpt_dentry_lookup(struct ckpt_session *s, struct ckpt_dentry folder, struct ckpt_text name,
                       struct ckpt_dentry *out, struct ckpt_err *err) CKPT_CHECKED;
/* The same for a path below the root. */
int ckpt_dentry_find(struct ckpt_session *s, const char *path, struct ckpt_dentry *out,
                     struct ckpt_err *err) CKPT_CHECKED;
/* The file of an entry; *out is NULL for a folder. */
int ckpt_dentry_file(struct ckpt_session *s, struct ckpt_dentry e, struct ckpt_vfile **out,
                     struct ckpt_err *err) CKPT_CHECKED;
bool ckpt_dentry_is_folder(struct ckpt_dentry e);
/* Of a folder: */
uint32_t ckpt_dentry_folders(struct ckpt_session *s, struct ckpt_dentry folder);
struct ckpt_dentry ckpt_dentry_parent(const struct ckpt_session *s, struct ckpt_dentry folder);
struct ckpt_dentry ckpt_dentry_first(struct ckpt_session *s, struct ckpt_dentry folder);
/* Of what a folder lists, the one behind e. */
struct ckpt_dentry ckpt_dentry_next(struct ckpt_dentry e);

#endif
