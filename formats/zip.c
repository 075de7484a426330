#include "formats/zip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/guard.h"
#include "formats/limits.h"
#include "formats/mapped.h"
#include "formats/zip_end.h"

/* zip.h says why libzip and how entries are located. */

#define LOCAL_HEADER_BYTES 30
#define LOCAL_HEADER_LENGTHS 26 /* where its name's and extra field's lengths are */

/* Our source for libzip: the archive's part of the mapping, and what was read of it last. Offsets
 * count from where the archive begins. */
struct source {
    const uint8_t *data;
    uint64_t size;
    uint64_t at;
    uint64_t first_read, last_read;
    zip_error_t error;
};

static zip_int64_t source_read(struct source *s, void *data, zip_uint64_t n) {
    const uint64_t left = s->at < s->size ? s->size - s->at : 0;
    const size_t take = (size_t)(n < left ? n : left);
    int rc;
    if (s->first_read == UINT64_MAX)
        s->first_read = s->at;
    s->last_read = s->at;
    if (take == 0)
        return 0;
    const uint8_t *from = s->data + s->at;
    CKPT_GUARDED(rc, memcpy(data, from, take));
    if (rc) {
        zip_error_set(&s->error, ZIP_ER_READ, EIO);
        return -1;
    }
    s->at += take;
    return (zip_int64_t)take;
}

static zip_int64_t source_seek(struct source *s, void *data, zip_uint64_t n) {
    const zip_int64_t at = zip_source_seek_compute_offset(s->at, s->size, data, n, &s->error);
    if (at < 0)
        return -1;
    s->at = (uint64_t)at;
    return 0;
}

static zip_int64_t source_stat(const struct source *s, void *data, zip_uint64_t n) {
    struct zip_stat *st = data;
    if (n < sizeof *st)
        return -1;
    zip_stat_init(st);
    st->valid |= ZIP_STAT_SIZE;
    st->size = s->size;
    return sizeof *st;
}

