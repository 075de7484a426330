#include "formats/safetensors_header.h"

#include <inttypes.h>

#include "base/cleanup.h"

/* A single .safetensors file as a checkpoint: every tensor is an extent of the file. */

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading a safetensors file");
}

/* A path of the key as its one segment. */
static bool key_path(struct ckpt_arena *a, struct ckpt_text key, struct ckpt_path *path) {
    struct ckpt_text *segment = ckpt_arena_alloc(a, sizeof *segment);
    if (!segment)
        return false;
    *segment = key;
    *path = (struct ckpt_path){segment, 1};
    return true;
}

/* Adds a sound entry to the checkpoint as a tensor whose blob is an extent of the file; a faulty
 * one to the unsupported. */
static int add_entry(struct ckpt_checkpoint *c, const struct ckpt_file *f,
                     const struct ckpt_st_table *t, const struct ckpt_st_entry *e,
                     struct ckpt_err *err) {
    struct ckpt_tensor tensor = {
        .key = e->key, .dtype = e->dtype, .ndim = e->ndim, .shape = e->shape, .module = -1};
    if (!key_path(&c->arena, e->key, &tensor.path))
        return fail_memory(err);
    if (e->fault)
        return ckpt_checkpoint_add_unsupported(c, tensor.path, ckpt_text_of(e->fault))
                   ? fail_memory(err)
                   : 0;
    int rc = ckpt_blob_extent(&c->arena, f, t->data_start + e->begin, e->end - e->begin, "",
                              &tensor.blob, err);
    if (!rc)
        rc = ckpt_tensor_check(&tensor, err);
    if (rc)
        return rc;
    struct ckpt_tensor *slot = ckpt_checkpoint_add_tensor(c);
    if (!slot || ckpt_checkpoint_add_blob(c, tensor.blob))
        return fail_memory(err);
    *slot = tensor;
    return 0;
}

static bool detect(const char *source, const struct ckpt_file *file) {
    (void)source;
    return ckpt_st_detect(file);
}

static int read_file(struct ckpt_checkpoint *c, const char *source,
                     const struct ckpt_open_options *options, struct ckpt_err *err) {
    (void)source;
    const struct ckpt_file *f = c->files[0];
    CKPT_AUTO(st_table) struct ckpt_st_table t = {0};
    c->format = "safetensors";
    int rc = ckpt_st_read(&t, &c->arena, f, options->keep_going, err);
    for (size_t i = 0; !rc && i < t.n; i++)
        rc = add_entry(c, f, &t, &t.entries[i], err);
    for (size_t i = 0; !rc && i < t.nmetadata; i++)
        if (ckpt_checkpoint_add_metadata(c, t.metadata[i].key, t.metadata[i].value))
            rc = fail_memory(err);
    if (!rc && t.unclaimed)
        ckpt_checkpoint_warn(c, "%" PRIu64 " bytes of the data belong to no sound tensor",
                             t.unclaimed);
    return rc;
}

const struct ckpt_format ckpt_format_safetensors = {"safetensors", false, detect, read_file};
