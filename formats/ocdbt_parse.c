/*
 * The bytes of manifests and nodes, as formats/ocdbt.h draws them. Every count is checked against
 * the bytes that are left before anything is allocated: an item takes a byte in each column.
 */
#include "formats/ocdbt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/crc32c.h"
#include "base/size.h"
#include "formats/decompress.h"
#include "formats/limits.h"

#define HEADER 12u /* bytes before the first LEB128 */
#define CHECKSUM 4u
#define UUID 16u

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading the database");
}

static int fail_short(struct ckpt_err *err) {
    return ckpt_fail(err, -EINVAL, "ends early or counts more than it holds: it is damaged");
}

static int fail_path(struct ckpt_err *err, const char *what) {
    return ckpt_fail(err, -E2BIG, "has a %s of more than %u bytes (limit of database paths)", what,
                     CKPT_LIMIT_OCDBT_PATH);
}

/* LEB128; beyond 64 bits it fails. */
static uint64_t take_varint(struct ckpt_buf *b) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = ckpt_buf_u8(b);
        if (shift == 63 && byte > 1)
            break;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return v;
    }
    b->failed = true;
    return 0;
}

/* The next n integers, in the arena. NULL: they are not there, or out of memory (b has not failed).
 */
static uint64_t *take_column(struct ckpt_buf *b, struct ckpt_arena *a, uint64_t n) {
    if (n > ckpt_buf_left(b)) {
        b->failed = true;
        return NULL;
    }
    uint64_t *const column = ckpt_arena_array(a, (size_t)n, sizeof *column);
    for (uint64_t i = 0; column && i < n; i++)
        column[i] = take_varint(b);
    return b->failed ? NULL : column;
}

static int fail_column(const struct ckpt_buf *b, struct ckpt_err *err) {
    return b->failed ? fail_short(err) : fail_memory(err);
}

/* --- the envelope ----------------------------------------------------------------------------- */

int ckpt_ocdbt_unwrap(const void *bytes, size_t n, enum ckpt_ocdbt_magic magic, uint64_t limit,
                      uint8_t **body, size_t *body_n, struct ckpt_err *err) {
    struct ckpt_buf b = {.p = bytes, .n = n};
    const uint32_t found = __builtin_bswap32(ckpt_buf_u32(&b));
    const uint64_t length = ckpt_buf_u64(&b);
    if (b.failed || n < HEADER + 2 + CHECKSUM)
        return ckpt_fail(err, -EINVAL, "has only %zu bytes: it is truncated", n);
    if (found != magic)
        return ckpt_fail(err, -EINVAL, "begins with %08" PRIx32 ", expected %08x", found,
                         (unsigned)magic);
    if (length != n)
        return ckpt_fail(err, -EINVAL, "says that it has %" PRIu64 " bytes, but has %zu", length,
                         n);
    b.n -= CHECKSUM;
    const uint32_t crc = ckpt_crc32c(0, bytes, b.n);
    struct ckpt_buf end = {.p = b.p + b.n, .n = CHECKSUM};
    const uint32_t stored = ckpt_buf_u32(&end);
    if (crc != stored)
        return ckpt_fail(err, -EINVAL,
                         "its checksum (CRC-32C) is %08" PRIx32 ", it says %08" PRIx32
                         ": it is damaged",
                         crc, stored);
    const uint64_t version = take_varint(&b), compression = take_varint(&b);
    if (b.failed || version != 0 || compression > 1)
        return ckpt_fail(err, -EINVAL,
                         "has version %" PRIu64 " and compression %" PRIu64 ", which are not known",
                         version, compression);
    const struct ckpt_stored value = ckpt_stored_memory(b.p + b.pos, ckpt_buf_left(&b));
    return ckpt_decompress_all(compression ? CKPT_COMPRESSION_ZSTD : CKPT_COMPRESSION_NONE, &value,
                               limit, body, body_n, NULL, err);
}

/* --- files ------------------------------------------------------------------------------------ */

