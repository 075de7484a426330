#ifndef CKPT_FORMATS_ORBAX_H
#define CKPT_FORMATS_ORBAX_H
/*
 * Orbax checkpoints, which JAX and flax save. What a user points at may be any level:
 *
 *     run/                 steps, and what else a CheckpointManager keeps    orbax.c
 *       20/                a step: items and plain files
 *         state/           an item: arrays in a store, and a description     orbax_item.c
 *           _METADATA      the leaves, in JSON                               orbax_metadata.c
 *           checkpoint     or, in old ones, in msgpack                       flax.c
 *           manifest.ocdbt, d/...     the store: a database,
 *           w/.zarray, w/0.0          or a directory for each array
 *
 * Here is what these files share.
 */
#include "base/strmap.h"
#include "formats/checkpoint.h"
#include "formats/kvstore.h"
#include "formats/zarr_array.h"

/* --- an item (orbax_item.c) --- */

/* A store below the item's folder: its own, or one of those that Orbax 0.4 made for keys with a
 * slash. */
struct ckpt_orbax_nested {
    const char *folder;
    struct ckpt_kvstore store;
};

struct ckpt_orbax_item {
    struct ckpt_checkpoint *c;
    const struct ckpt_open_options *options;
    const char *directory; /* absolute */
    const char *name;      /* begins all paths; NULL: the only item of the step */
    struct ckpt_kvstore store;
    struct ckpt_zarr_known known;
    bool is_database;
    bool is_complete; /* no chunk was left out for being all fill value */
    struct ckpt_orbax_nested *nested;
    size_t nnested, nested_cap;
    struct ckpt_err *err;
};

/* Whether the folder is one. */
bool ckpt_orbax_is_item(const char *directory);
/* Adds all that an item holds to the checkpoint. */
int ckpt_orbax_read_item(struct ckpt_checkpoint *c, const struct ckpt_open_options *options,
                         const char *directory, const char *name,
                         struct ckpt_err *err) CKPT_CHECKED;

/* A path of n segments below the item's own. False: out of memory. */
bool ckpt_orbax_path(const struct ckpt_orbax_item *it, const struct ckpt_text *segment, uint32_t n,
                     struct ckpt_path *out);
/* Adds a leaf: the array of that name in the store, or a value. */
int ckpt_orbax_add_array(struct ckpt_orbax_item *it, struct ckpt_path path,
                         struct ckpt_text name) CKPT_CHECKED;
int ckpt_orbax_add_value(struct ckpt_orbax_item *it, struct ckpt_path path,
                         struct ckpt_value value) CKPT_CHECKED;
/* A tensor whose fields but path and key are set, or which failed with rc and the sentence in
 * it->err: adds it, or its reason to the unsupported, or refuses. */
int ckpt_orbax_settle(struct ckpt_orbax_item *it, struct ckpt_path path, struct ckpt_tensor *t,
                      int rc) CKPT_CHECKED;

/* --- its description (orbax_metadata.c) --- */

struct ckpt_orbax_leaf {
    struct ckpt_path path; /* in the item */
    struct ckpt_text type; /* "jax.Array", "string", "None", ... */
    bool is_empty;         /* an empty node: nothing is stored */
};

struct ckpt_orbax_metadata {
    struct ckpt_orbax_leaf *leaf; /* in the arena */
    size_t n, cap;
    bool is_complete; /* store_array_data_equal_to_fill_value */
};

/* Both overwrite the text: it is unescaped where it stands. */
int ckpt_orbax_parse_metadata(char *json, size_t n, struct ckpt_arena *a,
                              struct ckpt_orbax_metadata *out, struct ckpt_err *err) CKPT_CHECKED;

/* name -> text, of _strings.json. */
struct ckpt_orbax_strings {
    struct ckpt_strmap map;
    struct ckpt_text *text; /* in the arena */
    size_t n;
};
int ckpt_orbax_parse_strings(char *json, size_t n, struct ckpt_arena *a,
                             struct ckpt_orbax_strings *out, struct ckpt_err *err) CKPT_CHECKED;

/* Whether _CHECKPOINT_METADATA says that saving began and never ended. What can't be read says
 * nothing. */
bool ckpt_orbax_is_unfinished(const void *json, size_t n);

/* --- msgpack trees (flax.c) --- */

/* Adds the leaves of a file of msgpack; texts that name arrays are looked up in the item's store.
 */
int ckpt_flax_read(struct ckpt_orbax_item *it, const char *directory,
                   const char *file) CKPT_CHECKED;
/* Whether the file begins as such a one does. */
bool ckpt_flax_is(const char *directory, const char *file);

#endif
