#ifndef CKPT_FS_FILES_H
#define CKPT_FS_FILES_H
/* What the tree is made of: one function a kind of file, one row of session.c's table each. */
#include "fs/session.h"

int ckpt_files_add_tensors(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_model(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_verify(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_values(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_config(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_source(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_plain(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_index(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_add_summary(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;

/* NAME.npy beside a tensor's file, which numpy can hold: made at the first call. Any thread
 * (file_npy.c). */
int ckpt_files_npy(struct ckpt_session *s, struct ckpt_vfile *tensor, struct ckpt_vfile **out,
                   struct ckpt_err *err) CKPT_CHECKED;
void ckpt_files_close_npy(struct ckpt_session *s);
/* Lays out what .source/ holds, unless it is there. Any thread (file_source.c). */
int ckpt_files_open_source(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;
bool ckpt_files_source_is_open(struct ckpt_session *s);
void ckpt_files_close_source(struct ckpt_session *s);

/* Append index.json and summary.txt; `session` is a struct ckpt_session. */
int ckpt_files_write_index(const void *session, struct ckpt_str *out,
                           struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_write_summary(const void *session, struct ckpt_str *out,
                             struct ckpt_err *err) CKPT_CHECKED;

/* The tensors' folders, unlisted, and their files; nodes[i], unless nodes is NULL, becomes the file
 * of tensor i (file_tensor.c). */
int ckpt_files_make_folders(struct ckpt_tree *t, const struct ckpt_model *m,
                            struct ckpt_err *err) CKPT_CHECKED;
int ckpt_files_make_tensors(struct ckpt_tree *t, const struct ckpt_model *m, uint32_t *nodes,
                            struct ckpt_err *err) CKPT_CHECKED;
/* The folders of path's segments but the last, made if missing; *folder is the innermost. list:
 * they now show in listings. */
int ckpt_files_folders(struct ckpt_tree *t, struct ckpt_path path, bool list, uint32_t *folder,
                       struct ckpt_err *err) CKPT_CHECKED;
/* Where a value's file goes, in raw segments: a dotted key becomes folders, as a tensor's does. */
int ckpt_files_value_path(struct ckpt_arena *a, struct ckpt_path source, struct ckpt_path *out,
                          struct ckpt_err *err) CKPT_CHECKED;
/* The folders of all values, unlisted. */
int ckpt_files_make_value_folders(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;

#endif
