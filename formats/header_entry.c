#include "formats/header_entry.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ckpt_header_entry_fault(struct ckpt_header_entry_reader *r, const char *fmt, ...) {
    if (r->is_faulty)
        return;
    char text[CKPT_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->is_faulty = true;
    ckpt_fail(&r->fault, -EINVAL, "tensor \"%.*s\": %s", CKPT_TEXT_ARGS(r->entry->key), text);
}

int ckpt_header_entry_settle(struct ckpt_header_entry_reader *r) {
    if (!r->is_faulty)
        return 0;
    r->is_faulty = false;
    if (!r->keep_going)
        return ckpt_fail(r->err, r->fault.code, "%s", r->fault.text);
    r->entry->fault = ckpt_arena_copy(r->arena, r->fault.text, strlen(r->fault.text));
    return r->entry->fault ? 0 : ckpt_fail_memory(r->err, "reading the header");
}

const char *ckpt_header_entry_text(char out[static CKPT_HEADER_ENTRY_TEXT],
                                   const struct ckpt_header_entry *e) {
    const size_t cap = CKPT_HEADER_ENTRY_TEXT;
    size_t n = (size_t)snprintf(out, cap, "%s [", ckpt_dtype_info(e->dtype)->name);
    for (uint32_t i = 0; i < e->ndim && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%" PRId64, i ? ", " : "", e->shape[i]);
    snprintf(out + (n < cap - 2 ? n : cap - 2), 2, "]");
    return out;
}

static void check_size(struct ckpt_header_entry_reader *r) {
    const struct ckpt_header_entry *e = r->entry;
    char shown[CKPT_HEADER_ENTRY_TEXT];
    uint64_t count, bytes;
    if (!ckpt_shape_count(e->shape, e->ndim, &count))
        ckpt_header_entry_fault(r, "the element count of %s overflows",
                                ckpt_header_entry_text(shown, e));
    else if (!ckpt_dtype_bytes(e->dtype, count, &bytes))
        ckpt_header_entry_fault(r, "%s does not fill whole bytes below 2^64",
                                ckpt_header_entry_text(shown, e));
    else if (e->begin <= e->end && bytes != e->end - e->begin)
        ckpt_header_entry_fault(
            r,
            "%s needs %" PRIu64 " bytes, its data_offsets %" PRIu64 "..%" PRIu64 " hold %" PRIu64,
            ckpt_header_entry_text(shown, e), bytes, e->begin, e->end, e->end - e->begin);
}

void ckpt_header_entry_check(struct ckpt_header_entry_reader *r, uint64_t data_size) {
    const struct ckpt_header_entry *e = r->entry;
    if (r->is_faulty)
        return; /* the numbers may mean nothing */
    if (e->dtype != CKPT_DT_NONE)
        check_size(r);
    if (e->begin > e->end)
        ckpt_header_entry_fault(r, "its data_offsets %" PRIu64 "..%" PRIu64 " run backwards",
                                e->begin, e->end);
    else if (e->end > data_size)
        ckpt_header_entry_fault(r,
                                "its data ends at byte %" PRIu64 " of the data, which has %" PRIu64
                                " bytes: the file is truncated or damaged",
                                e->end, data_size);
}

static int by_range(const void *x, const void *y) {
    const struct ckpt_header_entry *a = *(struct ckpt_header_entry *const *)x,
                                   *b = *(struct ckpt_header_entry *const *)y;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return (a > b) - (a < b);
}

struct ckpt_header_entry **ckpt_header_by_range(struct ckpt_header_entry *entries, size_t n,
                                                size_t *sound) {
    struct ckpt_header_entry **sorted = calloc(n + 1, sizeof *sorted);
    bool in_order = true;
    *sound = 0;
    for (size_t i = 0; sorted && i < n; i++) {
        if (entries[i].fault)
            continue;
        sorted[*sound] = &entries[i];
        in_order = in_order && (*sound == 0 || by_range(&sorted[*sound - 1], &sorted[*sound]) < 0);
        ++*sound;
    }
    if (sorted && !in_order)
        qsort(sorted, *sound, sizeof *sorted, by_range);
    return sorted;
}

/* --- into the checkpoint ---------------------------------------------------------------------- */

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading the checkpoint");
}

/* A path of the key as its one segment. */
static bool key_path(struct ckpt_arena *a, struct ckpt_text key, struct ckpt_path *path) {
    struct ckpt_text *segment = ckpt_arena_alloc(a, sizeof *segment);
    if (!segment)
        return false;
    *segment = key;
    *path = (struct ckpt_path){.segment = segment, .n = 1};
    return true;
}

int ckpt_header_entry_add(struct ckpt_checkpoint *c, const struct ckpt_file *f, uint64_t data_start,
                          const struct ckpt_header_entry *e, struct ckpt_err *err) {
    struct ckpt_tensor tensor = {
        .key = e->key, .dtype = e->dtype, .ndim = e->ndim, .shape = e->shape, .module = -1};
    if (!key_path(&c->arena, e->key, &tensor.path))
        return fail_memory(err);
    if (e->fault)
        return ckpt_checkpoint_add_unsupported(c, tensor.path, ckpt_text_of(e->fault))
                   ? fail_memory(err)
                   : 0;
    int rc = ckpt_blob_extent(&c->arena, f, data_start + e->begin, e->end - e->begin, "",
                              &tensor.blob, err);
    if (!rc)
        rc = ckpt_tensor_check(&tensor, err);
    if (rc)
        return rc;
    struct ckpt_tensor *slot = ckpt_checkpoint_add_tensor(c);
    if (!slot || ckpt_checkpoint_add_blob(c, tensor.blob))
        return fail_memory(err);
    *slot = tensor;
    return 0;
}