/* A path that stays below the database's folder, whatever it begins with. */
static bool is_below(struct ckpt_text path) {
    if (path.n > CKPT_LIMIT_OCDBT_PATH || memchr(path.s, '\0', path.n) ||
        (path.n && path.s[0] == '/'))
        return false;
    for (size_t at = 0; at < path.n;) {
        const char *const slash = memchr(path.s + at, '/', path.n - at);
        const size_t end = slash ? (size_t)(slash - path.s) : path.n;
        if (end - at == 2 && memcmp(path.s + at, "..", 2) == 0)
            return false;
        at = end + 1;
    }
    return true;
}

/* The text base + s[:n]. */
static struct ckpt_text join(struct ckpt_arena *a, struct ckpt_text base, const char *s, size_t n) {
    char *const text = ckpt_arena_alloc(a, base.n + n + 1);
    if (!text)
        return (struct ckpt_text){0};
    memcpy(text, base.s, base.n);
    if (n)
        memcpy(text + base.n, s, n);
    return (struct ckpt_text){text, base.n + n};
}

static int add_file(struct ckpt_ocdbt_file *f, struct ckpt_arena *a, struct ckpt_text base,
                    const char *path, size_t n, uint64_t base_n, struct ckpt_err *err) {
    if (base_n > n)
        return fail_short(err);
    f->path = join(a, base, path, n);
    f->base = (struct ckpt_text){f->path.s, base.n + (size_t)base_n};
    if (!f->path.s)
        return fail_memory(err);
    return is_below(f->path) ? 0
                             : ckpt_fail(err, -EINVAL,
                                         "refers to the file \"%.*s\", which is not below the "
                                         "database's folder",
                                         CKPT_TEXT_ARGS(f->path));
}

static int parse_files(struct ckpt_buf *b, struct ckpt_text base, struct ckpt_arena *a,
                       struct ckpt_ocdbt_files *out, struct ckpt_err *err) {
    const uint64_t n = take_varint(b);
    if (n > CKPT_LIMIT_OCDBT_ENTRIES)
        return ckpt_fail(err, -E2BIG, "refers to more than %u files (limit of database entries)",
                         CKPT_LIMIT_OCDBT_ENTRIES);
    const uint64_t *const prefix = take_column(b, a, n ? n - 1 : 0);
    const uint64_t *const suffix = prefix ? take_column(b, a, n) : NULL;
    const uint64_t *const based = suffix ? take_column(b, a, n) : NULL;
    out->file = based ? ckpt_arena_array(a, (size_t)n, sizeof *out->file) : NULL;
    if (!out->file)
        return fail_column(b, err);
    char path[CKPT_LIMIT_OCDBT_PATH];
    size_t length = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t kept = i ? prefix[i - 1] : 0;
        const uint8_t *const more = ckpt_buf_take(b, suffix[i]);
        if (!more || kept > length)
            return fail_short(err);
        if (suffix[i] > sizeof path - kept)
            return fail_path(err, "file's name");
        memcpy(path + kept, more, (size_t)suffix[i]);
        length = (size_t)(kept + suffix[i]);
        const int rc = add_file(&out->file[i], a, base, path, length, based[i], err);
        if (rc)
            return rc;
    }
    out->n = (size_t)n;
    return 0;
}

/* --- the manifest ----------------------------------------------------------------------------- */

/* What only writers need: limits and compression. */
static bool skip_config(struct ckpt_buf *b) {
    take_varint(b); /* most bytes of an inline value */
    take_varint(b); /* of a decoded node */
    ckpt_buf_u8(b);
    const uint64_t compression = take_varint(b);
    if (compression == 1)
        ckpt_buf_u32(b);
    return !b->failed && compression <= 1;
}

/* The last of n versions is the newest. Columns are walked over, only their last items kept. */
static uint64_t last_of_column(struct ckpt_buf *b, uint64_t n) {
    uint64_t v = 0;
    for (uint64_t i = 0; i < n && !b->failed; i++)
        v = take_varint(b);
    return v;
}

