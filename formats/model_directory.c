#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "formats/directory.h"
#include "formats/shards.h"

/*
 * Model directories as Hugging Face lays them out: an index and its shards, or a single file. Where
 * there are safetensors files, the others are their older copies, as transformers sees it, too.
 */
struct layout {
    const char *sharded; /* the checkpoint's format if there is an index */
    const char *index, *index_suffix;
    const char *single, *single_suffix;
};

static const struct layout safetensors = {
    "safetensors-sharded",
    "model.safetensors.index.json",
    ".safetensors.index.json",
    "model.safetensors",
    ".safetensors",
};
static const struct layout torch = {
    "torch-sharded",     "pytorch_model.bin.index.json", ".bin.index.json", "pytorch_model.bin",
    "pytorch_model.bin",
};

static bool has(const struct layout *l, const char *directory) {
    return ckpt_directory_has(directory, l->index_suffix) ||
           ckpt_directory_has(directory, l->single_suffix);
}

static int read_single(struct ckpt_checkpoint *c, const char *directory, const char *name,
                       const struct ckpt_open_options *options, struct ckpt_err *err) {
    CKPT_AUTO(free) char *path = ckpt_directory_path(directory, name);
    if (!path)
        return ckpt_fail_memory(err, "reading a model directory");
    const int rc = ckpt_checkpoint_read_file(c, path, options, err);
    return rc ? ckpt_fail_in(err, "%s", name) : 0;
}

static int read_layout(const struct layout *l, struct ckpt_checkpoint *c, const char *directory,
                       const struct ckpt_open_options *options, struct ckpt_err *err) {
    const char *index = NULL, *single = NULL;
    int rc = ckpt_directory_fill(c, directory, err);
    if (!rc)
        rc = ckpt_directory_pick(&c->arena, directory, l->index, l->index_suffix, &index, err);
    if (!rc && !index)
        rc = ckpt_directory_pick(&c->arena, directory, l->single, l->single_suffix, &single, err);
    if (!rc && !index && !single)
        rc = ckpt_fail(err, -ENOENT, "no %s file in it", l->single_suffix);
    if (rc)
        return rc;
    if (single)
        return read_single(c, directory, single, options, err);
    c->format = l->sharded;
    return ckpt_shards_read(c, directory, index, options, err);
}

static bool detect_safetensors(const char *source, const struct ckpt_file *file) {
    (void)file;
    return has(&safetensors, source);
}

static bool detect_torch(const char *source, const struct ckpt_file *file) {
    (void)file;
    return has(&torch, source);
}

static int read_safetensors(struct ckpt_checkpoint *c, const char *source,
                            const struct ckpt_open_options *options, struct ckpt_err *err) {
    return read_layout(&safetensors, c, source, options, err);
}

static int read_torch(struct ckpt_checkpoint *c, const char *source,
                      const struct ckpt_open_options *options, struct ckpt_err *err) {
    return read_layout(&torch, c, source, options, err);
}

const struct ckpt_format ckpt_format_safetensors_directory = {"safetensors-sharded", true,
                                                              detect_safetensors, read_safetensors};
const struct ckpt_format ckpt_format_torch_directory = {"torch-sharded", true, detect_torch,
                                                        read_torch};