static zip_int64_t source_call(void *user, void *data, zip_uint64_t n, zip_source_cmd_t cmd) {
    struct source *s = user;
    switch (cmd) {
    case ZIP_SOURCE_OPEN:
        s->at = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return source_read(s, data, n);
    case ZIP_SOURCE_SEEK:
        return source_seek(s, data, n);
    case ZIP_SOURCE_TELL:
        return (zip_int64_t)s->at;
    case ZIP_SOURCE_STAT:
        return source_stat(s, data, n);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&s->error, data, n);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE: /* the source is on our stack */
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS, -1);
    default:
        zip_error_set(&s->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

static void discard(zip_t **z) {
    if (*z)
        zip_discard(*z);
}
CKPT_DEFINE_AUTO(zip_archive, zip_t *, discard)

/* libzip converts each entry's date to local time, for which the C library looks whether
 * /etc/localtime has changed: 8/9 of the time to open an archive of 10,000 entries. It does not
 * look if TZ says the same in words. */
static void name_time_zone(void) {
    setenv("TZ", ":/etc/localtime", 0);
}

static int open_archive(struct source *s, zip_t **out, struct ckpt_err *err) {
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t *source = zip_source_function_create(source_call, s, &error);
    if (!source)
        return ckpt_fail_memory(err, "opening the ZIP archive");
    *out = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
    if (*out)
        return 0;
    const int code = zip_error_code_zip(&error);
    ckpt_fail(err, code == ZIP_ER_MEMORY ? -ENOMEM : -EINVAL, "damaged ZIP archive: %s",
              code == ZIP_ER_NOZIP    ? "it has no directory at its end; is the file cut short?"
              : code == ZIP_ER_EXISTS ? "two entries have the same name"
              : code == ZIP_ER_INCONS ? "its directory and its entries contradict one another"
              : code == ZIP_ER_SEEK || code == ZIP_ER_NOENT
                  ? "its directory points to where the file has nothing"
                  : zip_error_strerror(&error));
    zip_source_free(source);
    zip_error_fini(&error);
    return err ? err->code : -EINVAL;
}

/* Makes libzip look at entry i: first at the lengths in its local header, last at its data. */
static bool make_libzip_look(zip_t *z, zip_uint64_t i) {
    char byte;
    zip_file_t *f = zip_fopen_index(z, i, ZIP_FL_COMPRESSED);
    const bool done = f && zip_fread(f, &byte, 1) == 1;
    if (f)
        zip_fclose(f);
    return done;
}

/* An empty entry stays at 0: libzip has compared its headers and nobody ever reads a byte of it. */
static int locate(const struct ckpt_zip *zip, zip_t *z, zip_uint64_t i, struct source *s,
                  struct ckpt_zip_entry *e, struct ckpt_err *err) {
    uint8_t lengths[4];
    if (e->stored == 0)
        return 0;
    s->first_read = UINT64_MAX;
    if (!make_libzip_look(z, i) || s->first_read < LOCAL_HEADER_LENGTHS ||
        s->first_read > s->size - sizeof lengths)
        return ckpt_fail(err, -EINVAL, "ZIP entry \"%.*s\" can't be read: %s",
                         CKPT_TEXT_ARGS(e->name), zip_strerror(z));
    const int rc = ckpt_mapped_copy(lengths, s->data + s->first_read, sizeof lengths, err);
    if (rc)
        return rc;
    struct ckpt_buf b = {.p = lengths, .n = sizeof lengths};
    e->header = zip->begin + s->first_read - LOCAL_HEADER_LENGTHS;
    e->data = e->header + LOCAL_HEADER_BYTES;
    e->data += ckpt_buf_u16(&b);
    e->data += ckpt_buf_u16(&b);
    if (zip->begin + s->last_read != e->data)
        return ckpt_fail(err, -EINVAL, "ZIP entry \"%.*s\" has a damaged local header",
                         CKPT_TEXT_ARGS(e->name));
    return 0;
}

static int take_name(struct ckpt_zip *zip, struct ckpt_arena *arena, size_t i, const char *name,
                     struct ckpt_err *err) {
    struct ckpt_zip_entry *e = &zip->entry[i];
    e->name = ckpt_text_copy(arena, name, strlen(name));
    if (!e->name.s)
        return ckpt_fail_memory(err, "listing the ZIP archive");
    const int rc = ckpt_strmap_add(&zip->by_name, e->name, i, NULL);
    if (rc == -EEXIST)
        return ckpt_fail(err, -EINVAL, "two ZIP entries are named \"%.*s\"",
                         CKPT_TEXT_ARGS(e->name));
    return rc ? ckpt_fail_memory(err, "listing the ZIP archive") : 0;
}

#define STAT_NEEDED                                                                                \
    (ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD |                   \
     ZIP_STAT_ENCRYPTION_METHOD)

static int take_entry(struct ckpt_zip *zip, struct ckpt_arena *arena, zip_t *z, struct source *s,
                      size_t i, struct ckpt_err *err) {
    struct ckpt_zip_entry *e = &zip->entry[i];
    struct zip_stat st;
    if (zip_stat_index(z, i, ZIP_FL_ENC_RAW, &st) != 0 || (st.valid & STAT_NEEDED) != STAT_NEEDED)
        return ckpt_fail(err, -EINVAL, "ZIP entry %zu can't be read: %s", i, zip_strerror(z));
    const int rc = take_name(zip, arena, i, st.name, err);
    if (rc)
        return rc;
    e->stored = st.comp_size;
    e->size = st.size;
    e->crc = st.valid & ZIP_STAT_CRC ? st.crc : 0;
    e->deflated = st.comp_method == ZIP_CM_DEFLATE;
    if (st.encryption_method != ZIP_EM_NONE)
        return ckpt_fail(err, -EINVAL, "ZIP entry \"%.*s\" is encrypted, which is not supported",
                         CKPT_TEXT_ARGS(e->name));
    if (st.comp_method != ZIP_CM_STORE && st.comp_method != ZIP_CM_DEFLATE)
        return ckpt_fail(err, -EINVAL,
                         "ZIP entry \"%.*s\" uses compression method %u; only stored and deflated "
                         "entries are supported",
                         CKPT_TEXT_ARGS(e->name), st.comp_method);
    return locate(zip, z, i, s, e, err);
}

int ckpt_zip_open(const struct ckpt_file *file, struct ckpt_arena *arena, struct ckpt_zip *zip,
                  struct ckpt_err *err) {
    return ckpt_zip_open_range(file, 0, file->size, arena, zip, err);
}

int ckpt_zip_open_range(const struct ckpt_file *file, uint64_t offset, uint64_t size,
                        struct ckpt_arena *arena, struct ckpt_zip *zip, struct ckpt_err *err) {
    CKPT_AUTO(zip_archive) zip_t *z = NULL;
    *zip = (struct ckpt_zip){.file = file};
    if (offset > file->size || size > file->size - offset)
        return ckpt_fail(
            err, -EINVAL, "a ZIP archive of %llu bytes at %llu ends behind the file's %llu",
            (unsigned long long)size, (unsigned long long)offset, (unsigned long long)file->size);
    zip->begin = offset;
    zip->end = offset + size;
    struct source s = {.data = file->data + offset, .size = size, .first_read = UINT64_MAX};
    zip_error_init(&s.error);
    name_time_zone();
    int rc = ckpt_zip_check_end(zip, err);
    if (rc == 0)
        rc = open_archive(&s, &z, err);
    if (rc)
        return rc;
    const zip_int64_t n = zip_get_num_entries(z, 0);
    if (n <= 0)
        return ckpt_fail(err, -EINVAL, "the ZIP archive has no entries");
    zip->entry = ckpt_arena_array(arena, (size_t)n, sizeof *zip->entry);
    if (!zip->entry)
        return ckpt_fail_memory(err, "listing the ZIP archive");
    for (; rc == 0 && zip->nentries < (size_t)n; zip->nentries++)
        rc = take_entry(zip, arena, z, &s, zip->nentries, err);
    return rc ? rc : ckpt_zip_check(zip, err);
}

void ckpt_zip_fini(struct ckpt_zip *zip) {
    ckpt_strmap_fini(&zip->by_name);
    *zip = (struct ckpt_zip){0};
}

const struct ckpt_zip_entry *ckpt_zip_find(const struct ckpt_zip *zip, struct ckpt_text name) {
    const size_t i = ckpt_strmap_get(&zip->by_name, name);
    return i == CKPT_STRMAP_ABSENT ? NULL : &zip->entry[i];
}
