#include "formats/zip.h"

#include <errno.h>
#include <inttypes.h>

#include "formats/decoded_cache.h"
#include "formats/limits.h"
#include "formats/mapped.h"
#include "formats/zip_inflate.h"

/*
 * Entries as blobs. A stored entry is an extent of the file that can also check its checksum; a
 * deflated one is inflated whole when it is pinned, and kept by the checkpoint's decoded cache.
 */

struct entry_blob {
    struct ckpt_blob blob;       /* first */
    struct ckpt_zip_entry entry; /* a copy: the archive's list may go */
};

struct inflated_blob {
    struct entry_blob of; /* first */
    struct ckpt_decoded decoded;
};

static const struct ckpt_zip_entry *entry_of(const struct ckpt_blob *b) {
    return &((const struct entry_blob *)b)->entry;
}

static int check_range(const struct ckpt_blob *b, uint64_t lo, uint64_t hi, struct ckpt_err *err) {
    if (lo <= hi && hi <= b->size)
        return 0;
    return ckpt_fail(err, -EINVAL, "bytes %" PRIu64 " to %" PRIu64 " of %s, which has %" PRIu64, lo,
                     hi, b->name, b->size);
}

/* --- stored entries --------------------------------------------------------------------------- */

static int stored_pin(struct ckpt_blob *b, uint64_t lo, uint64_t hi, struct ckpt_pin *pin,
                      const struct ckpt_stop *stop, struct ckpt_err *err) {
    (void)stop;
    *pin = (struct ckpt_pin){.data = b->file->data + b->file_offset + lo};
    return check_range(b, lo, hi, err);
}

static void stored_unpin(struct ckpt_blob *b, struct ckpt_pin *pin) {
    (void)b;
    pin->data = NULL;
}

static int stored_check(struct ckpt_blob *b, const struct ckpt_stop *stop, struct ckpt_err *err) {
    return ckpt_zip_check_crc(entry_of(b), b->file->data + b->file_offset, stop, err);
}

static const struct ckpt_blob_ops stored_ops = {
    .kind = "extent", .pin = stored_pin, .unpin = stored_unpin, .check = stored_check};

/* --- deflated entries ------------------------------------------------------------------------- */

static struct ckpt_decoded *decoded_of(struct ckpt_blob *b) {
    return &((struct inflated_blob *)b)->decoded;
}

static int inflate_decoded(struct ckpt_decoded *d, uint8_t *out, const struct ckpt_stop *stop,
                           struct ckpt_err *err) {
    const struct inflated_blob *const b =
        (const struct inflated_blob *)((char *)d - offsetof(struct inflated_blob, decoded));
    return ckpt_zip_inflate(b->of.blob.file, &b->of.entry, out, stop, err);
}

static int inflated_pin(struct ckpt_blob *b, uint64_t lo, uint64_t hi, struct ckpt_pin *pin,
                        const struct ckpt_stop *stop, struct ckpt_err *err) {
    int rc = check_range(b, lo, hi, err);
    if (rc == 0)
        rc = ckpt_decoded_pin(decoded_of(b), &pin->data, stop, err);
    if (rc == 0)
        pin->data += lo;
    return rc;
}

static void inflated_unpin(struct ckpt_blob *b, struct ckpt_pin *pin) {
    ckpt_decoded_unpin(decoded_of(b));
    pin->data = NULL;
}

static int inflated_check(struct ckpt_blob *b, const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct ckpt_pin pin;
    int rc = inflated_pin(b, 0, b->size, &pin, stop, err);
    if (rc)
        return rc;
    rc = ckpt_zip_check_crc(entry_of(b), pin.data, stop, err);
    inflated_unpin(b, &pin);
    return rc;
}

static void inflated_fini(struct ckpt_blob *b) {
    ckpt_decoded_drop(decoded_of(b));
}