static int parse_versions(struct ckpt_buf *b, struct ckpt_ocdbt_manifest *m, struct ckpt_err *err) {
    const uint64_t n = take_varint(b);
    if (n > ckpt_buf_left(b))
        return fail_short(err);
    m->generation = last_of_column(b, n);
    const uint8_t *const heights = ckpt_buf_take(b, n);
    m->root.file = last_of_column(b, n);
    m->root.offset = last_of_column(b, n);
    m->root.length = last_of_column(b, n);
    m->keys = last_of_column(b, n);
    last_of_column(b, n); /* bytes of the tree */
    last_of_column(b, n); /* bytes of its values */
    ckpt_buf_take(b, n * 8);
    m->has_version = n > 0;
    if (b->failed || !heights)
        return fail_short(err);
    m->height = n ? heights[n - 1] : 0;
    return 0;
}

/* Versions that were moved to nodes of their own are older than the ones in the manifest. */
static void skip_version_nodes(struct ckpt_buf *b) {
    const uint64_t n = take_varint(b);
    if (n > ckpt_buf_left(b)) {
        b->failed = true;
        return;
    }
    for (int column = 0; column < 5; column++)
        last_of_column(b, n); /* generation, file, offset, length, number of generations */
    ckpt_buf_take(b, n * 8);
    ckpt_buf_take(b, n);
}

int ckpt_ocdbt_parse_manifest(const void *body, size_t n, struct ckpt_arena *a,
                              struct ckpt_ocdbt_manifest *out, struct ckpt_err *err) {
    struct ckpt_buf b = {.p = body, .n = n};
    *out = (struct ckpt_ocdbt_manifest){0};
    ckpt_buf_take(&b, UUID);
    const uint8_t kind = ckpt_buf_u8(&b);
    if (kind > 1 || !skip_config(&b))
        return b.failed ? fail_short(err)
                        : ckpt_fail(err, -EINVAL, "is of a kind or compression that is not known");
    out->is_numbered = kind == 1;
    if (!out->is_numbered) {
        int rc = parse_files(&b, CKPT_TEXT(""), a, &out->files, err);
        if (rc == 0)
            rc = parse_versions(&b, out, err);
        if (rc)
            return rc;
        skip_version_nodes(&b);
    }
    return b.failed || ckpt_buf_left(&b) ? fail_short(err) : 0;
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* Keys share their beginnings with the one before; each is a text of its own here. */
static int parse_keys(struct ckpt_buf *b, struct ckpt_arena *a, struct ckpt_ocdbt_node *node,
                      struct ckpt_err *err) {
    const uint64_t n = node->n;
    const uint64_t *const prefix = take_column(b, a, n - 1);
    const uint64_t *const suffix = prefix ? take_column(b, a, n) : NULL;
    const uint64_t *const common =
        suffix && node->height > 0 ? take_column(b, a, n) : suffix; /* of the child's keys */
    if (!common)
        return fail_column(b, err);
    struct ckpt_text last = CKPT_TEXT("");
    uint64_t total = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct ckpt_ocdbt_entry *const e = &node->entry[i];
        const uint64_t kept = i ? prefix[i - 1] : 0;
        const uint8_t *const more = ckpt_buf_take(b, suffix[i]);
        if (!more || kept > last.n)
            return fail_short(err);
        if (kept + suffix[i] > CKPT_LIMIT_OCDBT_PATH)
            return fail_path(err, "key");
        total += kept + suffix[i];
        if (total > CKPT_LIMIT_KV_KEY_BYTES)
            return ckpt_fail(err, -E2BIG, "its keys have more than %u bytes (limit of key bytes)",
                             CKPT_LIMIT_KV_KEY_BYTES);
        e->key = join(a, (struct ckpt_text){last.s, (size_t)kept}, (const char *)more,
                      (size_t)suffix[i]);
        if (!e->key.s)
            return fail_memory(err);
        if (i && ckpt_text_cmp(last, e->key) >= 0)
            return ckpt_fail(err, -EINVAL, "its keys are not in order: it is damaged");
        e->prefix = node->height > 0 ? (size_t)common[i] : 0;
        if (node->height > 0 && common[i] > e->key.n)
            return fail_short(err);
        last = e->key;
    }
    return 0;
}

