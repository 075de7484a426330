#include "formats/zip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "formats/mapped.h"
#include "base/size.h"

/*
 * What a checkpoint's ZIP archive must be beyond what libzip checks, so that every reader of the
 * file sees the same content:
 *
 *   - a local header with the signature, the name and no encryption bit lies where the entry
 * begins;
 *   - its data ends inside the archive;
 *   - no two entries share a byte (headers included): nothing is quoted inside something else;
 *   - a stored entry is as long in the file as it says it is;
 *   - no name is absolute or climbs ("..").
 *
 * That no name occurs twice was seen while the names were listed.
 */

#define LOCAL_SIGNATURE 0x04034b50u
#define FLAG_ENCRYPTED 1u

/* Under the guard: no allocation here. */
static const char *compare_local_header(const struct ckpt_zip *zip,
                                        const struct ckpt_zip_entry *e) {
    struct ckpt_buf b = {.p = zip->file->data, .n = zip->end, .pos = e->header};
    if (ckpt_buf_u32(&b) != LOCAL_SIGNATURE)
        return "has no local header where the directory points";
    ckpt_buf_u16(&b); /* version needed */
    const uint16_t flags = ckpt_buf_u16(&b);
    ckpt_buf_take(&b, 18); /* method, time, date, crc, sizes */
    const uint16_t name_length = ckpt_buf_u16(&b);
    ckpt_buf_u16(&b); /* extra length */
    const uint8_t *name = ckpt_buf_take(&b, name_length);
    if (!name || name_length != e->name.n || memcmp(name, e->name.s, e->name.n) != 0)
        return "has another name in its local header";
    return flags & FLAG_ENCRYPTED ? "is encrypted, which is not supported" : NULL;
}

static bool climbs(struct ckpt_text name) {
    for (size_t i = 0; i + 1 < name.n; i++)
        if (name.s[i] == '.' && name.s[i + 1] == '.' && (i == 0 || name.s[i - 1] == '/') &&
            (i + 2 == name.n || name.s[i + 2] == '/'))
            return true;
    return name.n == 0 || name.s[0] == '/' || memchr(name.s, '\\', name.n);
}

static int check_entry(const struct ckpt_zip *zip, const struct ckpt_zip_entry *e,
                       struct ckpt_err *err) {
    const char *volatile wrong = NULL; /* set under the guard */
    uint64_t end;
    int rc;
    if (climbs(e->name))
        return ckpt_fail(err, -EINVAL, "ZIP entry \"%.*s\" has a name that leaves the archive",
                         CKPT_TEXT_ARGS(e->name));
    if (!ckpt_add_u64(e->data, e->stored, &end) || end > zip->end)
        return ckpt_fail(err, -EINVAL,
                         "ZIP entry \"%.*s\" (%llu bytes at %llu) ends behind the archive's %llu",
                         CKPT_TEXT_ARGS(e->name), (unsigned long long)e->stored,
                         (unsigned long long)e->data, (unsigned long long)zip->end);
    if (!e->deflated && e->stored != e->size)
        return ckpt_fail(err, -EINVAL, "ZIP entry \"%.*s\" is stored in %llu bytes but says %llu",
                         CKPT_TEXT_ARGS(e->name), (unsigned long long)e->stored,
                         (unsigned long long)e->size);
    if (e->stored == 0)
        return 0;
    CKPT_GUARDED(rc, wrong = compare_local_header(zip, e));
    if (rc)
        return ckpt_mapped_lost(err);
    return wrong ? ckpt_fail(err, -EINVAL, "ZIP entry \"%.*s\" %s", CKPT_TEXT_ARGS(e->name), wrong)
                 : 0;
}

static int by_header(const void *a, const void *b) {
    const struct ckpt_zip_entry *x = *(const struct ckpt_zip_entry *const *)a;
    const struct ckpt_zip_entry *y = *(const struct ckpt_zip_entry *const *)b;
    return (x->header > y->header) - (x->header < y->header);
}

static int check_disjoint(const struct ckpt_zip *zip, struct ckpt_err *err) {
    CKPT_AUTO(free)
    const struct ckpt_zip_entry **sorted = calloc(zip->nentries + 1, sizeof *sorted);
    if (!sorted)
        return ckpt_fail_memory(err, "checking the ZIP archive");
    size_t n = 0;
    for (size_t i = 0; i < zip->nentries; i++)
        if (zip->entry[i].stored > 0)
            sorted[n++] = &zip->entry[i];
    qsort(sorted, n, sizeof(const struct ckpt_zip_entry *), by_header);
    for (size_t i = 1; i < n; i++)
        if (sorted[i]->header < sorted[i - 1]->data + sorted[i - 1]->stored)
            return ckpt_fail(err, -EINVAL, "ZIP entries \"%.*s\" and \"%.*s\" overlap",
                             CKPT_TEXT_ARGS(sorted[i - 1]->name), CKPT_TEXT_ARGS(sorted[i]->name));
    return 0;
}

int ckpt_zip_check(const struct ckpt_zip *zip, struct ckpt_err *err) {
    for (size_t i = 0; i < zip->nentries; i++) {
        const int rc = check_entry(zip, &zip->entry[i], err);
        if (rc)
            return rc;
    }
    return check_disjoint(zip, err);
}
