#include "formats/torch.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/mapped.h"

/*
 * The stream of torch.save before 1.6 (and with _use_new_zipfile_serialization=False):
 *
 *     pickle: magic │ pickle: 1001 │ pickle: system │ pickle: object │ pickle: [key, key, ...] │
 *     int64 count, bytes of the first key │ int64 count, bytes of the second │ ...
 *
 * The same stream also lies in the bytes that torch.storage._load_from_bytes is given; its object
 * is then a storage.
 */

#define MAGIC_DIGITS "119547037146038801333356" /* 0x1950a86a20f9469cfc6c */
#define PROTOCOL_VERSION 1001
#define MAGIC_BYTES_MAX 64 /* more than any protocol needs for the magic number */

/* Protocols 0 and 1 begin without a header, with the number in decimal. */
static bool may_be_magic(uint8_t first) {
    return first == 0x80 || first == 'L';
}

/* Of a file's own bytes, so a copy of them is what is looked at. */
static bool is_magic(const uint8_t *bytes, size_t n) {
    struct ckpt_arena scratch = {0};
    struct ckpt_value *v = NULL;
    uint8_t head[MAGIC_BYTES_MAX];
    size_t consumed;
    const size_t most = n < sizeof head ? n : sizeof head;
    const bool is = n > 2 && ckpt_mapped_copy(head, bytes, most, NULL) == 0 &&
                    may_be_magic(head[0]) &&
                    ckpt_pickle_run(head, most, NULL, &scratch, &consumed, &v, NULL) == 0 &&
                    v->kind == CKPT_VALUE_BIGINT && ckpt_text_is(v->text, MAGIC_DIGITS);
    ckpt_arena_fini(&scratch);
    return is;
}

static bool detect(const char *source, const struct ckpt_file *file) {
    (void)source;
    return file && is_magic(file->data, file->size);
}

/* --- head ------------------------------------------------------------------------------------ */

/* torch ignores what is said of the writer's machine, and always wrote little-endian storages. */
static int check_system(struct torch_stream *s, const struct ckpt_value *system,
                        struct ckpt_err *err) {
    const struct ckpt_value *little = ckpt_value_get(system, "little_endian");
    if (!little || little->kind != CKPT_VALUE_BOOL || little->b)
        return 0;
    const int rc =
        ckpt_checkpoint_warn(s->r->c, "the file says that a big-endian machine wrote it; "
                                      "its numbers are read as little-endian, as torch does");
    return rc ? ckpt_fail_memory(err, "reading the checkpoint") : 0;
}

static int read_head(struct torch_stream *s, struct ckpt_err *err) {
    struct ckpt_value *v;
    int rc = torch_stream_pickle(s, "the magic number", NULL, &v, err);
    if (rc == 0)
        rc = torch_stream_pickle(s, "the protocol version", NULL, &v, err);
    if (rc)
        return rc;
    if (v->kind != CKPT_VALUE_INT || v->i != PROTOCOL_VERSION)
        return ckpt_fail(err, -EINVAL, "a legacy torch file of protocol version %lld, expected %d",
                         v->kind == CKPT_VALUE_INT ? (long long)v->i : -1LL, PROTOCOL_VERSION);
    rc = torch_stream_pickle(s, "the system information", NULL, &v, err);
    return rc ? rc : check_system(s, v, err);
}

/* ('module', class, file, source text) stands where the class would, and is the class. */
static bool is_module_id(const struct ckpt_value *id) {
    return id->kind == CKPT_VALUE_TUPLE && id->seq.n >= 2 &&
           id->seq.item[0]->kind == CKPT_VALUE_STR && ckpt_text_is(id->seq.item[0]->text, "module");
}

static int persistent_id(void *user, const struct ckpt_value *id, struct ckpt_value **out,
                         struct ckpt_err *err) {
    if (!is_module_id(id))
        return torch_storage_from_id(user, id, true, out, err);
    *out = id->seq.item[1];
    return 0;
}

/* --- storages --------------------------------------------------------------------------------- */

/* torch_reader.locate: their places are known only after the pickles. */
static int locate_later(struct torch_reader *r, struct torch_record *record, struct ckpt_err *err) {
    record->error = "the file holds no bytes of its storage";
    (void)r;
    (void)err;
    return 0;
}

static int read_storage(struct torch_stream *s, struct torch_record *record, struct ckpt_err *err) {
    uint64_t count;
    const int rc = torch_stream_int(s, 8, &count, err);
    if (rc)
        return rc;
    if (count != record->nbytes / record->element)
        return ckpt_fail(err, -EINVAL,
                         "storage \"%.*s\" holds %lld elements where the pickle says %llu",
                         CKPT_TEXT_ARGS(record->key), (long long)count,
                         (unsigned long long)(record->nbytes / record->element));
    record->error = NULL;
    return torch_stream_blob(s, record, err);
}

