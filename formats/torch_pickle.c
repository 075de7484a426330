#include "formats/torch.h"

#include <errno.h>

#include "base/cleanup.h"
#include "formats/mapped.h"

/*
 * A plain pickle: numpy arrays (Detectron2's model zoo) or tensors that were pickled without
 * torch.save, whose storages are calls of torch.storage._load_from_bytes. The whole file is the
 * pickle.
 */

#define PROTOCOL_MAX 5

static size_t pickle_length(const struct ckpt_file *file) {
    volatile size_t length = 0;
    int rc;
    CKPT_GUARDED(rc, length = ckpt_pickle_length(file->data, file->size));
    return rc ? 0 : length;
}

/* Protocols from 2 on begin with PROTO; older ones are known by being a pickle to the last byte. */
static bool detect(const char *source, const struct ckpt_file *file) {
    (void)source;
    if (!file || file->size < 2)
        return false;
    return (file->data[0] == 0x80 && file->data[1] <= PROTOCOL_MAX) ||
           (file->data[file->size - 1] == '.' && pickle_length(file) == file->size);
}

/* No container, no records of its own. */
static int locate_nothing(struct torch_reader *r, struct torch_record *record,
                          struct ckpt_err *err) {
    (void)r;
    (void)err;
    record->error = "a plain pickle has no storages beside it";
    return 0;
}

static int read_pickle(struct torch_reader *r, struct ckpt_value **root, struct ckpt_err *err) {
    const struct ckpt_pickle_hooks hooks = {r, NULL, torch_legacy_nested, &r->c->globals};
    const size_t n = (size_t)r->file->size;
    size_t consumed;
    if (n > CKPT_LIMIT_PICKLE_BYTES)
        return ckpt_fail(err, -E2BIG, "a plain pickle of %zu bytes, the limit is %u", n,
                         CKPT_LIMIT_PICKLE_BYTES);
    uint8_t *copy = ckpt_arena_alloc(&r->c->arena, n);
    if (!copy)
        return ckpt_fail_memory(err, "reading the pickle");
    int rc = ckpt_mapped_copy(copy, r->file->data, n, err);
    if (rc == 0)
        rc = ckpt_pickle_run(copy, n, &hooks, &r->c->arena, &consumed, root, err);
    if (rc == 0 && consumed != n)
        return ckpt_fail(
            err, -EINVAL,
            "not a checkpoint: a pickle that ends at byte %zu of %zu, without the magic "
            "number of torch's legacy format",
            consumed, n);
    return rc;
}

static int read_file(struct ckpt_checkpoint *c, const char *source,
                     const struct ckpt_open_options *options, struct ckpt_err *err) {
    CKPT_AUTO(torch_reader)
    struct torch_reader r = {
        .c = c, .options = options, .file = c->files[0], .locate = locate_nothing};
    struct ckpt_value *root;
    (void)source;
    c->format = ckpt_format_torch_pickle.name;
    c->is_torch = true;
    const int rc = read_pickle(&r, &root, err);
    return rc ? rc : torch_tree_read(&r, root, err);
}

const struct ckpt_format ckpt_format_torch_pickle = {
    .name = "torch-pickle", .detect = detect, .read = read_file};
