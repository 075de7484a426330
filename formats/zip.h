#ifndef CKPT_FORMATS_ZIP_H
#define CKPT_FORMATS_ZIP_H
/*
 * A ZIP archive in a mapped file. libzip opens and checks it (ZIP64, comments, extra fields,
 * consistency of both kinds of header) through a source of ours that reads the mapping; we never
 * parse a central directory ourselves. What libzip has no call for is where an entry's bytes lie.
 * It must seek there, though, to read them: so each entry is opened once and our source watches
 * where.
 *
 *     mapped file ◄── source (zip.c: open, seek, read) ◄── libzip
 *                            └── last offset read ──► entry->header, entry->data
 *
 * zip_check.c then holds every entry against the rules that a checkpoint must keep; zip_blob.c
 * makes blobs of entries. All is immutable after opening. Opening is not thread-safe (libzip 1.7
 * has a race between concurrent opens); everything else is.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/strmap.h"
#include "formats/blob.h"
#include "formats/file.h"

struct ckpt_decoded_cache;

struct ckpt_zip_entry {
    struct ckpt_text name; /* as stored */
    uint64_t header;       /* byte of the file: its local header; 0 if it is empty */
    uint64_t data;         /* byte of the file: its first data byte; 0 if it is empty */
    uint64_t stored;       /* bytes in the file */
    uint64_t size;         /* bytes when inflated */
    uint32_t crc;          /* 0: not computed by the writer */
    bool deflated;
};

struct ckpt_zip {
    const struct ckpt_file *file;
    uint64_t begin, end;          /* the bytes of the file that are the archive */
    struct ckpt_zip_entry *entry; /* in the order of the directory */
    size_t nentries;
    struct ckpt_strmap by_name; /* -> index in entry */
};

/* Opens and checks; entries and names live in the arena. */
int ckpt_zip_open(const struct ckpt_file *file, struct ckpt_arena *arena, struct ckpt_zip *zip,
                  struct ckpt_err *err) CKPT_CHECKED;
/* The same for an archive that lies inside the file, as a stored entry of another one does. */
int ckpt_zip_open_range(const struct ckpt_file *file, uint64_t offset, uint64_t size,
                        struct ckpt_arena *arena, struct ckpt_zip *zip,
                        struct ckpt_err *err) CKPT_CHECKED;
void ckpt_zip_fini(struct ckpt_zip *zip);
#define ckpt_auto_zip ckpt_zip_fini

/* The entry of that name, or NULL. */
const struct ckpt_zip_entry *ckpt_zip_find(const struct ckpt_zip *zip, struct ckpt_text name);

/* A small entry whole, in the arena, its checksum compared (unless the field is 0). Over max bytes:
 * -E2BIG. */
int ckpt_zip_read(const struct ckpt_zip *zip, const struct ckpt_zip_entry *e, uint64_t max,
                  struct ckpt_arena *arena, struct ckpt_text *out,
                  struct ckpt_err *err) CKPT_CHECKED;

/* A blob of the entry's bytes: in place in the file if stored, inflated when it is pinned
 * and kept by the cache (NULL where nothing is deflated) if deflated. `name` is for messages. */
int ckpt_zip_blob(const struct ckpt_zip *zip, const struct ckpt_zip_entry *e,
                  struct ckpt_decoded_cache *cache, struct ckpt_arena *arena, const char *name,
                  struct ckpt_blob **out, struct ckpt_err *err) CKPT_CHECKED;

/* zip_check.c, called by ckpt_zip_open: the rules of zip_check.c's opening comment. */
int ckpt_zip_check(const struct ckpt_zip *zip, struct ckpt_err *err) CKPT_CHECKED;

#endif
