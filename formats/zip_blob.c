#include "formats/zip.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "formats/limits.h"
#include "formats/mapped.h"

/*
 * Entries as blobs. A stored entry is an extent of the file that can also check its checksum; a
 * deflated one is inflated whole at the first pin and then kept.
 */

struct entry_blob {
    struct ckpt_blob blob; /* first */
    const struct ckpt_zip_entry *entry;
    struct ckpt_zip_entry copy; /* what `entry` points to: the archive's list may go */
    pthread_mutex_t mu;         /* guards `bytes` while it is made; deflated entries only */
    uint8_t *bytes;             /* inflated content; immutable once set */
};

/* --- inflating -------------------------------------------------------------------------------- */

#define PIECE ((size_t)1 << 18)

/* Feeds [from, from + n) through a copy of a piece at a time, so that only memcpy touches the
 * mapping. out has e->size bytes. */
static int inflate_into(z_stream *z, const uint8_t *from, const struct ckpt_zip_entry *e,
                        uint8_t *out, uint8_t *piece) {
    uint64_t fed = 0, made = 0;
    int rc = Z_OK;
    while (rc == Z_OK) {
        if (z->avail_in == 0) {
            const size_t n = e->stored - fed < PIECE ? (size_t)(e->stored - fed) : PIECE;
            if (ckpt_mapped_copy(piece, from + fed, n, NULL) != 0)
                return -EIO;
            fed += n;
            z->next_in = piece;
            z->avail_in = (uInt)n;
        }
        const uint64_t room = e->size - made < PIECE ? e->size - made : PIECE;
        z->next_out = room ? out + made : piece; /* a full output only waits for the end mark */
        z->avail_out = (uInt)room;
        const uInt left = z->avail_in;
        rc = inflate(z, Z_NO_FLUSH);
        const uint64_t got = room - z->avail_out;
        made += got;
        if (rc == Z_BUF_ERROR && fed < e->stored && z->avail_in == 0)
            rc = Z_OK; /* it only wants more input */
        else if (rc == Z_OK && got == 0 && z->avail_in == left)
            break; /* no progress */
    }
    return rc == Z_STREAM_END && made == e->size && fed == e->stored && z->avail_in == 0 ? 0
                                                                                         : -EINVAL;
}

