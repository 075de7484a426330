/*
 * Rules on what rules made: what the dialect's stage packed into parts is taken up as pieces again,
 * so that the user's own rules see PyTorch's tensors, whatever they are made of.
 */
#include <errno.h>
#include <string.h>

#include "adapters/rule.h"

/* The part's own shape: as the whole's, but for its share of the axis along which they are joined.
 */
static void shape_of(const struct ckpt_part *part, const struct ckpt_shaped *made,
                     enum ckpt_dtype dtype, int64_t *shape) {
    memcpy(shape, made->shape, made->ndim * sizeof *shape);
    if (made->nparts == 1)
        return;
    int64_t share = (int64_t)(part->nbytes / ckpt_dtype_info(dtype)->unit_bytes);
    for (uint32_t d = 0; d < made->ndim; d++)
        if (d != made->axis)
            share = shape[d] ? share / shape[d] : 0;
    shape[made->axis] = share;
}

static int take_up(struct ckpt_pieces *p, const struct ckpt_part *part,
                   const struct ckpt_shaped *made, enum ckpt_dtype dtype, struct ckpt_err *err) {
    int64_t shape[CKPT_NDIM_MAX];
    shape_of(part, made, dtype, shape);
    if (!part->source) {
        p->n = 0;
        p->fan = 1;
        return ckpt_pieces_add_zeros(p, shape, made->ndim, dtype, err);
    }
    const int rc = ckpt_pieces_start(p, part->source, err);
    if (rc)
        return rc;
    struct ckpt_piece *const piece = &p->at[0];
    ckpt_view_unpack(&piece->view, part->walk, shape, made->ndim);
    piece->nop = part->nop;
    piece->ntorch = part->ntorch;
    if (part->nop)
        memcpy(piece->op, part->op, part->nop * sizeof *part->op);
    return 0;
}

int ckpt_pieces_resume(struct ckpt_pieces *p, const struct ckpt_shaped *made, enum ckpt_dtype dtype,
                       struct ckpt_err *err) {
    CKPT_AUTO(pieces) struct ckpt_pieces next = {.arena = p->arena};
    int rc = take_up(p, &made->part[0], made, dtype, err);
    for (uint32_t i = 1; rc == 0 && i < made->nparts; i++) {
        rc = take_up(&next, &made->part[i], made, dtype, err);
        if (rc == 0)
            rc = ckpt_pieces_join(p, &next, made->axis, err);
    }
    return rc;
}
