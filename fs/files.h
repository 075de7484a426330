#ifndef CKPT_FS_FILES_H
#define CKPT_FS_FILES_H
/* What the tree is made of: one function a kind of file, one row of session.c's table each. */
#include "fs/session.h"

int ckpt_files_add_tensors(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_model(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_verify(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_values(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_source(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_plain(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_index(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_summary(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;

/* NAME.npy beside a tensor's file, unless numpy lacks the dtype (file_npy.c). */
int ckpt_files_add_npy(struct ckpt_session *s, const struct ckpt_adapted *t, uint32_t tensor_node,
                       struct ckpt_err *err) CKPT_CHECKED;
/* Lays out the folders and files of all tensors of a model below `top`; nodes[i] becomes the file
 * of tensor i (file_tensor.c). */
int ckpt_files_lay_out(struct ckpt_session *s, const struct ckpt_model *m, uint32_t top,
                       uint32_t *nodes, struct ckpt_err *err) CKPT_CHECKED;
/* The folders of path's segments but the last, below top, made if missing; *folder is the
 * innermost. list: they now show in listings. */
int ckpt_files_folders(struct ckpt_session *s, struct ckpt_path path, uint32_t top, bool list,
                       uint32_t *folder, struct ckpt_err *err) CKPT_CHECKED;
/* Where a value's file goes, in raw segments: a dotted key becomes folders, as a tensor's does. */
int ckpt_files_value_path(struct ckpt_session *s, struct ckpt_path source, struct ckpt_path *out,
                          struct ckpt_err *err) CKPT_CHECKED;

#endif
