#include "formats/torch.h"

#include <errno.h>

#include "base/buf.h"
#include "formats/mapped.h"

/* Pickles and the bytes of storages that lie one behind the other, as in legacy files and in the
 * members of TAR containers. */

/* How many of the n bytes at `from` the pickle there takes; 0 if it has no end. */
static int measure(const uint8_t *from, size_t n, size_t *out, struct ckpt_err *err) {
    volatile size_t length = 0;
    int rc;
    CKPT_GUARDED(rc, length = ckpt_pickle_length(from, n));
    *out = length;
    return rc ? ckpt_mapped_lost(err) : 0;
}

/* The bytes of the next pickle, out of reach of whoever shrinks the file: values refer to them. One
 * that has no end is given with what follows, for the machine to say where it breaks. */
static int next_pickle(struct torch_stream *s, struct ckpt_text *out, struct ckpt_err *err) {
    const uint8_t *from = s->bytes + s->pos;
    const size_t left = s->n - s->pos;
    const size_t most = left < CKPT_LIMIT_PICKLE_BYTES ? left : CKPT_LIMIT_PICKLE_BYTES;
    size_t length;
    const int rc = measure(from, most, &length, err);
    const size_t n = length ? length : most;
    if (rc)
        return rc;
    *out = (struct ckpt_text){(const char *)from, n};
    if (!s->file)
        return 0;
    char *copy = ckpt_arena_alloc(&s->r->c->arena, n + 1);
    if (!copy)
        return ckpt_fail_memory(err, "reading the pickle");
    out->s = copy;
    return ckpt_mapped_copy(copy, from, n, err);
}

int torch_stream_pickle(struct torch_stream *s, const char *what,
                        const struct ckpt_pickle_hooks *hooks, struct ckpt_value **out,
                        struct ckpt_err *err) {
    const struct ckpt_pickle_hooks none = {.globals = &s->r->c->globals};
    struct ckpt_text bytes;
    size_t consumed;
    int rc = next_pickle(s, &bytes, err);
    if (rc == 0)
        rc = ckpt_pickle_run((const uint8_t *)bytes.s, bytes.n, hooks ? hooks : &none,
                             &s->r->c->arena, &consumed, out, err);
    if (rc)
        return ckpt_fail_in(err, "%s at byte %zu", what, s->pos);
    s->pos += consumed;
    return 0;
}

int torch_stream_int(struct torch_stream *s, unsigned bytes, uint64_t *out, struct ckpt_err *err) {
    struct ckpt_buf in = {.p = s->bytes, .n = s->n, .pos = s->pos};
    volatile uint64_t value = 0;
    int rc;
    CKPT_GUARDED(rc, value = ckpt_buf_le(&in, bytes));
    if (rc)
        return ckpt_mapped_lost(err);
    if (in.failed)
        return ckpt_fail(err, -EINVAL, "the file ends at byte %zu, in the list of %s: cut short?",
                         s->n, s->list);
    s->pos = in.pos;
    *out = value;
    return 0;
}

int torch_stream_blob(struct torch_stream *s, struct torch_record *record, struct ckpt_err *err) {
    struct ckpt_arena *a = &s->r->c->arena;
    if (record->nbytes > s->n - s->pos)
        return ckpt_fail(
            err, -EINVAL,
            "storage \"%.*s\" needs %llu bytes at byte %zu, the file ends at %zu: cut short?",
            CKPT_TEXT_ARGS(record->key), (unsigned long long)record->nbytes, s->pos, s->n);
    const char *name = ckpt_arena_printf(a, "storage %.*s", CKPT_TEXT_ARGS(record->key));
    if (!name)
        return ckpt_fail_memory(err, "listing storages");
    const size_t at = s->pos;
    s->pos += (size_t)record->nbytes;
    return s->file ? ckpt_blob_extent(a, s->file, at, record->nbytes, name, &record->blob, err)
                   : ckpt_blob_owned(a, s->bytes + at, record->nbytes, name, &record->blob, err);
}
