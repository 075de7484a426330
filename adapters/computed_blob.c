#include "adapters/computed_blob.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/cleanup.h"

/* Computed blobs as blobs: a pin computes the elements around [lo, hi) into memory of its own. */

/* Elements [first, end). */
static int compute_run(struct ckpt_computed_blob *c, uint64_t first, uint64_t end, uint8_t *out,
                       const struct ckpt_stop *stop, struct ckpt_err *err) {
    const uint32_t size = ckpt_dtype_info(c->dtype)->unit_bytes;
    const struct ckpt_element_map map = {.from = c->dtype, .to = c->dtype};
    CKPT_AUTO(free) struct ckpt_walk *w = calloc(1, sizeof *w + sizeof w->pair[0]);
    if (!w)
        return ckpt_fail_memory(err, "computing a tensor");
    w->offset = (int64_t)(c->phase + first * size);
    w->esize = size;
    w->count = (int64_t)(end - first);
    w->npairs = w->count > 1;
    w->pair[0] = (struct ckpt_dim){w->count, size};
    return w->count ? c->compute(c, w, &map, 0, w->count, out, stop, err) : 0;
}

static int pin(struct ckpt_blob *b, uint64_t lo, uint64_t hi, struct ckpt_pin *out,
               const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct ckpt_computed_blob *const c = ckpt_computed_blob_of(b);
    const uint64_t size = ckpt_dtype_info(c->dtype)->unit_bytes;
    const uint64_t first = (lo - c->phase) / size, end = (hi - c->phase + size - 1) / size;
    if (lo < c->phase || lo > hi || end > (b->size - c->phase) / size)
        return ckpt_fail(err, -EINVAL,
                         "bytes %" PRIu64 "..%" PRIu64 " lie outside a computed storage of %" PRIu64
                         " bytes",
                         lo, hi, b->size);
    CKPT_AUTO(free) uint8_t *bytes = malloc(end > first ? (size_t)((end - first) * size) : 1);
    const int rc = bytes ? compute_run(c, first, end, bytes, stop, err)
                         : ckpt_fail_memory(err, "computing a tensor");
    if (rc < 0)
        return rc;
    out->data = bytes + (lo - c->phase) % size;
    out->held = CKPT_STEAL(bytes);
    return 0;
}

static void unpin(struct ckpt_blob *b, struct ckpt_pin *held) {
    (void)b;
    free(held->held);
    *held = (struct ckpt_pin){0};
}

static void fini(struct ckpt_blob *b) {
    struct ckpt_computed_blob *const c = ckpt_computed_blob_of(b);
    if (c->fini)
        c->fini(c);
}

static const struct ckpt_blob_ops ops = {
    .kind = "computed", .pin = pin, .unpin = unpin, .fini = fini};

void ckpt_computed_blob_init(struct ckpt_computed_blob *c, const struct ckpt_blob *like) {
    c->blob = (struct ckpt_blob){
        .ops = &ops, .size = like->size, .file = like->file, .name = like->name, .id = UINT32_MAX};
}

struct ckpt_computed_blob *ckpt_computed_blob_of(struct ckpt_blob *b) {
    return b->ops == &ops ? (struct ckpt_computed_blob *)b : NULL;
}

const struct ckpt_file *ckpt_blob_changed_file(struct ckpt_blob *b) {
    struct ckpt_computed_blob *const c = ckpt_computed_blob_of(b);
    if (!c)
        return b->file && ckpt_file_changed(b->file) ? b->file : NULL;
    const struct ckpt_file *changed = NULL;
    for (size_t i = 0; i < CKPT_COMPUTED_SOURCES && c->source[i] && !changed; i++)
        changed = ckpt_blob_changed_file(c->source[i]->blob);
    return changed;
}

const struct ckpt_store_file *ckpt_blob_changed_store(struct ckpt_blob *b,
                                                      const struct ckpt_store_file **last) {
    struct ckpt_computed_blob *const c = ckpt_computed_blob_of(b);
    if (!c)
        return b->ops->changed ? b->ops->changed(b, last) : NULL;
    const struct ckpt_store_file *changed = NULL;
    for (size_t i = 0; i < CKPT_COMPUTED_SOURCES && c->source[i] && !changed; i++)
        changed = ckpt_blob_changed_store(c->source[i]->blob, last);
    return changed;
}
