#ifndef CKPT_FS_SESSION_H
#define CKPT_FS_SESSION_H
/*
 * A session: SOURCE -> checkpoint -> model -> tree of virtual files. The one place that wires the
 * parts together; the mount, --inspect, --verify, --export and --cat all start from it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "adapters/model.h"
#include "adapters/reader.h"
#include "base/strmap.h"
#include "formats/checkpoint.h"
#include "fs/computed.h"
#include "fs/lanes.h"
#include "fs/options.h"
#include "fs/tree.h"
#include "verify/verify.h"

/* What .source/ shows, once somebody has looked: file_source.c. */
struct ckpt_source_files {
    uint32_t folder; /* its node in the session's tree */
    pthread_mutex_t mu;
    atomic_bool is_open;
    struct ckpt_model *model; /* unadapted; this and the tree are immutable once it is open */
    struct ckpt_tree tree;
};

/* NAME.npy, each made when somebody first asks for it: file_npy.c. All but mu guarded by it. */
struct ckpt_npy_files {
    pthread_mutex_t mu;
    struct ckpt_strmap headers; /* (dtype, shape) -> header */
    struct ckpt_arena arena;
};

struct ckpt_session {
    const struct ckpt_options *options;
    const char *source; /* absolute path */
    struct ckpt_checkpoint *checkpoint;
    struct ckpt_graph *graph;   /* beside the source; NULL: none, or the checkpoint's own */
    struct ckpt_model *model;   /* adapted */
    struct ckpt_reader *reader; /* NULL until ckpt_session_start */
    struct ckpt_lanes *lanes;   /* while threads serve; NULL: whoever reads computes */
    struct timespec mtime;      /* the newest of the source's files */
    uint32_t generation;        /* of all inodes but the root: fs/generation.h */
    struct ckpt_tree tree;
    struct ckpt_source_files below_source;
    struct ckpt_npy_files npy;
    struct ckpt_made *made;          /* list of all texts that are made for their readers */
    struct ckpt_plain *plain;        /* list of all plain files */
    uint32_t *tensor_node;           /* of each tensor of the model: its file in the tree */
    uint32_t *value_node;            /* of each value of the checkpoint */
    uint64_t *model_offset;          /* of each tensor: its byte in model.safetensors; NO_OFFSET */
    struct ckpt_vfile *model_file;   /* model.safetensors */
    struct ckpt_later *burnpack;     /* model.bpk */
    struct ckpt_made *burnpack_head; /* its header; one of `made` */
    struct ckpt_computed *report;
    struct ckpt_verify_options verify;
    atomic_int verify_status; /* enum ckpt_status */
    struct ckpt_text *notes;  /* what the tree had to leave out, for summary.txt */
    size_t nnotes, notes_cap;
    struct ckpt_arena arena;
};

#define CKPT_NO_OFFSET UINT64_MAX

/* Opens, adapts and lays out the tree, without a thread. The options must outlive the session. */
int ckpt_session_open(const char *source, const struct ckpt_options *options,
                      struct ckpt_session **out, struct ckpt_err *err) CKPT_CHECKED;
/* Only the checkpoint and its graph: neither a model nor a tree. */
int ckpt_session_open_source(const char *source, const struct ckpt_options *options,
                             struct ckpt_session **out, struct ckpt_err *err) CKPT_CHECKED;
/* Starts the reader and its worker: after the fork of a daemon. */
int ckpt_session_start(struct ckpt_session *s, bool prefetch, struct ckpt_err *err) CKPT_CHECKED;
/* From here on n lanes compute, until they are ended, when nobody reads any more. */
int ckpt_session_start_lanes(struct ckpt_session *s, unsigned n, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_session_end_lanes(struct ckpt_session *s);
void ckpt_session_close(struct ckpt_session *s); /* NULL is fine */

static inline void ckpt_auto_session(struct ckpt_session **s) {
    ckpt_session_close(*s);
}

/* Runs the checker (the text of verify.json without its padding). */
int ckpt_session_verify(struct ckpt_session *s, const atomic_bool *cancel, struct ckpt_str *report,
                        enum ckpt_status *status, struct ckpt_err *err) CKPT_CHECKED;

/* session_graph.c: fills graph. */
int ckpt_session_open_graph(struct ckpt_session *s, struct ckpt_err *err) CKPT_CHECKED;

/* For the files that make up the tree: */

/* Whether a name in the root is one of ours. */
bool ckpt_session_name_is_ours(struct ckpt_text name);
/* ckpt_tree_add_file for the session's tree. */
int ckpt_session_add_file(struct ckpt_session *s, uint32_t parent, struct ckpt_text name,
                          struct ckpt_vfile *file, bool hidden, uint32_t *node,
                          struct ckpt_err *err) CKPT_CHECKED;
/* Adds a file of n literal bytes, which the session must own. */
int ckpt_session_add_text(struct ckpt_session *s, uint32_t parent, struct ckpt_text name,
                          struct ckpt_text text, uint32_t *node, struct ckpt_err *err) CKPT_CHECKED;
/* Adds a file of a text that is written when it is read; arg must live as long as the session. */
int ckpt_session_add_made(struct ckpt_session *s, uint32_t parent, struct ckpt_text name,
                          ckpt_made_write *write, const void *arg, uint32_t *node,
                          struct ckpt_err *err) CKPT_CHECKED;
/* Says in summary.txt that something was left out. */
int ckpt_session_note(struct ckpt_session *s, struct ckpt_err *err, const char *fmt, ...)
    CKPT_PRINTF(3, 4) CKPT_CHECKED;

#endif
