#ifndef CKPT_FORMATS_CHECKPOINT_H
#define CKPT_FORMATS_CHECKPOINT_H
/*
 * A checkpoint: what lies in the source, in its own order and names. Immutable once opened; every
 * thread may read it. Owns its files, blobs and everything its members point to.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "formats/file.h"
#include "formats/globals.h"
#include "formats/limits.h"
#include "formats/store_file.h"
#include "formats/tensor.h"
#include "formats/value.h"

/* A torch.nn module of a whole-module pickle, parents before children, in registration order. */
struct ckpt_module {
    struct ckpt_path container; /* where the root module lies in the file: ["model"], or empty */
    struct ckpt_text path;      /* dotted below that root: "layers.0.norm1"; "" for the root */
    struct ckpt_text cls;       /* "torch.nn.modules.linear.Linear" */
    struct ckpt_text name;      /* its name in its parent: "norm1" */
    int32_t parent;             /* -1: a root */
    const struct ckpt_value
        *attributes; /* dict of the plain ones: numbers, bools, strings, functions, tuples */
};

struct ckpt_named_value {
    struct ckpt_path path;
    const struct ckpt_value *value;
};

struct ckpt_note {
    struct ckpt_path path;
    struct ckpt_text text; /* unsupported: the reason; opaque: the class */
};

struct ckpt_pair {
    struct ckpt_text key, value;
};

struct ckpt_graph;
struct ckpt_decoded_cache;

struct ckpt_checkpoint {
    const char *format; /* "safetensors", "safetensors-sharded", "torch-zip", "torch-legacy"... */
    const char *name;   /* base name of the source */
    bool is_torch;      /* a torch pickle: indices are renumbered by default, as burn does */
    const char
        *directory; /* absolute; not NULL: the source is a directory, whose other files show */
    const char **weight_files; /* base names in `directory` that are not shown; NULL-terminated */

    struct ckpt_file **files;
    size_t nfiles;
    size_t nmapped; /* of these, by ckpt_checkpoint_map */
    struct ckpt_tensor *tensors;
    size_t ntensors;
    struct ckpt_blob **blobs;
    size_t nblobs;
    struct ckpt_module *modules; /* empty where the file does not know modules */
    size_t nmodules;
    struct ckpt_named_value *values; /* the largest tensor-free parts, in file order */
    size_t nvalues;
    struct ckpt_note *unsupported;
    size_t nunsupported;
    struct ckpt_note *opaque;
    size_t nopaque;
    struct ckpt_text *warnings;
    size_t nwarnings;
    struct ckpt_globals globals; /* what the pickles name */
    struct ckpt_pair *metadata;  /* safetensors' __metadata__ */
    size_t nmetadata;
    struct ckpt_graph *graph;        /* what the model computes (formats/graph.h), of a .pt2 or of
                                        TorchScript; or NULL */
    const struct ckpt_err *no_graph; /* why TorchScript has none; else NULL */
    /* Tensors that belong to the code and not to the state dict, or NULL: constants and buffers
     * that are not persistent, under their names; recorded arguments as "sample_inputs.0.1", the
     * second by position. Shares this one's files. */
    struct ckpt_checkpoint *code;

    struct ckpt_decoded_cache *decoded; /* what its blobs had to decode; shared by its parts */
    bool owns_decoded;

    struct ckpt_arena arena;
};

struct ckpt_open_options {
    bool keep_going; /* leave out bad tensors (listed under unsupported) instead of refusing */
    struct ckpt_decoded_cache
        *decoded; /* for a part of another checkpoint: the cache of that one */
};

/* Opens SOURCE by its content. A sentence in err does not name SOURCE itself. */
int ckpt_checkpoint_open(const char *source, const struct ckpt_open_options *options,
                         struct ckpt_checkpoint **out, struct ckpt_err *err) CKPT_CHECKED;