static const struct ckpt_blob_ops inflated_ops = {.kind = "inflated",
                                                  .pin = inflated_pin,
                                                  .unpin = inflated_unpin,
                                                  .check = inflated_check,
                                                  .fini = inflated_fini};

/* --- making ----------------------------------------------------------------------------------- */

static int check_inflated_size(const struct ckpt_zip_entry *e, uint64_t max, struct ckpt_err *err) {
    if (e->size > max)
        return ckpt_fail(err, -E2BIG,
                         "ZIP entry \"%.*s\" inflates to %" PRIu64 " bytes, the limit is %" PRIu64,
                         CKPT_TEXT_ARGS(e->name), e->size, max);
    /* Deflate can't do better than 1032:1, so a larger claim is a lie that would cost memory. */
    if (e->deflated && e->size / 1032 > e->stored)
        return ckpt_fail(err, -EINVAL,
                         "ZIP entry \"%.*s\" can't inflate from %" PRIu64 " to %" PRIu64 " bytes",
                         CKPT_TEXT_ARGS(e->name), e->stored, e->size);
    return 0;
}

static struct ckpt_blob *make_stored(const struct ckpt_zip_entry *e, struct ckpt_arena *arena) {
    struct entry_blob *const b = ckpt_arena_alloc(arena, sizeof *b);
    if (!b)
        return NULL;
    b->entry = *e;
    b->blob = (struct ckpt_blob){.ops = &stored_ops, .file_offset = e->data, .in_file = true};
    return &b->blob;
}

static struct ckpt_blob *make_inflated(const struct ckpt_zip_entry *e, struct ckpt_arena *arena,
                                       struct ckpt_decoded_cache *cache, const char *name) {
    struct inflated_blob *const b = ckpt_arena_alloc(arena, sizeof *b);
    if (!b)
        return NULL;
    b->of.entry = *e;
    b->of.blob = (struct ckpt_blob){.ops = &inflated_ops};
    b->decoded = (struct ckpt_decoded){
        .cache = cache, .decode = inflate_decoded, .name = name, .size = e->size};
    return &b->of.blob;
}

int ckpt_zip_blob(const struct ckpt_zip *zip, const struct ckpt_zip_entry *e,
                  struct ckpt_decoded_cache *cache, struct ckpt_arena *arena, const char *name,
                  struct ckpt_blob **out, struct ckpt_err *err) {
    const int rc = e->deflated ? check_inflated_size(e, CKPT_LIMIT_INFLATED_BYTES, err) : 0;
    if (rc)
        return rc;
    struct ckpt_blob *const b =
        e->deflated ? make_inflated(e, arena, cache, name) : make_stored(e, arena);
    if (!b)
        return ckpt_fail_memory(err, "reading the ZIP archive");
    b->size = e->size;
    b->file = zip->file;
    b->name = name;
    *out = b;
    return 0;
}

int ckpt_zip_read(const struct ckpt_zip *zip, const struct ckpt_zip_entry *e, uint64_t max,
                  struct ckpt_arena *arena, struct ckpt_text *out, struct ckpt_err *err) {
    int rc = check_inflated_size(e, max, err);
    if (rc)
        return rc;
    uint8_t *bytes = ckpt_arena_alloc(arena, (size_t)e->size + 1);
    if (!bytes)
        return ckpt_fail_memory(err, "reading a ZIP entry");
    if (e->size > 0 || e->deflated)
        rc = e->deflated ? ckpt_zip_inflate(zip->file, e, bytes, NULL, err)
                         : ckpt_mapped_copy(bytes, zip->file->data + e->data, (size_t)e->size, err);
    if (rc == 0)
        rc = ckpt_zip_check_crc(e, bytes, NULL, err);
    if (e->stored > CKPT_INFLATE_PIECE && zip->file->fd >= 0)
        ckpt_mapped_forget(zip->file->data + e->data, (size_t)e->stored);
    *out = (struct ckpt_text){(const char *)bytes, (size_t)e->size};
    return rc;
}