static struct ckpt_text key_text(struct ckpt_arena *a, const struct ckpt_value *key) {
    return key->kind == CKPT_VALUE_STR || key->kind == CKPT_VALUE_INT
               ? ckpt_value_path_segment(a, key)
               : (struct ckpt_text){NULL, 0};
}

static int read_storages(struct torch_stream *s, const struct ckpt_value *keys,
                         struct ckpt_err *err) {
    struct torch_reader *r = s->r;
    if (keys->kind != CKPT_VALUE_LIST)
        return ckpt_fail(err, -EINVAL, "what should be the list of storage keys is not a list");
    for (size_t i = 0; i < keys->seq.n; i++) {
        const struct ckpt_text key = key_text(&r->c->arena, keys->seq.item[i]);
        const size_t at = key.s ? ckpt_strmap_get(&r->by_key, key) : CKPT_STRMAP_ABSENT;
        if (at == CKPT_STRMAP_ABSENT)
            return ckpt_fail(err, -EINVAL,
                             "the list of storages names \"%.*s\", which the pickle never mentions",
                             key.s ? (int)key.n : 1, key.s ? key.s : "?");
        if (r->records[at]->blob)
            return ckpt_fail(err, -EINVAL, "the list of storages names \"%.*s\" twice",
                             CKPT_TEXT_ARGS(key));
        const int rc = read_storage(s, r->records[at], err);
        if (rc)
            return rc;
    }
    return 0;
}

typedef int nested_fn(void *user, struct ckpt_text bytes, struct ckpt_value **out,
                      struct ckpt_err *err);

static int read_stream(struct torch_stream *s, nested_fn *nested, struct ckpt_value **root,
                       struct ckpt_err *err) {
    const struct ckpt_pickle_hooks hooks = {.user = s->r,
                                            .persistent_id = persistent_id,
                                            .nested_storage = nested,
                                            .globals = &s->r->c->globals};
    struct ckpt_value *keys;
    int rc = read_head(s, err);
    if (rc == 0)
        rc = torch_stream_pickle(s, "the object", &hooks, root, err);
    if (rc == 0)
        rc = torch_stream_pickle(s, "the list of storages", NULL, &keys, err);
    return rc ? rc : read_storages(s, keys, err);
}

/* The stream in those bytes of a pickle: where they lie in the file, if that is known. */
static struct torch_stream nested_stream(const struct torch_reader *outer,
                                         struct torch_reader *inner, struct ckpt_text bytes) {
    struct torch_stream s = {.list = "storages", .r = inner};
    uint64_t offset;
    if (torch_pickle_place(outer, bytes, &offset)) {
        s.file = outer->file;
        s.bytes = outer->file->data;
        s.pos = (size_t)offset;
    } else {
        s.bytes = (const uint8_t *)bytes.s;
    }
    s.n = s.pos + bytes.n;
    return s;
}

/* Bytes that are no such stream torch would unpickle all the same: they are run for the list of
 * names that they hold, and for nothing else. */
int torch_legacy_nested(void *user, struct ckpt_text bytes, struct ckpt_value **out,
                        struct ckpt_err *err) {
    struct torch_reader *outer = user;
    CKPT_AUTO(torch_reader)
    struct torch_reader inner = {.c = outer->c, .options = outer->options, .locate = locate_later};
    struct torch_stream s = nested_stream(outer, &inner, bytes);
    struct ckpt_value *root = NULL;
    struct ckpt_err ignored;
    (void)err;
    const int rc = is_magic(s.bytes + s.pos, s.n - s.pos)
                       ? read_stream(&s, NULL, &root, &ignored)
                       : torch_stream_pickle(&s, "nested bytes", NULL, &root, &ignored);
    if (rc == 0 && root->kind == CKPT_PICKLE_STORAGE)
        *out = root; /* else the call stays opaque */
    return 0;
}

static int read_file(struct ckpt_checkpoint *c, const char *source,
                     const struct ckpt_open_options *options, struct ckpt_err *err) {
    CKPT_AUTO(torch_reader)
    struct torch_reader r = {
        .c = c, .options = options, .file = c->files[0], .locate = locate_later};
    struct torch_stream s = {.list = "storages",
                             .r = &r,
                             .file = r.file,
                             .bytes = r.file->data,
                             .n = (size_t)r.file->size};
    struct ckpt_value *root;
    (void)source;
    c->format = ckpt_format_torch_legacy.name;
    c->is_torch = true;
    const int rc = read_stream(&s, torch_legacy_nested, &root, err);
    return rc ? rc : torch_tree_read(&r, root, err);
}

const struct ckpt_format ckpt_format_torch_legacy = {
    .name = "torch-legacy", .detect = detect, .read = read_file};
