#ifndef CKPT_FS_LATER_H
#define CKPT_FS_LATER_H
/*
 * A virtual file that is laid out when somebody first asks for it: model.bpk has a segment for each
 * tensor and for each gap between two, and is seldom wanted. In the tree a file of the kind LATER
 * stands for it.
 */
#include "base/arena.h"
#include "base/err.h"

struct ckpt_vfile;

/* Lays out the file in the arena. Called at most once with success, from any thread. */
typedef int ckpt_later_make(void *arg, struct ckpt_arena *a, struct ckpt_vfile **out,
                            struct ckpt_err *err);

struct ckpt_later;

int ckpt_later_new(ckpt_later_make *make, void *arg, struct ckpt_later **out,
                   struct ckpt_err *err) CKPT_CHECKED;
void ckpt_later_free(struct ckpt_later *l); /* NULL is fine */
/* The file. Any thread. */
int ckpt_later_file(struct ckpt_later *l, struct ckpt_vfile **out,
                    struct ckpt_err *err) CKPT_CHECKED;

#endif
