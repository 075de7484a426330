/*
 * Computing elements of a part: the blob's bytes, the guard, the gather.
 */
#include "adapters/reader_compute.h"

#include <errno.h>
#include <string.h>

#include "adapters/computed_blob.h"
#include "adapters/grid_gather.h"
#include "base/guard.h"
#include "formats/mapped.h"

int ckpt_source_open(struct ckpt_blob *blob, int64_t lo, int64_t hi, struct ckpt_source_bytes *s,
                     const struct ckpt_stop *stop, struct ckpt_err *err) {
    *s = (struct ckpt_source_bytes){.blob = blob};
    if (blob->in_file) {
        s->base = blob->file->data + blob->file_offset;
        return 0;
    }
    const int rc = blob->ops->pin(blob, (uint64_t)lo, (uint64_t)hi, &s->pin, stop, err);
    if (rc < 0)
        s->blob = NULL;
    else
        s->base = s->pin.data - lo;
    return rc;
}

void ckpt_source_close(struct ckpt_source_bytes *s) {
    if (s->blob && !s->blob->in_file)
        s->blob->ops->unpin(s->blob, &s->pin);
    s->blob = NULL;
}

int ckpt_source_failed(const struct ckpt_blob *blob, struct ckpt_err *err) {
    const char *const name = blob->file ? blob->file->name : blob->name;
    return ckpt_fail(err, -EIO, "%s " CKPT_LOST, name);
}

int ckpt_part_compute(const struct ckpt_part *p, const struct ckpt_element_map *map, int64_t first,
                      int64_t n, uint8_t *out, const struct ckpt_stop *stop, struct ckpt_err *err) {
    struct ckpt_computed_blob *const computed = ckpt_computed_blob_of(p->source->blob);
    if (computed)
        return computed->compute(computed, p->walk, map, first, n, out, stop, err);
    struct ckpt_chunk_grid *const grid = ckpt_chunk_grid_of(p->source->blob);
    if (grid && ckpt_grid_gather_can(grid, p->walk))
        return ckpt_grid_gather(grid, p->walk, map, first, n, out, stop, err);
    struct ckpt_source_bytes source;
    int64_t lo, hi;
    ckpt_walk_bounds(p->walk, first, n, &lo, &hi);
    int rc = ckpt_source_open(p->source->blob, lo, hi, &source, stop, err);
    if (rc < 0)
        return rc;
    volatile bool complete = false;
    CKPT_GUARDED(rc, complete = ckpt_gather_until(p->walk, map, source.base, first, n, out, stop));
    if (rc < 0)
        rc = ckpt_source_failed(p->source->blob, err);
    else if (!complete)
        rc = ckpt_fail_stopped(err);
    ckpt_source_close(&source);
    return rc;
}
