#include "formats/zip_end.h"

#include <errno.h>

#include "base/buf.h"
#include "formats/mapped.h"
#include "formats/limits.h"

/*
 * The end of an archive, looked at before libzip sees it:
 *
 *     ... directory | zip64 end record | its locator | end record | comment
 *                     count: 8 bytes     20 bytes      count: 2     0..65535 bytes, to the end
 *                                                                   of the file
 *
 * libzip takes memory for as many entries as the end record claims, and where several end records
 * are possible (one may stand in the comment of another) it and torch choose differently.
 */

#define END_SIGNATURE 0x06054b50u
#define END_BYTES 22
#define LOCATOR_SIGNATURE 0x07064b50u
#define LOCATOR_BYTES 20
#define COMMENT_MAX 65535
#define ZIP64_COUNT_AT 32 /* in the zip64 end record; the directory's size follows */

struct claims {
    uint64_t entries, directory_bytes;
};

/* Offsets count from where the archive begins. */
struct bytes {
    const uint8_t *p;
    uint64_t n;
};

static struct ckpt_buf buf_at(const struct bytes *z, uint64_t at) {
    return (struct ckpt_buf){.p = z->p, .n = z->n, .pos = at};
}

/* An end record whose comment ends where the file does. */
static bool is_end_record(const struct bytes *z, uint64_t at) {
    struct ckpt_buf b = buf_at(z, at);
    if (ckpt_buf_u32(&b) != END_SIGNATURE)
        return false;
    ckpt_buf_take(&b, 16); /* disks, counts, size and offset of the directory */
    return ckpt_buf_u16(&b) == z->n - at - END_BYTES;
}

/* What the zip64 end record says, if a locator stands before the end record; else what that says.
 */
static struct claims read_claims(const struct bytes *z, uint64_t at) {
    struct ckpt_buf b = buf_at(z, at);
    struct claims claims;
    ckpt_buf_take(&b, 10);
    claims.entries = ckpt_buf_u16(&b);
    claims.directory_bytes = ckpt_buf_u32(&b);
    if (at < LOCATOR_BYTES)
        return claims;
    b = buf_at(z, at - LOCATOR_BYTES);
    if (ckpt_buf_u32(&b) != LOCATOR_SIGNATURE)
        return claims;
    ckpt_buf_u32(&b); /* disk */
    const uint64_t record = ckpt_buf_u64(&b);
    if (record > z->n || z->n - record < ZIP64_COUNT_AT + 16)
        return claims; /* libzip refuses it */
    b = buf_at(z, record + ZIP64_COUNT_AT);
    claims.entries = ckpt_buf_u64(&b);
    claims.directory_bytes = ckpt_buf_u64(&b);
    return claims;
}

/* Under the guard: no allocation here. */
static void look(const struct bytes *z, volatile unsigned *records,
                 volatile struct claims *claims) {
    if (z->n < END_BYTES)
        return;
    const uint64_t last = z->n - END_BYTES;
    const uint64_t first = last > COMMENT_MAX ? last - COMMENT_MAX : 0;
    for (uint64_t at = first; at <= last; at++) {
        if (!is_end_record(z, at))
            continue;
        *records += 1;
        const struct claims found = read_claims(z, at);
        claims->entries = found.entries;
        claims->directory_bytes = found.directory_bytes;
    }
}

int ckpt_zip_check_end(const struct ckpt_zip *zip, struct ckpt_err *err) {
    const struct bytes bytes = {zip->file->data + zip->begin, zip->end - zip->begin};
    volatile unsigned records = 0;
    volatile struct claims claims = {0};
    int rc;
    CKPT_GUARDED(rc, look(&bytes, &records, &claims));
    if (rc)
        return ckpt_mapped_lost(err);
    if (records > 1)
        return ckpt_fail(err, -EINVAL,
                         "damaged ZIP archive: %u end records, of which one hides in the comment "
                         "of another: which one counts is ambiguous",
                         records);
    if (claims.entries > CKPT_LIMIT_ZIP_ENTRIES)
        return ckpt_fail(err, -E2BIG,
                         "the ZIP archive has more than %u entries (limit of ZIP entries)",
                         CKPT_LIMIT_ZIP_ENTRIES);
    if (claims.directory_bytes > CKPT_LIMIT_ZIP_DIRECTORY && claims.directory_bytes <= bytes.n)
        return ckpt_fail(
            err, -E2BIG,
            "the ZIP archive's directory has %llu bytes, the limit is %u (limit of the "
            "ZIP directory)",
            (unsigned long long)claims.directory_bytes, CKPT_LIMIT_ZIP_DIRECTORY);
    return 0;
}