static int inflate_entry(const struct ckpt_file *file, const struct ckpt_zip_entry *e, uint8_t *out,
                         struct ckpt_err *err) {
    CKPT_AUTO(free) uint8_t *piece = malloc(PIECE);
    z_stream z = {0};
    if (!piece || inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return ckpt_fail_memory(err, "inflating a ZIP entry");
    const int rc = inflate_into(&z, file->data + e->data, e, out, piece);
    inflateEnd(&z);
    if (rc == -EIO)
        return ckpt_fail(err, rc, "the file shrank while it was read");
    if (rc)
        return ckpt_fail(err, rc, "ZIP entry \"%.*s\" does not inflate to the %llu bytes it says",
                         CKPT_TEXT_ARGS(e->name), (unsigned long long)e->size);
    return 0;
}

/* --- checksums -------------------------------------------------------------------------------- */

static int compare_crc(const struct ckpt_zip_entry *e, uint32_t crc, struct ckpt_err *err) {
    if (e->crc == 0 || e->crc == crc)
        return 0;
    return ckpt_fail(err, -EBADMSG,
                     "ZIP entry \"%.*s\" has checksum %08x, the archive says %08x: its bytes are "
                     "damaged",
                     CKPT_TEXT_ARGS(e->name), crc, e->crc);
}

static uint32_t crc_of(const uint8_t *p, uint64_t n) {
    return (uint32_t)crc32_z(0, p, (size_t)n);
}

/* Of the file's own bytes, which may go away meanwhile. */
static int crc_of_mapped(const uint8_t *p, uint64_t n, uint32_t *crc) {
    volatile uint32_t result = 0;
    int rc;
    CKPT_GUARDED(rc, result = crc_of(p, n));
    *crc = result;
    return rc;
}

/* --- stored entries --------------------------------------------------------------------------- */

static int stored_pin(struct ckpt_blob *b, uint64_t lo, uint64_t hi, struct ckpt_pin *pin,
                      struct ckpt_err *err) {
    if (lo > hi || hi > b->size)
        return ckpt_fail(err, -EINVAL, "bytes %llu to %llu of %s, which has %llu",
                         (unsigned long long)lo, (unsigned long long)hi, b->name,
                         (unsigned long long)b->size);
    pin->data = b->file->data + b->file_offset + lo;
    pin->held = NULL;
    return 0;
}

static void nothing_to_unpin(struct ckpt_blob *b, struct ckpt_pin *pin) {
    (void)b;
    (void)pin;
}

static int stored_check(struct ckpt_blob *b, struct ckpt_err *err) {
    const struct ckpt_zip_entry *e = ((struct entry_blob *)b)->entry;
    uint32_t crc;
    if (e->crc == 0)
        return 0;
    if (crc_of_mapped(b->file->data + e->data, e->stored, &crc) != 0)
        return ckpt_fail(err, -EIO, "the file shrank while it was read");
    return compare_crc(e, crc, err);
}

static const struct ckpt_blob_ops stored_ops = {
    .kind = "extent", .pin = stored_pin, .unpin = nothing_to_unpin, .check = stored_check};

/* --- deflated entries ------------------------------------------------------------------------- */

static int make_bytes(struct entry_blob *b, struct ckpt_err *err) {
    if (b->bytes)
        return 0;
    CKPT_AUTO(free) uint8_t *bytes = malloc(b->entry->size ? (size_t)b->entry->size : 1);
    if (!bytes)
        return ckpt_fail_memory(err, "inflating a ZIP entry");
    const int rc = inflate_entry(b->blob.file, b->entry, bytes, err);
    if (rc == 0)
        b->bytes = CKPT_STEAL(bytes);
    return rc;
}

static int inflated_pin(struct ckpt_blob *blob, uint64_t lo, uint64_t hi, struct ckpt_pin *pin,
                        struct ckpt_err *err) {
    struct entry_blob *b = (struct entry_blob *)blob;
    if (lo > hi || hi > blob->size)
        return ckpt_fail(err, -EINVAL, "bytes %llu to %llu of %s, which has %llu",
                         (unsigned long long)lo, (unsigned long long)hi, blob->name,
                         (unsigned long long)blob->size);
    pthread_mutex_lock(&b->mu);
    const int rc = make_bytes(b, err);
    pthread_mutex_unlock(&b->mu);
    if (rc)
        return rc;
    pin->data = b->bytes + lo;
    pin->held = NULL;
    return 0;
}

static int inflated_check(struct ckpt_blob *blob, struct ckpt_err *err) {
    struct ckpt_pin pin;
    const int rc = inflated_pin(blob, 0, blob->size, &pin, err);
    return rc ? rc
              : compare_crc(((struct entry_blob *)blob)->entry, crc_of(pin.data, blob->size), err);
}

static void inflated_fini(struct ckpt_blob *blob) {
    struct entry_blob *b = (struct entry_blob *)blob;
    free(b->bytes);
    b->bytes = NULL;
    pthread_mutex_destroy(&b->mu);
}

static const struct ckpt_blob_ops inflated_ops = {.kind = "inflated",
                                                  .pin = inflated_pin,
                                                  .unpin = nothing_to_unpin,
                                                  .check = inflated_check,
                                                  .fini = inflated_fini};

/* -----------------------------------------------------------------------------------------------
 */

static int check_inflated_size(const struct ckpt_zip_entry *e, uint64_t max, struct ckpt_err *err) {
    if (e->size > max)
        return ckpt_fail(
            err, -E2BIG, "ZIP entry \"%.*s\" inflates to %llu bytes, the limit is %llu",
            CKPT_TEXT_ARGS(e->name), (unsigned long long)e->size, (unsigned long long)max);
    /* Deflate can't do better than 1032:1, so a larger claim is a lie that would cost memory. */
    if (e->deflated && e->size / 1032 > e->stored)
        return ckpt_fail(err, -EINVAL, "ZIP entry \"%.*s\" can't inflate from %llu to %llu bytes",
                         CKPT_TEXT_ARGS(e->name), (unsigned long long)e->stored,
                         (unsigned long long)e->size);
    return 0;
}

int ckpt_zip_blob(const struct ckpt_zip *zip, const struct ckpt_zip_entry *e,
                  struct ckpt_arena *arena, const char *name, struct ckpt_blob **out,
                  struct ckpt_err *err) {
    const int rc = e->deflated ? check_inflated_size(e, CKPT_LIMIT_INFLATED_BYTES, err) : 0;
    if (rc)
        return rc;
    struct entry_blob *b = ckpt_arena_alloc(arena, sizeof *b);
    if (!b || (e->deflated && pthread_mutex_init(&b->mu, NULL) != 0))
        return ckpt_fail_memory(err, "reading the ZIP archive");
    b->copy = *e;
    b->entry = &b->copy;
    b->blob = (struct ckpt_blob){
        .ops = e->deflated ? &inflated_ops : &stored_ops,
        .size = e->size,
        .file = zip->file,
        .file_offset = e->data,
        .in_file = !e->deflated,
        .name = name,
    };
    *out = &b->blob;
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
        rc = e->deflated ? inflate_entry(zip->file, e, bytes, err)
                         : ckpt_mapped_copy(bytes, zip->file->data + e->data, (size_t)e->size, err);
    if (rc == 0)
        rc = compare_crc(e, crc_of(bytes, e->size), err);
    if (e->stored > PIECE && zip->file->fd >= 0)
        ckpt_mapped_forget(zip->file->data + e->data, (size_t)e->stored);
    *out = (struct ckpt_text){(const char *)bytes, (size_t)e->size};
    return rc;
}