static int check_file(const struct ckpt_ocdbt_node *node, uint64_t file, struct ckpt_err *err) {
    return file < node->files.n
               ? 0
               : ckpt_fail(err, -EINVAL, "refers to file %" PRIu64 " of %zu: it is damaged", file,
                           node->files.n);
}

static int parse_children(struct ckpt_buf *b, struct ckpt_ocdbt_node *node, struct ckpt_err *err) {
    const size_t n = node->n;
    for (size_t i = 0; i < n; i++)
        node->entry[i].ref.file = take_varint(b);
    for (size_t i = 0; i < n; i++)
        node->entry[i].ref.offset = take_varint(b);
    for (size_t i = 0; i < n; i++)
        node->entry[i].ref.length = take_varint(b);
    for (int statistic = 0; statistic < 3; statistic++)
        last_of_column(b, n);
    int rc = b->failed ? fail_short(err) : 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = check_file(node, node->entry[i].ref.file, err);
    return rc;
}

static int parse_values(struct ckpt_buf *b, struct ckpt_ocdbt_node *node, struct ckpt_err *err) {
    const size_t n = node->n;
    for (size_t i = 0; i < n; i++)
        node->entry[i].ref.length = take_varint(b);
    const uint8_t *const kind = ckpt_buf_take(b, n);
    if (!kind)
        return fail_short(err);
    for (size_t i = 0; i < n; i++)
        if (kind[i] > 1)
            return ckpt_fail(err, -EINVAL, "has a value of the unknown kind %u", kind[i]);
    for (size_t i = 0; i < n; i++)
        node->entry[i].ref.file = kind[i] ? take_varint(b) : 0;
    for (size_t i = 0; i < n; i++)
        node->entry[i].ref.offset = kind[i] ? take_varint(b) : 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_ocdbt_entry *const e = &node->entry[i];
        if (kind[i])
            rc = check_file(node, e->ref.file, err);
        else if (!(e->value = ckpt_buf_take(b, e->ref.length)))
            rc = fail_short(err);
    }
    return rc ? rc : b->failed ? fail_short(err) : 0;
}

int ckpt_ocdbt_parse_node(const void *body, size_t n, struct ckpt_text base, struct ckpt_arena *a,
                          struct ckpt_ocdbt_node *out, struct ckpt_err *err) {
    struct ckpt_buf b = {.p = body, .n = n};
    *out = (struct ckpt_ocdbt_node){.height = ckpt_buf_u8(&b)};
    int rc = parse_files(&b, base, a, &out->files, err);
    if (rc)
        return rc;
    const uint64_t entries = take_varint(&b);
    if (entries > CKPT_LIMIT_OCDBT_ENTRIES)
        return ckpt_fail(err, -E2BIG, "has more than %u entries (limit of database entries)",
                         CKPT_LIMIT_OCDBT_ENTRIES);
    if (b.failed || entries == 0 || entries > ckpt_buf_left(&b))
        return fail_short(err);
    out->n = (size_t)entries;
    out->entry = ckpt_arena_array(a, out->n, sizeof *out->entry);
    if (!out->entry)
        return fail_memory(err);
    rc = parse_keys(&b, a, out, err);
    if (rc == 0)
        rc = out->height > 0 ? parse_children(&b, out, err) : parse_values(&b, out, err);
    if (rc)
        return rc;
    return ckpt_buf_left(&b)
               ? ckpt_fail(err, -EINVAL, "has %zu bytes too many: it is damaged", ckpt_buf_left(&b))
               : 0;
}
