#ifndef CKPT_FORMATS_ZARR_KNOWN_H
#define CKPT_FORMATS_ZARR_KNOWN_H
/*
 * Metadata that has been read before: of ten thousand arrays, most say the same as another, letter
 * by letter. Those share one description, which is parsed once.
 */
#include "base/strmap.h"
#include "formats/zarr.h"

struct ckpt_zarr_known {
    struct ckpt_strmap by_json;
    struct {
        const struct ckpt_zarr *zarr;
        int version;
    } * entries;
    size_t n, cap;
};

/* As ckpt_zarr_parse, but what it yields is in the arena, and may be another array's, too. Failures
 * are not remembered. */
int ckpt_zarr_known_parse(struct ckpt_zarr_known *k, struct ckpt_text json, int version,
                          struct ckpt_arena *a, const struct ckpt_zarr **out,
                          struct ckpt_err *err) CKPT_CHECKED;
void ckpt_zarr_known_fini(struct ckpt_zarr_known *k);

#endif
