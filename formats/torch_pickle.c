#include "formats/torch.h"

#include <errno.h>

#include "base/cleanup.h"
#include "formats/mapped.h"

/*
 * A plain pickle: numpy arrays (Detectron2's model zoo) or tensors that were pickled without
 * torch.save, whose storages are calls of torch.storage._load_from_bytes. The whole file is the
 * pickle. Its long byte strings, which are the arrays, stay in the file and become extents of it:
 *
 *     file   opcodes │ bytes of an array ....................... │ opcodes
 *     copy   opcodes │ (never touched, so no memory is behind it) │ opcodes
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
    uint8_t start[2];
    if (!file || file->size < sizeof start ||
        ckpt_file_read(file, 0, start, sizeof start, NULL) != 0)
        return false;
    return (start[0] == 0x80 && start[1] <= PROTOCOL_MAX) ||
           (ckpt_file_has(file, file->size - 1, ".", 1) && pickle_length(file) == file->size);
}

/* No container, no records of its own. */
static int locate_nothing(struct torch_reader *r, struct torch_record *record,
                          struct ckpt_err *err) {
    (void)r;
    (void)err;
    record->error = "a plain pickle has no storages beside it";
    return 0;
}

bool torch_pickle_place(const struct torch_reader *r, struct ckpt_text t, uint64_t *offset) {
    const uint8_t *at = (const uint8_t *)t.s;
    if (!r->copy || at < r->copy || at >= r->copy + r->file->size)
        return false;
    *offset = (uint64_t)(at - r->copy);
    return true;
}

static int left_blob(void *user, struct ckpt_text bytes, const char *name, struct ckpt_blob **out,
                     struct ckpt_err *err) {
    struct torch_reader *r = user;
    uint64_t offset;
    if (!torch_pickle_place(r, bytes, &offset))
        return ckpt_fail(err, -EINVAL, "bytes that are not in the file");
    return ckpt_blob_extent(&r->c->arena, r->file, offset, bytes.n, name, out, err);
}

static int copy_pickle(struct torch_reader *r, struct ckpt_err *err) {
    const size_t n = (size_t)r->file->size;
    uint8_t *copy = ckpt_arena_alloc(&r->c->arena, n);
    volatile size_t copied = 0;
    int rc;
    if (!copy)
        return ckpt_fail_memory(err, "reading the pickle");
    CKPT_GUARDED(rc, copied = ckpt_pickle_copy(copy, r->file->data, n, CKPT_LIMIT_PICKLE_BYTES));
    if (rc)
        return ckpt_mapped_lost(err);
    if (copied > CKPT_LIMIT_PICKLE_BYTES)
        return ckpt_fail(err, -E2BIG, "a pickle of more than %u bytes, arrays not counted",
                         CKPT_LIMIT_PICKLE_BYTES);
    r->copy = copy;
    return 0;
}

static int read_pickle(struct torch_reader *r, struct ckpt_value **root, struct ckpt_err *err) {
    const struct ckpt_pickle_hooks hooks = {.user = r,
                                            .nested_storage = torch_legacy_nested,
                                            .left_blob = left_blob,
                                            .globals = &r->c->globals};
    const size_t n = (size_t)r->file->size;
    size_t consumed;
    int rc = copy_pickle(r, err);
    if (rc == 0)
        rc = ckpt_pickle_run(r->copy, n, &hooks, &r->c->arena, &consumed, root, err);
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
