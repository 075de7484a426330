#include "formats/blob.h"

#include <errno.h>
#include <inttypes.h>

#include "base/size.h"

/* Blobs whose bytes are in memory already, mapped or owned: a pin is an addition. */

struct flat {
    struct ckpt_blob blob;
    const uint8_t *data;
};

static int flat_pin(struct ckpt_blob *b, uint64_t lo, uint64_t hi, struct ckpt_pin *pin,
                    const struct ckpt_stop *stop, struct ckpt_err *err) {
    (void)stop;
    const struct flat *f = (const struct flat *)b;
    if (lo > hi || hi > b->size)
        return ckpt_fail(err, -EINVAL,
                         "bytes %" PRIu64 "..%" PRIu64 " lie outside a storage of %" PRIu64
                         " bytes",
                         lo, hi, b->size);
    *pin = (struct ckpt_pin){.data = f->data + lo};
    return 0;
}

static void flat_unpin(struct ckpt_blob *b, struct ckpt_pin *pin) {
    (void)b;
    pin->data = NULL;
}

static const struct ckpt_blob_ops extent_ops = {
    .kind = "extent", .pin = flat_pin, .unpin = flat_unpin};
static const struct ckpt_blob_ops owned_ops = {
    .kind = "owned", .pin = flat_pin, .unpin = flat_unpin};

static struct flat *make_flat(struct ckpt_arena *a, const struct ckpt_blob_ops *ops,
                              const uint8_t *data, uint64_t size, const char *name) {
    static const uint8_t nothing; /* so that an empty blob has an address, too */
    struct flat *f = ckpt_arena_alloc(a, sizeof *f);
    if (!f)
        return NULL;
    f->blob = (struct ckpt_blob){.ops = ops, .size = size, .name = name ? name : ""};
    f->data = data ? data : &nothing;
    return f;
}

int ckpt_blob_extent(struct ckpt_arena *a, const struct ckpt_file *file, uint64_t offset,
                     uint64_t size, const char *name, struct ckpt_blob **out,
                     struct ckpt_err *err) {
    uint64_t end;
    if (!ckpt_add_u64(offset, size, &end) || end > file->size)
        return ckpt_fail(err, -EINVAL,
                         "%" PRIu64 " bytes at %" PRIu64 " reach past the end of %s, which has "
                         "%" PRIu64 " bytes: it is truncated or damaged",
                         size, offset, file->name, file->size);
    struct flat *f = make_flat(a, &extent_ops, file->data ? file->data + offset : NULL, size, name);
    if (!f)
        return ckpt_fail_memory(err, "reading the checkpoint");
    f->blob.file = file;
    f->blob.file_offset = offset;
    f->blob.in_file = true;
    *out = &f->blob;
    return 0;
}

int ckpt_blob_owned(struct ckpt_arena *a, const void *data, uint64_t size, const char *name,
                    struct ckpt_blob **out, struct ckpt_err *err) {
    struct flat *f = make_flat(a, &owned_ops, data, size, name);
    if (!f)
        return ckpt_fail_memory(err, "reading the checkpoint");
    *out = &f->blob;
    return 0;
}
