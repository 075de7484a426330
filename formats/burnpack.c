#include "formats/burnpack_header.h"

#include <inttypes.h>

#include "base/cleanup.h"

/* A burnpack as a checkpoint: every tensor is an extent of the file, every scalar a value. */

static bool detect(const char *source, const struct ckpt_file *file) {
    (void)source;
    uint8_t start[4];
    return file && file->size >= sizeof start &&
           ckpt_file_read(file, 0, start, sizeof start, NULL) == 0 &&
           ckpt_bpk_detect(start, sizeof start);
}

static bool add_scalar(struct ckpt_checkpoint *c, const struct ckpt_bpk_scalar *s) {
    struct ckpt_text *segment = ckpt_arena_alloc(&c->arena, sizeof *segment);
    struct ckpt_value *value = ckpt_arena_alloc(&c->arena, sizeof *value);
    if (!segment || !value)
        return false;
    *segment = s->key;
    *value = s->value;
    return ckpt_checkpoint_add_value(c, (struct ckpt_path){.segment = segment, .n = 1}, value) == 0;
}

static bool add_rest(struct ckpt_checkpoint *c, const struct ckpt_bpk_table *t) {
    bool ok = true;
    for (size_t i = 0; ok && i < t->nmetadata; i++)
        ok = ckpt_checkpoint_add_metadata(c, t->metadata[i].key, t->metadata[i].value) == 0;
    for (size_t i = 0; ok && i < t->nscalars; i++)
        ok = add_scalar(c, &t->scalars[i]);
    if (ok && t->unclaimed)
        ok = ckpt_checkpoint_warn(c, "%" PRIu64 " bytes of the data belong to no tensor",
                                  t->unclaimed) == 0;
    if (ok && t->nwide)
        ok = ckpt_checkpoint_warn(c, "%zu tensors of 32-bit booleans show as U32", t->nwide) == 0;
    return ok;
}

static int read_file(struct ckpt_checkpoint *c, const char *source,
                     const struct ckpt_open_options *options, struct ckpt_err *err) {
    (void)source;
    const struct ckpt_file *f = c->files[0];
    CKPT_AUTO(bpk_table) struct ckpt_bpk_table t = {0};
    c->format = "burnpack";
    int rc = ckpt_bpk_read(&t, &c->arena, f, options->keep_going, err);
    for (size_t i = 0; rc == 0 && i < t.n; i++)
        rc = ckpt_header_entry_add(c, f, t.data_start, &t.entries[i], err);
    if (rc == 0 && !add_rest(c, &t))
        rc = ckpt_fail_memory(err, "reading a burnpack");
    return rc;
}

const struct ckpt_format ckpt_format_burnpack = {"burnpack", false, detect, read_file};