/* The same, but never a directory. */
int ckpt_checkpoint_open_file(const char *source, const struct ckpt_open_options *options,
                              struct ckpt_checkpoint **out, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_checkpoint_close(struct ckpt_checkpoint *c); /* NULL is fine */
/* A file of the checkpoint that is no longer what it was when it was opened, or NULL. */
const struct ckpt_file *ckpt_checkpoint_changed(const struct ckpt_checkpoint *c);

/* -E2BIG if what it holds would take more memory than the limit once it is adapted, for readers to
 * ask as they go; matrices are not counted apart. */
int ckpt_checkpoint_check_memory(const struct ckpt_checkpoint *c,
                                 struct ckpt_err *err) CKPT_CHECKED;
/* What a reader that has set CKPT_LIMIT_MEMORY as the arena's limit ends with: lifts it; -ENOMEM
 * that came of it is -E2BIG. */
int ckpt_checkpoint_end_limit(struct ckpt_checkpoint *c, int rc, struct ckpt_err *err) CKPT_CHECKED;
/* -E2BIG if so, or if the paths of all that it holds are longer or deeper than the limits of keys.
 */
int ckpt_checkpoint_check_keys(const struct ckpt_checkpoint *c, struct ckpt_err *err) CKPT_CHECKED;

/* For readers: */

/* Whether the file (its first bytes, the whole mapping, or the directory) is of this kind; then
 * read() fills the checkpoint, whose files[0] is already open unless it is a directory. */
struct ckpt_format {
    const char *name;
    bool directory;
    bool (*detect)(const char *source, const struct ckpt_file *file);
    int (*read)(struct ckpt_checkpoint *c, const char *source,
                const struct ckpt_open_options *options, struct ckpt_err *err);
};
extern const struct ckpt_format ckpt_format_safetensors, ckpt_format_safetensors_directory,
    ckpt_format_torch_zip, ckpt_format_torch_legacy, ckpt_format_torch_tar,
    ckpt_format_torch_pickle, ckpt_format_torch_directory, ckpt_format_torch_dcp,
    ckpt_format_burnpack, ckpt_format_orbax, ckpt_format_flax;

/* Opens the file and fills the checkpoint, which is empty, with what it holds. */
int ckpt_checkpoint_read_file(struct ckpt_checkpoint *c, const char *path,
                              const struct ckpt_open_options *options,
                              struct ckpt_err *err) CKPT_CHECKED;
/* Makes c the owner of what `part` owns (files, blobs, memory), so that tensors and texts of the
 * part may be listed in c. The part's lists can still be read until it is closed. */
int ckpt_checkpoint_absorb(struct ckpt_checkpoint *c, struct ckpt_checkpoint *part) CKPT_CHECKED;

/* Growing the lists above (arrays are in the arena and doubled; only while reading: a pointer to an
 * element holds until the next one is added). NULL and -ENOMEM: out of memory; a tensor also beyond
 * CKPT_LIMIT_TENSORS. */
struct ckpt_tensor *ckpt_checkpoint_add_tensor(struct ckpt_checkpoint *c);
int ckpt_checkpoint_add_blob(struct ckpt_checkpoint *c,
                             struct ckpt_blob *b) CKPT_CHECKED; /* sets id */
/* Maps a file of many, so that what lies in it as it is is served from there: if it can be had and
 * is still the same, and unless CKPT_LIMIT_MAPPED are mapped. Else its bytes are read as they are
 * wanted. */
void ckpt_checkpoint_map(struct ckpt_checkpoint *c, const struct ckpt_store_file *f);
int ckpt_checkpoint_add_file(struct ckpt_checkpoint *c,
                             struct ckpt_file *f) CKPT_CHECKED; /* takes it */
int ckpt_checkpoint_add_value(struct ckpt_checkpoint *c, struct ckpt_path p,
                              const struct ckpt_value *v) CKPT_CHECKED;
int ckpt_checkpoint_add_unsupported(struct ckpt_checkpoint *c, struct ckpt_path p,
                                    struct ckpt_text reason) CKPT_CHECKED;
int ckpt_checkpoint_add_opaque(struct ckpt_checkpoint *c, struct ckpt_path p,
                               struct ckpt_text cls) CKPT_CHECKED;
int ckpt_checkpoint_warn(struct ckpt_checkpoint *c, const char *fmt, ...) CKPT_PRINTF(2, 3);
struct ckpt_module *ckpt_checkpoint_add_module(struct ckpt_checkpoint *c);
int ckpt_checkpoint_add_metadata(struct ckpt_checkpoint *c, struct ckpt_text key,
                                 struct ckpt_text value) CKPT_CHECKED;

#endif
