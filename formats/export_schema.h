#ifndef CKPT_FORMATS_EXPORT_SCHEMA_H
#define CKPT_FORMATS_EXPORT_SCHEMA_H
/*
 * What the JSON files of torch.export share: element types by number and the description of a
 * tensor,
 *
 *     {"dtype": 7, "sizes": [{"as_int": 8}, {"as_expr": {...}}], "strides": [...],
 *      "storage_offset": {"as_int": 0}, "layout": 7, "device": ..., "requires_grad": ...}
 *
 * The numbers are the schema's own, not those of c10.
 */
#include "base/json.h"
#include "formats/dtype.h"

#define CKPT_SYMBOLIC INT64_MIN /* a size that is known only when the graph runs */

struct ckpt_export_meta {
    int64_t dtype_number;
    enum ckpt_dtype dtype; /* NONE: a number that we do not know */
    uint32_t ndim;
    const int64_t *shape, *stride; /* elements, or CKPT_SYMBOLIC */
    int64_t offset;                /* elements of the storage, or CKPT_SYMBOLIC */
    bool strided;                  /* not sparse nor of another layout */
};

enum ckpt_dtype ckpt_export_dtype(int64_t number);

/* Reads the next value; shapes are in the arena. Every size is >= 0, every list has at most
 * CKPT_NDIM_MAX entries, and there are as many strides as sizes. */
int ckpt_export_meta_read(struct ckpt_json *j, struct ckpt_arena *a,
                          struct ckpt_export_meta *out) CKPT_CHECKED;
/* The same where its first token has been read already. */
int ckpt_export_meta_take(struct ckpt_json *j, int token, struct ckpt_arena *a,
                          struct ckpt_export_meta *out) CKPT_CHECKED;

#endif
