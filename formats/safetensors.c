#include "formats/safetensors_header.h"

#include <inttypes.h>

#include "base/cleanup.h"

/* A single .safetensors file as a checkpoint: every tensor is an extent of the file. */

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
        rc = ckpt_header_entry_add(c, f, t.data_start, &t.entries[i], err);
    for (size_t i = 0; !rc && i < t.nmetadata; i++)
        if (ckpt_checkpoint_add_metadata(c, t.metadata[i].key, t.metadata[i].value))
            rc = ckpt_fail_memory(err, "reading a safetensors file");
    if (!rc && t.unclaimed)
        ckpt_checkpoint_warn(c, "%" PRIu64 " bytes of the data belong to no sound tensor",
                             t.unclaimed);
    return rc;
}

const struct ckpt_format ckpt_format_safetensors = {"safetensors", false, detect, read_file};
